"""``get_slow_queries``: which statements were slow in a time range, on a live Postgres."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.storage.base import StoreError
from bot.tools.slow_queries.answer import AnswerWindow, Coverage, MayHaveExceeded, SlowQueries, SlowQuery, Truncated
from bot.tools.slow_queries.connection import ReadOnly, open_read_only
from bot.tools.slow_queries.counters import Counters, StatementKey
from bot.tools.slow_queries.failures import quote_name
from bot.tools.slow_queries.history import Choice, SnapshotStore, choose_window, iso_utc, save_reading
from bot.tools.slow_queries.redact_sql import fingerprint_sql, redact_sql
from bot.tools.slow_queries.statements import (
    RunningStatement,
    Server,
    StatementText,
    fetch_counters,
    fetch_extension,
    fetch_running,
    fetch_server,
    fetch_texts,
)
from bot.tools.slow_queries.time_range import TimeRange, parse_time_range
from bot.tools.slow_queries.window import Activity, build_window
from bot.tools.targets import Target, Targets

OrderBy = Literal["total", "mean", "max", "calls"]

# Texts are fetched for this many more shapes than are shown, so that Hermod's own can be left out.
_SPARE_TEXTS = 40
_NOTABLE_SHARE = 0.01
_TEXT_GONE = StatementText(sql="<text no longer held by the server>", db="", user="", own=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The arguments of one call. ``until_now``: the asked range ends at this moment."""

    asked: TimeRange
    until_now: bool
    threshold_s: float
    order_by: OrderBy
    limit: int
    include_system: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What was read from the database for one question."""

    server: Server
    version: str
    counters: Counters
    choice: Choice
    shown: list[tuple[StatementKey, Activity]]
    may: list[tuple[StatementKey, Activity, Literal["window", "lifetime"]]]
    texts: Mapping[StatementKey, StatementText]
    running: tuple[RunningStatement, ...]
    warnings: list[str]


async def read_slow_queries(
    targets: Targets,
    store: SnapshotStore,
    clock: Clock,
    *,
    time_range: str = "last_30min",
    threshold_s: float = 1.0,
    target: str | None = None,
    order_by: OrderBy = "total",
    limit: int = 20,
    include_system: bool = False,
) -> SlowQueries:
    """Answer from pg_stat_statements, its stored earlier readings, and what runs now.

    Each call stores a reading of the counters, so the next one gets the exact window in between.

    Raises:
        ToolFailed: with one of the codes in ``docs/tools.md``; nothing in it is secret.
    """
    began = clock.monotonic()
    now = clock.now()
    asked = parse_time_range(time_range, now=now)
    question = Question(
        asked=asked,
        until_now=asked.end >= now,
        threshold_s=threshold_s,
        order_by=order_by,
        limit=limit,
        include_system=include_system,
    )
    where = targets.resolve(target)
    where.require("postgresql", tool="get_slow_queries")
    async with open_read_only(where) as db:
        found = await _read(db, store, clock, question)
    return _build_answer(where, question, found, took_ms=(clock.monotonic() - began) * 1000)


async def record_reading(target: Target, store: SnapshotStore, clock: Clock) -> None:
    """Store a reading of the counters without asking anything, so that a later question has a beginning.

    Raises:
        ToolFailed: as for ``read_slow_queries``.
        StoreError: the storage cannot be used.
    """
    target.require("postgresql", tool="get_slow_queries")
    async with open_read_only(target) as db:
        extension = await fetch_extension(db)
        server = await fetch_server(db)
        counters = await fetch_counters(db, extension, server, taken_at=clock.now())
    await save_reading(store, target.name, counters)


async def _read(db: ReadOnly, store: SnapshotStore, clock: Clock, question: Question) -> _Found:
    asked = question.asked
    running: tuple[RunningStatement, ...] = ()
    if question.until_now:
        running = await fetch_running(
            db,
            threshold_s=question.threshold_s,
            every_database=question.include_system,
            limit=question.limit + 1,
        )
    try:
        extension = await fetch_extension(db)
    except ToolFailed as failure:
        raise _with_running(failure, running) from None
    server = await fetch_server(db)
    counters = await fetch_counters(db, extension, server, taken_at=clock.now())
    warnings: list[str] = []
    try:
        choice = await choose_window(store, db.target.name, counters, asked)
        await save_reading(store, db.target.name, counters)
    except StoreError:
        choice = Choice(window=build_window(None, counters), lifetime=True, snapshots=0, reasons=(_NO_STORE,))
        warnings.append(_NO_STORE)
    in_scope = {
        key: activity
        for key, activity in choice.window.activities.items()
        if question.include_system or key.dbid == server.dbid
    }
    shown = _rank(in_scope, question)
    may = _find_suspects(in_scope, counters, choice, server, question)
    spare = question.limit + _SPARE_TEXTS
    keys = [key for key, _ in shown[:spare]] + [key for key, _, _ in may[:spare]]
    texts = await fetch_texts(db, extension, server, keys)
    if not question.include_system:
        own = {key for key, text in texts.items() if text.own}
        warnings += _shares_left_out(choice, in_scope, own)
        in_scope = {key: activity for key, activity in in_scope.items() if key not in own}
        shown = [row for row in shown if row[0] not in own]
        may = [row for row in may if row[0] not in own]
    _check_visible(db.target, server, counters, anything=bool(shown or may))
    return _Found(
        server=server,
        version=db.version,
        counters=counters,
        choice=choice,
        shown=shown,
        may=may,
        texts=texts,
        running=running,
        warnings=warnings,
    )


_NO_STORE = "the storage of earlier readings cannot be used, so all numbers are since the counters began"


def _rank(in_scope: Mapping[StatementKey, Activity], question: Question) -> list[tuple[StatementKey, Activity]]:
    over = [(key, activity) for key, activity in in_scope.items() if activity.mean_s >= question.threshold_s]
    return sorted(over, key=lambda row: _order_value(row[1], question.order_by), reverse=True)


def _order_value(activity: Activity, order_by: OrderBy) -> float:
    match order_by:
        case "total":
            return activity.total_s
        case "mean":
            return activity.mean_s
        case "max":
            return activity.max_s
        case "calls":
            return activity.calls


def _find_suspects(
    in_scope: Mapping[StatementKey, Activity], counters: Counters, choice: Choice, server: Server, question: Question
) -> list[tuple[StatementKey, Activity, Literal["window", "lifetime"]]]:
    """Shapes of which single executions may have been over the threshold although their mean is not."""
    threshold = question.threshold_s
    basis: Literal["window", "lifetime"] = "lifetime" if choice.lifetime else "window"
    suspects: list[tuple[StatementKey, Activity, Literal["window", "lifetime"]]] = [
        (key, activity, basis)
        for key, activity in in_scope.items()
        if activity.mean_s < threshold <= activity.max_s and activity.max_s > 0
    ]
    if choice.reasons and not choice.lifetime:
        # The window is not the asked range: what was slow outside it may still belong to the answer.
        known = set(in_scope)
        suspects += [
            (key, activity, "lifetime")
            for key, activity in build_window(None, counters).activities.items()
            if key not in known and activity.max_s >= threshold and (question.include_system or key.dbid == server.dbid)
        ]
    return sorted(suspects, key=lambda row: row[1].max_s, reverse=True)


def _shares_left_out(choice: Choice, in_scope: Mapping[StatementKey, Activity], own: set[StatementKey]) -> list[str]:
    """Say what part of the server's time the answer leaves out, where it is worth a word."""
    everything = sum(a.total_s for key, a in choice.window.activities.items() if key.toplevel)
    if everything <= 0:
        return []
    ours = sum(a.total_s for key, a in in_scope.items() if key.toplevel and key in own)
    here = sum(a.total_s for key, a in in_scope.items() if key.toplevel)
    parts = (
        ("in other databases", (everything - here) / everything),
        ("by Hermod's own statements", ours / everything),
    )
    return [
        f"{share:.0%} of the server's statement time was spent {what}; include_system=true lists them"
        for what, share in parts
        if share >= _NOTABLE_SHARE
    ]


