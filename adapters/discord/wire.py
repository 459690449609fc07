"""Reading Discord's JSON without trusting its shape: what is missing or of another type reads as empty."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from adapters.discord.payload import Wire

__all__ = [
    "EPOCH_MS",
    "Wire",
    "flag_of",
    "id_of",
    "ids_of",
    "number_of",
    "parse_time",
    "part_of",
    "parts_of",
    "snowflake_of",
    "text_of",
    "time_of",
    "wire_of",
]

EPOCH_MS = 1_420_070_400_000
"""Ids count milliseconds since the first second of 2015 in all but their last 22 bits
(docs.discord.com/developers/reference, "Snowflakes")."""

_ID_MAX = 2**64


def wire_of(value: object) -> Wire:
    """Return an object, empty when it is something else."""
    return value if isinstance(value, Mapping) else {}


def text_of(wire: Wire, key: str) -> str:
    """Return a text field, empty when it is missing or something else."""
    value = wire.get(key)
    return value if isinstance(value, str) else ""


def id_of(wire: Wire, key: str) -> str:
    """Return an id, empty when it is missing or no id."""
    value = wire.get(key)
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if text.isascii() and text.isdecimal() and 0 < int(text) < _ID_MAX else ""


def number_of(wire: Wire, key: str) -> int:
    """Return a whole number that is not negative, zero when it is missing or something else."""
    value = wire.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def flag_of(wire: Wire, key: str) -> bool:
    """Return true only for true itself."""
    return wire.get(key) is True


def part_of(wire: Wire, key: str) -> Wire:
    """Return a nested object, empty when it is missing or something else."""
    value = wire.get(key)
    return value if isinstance(value, Mapping) else {}


def parts_of(wire: Wire, key: str) -> tuple[Wire, ...]:
    """Return the objects of a list, none when it is missing or something else."""
    value = wire.get(key)
    return tuple(v for v in value if isinstance(v, Mapping)) if isinstance(value, list | tuple) else ()


def ids_of(wire: Wire, key: str) -> tuple[str, ...]:
    """Return the ids of a list, none when it is missing or something else."""
    value = wire.get(key)
    items = value if isinstance(value, list | tuple) else ()
    return tuple(found for item in items if (found := id_of({"id": item}, "id")))


def parse_time(text: str) -> datetime | None:
    """Read an ISO 8601 time as aware UTC; None when it is no such thing."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def time_of(snowflake: str) -> datetime:
    """Return when an id was made. ``snowflake`` is one that ``id_of`` returned."""
    return datetime.fromtimestamp(((int(snowflake) >> 22) + EPOCH_MS) / 1000, UTC)


def snowflake_of(at: datetime) -> int:
    """Return the least id that is made at ``at`` or later."""
    return max(0, int(at.timestamp() * 1000) - EPOCH_MS) << 22
