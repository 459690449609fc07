"""The table of bugs of other database tools is up to date, and every row is kept out by a test or says why not."""

from __future__ import annotations

import pytest

from scripts.chat_rows import ChatRow
from scripts.database_rows import ROWS
from scripts.write_database_rows import PAGE, find_tests, render_page

TESTS = find_tests()


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(TESTS), "run: python -m scripts.write_database_rows"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_has_a_test_or_says_why_not(row: ChatRow) -> None:
    assert bool(TESTS.get(row.id)) is not bool(row.why_not), row.symptom


def test_nine_rows_of_ten_have_tests() -> None:
    assert [row.id for row in ROWS] == [f"D{number:02}" for number in range(1, 41)]
    assert sum(1 for row in ROWS if TESTS.get(row.id)) >= 0.9 * len(ROWS)


def test_every_test_of_a_row_belongs_to_a_row_of_the_table() -> None:
    assert TESTS.keys() <= {row.id for row in ROWS}
