"""What the reading of logs answers. Durations in seconds, instants ISO 8601 UTC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.tools.envelope import AnswerWindow, Coverage
from bot.tools.slow_logs.tally import Place

OrderBy = Literal["total", "mean", "max", "p95", "calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """A statement shape in a log.

    Args:
        sql: without literals and comments.
        duration: the longest single execution (``duration_kind`` max), which the threshold was compared with.
        fingerprint: names the shape, as the live tools do.
        calls: all its executions in the range that the log has.
        calls_over_threshold: those that took at least the threshold.
        p50_s, p95_s, p99_s: percentiles, off by at most 0.5 % of themselves (``p_kind`` sketch).
        rows: sent to the client, all calls together; null where the log does not tell (Postgres).
        share_of_total: of the time of everything in the range, 0..1.
        db, user, app: the most frequent ones; null where the log does not tell.
        prepare_s: time of parse and bind steps, not a part of ``total_s``.
        cancelled: executions that a timeout or a person ended; the log does not tell their duration.
        example_plan: of one of the slowest executions that auto_explain logged, without data.
    """

    sql: str
    duration: float
    duration_kind: Literal["max"] = "max"
    fingerprint: str
    calls: int
    calls_over_threshold: int
    total_s: float
    mean_s: float
    stddev_s: float
    min_s: float
    max_s: float
    max_exact: Literal[True] = True
    p50_s: float
    p95_s: float
    p99_s: float
    p_kind: Literal["sketch"] = "sketch"
    rows: int | None
    share_of_total: float | None
    first_seen: str | None
    last_seen: str | None
    db: str | None
    user: str | None
    app: str | None
    prepare_s: float = 0.0
    cancelled: int = 0
    example_plan: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledQuery:
    """A shape that the log knows only by executions that were ended before they finished."""

    sql: str
    fingerprint: str
    cancelled: int
    last_seen: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """One file as it was read. ``log_line_prefix`` is null for other formats than stderr."""

    name: str
    format: str
    log_line_prefix: str | None = None
    prefix_guessed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What could not be read, and where that begins (at most five places; the text is not repeated)."""

    lines: int
    bytes: int
    places: int
    examples: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """How many rows of each list were left out."""

    rows: int
    cancelled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLog:
    """The envelope."""

    ok: Literal[True] = True
    target: str
    engine: str
    engine_version: str
    source: str
    window: AnswerWindow
    coverage: Coverage
    threshold_s: float
    rows: tuple[LogQuery, ...]
    cancelled: tuple[CancelledQuery, ...]
    truncated: LeftOut
    files: tuple[ReadFile, ...]
    lines: int
    entries: int
    damaged: Damage
    warnings: tuple[str, ...]
    took_ms: float
