"""The time range of a question: words in, two aware UTC instants out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from agent_core.errors import ToolFailed

LONGEST_S = 14 * 86_400.0
"""The longest range that may be asked for, in seconds; snapshots of counters are kept for it."""

FORMS = (
    "last_30min, last_2h, last_1d, last_1w, '45 minutes', today, yesterday, or an ISO 8601 interval with zones "
    "such as 2026-05-01T10:00:00Z/2026-05-01T11:00:00Z"
)

_UNIT_SECONDS: Mapping[str, int] = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_UNIT_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("w", "week", "weeks"), "w"),
}
_RELATIVE = re.compile(r"(?:(?P<last>last|past)[ _-]?)?(?P<count>\d{1,9}(?:\.\d{1,3})?)?[ _-]?(?P<unit>[a-z]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """A half-open range ``start <= t < end`` of aware UTC instants; ``asked`` is how it was put."""

    start: datetime
    end: datetime
    asked: str

    @property
    def length_s(self) -> float:
        """Seconds between the two ends; always more than 0."""
        return (self.end - self.start).total_seconds()


def parse_time_range(text: str, *, now: datetime) -> TimeRange:
    """Read a time range; see ``FORMS``. Days are UTC days.

    Args:
        text: for example ``last_30min``; letter case and outer spaces do not matter.
        now: the present, aware. An interval that ends after it is cut there.

    Raises:
        ToolFailed: code ``bad_time_range``; the message says what is wrong and lists the valid forms.
    """
    now = now.astimezone(UTC)
    word = " ".join(text.split()).lower()
    midnight = datetime.combine(now.date(), time(), UTC)
    if word == "today":
        start, end = midnight, now
    elif word == "yesterday":
        start, end = midnight - timedelta(days=1), midnight
    elif "/" in word:
        start, end = _parse_interval(text.strip(), now)
    else:
        start, end = now - _parse_length(word, text), now
    length_s = (end - start).total_seconds()
    if length_s <= 0:
        raise _refuse(text, "it is empty or ends before it begins")
    if length_s > LONGEST_S:
        raise _refuse(text, f"the longest range is {LONGEST_S / 86_400:g} days")
    return TimeRange(start=start, end=end, asked=" ".join(text.split()))


def _parse_length(word: str, text: str) -> timedelta:
    match = _RELATIVE.fullmatch(word)
    unit = None if match is None else _UNIT_WORDS.get(match["unit"])
    if match is None or unit is None:
        raise _refuse(text, "it is not one of the forms")
    if match["count"] is None and match["last"] is None:
        raise _refuse(text, "a number is missing")
    seconds = float(match["count"] or 1) * _UNIT_SECONDS[unit]
    if seconds > LONGEST_S:  # checked here too, because a timedelta of billions of weeks cannot exist
        raise _refuse(text, f"the longest range is {LONGEST_S / 86_400:g} days")
    return timedelta(seconds=seconds)


def _parse_interval(text: str, now: datetime) -> tuple[datetime, datetime]:
    ends: list[datetime] = []
    for part in text.split("/"):
        try:
            instant = datetime.fromisoformat(part.strip().upper())
        except ValueError:
            raise _refuse(text, f"{part.strip()[:40]!r} is not an ISO 8601 instant") from None
        if instant.tzinfo is None:
            raise _refuse(text, f"{part.strip()[:40]!r} has no zone; add Z or an offset such as +02:00")
        try:
            ends.append(instant.astimezone(UTC))
        except OverflowError:
            raise _refuse(text, f"{part.strip()[:40]!r} is out of range") from None
    if len(ends) != 2:
        raise _refuse(text, "an interval has exactly one '/'")
    if ends[0] >= now:
        raise _refuse(text, "it begins in the future")
    return ends[0], min(ends[1], now)


def _refuse(text: str, why: str) -> ToolFailed:
    return ToolFailed(
        f"time_range {' '.join(text.split())[:60]!r} cannot be used: {why}. Valid forms: {FORMS}",
        code="bad_time_range",
        fix=f"pass one of: {FORMS}",
    )
