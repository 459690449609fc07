"""The doctor's look at a Discord application: each thing that is wrong is named, with what to click."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from adapters.chat import Problem
from adapters.discord.checkup import DiscordCheckup
from tests.servers.discord import DiscordServer

EVERYONE_NEEDS_NOTHING = 0


@pytest.fixture
async def server() -> AsyncIterator[DiscordServer]:
    async with DiscordServer() as server:
        server.set_role(server.guild_id, permissions_=EVERYONE_NEEDS_NOTHING)
        yield server
        assert server.violations == []


async def look(server: DiscordServer, token: str = "", **options: Any) -> tuple[Problem, ...]:
    checkup = DiscordCheckup(token or server.token, server.base_url, **options)
    try:
        return await checkup.check()
    finally:
        await checkup.stop()


def said(problems: tuple[Problem, ...]) -> list[str]:
    return [problem.what for problem in problems]


async def test_an_application_as_it_should_be_has_no_problem_and_shows_its_link(server: DiscordServer) -> None:
    checkup = DiscordCheckup(server.token, server.base_url, channels={server.general: "access.channels"})
    assert await checkup.check() == ()
    await checkup.stop()
    assert "309238025280" in checkup.fine
    assert f"client_id={server.app_id}&permissions=309238025280&scope=bot+applications.commands" in checkup.fine
    assert server.identifies == [], "looking costs no start"


async def test_a_missing_token_is_told_and_nothing_is_asked(server: DiscordServer) -> None:
    checkup = DiscordCheckup(" ", server.base_url)
    assert said(await checkup.check()) == ["discord: token is missing"]
    await checkup.stop()
    assert server.calls == []


async def test_an_application_that_discord_does_not_show_just_now_is_not_taken_for_a_wrong_token(
    server: DiscordServer,
) -> None:
    server.inject("GET /applications/@me", http=503, times=5)
    (problem,) = await look(server)
    assert "could not be looked at" in problem.what
    assert not problem.fatal


@pytest.mark.parametrize(
    ("token", "guess"),
    [
        ("Bot aaaa.bbbb.cccc", 'leave out the word "Bot"'),
        ("abcdefghijklmnopqrstuvwxyz012345", "looks like the application's client secret"),
        ("hunter2", "not the form of a bot token"),
        ("aaaa.bbbb.cccc", "the token is refused"),
    ],
)
async def test_a_refused_token_is_told_with_what_it_may_be_and_never_shown(
    server: DiscordServer, token: str, guess: str
) -> None:
    (problem,) = await look(server, token)
    assert guess in problem.what
    assert problem.fatal
    assert "Reset Token" in problem.fix
    assert token not in repr(problem)


async def test_the_message_content_intent_is_asked_for_without_being_fatal(server: DiscordServer) -> None:
    server.privileged = 0
    (problem,) = await look(server)
    assert "Message Content Intent is off" in problem.what
    assert "Privileged Gateway Intents" in problem.fix
    assert not problem.fatal


async def test_interactions_that_go_to_an_address_of_their_own_are_fatal(server: DiscordServer) -> None:
    server.interactions_endpoint_url = "https://example.com/interactions"
    (problem,) = await look(server)
    assert "not to Hermod" in problem.what
    assert problem.fatal


async def test_b080_each_missing_permission_is_named_with_its_use_and_the_link_that_mends_it(
    server: DiscordServer,
) -> None:
    own = next(role for role in server.guilds[server.guild_id].roles.values() if role.get("managed"))
    server.set_role(own["id"], permissions_=309_238_025_280 & ~(1 << 35) & ~(1 << 15))
    # a channel has the same gaps, which are told once
    (problem,) = await look(server, channels={server.general: "access.channels"})
    assert "in the server Fake Hermod may not: Create Public Threads (to begin a thread for a question)" in problem.what
    assert "Attach Files" in problem.what
    assert f"guild_id={server.guild_id}" in problem.fix
    assert not problem.fatal


async def test_a_channel_of_the_settings_is_looked_at_with_its_own_rules(server: DiscordServer) -> None:
    quiet, hidden = server.add_channel("quiet"), server.add_channel("hidden")
    server.deny(quiet, "SEND_MESSAGES_IN_THREADS")
    server.deny(hidden, "VIEW_CHANNEL")
    thread = await server.open_thread("why", channel=quiet)
    channels = {
        server.general: "access.channels",
        quiet: "access.channels",
        thread: "reports.daily.channel",
        hidden: "access.channels",
        "999": "access.channel_targets",
    }
    problems = await look(server, channels=channels)
    assert [p.fatal for p in problems] == [False] * 4
    first, second, third, fourth = said(problems)
    assert f"in #quiet ({quiet}) of access.channels Hermod may not: Send Messages in Threads" in first
    assert f"in #why ({thread}) of reports.daily.channel Hermod may not: Send Messages in Threads" in second
    assert f"the channel {hidden} of access.channels is hidden from Hermod" in third
    assert "the channel 999 of access.channel_targets does not exist" in fourth


async def test_a_server_of_the_settings_where_hermod_is_not_is_named_with_its_link(server: DiscordServer) -> None:
    await server.kick_bot()
    problems = await look(server, guild_ids=[server.guild_id])
    assert said(problems) == [
        f"discord: Hermod is not in the server {server.guild_id} of discord.guild_ids",
        "discord: Hermod is in no server yet",
    ]
    assert f"guild_id={server.guild_id}" in problems[0].fix
    assert "scope=bot+applications.commands" in problems[1].fix


async def test_a_server_that_takes_no_commands_is_named(server: DiscordServer) -> None:
    server.inject(r"^GET .*/guilds/\d+/commands$", http=403, code=50001, message="Missing Access")
    (problem,) = await look(server)
    assert "in the server Fake Hermod may have no commands" in problem.what
    assert "applications.commands" in problem.fix


async def test_few_starts_that_are_left_are_told_and_none_is_fatal(server: DiscordServer) -> None:
    server.identify_limit = 1000
    server.identifies[:] = [(server.clock.now(), 0)] * 800
    (problem,) = await look(server)
    assert problem.what.startswith("discord: 200 of the 1000 starts of a day are left")
    assert not problem.fatal
    server.identifies[:] = [(server.clock.now(), 0)] * 1000
    (problem,) = await look(server)
    assert problem.fatal
    server.identifies.clear()


async def test_fewer_shards_than_discord_advises_are_told(server: DiscordServer) -> None:
    server.shards = 3
    (problem,) = await look(server, shard_count=2)
    assert "advises 3 shards, discord.shard_count is 2" in problem.what
    assert await look(server, shard_count=3) == ()


async def test_a_gateway_that_cannot_be_reached_is_fatal(server: DiscordServer) -> None:
    (problem,) = await look(server, gateway_url="ws://127.0.0.1:9/")
    assert "the gateway could not be reached (ClientConnectorError)" in problem.what
    assert problem.fatal
    assert "wss://" in problem.fix


async def test_something_else_at_the_gateways_address_is_told(server: DiscordServer) -> None:
    async def greet(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"hello": "there"})
        await socket.close()
        return socket

    app = web.Application()
    app.router.add_get("/", greet)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        (problem,) = await look(server, gateway_url=f"ws://127.0.0.1:{runner.addresses[0][1]}/")
    finally:
        await runner.cleanup()
    assert "is no gateway" in problem.what


@pytest.mark.parametrize(("ahead_s", "side"), [(120.0, "ahead of"), (-120.0, "behind")])
async def test_a_clock_that_is_wrong_is_told_with_the_direction(
    server: DiscordServer, ahead_s: float, side: str
) -> None:
    (problem,) = await look(server, now=lambda: datetime.now(UTC) + timedelta(seconds=ahead_s))
    assert f"s {side} Discord's" in problem.what
    assert not problem.fatal
    assert await look(server, now=lambda: datetime.now(UTC) + timedelta(seconds=ahead_s / 8)) == ()


async def test_a_discord_that_does_not_answer_is_a_warning(server: DiscordServer) -> None:
    checkup = DiscordCheckup(server.token, "http://127.0.0.1:9/api/v10")
    (problem,) = await asyncio.wait_for(checkup.check(), 30)
    await checkup.stop()
    assert "could not be reached" in problem.what
    assert not problem.fatal
    assert server.token not in repr(problem)


@pytest.mark.parametrize("pattern", ["/gateway/bot", "/users/@me/guilds", r"/guilds/\d+$", "/members/", "/channels/"])
async def test_a_question_that_discord_fails_at_ends_nothing(server: DiscordServer, pattern: str) -> None:
    server.inject(pattern, times=9, http=500)
    problems = await look(server, channels={server.general: "access.channels"})
    assert all(not problem.fatal for problem in problems)
