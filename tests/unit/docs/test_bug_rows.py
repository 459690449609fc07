"""The table of bugs that others had is up to date, and every row is kept out by a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.write_bug_table import PAGE, ROWS, FoundTest, find_tests, render_page

TESTS = find_tests()


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(TESTS), "run: python -m scripts.write_bug_table"


@pytest.mark.parametrize("row", range(1, len(ROWS) + 1))
def test_a_row_has_a_test_or_says_why_not(row: int) -> None:
    assert bool(TESTS.get(row)) is not bool(ROWS[row - 1].why_not), ROWS[row - 1].symptom


def test_nine_rows_of_ten_have_tests() -> None:
    assert len(ROWS) == 45
    assert sum(1 for row in range(1, 46) if TESTS.get(row)) >= 0.9 * 45


def test_no_test_names_a_row_that_is_not_there() -> None:
    assert TESTS.keys() <= set(range(1, len(ROWS) + 1))


def test_tests_are_found_by_their_names_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    (tmp_path / "tests" / "deep" / "test_a.py").write_text(
        "async def test_bug_7_one_went_wrong(): ...\n"
        "class Group:\n    def test_bug_12_two_went_wrong(self): ...\n"
        "def test_bug_x_no_row(): ...\ndef a_test_bug_3_helper(): ...\n"
    )
    (tmp_path / "tests" / "setting.py").write_text("def test_bug_4_not_collected(): ...\n")
    assert find_tests(tmp_path) == {
        7: [FoundTest("tests/deep/test_a.py", "test_bug_7_one_went_wrong")],
        12: [FoundTest("tests/deep/test_a.py", "test_bug_12_two_went_wrong")],
    }
    assert "`tests/deep/test_a.py`: one went wrong" in render_page(find_tests(tmp_path))
    assert "2 of 45 rows have tests." in render_page(find_tests(tmp_path))
