"""Fields of database rows as the types that they have."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

Row = Mapping[str, object]


def text(row: Row, key: str) -> str:
    """Return a text; empty for NULL and for a column that this version does not have."""
    value = row.get(key)
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def maybe_number(row: Row, key: str) -> float | None:
    """Return a number, or None for NULL and for a column that this version does not have."""
    value = row.get(key)
    return float(value) if isinstance(value, int | float | Decimal) else None


def number(row: Row, key: str) -> float:
    """Return a number; 0 for NULL."""
    return maybe_number(row, key) or 0.0


def maybe_count(row: Row, key: str) -> int | None:
    """Return a whole number, or None."""
    value = row.get(key)
    return int(value) if isinstance(value, int | float | Decimal) else None


def count(row: Row, key: str) -> int:
    """Return a whole number; 0 for NULL."""
    return maybe_count(row, key) or 0


def flag(row: Row, key: str) -> bool:
    """Return a boolean; false for NULL."""
    return bool(row.get(key))


def texts(row: Row, key: str) -> tuple[str, ...]:
    """Return a list of texts; NULL elements are empty."""
    value = row.get(key)
    return tuple("" if item is None else str(item) for item in value) if isinstance(value, list | tuple) else ()


def instant(row: Row, key: str) -> datetime | None:
    """Return an instant, aware UTC, or None."""
    value = row.get(key)
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def write_iso(value: datetime | None) -> str | None:
    """Write an instant as answers have it: ISO 8601 UTC with ``Z``, whole seconds."""
    return None if value is None else value.astimezone(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
