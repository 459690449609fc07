"""Texts of other people's statements and names, made fit to leave: redacted, and as long as an answer has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bot.tools.envelope import LeftOut
from bot.tools.slow_queries.redact_sql import shorten

MOST_ROWS = 50
"""Sessions in one answer."""

_ROOM_CHARS = 10_000
_SHORTEST, _LONGEST = 160, 1_000
_NAME_CHARS = 80


def fit_queries(
    queries: Sequence[str], redact: Callable[[str], str], *, rows_left_out: int = 0
) -> tuple[list[str], LeftOut]:
    """Redact statements and cut them so that all of them together stay readable.

    Args:
        queries: as the server has them.
        redact: the dialect's redactor.
        rows_left_out: what else the answer leaves out, for the count.
    """
    each = min(_LONGEST, max(_SHORTEST, _ROOM_CHARS // max(1, len(queries))))
    redacted = [redact(query) for query in queries]
    shown = [shorten(query, each) for query in redacted]
    lost = sum(max(0, len(whole.encode()) - len(cut.encode())) for whole, cut in zip(redacted, shown, strict=True))
    return shown, LeftOut(rows=rows_left_out, bytes=lost)


def fit_name(name: str) -> str:
    """A name that a client chose (its user, database or application), on one line and not too long."""
    return shorten(" ".join(name.split()), _NAME_CHARS)


def say_seconds(value: float | None) -> str:
    """Write a duration for a sentence: ``3.2 s``, ``12 min``, ``5 h``."""
    if value is None:
        return "an unknown time"
    if value < 600:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 36_000 else f"{value / 3600:.0f} h"


def say_count(count: int, noun: str) -> str:
    """``1 session``, ``3 sessions``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def say_instant(iso: str | None) -> str:
    """Write an instant of ours (ISO 8601 with microseconds and ``Z``) for a sentence, to the second."""
    return "an unknown time" if iso is None else f"{iso[:19]}Z"
