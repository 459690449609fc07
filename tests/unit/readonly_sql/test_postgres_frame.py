"""The frame of the tool that every engine shares: arguments, dispatch, cells, and the bounds of an answer."""

from __future__ import annotations

import datetime
import json
import math
import uuid
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent_core.context import SystemClock
from agent_core.errors import ToolFailed
from agent_core.tools.registry import ToolRegistry
from bot.tools.readonly_sql.answer import MOST_ROWS, Sheet, SqlRequest, to_cell
from bot.tools.readonly_sql.tools import (
    ReadonlySqlArguments,
    register_readonly_sql_tools,
    run_readonly_sql,
)
from bot.tools.targets import Target, Targets

CLOCK = SystemClock()


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, None),
        (True, True),
        (2**53, 2**53),
        (2**53 + 1, str(2**53 + 1)),
        (-(2**53) - 1, str(-(2**53) - 1)),
        (0.5, 0.5),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (Decimal("1.10"), "1.10"),
        (b"\0\1", "<2 bytes>"),
        (memoryview(b"abc"), "<3 bytes>"),
        (datetime.datetime(2026, 3, 1, 10, tzinfo=datetime.UTC), "2026-03-01T10:00:00Z"),
        (datetime.datetime(2026, 3, 1, 10), "2026-03-01T10:00:00"),  # noqa: DTZ001 (a type without a zone)
        (datetime.date(2026, 3, 1), "2026-03-01"),
        (datetime.timedelta(hours=25), "1 day, 1:00:00"),
        ({"a": [1, "ä"]}, '{"a": [1, "ä"]}'),
        ({"b", "a"}, "a,b"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_a_cell_is_what_json_holds_without_a_loss(value: object, cell: object) -> None:
    assert to_cell(value) == cell
    assert json.loads(json.dumps(to_cell(value), allow_nan=False)) == cell


@given(
    st.lists(st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=40)), min_size=2, max_size=2), max_size=30),
    st.integers(1, 20),
    st.integers(16, 400),
    st.integers(1, 30),
)
def test_a_sheet_keeps_its_bounds_and_says_what_it_left_out(
    rows: list[list[object]], max_rows: int, most_bytes: int, most_chars: int
) -> None:
    sheet = Sheet(max_rows=max_rows, most_bytes=most_bytes, most_cell_chars=most_chars)
    taken = 0
    for row in rows:
        if not sheet.add(row):
            break
        taken += 1
    assert len(sheet.rows) == taken <= max_rows
    assert sheet.more_rows is (taken < len(rows))
    texts = [cell for row in sheet.rows for cell in row if isinstance(cell, str)]
    assert all(len(text) <= most_chars for text in texts)
    assert sum(len(text.encode(errors="replace")) for text in texts) <= most_bytes
    cut = sum(
        isinstance(v, str | int) and len(str(to_cell(v))) > most_chars
        for r in rows[:taken]
        for v in r
        if isinstance(to_cell(v), str)
    )
    assert sheet.cells_cut == cut
    assert bool(sheet.warnings()) is (sheet.more_rows or cut > 0)
    assert (sheet.truncated.bytes > 0) is (cut > 0)


@pytest.mark.parametrize(
    "given_",
    [
        {"sql": ""},
        {"sql": "x" * 50_001},
        {"sql": "select 1", "max_rows": 0},
        {"sql": "select 1", "max_rows": MOST_ROWS + 1},
        {"sql": "select 1", "timeout_s": 31},
        {"sql": "select 1", "timeout_s": 0},
        {"sql": "select 1", "timeout_s": math.inf},
        {"sql": "select 1", "params": [[1]]},
        {"sql": "select 1", "params": [1] * 101},
        {},
    ],
)
def test_arguments_out_of_bounds_are_refused(given_: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ReadonlySqlArguments.model_validate(given_)


def test_values_keep_their_types() -> None:
    arguments = ReadonlySqlArguments.model_validate_json('{"sql": "x", "params": [1, "1", true, null, 1.5]}')
    assert [type(value) for value in arguments.params or []] == [int, str, bool, type(None), float]


async def fail(target: Target) -> ToolFailed:
    with pytest.raises(ToolFailed) as caught:
        await run_readonly_sql(Targets([target]), CLOCK, SqlRequest(sql="select 1"), target=None)
    return caught.value


async def test_a_target_is_closed_until_the_operator_opens_it() -> None:
    for url in ("postgresql://h/d", "mysql://h/d", "sqlite:///x.db"):
        failure = await fail(Target.from_url("shop", url))
        assert failure.code == "not_allowed"
        assert "allow_sql = true in [targets.shop]" in failure.fix


async def test_a_slow_log_has_no_sql() -> None:
    failure = await fail(Target.from_url("logs", "slowlog:///var/log", allow_sql=True))
    assert failure.code == "unsupported"


def test_the_names_of_targets_are_in_the_schema() -> None:
    registry = ToolRegistry()
    register_readonly_sql_tools(registry, Targets([Target.from_url("shop", "postgresql://h/d")]), CLOCK)
    tool = registry.get("run_readonly_sql")
    assert tool is not None
    assert '"shop"' in json.dumps(dict(tool.parameters))
    assert "执行" in tool.description
    assert tool.timeout_s is not None
    assert tool.timeout_s > 30
