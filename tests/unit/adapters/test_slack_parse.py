from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.slack.parse import (
    Identity,
    Person,
    RawMessage,
    build_message,
    parse_event,
    parse_identity,
    parse_person,
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
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
)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.sampled_from(["message", "app_mention"]), JSON)
def test_no_shape_of_an_event_breaks_the_reading(event: dict[str, Any], kind: str, authorizations: Any) -> None:
    wire = body(**event) | {"authorizations": authorizations}
    wire["event"]["type"] = kind
    parsed = parse_event(wire, US)
    if isinstance(parsed, RawMessage):
        build_message(parsed, {}, US)
