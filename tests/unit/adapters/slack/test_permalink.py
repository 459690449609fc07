"""Links of messages name the thread that the message is in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.chat import ThreadRef
from adapters.slack.permalink import build_permalink, parse_permalink

PLACE = ThreadRef(platform="slack", workspace="T1", channel="C1", thread="command-1")
BASE = "https://acme.slack.com/archives/C9/p1700000005000300"


@pytest.mark.parametrize(
    ("link", "key"),
    [
        (BASE, "slack:T1/C9/1700000005.000300"),
        (f"<{BASE}>", "slack:T1/C9/1700000005.000300"),
        (f"<{BASE}|the message>", "slack:T1/C9/1700000005.000300"),
        (f"{BASE}?thread_ts=1700000000.000100&cid=C9", "slack:T1/C9/1700000000.000100"),
        (f"{BASE}?cid=C9&thread_ts=1700000000.000100", "slack:T1/C9/1700000000.000100"),
        (f"{BASE}?thread_ts=nonsense", "slack:T1/C9/1700000005.000300"),
        (f"  {BASE}  ", "slack:T1/C9/1700000005.000300"),
    ],
)
def test_a_link_names_the_root_of_its_thread(link: str, key: str) -> None:
    found = parse_permalink(link, PLACE)
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "forget it",
        "https://acme.slack.com/archives/C9",
        "https://acme.slack.com/files/U1/F1",
        "C9/p1700000005000300",
    ],
)
def test_anything_else_is_no_link(text: str) -> None:
    assert parse_permalink(text, PLACE) is None


@given(st.integers(10**9, 10**10 - 1), st.integers(0, 999_999), st.from_regex(r"[CDG][A-Z0-9]{2,10}", fullmatch=True))
def test_a_built_link_is_read_back(seconds: int, micros: int, channel: str) -> None:
    thread = ThreadRef(platform="slack", workspace="T1", channel=channel, thread=f"{seconds}.{micros:06}")
    assert parse_permalink(build_permalink("https://acme.slack.com/", thread), PLACE) == thread


def test_where_there_is_no_message_there_is_no_link() -> None:
    assert build_permalink("https://acme.slack.com/", PLACE) == ""
    assert (
        build_permalink("", ThreadRef(platform="slack", workspace="T", channel="C", thread="1700000000.000100")) == ""
    )


@given(st.text(max_size=80))
def test_any_text_is_read_or_not(text: str) -> None:
    parse_permalink(text, PLACE)
