"""The commands that Discord shows follow what is registered, and are sent only when they changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from adapters.commands import CommandOffer, CommandOption
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
from tests.servers.discord import DiscordServer

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


def shown(server: DiscordServer, scope: str = "global") -> list[str]:
    return [command["name"] for command in server.commands.get(scope, [])]


async def test_commands_are_shown_everywhere_and_sent_once(server: DiscordServer, http: DiscordHttp) -> None:
    for _ in range(3):
        assert await sync_commands(http, [ASK, SLOWQ])
    assert shown(server) == ["ask", "slowq"]
    assert len(server.calls_to(PUT)) == 1


async def test_a_change_replaces_all_of_them_in_one_call(server: DiscordServer, http: DiscordHttp) -> None:
    await sync_commands(http, [ASK])
    await sync_commands(http, [SLOWQ])
    assert shown(server) == ["slowq"]
    assert len(server.calls_to(PUT)) == 2
    assert not server.calls_to(r"^(POST|PATCH|DELETE) .*/commands"), "nothing is missing in between"


async def test_in_servers_of_their_own_commands_are_shown_there_only(server: DiscordServer, http: DiscordHttp) -> None:
    await sync_commands(http, [ASK])
    assert await sync_commands(http, [ASK, SLOWQ], [server.guild_id])
    assert (shown(server), shown(server, server.guild_id)) == ([], ["ask", "slowq"])
    before = len(server.calls_to(PUT))
    assert await sync_commands(http, [ASK, SLOWQ], [server.guild_id])
    assert len(server.calls_to(PUT)) == before


async def test_commands_that_were_shown_in_one_server_are_not_shown_twice_later(
    server: DiscordServer, http: DiscordHttp
) -> None:
    await sync_commands(http, [ASK], [server.guild_id])
    await sync_commands(http, [ASK])
    assert (shown(server), shown(server, server.guild_id)) == (["ask"], [])


async def test_the_commands_of_every_registered_tool_are_taken(server: DiscordServer, http: DiscordHttp) -> None:
    registry = ToolRegistry()
    targets = Targets([Target.from_url("shop", "postgresql://u@h/shop")])
    register_slow_query_tools(registry, targets, open_store("sqlite:///never-opened.db"), SystemClock())
    register_builtin(registry)
    offers = build_offers(registry.specs(), (USAGE, FORGET))
    assert await sync_commands(http, offers, application_id=server.app_id)
    assert shown(server) == ["ask", "hermod", "slowq", "explain", "usage", "forget"]
    assert hash_commands(server.commands["global"]) == hash_commands(build_commands(offers))
    assert server.violations == []


async def test_b066_a_busy_discord_is_asked_once_more_and_nothing_vanishes(
    server: DiscordServer, http: DiscordHttp
) -> None:
    await sync_commands(http, [ASK])
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        assert shown(server) == ["ask"], "what was registered stays until it is replaced"

    server.inject(PUT, http=429, retry_after=2.0)
    assert await sync_commands(http, [ASK, SLOWQ], sleep=sleep)
    assert pauses == [2.0]
    assert shown(server) == ["ask", "slowq"]


@pytest.mark.parametrize("fault", [{"http": 429, "retry_after": 3_600.0}, {"http": 500}, {"http": 403}])
async def test_a_refusal_is_one_line_and_breaks_nothing(
    server: DiscordServer, http: DiscordHttp, fault: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    server.inject(PUT, **fault)
    assert not await sync_commands(http, [ASK], application_id=server.app_id)
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(lines) == 1
    assert "discord_commands_not_synced" in lines[0]
    assert server.token not in lines[0]
    assert await sync_commands(http, [ASK], application_id=server.app_id), "the next start succeeds"


async def test_a_server_where_hermod_may_not_have_commands_does_not_keep_others_from_theirs(
    server: DiscordServer, http: DiscordHttp, capsys: pytest.CaptureFixture[str]
) -> None:
    server.inject(r"^GET .*/guilds/99/commands", http=403, code=50001, message="Missing Access")
    assert not await sync_commands(http, [ASK], ["99", server.guild_id], application_id=server.app_id)
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
