"""What is concluded from messages of any shape."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from adapters.discord.history import Search, build_said
from adapters.discord.wire import Wire

OWN = "42"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("id", "author", "content", "type", "flags", "nonce", "components", "timestamp", "attachments", "mentions")
MESSAGES = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(FIELDS, JSON)
    | {"id": st.integers(1, 2**63).map(str), "author": st.fixed_dictionaries({"id": st.sampled_from([OWN, "7"])})},
)


@given(MESSAGES)
def test_a_message_of_any_shape_can_be_read(message: Wire) -> None:
    said = build_said(message, own=OWN, guild="1")
    assert said is None or (said.text.strip() and said.sent_at.tzinfo is not None)


@given(st.lists(MESSAGES, max_size=5))
def test_a_page_of_any_shape_can_be_looked_through(page: list[Wire]) -> None:
    search = Search("run-1/1", own=OWN, now=datetime.now(UTC))
    assert search.weigh(tuple(page))
    assert search.found is None
