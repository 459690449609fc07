"""Numbers in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from reading.cells import write_duration, write_size

__all__ = ["percent", "say_age", "say_count", "say_number", "say_some", "write_duration", "write_size"]

_DAY_S = 86_400.0


def percent(share: float) -> str:
    """``0.953`` -> ``95 %``; small shares keep a digit, and what is not all is never rounded to 100 %."""
    points = share * 100
    if 99.5 <= points < 100:
        return "over 99 %"
    return f"{points:.0f} %" if points >= 10 or points == 0 else f"{points:.2g} %"


def say_count(number: float) -> str:
    """``1234567`` -> ``1,234,567``."""
    return f"{number:,.0f}"


def say_number(number: int, noun: str) -> str:
    """``1 session``, ``2 sessions``."""
    return f"{say_count(number)} {noun}{'' if number == 1 else 's'}"


def say_age(seconds: float) -> str:
    """A duration as people say it: days from two days on."""
    return f"{seconds / _DAY_S:.0f} days" if seconds >= 2 * _DAY_S else write_duration(seconds)


def say_some(names: Sequence[str], *, most: int = 5) -> str:
    """List names, the first ``most`` of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
