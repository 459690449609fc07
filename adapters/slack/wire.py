"""Reading Slack's JSON without trusting its shape: what is missing or of another type reads as empty."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

Wire = Mapping[str, object]


def text_of(wire: Wire, key: str) -> str:
    """Return a text field, empty when it is missing or something else."""
    value = wire.get(key)
    return value if isinstance(value, str) else ""


def number_of(wire: Wire, key: str) -> int:
    """Return a whole number that is not negative, zero when it is missing or something else."""
    value = wire.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def part_of(wire: Wire, key: str) -> Wire:
    """Return a nested object, empty when it is missing or something else."""
    value = wire.get(key)
    return value if isinstance(value, Mapping) else {}


def parts_of(wire: Wire, key: str) -> tuple[Wire, ...]:
    """Return the objects of a list, none when it is missing or something else."""
    value = wire.get(key)
    return tuple(v for v in value if isinstance(v, Mapping)) if isinstance(value, list | tuple) else ()


def parse_time(ts: str) -> datetime | None:
    """Read Slack's ``ts`` (seconds with six digits that make it unique); None when it is no such thing."""
    try:
        return datetime.fromtimestamp(float(ts), UTC)
    except (ValueError, OverflowError, OSError):
        return None
