"""The connection to Discord: how it begins, breaks, goes on, and ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial

import pytest
import structlog

from adapters.chat import AdapterNotConfigured, Delivered, Reply
from adapters.commands import CommandOffer
from tests.integration.discord.conftest import Inbox, build_adapter, running, wait_connected
from tests.integration.discord.outbound_desk import place
from tests.ports import free_port
from tests.servers.discord import DiscordServer
from tests.servers.discord.model import MEMBERS


async def until(predicate: Callable[[], object], timeout_s: float = 30.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not predicate():  # noqa: ASYNC110 - a property tells, nothing calls
            await asyncio.sleep(0.005)


async def hears(server: DiscordServer, inbox: Inbox) -> None:
    """Say something, and see it arrive."""
    message_id = await server.mention("still there?")
    await inbox.wait_for(lambda: any(m.id == message_id for m in inbox.messages))


async def reconnected(server: DiscordServer, act: Awaitable[None], *, shard: int | None = None) -> None:
    """Do something to the one connection (of a shard), and wait until there is another one."""
    (session,) = server.live(shard)
    before = session.connection
    await act
    await server.wait_until(lambda: any(s.connection is not before for s in server.live(shard)))


# -- beginning
async def test_a_refused_token_is_told_at_the_start(server: DiscordServer, inbox: Inbox) -> None:
    adapter = build_adapter(server, token="wrong.token")
    with pytest.raises(AdapterNotConfigured, match=r"token is refused.*page Bot"):
        await adapter.start(inbox.accept)
    assert not adapter.connected
    assert not server.identifies
    await adapter.stop()


async def test_a_missing_token_is_told_at_the_start(server: DiscordServer, inbox: Inbox) -> None:
    adapter = build_adapter(server, token=" ")
    with pytest.raises(AdapterNotConfigured, match="HERMOD_DISCORD__TOKEN"):
        await adapter.start(inbox.accept)
    await adapter.stop()
    assert not server.calls


async def test_only_what_is_needed_is_asked_of_the_gateway(inbox: Inbox) -> None:
    guilds, guild_messages, direct_messages, content = 1 << 0, 1 << 9, 1 << 12, 1 << 15
    async with DiscordServer() as server, running(server, inbox):
        assert server.live()[0].intents == guilds | guild_messages | direct_messages | content
    async with DiscordServer(privileged=MEMBERS) as server, running(server, inbox):
        assert server.live()[0].intents == guilds | guild_messages | direct_messages


async def test_discord_that_cannot_be_reached_is_tried_until_it_can(inbox: Inbox) -> None:
    port, pauses = free_port(), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(min(seconds, 0.01))

    def monotonic() -> float:
        return time.monotonic() + sum(pauses)

    server = DiscordServer(port=port)
    adapter = build_adapter(server, retry_s=1.0, monotonic=monotonic, sleep=sleep)
    try:
        await adapter.start(inbox.accept)
        assert not adapter.connected
        await until(lambda: len(pauses) >= 6)
        assert pauses[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
        async with server:
            await wait_connected(adapter)
            await hears(server, inbox)
            await adapter.stop()
    finally:
        await adapter.stop()


async def test_a_start_that_waits_can_be_stopped(inbox: Inbox) -> None:
    adapter = build_adapter(DiscordServer(port=free_port()), retry_s=3600.0)
    await adapter.start(inbox.accept)
    async with asyncio.timeout(30):
        await adapter.stop()
    assert not adapter.connected


@pytest.mark.parametrize("while_asked", ["GET /users/@me", "GET /gateway/bot"])
async def test_a_stop_during_the_start_leaves_nothing_running(
    server: DiscordServer, inbox: Inbox, while_asked: str
) -> None:
    server.inject(while_asked, delay=0.2, only_delay=True)
    adapter = build_adapter(server)
    starting = asyncio.create_task(adapter.start(inbox.accept))
    await server.wait_until(lambda: server.calls_to(while_asked))
    await adapter.stop()
    async with asyncio.timeout(30):
        await starting
    assert not adapter.connected
    assert not server.live()
    await server.mention("anybody?")
    assert inbox.messages == []


async def test_b016_nothing_is_taken_before_it_is_known_who_we_are(server: DiscordServer, inbox: Inbox) -> None:
    server.inject("GET /users/@me", http=503, times=3)
    adapter = build_adapter(server)
    try:
        await adapter.start(inbox.accept)
        assert not adapter.connected
        assert not server.identifies
        await wait_connected(adapter)
        await server.say(f"<@{server.bot_id}> from ourselves", user=server.bot_id)
        await hears(server, inbox)
        assert len(inbox.messages) == 1
    finally:
        await adapter.stop()


@pytest.mark.parametrize("heard", ["GET /users/@me", "GET /gateway/bot"])
async def test_a_refusal_of_all_calls_that_the_start_hears_holds_a_message_too(
    server: DiscordServer, inbox: Inbox, heard: str
) -> None:
    server.inject(heard, http=429, retry_after=2.0, is_global=True)
    answer = Reply(thread=place(server, await server.mention("busy?")), text="Yes.", key="run-1/1")
    adapter = build_adapter(server)
    starting = asyncio.create_task(adapter.start(inbox.accept))
    try:
        await server.wait_until(lambda: any(call.status == 429 for call in server.calls))
        assert isinstance(await adapter.post(answer), Delivered)
        await starting
        await wait_connected(adapter)
    finally:
        await adapter.stop()
    (refused,) = [call for call in server.calls if call.status == 429]
    assert [call.path for call in server.calls if refused.at < call.at < refused.at + 2.0] == []


# -- going on
async def test_a_session_is_resumed_when_discord_asks_for_a_new_connection(server: DiscordServer, inbox: Inbox) -> None:
    async with running(server, inbox) as adapter:
        for _ in range(3):
            await reconnected(server, server.reconnect())
            await hears(server, inbox)
        await until(lambda: adapter.connected)
        assert len(server.identifies) == 1
        assert len(inbox.messages) == 3


@pytest.mark.parametrize("code", [1000, 1001, 4000, 4009])
async def test_a_connection_that_discord_closes_is_made_again(server: DiscordServer, inbox: Inbox, code: int) -> None:
    async with running(server, inbox) as adapter:
        await reconnected(server, server.hang_up(code))
        await hears(server, inbox)
        await wait_connected(adapter)


async def test_what_is_said_while_the_network_is_cut_comes_with_the_resume(server: DiscordServer, inbox: Inbox) -> None:
    async with running(server, inbox) as adapter:
        await server.kill_sockets()
        said = await server.mention("did you hear?")
        await inbox.wait_for(lambda: any(m.id == said for m in inbox.messages))
        await wait_connected(adapter)
        assert len(server.identifies) == 1
        assert len(inbox.messages) == 1


async def test_a_session_survives_connections_that_cannot_be_made(inbox: Inbox) -> None:
    """discord.py's own loop identifies anew after the first such failure, and what was said meanwhile is gone."""
    port = free_port()
    async with DiscordServer() as server, Relay(port, server.port) as relay:
        url = f"ws://127.0.0.1:{port}/gateway"
        async with running(server, inbox, gateway_url=url) as adapter:
            await relay.cut()
            said = await server.mention("did you hear?")
            await until(lambda: not adapter.connected)
            await until(lambda: relay.refused >= 3)
            relay.is_open = True
            await inbox.wait_for(lambda: any(m.id == said for m in inbox.messages))
            assert len(server.identifies) == 1


