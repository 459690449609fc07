"""What ``get_slow_queries`` answers. Durations in seconds, instants ISO 8601 UTC, 64-bit ids as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.tools.envelope import AnswerWindow, Coverage


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockUse:
    """What executions did with data blocks, in bytes: ``hit`` in shared buffers, ``read`` from below them.

    ``read_s``: the time of reading in seconds; 0 while the server's ``track_io_timing`` is off.
    """

    hit: int
    read: int
    read_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowQuery:
    """A statement shape (``duration_kind`` mean), or one execution that still goes on (single).

    Args:
        sql: without literals and comments.
        duration: what the threshold was compared with, see ``duration_kind``.
        fingerprint: names the shape, whatever its literals.
        max_exact: false when ``max_s`` is only an upper bound of the longest execution in the window.
        share_of_total: of the time of all statements of the database in the window, 0..1.
        state: ``running`` for an execution that still goes on, with ``pid``.
        io, temp_bytes, wal_bytes: of all its executions in the window; null where the server does not tell.
        p_kind: ``none``: statistics have no percentiles (slow logs do).
        toplevel: false for statements inside functions; their caller's time includes theirs.
    """

    sql: str
    duration: float
    duration_kind: Literal["single", "mean"]
    fingerprint: str
    calls: int
    total_s: float
    mean_s: float
    stddev_s: float
    max_s: float
    max_exact: bool
    share_of_total: float | None
    rows: int | None
    temp_bytes: int | None
    db: str
    user: str
    state: Literal["finished", "running"] = "finished"
    toplevel: bool = True
    queryid: str | None = None
    pid: str | None = None
    io: BlockUse | None = None
    wal_bytes: int | None = None
    p_kind: Literal["none", "server_histogram"] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class MayHaveExceeded:
    """A shape whose mean is below the threshold while its maximum is not.

    ``basis`` tells whether calls, mean and maximum are of the window or of the counters' whole life.
    """

    sql: str
    fingerprint: str
    basis: Literal["window", "lifetime"]
    calls: int
    mean_s: float
    max_s: float
    max_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """How many rows of each list were left out by ``limit``."""

    rows: int
    may_have_exceeded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowQueries:
    """The envelope."""

    ok: Literal[True] = True
    target: str
    engine: str
    engine_version: str
    source: str
    window: AnswerWindow
    coverage: Coverage
    threshold_s: float
    rows: tuple[SlowQuery, ...]
    may_have_exceeded: tuple[MayHaveExceeded, ...]
    truncated: Truncated
    warnings: tuple[str, ...]
    took_ms: float
