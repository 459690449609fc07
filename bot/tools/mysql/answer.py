"""Lay out what was found as the answer of ``get_slow_queries``, bounded in rows and in size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bot.tools.envelope import AnswerWindow, Coverage
from bot.tools.mysql.connection import Flavor
from bot.tools.mysql.digests import OVERFLOW, DigestText, Reading
from bot.tools.mysql.executions import RunningStatement, Sample, is_whole
from bot.tools.slow_logs.mysql_text import fingerprint_mysql, redact_mysql
from bot.tools.slow_queries.answer import MayHaveExceeded, SlowQueries, SlowQuery, Truncated
from bot.tools.slow_queries.counters import StatementKey
from bot.tools.slow_queries.history import Choice, iso_utc
from bot.tools.slow_queries.report import OrderBy, fit_rows
from bot.tools.slow_queries.time_range import TimeRange
from bot.tools.slow_queries.window import Activity
from bot.tools.targets import Target

# Characters of JSON, so that a model reads the whole answer: a cut in its middle would break it.
_ROWS_CHARS = 14_000
_SUSPECTS_CHARS = 4_000

_GONE = "<text no longer held by the server>"
_OVERFLOW_TEXT = "<statements that found no room in the server's table of digests>"


@dataclass(frozen=True, slots=True, kw_only=True)
class MySqlSlowQuery(SlowQuery):
    """A row with what MySQL and MariaDB count beside it, all since the counters began, not in the window alone.

    Args:
        rows_examined_per_call: rows that were read, whether they were sent or not.
        no_index_share: of the executions, those that scanned a table without an index, 0..1.
        tmp_disk_share: of the executions, those that wrote a temporary table to disk.
        error_share: of the executions, those that failed or were ended.
        p95_s, p99_s: from the server's histogram (MySQL 8); null where there is none.
    """

    rows_examined_per_call: float | None = None
    no_index_share: float | None = None
    tmp_disk_share: float | None = None
    error_share: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked, in one call. ``until_now``: the asked range ends at this moment."""

    asked: TimeRange
    until_now: bool
    threshold_s: float
    order_by: OrderBy
    limit: int
    include_system: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was read from the server for one question.

    Args:
        kept: the executions in the window that the server still holds one by one.
        single: of those in the asked range, the ones over the threshold.
        shown, may: shapes whose mean is over the threshold, and those of which executions may have been.
        total_s: the time of all statements in scope.
    """

    flavor: Flavor
    version: str
    reading: Reading
    choice: Choice
    kept: Mapping[StatementKey, Sample]
    single: Mapping[StatementKey, Sample]
    shown: Sequence[tuple[StatementKey, Activity]]
    may: Sequence[tuple[StatementKey, Activity]]
    texts: Mapping[StatementKey, DigestText]
    running: Sequence[RunningStatement]
    total_s: float
    warnings: Sequence[str]


def build_answer(target: Target, question: Question, found: Found, *, took_ms: float) -> SlowQueries:
    """Lay out the envelope."""
    choice, limit = found.choice, question.limit
    rows: list[SlowQuery] = [_mean_row(key, activity, found) for key, activity in found.shown]
    rows += [_row(key, sample, found, kind="single") for key, sample in found.single.items()]
    rows += [_running_row(statement) for statement in found.running]
    rows.sort(key=lambda row: _order_value(row, question.order_by), reverse=True)
    shown = fit_rows(rows[:limit], _ROWS_CHARS)
    suspects = fit_rows([_suspect_row(key, activity, found) for key, activity in found.may[:limit]], _SUSPECTS_CHARS)
    return SlowQueries(
        target=target.name,
        engine=found.flavor,
        engine_version=found.version,
        source=_source(found),
        window=AnswerWindow(
            asked_start=iso_utc(question.asked.start),
            asked_end=iso_utc(question.asked.end),
            start=None if choice.window.start is None else iso_utc(choice.window.start),
            end=iso_utc(choice.window.end),
        ),
        coverage=Coverage(complete=not choice.reasons, reasons=choice.reasons, snapshots=choice.snapshots),
        threshold_s=question.threshold_s,
        rows=shown,
        may_have_exceeded=suspects,
        truncated=Truncated(rows=len(rows) - len(shown), may_have_exceeded=len(found.may) - len(suspects)),
        warnings=(*found.warnings, *_deviation_warning(found)),
        took_ms=round(took_ms, 1),
    )


def _source(found: Found) -> str:
    basis = "lifetime" if found.choice.lifetime else "window between two readings"
    kept = ", and events_statements_history_long for single executions" if found.kept or found.single else ""
    return f"performance_schema.events_statements_summary_by_digest ({basis}){kept}"


def _deviation_warning(found: Found) -> list[str]:
    unknown = [key for key, activity in found.shown if not _whole(key, activity, found) and activity.calls > 1]
    if not unknown:
        return []
    return [
        "the server counts no variance: stddev_s is 0 where it is not known, "
        "which is where not all executions of the window are in events_statements_history_long"
    ]


def _whole(key: StatementKey, activity: Activity, found: Found) -> bool:
    return is_whole(found.kept.get(key), activity.calls, activity.total_s)


def _mean_row(key: StatementKey, activity: Activity, found: Found) -> SlowQuery:
    kept = found.kept.get(key)
    whole = kept is not None and _whole(key, activity, found)
    numbers = Sample(
        calls=activity.calls,
        total_s=activity.total_s,
        mean_s=activity.mean_s,
        stddev_s=kept.stddev_s if kept is not None and whole else 0.0,
        max_s=kept.max_s if kept is not None and whole else activity.max_s,
    )
    return _row(key, numbers, found, kind="mean", max_exact=activity.max_exact or whole, rows=activity.rows)


def _row(
    key: StatementKey,
    numbers: Sample,
    found: Found,
    *,
    kind: Literal["mean", "single"],
    max_exact: bool = True,
    rows: int | None = None,
) -> SlowQuery:
    """A row; of kind ``single`` it is about the executions over the threshold, the longest of which is its duration."""
    text = found.texts.get(key)
    return MySqlSlowQuery(
        sql=_sql(key, text),
        duration=round(numbers.max_s if kind == "single" else numbers.mean_s, 6),
        duration_kind=kind,
        fingerprint=_fingerprint(key, text),
        calls=numbers.calls,
        total_s=round(numbers.total_s, 6),
        mean_s=round(numbers.mean_s, 6),
        stddev_s=round(numbers.stddev_s, 6),
        max_s=round(numbers.max_s, 6),
        max_exact=max_exact,
        share_of_total=_share(key, found) if kind == "mean" else None,
        rows=rows,
        temp_bytes=None,
        db=found.reading.names[key][0] or "" if key in found.reading.names else "",
        user="",
        queryid=str(key.queryid),
        rows_examined_per_call=None if text is None else round(text.rows_examined / text.calls, 1),
        no_index_share=None if text is None else round(text.no_index_share, 4),
        tmp_disk_share=None if text is None else round(text.tmp_disk_share, 4),
        error_share=None if text is None else round(text.error_share, 4),
        p95_s=None if text is None or text.p95_s is None else round(text.p95_s, 6),
        p99_s=None if text is None or text.p99_s is None else round(text.p99_s, 6),
    )


def _share(key: StatementKey, found: Found) -> float | None:
    return round(found.choice.window.activities[key].total_s / found.total_s, 4) if found.total_s > 0 else None


def _running_row(statement: RunningStatement) -> SlowQuery:
    age_s = round(statement.age_s, 3)
    return MySqlSlowQuery(
        sql=redact_mysql(statement.sql),
        duration=age_s,
        duration_kind="single",
        fingerprint=fingerprint_mysql(statement.sql),
        calls=1,
        total_s=age_s,
        mean_s=age_s,
        stddev_s=0.0,
        max_s=age_s,
        max_exact=False,
        share_of_total=None,
        rows=None,
        temp_bytes=None,
        db=statement.db,
        user=statement.user,
        state="running",
        pid=str(statement.connection_id),
    )


def _suspect_row(key: StatementKey, activity: Activity, found: Found) -> MayHaveExceeded:
    text = found.texts.get(key)
    return MayHaveExceeded(
        sql=_sql(key, text),
        fingerprint=_fingerprint(key, text),
        basis="lifetime" if found.choice.lifetime else "window",
        calls=activity.calls,
        mean_s=round(activity.mean_s, 6),
        max_s=round(activity.max_s, 6),
        max_exact=activity.max_exact,
    )


def _sql(key: StatementKey, text: DigestText | None) -> str:
    if key == OVERFLOW:
        return _OVERFLOW_TEXT
    return _GONE if text is None else redact_mysql(text.sql)


def _fingerprint(key: StatementKey, text: DigestText | None) -> str:
    if key == OVERFLOW:
        return "overflow"
    return f"{key.queryid & (2**64 - 1):016x}" if text is None else fingerprint_mysql(text.sql)


def _order_value(row: SlowQuery, order_by: OrderBy) -> float:
    values: Mapping[OrderBy, float] = {
        "total": row.total_s,
        "mean": row.mean_s,
        "max": row.max_s,
        "calls": row.calls,
    }
    return values[order_by]
