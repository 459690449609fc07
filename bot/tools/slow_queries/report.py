"""From what was read to what is answered: ranking is done, this lays it out and says what is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic_core import to_json

from bot.tools.envelope import AnswerWindow, Coverage
from bot.tools.slow_queries.answer import BlockUse, MayHaveExceeded, SlowQueries, SlowQuery, Truncated
from bot.tools.slow_queries.counters import Counters, StatementKey
from bot.tools.slow_queries.failures import quote_name
from bot.tools.slow_queries.history import Choice, iso_utc
from bot.tools.slow_queries.redact_sql import fingerprint_sql, redact_sql
from bot.tools.slow_queries.statements import RunningStatement, Scope, Server, StatementText
from bot.tools.slow_queries.time_range import TimeRange
from bot.tools.slow_queries.window import Activity
from bot.tools.targets import Target

OrderBy = Literal["total", "mean", "max", "calls"]
WideOrder = Literal["total", "mean", "max", "calls", "io", "temp", "wal"]
Suspect = tuple[StatementKey, Activity, Literal["window", "lifetime"]]

# Characters of JSON, so that a model reads the whole answer: a cut in its middle would break it.
_ROWS_CHARS = 14_000
_SUSPECTS_CHARS = 4_000

_TEXT_GONE = StatementText(sql="<text no longer held by the server>", db="", user="", own=False)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked, in one call. ``until_now``: the asked range ends at this moment."""

    asked: TimeRange
    until_now: bool
    threshold_s: float
    order_by: WideOrder
    limit: int
    include_system: bool
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was read from the database for one question; ``is_asked`` tells whose entries it is about."""

    server: Server
    version: str
    counters: Counters
    choice: Choice
    shown: list[tuple[StatementKey, Activity]]
    may: list[Suspect]
    texts: Mapping[StatementKey, StatementText]
    running: tuple[RunningStatement, ...]
    warnings: list[str]
    is_asked: Callable[[StatementKey], bool]


def build_answer(target: Target, question: Question, found: Found, *, took_ms: float) -> SlowQueries:
    """Lay out the envelope, bounded in rows and in size."""
    asked, choice = question.asked, found.choice
    total_s = sum(
        activity.total_s
        for key, activity in choice.window.activities.items()
        if key.toplevel
        and found.is_asked(key)
        and not (key in found.texts and found.texts[key].own and not question.include_system)
    )
    finished = [_finished_row(key, activity, found, total_s) for key, activity in found.shown[: question.limit]]
    rows = sorted(
        [*finished, *(_running_row(statement) for statement in found.running)],
        key=lambda row: _row_value(row, question.order_by),
        reverse=True,
    )
    reasons = list(choice.reasons)
    if question.scope.app is not None:
        reasons.append("the statistics keep no application names, so only running executions are of that application")
    if found.counters.hidden:
        reasons.append(
            f"{found.counters.hidden} statements of other roles are hidden from role "
            f"{quote_name(found.server.role)}; {grant_line(found.server)}"
        )
    shown = fit_rows(rows[: question.limit], _ROWS_CHARS)
    suspects = fit_rows([_suspect_row(*row, found) for row in found.may[: question.limit]], _SUSPECTS_CHARS)
    return SlowQueries(
        target=target.name,
        engine="postgresql",
        engine_version=found.version,
        source=f"pg_stat_statements ({_basis(choice)})",
        window=AnswerWindow(
            asked_start=iso_utc(asked.start),
            asked_end=iso_utc(asked.end),
            start=None if choice.window.start is None else iso_utc(choice.window.start),
            end=iso_utc(choice.window.end),
        ),
        coverage=Coverage(complete=not reasons, reasons=tuple(reasons), snapshots=choice.snapshots),
        threshold_s=question.threshold_s,
        rows=shown,
        may_have_exceeded=suspects,
        truncated=Truncated(
            rows=len(found.shown) + len(found.running) - len(shown), may_have_exceeded=len(found.may) - len(suspects)
        ),
        warnings=tuple(found.warnings + _restart_warning(found)),
        took_ms=round(took_ms, 1),
    )


def _basis(choice: Choice) -> str:
    return "lifetime" if choice.lifetime else "window between two readings"


def fit_rows(rows: Sequence[_T], most: int) -> tuple[_T, ...]:
    """The first rows, as many as fit into ``most`` characters of JSON, and at least one."""
    used = 0
    for count, row in enumerate(rows):
        used += len(to_json(row))
        if used > most and count:
            return tuple(rows[:count])
    return tuple(rows)


def _restart_warning(found: Found) -> list[str]:
    started = found.counters.to_our_clock(found.counters.server_started_at)
    start = found.choice.window.start
    if start is None or started <= start or found.choice.lifetime or found.choice.window.reset:
        return []
    return [f"the server was restarted at {iso_utc(started)}, inside the window; its counters were kept"]


def _finished_row(key: StatementKey, activity: Activity, found: Found, total_s: float) -> SlowQuery:
    text = found.texts.get(key, _TEXT_GONE)
    return SlowQuery(
        sql=redact_sql(text.sql) if text is not _TEXT_GONE else text.sql,
        duration=round(activity.mean_s, 6),
        duration_kind="mean",
        fingerprint=fingerprint_sql(text.sql) if text is not _TEXT_GONE else f"{key.queryid & (2**64 - 1):016x}",
        calls=activity.calls,
        total_s=round(activity.total_s, 6),
        mean_s=round(activity.mean_s, 6),
        stddev_s=round(activity.stddev_s, 6),
        max_s=round(activity.max_s, 6),
        max_exact=activity.max_exact,
        share_of_total=round(activity.total_s / total_s, 4) if total_s > 0 else None,
        rows=activity.rows,
        temp_bytes=activity.temp_bytes,
        db=text.db,
        user=text.user,
        toplevel=key.toplevel,
        queryid=str(key.queryid),
        io=BlockUse(hit=activity.hit_bytes, read=activity.read_bytes, read_s=round(activity.read_s, 6)),
        wal_bytes=activity.wal_bytes,
    )


def _running_row(statement: RunningStatement) -> SlowQuery:
    age_s = round(statement.age_s, 3)
    return SlowQuery(
        sql=redact_sql(statement.sql),
        duration=age_s,
        duration_kind="single",
        fingerprint=fingerprint_sql(statement.sql),
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
        pid=str(statement.pid),
    )


def _row_value(row: SlowQuery, order_by: WideOrder) -> float:
    values: Mapping[WideOrder, float] = {
        "total": row.total_s,
        "mean": row.mean_s,
        "max": row.max_s,
        "calls": row.calls,
        "io": 0 if row.io is None else row.io.read,
        "temp": row.temp_bytes or 0,
        "wal": row.wal_bytes or 0,
    }
    return values[order_by]


def _suspect_row(
    key: StatementKey, activity: Activity, basis: Literal["window", "lifetime"], found: Found
) -> MayHaveExceeded:
    text = found.texts.get(key, _TEXT_GONE)
    return MayHaveExceeded(
        sql=redact_sql(text.sql) if text is not _TEXT_GONE else text.sql,
        fingerprint=fingerprint_sql(text.sql),
        basis=basis,
        calls=activity.calls,
        mean_s=round(activity.mean_s, 6),
        max_s=round(activity.max_s, 6),
        max_exact=activity.max_exact,
    )


def grant_line(server: Server) -> str:
    """The line that lets a role see the statements of others."""
    return f"GRANT pg_monitor TO {quote_name(server.role)}; (or the narrower pg_read_all_stats)"
