"""Results of any tool as Markdown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from reading.cells import label, write_code, write_duration, write_value
from reading.layout import MAX_COLUMNS, choose_columns, render_result
from reading.phrases import CHINESE

ENVELOPE: dict[str, Any] = {
    "ok": True,
    "target": "shop",
    "engine": "postgresql",
    "engine_version": "18.1",
    "source": "pg_stat_statements (window between two readings)",
    "window": {
        "asked_start": "2026-03-10T11:30:00Z",
        "asked_end": "2026-03-10T12:00:00Z",
        "start": "2026-03-10T11:42:10Z",
        "end": "2026-03-10T12:00:00Z",
    },
    "coverage": {"complete": False, "reasons": ["the first reading is from 11:42"], "snapshots": 2},
    "rows": [
        {
            "sql": "SELECT *\n  FROM orders WHERE note LIKE $1 || '%' AND customer_id = $2 ORDER BY created LIMIT $3",
            "duration": 1.234567,
            "duration_kind": "mean",
            "fingerprint": "abcdef",
            "calls": 12345,
            "total_s": 3601.5,
            "max_s": 0.0456,
            "share_of_total": 0.873,
            "db": "shop",
            "user": "app",
        },
        {"sql": "SELECT 1", "duration": 0.5, "duration_kind": "mean", "fingerprint": "b", "calls": 1, "total_s": 0.5},
    ],
    "warnings": ["statements of other roles are hidden"],
    "took_ms": 12.5,
}


def render(value: object, **kwargs: Any) -> str:
    return render_result(json.dumps(value), kwargs.get("labels", {}))


def test_a_result_with_rows_is_a_table_with_window_above_and_warnings_below() -> None:
    text = render(ENVELOPE)
    head, table, tail = text.partition("| # |")
    assert "`shop` · postgresql 18.1 · pg_stat_statements" in head
    assert "Window: 2026-03-10 11:42:10 → 12:00:00 UTC (asked for 2026-03-10 11:30:00 → 12:00:00 UTC)" in head
    assert "durations are: mean" in head
    assert "**Not fully covered:** the first reading is from 11:42" in head
    assert table
    assert "| 1 | 1.23 s | 12,345 | 60 min | 45.6 ms |" in tail
    assert "| 2 | 500 ms | 1 | 500 ms |" in tail
    assert text.splitlines()[-1] == "**Warning:** statements of other roles are hidden"


def test_the_table_is_markdown_whose_cells_stay_cells() -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(render(ENVELOPE))
    rows = sum(1 for t in tokens if t.type == "tr_open")
    cells = sum(1 for t in tokens if t.type in ("td_open", "th_open"))
    assert rows == 3
    assert cells == rows * (MAX_COLUMNS + 1)
    code = [c.content for t in tokens if t.type == "inline" for c in t.children or () if c.type == "code_inline"]
    assert any(c.startswith("SELECT * FROM orders WHERE note LIKE $1 || '%'") and c.endswith("…") for c in code)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("size_bytes", 2048, "2 KiB"),
        ("bytes", 12, "12 B"),
        ("peak_memory_mb", 96.5, "96.5 MiB"),
        ("size_kb", 64, "64 KiB"),
    ],
)
def test_a_size_keeps_the_unit_that_its_label_loses(key: str, value: float, text: str) -> None:
    assert label(key) in {"size", "bytes", "peak memory"}
    assert write_value(key, value) == text


def test_columns_are_few_telling_and_end_with_the_statement() -> None:
    columns = choose_columns(ENVELOPE["rows"])
    assert columns[:3] == ["duration", "calls", "total_s"]
    assert columns[-1] == "sql"
    assert len(columns) == MAX_COLUMNS
    assert "fingerprint" not in columns


def test_no_rows_are_said_in_words_with_the_window() -> None:
    text = render({**ENVELOPE, "rows": []})
    assert "No rows." in text
    assert "Window:" in text


def test_a_chinese_answer_has_chinese_labels() -> None:
    text = render({**ENVELOPE, "rows": []}, labels=CHINESE.labels)
    assert "时间窗口" in text
    assert "没有符合条件的行" in text
    assert "Window" not in text


def test_an_error_is_its_message_and_the_remedy() -> None:
    error = {
        "code": "insufficient_privilege",
        "message": "reader may not read x",
        "fix": "GRANT pg_monitor TO reader",
    }
    assert render({"ok": False, "error": error}) == (
        "**Failed** (`insufficient_privilege`): reader may not read x\n\n**What to do:** GRANT pg_monitor TO reader"
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('{"ok":true,"expression":"2+2","result":4}', "4"),
        ('{"result":1036.0}', "1036.0"),
        ("1036.0", "1036.0"),
        ("plain words", "plain words"),
        ('"quoted"', "quoted"),
        ("[]", "Empty result."),
        ("{}", "Empty result."),
        ("[1, 2]", "- 1\n- 2"),
        ('{"ok":true,"zone":"UTC","time":"2026-03-10T12:00:00Z"}', "- zone: UTC\n- time: 2026-03-10 12:00:00 UTC"),
        ("", "–"),
    ],
)
def test_small_results_are_laid_out_plainly(content: str, text: str) -> None:
    assert render_result(content, {}) == text


def test_a_plan_by_depth_is_an_indented_outline() -> None:
    rows = [{"depth": 0, "text": "Sort (cost 10)"}, {"depth": 1, "text": "Seq Scan on orders"}]
    text = render({"ok": True, "rows": rows, "findings": ["scan of a whole table"]})
    assert "```\nSort (cost 10)\n  Seq Scan on orders\n```" in text
    assert "- scan of a whole table" in text


def test_nested_objects_become_nested_bullets() -> None:
    tree = [{"pid": 7, "state": "idle in transaction", "children": [{"pid": 9, "wait_s": 12.0}]}]
    assert "- **7** state idle in transaction\n  - **9** wait 12 s" in render({"ok": True, "rows": tree})


def test_a_result_that_was_cut_is_shown_as_it_is() -> None:
    text = render_result('{"ok": true, "rows": [{"a": 1}\n[... 9 characters left out ...]\n', {})
    assert text.startswith("```\n{")
    assert text.endswith("The result was cut.")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0123, "12.3 ms"),
        (0.9994, "999 ms"),
        (1.234, "1.23 s"),
        (12.34, "12.3 s"),
        (83, "83 s"),
        (7200, "120 min"),
    ],
)
def test_durations_have_a_unit_and_few_digits(seconds: float, text: str) -> None:
    assert write_duration(seconds) == text


def test_code_with_backticks_stays_one_piece_of_code() -> None:
    assert write_code("SELECT `a` FROM t") == "``SELECT `a` FROM t``"
    assert write_code("`a`") == "`` `a` ``"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["ok", "rows", "error", "window", "coverage", "sql", "a_s", "children", "depth"]), inner
        )
    ),
    max_leaves=25,
)


@given(JSON)
def test_any_json_is_laid_out(value: object) -> None:
    assert render_result(json.dumps(value), {}).strip()


@given(st.text())
def test_any_text_is_laid_out(text: str) -> None:
    assert render_result(text, {})


def test_what_a_duration_means_is_a_column_where_the_rows_differ_in_it() -> None:
    rows = [
        {"sql": "a", "duration": 1.0, "duration_kind": "mean", "calls": 1, "total_s": 1.0, "mean_s": 1.0, "max_s": 1.0},
        {"sql": "b", "duration": 2.0, "duration_kind": "single", "calls": None, "total_s": None, "max_s": 2.0},
    ]
    lines = render_result(json.dumps({"ok": True, "rows": rows}), {}).splitlines()
    assert lines[0].startswith("| # | duration | duration kind | calls |")
    assert "| single |" in lines[3]


def test_rows_beside_their_columns_are_a_table_in_the_asked_order() -> None:
    answer = {
        "ok": True,
        "target": "shop",
        "columns": ["id", "id", "a|b"],
        "types": ["int4"] * 3,
        "rows": [[1, 2, "x"]],
    }
    text = render_result(json.dumps(answer), {})
    assert "| id | id (2) | a\\|b |" in text
    assert "| 1 | 2 | x |" in text
    assert "int4" not in text


def test_columns_and_rows_beyond_the_bounds_are_counted() -> None:
    answer = {"ok": True, "columns": [f"c{n}" for n in range(13)], "rows": [list(range(13))] * 25}
    text = render_result(json.dumps(answer), {})
    assert "… 3 more columns" in text
    assert "… 5 more rows" in text
    assert "… 1 more row\n" in render_result(json.dumps({**answer, "rows": [list(range(13))] * 21}), {}) + "\n"
    assert render_result(json.dumps({"ok": True, "columns": ["a"], "rows": []}), {}) == "No rows."


def test_a_share_is_a_percentage_and_what_is_short_of_all_is_never_written_as_all() -> None:
    text = render_result(json.dumps({"ok": True, "rows": [{"index": "a (b)", "cost_saved": 0.9917}]}), {})
    assert "| a (b) | 99.2 % |" in text
    nearly = render_result(json.dumps({"ok": True, "rows": [{"name": "cache", "cost_saved": 0.99999}]}), {})
    assert "over 99.9 %" in nearly
    assert "100 %" not in nearly


@pytest.mark.parametrize(
    ("value", "unit", "cell"),
    [
        (0.027, "share of usable connections", "2.7 % of usable connections"),
        (268435456, "bytes of WAL", "256 MiB of WAL"),
        (15.2, "seconds", "15.2 s"),
        (7, "failed attempts", "7 failed attempts"),
        (9999.5, "steps", "9999.5 steps"),
        (17077.14, "steps", "17,077.1 steps"),
        (284303.2, "steps", "284,303 steps"),
        (-7654321.5, "steps", "-7,654,322 steps"),
        (1e15, "steps", "1000000000000000.0 steps"),
        (None, "", "–"),
    ],
)
def test_a_value_and_its_unit_are_one_cell(value: float | None, unit: str, cell: str) -> None:
    rows = [{"check": "it", "value": value, "unit": unit}, {"check": "other", "value": 1, "unit": "tables"}]
    text = render_result(json.dumps({"ok": True, "rows": rows}), {})
    assert f"| it | {cell} |" in text
    assert "unit" not in text


def test_the_answer_in_a_sentence_stands_above_the_rows() -> None:
    answer = {"ok": True, "summary": "nobody waits since 2026-11-30T17:51:49Z", "rows": [{"pid": 1}], "status": "ok"}
    text = render_result(json.dumps(answer), {})
    assert text.startswith("**nobody waits since 2026-11-30 17:51:49 UTC**\n\n**status: ok**\n\n| pid |")
    assert text.count("status") == 1


def test_a_running_statement_is_told_apart_from_a_finished_one() -> None:
    fast = {"calls": 1, "total_s": 1.0, "mean_s": 1.0, "max_s": 1.0, "share_of_total": 0.5, "sql": "select 1"}
    rows = [{"duration": 2.0, "state": "running"} | fast, {"duration": 1.0, "state": "finished"} | fast]
    assert "| 1 | 2 s | running |" in render_result(json.dumps({"ok": True, "rows": rows}), {})
    assert "state" not in render_result(json.dumps({"ok": True, "rows": rows[1:]}), {})


def test_instants_of_the_answer_are_written_for_people_and_peoples_own_data_as_it_is() -> None:
    data = {"ok": True, "columns": ["note"], "rows": [["at 2026-11-30T17:51:49Z exactly"]]}
    assert "at 2026-11-30T17:51:49Z exactly" in render_result(json.dumps(data), {})
    said = {
        "ok": True,
        "rows": [],
        "warnings": ["since 2026-11-30T17:51:49.5Z, not 2026-11-30T17:00Z/2026-11-30T18:00Z"],
    }
    assert "since 2026-11-30 17:51:49 UTC, not 2026-11-30T17:00Z/2026-11-30T18:00Z" in render_result(
        json.dumps(said), {}
    )


def test_a_long_finding_is_whole_in_a_short_table_and_cut_in_a_long_one() -> None:
    finding = "w " * 150 + "end"
    assert "w end" in render_result(json.dumps({"ok": True, "rows": [{"table": "t", "findings": finding}] * 3}), {})
    assert "w end" not in render_result(
        json.dumps({"ok": True, "rows": [{"table": "t", "findings": finding}] * 15}), {}
    )


def test_lines_to_run_are_not_repeated_as_cut_code_in_the_table() -> None:
    answer = {"ok": True, "rows": [{"index": "a (b)", "ddl": "CREATE INDEX x"}], "to_run": ["CREATE INDEX x"]}
    assert render_result(json.dumps(answer), {}).count("CREATE INDEX x") == 1


def test_spans_of_time_without_numbers_are_counted_and_not_listed() -> None:
    empty = {"start": "2026-11-30T17:00:00Z", "end": "2026-11-30T17:10:00Z", "calls": None, "coverage": 0.0}
    known = {"start": "2026-11-30T17:10:00Z", "end": "2026-11-30T17:20:00Z", "calls": 3, "coverage": 0.5}
    text = render_result(json.dumps({"ok": True, "rows": [empty, empty, known]}), {})
    assert "… 2 rows without numbers" in text
    assert "17:00" not in text
    assert "| 3 |" in text
    assert "50 %" in text
    assert render_result(json.dumps({"ok": True, "rows": [empty]}), {}) == "… 1 rows without numbers"
