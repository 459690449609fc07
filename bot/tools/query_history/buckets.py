"""A time range in equal parts, and the readings next to their borders."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from agent_core.errors import ToolFailed
from bot.tools.slow_queries.time_range import TimeRange

MOST_BUCKETS = 90
"""More would be neither read nor drawn."""

_ROUND_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400)
_GOOD_COUNT = 40
_LEAST_S = 10
_UNITS: Mapping[str, int] = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_FORM = re.compile(r"(\d{1,6})\s*(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)")
_FORMS = "30s, 5min, 1h or 1d"


def choose_bucket(text: str | None, asked: TimeRange) -> float:
    """Return the length of a bucket in seconds; without ``text`` a round one that gives about forty.

    Raises:
        ToolFailed: code ``bad_bucket``.
    """
    if text is None:
        return float(next((s for s in _ROUND_S if asked.length_s / s <= _GOOD_COUNT), _ROUND_S[-1]))
    match = _FORM.fullmatch(text.strip().lower())
    if match is None:
        raise _refuse(text, "it is not a length of time")
    bucket_s = int(match[1]) * _UNITS[match[2][0]]
    if bucket_s < _LEAST_S:
        raise _refuse(text, f"the shortest is {_LEAST_S}s")
    if asked.length_s / bucket_s > MOST_BUCKETS:
        least = -(-asked.length_s // MOST_BUCKETS)
        raise _refuse(text, f"the range would have more than {MOST_BUCKETS} of them; take at least {least:.0f}s")
    return float(bucket_s)


def _refuse(text: str, why: str) -> ToolFailed:
    return ToolFailed(
        f"bucket {' '.join(text.split())[:40]!r} cannot be used: {why}",
        code="bad_bucket",
        fix=f"pass a length such as {_FORMS}, or leave it out",
    )


def split_range(asked: TimeRange, bucket_s: float) -> list[datetime]:
    """Return the borders of the buckets: the ends of the range, and between them round instants (UTC).

    What is left over at an end and shorter than a tenth of a bucket belongs to the bucket beside it.
    """
    step = timedelta(seconds=bucket_s)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    border = epoch + ((asked.start - epoch) // step + 1) * step
    if border - asked.start < step / 10:
        border += step
    borders = [asked.start]
    while border <= asked.end - step / 10:
        borders.append(border)
        border += step
    return [*borders, asked.end]


def choose_readings(borders: Sequence[datetime], taken: Sequence[datetime], *, slack_s: float) -> list[datetime | None]:
    """Return for each border the nearest reading, None without one within ``slack_s`` seconds. Both are in order."""
    chosen: list[datetime | None] = []
    position = 0
    for border in borders:
        while position + 1 < len(taken) and abs(taken[position + 1] - border) <= abs(taken[position] - border):
            position += 1
        near = bool(taken) and abs((taken[position] - border).total_seconds()) <= slack_s
        chosen.append(taken[position] if near else None)
    return chosen


def share_covered(start: datetime, end: datetime, known_start: datetime, known_end: datetime) -> float:
    """Return how much two spans are the same time: what they share, of what they span together (0..1)."""
    shared = (min(end, known_end) - max(start, known_start)).total_seconds()
    spanned = (max(end, known_end) - min(start, known_start)).total_seconds()
    return max(0.0, shared / spanned) if spanned > 0 else 0.0
