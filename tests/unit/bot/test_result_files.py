"""The files that an answer brings along because of what its tools returned."""

from __future__ import annotations

import base64
import csv
import io
import json
from datetime import UTC, datetime, timedelta

import pytest

from agent_core.tools.base import ToolResult
from bot.result_files import MOST_FILES, build_result_files, write_csv


def result(name: str = "get_slow_queries", *, call: str = "1", ok: bool = True, **content: object) -> ToolResult:
    return ToolResult(
        call_id=call, name=name, ok=ok, content=json.dumps(content), started_at=datetime(2026, 5, 1, tzinfo=UTC)
    )


def rows(count: int, **more: object) -> list[dict[str, object]]:
    return [{"sql": f"select {n}", "duration": 1.5 + n, **more} for n in range(count)]


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_table_that_is_too_long_to_show_comes_whole_as_a_file() -> None:
    (file,) = build_result_files([result(target="shop", rows=rows(45))], whole=False)
    assert file.name == "slow-queries-shop.csv"
    assert [row["sql"] for row in read(file.content)] == [f"select {n}" for n in range(45)]


def test_a_table_that_is_shown_whole_comes_without_a_file() -> None:
    assert build_result_files([result(target="shop", rows=rows(5))], whole=True) == ()


def test_columns_that_a_command_does_not_show_come_in_the_file() -> None:
    wide = rows(2, **{f"column_{n}": n for n in range(9)})
    assert build_result_files([result(rows=wide)], whole=False) == ()
    (file,) = build_result_files([result(rows=wide)], whole=True)
    assert read(file.content)[1]["column_8"] == "8"


def test_rows_that_are_lists_take_their_names_from_the_columns() -> None:
    answer = result("run_readonly_sql", target="shop", columns=["id", "note"], rows=[[n, None] for n in range(30)])
    (file,) = build_result_files([answer], whole=False)
    assert read(file.content)[29] == {"id": "29", "note": ""}


def test_a_failed_or_cut_result_brings_no_file() -> None:
    assert build_result_files([result(ok=False, rows=rows(45))], whole=True) == ()
    cut = ToolResult(
        call_id="1",
        name="x",
        ok=True,
        content='{"rows": [',
        started_at=datetime(2026, 5, 1, tzinfo=UTC),
        truncated=True,
    )
    assert build_result_files([cut], whole=True) == ()


def test_files_of_one_name_are_numbered_and_few() -> None:
    many = [result(call=str(n), target="shop", rows=rows(30)) for n in range(7)]
    names = [file.name for file in build_result_files(many, whole=False)]
    assert len(names) == len(set(names)) == MOST_FILES


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-cmd|x", "@SUM(1)", "\t=1", "\r=1"])
def test_no_text_is_a_formula_in_a_spreadsheet(text: str) -> None:
    (row,) = read(write_csv([{"sql": text}]))
    assert row["sql"].startswith("'")


def test_negative_numbers_and_long_ids_stay_what_they_are() -> None:
    (row,) = read(write_csv([{"queryid": "-2901021884630504882", "change": -1.5}]))
    assert row == {"queryid": "-2901021884630504882", "change": "-1.5"}


def test_a_trend_comes_as_a_picture() -> None:
    pytest.importorskip("matplotlib")
    start = datetime(2026, 5, 1, tzinfo=UTC)
    buckets = [
        {
            "start": (start + timedelta(minutes=5 * n)).isoformat(),
            "end": (start + timedelta(minutes=5 * n + 5)).isoformat(),
            "calls": 10 + n,
            "mean_s": None if n == 3 else 0.1 * n,
        }
        for n in range(8)
    ]
    files = build_result_files(
        [result("query_trend", target="shop", sql="select $1 from t where a = $2", rows=buckets)], whole=False
    )
    (picture,) = files
    assert picture.name == "query-trend-shop.png"
    assert base64.b64decode(picture.content).startswith(b"\x89PNG")


def test_a_report_comes_as_the_file_that_it_names() -> None:
    written = result("generate_report", file="upgrade.md", characters=9, markdown="# Upgrade")
    (file,) = build_result_files([written], whole=False)
    assert (file.name, file.content, file.encoding) == ("upgrade.md", "# Upgrade", "text")
    assert build_result_files([result("generate_report", markdown="# No name")], whole=False) == ()
