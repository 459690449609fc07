"""Text that Discord shows as it is: no mark, no mention, every character."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.discord.escape import break_fences, escape, escape_lines
from tests.unit.adapters.discord.reader import LIVE, read

MENTIONS = "@everyone @here <@1> <@!1> <@&9> <#5> <:x:1> <a:x:1> </ask:1> </ask sub:1> <t:1> <t:1:R> <id:customize>"

TEXTS = st.lists(
    st.sampled_from(
        [
            *"ab1 <>!@#&:/\\*_~|`[]()-+.\n\u4e2d\U0001f600\u05d0",
            *MENTIONS.split(" "),
            "everyone",
            "here",
            "<@",
            "```",
            "||",
            "**",
            "__",
            "~~",
            "# ",
            "-# ",
            "> ",
            "- ",
            "1. ",
            ":tada:",
            "](",
        ]
    ),
    max_size=40,
).map("".join)


def shown(text: str) -> str:
    return read(text).text.replace("\u200b", "")


def test_no_mention_of_any_kind_is_left_alive() -> None:
    assert len(read(MENTIONS).live) == 13
    escaped = escape(MENTIONS)
    assert read(escaped).live == []
    assert LIVE.findall(escaped) == []  # not even for a reader that knows no escapes
    assert shown(escaped) == MENTIONS


@pytest.mark.parametrize(
    "text",
    [
        "2 * 3 * 4",
        "*no italics* **no bold** _none_ __init__ ~~kept~~ ||no spoiler||",
        "a `tick` and ```three```",
        "[label](https://evil.test)",
        r"C:\dir\*.log and \_ and \\host",
        "a|b || c |||",
        "~5 ~~ 6~",
        ":smile: at 12:30:45, x[1:b:c]",
        "¯\\_(ツ)_/¯",
    ],
)
def test_marks_in_a_text_are_shown_and_mark_nothing(text: str) -> None:
    seen = read(escape(text))
    assert seen.kinds == set()
    assert shown(escape(text)) == text


@pytest.mark.parametrize(
    "text", ["snake_case_name", "a | b", "about ~5 s", "12:30:45", "C:\\Users\\me", "f(x) > 2 # z"]
)
def test_a_text_that_needs_no_escapes_gets_none(text: str) -> None:
    assert escape_lines(escape(text)) == text


@pytest.mark.parametrize("line", ["# a", "### a", "-# a", "> a", ">>> a", "- a", "  - a", "1. a", "2024. a", "#", "-"])
def test_no_line_of_a_text_begins_anything(line: str) -> None:
    text = f"x\n{line}"
    written = escape_lines(escape(text))
    assert read(written).kinds == set()
    assert shown(written) == text


def test_code_cannot_end_its_block() -> None:
    assert "```" not in break_fences("a ``` b ````` c")
    assert break_fences("`` a `").count("\u200b") == 0


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_any_text_is_shown_whole_and_mentions_nobody(text: str) -> None:
    written = escape_lines(escape(text))
    seen = read(written)
    assert seen.live == []
    assert seen.kinds == set()
    assert seen.blocks == []
    assert seen.codes == []
    assert seen.text.replace("\u200b", "") == text


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_escaping_what_is_shown_gives_the_same_again(text: str) -> None:
    once = escape_lines(escape(text))
    assert escape_lines(escape(shown(once))) == once