def _check_visible(target: Target, server: Server, counters: Counters, *, anything: bool) -> None:
    """An empty answer of a role that may only look at itself would be a false all-clear."""
    others = any(key.userid != server.userid for key in counters.entries)
    if counters.hidden and not anything and not others:
        raise ToolFailed(
            f"target {target.name!r}: role {quote_name(server.role)} may not see the statements of other roles "
            f"({counters.hidden} are hidden)",
            code="insufficient_privilege",
            fix=_grant(server),
        )


def _grant(server: Server) -> str:
    return f"GRANT pg_monitor TO {quote_name(server.role)}; (or the narrower pg_read_all_stats)"


def _with_running(failure: ToolFailed, running: tuple[RunningStatement, ...]) -> ToolFailed:
    """Without the extension, what runs at this moment is still known."""
    if not running:
        return failure
    listed = "; ".join(f"{r.age_s:.1f} s so far: {redact_sql(r.sql)[:200]}" for r in running[:5])
    return ToolFailed(
        f"{failure.message}. Running at this moment over the threshold: {listed}",
        code=failure.code,
        fix=failure.fix,
        retryable=failure.retryable,
    )


# -- the envelope ----------------------------------------------------------------------------------


def _build_answer(target: Target, question: Question, found: _Found, *, took_ms: float) -> SlowQueries:
    asked, choice = question.asked, found.choice
    total_s = sum(
        activity.total_s
        for key, activity in choice.window.activities.items()
        if key.toplevel
        and (question.include_system or key.dbid == found.server.dbid)
        and not (key in found.texts and found.texts[key].own and not question.include_system)
    )
    finished = [_finished_row(key, activity, found, total_s) for key, activity in found.shown]
    rows = sorted(
        [*finished, *(_running_row(statement) for statement in found.running)],
        key=lambda row: _row_value(row, question.order_by),
        reverse=True,
    )
    reasons = list(choice.reasons)
    if found.counters.hidden:
        reasons.append(
            f"{found.counters.hidden} statements of other roles are hidden from role "
            f"{quote_name(found.server.role)}; {_grant(found.server)}"
        )
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
        rows=tuple(rows[: question.limit]),
        may_have_exceeded=tuple(_suspect_row(*row, found) for row in found.may[: question.limit]),
        truncated=Truncated(
            rows=max(0, len(rows) - question.limit), may_have_exceeded=max(0, len(found.may) - question.limit)
        ),
        warnings=tuple(found.warnings + _restart_warning(found)),
        took_ms=round(took_ms, 1),
    )


def _basis(choice: Choice) -> str:
    return "lifetime" if choice.lifetime else "window between two readings"


def _restart_warning(found: _Found) -> list[str]:
    started = found.counters.to_our_clock(found.counters.server_started_at)
    start = found.choice.window.start
    if start is None or started <= start or found.choice.lifetime or found.choice.window.reset:
        return []
    return [f"the server was restarted at {iso_utc(started)}, inside the window; its counters were kept"]


def _finished_row(key: StatementKey, activity: Activity, found: _Found, total_s: float) -> SlowQuery:
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


def _row_value(row: SlowQuery, order_by: OrderBy) -> float:
    values: Mapping[OrderBy, float] = {
        "total": row.total_s,
        "mean": row.mean_s,
        "max": row.max_s,
        "calls": row.calls,
    }
    return values[order_by]


def _suspect_row(
    key: StatementKey, activity: Activity, basis: Literal["window", "lifetime"], found: _Found
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
