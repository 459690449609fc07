"""The table of bugs of other chat bots is up to date, and every row is kept out by a test or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.chat_rows import ROWS, ChatRow
from scripts.write_bug_table import FoundTest
from scripts.write_chat_rows import PAGE, find_tests, render_page

TESTS = find_tests()


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(TESTS), "run: python -m scripts.write_chat_rows"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_has_a_test_or_says_why_not(row: ChatRow) -> None:
    assert bool(TESTS.get(row.id)) is not bool(row.why_not), row.symptom


def test_nine_rows_of_ten_have_tests() -> None:
    assert len(ROWS) == len({row.id for row in ROWS})
    assert sum(1 for row in ROWS if TESTS.get(row.id)) >= 0.9 * len(ROWS)


def test_tests_are_found_by_their_names_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    (tmp_path / "tests" / "deep" / "test_a.py").write_text(
        "async def test_b007_one_went_wrong(): ...\n"
        "def test_b012_b013_two_went_wrong(): ...\ndef test_bug_7_of_another_table(): ...\n"
    )
    found = find_tests(tmp_path)
    assert found == {
        "B007": [FoundTest("tests/deep/test_a.py", "test_b007_one_went_wrong")],
        "B012": [FoundTest("tests/deep/test_a.py", "test_b012_b013_two_went_wrong")],
        "B013": [FoundTest("tests/deep/test_a.py", "test_b012_b013_two_went_wrong")],
    }
    assert "`tests/deep/test_a.py`: two went wrong" in render_page(found)
