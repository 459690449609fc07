"""Postgres's three logs: durations, statements, plans, and what belongs together."""

from __future__ import annotations

import gzip
import json
import math
import random
import statistics
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from agent_core.errors import ToolFailed
from bot.tools.slow_queries.redact_sql import fingerprint_sql
from tests.unit.slow_logs.logs import calls_of, csv_row, json_row, only, pg, read, timed

PLAN = (
    "Query Text: select * from u where email = 's3cr3t'\nSeq Scan on u  (cost=0.00..35.50 rows=10 width=4)\n"
    "  Filter: (email = 's3cr3t'::text)\n  Rows Removed by Filter: 90"
)


def rows_of(kind: str, *messages: str) -> str:
    """The same messages of one session in one of the three forms."""
    match kind:
        case "stderr":
            return "".join(pg(message) for message in messages)
        case "csvlog":
            return "".join(csv_row(message, line=line) for line, message in enumerate(messages, 1))
        case _:
            return "".join(json_row(message, line=line) for line, message in enumerate(messages, 1))


KINDS = pytest.mark.parametrize("kind", ["stderr", "csvlog", "jsonlog"])


@KINDS
def test_all_figures_of_a_shape_are_those_of_its_executions(kind: str) -> None:
    draw = random.Random(5)
    ms = [round(300 * math.exp(draw.gauss(0, 0.7)), 3) for _ in range(1_000)]
    log = rows_of(kind, *(f"duration: {d:.3f} ms  statement: select * from t where id = {n}" for n, d in enumerate(ms)))
    row = only(answer := read(log, threshold_s=0.5))
    seconds = sorted(d / 1000 for d in ms)
    assert answer.files[0].format == kind
    assert row.calls == 1_000
    assert row.min_s == pytest.approx(seconds[0])
    assert row.max_s == pytest.approx(seconds[-1])
    assert row.total_s == pytest.approx(sum(seconds))
    assert row.mean_s == pytest.approx(statistics.fmean(seconds), abs=1e-6)
    assert row.stddev_s == pytest.approx(statistics.pstdev(seconds), abs=2e-6)
    for found, share in ((row.p50_s, 0.5), (row.p95_s, 0.95), (row.p99_s, 0.99)):
        assert found == pytest.approx(seconds[math.ceil(share * 1_000) - 1], rel=0.01)
    assert row.calls_over_threshold == sum(d >= 0.5 for d in seconds)
    assert (row.duration, row.duration_kind) == (row.max_s, "max")
    assert row.fingerprint == fingerprint_sql("select * from t where id = $1")
    assert (row.db, row.user, row.app, row.rows) == ("shop", "app", "web", None)


@KINDS
def test_a_literal_that_looks_like_an_entry_is_one_statement_and_does_not_leave(kind: str) -> None:
    trap = "2026-01-01 00:00:00.000 UTC [1] a@b/c LOG:  duration: 99999.000 ms  statement: s3cr3t"
    sql = f"insert into audit values ('one\n{trap}')"
    row = only(answer := read(rows_of(kind, f"duration: 5.000 ms  statement: {sql}")))
    assert (row.calls, row.max_s, answer.damaged.lines) == (1, 0.005, 0)
    assert "s3cr3t" not in json.dumps(row.sql)


@KINDS
def test_a_bare_duration_belongs_to_the_statement_before_it_once(kind: str) -> None:
    answer = read(rows_of(kind, "statement: select 1", "duration: 7.000 ms", "duration: 9.000 ms"))
    assert (only(answer).calls, only(answer).total_s) == (1, 0.007)
    assert any("have no statement" in reason for reason in answer.coverage.reasons)
    assert not answer.coverage.complete


@KINDS
def test_parse_and_bind_are_no_executions_of_their_own(kind: str) -> None:
    row = only(
        read(
            rows_of(
                kind,
                "duration: 1.000 ms  parse s1: select * from t where id = $1",
                "duration: 2.000 ms  bind s1: select * from t where id = $1",
                "duration: 4.000 ms  execute s1: select * from t where id = $1",
            )
        )
    )
    assert (row.calls, row.total_s, row.prepare_s) == (1, 0.004, 0.003)


@KINDS
def test_plans_of_auto_explain_alone_count_and_leave_without_data(kind: str) -> None:
    row = only(read(rows_of(kind, f"duration: 5.000 ms  plan:\n{PLAN}", f"duration: 3.000 ms  plan:\n{PLAN}")))
    assert (row.calls, row.total_s) == (2, 0.008)
    assert row.example_plan is not None
    assert "Seq Scan on u (cost=0.00..35.50 rows=10 width=4)" in row.example_plan
    assert "Rows Removed by Filter: 90" in row.example_plan
    assert "email = $1" in row.example_plan
    assert "s3cr3t" not in row.example_plan + row.sql


