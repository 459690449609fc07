"""Looking at channels and people of Slack, through Slack's own client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from adapters.places import GLANCE_S, HasPlaces
from adapters.slack.app import SlackAdapter
from adapters.slack.manifest import BOT_SCOPES
from tests.contract.chat.slack_place import SlackPlace
from tests.integration.slack.conftest import Inbox, build_adapter, running
from tests.servers.slack import SlackServer

TEAM = "T0FAKE"


class Hours:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def now(self) -> float:
        return self.at


def test_the_adapter_says_that_it_can_look(server: SlackServer) -> None:
    assert isinstance(build_adapter(server), HasPlaces)


async def test_a_channel_that_hermod_is_in_is_open_and_has_a_name(adapter: SlackAdapter) -> None:
    look = await adapter.look_at_channel(TEAM, "C1OPS")
    assert (look.state, look.name, look.what, look.fix) == ("open", "#ops", "", "")


async def test_a_channel_that_hermod_is_not_in_is_closed_until_it_is_invited(
    adapter: SlackAdapter, server: SlackServer
) -> None:
    server.add_channel("C2FAR", "far", bot_in=False)
    look = await adapter.look_at_channel(TEAM, "C2FAR")
    assert (look.state, look.name) == ("closed", "#far")
    assert "not in #far" in look.what
    assert "/invite @hermod" in look.fix
    server.channels["C2FAR"].members.add(server.bot_user)
    assert (await adapter.look_at_channel(TEAM, "C2FAR")).state == "open"


async def test_a_channel_of_another_organisation_too_is_open(adapter: SlackAdapter, server: SlackServer) -> None:
    server.add_channel("C3SHARED", "with-acme", shared_with="T9ACME")
    assert (await adapter.look_at_channel(TEAM, "C3SHARED")).state == "open"


@pytest.mark.parametrize("kind", ["channel", "group"])
async def test_an_archived_channel_is_gone(adapter: SlackAdapter, server: SlackServer, kind: str) -> None:
    server.add_channel("C3OLD", "old", kind=kind)
    server.archive_channel("C3OLD")
    look = await adapter.look_at_channel(TEAM, "C3OLD")
    assert (look.state, look.name) == ("gone", "#old")
    assert "archived" in look.what


async def test_a_private_channel_without_hermod_and_one_that_never_was_are_gone(
    adapter: SlackAdapter, server: SlackServer
) -> None:
    server.add_channel("G1SECRET", "secret", kind="group", bot_in=False)
    for channel in ("G1SECRET", "C404"):
        look = await adapter.look_at_channel(TEAM, channel)
        assert (look.state, look.name) == ("gone", "")
        assert "/invite @hermod" in look.fix


async def test_a_conversation_with_a_person_is_open_without_a_scope_for_it(
    adapter: SlackAdapter, server: SlackServer
) -> None:
    assert (await adapter.look_at_channel(TEAM, "D1ALICE")).state == "open"
    (asked,) = server.calls_to("conversations.info")
    assert asked.response["error"] == "missing_scope"


async def test_an_installation_from_before_the_scopes_learns_it_from_the_history(
    adapter: SlackAdapter, server: SlackServer
) -> None:
    server.scopes = tuple(s for s in server.scopes or () if s not in ("channels:read", "groups:read"))
    server.add_channel("C2FAR", "far", bot_in=False)
    assert (await adapter.look_at_channel(TEAM, "C1OPS")).state == "open"
    assert (await adapter.look_at_channel(TEAM, "C2FAR")).state == "closed"
    assert (await adapter.look_at_channel(TEAM, "C404")).state == "gone"


async def test_without_any_scope_nothing_is_known_and_the_remedy_is_named(
    adapter: SlackAdapter, server: SlackServer
) -> None:
    server.scopes = ("chat:write",)
    look = await adapter.look_at_channel(TEAM, "C1OPS")
    assert look.state == "unknown"
    assert "channels:read" in look.fix
    assert (await adapter.look_at_person(TEAM, "U1ALICE")).state == "unknown"


@pytest.mark.parametrize(
    "fault",
    [
        {"http": 500},
        {"http": 429, "retry_after": 60},
        {"drop": True, "times": 2},
        {"error": "internal_error"},
        {"error": "fatal_error"},
    ],
    ids=["failed", "too many calls", "cut", "internal error", "fatal error"],
)
async def test_what_slack_fails_at_is_unknown_and_asked_again(
    adapter: SlackAdapter, server: SlackServer, fault: dict[str, object]
) -> None:
    server.inject("conversations.info", **fault)
    server.inject("users.info", **fault)
    look, person = await adapter.look_at_channel(TEAM, "C1OPS"), await adapter.look_at_person(TEAM, "U1ALICE")
    assert (look.state, person.state, person.author) == ("unknown", "unknown", None)
    assert look.what
    server.faults.clear()  # of a connection that was cut aiohttp itself may have asked once more
    if "retry_after" not in fault:
        assert (await adapter.look_at_channel(TEAM, "C1OPS")).state == "open"
        assert (await adapter.look_at_person(TEAM, "U1ALICE")).state == "here"


async def test_what_slack_does_not_answer_is_unknown_after_a_while(
    adapter: SlackAdapter, server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.slack.places.CALL_S", 0.2)
    server.inject("conversations.info", delay=60)
    server.inject("users.info", delay=60)
    async with asyncio.timeout(20):
        assert (await adapter.look_at_channel(TEAM, "C1OPS")).state == "unknown"
        assert (await adapter.look_at_person(TEAM, "U1ALICE")).state == "unknown"


async def test_another_workspace_than_that_of_the_token_is_gone(adapter: SlackAdapter, server: SlackServer) -> None:
    look = await adapter.look_at_channel("T9OTHER", "C1OPS")
    assert look.state == "gone"
    assert "T9OTHER" in look.what
    assert (await adapter.look_at_person("T9OTHER", "U1ALICE")).state == "unknown"
    assert server.calls_to("conversations.info") == server.calls_to("users.info") == []


@pytest.mark.parametrize(
    ("fields", "flags"),
    [
        ({}, (False, False, False)),
        ({"is_restricted": True}, (False, False, True)),
        ({"is_ultra_restricted": True}, (False, False, True)),
        ({"team_id": "T9ACME"}, (False, True, False)),
        ({"is_stranger": True}, (False, True, False)),
        ({"is_bot": True}, (True, False, False)),
    ],
    ids=["member", "guest", "guest of one channel", "of another team", "stranger", "bot"],
)
async def test_a_person_is_what_their_messages_say(
    server: SlackServer, inbox: Inbox, fields: dict[str, object], flags: tuple[bool, bool, bool]
) -> None:
    server.add_user("U3CAROL", "carol", **fields)  # type: ignore[arg-type]
    async with running(server, inbox, bots=["U3CAROL"]) as adapter:
        look = await adapter.look_at_person(TEAM, "U3CAROL")
        assert look.state == "here"
        assert look.author is not None
        assert (look.author.bot, look.author.external, look.author.guest) == flags
        assert not look.author.unknown
        if not look.author.bot:  # a bot's words are no event of a person
            await server.mention("hi", user="U3CAROL")
            await inbox.wait_for(lambda: inbox.messages)
            assert inbox.messages[0].author == look.author


async def test_who_was_deactivated_or_never_was_is_gone(adapter: SlackAdapter, server: SlackServer) -> None:
    server.add_user("U3CAROL", "carol", deleted=True)
    for user in ("U3CAROL", "U404"):
        look = await adapter.look_at_person(TEAM, user)
        assert (look.state, look.author) == ("gone", None)


async def test_what_was_well_is_asked_again_after_a_moment_only(server: SlackServer, inbox: Inbox) -> None:
    hours = Hours()
    adapter = build_adapter(server, monotonic=hours.now)
    try:
        for _ in range(3):
            assert (await adapter.look_at_channel(TEAM, "C1OPS")).state == "open"
            assert (await adapter.look_at_person(TEAM, "U1ALICE")).state == "here"
        assert len(server.calls_to("conversations.info")) == len(server.calls_to("users.info")) == 1
        server.archive_channel("C1OPS")
        server.users["U1ALICE"]["deleted"] = True
        hours.at += GLANCE_S
        assert (await adapter.look_at_channel(TEAM, "C1OPS")).state == "gone"
        assert (await adapter.look_at_person(TEAM, "U1ALICE")).state == "gone"
    finally:
        await adapter.stop()


async def test_many_looks_keep_slacks_rates(adapter: SlackAdapter, server: SlackServer) -> None:
    for n in range(60):
        server.add_channel(f"C5N{n}", f"n{n}")
    looks = await asyncio.gather(*(adapter.look_at_channel(TEAM, f"C5N{n}") for n in range(60)))
    assert {look.state for look in looks} == {"open", "unknown"}  # fifty in a minute, and no wait for the others
    assert server.rate_violations == []


async def test_a_look_goes_with_the_token_of_the_workspace_that_it_is_about(tmp_path: Path) -> None:
    """Where many workspaces installed Hermod, one that did not, or removed it, is gone."""
    async with SlackServer(scopes=tuple(BOT_SCOPES)) as server:
        place = SlackPlace(server, "slack-socket", tmp_path)
        try:
            await place.open_second()
            adapter = place.adapter
            assert isinstance(adapter, SlackAdapter)
            assert (await adapter.look_at_channel("T2OTHER", "C2OTHER")).name == "#ops"
            server.add_user("U7CAROL", "carol", team_id="T2OTHER")
            carol = await adapter.look_at_person("T2OTHER", "U7CAROL")
            assert carol.author is not None
            assert not carol.author.external
            alice = await adapter.look_at_person("T2OTHER", "U1ALICE")  # of the first workspace
            assert alice.author is not None
            assert alice.author.external
            look = await adapter.look_at_channel("T9NEVER", "C2OTHER")
            assert (look.state, "T9NEVER" in look.what, "install" in look.fix) == ("gone", True, True)
            assert (await adapter.look_at_person("T9NEVER", "U7CAROL")).state == "unknown"
            await server.uninstall("T2OTHER")
            await server.wait_until(lambda: all(d.acked or d.error for d in server.deliveries))
            server.add_channel("C3OTHER", "more", team="T2OTHER")
            async with asyncio.timeout(60):
                while (look := await adapter.look_at_channel("T2OTHER", "C3OTHER")).state != "gone":
                    assert look.state == "unknown"  # Slack refuses the token before its event is read
                    await asyncio.sleep(0.01)
        finally:
            await place.close()