async def test_a_connection_that_is_open_but_dead_is_made_again(server: DiscordServer, inbox: Inbox) -> None:
    async with running(server, inbox, heartbeat_timeout_s=1.0):
        (session,) = server.live()
        dead = session.connection
        server.silence()
        said = await server.mention("did you hear?")
        await server.wait_until(lambda: session.connection is not dead)
        await inbox.wait_for(lambda: any(m.id == said for m in inbox.messages))
        assert len(server.identifies) == 1


@pytest.mark.parametrize("resumable", [True, False])
async def test_a_session_that_discord_ends_is_begun_anew_or_resumed(
    server: DiscordServer, inbox: Inbox, resumable: bool
) -> None:
    async with running(server, inbox) as adapter:
        await reconnected(server, server.invalidate(resumable=resumable))
        await hears(server, inbox)
        await wait_connected(adapter)
        assert len(server.identifies) == (1 if resumable else 2)


async def test_two_adapters_in_one_process_keep_their_addresses_apart(inbox: Inbox) -> None:
    async with DiscordServer() as first, DiscordServer() as second:
        async with running(first, inbox) as one, running(second, Inbox()) as other:
            assert one.connected
            assert other.connected
            assert first.live()
            assert second.live()
            await hears(first, inbox)
        assert len(inbox.messages) == 1


# -- what is final
FINAL = {
    4004: "token",
    4010: "shard_ids",
    4011: "shard_count",
    4012: "newer Hermod",
    4013: "intents",
}


