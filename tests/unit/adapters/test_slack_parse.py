from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.chat import Author
from adapters.slack.parse import (
    Identity,
    Person,
    RawMessage,
    build_message,
    parse_actions,
    parse_command,
    parse_event,
    parse_identity,
    parse_person,
    parse_place,
    read_text,
)

US = Identity(team="T1", bot_user="UBOT", bot="BBOT", enterprise="E1")


def body(**event: Any) -> dict[str, Any]:
    base = {"type": "message", "user": "U1", "channel": "C1", "ts": "1700000000.000100", "text": "hi"}
    return {"team_id": "T1", "event_id": "Ev1", "event": base | event}


@pytest.mark.parametrize(
    "event",
    [
        {"user": "UBOT"},
        {"bot_id": "BBOT"},
        {"user": "UBOT", "bot_id": "BBOT", "type": "app_mention"},
        {"bot_id": "BBOT", "subtype": "bot_message", "user": ""},
    ],
)
def test_our_own_words_are_never_a_message_even_for_an_allowed_bot(event: dict[str, Any]) -> None:
    assert parse_event(body(**event), US, bots={"BBOT", "UBOT"}) is None


def test_both_twins_say_the_same() -> None:
    text = "<@UBOT> hi"
    message = parse_event(body(text=text, channel_type="channel"), US)
    mention = parse_event(body(text=text, type="app_mention"), US)
    assert message == mention
    assert isinstance(message, RawMessage)
    assert message.mentioned


def test_the_workspace_is_the_one_that_installed_us() -> None:
    shared = body() | {"team_id": "T9OTHER", "authorizations": [{"team_id": "T1"}]}
    parsed = parse_event(shared, US)
    assert isinstance(parsed, RawMessage)
    assert parsed.thread.workspace == "T1"


def test_somebody_of_a_sibling_workspace_is_not_external() -> None:
    sibling = {"team_id": "T2", "enterprise_user": {"enterprise_id": "E1"}, "name": "sib"}
    stranger = {"team_id": "T2", "enterprise_user": {"enterprise_id": "E2"}, "name": "str"}
    assert not parse_person(sibling, US).external
    assert parse_person(stranger, US).external
    alone = Identity(team="T1", bot_user="UBOT", bot="BBOT")
    assert parse_person({"team_id": "T2", "name": "x"}, alone).external


def test_what_is_looked_up_counts_more_than_what_the_event_guesses() -> None:
    parsed = parse_event(body(user_team="T2"), US)
    assert isinstance(parsed, RawMessage)
    assert build_message(parsed, {}, US).author.external
    assert not build_message(parsed, {"U1": Person(name="sib")}, US).author.external


def test_a_token_of_a_person_is_no_identity() -> None:
    assert parse_identity({"team_id": "T1", "user_id": "U1"}, None) is None


@pytest.mark.parametrize(
    ("wire", "read"),
    [
        ("<@UBOT>, <@UBOT|hermod>: hello", "hello"),
        ("hey <@UBOT> you", "hey you"),
        ("line one\n<@UBOT> line two", "line one\n line two"),
        ("&lt;@UBOT&gt; &amp;lt;", "<@UBOT> &lt;"),
        ("<!date^1^{date}|today> <!subteam^S1> <!channel>", "today @subteam @channel"),
        ("<#C1> <#C1|ops> <#C1|>", "#C1 #ops (C1) #C1"),
        ("<https://a.test|https://a.test> <https://a.test/x|a.test/x>", "https://a.test https://a.test/x"),
    ],
)
def test_markup_is_read_as_a_person_would(wire: str, read: str) -> None:
    assert read_text(wire, {}, US) == read


FIELDS = (
    "user",
    "bot_id",
    "text",
    "ts",
    "thread_ts",
    "channel",
    "channel_type",
    "subtype",
    "files",
    "attachments",
    "hidden",
    "app_id",
    "bot_profile",
    "edited",
    "event_ts",
    "deleted_ts",
    "message",
    "previous_message",
    "tab",
    "tokens",
    "user_team",
)
KINDS = (
    "message",
    "app_mention",
    "agent_session_stopped",
    "app_home_opened",
    "app_uninstalled",
    "tokens_revoked",
    "reaction_added",
)


