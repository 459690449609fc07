"""The commands that Discord shows follow what is registered, and are sent only when they changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from adapters.chat import Delivered, Reply
from adapters.commands import CommandOffer, CommandOption
from adapters.discord.calls import DiscordCalls
from adapters.discord.commands import build_commands, hash_commands, sync_commands
from adapters.discord.http import DiscordHttp
from agent_core.context import SystemClock
from agent_core.tools.builtin import register_builtin
from agent_core.tools.registry import ToolRegistry
from bot.commands import FORGET, USAGE
from bot.offers import build_offers
from bot.storage import open_store
from bot.tools.slow_queries import register_slow_query_tools
from bot.tools.targets import Target, Targets
from tests.integration.discord.conftest import Inbox, build_adapter, wait_connected
from tests.integration.discord.outbound_desk import place
from tests.servers.discord import DiscordServer
from tests.servers.discord.model import Call

ASK = CommandOffer(
    name="ask", summary="Ask.", options=(CommandOption(name="question", summary="What?", required=True),)
)
SLOWQ = CommandOffer(
    name="slowq", summary="List.", options=(CommandOption(name="limit", summary="Rows.", kind="integer", minimum=1),)
)
PUT = r"^PUT .*/commands$"


@pytest.fixture
async def http(server: DiscordServer) -> AsyncIterator[DiscordHttp]:
    http = DiscordHttp(api_url=server.base_url, token=server.token)
    yield http
    await http.close()


class Clock:
    """The machine's clock, which jumps over every sleep."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s

    async def sleep(self, seconds: float) -> None:
        self.ahead_s += seconds
        await asyncio.sleep(0)


def build_calls(http: DiscordHttp) -> DiscordCalls:
    """What a process begins with: nothing is known of the rates yet."""
    clock = Clock()
    return DiscordCalls(http, monotonic=clock.monotonic, sleep=clock.sleep)


@pytest.fixture
def calls(http: DiscordHttp) -> DiscordCalls:
    return build_calls(http)


def shown(server: DiscordServer, scope: str = "global") -> list[str]:
    return [command["name"] for command in server.commands.get(scope, [])]


async def test_commands_are_shown_everywhere_and_sent_once(server: DiscordServer, calls: DiscordCalls) -> None:
    for _ in range(3):
        assert await sync_commands(calls, [ASK, SLOWQ])
    assert shown(server) == ["ask", "slowq"]
    assert len(server.calls_to(PUT)) == 1


async def test_a_change_replaces_all_of_them_in_one_call(server: DiscordServer, calls: DiscordCalls) -> None:
    await sync_commands(calls, [ASK])
    await sync_commands(calls, [SLOWQ])
    assert shown(server) == ["slowq"]
    assert len(server.calls_to(PUT)) == 2
    assert not server.calls_to(r"^(POST|PATCH|DELETE) .*/commands"), "nothing is missing in between"


async def test_in_servers_of_their_own_commands_are_shown_there_only(
    server: DiscordServer, calls: DiscordCalls
) -> None:
    await sync_commands(calls, [ASK])
    assert await sync_commands(calls, [ASK, SLOWQ], [server.guild_id])
    assert (shown(server), shown(server, server.guild_id)) == ([], ["ask", "slowq"])
    before = len(server.calls_to(PUT))
    assert await sync_commands(calls, [ASK, SLOWQ], [server.guild_id])
    assert len(server.calls_to(PUT)) == before


async def test_commands_that_were_shown_in_one_server_are_not_shown_twice_later(
    server: DiscordServer, calls: DiscordCalls
) -> None:
    await sync_commands(calls, [ASK], [server.guild_id])
    await sync_commands(calls, [ASK])
    assert (shown(server), shown(server, server.guild_id)) == (["ask"], [])


async def test_the_commands_of_every_registered_tool_are_taken(server: DiscordServer, calls: DiscordCalls) -> None:
    registry = ToolRegistry()
    targets = Targets([Target.from_url("shop", "postgresql://u@h/shop")])
    register_slow_query_tools(registry, targets, open_store("sqlite:///never-opened.db"), SystemClock())
    register_builtin(registry)
    offers = build_offers(registry.specs(), (USAGE, FORGET))
    assert await sync_commands(calls, offers, application_id=server.app_id)
    assert shown(server) == ["ask", "hermod", "slowq", "explain", "usage", "forget"]
    assert hash_commands(server.commands["global"]) == hash_commands(build_commands(offers))
    assert server.violations == []


async def test_b066_a_busy_discord_is_asked_once_more_and_nothing_vanishes(
    server: DiscordServer, http: DiscordHttp
) -> None:
    clock = Clock()
    pauses: list[tuple[float, list[str]]] = []

    async def sleep(seconds: float) -> None:
        pauses.append((seconds, shown(server)))
        await clock.sleep(seconds)

    calls = DiscordCalls(http, monotonic=clock.monotonic, sleep=sleep)
    await sync_commands(calls, [ASK])
    pauses.clear()
    server.inject(PUT, http=429, retry_after=2.0)
    assert await sync_commands(calls, [ASK, SLOWQ])
    assert sum(seconds for seconds, _ in pauses) == pytest.approx(2.0, abs=0.1)
    assert [names for _, names in pauses] == [["ask"]], "what was registered stays until it is replaced"
    assert shown(server) == ["ask", "slowq"]