@pytest.mark.parametrize(("code", "word"), FINAL.items())
async def test_a_final_close_code_is_one_clear_line_and_no_loop(
    server: DiscordServer, inbox: Inbox, code: int, word: str
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with running(server, inbox) as adapter:
            await server.hang_up(code)
            await until(lambda: any(line["log_level"] == "error" for line in logs))
            assert not adapter.connected
            for _ in range(50):
                await asyncio.sleep(0)
            assert not server.live()
            assert len(server.identifies) == 1
    errors = [line for line in logs if line["log_level"] == "error"]
    assert len(errors) == 1
    assert word in errors[0]["reason"]


@pytest.mark.parametrize("shards", [1, 2])
async def test_an_intent_that_is_forbidden_while_it_runs_leaves_it_what_mentions_it(inbox: Inbox, shards: int) -> None:
    """Whoever switches it off in the portal does so beside the running process, which hears of it much later."""
    async with DiscordServer(shards=shards) as server:
        with structlog.testing.capture_logs() as logs:
            async with running(server, inbox) as adapter:
                await hears(server, inbox)
                server.privileged = MEMBERS
                await server.invalidate()
                await until(lambda: any(line["event"] == "discord_content_refused" for line in logs))
                await until(lambda: len(server.identifies) == 2 * shards)
                await wait_connected(adapter)
                await hears(server, inbox)
                thread = await server.open_thread("not a word of ours")
                await server.say("hidden", channel=thread)
                await hears(server, inbox)
        told = [line for line in logs if line["event"] == "discord_content_refused"]
        assert [line["log_level"] for line in told] == ["warning"]
        assert "Message Content Intent" in told[0]["fix"]
        assert not [line for line in logs if line["log_level"] == "error"]
        assert server.violations == []


async def test_an_intent_that_is_forbidden_during_the_start_is_done_without(inbox: Inbox) -> None:
    async with DiscordServer() as server:
        take_away = asyncio.create_task(_forbid_after_login(server))
        async with running(server, inbox):
            await take_away
            await hears(server, inbox)


async def _forbid_after_login(server: DiscordServer) -> None:
    await server.wait_until(lambda: server.calls_to("GET /gateway/bot"))
    server.privileged = MEMBERS


async def test_a_defect_that_ends_a_shard_is_told_and_the_stop_does_not_hang(
    server: DiscordServer, inbox: Inbox
) -> None:
    broken = False

    def now() -> datetime:
        if broken:
            raise ZeroDivisionError("a defect")
        return datetime.now(UTC)

    with structlog.testing.capture_logs() as logs:
        async with running(server, inbox, now=now) as adapter:
            broken = True
            await server.mention("hello")
            await until(lambda: not adapter.connected)
            broken = False
            await until(lambda: any(line["event"] == "discord_shard_failed" for line in logs))
            assert not server.live()  # and its connection is closed


async def test_a_token_that_is_reset_while_it_runs_is_told_once(server: DiscordServer, inbox: Inbox) -> None:
    with structlog.testing.capture_logs() as logs:
        async with running(server, inbox) as adapter:
            server.token = "another"
            await server.invalidate()
            await until(lambda: any(line["log_level"] == "error" for line in logs))
            assert not adapter.connected
    assert len([line for line in logs if line["log_level"] == "error"]) == 1


# -- how often
async def test_a_crash_loop_leaves_a_reserve_of_starts(inbox: Inbox) -> None:
    """Each round is a process that starts, is connected, and dies."""
    async with DiscordServer(identify_limit=40) as server:
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            if seconds >= 1:
                waits.append(seconds)
                server.fast_forward(seconds)
            await asyncio.sleep(0)

        for _ in range(45):
            async with running(server, inbox, sleep=sleep):
                pass
            assert server.identifies_left >= 2
        assert waits
        assert server.violations == []


async def test_a_start_that_has_to_wait_returns_says_how_long_and_goes_on_by_itself(inbox: Inbox) -> None:
    async with DiscordServer(identify_limit=100) as server:
        server.identifies = [(server.clock.now(), 0)] * 97
        gate = asyncio.Event()

        async def sleep(seconds: float) -> None:
            if seconds > 60:
                await gate.wait()
                server.fast_forward(seconds)
            await asyncio.sleep(0)

        with structlog.testing.capture_logs() as logs:
            adapter = build_adapter(server, sleep=sleep, first_s=0.2)
            try:
                await adapter.start(inbox.accept)
                assert not adapter.connected
                told = next(line for line in logs if line["event"] == "discord_start_waits")
                assert told["starts_left"] == 3
                assert 86_000 < told["wait_s"] <= 86_400
                gate.set()
                await wait_connected(adapter)
            finally:
                await adapter.stop()


async def test_b059_commands_are_not_sent_again_with_every_connection(server: DiscordServer, inbox: Inbox) -> None:
    adapter = build_adapter(server)
    adapter.offer_commands([CommandOffer(name="usage", summary="What was used.")], lambda asked: ())
    try:
        await adapter.start(inbox.accept)
        await wait_connected(adapter)
        await server.wait_until(lambda: server.calls_to("PUT .*/commands"))
        for _ in range(5):
            await reconnected(server, server.invalidate())
            await hears(server, inbox)
        assert len(server.identifies) == 6
        assert len(server.calls_to("PUT .*/commands")) == 1
        await adapter.stop()
        await adapter.start(inbox.accept)
        await wait_connected(adapter)
        await server.wait_until(lambda: len(server.calls_to("GET .*/commands")) == 2)
        assert len(server.calls_to("PUT .*/commands")) == 1
    finally:
        await adapter.stop()


async def test_without_offers_the_registered_commands_stay(server: DiscordServer, inbox: Inbox) -> None:
    async with running(server, inbox):
        await hears(server, inbox)
    assert not server.calls_to("commands")


# -- shards
async def test_two_shards_are_two_sessions_and_each_hears_its_own_servers(inbox: Inbox) -> None:
    async with DiscordServer(shards=2) as server:
        rooms = [server.add_channel("ops", guild=server.add_guild(f"Guild {n}", shard=(n, 2))) for n in (0, 1)]
        async with running(server, inbox) as adapter:
            await server.wait_until(lambda: {s.shard for s in server.live()} == {(0, 2), (1, 2)})
            said = {await server.mention("hi", channel=room) for room in rooms}
            await inbox.wait_for(lambda: len(inbox.messages) == 2)
            assert {m.id for m in inbox.messages} == said
            await reconnected(server, server.hang_up(4000, shard=1), shard=1)
            await wait_connected(adapter)
            assert len(server.identifies) == 2


async def test_it_is_connected_when_every_shard_is(inbox: Inbox) -> None:
    gate = asyncio.Event()

    async def sleep(seconds: float) -> None:
        if seconds > 3000:  # between two starts
            await gate.wait()
        await asyncio.sleep(0)

    async with DiscordServer(shards=2) as server:
        adapter = build_adapter(server, sleep=sleep, identify_gap_s=3600.0)
        try:
            await adapter.start(inbox.accept)
            await server.wait_connected()
            assert not adapter.connected
            assert adapter.state.since is None
            gate.set()
            await wait_connected(adapter)
            assert adapter.state.since is not None
        finally:
            await adapter.stop()


async def test_a_token_that_all_shards_are_refused_for_is_told_once(inbox: Inbox) -> None:
    with structlog.testing.capture_logs() as logs:
        async with DiscordServer(shards=2) as server, running(server, inbox) as adapter:
            await server.hang_up(4004)
            await until(lambda: any(line["log_level"] == "error" for line in logs))
            assert not adapter.connected
    assert len([line for line in logs if line["log_level"] == "error"]) == 1


async def test_a_process_may_keep_some_of_the_shards(inbox: Inbox) -> None:
    async with DiscordServer(shards=2) as server:
        rooms = [server.add_channel("ops", guild=server.add_guild(f"Guild {n}", shard=(n, 2))) for n in (0, 1)]
        async with running(server, inbox, shard_count=2, shard_ids=(1,)):
            assert {s.shard for s in server.live()} == {(1, 2)}
            await server.mention("not here", channel=rooms[0])
            said = await server.mention("here", channel=rooms[1])
            await inbox.wait_for(lambda: inbox.messages)
            assert [m.id for m in inbox.messages] == [said]


async def test_a_shard_that_does_not_exist_is_told_at_the_start(server: DiscordServer, inbox: Inbox) -> None:
    adapter = build_adapter(server, shard_count=2, shard_ids=(2,))
    with pytest.raises(AdapterNotConfigured, match="shard_ids"):
        await adapter.start(inbox.accept)
    await adapter.stop()


async def test_two_sessions_on_one_shard_hear_every_mention_through_all_that_breaks(
    server: DiscordServer, inbox: Inbox
) -> None:
    """Two processes with one token: each hears everything; the inbox knows every message by its id."""
    other = Inbox()
    async with running(server, inbox, catch_up_s=300.0), running(server, other, catch_up_s=300.0):
        await server.wait_connected(sessions=2)
        breaks: dict[int, Callable[[], Awaitable[None]]] = {
            40: server.reconnect,
            90: server.kill_sockets,
            140: server.invalidate,
            200: lambda: server.hang_up(4000),
            250: lambda: server.invalidate(resumable=True),
        }
        said = []
        for n in range(300):
            if n in breaks:
                await server.wait_connected(sessions=2)
                await breaks[n]()
            said.append(await server.mention(f"question {n}"))
        for heard in (inbox, other):
            await heard.wait_for(partial(hears_all, heard, said), 30.0)
            assert {m.id for m in heard.messages} == set(said)
    assert server.violations == []


def hears_all(inbox: Inbox, said: list[str]) -> bool:
    return {m.id for m in inbox.messages} >= set(said)


class Relay:
    """Passes a TCP port on to another one; may be cut, and then refuses."""

    def __init__(self, port: int, target: int) -> None:
        self._port = port
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_open = True
        self.refused = 0

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        await self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cut(self) -> None:
        self.is_open = False
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_open:
            self.refused += 1
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, far_writer}
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                sink.write(data)
        except OSError:
            pass
        sink.transport.abort()
