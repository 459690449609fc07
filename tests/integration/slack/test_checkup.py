"""The doctor's look at a Slack app: each thing that is wrong is named, with what to click."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapters.chat import Problem
from adapters.slack.checkup import FINE, SlackCheckup
from adapters.slack.manifest import BOT_SCOPES
from tests.integration.slack.conftest import Inbox, running
from tests.servers.slack import SlackServer


@pytest.fixture
async def server() -> AsyncIterator[SlackServer]:
    async with SlackServer(scopes=tuple(BOT_SCOPES)) as server:
        yield server


async def look(server: SlackServer, bot: str = "", app: str = "", **options: Any) -> tuple[Problem, ...]:
    checkup = SlackCheckup(bot or server.bot_token, app or server.app_token, server.base_url, **options)
    try:
        return await checkup.check()
    finally:
        await checkup.stop()


def said(problems: tuple[Problem, ...]) -> list[str]:
    return [problem.what for problem in problems]


async def test_an_app_as_it_should_be_has_no_problem(server: SlackServer) -> None:
    assert await look(server, channels={"C1OPS": "access.channels"}) == ()
    assert "hermod manifest" in FINE
    assert server.violations == []


async def test_each_missing_scope_is_named_with_its_use_and_the_events_that_it_costs(server: SlackServer) -> None:
    server.scopes = tuple(s for s in BOT_SCOPES if s not in ("channels:history", "reactions:write"))
    first, second = await look(server)
    assert "channels:history is missing" in first.what
    assert "does not send the event message.channels" in first.what
    assert '"Bot Token Scopes": add channels:history; then "Reinstall to Workspace"' in first.fix
    assert "reactions:write is missing (to show that a message was seen, or waits)" in second.what
    assert first.fatal


@pytest.mark.parametrize(
    ("token", "kind"),
    [
        ("xoxp-1-user", "a user token"),
        ("xapp-1-fake-app", "an app-level token"),
        ("xoxe.xoxb-1-rotating", "rotation is switched on"),
        ("hunter2", "no token of Slack"),
    ],
)
async def test_a_token_of_another_kind_is_named_and_never_shown(server: SlackServer, token: str, kind: str) -> None:
    problems = await look(server, bot=token)
    assert f"bot_token is {kind}" in problems[0].what or kind in problems[0].what
    assert "Bot User OAuth Token" in problems[0].fix
    assert token not in repr(problems)


async def test_swapped_tokens_are_both_named(server: SlackServer) -> None:
    problems = await look(server, bot=server.app_token, app=server.bot_token)
    assert "bot_token is an app-level token, not a bot token" in problems[0].what
    assert "app_token is a bot token, not an app-level token" in problems[1].what
    assert "connections:write" in problems[1].fix


async def test_a_refused_token_is_told_with_its_remedy(server: SlackServer) -> None:
    server.inject("auth.test", error="token_revoked")
    (problem,) = await look(server)
    assert "token_revoked" in problem.what
    assert "install the app again" in problem.fix


async def test_a_missing_token_is_told_once(server: SlackServer) -> None:
    checkup = SlackCheckup("", "", server.base_url)
    problems = await checkup.check()
    await checkup.stop()
    assert said(problems) == ["slack: bot_token is missing", "slack: app_token is missing"]


async def test_an_app_token_without_its_scope_is_told(server: SlackServer) -> None:
    server.inject("apps.connections.open", error="missing_scope")
    (problem,) = await look(server)
    assert "app_token was not accepted" in problem.what
    assert "missing_scope" in problem.what


@pytest.mark.parametrize(("skew_s", "side"), [(120.0, "behind"), (-120.0, "ahead of")])
async def test_a_clock_that_is_wrong_is_told_with_the_direction(server: SlackServer, skew_s: float, side: str) -> None:
    server.skew_s = skew_s
    (problem,) = await look(server)
    assert f"s {side} Slack's" in problem.what
    assert not problem.fatal
    assert "timedatectl" in problem.fix


async def test_a_clock_that_is_a_little_wrong_is_fine(server: SlackServer) -> None:
    server.skew_s = 20.0
    assert await look(server) == ()


async def test_over_http_a_clock_that_is_five_minutes_wrong_stops_everything(server: SlackServer) -> None:
    server.skew_s = -301.0
    (problem,) = await look(server, mode="http", signing_secret="s3cret")
    assert problem.fatal
    assert "refused as too old" in problem.what
    assert not server.calls_to("apps.connections.open"), "there is no socket to look at"


async def test_over_http_the_signing_secret_is_looked_at(server: SlackServer) -> None:
    missing = await look(server, mode="http")
    assert said(missing) == ["slack: signing_secret is missing"]
    wrong = await look(server, mode="http", signing_secret=server.bot_token)
    assert said(wrong) == ["slack: signing_secret holds a bot token"]


async def test_a_channel_of_the_settings_where_hermod_is_not_is_named_with_its_setting(server: SlackServer) -> None:
    server.add_channel("C2OUT", "out", bot_in=False)
    channels = {"C1OPS": "access.channels", "C2OUT": "access.channels", "C3GONE": "access.channel_targets"}
    first, second = await look(server, channels=channels)
    assert first.what == "slack: Hermod is not in the channel C2OUT of access.channels (not_in_channel)"
    assert "/invite @hermod" in first.fix
    assert "C3GONE of access.channel_targets (channel_not_found)" in second.what
    assert not first.fatal


async def test_b077_another_process_on_the_same_app_token_is_told(server: SlackServer, inbox: Inbox) -> None:
    async with running(server, inbox, connections=2):
        await server.wait_until(lambda: len(server.open_sockets) == 2)
        (problem,) = await look(server)
        assert problem.what.startswith("slack: 2 more connections use this app token, and no Hermod of these settings")
        assert "one connection only" in problem.fix
        assert await look(server, running=2) == (), "our own process is no stranger"
        (problem,) = await look(server, running=1)
        assert "1 more connection uses" in problem.what
    await server.wait_until(lambda: not server.open_sockets)


async def test_an_app_with_all_the_connections_that_slack_allows_is_told(server: SlackServer) -> None:
    server.refuse_sockets(1)
    (problem,) = await look(server)
    assert "as many connections as Slack allows" in problem.what


async def test_a_slack_that_does_not_answer_is_a_warning(server: SlackServer) -> None:
    checkup = SlackCheckup(server.bot_token, server.app_token, "http://127.0.0.1:9/api/")
    problems = await asyncio.wait_for(checkup.check(), 20)
    await checkup.stop()
    assert problems
    assert not any(problem.fatal for problem in problems)
    assert server.bot_token not in repr(problems)
