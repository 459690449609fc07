"""Which two readings of the counters answer a question about a time range best.

The candidates for the beginning are the stored readings on both sides of it; for the end, the stored readings
next to it and the one just taken. Of all pairs the one wins whose window and the asked range have the most in
common (overlap divided by union). Without any stored reading the counters' whole life is told, and said to be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol

from bot.storage.snapshots import Snapshot
from bot.tools.slow_queries.counters import Counters, build_snapshot, read_snapshot
from bot.tools.slow_queries.time_range import TimeRange
from bot.tools.slow_queries.window import Window, build_window

# A window may miss the asked range by this share of it and still count as the asked one.
_TOLERANCE = 0.01
_TOLERANCE_LEAST_S = 2.0


class SnapshotStore(Protocol):
    """The part of ``bot.storage.base.Store`` that keeps readings."""

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """See ``HistoryStore.save_snapshot``."""
        ...

    async def find_snapshot(
        self, target: str, *, at: datetime, side: Literal["before", "after"], keys: Collection[str] | None = None
    ) -> Snapshot | None:
        """See ``HistoryStore.find_snapshot``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The window that answers, or the lifetime view.

    Args:
        window: the activity; for the lifetime view since the counters began.
        lifetime: there was no reading to subtract, so the window is not what was asked for.
        snapshots: how many stored readings it rests on (the fresh one is not counted).
        reasons: in words, what of the asked range is not covered, or covered by more than was asked.
    """

    window: Window
    lifetime: bool
    snapshots: int
    reasons: tuple[str, ...]


async def save_reading(store: SnapshotStore, target: str, counters: Counters) -> None:
    """Store a reading for later questions. What is too old is dropped by ``bot.collector``.

    Raises:
        StoreError: the storage cannot be used.
    """
    await store.save_snapshot(await asyncio.to_thread(build_snapshot, target, counters))


async def choose_window(store: SnapshotStore, target: str, now: Counters, asked: TimeRange) -> Choice:
    """Find the best window for ``asked``; call it before the fresh reading ``now`` is stored.

    Raises:
        StoreError: the storage cannot be used.
    """
    befores = await _load_around(store, target, asked.start, now)
    afters = [now]
    if asked.end < now.taken_at - timedelta(seconds=_TOLERANCE_LEAST_S):
        afters += await _load_around(store, target, asked.end, now)
    pairs = [(before, after) for after in afters for before in befores if before.taken_at < after.taken_at]
    if not pairs:
        return _lifetime(now)
    before, after = max(pairs, key=lambda pair: _likeness(_start(*pair), pair[1].taken_at, asked))
    window = await asyncio.to_thread(build_window, before, after)
    return Choice(
        window=window,
        lifetime=False,
        snapshots=1 if after is now else 2,
        reasons=tuple(_reasons(window, _start(before, after), asked)),
    )


async def _load_around(store: SnapshotStore, target: str, at: datetime, now: Counters) -> list[Counters]:
    sides: tuple[Literal["before", "after"], ...] = ("before", "after")
    found: list[Counters] = []
    for side in sides:
        snapshot = await store.find_snapshot(target, at=at, side=side)
        if snapshot is None or snapshot.taken_at >= now.taken_at:
            continue
        counters = await asyncio.to_thread(read_snapshot, snapshot)
        # The name may point to another server than it did then; its numbers have nothing to do with ours.
        if counters is not None and counters.system_id == now.system_id:
            found.append(counters)
    return found


def _start(before: Counters, after: Counters) -> datetime:
    """A reading from before a reset says nothing about the time until the reset."""
    if after.reset_at is None or before.reset_at is None or after.reset_at <= before.reset_at:
        return before.taken_at
    return max(before.taken_at, after.to_our_clock(after.reset_at))


def _lifetime(now: Counters) -> Choice:
    window = build_window(None, now)
    since = "an unknown instant" if window.start is None else iso_utc(window.start)
    reason = (
        f"no earlier reading of the counters is stored, so all numbers are since {since}; "
        "this reading is stored: the next question gets the exact window since now"
    )
    return Choice(window=window, lifetime=True, snapshots=0, reasons=(reason,))


def _reasons(window: Window, start: datetime, asked: TimeRange) -> Iterable[str]:
    slack = _tolerance(asked)
    if start > asked.start + slack:
        because = "the counters were reset then" if window.reset else "the first reading"
        yield f"nothing is known of the time before {iso_utc(start)} ({because})"
    elif start < asked.start - slack:
        yield f"the window begins {_span(asked.start - start)} earlier than asked, at the reading nearest to it"
    if window.end < asked.end - slack:
        yield f"nothing is known of the time after {iso_utc(window.end)}, the last reading"
    elif window.end > asked.end + slack:
        yield f"the window ends {_span(window.end - asked.end)} later than asked, at the reading nearest to it"
    if window.restarted:
        yield f"{window.restarted} statements were reset or thrown out in between; they are counted from there"
    if window.evicted:
        yield (
            f"the server threw statements out {window.evicted} times for want of room, so rare ones may be missing; "
            "raise pg_stat_statements.max"
        )


def _likeness(start: datetime, end: datetime, asked: TimeRange) -> float:
    overlap = (min(end, asked.end) - max(start, asked.start)).total_seconds()
    union = (max(end, asked.end) - min(start, asked.start)).total_seconds()
    # Without any overlap the nearer window is the better one, whatever its length.
    return overlap / union if overlap > 0 else overlap


def _tolerance(asked: TimeRange) -> timedelta:
    return timedelta(seconds=max(_TOLERANCE_LEAST_S, asked.length_s * _TOLERANCE))


def _span(delta: timedelta) -> str:
    seconds = delta.total_seconds()
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def iso_utc(instant: datetime) -> str:
    """ISO 8601 with ``Z``, to the millisecond; ``instant`` is aware UTC."""
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
