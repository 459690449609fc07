"""What every database tool's answer begins with.

Durations are in seconds, instants ISO 8601 UTC with ``Z``, ids of 64 bits texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerWindow:
    """The range that was asked for, and the one that the numbers are of (``start`` null: not known)."""

    asked_start: str
    asked_end: str
    start: str | None
    end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Whether the numbers are exactly those of the asked range; if not, ``reasons`` say why.

    ``snapshots``: how many stored readings the numbers rest on.
    """

    complete: bool
    reasons: tuple[str, ...]
    snapshots: int


WHOLE = Coverage(complete=True, reasons=(), snapshots=0)
"""Of an answer that is about this moment, or about all that there is, and misses nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What the bounds of the answer left out: ``rows`` of them, and ``bytes`` of texts that were cut."""

    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The head of an answer; each tool's own class adds ``rows`` and what else it tells.

    Args:
        ok: always true; a tool that fails raises ``ToolFailed`` with a code of ``docs/tools.md``.
        target: the configured name.
        engine: ``postgresql``, ``mysql``, ``mariadb``, ``sqlite`` or ``slowlog``.
        engine_version: as people write it, for example ``18.6``.
        source: what the numbers were read from, in words.
        window: for answers about a time range; null for those about this moment.
        coverage: whether anything is missing, and why.
        truncated: what was left out for want of room.
        warnings: what a person should know before drawing conclusions.
        took_ms: the whole call, in milliseconds.
    """

    ok: Literal[True] = True
    target: str
    engine: str
    engine_version: str
    source: str
    window: AnswerWindow | None = None
    coverage: Coverage = WHOLE
    truncated: LeftOut = LeftOut()
    warnings: tuple[str, ...] = ()
    took_ms: float
