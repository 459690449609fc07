"""Workspaces are held ready within bounds, and what other processes change about them is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.chat import AdapterError, Delivered, Rejected, Reply
from adapters.slack.files import FILE_HOSTS
from adapters.slack.installation import NewInstallation, NotInstalled
from adapters.slack.shared import SharedOutbound
from adapters.slack.workspace import Wiring
from adapters.slack.workspaces import FRESH_S, RETIRED_S, ManyWorkspaces, workspace_of
from bot.installations import StoredInstallations
from tests.integration.slack.desk import HandClock
from tests.integration.slack.install_desk import TestClock, open_installations, thread_of
from tests.servers.slack import SlackServer


@pytest.fixture
async def server() -> AsyncIterator[SlackServer]:
    async with SlackServer() as server:
        for n in range(4):
            server.add_workspace(f"T{n}")
            server.add_channel(f"C{n}", f"c{n}", team=f"T{n}")
        yield server


@pytest.fixture
async def installations(tmp_path: Path) -> AsyncIterator[StoredInstallations]:
    async with open_installations(tmp_path, TestClock()) as installations:
        yield installations


async def install(server: SlackServer, installations: StoredInstallations, team: str) -> None:
    space = server.workspaces[team]
    await installations.save(
        NewInstallation(
            workspace=team,
            name=team,
            token=space.bot_token,
            bot_user=space.bot_user,
            bot=space.bot_id,
            scopes=frozenset(),
            installed_at=TestClock().at,
        )
    )


@asynccontextmanager
async def hold(
    server: SlackServer, installations: StoredInstallations, clock: HandClock, *, most: int = 9
) -> AsyncIterator[ManyWorkspaces]:
    wiring = Wiring(
        api_url=server.base_url,
        call_timeout_s=5.0,
        people_wait_s=1.0,
        people_ttl_s=60.0,
        post_patience_s=2.0,
        drafts="stream",
        file_hosts=FILE_HOSTS,
        monotonic=clock.monotonic,
        sleep=clock.sleep,
    )
    many = ManyWorkspaces(installations, wiring, install_url="https://x/slack/install", most=most, now=TestClock().now)
    try:
        yield many
    finally:
        await many.close()


def reply(team: str, key: str = "k/1") -> Reply:
    channel = f"C{team.removeprefix('T')}"
    return Reply(thread=thread_of(team, channel, "1700000000.000100"), text="hi", key=key)


async def test_only_so_many_are_held_ready_and_all_of_them_are_served(
    server: SlackServer, installations: StoredInstallations
) -> None:
    for n in range(4):
        await install(server, installations, f"T{n}")
    async with hold(server, installations, HandClock(), most=2) as many:
        await many.prepare()
        assert sum(many.peek(f"T{n}") is not None for n in range(4)) == 2
        for n in (0, 1, 2, 3, 0):
            ts = await server.say("root", channel=f"C{n}", user="U1ALICE")
            posted = replace(reply(f"T{n}", f"k{n}"), thread=thread_of(f"T{n}", f"C{n}", ts))
            assert isinstance(await SharedOutbound(many).post(posted), Delivered)
        assert [n for n in range(4) if many.peek(f"T{n}")] == [0, 3]
    assert {call.token for call in server.calls_to("chat.postMessage")} == {
        server.workspaces[f"T{n}"].bot_token for n in range(4)
    }


async def test_one_that_is_asked_for_by_many_at_once_is_read_into_one_place(
    server: SlackServer, installations: StoredInstallations
) -> None:
    await install(server, installations, "T1")
    async with hold(server, installations, HandClock()) as many:
        found = await asyncio.gather(*(many.find("T1") for _ in range(8)))
        assert len(set(map(id, found))) == 1


async def test_what_another_process_forgot_is_noticed_after_a_while(
    server: SlackServer, installations: StoredInstallations
) -> None:
    clock = HandClock()
    await install(server, installations, "T1")
    async with hold(server, installations, clock) as many:
        workspace = await many.find("T1")
        await installations.remove("T1", reason="forgotten by the operator")
        assert await many.find("T1") is workspace
        clock.seconds += FRESH_S + 1
        with pytest.raises(NotInstalled, match="https://x/slack/install"):
            await many.find("T1")
        assert isinstance(await workspace.outbound.post(reply("T1")), Rejected), "also who still holds it is stopped"
        await install(server, installations, "T1")
        assert (await many.find("T1")).revision == 3
        clock.seconds += RETIRED_S + 1
        assert (await many.find("T1")).revision == 3
    assert server.calls_to("chat.postMessage") == []


async def test_storage_that_fails_for_a_while_stops_nobody_who_is_held_ready(
    server: SlackServer, installations: StoredInstallations, tmp_path: Path
) -> None:
    clock = HandClock()
    async with open_installations(tmp_path, TestClock()) as failing:
        await install(server, failing, "T1")
        async with hold(server, failing, clock) as many:
            workspace = await many.find("T1")
            await failing._store.close()
            clock.seconds += FRESH_S + 1
            assert await many.find("T1") is workspace
            with pytest.raises(AdapterError, match="cannot be used now"):
                await many.find("T2")


@pytest.mark.parametrize(
    ("payload", "workspace"),
    [
        ({"team_id": "TOUTER", "authorizations": [{"team_id": "T1", "enterprise_id": "E1"}]}, "T1"),
        ({"authorizations": [{"team_id": None, "enterprise_id": "E1", "is_enterprise_install": True}]}, "E1"),
        ({"team_id": "T1", "enterprise_id": "E1", "is_enterprise_install": "false", "command": "/hermod"}, "T1"),
        ({"team_id": "T1", "enterprise_id": "E1", "is_enterprise_install": "true", "command": "/hermod"}, "E1"),
        ({"team": {"id": "T1"}, "user": {"team_id": "T9"}, "type": "block_actions"}, "T1"),
        ({"team": None, "enterprise": {"id": "E1"}, "is_enterprise_install": True, "type": "block_actions"}, "E1"),
        ({"type": "event_callback", "authorizations": "x", "team": 5}, ""),
    ],
)
def test_a_delivery_says_for_whom_it_is(payload: dict[str, object], workspace: str) -> None:
    assert workspace_of(payload) == workspace
