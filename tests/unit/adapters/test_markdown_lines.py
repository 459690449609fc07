"""Direction, names and monospace: what all platforms share beside cutting."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.chat import Limits
from adapters.markdown import Table, clean_name, draw_table, fit_answer, isolate, parse_markdown, table_csv, table_width


def table(text: str) -> Table:
    (found,) = parse_markdown(text).blocks
    assert isinstance(found, Table)
    return found


@pytest.mark.parametrize(
    ("line", "isolated"),
    [
        ("• שלום כהן — 3 errors (12:00)", "• \u2068שלום כהן\u2069 — 3 errors (12:00)"),
        ("by محمد and דוד: ok ok ok", "by \u2068محمد\u2069 and \u2068דוד\u2069: ok ok ok"),
        ("שלוש שאילתות VACUUM איטיות", "שלוש שאילתות VACUUM איטיות"),
        ("שלום", "שלום"),
        ("plain", "plain"),
    ],
)
def test_b078_a_name_in_a_line_that_runs_the_other_way_is_isolated(line: str, isolated: str) -> None:
    assert isolate(line) == isolated


def test_b079_a_name_has_no_characters_that_are_not_seen() -> None:
    assert clean_name("inv\u202egpj.exe\u200d\u200b\ufeff\n.txt") == "invgpj.exe .txt"


def test_a_table_is_aligned_by_the_width_that_is_seen() -> None:
    drawn = table("| name | 数量 | x |\n|---|---:|:-:|\n| **a** | 1 | ab |\n| 中文😀 | 22 | c |")
    assert draw_table(drawn) == "name   | 数量 | x\n-------+------+---\na      |    1 | ab\n中文😀 |   22 | c"
    assert table_width(drawn) == len("-------+------+---")


def test_a_spreadsheet_runs_no_cell_of_a_csv_file() -> None:
    written = table_csv(table('| a |\n|---|\n| =1+1 |\n| -12.5 |\n| +49 30 1 |\n| @x |\n| say "hi", you |'))
    assert [row[0] for row in csv.reader(io.StringIO(written))] == [
        "a",
        "'=1+1",
        "-12.5",
        "+49 30 1",
        "'@x",
        'say "hi", you',
    ]


@given(st.lists(st.sampled_from(["word", "`code`", "- item", "```\nx\n```"]), max_size=60), st.integers(1, 4))
def test_an_answer_has_no_more_parts_than_it_may_and_a_tail_with_the_rest(blocks: list[str], most: int) -> None:
    text = "\n\n".join(blocks)
    fitted = fit_answer(text, Limits(text_max=150), parts_max=most)
    assert len(fitted.parts) <= most
    assert all(len(part) <= 150 for part in fitted.parts)
    assert bool(fitted.tail) == any("answer.md" in part for part in fitted.parts)
    whole = "".join(fitted.parts) + fitted.tail
    for word in ("word", "code", "item", "x\n"):
        assert whole.count(word) == text.count(word)


def test_an_answer_for_posts_that_are_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        fit_answer("x", Limits(text_max=10))
