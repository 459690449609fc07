"""``get_slow_queries`` for MySQL and MariaDB: which statements were slow in a time range."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from agent_core.context import Clock
from bot.storage.base import StoreError
from bot.tools.mysql.answer import Found, Question, build_answer
from bot.tools.mysql.connection import MySqlReadOnly, open_mysql
from bot.tools.mysql.digests import (
    OVERFLOW,
    UPTIME,
    VARIABLES,
    DigestText,
    Instruments,
    Reading,
    fetch_instruments,
    fetch_reading,
    fetch_texts,
    fetch_without_digest,
    schema_id,
)
from bot.tools.mysql.executions import (
    Sample,
    fetch_clock,
    fetch_ring_start,
    fetch_running,
    fetch_samples,
    is_whole,
)
from bot.tools.mysql.session import list_own_statements
from bot.tools.slow_logs.mysql_text import fingerprint_mysql
from bot.tools.slow_queries.answer import SlowQueries
from bot.tools.slow_queries.counters import StatementKey
from bot.tools.slow_queries.history import Choice, SnapshotStore, choose_window, iso_utc, save_reading
from bot.tools.slow_queries.report import OrderBy
from bot.tools.slow_queries.time_range import parse_time_range
from bot.tools.slow_queries.window import Activity, build_window
from bot.tools.targets import Target

# Texts are fetched for this many more shapes than are shown, so that Hermod's own can be left out.
_SPARE_TEXTS = 60
_NOTABLE_SHARE = 0.01
_SYSTEM_SCHEMAS = ("mysql", "information_schema", "performance_schema", "sys")
_SYSTEM_WORDS = ("performance_schema", "information_schema", "`sys`", "hermod_")
_NO_STORE = "the storage of earlier readings cannot be used, so all numbers are since the counters began"
_NO_HISTORY = (
    "the server keeps no single executions, so only running ones and means are known; to keep them: UPDATE "
    "performance_schema.setup_consumers SET ENABLED = 'YES' WHERE NAME IN "
    "('events_statements_current', 'events_statements_history_long')"
)

_OWN = frozenset(fingerprint_mysql(statement) for statement in (*list_own_statements(), VARIABLES, UPTIME))


async def read_mysql_slow_queries(
    target: Target,
    store: SnapshotStore,
    clock: Clock,
    *,
    time_range: str = "last_30min",
    threshold_s: float = 1.0,
    order_by: OrderBy = "total",
    limit: int = 20,
    include_system: bool = False,
) -> SlowQueries:
    """Answer from the server's statement digests, their stored earlier readings, and its single executions.

    Each call stores a reading of the counters, so the next one gets the exact window in between. Without
    ``include_system`` only statements of sessions in the target's database are listed (in any database that is not
    the server's own, if the target names none), and none about performance_schema and the like.

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
    target.require("mysql", tool="get_slow_queries")
    async with open_mysql(target) as db:
        found = await _read(db, store, clock, question)
    took_ms = (clock.monotonic() - began) * 1000
    return await asyncio.to_thread(build_answer, target, question, found, took_ms=took_ms)


async def record_mysql_reading(target: Target, store: SnapshotStore, clock: Clock) -> Reading:
    """Store a reading of the counters without asking anything, so that a later question has a beginning.

    Raises:
        ToolFailed: as for ``read_mysql_slow_queries``.
        StoreError: the storage cannot be used.
    """
    target.require("mysql", tool="get_slow_queries")
    async with open_mysql(target) as db:
        instruments = await fetch_instruments(db)
        reading = await fetch_reading(db, instruments, taken_at=clock.now())
    await save_reading(store, target.name, reading.counters)
    return reading


