"""``get_slow_queries``: which statements were slow in a time range, on a live Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.storage.base import StoreError
from bot.tools.slow_queries.answer import SlowQueries
from bot.tools.slow_queries.connection import ReadOnly, open_read_only
from bot.tools.slow_queries.counters import Counters, StatementKey
from bot.tools.slow_queries.failures import quote_name
from bot.tools.slow_queries.history import Choice, SnapshotStore, choose_window, save_reading
from bot.tools.slow_queries.redact_sql import redact_sql
from bot.tools.slow_queries.report import Found, Question, Suspect, WideOrder, build_answer, grant_line
from bot.tools.slow_queries.statements import (
    EVERYTHING,
    RunningStatement,
    Scope,
    Server,
    fetch_counters,
    fetch_extension,
    fetch_running,
    fetch_scope,
    fetch_server,
    fetch_texts,
)
from bot.tools.slow_queries.time_range import parse_time_range
from bot.tools.slow_queries.window import Activity, build_window
from bot.tools.targets import Target, Targets

# Texts are fetched for this many more shapes than are shown, so that Hermod's own can be left out.
_SPARE_TEXTS = 40
_NOTABLE_SHARE = 0.01


async def read_slow_queries(
    targets: Targets,
    store: SnapshotStore,
    clock: Clock,
    *,
    time_range: str = "last_30min",
    threshold_s: float = 1.0,
    target: str | None = None,
    order_by: WideOrder = "total",
    limit: int = 20,
    include_system: bool = False,
    scope: Scope = EVERYTHING,
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
        scope=scope,
    )
    where = targets.resolve(target)
    where.require("postgresql", tool="get_slow_queries")
    async with open_read_only(where) as db:
        found = await _read(db, store, clock, question)
    took_ms = (clock.monotonic() - began) * 1000
    return await asyncio.to_thread(build_answer, where, question, found, took_ms=took_ms)


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


async def _read(db: ReadOnly, store: SnapshotStore, clock: Clock, question: Question) -> Found:
    asked = question.asked
    running: tuple[RunningStatement, ...] = ()
    if question.until_now:
        running = await fetch_running(
            db,
            threshold_s=question.threshold_s,
            every_database=question.include_system,
            limit=question.limit + 1,
            scope=question.scope,
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
    is_asked = await _build_filter(db, server, question)
    in_scope = {key: activity for key, activity in choice.window.activities.items() if is_asked(key)}
    # An application's statistics are not known: of its statements only the running ones are.
    shown = _rank(in_scope, question) if question.scope.app is None else []
    may = _find_suspects(in_scope, counters, choice, is_asked, question) if question.scope.app is None else []
    spare = question.limit + _SPARE_TEXTS
    keys = [key for key, _ in shown[:spare]] + [key for key, _, _ in may[:spare]]
    texts = await fetch_texts(db, extension, server, keys)
    if not question.include_system:
        own = {key for key, text in texts.items() if text.own}
        warnings += _shares_left_out(choice, in_scope, own) if question.scope == EVERYTHING else []
        in_scope = {key: activity for key, activity in in_scope.items() if key not in own}
        shown = [row for row in shown if row[0] not in own]
        may = [row for row in may if row[0] not in own]
    _check_visible(db.target, server, counters, anything=bool(shown or may or running))
    return Found(
        server=server,
        version=db.version,
        counters=counters,
        choice=choice,
        shown=shown,
        may=may,
        texts=texts,
        running=running,
        warnings=warnings,
        is_asked=is_asked,
    )


async def _build_filter(db: ReadOnly, server: Server, question: Question) -> Callable[[StatementKey], bool]:
    """Tell by its key whether an entry is one that was asked for."""
    scope = question.scope
    dbid, userid = (None, None) if scope == EVERYTHING else await fetch_scope(db, scope)
    if dbid is None and not question.include_system:
        dbid = server.dbid
    return lambda key: (dbid is None or key.dbid == dbid) and (userid is None or key.userid == userid)


_NO_STORE = "the storage of earlier readings cannot be used, so all numbers are since the counters began"


def _rank(in_scope: Mapping[StatementKey, Activity], question: Question) -> list[tuple[StatementKey, Activity]]:
    over = [(key, activity) for key, activity in in_scope.items() if activity.mean_s >= question.threshold_s]
    return sorted(over, key=lambda row: _order_value(row[1], question.order_by), reverse=True)


def _order_value(activity: Activity, order_by: WideOrder) -> float:
    values: Mapping[WideOrder, float] = {
        "total": activity.total_s,
        "mean": activity.mean_s,
        "max": activity.max_s,
        "calls": activity.calls,
        "io": activity.read_bytes,
        "temp": activity.temp_bytes,
        "wal": activity.wal_bytes,
    }
    return values[order_by]


def _find_suspects(
    in_scope: Mapping[StatementKey, Activity],
    counters: Counters,
    choice: Choice,
    is_asked: Callable[[StatementKey], bool],
    question: Question,
) -> list[Suspect]:
    """Shapes of which single executions may have been over the threshold although their mean is not."""
    threshold = question.threshold_s
    basis: Literal["window", "lifetime"] = "lifetime" if choice.lifetime else "window"
    suspects: list[Suspect] = [
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
            if key not in known and activity.max_s >= threshold and is_asked(key)
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
            fix=grant_line(server),
        )


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
