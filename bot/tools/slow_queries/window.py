"""What happened between two readings of cumulative counters. Pure arithmetic, no database.

The standard deviation of a window follows from the second moments of the two readings: with S = n * sd^2,
S(window) = S(after) - S(before) - (n_before * n_window / n_after) * (mean_before - mean_window)^2
(the pairwise update of Chan, Golub and LeVeque, 1983, solved for the second part).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from bot.tools.slow_queries.counters import ZERO, Counter, Counters, StatementKey

_BLOCK_BYTES = 8192
# Postgres keeps the total as a running sum of doubles; a difference below this is rounding, not a reset.
_ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What one statement shape did in a window. Times in seconds.

    ``max_exact`` false: no single execution took longer than ``max_s``, but the longest one may be shorter.
    """

    calls: int
    total_s: float
    mean_s: float
    stddev_s: float
    max_s: float
    max_exact: bool
    rows: int
    temp_bytes: int
    hit_bytes: int = 0
    read_bytes: int = 0
    read_s: float = 0.0
    wal_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The activity of every shape between two instants of our clock.

    Args:
        start: None when the counters do not tell since when they count.
        restarted: shapes whose counters began anew in between; they are counted from there.
        reset: all counters began anew in between.
        evicted: entries that the server threw out in between, None when it does not tell.
    """

    start: datetime | None
    end: datetime
    activities: Mapping[StatementKey, Activity]
    restarted: int = 0
    reset: bool = False
    evicted: int | None = None


def build_window(before: Counters | None, after: Counters) -> Window:
    """Subtract two readings; ``before`` None means since the counters began.

    No number is ever negative: an entry that fell, or that is newer than ``before``, is counted from zero.
    """
    reset_at = after.reset_at
    began = None if reset_at is None else after.to_our_clock(reset_at)
    if before is None:
        whole = {key: activity for key, c in after.entries.items() if (activity := _subtract(ZERO, c)) is not None}
        return Window(start=began, end=after.taken_at, activities=whole, evicted=after.evicted)
    reset = reset_at is not None and before.reset_at is not None and reset_at > before.reset_at
    activities: dict[StatementKey, Activity] = {}
    restarted = 0
    for key, counter in after.entries.items():
        base = ZERO if reset else before.entries.get(key, ZERO)
        if base is not ZERO and _began_anew(base, counter):
            base = ZERO
            restarted += 1
        activity = _subtract(base, counter)
        if activity is not None:
            activities[key] = activity
    return Window(
        start=began if reset else before.taken_at,
        end=after.taken_at,
        activities=activities,
        restarted=restarted,
        reset=reset,
        evicted=_evicted_between(before, after, reset=reset),
    )


def _began_anew(base: Counter, now: Counter) -> bool:
    if now.since is not None and base.since is not None and now.since > base.since:
        return True
    return now.calls < base.calls or now.total_s < base.total_s - _ROUNDING_S


def _subtract(base: Counter, now: Counter) -> Activity | None:
    calls = now.calls - base.calls
    if calls <= 0:
        return None
    total_s = max(0.0, now.total_s - base.total_s)
    mean_s = total_s / calls
    moment = now.calls * now.stddev_s**2 - base.calls * base.stddev_s**2
    moment -= base.calls * calls / now.calls * (base.mean_s - mean_s) ** 2
    # The lifetime maximum tells of this window only when it grew in it; else it is an upper bound.
    grew = now.max_s > base.max_s
    shrank = now.max_s < base.max_s  # only a reset of minima and maxima alone does that
    max_s = now.max_s if grew else total_s if shrank else min(now.max_s, total_s)
    return Activity(
        calls=calls,
        total_s=total_s,
        mean_s=mean_s,
        stddev_s=math.sqrt(max(0.0, moment / calls)),
        max_s=mean_s if calls == 1 else max_s,
        max_exact=grew or calls == 1,
        rows=max(0, now.rows - base.rows),
        temp_bytes=max(0, now.temp_blocks - base.temp_blocks) * _BLOCK_BYTES,
        hit_bytes=max(0, now.hit_blocks - base.hit_blocks) * _BLOCK_BYTES,
        read_bytes=max(0, now.read_blocks - base.read_blocks) * _BLOCK_BYTES,
        read_s=max(0.0, now.read_s - base.read_s),
        wal_bytes=max(0, now.wal_bytes - base.wal_bytes),
    )


def merge_activities(parts: Iterable[Activity]) -> Activity | None:
    """Add up the activity of several entries (one shape, run by several users); None when there is none.

    Deviations are merged by their second moments, about the common mean.
    """
    known = list(parts)
    if not known:
        return None
    calls = sum(part.calls for part in known)
    total_s = math.fsum(part.total_s for part in known)
    mean_s = total_s / calls
    moment = math.fsum(part.calls * (part.stddev_s**2 + (part.mean_s - mean_s) ** 2) for part in known)
    largest = max(known, key=lambda part: (part.max_s, part.max_exact))
    return Activity(
        calls=calls,
        total_s=total_s,
        mean_s=mean_s,
        stddev_s=math.sqrt(moment / calls) if len(known) > 1 else known[0].stddev_s,
        max_s=largest.max_s,
        max_exact=largest.max_exact,
        rows=sum(part.rows for part in known),
        temp_bytes=sum(part.temp_bytes for part in known),
        hit_bytes=sum(part.hit_bytes for part in known),
        read_bytes=sum(part.read_bytes for part in known),
        read_s=math.fsum(part.read_s for part in known),
        wal_bytes=sum(part.wal_bytes for part in known),
    )


def _evicted_between(before: Counters, after: Counters, *, reset: bool) -> int | None:
    if after.evicted is None or before.evicted is None:
        return None
    return after.evicted if reset else max(0, after.evicted - before.evicted)