def test_a_json_plan_leaves_without_data() -> None:
    body = {
        "Query Text": "select * from u where email = 's3cr3t'",
        "Query Parameters": "$1 = 's3cr3t'",
        "Plan": {
            "Node Type": "Hash Join", "Startup Cost": 1.0, "Total Cost": 2.5, "Plan Rows": 3,
            "Plans": [{"Node Type": "Seq Scan", "Relation Name": "u", "Alias": "u", "Filter": "(email = 's3cr3t')"}],
        },
    }  # fmt: skip
    row = only(read(pg("duration: 5.000 ms  plan:\n" + json.dumps(body, indent=2))))
    assert row.sql == "select * from u where email = $1"
    assert row.example_plan is not None
    assert "Seq Scan u" in row.example_plan
    assert "s3cr3t" not in row.example_plan


def test_parameters_in_detail_never_leave() -> None:
    log = timed("select * from t where a = $1", 5).replace("statement:", "execute <unnamed>:")
    log += pg("parameters: $1 = 's3cr3t'", level="DETAIL")
    answer = read(log, csv_row("x"), prefix=None)
    assert only(answer).calls == 1
    assert "s3cr3t" not in repr(answer)
    row = csv_row("duration: 1.000 ms  execute <unnamed>: select $1", detail="parameters: $1 = 's3cr3t'")
    assert "s3cr3t" not in repr(read(row))


def test_sessions_that_take_turns_keep_their_own_statements() -> None:
    log = (
        pg("statement: select 'a'", pid=1)
        + pg("statement: update t set x = 1", pid=2)
        + pg("duration: 1.000 ms", pid=1)
        + pg("duration: 2.000 ms", pid=2)
    )
    assert {row.sql: row.total_s for row in read(log).rows} == {"select $1": 0.001, "update t set x = $1": 0.002}


def test_the_range_is_half_open_and_in_utc() -> None:
    log = "".join(timed("select 1", 5, at=f"2026-05-01 {hour}:00:00.000 CEST") for hour in ("10", "11", "12"))
    since = datetime(2026, 5, 1, 8, tzinfo=UTC).timestamp()
    answer = read(log, since=since + 1, until=since + 7200)
    assert (only(answer).calls, only(answer).first_seen) == (1, "2026-05-01T09:00:00.000Z")
    assert answer.coverage.complete
    early = read(log, since=since - 60)
    assert only(early).calls == 3
    assert any("begin inside it" in reason for reason in early.coverage.reasons)


def test_a_named_zone_wins_over_what_the_log_says_and_an_unknown_one_is_reported() -> None:
    log = timed("select 1", 5, at="2026-07-01 10:00:00.000 XYZ")
    assert only(read(log)).first_seen == "2026-07-01T10:00:00.000Z"
    assert any("XYZ" in warning for warning in read(log).warnings)
    assert only(read(log, zone=ZoneInfo("Asia/Shanghai"))).first_seen == "2026-07-01T02:00:00.000Z"


def test_a_range_cannot_be_asked_of_a_log_without_times() -> None:
    log = "[7] LOG:  duration: 5.000 ms  statement: select 1\n"
    assert only(read(log, prefix="[%p] ")).first_seen is None
    with pytest.raises(ToolFailed) as caught:
        read(log, prefix="[%p] ", since=0.0)
    assert caught.value.code == "no_times"


def test_files_of_a_rotated_set_are_read_in_the_order_of_their_times() -> None:
    first, second = timed("select 1", 5), timed("select 1", 5, at="2026-05-02 10:00:00.000 UTC")
    members = gzip.compress(first.encode()) + gzip.compress(first.encode())
    answer = read(second, members)
    assert [file.name for file in answer.files] == ["log 1", "log 0"]
    assert (only(answer).calls, answer.window.end) == (3, "2026-05-02T10:00:00.000Z")


def test_rows_below_the_threshold_are_left_out_and_the_order_is_as_asked() -> None:
    log = timed("select 1", 50) * 9 + timed("select 1 from a", 200) + timed("select 1 from b", 90) * 4
    assert list(calls_of(read(log, threshold_s=0.09))) == ["select $1 from b", "select $1 from a"]
    assert next(iter(calls_of(read(log, order_by="mean")))) == "select $1 from a"
    assert next(iter(calls_of(read(log, order_by="calls")))) == "select $1"
    assert next(iter(calls_of(read(log, order_by="p95")))) == "select $1 from a"
    assert read(log, limit=1).truncated.rows == 2
