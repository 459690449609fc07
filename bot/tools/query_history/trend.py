"""``query_trend``: what one statement shape did over a time range, in equal parts of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.storage.base import StoreError
from bot.storage.snapshots import HistoryStore, Statement
from bot.tools.envelope import AnswerWindow, Coverage
from bot.tools.query_history.answer import QueryTrend, TrendBucket, TrendTotal
from bot.tools.query_history.buckets import choose_bucket, choose_readings, share_covered, split_range
from bot.tools.query_history.fresh import Newest, choose_statements, cut_sql, explain_store, take_newest, tell_restart
from bot.tools.query_history.text_chart import draw_bars
from bot.tools.slow_queries.counters import Counters, read_snapshot
from bot.tools.slow_queries.history import iso_utc
from bot.tools.slow_queries.time_range import TimeRange, parse_time_range
from bot.tools.slow_queries.window import Activity, Window, build_window, merge_activities
from bot.tools.targets import Target, Targets

# A reading may be this much of a bucket away from the border that it stands for.
_SLACK = 0.5
_WHOLE = 0.9
"""A bucket that is covered less than this is named as not covered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    start: datetime
    end: datetime
    coverage: float = 0.0
    window: Window | None = None

    @property
    def activity(self) -> Activity | None:
        return None if self.window is None else merge_activities(self.window.activities.values())


async def read_trend(
    targets: Targets,
    store: HistoryStore,
    clock: Clock,
    *,
    fingerprint: str,
    time_range: str = "last_1d",
    bucket: str | None = None,
    target: str | None = None,
) -> QueryTrend:
    """Tell a shape's calls, total, mean and deviation for each bucket of a time range.

    Raises:
        ToolFailed: with one of the codes in ``docs/tools.md``.
    """
    began = clock.monotonic()
    asked = parse_time_range(time_range, now=clock.now())
    bucket_s = choose_bucket(bucket, asked)
    where = targets.resolve(target)
    where.require("postgresql", "mysql", tool="query_trend")
    newest = await take_newest(where, store, clock)
    try:
        shapes, warnings = await _find_shape(where, store, newest, fingerprint.strip().lower())
        borders = split_range(asked, bucket_s)
        readings, chosen = await _load_readings(where, store, newest, shapes, borders, bucket_s)
    except StoreError as error:
        raise explain_store(error) from error
    parts = await asyncio.to_thread(_build_parts, borders, readings, chosen)
    return _build_answer(
        where,
        newest,
        asked,
        bucket_s,
        shapes,
        parts,
        readings,
        warnings=warnings,
        took_ms=(clock.monotonic() - began) * 1000,
    )


async def _find_shape(
    where: Target, store: HistoryStore, newest: Newest, fingerprint: str
) -> tuple[list[Statement], tuple[str, ...]]:
    known = await store.load_statements(where.name, fingerprint=fingerprint)
    shapes, foreign = choose_statements(known, newest.database)
    if not shapes:
        elsewhere = f" It runs in other databases of the server only: {_list_databases(known)}." if foreign else ""
        raise ToolFailed(
            f"target {where.name!r}: no stored reading has a statement of fingerprint {fingerprint[:40]!r}.{elsewhere}",
            code="unknown_fingerprint",
            fix="take `fingerprint` of a row of get_slow_queries; a shape is known from its first reading on",
        )
    said = f"it also ran in other databases of the server, which are not counted: {_list_databases(known)}"
    return shapes, newest.warnings + ((said,) if foreign else ())


def _list_databases(statements: Sequence[Statement]) -> str:
    return ", ".join(sorted({one.db for one in statements}))


async def _load_readings(
    where: Target,
    store: HistoryStore,
    newest: Newest,
    shapes: Sequence[Statement],
    borders: Sequence[datetime],
    bucket_s: float,
) -> tuple[Mapping[datetime, Counters], list[datetime | None]]:
    """Load the readings next to the borders, with no other rows than the shape's."""
    slack = timedelta(seconds=bucket_s * _SLACK)
    taken = await store.list_snapshots(where.name, start=borders[0] - slack, end=borders[-1] + slack)
    chosen = choose_readings(borders, taken, slack_s=slack.total_seconds())
    keys = [one.key for one in shapes]
    readings: dict[datetime, Counters] = {}
    for instant in sorted({one for one in chosen if one is not None}):
        snapshot = await store.find_snapshot(where.name, at=instant, side="before", keys=keys)
        counters = None if snapshot is None else read_snapshot(snapshot)
        # The name may have pointed to another server then.
        if counters is not None and counters.system_id == newest.counters.system_id:
            readings[instant] = counters
    return readings, [one if one in readings else None for one in chosen]


