"""``compare_windows``: which statement shapes cost more, or less, in one time range than in another."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pydantic_core import to_json

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.storage.base import StoreError
from bot.storage.snapshots import HistoryStore, Statement
from bot.tools.envelope import AnswerWindow, Coverage, LeftOut
from bot.tools.query_history.answer import ChangedShape, WindowComparison, WindowSide
from bot.tools.query_history.changes import Changes, Shift, find_changes
from bot.tools.query_history.fresh import Newest, cut_sql, explain_store, is_in, take_newest, tell_restart
from bot.tools.slow_queries.counters import StatementKey, parse_key, read_snapshot
from bot.tools.slow_queries.history import Choice, choose_window, iso_utc
from bot.tools.slow_queries.time_range import TimeRange, parse_time_range
from bot.tools.slow_queries.window import Activity, merge_activities
from bot.tools.targets import Target, Targets

MOST_ROWS = 20
"""Of one answer: those that cost most, and a few of those that saved most."""

_MOST_CHARS = 16_000
_SAVED_ROWS = 5

_SAME_S = 1.0  # two windows may share this much at their common border
_NOTABLE_FACTOR = 1.25

_NO_DEVIATIONS = "the server counts no variance, so p_value takes durations to be spread as widely as their mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """A window, with its activity by shape. ``start`` is known: windows of the counters' whole life are refused."""

    asked: TimeRange
    choice: Choice
    length_s: float
    shapes: Mapping[str, Activity]

    def build(self) -> WindowSide:
        window = self.choice.window
        return WindowSide(
            window=AnswerWindow(
                asked_start=iso_utc(self.asked.start),
                asked_end=iso_utc(self.asked.end),
                start=None if window.start is None else iso_utc(window.start),
                end=iso_utc(window.end),
            ),
            coverage=Coverage(
                complete=not self.choice.reasons, reasons=self.choice.reasons, snapshots=self.choice.snapshots
            ),
            calls=sum(one.calls for one in self.shapes.values()),
            total_s=round(sum(one.total_s for one in self.shapes.values()), 6),
            shapes=len(self.shapes),
        )


async def compare_two_windows(
    targets: Targets,
    store: HistoryStore,
    clock: Clock,
    *,
    a: str,
    b: str,
    target: str | None = None,
) -> WindowComparison:
    """Compare window ``b`` with ``a``, the one before; both are time ranges as words.

    Raises:
        ToolFailed: with one of the codes in ``docs/tools.md``; ``no_history`` when the stored readings do not tell the
            two apart.
    """
    began = clock.monotonic()
    now = clock.now()
    asked_a, asked_b = parse_time_range(a, now=now), parse_time_range(b, now=now)
    _check_apart(asked_a, asked_b)
    where = targets.resolve(target)
    where.require("postgresql", "mysql", tool="compare_windows")
    newest = await take_newest(where, store, clock)
    try:
        known = {parse_key(one.key): one for one in await store.load_statements(where.name)}
        before = await _load_side(where, store, newest, known, asked_a)
        after = await _load_side(where, store, newest, known, asked_b)
        restarts = await _find_restarts(where, store, newest, before)
    except StoreError as error:
        raise explain_store(error) from error
    _check_history(where, before, after)
    changes = await asyncio.to_thread(
        find_changes,
        before.shapes,
        after.shapes,
        length_before_s=before.length_s,
        length_after_s=after.length_s,
        deviations=where.engine != "mysql",
    )
    took_ms = (clock.monotonic() - began) * 1000
    warnings = (*newest.warnings, *restarts, *((_NO_DEVIATIONS,) if where.engine == "mysql" else ()))
    return _build_answer(where, newest, before, after, changes, known, warnings=warnings, took_ms=took_ms)


def _check_apart(a: TimeRange, b: TimeRange) -> None:
    if min(a.end, b.end) - max(a.start, b.start) > timedelta(seconds=_SAME_S):
        raise ToolFailed(
            f"the two time ranges overlap ({a.asked[:60]} and {b.asked[:60]}), so they cannot be compared",
            code="bad_time_range",
            fix="pass two ranges without common time, for example a=yesterday and b=today, or two ISO 8601 intervals",
        )


async def _load_side(
    where: Target, store: HistoryStore, newest: Newest, known: Mapping[StatementKey, Statement], asked: TimeRange
) -> _Side:
    choice = await choose_window(store, where.name, newest.counters, asked)
    window = choice.window
    parts: dict[str, list[Activity]] = defaultdict(list)
    for key, activity in window.activities.items():
        statement = known.get(key)
        if statement is None:  # evicted before its text was read: told apart by its key at least
            parts[_name_unknown(key)].append(activity)
        elif is_in(statement, newest.database) and not statement.own and key.toplevel:
            parts[statement.fingerprint].append(activity)
    shapes = {shape: merged for shape, ones in parts.items() if (merged := merge_activities(ones)) is not None}
    length_s = 0.0 if window.start is None else (window.end - window.start).total_seconds()
    return _Side(asked=asked, choice=choice, length_s=length_s, shapes=shapes)


async def _find_restarts(where: Target, store: HistoryStore, newest: Newest, before: _Side) -> tuple[str, ...]:
    start = before.choice.window.start
    if start is None:
        return ()
    oldest = await store.find_snapshot(where.name, at=start, side="before", keys=())
    return tell_restart(None if oldest is None else read_snapshot(oldest), newest.counters)


def _name_unknown(key: StatementKey) -> str:
    return f"{key.queryid & (2**64 - 1):016x}"