_WORDS = (
    "U1 UBOT BBOT B9 C1 D1 1.1 1700000000.000100 message_changed message_deleted im bot_message tombstone file_share "
    "<@UBOT> home A1 x:/"
)
_PARTS = (
    "team team_id user channel channel_id container message actions trigger_id command text user_id "
    "is_enterprise_install authorizations api_app_id response_url"
)
WORDS = st.sampled_from(_WORDS.split())
KEYS = st.sampled_from([*FIELDS, "id", "name", "type", "size", "bot", "app_id", "value", "action_id", "blocks"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
WHOLE = st.dictionaries(st.sampled_from(_PARTS.split()), JSON)


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.sampled_from(KINDS), WHOLE)
def test_no_shape_of_an_event_breaks_the_reading(event: dict[str, Any], kind: str, outside: dict[str, Any]) -> None:
    wire = body(**event) | outside
    wire["event"]["type"] = kind
    parse_place(wire)
    parsed = parse_event(wire, US, bots={"B9"})
    if isinstance(parsed, RawMessage):
        build_message(parsed, {}, US)
        assert parsed.user not in ("UBOT", "BBOT")


@settings(max_examples=200, deadline=None)
@given(WHOLE)
def test_no_shape_of_a_command_or_a_button_breaks_the_reading(wire: dict[str, Any]) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    somebody = Author(id="U1", name="a")
    command = parse_command(wire, somebody, US, now, delivery_id="e1")
    assert command is None or command.id
    actions = parse_actions(wire, somebody, US, now, delivery_id="e1")
    assert len({action.id for action in actions}) == len(actions)


def test_b021_the_address_depends_on_nothing_but_the_event() -> None:
    """Whoever writes, whichever twin it is, before and after a restart (which gives a new identity)."""
    wires = [
        body(thread_ts="1.0", ts="1.1", channel="D1", channel_type="im"),
        body(thread_ts="1.0", ts="1.2", channel="D1", user="U2", type="app_mention"),
        body(thread_ts="1.0", ts="1.0", channel="D1", subtype="file_share"),
    ]
    again = Identity(team="T1", bot_user="UBOT", bot="BBOT")
    keys = {p.thread.key for w in wires for us in (US, again) if isinstance(p := parse_event(w, us), RawMessage)}
    assert keys == {"slack:T1/D1/1.0"}
    assert {parse_place(w) for w in wires} == {("D1/1.0", "1.1"), ("D1/1.0", "1.2"), ("D1/1.0", "1.0")}


@pytest.mark.parametrize(
    ("event", "external"),
    [
        ({}, False),
        ({"team": "T1"}, False),
        ({"user_team": "T1", "team": "T2"}, False),
        ({"user_team": "E1"}, False),
        ({"user_team": "T2"}, True),
        ({"source_team": "E2"}, True),
        ({"team": "T2"}, True),
    ],
)
def test_a_person_of_another_organisation_is_known_by_the_event_itself(event: dict[str, Any], external: bool) -> None:
    parsed = parse_event(body(**event), US)
    assert isinstance(parsed, RawMessage)
    assert build_message(parsed, {}, US).author.external is external


@pytest.mark.parametrize("app", [{"app_id": "A1"}, {"bot_profile": {"app_id": "A1"}}])
def test_what_our_app_posts_by_other_ways_is_ours_too(app: dict[str, Any]) -> None:
    wire = body(bot_id="B7", subtype="bot_message", user="", **app) | {"api_app_id": "A1"}
    assert parse_event(wire, US, bots={"B7", "A1"}) is None
    assert isinstance(parse_event(wire | {"api_app_id": "A2"}, US, bots={"A1"}), RawMessage)


def test_an_organisations_token_names_no_workspace() -> None:
    identity = parse_identity({"team_id": None, "enterprise_id": "E1", "user_id": "UORG", "bot_id": "B1"}, None)
    assert identity is not None
    assert identity.team == "E1"
    grants = [{"team_id": None, "enterprise_id": "E1", "is_enterprise_install": True}]
    parsed = parse_event(body() | {"team_id": "T7", "authorizations": grants}, identity)
    assert isinstance(parsed, RawMessage)
    assert parsed.thread.workspace == "E1"