def is_own(text: str) -> bool:
    """True for a digest text that is Hermod's own, or another monitoring program's: it is about the server's tables."""
    lowered = text.lower()
    return any(word in lowered for word in _SYSTEM_WORDS) or fingerprint_mysql(text) in _OWN


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """Which shapes a question is about."""

    database: str
    everything: bool

    def holds(self, key: StatementKey, schema: str | None) -> bool:
        if self.everything or key == OVERFLOW:  # nobody knows whose the statements of the overflow are
            return True
        return key.dbid == schema_id(self.database) if self.database else schema not in _SYSTEM_SCHEMAS

    def holds_schema(self, schema: str) -> bool:
        return self.everything or (schema == self.database if self.database else schema not in _SYSTEM_SCHEMAS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """Single executions: all those of the window, and those over the threshold in the asked range."""

    window: Mapping[StatementKey, Sample]
    slow: Mapping[StatementKey, Sample]
    warnings: tuple[str, ...]


async def _read(db: MySqlReadOnly, store: SnapshotStore, clock: Clock, question: Question) -> Found:
    limit = question.limit
    scope = _Scope(database=db.target.database, everything=question.include_system)
    instruments = await fetch_instruments(db)
    running = (
        await fetch_running(db, threshold_s=question.threshold_s, limit=4 * limit + 1) if question.until_now else ()
    )
    reading = await fetch_reading(db, instruments, taken_at=clock.now())
    warnings: list[str] = []
    try:
        choice = await choose_window(store, db.target.name, reading.counters, question.asked)
        await save_reading(store, db.target.name, reading.counters)
    except StoreError:
        window = build_window(None, reading.counters)
        choice = Choice(window=window, lifetime=True, snapshots=0, reasons=(_NO_STORE,))
        warnings.append(_NO_STORE)
    kept = await _read_kept(db, instruments, reading, choice, question)
    in_scope = {
        key: activity
        for key, activity in choice.window.activities.items()
        if scope.holds(key, reading.names.get(key, (None, ""))[0])
    }
    texts = await _read_texts(db, reading, in_scope, kept, question)
    own = set() if question.include_system else {key for key, text in texts.items() if is_own(text.sql)}
    ours = {key: activity for key, activity in in_scope.items() if key not in own}
    shown = [(key, activity) for key, activity in ours.items() if activity.mean_s >= question.threshold_s]
    listed = {key for key, _ in shown}
    single = {
        key: sample
        for key, sample in kept.slow.items()
        if key not in listed and key not in own and scope.holds(key, reading.names.get(key, (None, ""))[0])
    }
    may = _find_suspects(ours, kept, question, listed | set(single))
    warnings += [*kept.warnings, *_overflow_warning(choice, instruments), *_shares(choice, in_scope, own)]
    warnings += [*_restart_warning(reading, choice), *await _without_digest_warning(db)]
    return Found(
        flavor=db.flavor,
        version=db.version,
        reading=reading,
        choice=choice,
        kept=kept.window,
        single=single,
        shown=shown,
        may=may,
        texts=texts,
        running=[statement for statement in running if scope.holds_schema(statement.db)],
        total_s=sum(activity.total_s for activity in ours.values()),
        warnings=warnings,
    )


async def _read_kept(
    db: MySqlReadOnly, instruments: Instruments, reading: Reading, choice: Choice, question: Question
) -> _Kept:
    """Read single executions of the window and of the asked range; the server's clock may differ from ours."""
    clock = await fetch_clock(db) if instruments.history else None
    if clock is None:
        return _Kept(window={}, slow={}, warnings=(_NO_HISTORY,))
    counters = reading.counters
    ahead = counters.server_now - counters.taken_at
    start = choice.window.start or counters.server_started_at - ahead
    window = await fetch_samples(db, clock, start=start + ahead, end=choice.window.end + ahead)
    slow = await fetch_samples(
        db, clock, start=question.asked.start + ahead, end=question.asked.end + ahead, least_s=question.threshold_s
    )
    oldest = await fetch_ring_start(db, clock, size=instruments.history_size)
    return _Kept(window=window, slow=slow, warnings=_ring_warning(oldest, ahead, question))


def _ring_warning(oldest: datetime | None, ahead: timedelta, question: Question) -> tuple[str, ...]:
    since = None if oldest is None else oldest - ahead
    if since is None or since <= question.asked.start + timedelta(seconds=2):
        return ()
    return (
        f"single executions are known since {iso_utc(since)}; the server keeps only the last ones, as many as "
        "performance_schema_events_statements_history_long_size says",
    )


async def _read_texts(
    db: MySqlReadOnly,
    reading: Reading,
    in_scope: Mapping[StatementKey, Activity],
    kept: _Kept,
    question: Question,
) -> dict[StatementKey, DigestText]:
    """Read the texts of the shapes that may be shown: the longest by what the answer is ordered by."""
    over = [key for key, a in in_scope.items() if a.mean_s >= question.threshold_s]
    may = [key for key, a in in_scope.items() if a.mean_s < question.threshold_s <= a.max_s]
    spare = question.limit + _SPARE_TEXTS
    over.sort(key=lambda key: _weight(in_scope[key], question.order_by), reverse=True)
    may.sort(key=lambda key: in_scope[key].max_s, reverse=True)
    slow = sorted(kept.slow, key=lambda key: kept.slow[key].total_s, reverse=True)
    return await fetch_texts(db, reading, [*over[:spare], *may[:spare], *slow[:spare]])


def _weight(activity: Activity, order_by: OrderBy) -> float:
    weights: Mapping[OrderBy, float] = {
        "total": activity.total_s,
        "mean": activity.mean_s,
        "max": activity.max_s,
        "calls": activity.calls,
    }
    return weights[order_by]


def _find_suspects(
    ours: Mapping[StatementKey, Activity], kept: _Kept, question: Question, listed: Collection[StatementKey]
) -> list[tuple[StatementKey, Activity]]:
    """Shapes of which executions may have been over the threshold, though neither mean nor kept executions say so."""
    suspects = [
        (key, activity)
        for key, activity in ours.items()
        if key not in listed
        and activity.mean_s < question.threshold_s <= activity.max_s
        and not is_whole(kept.window.get(key), activity.calls, activity.total_s)
    ]
    return sorted(suspects, key=lambda row: row[1].max_s, reverse=True)


def _overflow_warning(choice: Choice, instruments: Instruments) -> list[str]:
    lost = choice.window.activities.get(OVERFLOW)
    if lost is None:
        return []
    return [
        f"the server's table of digests is full ({instruments.digests_size} shapes), so {lost.calls:,} executions "
        f"({lost.total_s:.3g} s) are counted together as 'overflow', of whatever shape they were; raise "
        "performance_schema_digests_size and restart the server, or empty the table with TRUNCATE TABLE "
        "performance_schema.events_statements_summary_by_digest"
    ]


def _shares(choice: Choice, in_scope: Mapping[StatementKey, Activity], own: set[StatementKey]) -> list[str]:
    """Say what part of the server's time the answer leaves out, where it is worth a word."""
    everything = sum(activity.total_s for activity in choice.window.activities.values())
    if everything <= 0:
        return []
    here = sum(activity.total_s for activity in in_scope.values())
    ours = sum(in_scope[key].total_s for key in own if key in in_scope)
    parts = (
        ("by sessions in other databases, or in none", (everything - here) / everything),
        ("by Hermod's own statements and others about the server's tables", ours / everything),
    )
    return [
        f"{share:.0%} of the server's statement time was spent {what}; include_system=true lists them"
        for what, share in parts
        if share >= _NOTABLE_SHARE
    ]


def _restart_warning(reading: Reading, choice: Choice) -> list[str]:
    started = reading.counters.to_our_clock(reading.counters.server_started_at)
    if choice.lifetime or not choice.window.reset or choice.window.start is None:
        return []
    if abs((started - choice.window.start).total_seconds()) > 60:
        return []
    return [f"the server was restarted at about {iso_utc(started)}, and its counters began at zero then"]


async def _without_digest_warning(db: MySqlReadOnly) -> list[str]:
    calls, total_s = await fetch_without_digest(db)
    if not calls:
        return []
    return [
        f"MariaDB keeps no digest of {calls:,} executions of prepared statements ({total_s:.3g} s since it started); "
        "they are missing here, and in the slow log they are not"
    ]