@pytest.mark.parametrize("fault", [{"http": 429, "retry_after": 3_600.0}, {"http": 500, "times": 3}, {"http": 403}])
async def test_a_refusal_is_one_line_and_breaks_nothing(
    server: DiscordServer, http: DiscordHttp, fault: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    server.inject(PUT, **fault)
    assert not await sync_commands(build_calls(http), [ASK], application_id=server.app_id)
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(lines) == 1
    assert "discord_commands_not_synced" in lines[0]
    assert server.token not in lines[0]
    assert await sync_commands(build_calls(http), [ASK], application_id=server.app_id), "the next start succeeds"


async def test_a_refusal_of_all_calls_that_the_commands_hear_holds_a_message_too(
    server: DiscordServer, inbox: Inbox
) -> None:
    server.inject(PUT, http=429, retry_after=2.0, is_global=True)
    answer = Reply(thread=place(server, await server.mention("busy?")), text="Yes.", key="run-1/1")
    adapter = build_adapter(server)
    adapter.offer_commands([ASK], lambda asked: ())
    try:
        await adapter.start(inbox.accept)
        await server.wait_until(lambda: refusals(server))
        for _ in range(50):  # let it come to the client
            await asyncio.sleep(0)
        assert isinstance(await adapter.post(answer), Delivered)
        await server.wait_until(lambda: shown(server))
    finally:
        await adapter.stop()
    (refused,) = refusals(server)
    assert [call.path for call in server.calls if refused.at < call.at < refused.at + 2.0] == []


async def test_a_refusal_of_all_calls_that_a_message_hears_holds_the_commands_too(
    server: DiscordServer, inbox: Inbox
) -> None:
    server.inject(r"^POST /channels/\d+/messages$", http=429, retry_after=4.0, is_global=True)
    answer = Reply(thread=place(server, await server.mention("busy?")), text="Yes.", key="run-1/1")
    adapter = build_adapter(server)
    adapter.offer_commands([ASK], lambda asked: ())
    posting = asyncio.create_task(adapter.post(answer))
    try:
        await server.wait_until(lambda: refusals(server))
        await adapter.start(inbox.accept)
        await server.wait_until(lambda: shown(server))
        assert isinstance(await posting, Delivered)
    finally:
        await adapter.stop()
    (refused,) = refusals(server)
    assert min(call.at for call in server.calls_to(r"/commands$")) >= refused.at + 4.0


def refusals(server: DiscordServer) -> list[Call]:
    return [call for call in server.calls if call.status == 429]


async def test_a_server_where_hermod_may_not_have_commands_does_not_keep_others_from_theirs(
    server: DiscordServer, calls: DiscordCalls, capsys: pytest.CaptureFixture[str]
) -> None:
    server.inject(r"^GET .*/guilds/99/commands", http=403, code=50001, message="Missing Access")
    assert not await sync_commands(calls, [ASK], ["99", server.guild_id], application_id=server.app_id)
    assert shown(server, server.guild_id) == ["ask"]
    said = capsys.readouterr().out
    assert "scope applications.commands" in said
    assert "guild_id=99" in said


async def test_b059_reconnects_send_no_commands(server: DiscordServer, inbox: Inbox) -> None:
    adapter = build_adapter(server)
    adapter.offer_commands([ASK, SLOWQ], lambda asked: ())
    try:
        await adapter.start(inbox.accept)
        await wait_connected(adapter)
        await server.wait_until(lambda: len(server.calls_to(PUT)) == 1)
        for n in range(1, 6):
            await server.reconnect()
            await server.wait_until(partial(has_resumed, server, n))
            await wait_connected(adapter)
        await server.invalidate()  # a new session altogether
        await server.wait_until(lambda: bool(server.sessions))
        await wait_connected(adapter)
    finally:
        await adapter.stop()
    assert len(server.calls_to(PUT)) == 1
    again = build_adapter(server)
    again.offer_commands([ASK, SLOWQ], lambda asked: ())
    try:
        await again.start(inbox.accept)
        await wait_connected(again)
        await server.wait_until(lambda: len(server.calls_to(r"^GET .*/commands$")) == 2)
    finally:
        await again.stop()
    assert len(server.calls_to(PUT)) == 1, "a start with the same commands sends none either"


def has_resumed(server: DiscordServer, times: int) -> bool:
    frames = [frame for session in server.sessions.values() for frame in session.log]
    return len([frame for frame in frames if frame["t"] == "RESUMED"]) == times


async def test_an_adapter_without_commands_leaves_those_that_are_there(server: DiscordServer, inbox: Inbox) -> None:
    adapter = build_adapter(server)
    try:
        await adapter.start(inbox.accept)
        await wait_connected(adapter)
    finally:
        await adapter.stop()
    assert not server.calls_to(r"/commands$")
