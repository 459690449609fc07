from __future__ import annotations

import asyncio
import json
import zlib
from typing import Any

import aiohttp
import discord
import pytest

from tests.servers.discord import DiscordServer, Json
from tests.servers.discord.conftest import Bot, Http, ask, connected, refusal
from tests.servers.discord.model import MEMBERS, MESSAGE_CONTENT


class Socket:
    """A bare gateway connection, to say what discord.py never says."""

    def __init__(self, server: DiscordServer, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.server, self.ws = server, ws

    async def send(self, op: int, data: Any) -> None:
        await self.ws.send_json({"op": op, "d": data})

    async def identify(self, **fields: Any) -> None:
        await self.send(2, {"token": self.server.token, "intents": 1, "properties": {}} | fields)

    async def next(self) -> Json:
        frame: Json = json.loads((await asyncio.wait_for(self.ws.receive(), 30)).data)
        return frame

    async def closed(self) -> int | None:
        async with asyncio.timeout(30):
            async for _ in self.ws:
                pass
        return self.ws.close_code


async def dial(server: DiscordServer, session: aiohttp.ClientSession, query: str = "v=10&encoding=json") -> Socket:
    return Socket(server, await session.ws_connect(f"{server.gateway_url}?{query}"))


FATAL: list[tuple[Json, int]] = [
    ({"token": "another"}, 4004),
    ({"shard": [1, 1]}, 4010),
    ({"shard": [0]}, 4010),
    ({"intents": 1 << 30}, 4013),
    ({"intents": None}, 4013),
    ({"intents": MEMBERS}, 4014),
]


@pytest.mark.parametrize(("fields", "code"), FATAL)
async def test_a_wrong_identify_is_answered_with_its_close_code(fields: Json, code: int) -> None:
    async with DiscordServer(privileged=0) as server, aiohttp.ClientSession() as session:
        socket = await dial(server, session)
        await socket.identify(**fields)
        assert await socket.closed() == code
        assert server.sessions == {}


@pytest.mark.parametrize(
    ("op", "data", "code"), [(8, {}, 4003), (3, {}, 4003), (6, {"token": "another"}, 4004), (99, {}, 4003)]
)
async def test_what_comes_before_an_identify_is_refused(server: DiscordServer, op: int, data: Json, code: int) -> None:
    async with aiohttp.ClientSession() as session:
        socket = await dial(server, session)
        await socket.send(op, data)
        assert await socket.closed() == code


async def test_what_comes_after_an_identify_is_checked(server: DiscordServer) -> None:
    async with aiohttp.ClientSession() as session:
        for op, code in [(2, 4005), (99, 4001)]:
            socket = await dial(server, session)
            await socket.identify()
            await socket.send(op, {"token": server.token, "intents": 1})
            assert await socket.closed() == code
        socket = await dial(server, session)
        await socket.ws.send_str("{")
        assert await socket.closed() == 4002
        socket = await dial(server, session)
        await socket.ws.send_str(json.dumps({"op": 1, "d": "x" * 4096}))
        assert await socket.closed() == 4002
        socket = await dial(server, session, "v=6&encoding=json")
        assert await socket.closed() == 4012


async def test_more_than_120_events_a_minute_end_the_connection(server: DiscordServer) -> None:
    async with aiohttp.ClientSession() as session:
        socket = await dial(server, session)
        for _ in range(121):
            await socket.send(1, None)
        assert await socket.closed() == 4008
        assert "120 events" in server.violations[0]


async def test_a_shard_of_too_many_guilds_is_refused(server: DiscordServer) -> None:
    server.max_guilds_per_shard = 1
    server.add_guild("second")
    async with aiohttp.ClientSession() as session:
        socket = await dial(server, session)
        await socket.identify()
        assert await socket.closed() == 4011


async def test_discord_py_gives_up_where_the_code_says_so() -> None:
    async with DiscordServer(privileged=0) as server:
        async with Bot(server) as bot:
            with pytest.raises(discord.PrivilegedIntentsRequired):
                await bot.start(server.token)
        async with DiscordServer() as other, Bot(other) as bot:
            with pytest.raises(discord.LoginFailure):
                await bot.start("another")


async def test_heartbeats_are_acknowledged_and_missed_ones_end_the_connection() -> None:
    async with DiscordServer(heartbeat_ms=100) as server, aiohttp.ClientSession() as session:
        socket = await dial(server, session)
        assert (await socket.next())["d"]["heartbeat_interval"] == 100
        await socket.send(1, None)
        assert (await socket.next())["op"] == 11
        assert await socket.closed() == 4000


async def test_a_dead_connection_is_noticed_by_missing_acknowledgements() -> None:
    async with (
        DiscordServer(heartbeat_ms=300) as server,
        connected(server, Bot(server, heartbeat_timeout=0.6)) as bot,
    ):
        session = server.live()[0]
        server.drop_acks()
        server.silence()
        await server.say("kept")
        await server.wait_until(lambda: session.resumes >= 1, timeout=20)
        server.drop_acks(0)
        await server.wait_until(lambda: bot.texts() == ["kept"], timeout=20)


async def test_events_come_over_zlib_stream(server: DiscordServer) -> None:
    async with aiohttp.ClientSession() as session:
        socket = await dial(server, session, "v=10&encoding=json&compress=zlib-stream")
        inflate = zlib.decompressobj()
        await socket.identify()
        for wanted in ("op", "READY", "GUILD_CREATE"):
            packed = (await asyncio.wait_for(socket.ws.receive(), 30)).data
            assert packed.endswith(b"\x00\x00\xff\xff")
            frame = json.loads(inflate.decompress(packed))
            assert frame["t"] == wanted or (wanted == "op" and frame["op"] == 10)


@pytest.mark.parametrize("how", ["reconnect", "kill", "resumable", "4000"])
async def test_a_broken_session_is_resumed_with_what_it_missed(server: DiscordServer, how: str) -> None:
    async with connected(server, Bot(server)) as bot:
        session = server.live()[0]
        await server.say("before")
        await server.wait_until(lambda: bot.texts() == ["before"])
        match how:
            case "reconnect":
                await server.reconnect()
            case "kill":
                await server.kill_sockets()
            case "resumable":
                await server.invalidate(resumable=True)
            case _:
                await server.hang_up(4000)
        await server.wait_until(lambda: session.connection is None or session.resumes == 1)
        await server.say("between")
        await server.wait_until(lambda: session.resumes == 1, timeout=20)
        await server.say("after")
        await server.wait_until(lambda: len(bot.heard) == 3)
        assert bot.texts() == ["before", "between", "after"]
        assert list(server.sessions.values()) == [session]
        assert len(server.identifies) == 1


async def test_resuming_fails_as_discord_says(server: DiscordServer) -> None:
    async with aiohttp.ClientSession() as session:
        socket = await dial(server, session)
        await socket.next()
        await socket.send(6, {"token": server.token, "session_id": "none", "seq": 1})
        assert await socket.next() == {"t": None, "s": None, "op": 9, "d": False}
        await socket.identify()
        ready = await socket.next()
        await socket.ws.close(code=4000)
        sid = ready["d"]["session_id"]
        await server.wait_until(lambda: server.sessions[sid].connection is None)
        again = await dial(server, session)
        await again.send(6, {"token": server.token, "session_id": sid, "seq": 99})
        assert await again.closed() == 4007
        late = await dial(server, session)
        await late.identify()
        await server.wait_until(server.live)
        (sid,) = server.sessions
        await late.ws.close(code=4000)
        await server.wait_until(lambda: not server.live())
        server.fast_forward(server.resume_window + 1)
        again = await dial(server, session)
        await again.next()
        await again.send(6, {"token": server.token, "session_id": sid, "seq": 1})
        assert (await again.next())["op"] == 9


@pytest.mark.parametrize("code", [1000, 1001])
async def test_a_client_that_closes_normally_ends_its_session(server: DiscordServer, code: int) -> None:
    async with aiohttp.ClientSession() as session:
        socket = await dial(server, session)
        await socket.identify()
        await server.wait_until(server.live)
        await socket.ws.close(code=code)
        await server.wait_until(lambda: not server.sessions)


async def test_every_identify_is_counted_and_too_many_reset_the_token(http: Http, server: DiscordServer) -> None:
    server.identify_limit = 2
    assert (await ask(http, "GET", "/gateway/bot"))["session_start_limit"]["remaining"] == 2
    async with aiohttp.ClientSession() as session:
        sockets = [await dial(server, session) for _ in range(3)]
        for n, socket in enumerate(sockets[:2]):
            await socket.identify()
            await server.wait_connected(sessions=n + 1)
        start = (await ask(http, "GET", "/gateway/bot"))["session_start_limit"]
        assert (start["total"], start["remaining"]) == (2, 0)
        assert 0 < start["reset_after"] <= 86_400_000
        await sockets[2].identify()
        assert await sockets[0].closed() == 4004
    assert "token was reset" in server.violations[0]
    assert await refusal(ask(http, "GET", "/users/@me")) == (401, 0)


async def test_identifies_are_given_back_after_a_day_and_resumes_cost_none(server: DiscordServer) -> None:
    async with connected(server, Bot(server)):
        await server.reconnect()
        await server.wait_until(lambda: server.live() and server.live()[0].resumes == 1, timeout=20)
        assert server.identifies_left == 999
        server.fast_forward(86_401)
        assert server.identifies_left == 1000


async def test_identifies_that_come_too_fast_get_an_invalid_session() -> None:
    async with DiscordServer(identify_window=5.0) as server, aiohttp.ClientSession() as session:
        first, second = await dial(server, session), await dial(server, session)
        await first.identify()
        await server.wait_until(server.live)
        await second.next()
        await second.identify()
        assert (await second.next())["op"] == 9
        server.fast_forward(5)
        await second.identify()
        assert (await second.next())["t"] == "READY"


async def test_each_shard_hears_of_its_own_guilds_and_the_first_of_direct_messages(server: DiscordServer) -> None:
    rooms = [server.add_channel("room", guild=server.add_guild("g", shard=(n, 2))) for n in (0, 1)]

    def client(shard: int) -> Bot:
        return Bot(server, shard_id=shard, shard_count=2)

    async with connected(server, client(0)) as zero, connected(server, client(1)) as one:
        assert {s.shard for s in server.live()} == {(0, 2), (1, 2)}
        for n, room in enumerate(rooms):
            await server.say(f"guild {n}", channel=room)
        await server.say("direct", channel=server.dm_with())
        await server.wait_until(lambda: len(zero.heard) + len(one.heard) == 3)
        assert zero.texts() == ["guild 0", "direct"]
        assert one.texts() == ["guild 1"]
        assert {g.shard_id for g in one.guilds} <= {1}


async def test_the_clients_own_sharding_finds_the_recommended_number() -> None:
    async with DiscordServer(shards=2) as server:
        for n in (0, 1):
            server.add_guild("g", shard=(n, 2))

        class Sharded(Bot, discord.AutoShardedClient):
            pass

        async with connected(server, Sharded(server), sessions=2) as bot:
            assert bot.shard_count == 2
            assert {s.shard for s in server.live()} == {(0, 2), (1, 2)}


async def test_two_sessions_of_one_shard_each_hear_everything(server: DiscordServer) -> None:
    async with connected(server, Bot(server)) as first, connected(server, Bot(server)) as second:
        await server.say("hello")
        await server.wait_until(lambda: first.texts() == second.texts() == ["hello"])


async def test_events_can_come_twice_and_in_another_order(server: DiscordServer) -> None:
    async with connected(server, Bot(server)) as bot:
        server.copies = 2
        await server.say("twice")
        server.copies = 1
        server.hold_events()
        await server.say("one")
        await server.say("two")
        server.release_events(backwards=True)
        await server.wait_until(lambda: len(bot.heard) == 4)
        assert bot.texts() == ["twice", "twice", "two", "one"]
        assert [frame["s"] for frame in server.live()[0].log] == list(range(1, len(server.live()[0].log) + 1))


async def test_an_event_is_kept_as_it_was_sent(server: DiscordServer) -> None:
    async with connected(server, Bot(server)):
        mid = await server.say("one")
        await server.edit(mid, "two")
        (created,) = server.live()[0].events("MESSAGE_CREATE")
        assert created["content"] == "one"


async def test_guilds_come_and_go(server: DiscordServer) -> None:
    async with connected(server, Bot(server)) as bot:
        second = server.add_guild("second")
        room = server.add_channel("room", guild=second)
        await server.invite_bot(second)
        await server.say("hello", channel=room)
        await server.wait_until(lambda: bot.texts() == ["hello"])
        assert {g.name for g in bot.guilds} == {"Fake", "second"}
        await server.kick_bot(second)
        await server.say("alone", channel=room)
        await server.fail_guild()
        await server.say("still here")
        await server.wait_until(lambda: bot.texts() == ["hello", "still here"])
        assert [(g.name, g.unavailable) for g in bot.guilds] == [("Fake", True)]


async def test_a_channel_that_is_hidden_sends_nothing(server: DiscordServer) -> None:
    async with connected(server, Bot(server)) as bot:
        hidden = server.add_channel("hidden")
        server.deny(hidden, "VIEW_CHANNEL")
        await server.say("secret", channel=hidden)
        await server.say("open")
        await server.wait_until(lambda: bot.heard)
        assert bot.texts() == ["open"]


async def test_members_are_given_to_those_with_the_intent(server: DiscordServer) -> None:
    intents = discord.Intents(guilds=True, members=True)
    async with connected(server, Bot(server, intents)) as bot:
        await server.wait_until(lambda: {m.name for m in bot.guilds[0].members} == {"hermod", "alice", "bob"})
    async with connected(server, Bot(server)) as bot:
        assert {m.name for m in bot.guilds[0].members} == {"hermod"}
    assert server.privileged == MEMBERS | MESSAGE_CONTENT
