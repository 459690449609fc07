from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.slack.piece import cut_at, neutralise, open_fence, open_table, settle

MARKUP = st.text(alphabet=st.sampled_from("<>!@#[]()`~\n herchannlvyo|U1.x中"), max_size=120)
LIVE = re.compile(r"<[!@#]|\]\(\s*<?[!@#]|\]:\s*<?[!@#]|@(?:here|channel|everyone)", re.I)


@pytest.mark.parametrize(
    "text",
    [
        "<!channel>",
        "<@U2BOB>",
        "<#C1>",
        "<!subteam^S1>",
        "[x](!channel)",
        "[x](<@U1>)",
        "[x]: !here",
        "@Everyone",
        "`<!here>`",
    ],
)
def test_nothing_in_a_stream_pings_anybody(text: str) -> None:
    assert not LIVE.search(neutralise(text))
    assert neutralise(text).replace("\u200b", "") == text


@given(MARKUP)
def test_neutralising_twice_changes_nothing_more_and_loses_nothing(text: str) -> None:
    once = neutralise(text)
    assert not LIVE.search(once)
    assert neutralise(once) == once
    assert once.replace("\u200b", "") == text.replace("\u200b", "")


@given(MARKUP, MARKUP)
def test_what_was_streamed_stays_the_beginning_of_what_follows(first: str, more: str) -> None:
    settled = settle(first)
    assert first.startswith(settled)
    assert neutralise(first + more).startswith(neutralise(settled))


def test_an_unfinished_word_waits() -> None:
    assert settle("slow que") == "slow"
    assert settle("slow queries ") == "slow queries"
    assert settle("slo") == ""
    assert settle("数据库" * 30) == "数据库" * 30


@pytest.mark.parametrize(
    ("text", "fence"),
    [
        ("", ""),
        ("```sql\nselect 1", "```sql"),
        ("```sql\nselect 1\n```", ""),
        ("~~~~\n~~~\n", "~~~~"),
        ("a ``` b", ""),
        ("````md\n```sql\n```\n", "````md"),
        ("  ```\nx", "```"),
    ],
)
def test_an_open_code_block_is_known_by_its_first_line(text: str, fence: str) -> None:
    assert open_fence(text) == fence


@given(st.text(alphabet=st.sampled_from("ab \n`"), min_size=1, max_size=300), st.integers(8, 40))
def test_cutting_ends_fits_and_loses_nothing(text: str, size: int) -> None:
    pieces, rest = [], text
    while rest:
        end = cut_at(rest, lambda piece: len(piece) <= size, 2 * size)
        assert 1 <= end <= size
        pieces.append(rest[:end])
        rest = rest[end:]
    assert "".join(pieces) == text


def test_a_cut_falls_between_blocks_then_lines_then_words() -> None:
    def cut(text: str) -> str:
        return text[: cut_at(text, lambda piece: len(piece) <= 20, 20)]

    assert cut("one two\nthree\n\nfour five six seven") == "one two\nthree"
    assert cut("one two three\nfour five six seven") == "one two three"
    assert cut("one two three four five six") == "one two three four"
    assert cut("x" * 40) == "x" * 20
    assert cut("```\na b c\n\nd\nef g h i j k") == "```\na b c\n\nd"  # not at the blank line inside the code


def test_a_cut_never_falls_before_what_is_visible() -> None:
    def cut(text: str, shown: str) -> str:
        return text[: cut_at(text, lambda piece: len(piece) <= 20, 20, len(shown))]

    assert cut("one two\n\nthree four five six", "one two\n\nthree") == "one two\n\nthree four"
    assert cut("one two\n\nthree four fivesix", "one two\n\nthree four") == "one two\n\nthree four"
    assert cut("one two\n\nthree fourfivesix", "one two\n\nthree fourfi") == "one two\n\nthree fourfi"


@pytest.mark.parametrize(
    ("text", "rest", "head"),
    [
        ("x\n\n| a | b |\n|---|:-:|\n| 1 | 2 |", "\n| 3 | 4 |", "| a | b |\n|---|:-:|"),
        ("| a | b |\n|---|---|", "\n| 3 | 4 |", "| a | b |\n|---|---|"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "\n\n| 3 | 4 |", ""),
        ("| a | b |\n|---|---|\n| 1 |", " 2 |", ""),
        ("| a | b |", "\n|---|---|", ""),
        ("| a", "\n| b", ""),
    ],
)
def test_a_table_goes_on_under_its_head(text: str, rest: str, head: str) -> None:
    assert open_table(text, rest) == head
