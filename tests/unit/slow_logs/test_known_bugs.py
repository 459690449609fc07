"""Bugs of other readers of logs, by the rows of the table of database bugs."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

import pytest

from tests.unit.slow_logs.logs import PREFIX, calls_of, csv_row, my, only, pg, read, timed

PLAN = "plan:\nQuery Text: select pg_sleep(8);\nResult  (cost=0.00..0.01 rows=1 width=4)"


def test_d27_a_csv_statement_inherited_the_duration_before_it() -> None:
    answer = read(
        csv_row("duration: 9000.000 ms  statement: select 1", line=1) + csv_row("statement: select 2 from t", line=2)
    )
    assert calls_of(answer) == {"select $1": 1}


def test_d28_a_csv_duration_was_paired_with_the_wrong_statement() -> None:
    log = (
        csv_row("statement: select 1 from a", session="1.a", line=1)
        + csv_row("statement: select 1 from b", session="1.b", line=1)
        + csv_row("duration: 1.000 ms", session="1.a", line=2)
        + csv_row("duration: 2.000 ms", session="1.b", line=2)
        + csv_row("statement: select 1 from c", session="1.b", line=5)
        + csv_row("duration: 4.000 ms", session="1.b", line=3)
    )
    assert {row.sql: row.total_s for row in read(log).rows} == {"select $1 from a": 0.001, "select $1 from b": 0.002}


@pytest.mark.parametrize("kind", ["stderr", "csvlog"])
def test_d29_auto_explain_and_duration_counted_a_statement_twice(kind: str) -> None:
    messages = [f"duration: 8453.800 ms  {PLAN}", "duration: 8454.200 ms  statement: select pg_sleep(8);"] * 2
    log = "".join(pg(m) if kind == "stderr" else csv_row(m, line=n) for n, m in enumerate(messages, 1))
    row = only(read(log))
    assert (row.calls, row.max_s) == (2, 8.4542)
    assert row.total_s == pytest.approx(16.9084)
    assert row.example_plan == "Result (cost=0.00..0.01 rows=1 width=4)"


def test_d29_a_plan_behind_its_duration_counted_as_another_execution() -> None:
    plan = "duration: 5.000 ms  plan:\nQuery Text: select $1\nResult  (cost=0.00..0.01 rows=1 width=4)"
    timed_ = "duration: 5.100 ms  execute <unnamed>: select $1"
    row = only(read("".join(map(pg, [timed_, plan] * 3))))
    assert (row.calls, row.example_plan) == (3, "Result (cost=0.00..0.01 rows=1 width=4)")
    # Below log_min_duration_statement an execution has only its plan, and counts by that.
    early = pg(plan, at="2026-05-01 09:00:00.000 UTC") + pg(plan) + pg(timed_)
    assert only(read(early)).calls == 2


def test_d30_a_stray_quote_ended_the_reading_of_a_csv_file() -> None:
    good = csv_row("duration: 5.000 ms  statement: select 'a\nb'")
    answer = read(good * 3 + good.replace('"duration', '"dura"tion') + good * 5)
    assert only(answer).calls == 8
    assert answer.damaged.lines >= 1
    assert answer.damaged.examples[0].line == 7


def test_d31_reading_that_begins_inside_an_entry_made_half_of_it_a_statement() -> None:
    log = timed("select 1\n from a\n where b = 2", 5) + timed("select 1 from t", 5)
    answer = read(log[log.index(" from a") - 1 :], prefix=PREFIX)
    assert calls_of(answer) == {"select $1 from t": 1}
    assert "begins inside an entry" in answer.damaged.examples[0].reason


def test_d32_a_log_that_cannot_be_read_gave_an_empty_report_and_success() -> None:
    # The memory bound is held by a process of its own: tests/integration/slow_logs.
    answer = read(timed("select 1", 5) + "garbage\n" * 10, prefix=PREFIX)
    assert (only(answer).calls, answer.damaged.lines, answer.coverage.complete) == (1, 10, False)


def test_d33_times_were_shifted_by_the_zone_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    log = timed("select 1", 5, at="2026-05-01 10:00:00.000 UTC") + timed(
        "select 1", 5, at="2026-05-01 13:00:00.000 +02"
    )
    seen = set()
    try:
        for zone in ("UTC", "America/New_York", "Asia/Tokyo"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            since = datetime(2026, 5, 1, 10, tzinfo=UTC).timestamp()
            row = only(read(log, since=since, until=since + 3601))
            seen.add((row.calls, row.first_seen, row.last_seen))
    finally:
        monkeypatch.undo()
        os.environ.setdefault("TZ", "UTC")
        time.tzset()
    assert seen == {(2, "2026-05-01T10:00:00.000Z", "2026-05-01T11:00:00.000Z")}


def test_d34_times_of_5_7_made_since_find_nothing() -> None:
    since = datetime(2026, 5, 1, 9, 59, tzinfo=UTC).timestamp()
    for time_line in ("2026-05-01T10:00:00.123456Z", "2026-05-01T12:00:00.123456+02:00", "260501 10:00:00"):
        assert only(read(my("select 1", time=time_line, timestamp=None), since=since)).calls == 1
    # SET timestamp is UTC by definition and wins over a line in the zone of the server.
    assert only(read(my("select 1", time="260501 17:00:00"), since=since)).first_seen == "2026-05-01T10:00:00.000Z"


def test_d35_a_two_digit_year_and_a_padded_hour_could_not_be_read() -> None:
    entry = my("select 1", time="260501  9:05:07", timestamp=None)
    answer = read(entry + my("select 1", time=None, timestamp=None))
    row = only(answer)
    assert (row.calls, row.first_seen, row.last_seen) == (2, "2026-05-01T09:05:07.000Z", "2026-05-01T09:05:07.000Z")
    assert any("zone" in warning for warning in answer.warnings)


def test_d40_cancelled_statements_appeared_nowhere() -> None:
    log = (
        timed("select 1 from a", 5)
        + pg("canceling statement due to statement timeout", level="ERROR")
        + pg("select * from big where x = 's3cr3t'", level="STATEMENT")
        + pg("relation does not exist", level="ERROR")
        + pg("select * from nowhere", level="STATEMENT")
    )
    error = csv_row("canceling statement due to user request", severity="ERROR", query="select * from big where x = 1")
    for answer in (read(log), read(error)):
        assert [(row.sql, row.cancelled) for row in answer.cancelled] == [("select * from big where x = $1", 1)]
        assert any("cancelled" in warning for warning in answer.warnings)