def _check_history(where: Target, before: _Side, after: _Side) -> None:
    for letter, side in (("a", before), ("b", after)):
        if side.choice.lifetime or side.length_s <= 0 or not _meets(side):
            said = f"no two stored readings are of {letter} ({side.asked.asked[:60]})"
            raise ToolFailed(
                f"target {where.name!r}: {said}",
                code="no_history",
                fix="leave the collector on (`hermod run`, [collector] enabled = true), and ask about later ranges",
            )
    first, second = sorted((before, after), key=lambda side: side.choice.window.end)
    start = second.choice.window.start
    if start is not None and first.choice.window.end - start > timedelta(seconds=_SAME_S):
        raise ToolFailed(
            f"target {where.name!r}: the stored readings do not tell the two ranges apart; those next to them are of "
            f"{iso_utc(first.choice.window.end)} and {iso_utc(start)}",
            code="no_history",
            fix="ask about ranges with readings at their ends; the collector takes one every minute ([collector])",
        )


def _meets(side: _Side) -> bool:
    """Tell whether the window between the nearest readings has any part of the range in it."""
    window, asked = side.choice.window, side.asked
    return window.start is not None and min(window.end, asked.end) > max(window.start, asked.start)


def _build_answer(
    where: Target,
    newest: Newest,
    before: _Side,
    after: _Side,
    changes: Changes,
    known: Mapping[StatementKey, Statement],
    *,
    warnings: tuple[str, ...],
    took_ms: float,
) -> WindowComparison:
    texts: dict[str, list[Statement]] = defaultdict(list)
    for key, one in known.items():
        texts[one.fingerprint].append(one)
        texts[_name_unknown(key)].append(one)
    a, b = before.build(), after.build()
    rows = [
        _build_row(rank, one, texts[one.fingerprint], deviations=where.engine != "mysql")
        for rank, one in enumerate(changes.shifts, 1)
    ]
    shown = choose_rows(rows)
    return WindowComparison(
        target=where.name,
        engine=newest.engine,
        engine_version=newest.version,
        source="stored readings of the statement counters",
        window=b.window,
        coverage=Coverage(
            complete=a.coverage.complete and b.coverage.complete and not newest.reasons,
            reasons=(
                *(f"a: {reason}" for reason in a.coverage.reasons),
                *(f"b: {reason}" for reason in b.coverage.reasons),
                *newest.reasons,
            ),
            snapshots=a.coverage.snapshots + b.coverage.snapshots,
        ),
        verdict=_say_verdict(changes, a, b),
        a=a,
        b=b,
        common_factor=round(changes.common_factor, 3),
        tested=changes.tested,
        rows=shown,
        truncated=LeftOut(rows=len(changes.shifts) - len(shown)),
        warnings=warnings,
        took_ms=round(took_ms, 1),
    )


def choose_rows(rows: Sequence[ChangedShape]) -> tuple[ChangedShape, ...]:
    """Choose as many rows as an answer holds, from both ends of the ranks: what was saved most stands last."""
    first = [*rows[: MOST_ROWS - _SAVED_ROWS], *rows[MOST_ROWS - _SAVED_ROWS :][-_SAVED_ROWS:]]
    chosen: list[ChangedShape] = []
    used = 0
    for row in sorted(first, key=lambda one: -abs(one.extra_s)):
        used += len(to_json(row))
        if used <= _MOST_CHARS or not chosen:
            chosen.append(row)
    return tuple(sorted(chosen, key=lambda one: one.rank))


def _say_verdict(changes: Changes, a: WindowSide, b: WindowSide) -> str:
    counted = [f"{n} {change}" for change in ("regressed", "new", "improved", "gone") if (n := _count(changes, change))]
    said = ", ".join(counted) if counted else "no shape changed beyond chance"
    if changes.common_factor >= _NOTABLE_FACTOR:
        said += f"; statements as a whole became {changes.common_factor:.2f} times slower, so look at the machine, too"
    elif changes.common_factor <= 1 / _NOTABLE_FACTOR:
        said += f"; statements as a whole became {1 / changes.common_factor:.2f} times faster"
    return f"{said} (statement time {a.total_s:.3g} s in a, {b.total_s:.3g} s in b)"


def _count(changes: Changes, change: str) -> int:
    return sum(shift.change == change for shift in changes.shifts)


def _build_row(rank: int, shift: Shift, statements: Sequence[Statement], *, deviations: bool) -> ChangedShape:
    a, b = shift.before, shift.after
    return ChangedShape(
        rank=rank,
        change=shift.change,
        sql=cut_sql(statements[0].sql) if statements else "<text no longer held by the server>",
        extra_s=round(shift.extra_s, 6),
        ratio=round(b.mean_s / a.mean_s, 3) if a and b and a.mean_s > 0 else None,
        mean_a_s=round(a.mean_s, 6) if a else None,
        mean_b_s=round(b.mean_s, 6) if b else None,
        calls_a=a.calls if a else 0,
        calls_b=b.calls if b else 0,
        stddev_a_s=round(a.stddev_s, 6) if a and deviations else None,
        stddev_b_s=round(b.stddev_s, 6) if b and deviations else None,
        total_a_s=round(a.total_s, 6) if a else 0.0,
        total_b_s=round(b.total_s, 6) if b else 0.0,
        p_value=None if shift.p_value is None else float(f"{shift.p_value:.3g}"),
        fingerprint=shift.fingerprint,
        users=tuple(sorted({one.user for one in statements if one.user})),
    )
