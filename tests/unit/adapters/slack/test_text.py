from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.slack.text import QUOTED_MAX, escape, markup_of, quoted_of, read_blocks, read_markup
from tests.stopwatch import least_cpu_s


def rich(*elements: dict[str, Any], kind: str = "rich_text_section") -> dict[str, Any]:
    return {"type": "rich_text", "elements": [{"type": kind, "elements": list(elements)}]}


@pytest.mark.parametrize(
    ("block", "markup"),
    [
        (rich({"type": "text", "text": "1 < 2 & 3"}), "1 &lt; 2 &amp; 3"),
        (rich({"type": "user", "user_id": "U1"}, {"type": "text", "text": " hi"}), "<@U1> hi"),
        (
            rich({"type": "link", "url": "https://a.test/?x=1&y=2", "text": "page"}),
            "<https://a.test/?x=1&amp;y=2|page>",
        ),
        (rich({"type": "channel", "channel_id": "C1"}, {"type": "emoji", "name": "eyes"}), "<#C1>:eyes:"),
        (
            rich({"type": "broadcast", "range": "here"}, {"type": "usergroup", "usergroup_id": "S1"}),
            "<!here><!subteam^S1>",
        ),
        (rich({"type": "text", "text": "select 1;"}, kind="rich_text_preformatted"), "select 1;"),
        (
            {
                "type": "rich_text",
                "elements": [
                    {
                        "type": "rich_text_list",
                        "elements": [
                            {"type": "rich_text_section", "elements": [{"type": "text", "text": item}]}
                            for item in ("one", "two")
                        ],
                    }
                ],
            },
            "- one\n- two",
        ),
        ({"type": "section", "text": {"type": "mrkdwn", "text": "*CPU* &lt;high&gt;"}}, "*CPU* &lt;high&gt;"),
        (
            {"type": "section", "fields": [{"type": "plain_text", "text": "a<b"}, {"type": "mrkdwn", "text": "c"}]},
            "a&lt;b\nc",
        ),
        ({"type": "header", "text": {"type": "plain_text", "text": "Alert"}}, "Alert"),
        (
            {"type": "context", "elements": [{"type": "mrkdwn", "text": "a"}, {"type": "plain_text", "text": "b"}]},
            "a b",
        ),
        ({"type": "markdown", "text": "**x** <@U1>"}, "**x** &lt;@U1&gt;"),
        ({"type": "image", "alt_text": "a graph"}, "a graph"),
        (
            {"type": "table", "rows": [[{"type": "raw_text", "text": "id"}, rich({"type": "text", "text": "7"})]]},
            "id | 7",
        ),
        ({"type": "divider"}, ""),
    ],
)
def test_blocks_are_read_as_slacks_markup(block: dict[str, Any], markup: str) -> None:
    assert read_blocks([block]) == markup


def test_text_counts_more_than_blocks() -> None:
    blocks = [rich({"type": "text", "text": "from blocks"})]
    assert markup_of({"text": "from text", "blocks": blocks}, bot=False) == "from text"
    assert markup_of({"text": " ", "blocks": blocks}, bot=False) == "from blocks"


def test_b027_an_alert_that_lives_in_attachments_is_read() -> None:
    alert = {
        "pretext": "FIRING",
        "title": "CPU high",
        "text": "db-1",
        "fields": [{"title": "value", "value": "99 %"}, {"value": "now"}],
        "fallback": "not used",
    }
    message = {"text": "", "attachments": [alert, {"fallback": "only this"}, {"blocks": [{"type": "header"}]}]}
    assert markup_of(message, bot=True) == "FIRING\nCPU high\ndb-1\nvalue: 99 %\nnow\nonly this"
    assert quoted_of(message, bot=True) == ""


def test_a_persons_attachments_are_what_others_said() -> None:
    shared = {"is_msg_unfurl": True, "author_name": "alice", "text": "the root"}
    page = {"service_name": "Wiki", "title": "Indexes", "text": "B-trees"}
    message = {"text": "see", "attachments": [shared, page]}
    assert markup_of(message, bot=False) == "see"
    assert quoted_of(message, bot=False) == "alice: the root\n\nWiki: Indexes\nB-trees"


def test_a_forwarded_alert_is_quoted_from_its_blocks() -> None:
    inner = {"message": {"blocks": [{"type": "header", "text": {"type": "plain_text", "text": "disk full"}}]}}
    shared = {"is_share": True, "message_blocks": [inner], "fallback": "not used"}
    assert quoted_of({"attachments": [shared]}, bot=False) == "disk full"


def test_what_is_quoted_is_bounded_and_says_that_it_was_cut() -> None:
    quoted = quoted_of({"attachments": [{"text": "x" * 20_000}]}, bot=False)
    assert len(quoted) == QUOTED_MAX
    assert quoted.endswith("…")


@given(st.text(max_size=50))
def test_escaped_words_are_read_back_as_they_were(words: str) -> None:
    assert read_markup(escape(words), {}, "UBOT") == words.strip()


@pytest.mark.parametrize("flood", [" ", "\t", "<", "<@", "<@UBOT", "<@UBOT> ", "<@U1|", "&lt;", "[" * 3])
def test_no_flood_of_characters_takes_long(flood: str) -> None:
    text = (flood * 40_000)[:40_000]
    assert least_cpu_s(lambda: read_markup(text, {}, "UBOT"), enough_s=0.5) <= 0.5


FIELDS = st.sampled_from(
    ["type", "text", "elements", "fields", "rows", "message_blocks", "blocks", "attachments", "title"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(FIELDS, JSON), st.booleans())
def test_no_shape_of_a_message_breaks_the_reading(message: dict[str, Any], bot: bool) -> None:
    assert isinstance(markup_of(message, bot=bot), str)
    assert isinstance(quoted_of(message, bot=bot), str)


def test_blocks_that_nest_without_end_are_read_to_a_depth() -> None:
    element: dict[str, Any] = {"type": "text", "text": "deep"}
    for _ in range(5_000):
        element = {"type": "rich_text_section", "elements": [element]}
    assert read_blocks([{"type": "rich_text", "elements": [element]}]) == ""