def _build_parts(
    borders: Sequence[datetime], readings: Mapping[datetime, Counters], chosen: Sequence[datetime | None]
) -> list[_Part]:
    parts: list[_Part] = []
    for n, (start, end) in enumerate(pairwise(borders)):
        first, last = chosen[n], chosen[n + 1]
        if first is None or last is None or first >= last:
            parts.append(_Part(start=start, end=end))
            continue
        window = build_window(readings[first], readings[last])
        coverage = share_covered(start, end, window.start or first, last)
        parts.append(_Part(start=start, end=end, coverage=coverage, window=window))
    return parts


def _build_answer(
    where: Target,
    newest: Newest,
    asked: TimeRange,
    bucket_s: float,
    shapes: Sequence[Statement],
    parts: Sequence[_Part],
    readings: Mapping[datetime, Counters],
    *,
    warnings: tuple[str, ...],
    took_ms: float,
) -> QueryTrend:
    deviations = where.engine != "mysql"  # which counts none
    rows = tuple(_build_bucket(part, deviations=deviations) for part in parts)
    known = [part for part in parts if part.window is not None]
    reasons = (*_explain_gaps(parts, len(readings)), *newest.reasons)
    activities = [part.activity for part in known]
    whole = merge_activities([one for one in activities if one is not None])
    return QueryTrend(
        target=where.name,
        engine=newest.engine,
        engine_version=newest.version,
        source="stored readings of the statement counters",
        window=AnswerWindow(
            asked_start=iso_utc(asked.start),
            asked_end=iso_utc(asked.end),
            start=iso_utc(min(readings)) if readings else None,
            end=iso_utc(max(readings) if readings else asked.end),
        ),
        coverage=Coverage(complete=not reasons, reasons=reasons, snapshots=len(readings)),
        fingerprint=shapes[0].fingerprint,
        sql=cut_sql(shapes[0].sql),
        users=tuple(sorted({one.user for one in shapes if one.user})),
        bucket_s=bucket_s,
        chart=draw_bars([None if row.calls is None else row.mean_s or 0.0 for row in rows]),
        highest_s=max((row.mean_s for row in rows if row.mean_s is not None), default=None),
        total=None if whole is None else _build_total(whole, deviations=deviations),
        rows=rows,
        warnings=(*warnings, *tell_restart(readings[min(readings)] if readings else None, newest.counters)),
        took_ms=round(took_ms, 1),
    )


def _build_bucket(part: _Part, *, deviations: bool) -> TrendBucket:
    activity = part.activity
    return TrendBucket(
        start=iso_utc(part.start),
        end=iso_utc(part.end),
        calls=None if part.window is None else activity.calls if activity else 0,
        mean_s=round(activity.mean_s, 6) if activity else None,
        total_s=round(activity.total_s, 6) if activity else (None if part.window is None else 0.0),
        stddev_s=round(activity.stddev_s, 6) if activity and deviations else None,
        max_s=round(activity.max_s, 6) if activity else None,
        max_exact=activity.max_exact if activity else None,
        coverage=round(part.coverage, 3),
    )


def _build_total(whole: Activity, *, deviations: bool) -> TrendTotal:
    return TrendTotal(
        calls=whole.calls,
        mean_s=round(whole.mean_s, 6),
        total_s=round(whole.total_s, 6),
        stddev_s=round(whole.stddev_s, 6) if deviations else None,
        max_s=round(whole.max_s, 6),
        max_exact=whole.max_exact,
    )


def _explain_gaps(parts: Sequence[_Part], readings: int) -> list[str]:
    reasons: list[str] = []
    if unknown := sum(part.window is None for part in parts):
        few = " (is the collector on?)" if readings < len(parts) / 2 else ""
        reasons.append(f"{unknown} of {len(parts)} buckets have no reading next to their borders{few}")
    if partly := sum(part.window is not None and part.coverage < _WHOLE for part in parts):
        reasons.append(f"{partly} buckets are covered by less than {_WHOLE:.0%}, see their coverage")
    windows = [part.window for part in parts if part.window is not None]
    if resets := sum(window.reset for window in windows):
        reasons.append(f"the counters were reset {_times(resets)} in the range; what ran just before that is not known")
    if restarted := sum(window.restarted for window in windows):
        reasons.append(
            f"the shape's own counters began anew {_times(restarted)} (reset, or thrown out for want of room); "
            "what ran just before that is not known"
        )
    if evicted := sum(window.evicted or 0 for window in windows):
        reasons.append(
            f"the server threw statements out {_times(evicted)} for want of room, so calls may be missing; "
            "raise pg_stat_statements.max"
        )
    return reasons


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
