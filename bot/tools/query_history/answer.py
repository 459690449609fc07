"""What the two tools answer. Durations in seconds, instants ISO 8601 UTC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.tools.envelope import AnswerWindow, Coverage, Envelope

Change = Literal["regressed", "new", "improved", "gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendBucket:
    """What a shape did from ``start`` to ``end``; null where no reading tells.

    Args:
        calls: 0 when it did not run, null when that is not known.
        stddev_s: null also where the server counts no variance (MySQL, MariaDB).
        max_exact: false when ``max_s`` is only an upper bound of the longest execution.
        coverage: 0..1, how much of the bucket and of the readings' window next to it is the same time.
    """

    start: str
    end: str
    calls: int | None
    mean_s: float | None
    total_s: float | None
    stddev_s: float | None
    max_s: float | None
    max_exact: bool | None
    coverage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendTotal:
    """The whole range at once, from its first reading to its last."""

    calls: int
    mean_s: float
    total_s: float
    stddev_s: float | None
    max_s: float
    max_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTrend(Envelope):
    """The answer of ``query_trend``.

    Args:
        fingerprint, sql, users: the shape, and who ran it.
        bucket_s: length of a bucket.
        chart: mean durations as text, one sign a bucket (a dot: it did not run; a blank: not known).
        highest_s: of the means that the chart shows, in seconds.
        total: null when it did not run, or when nothing is known.
    """

    fingerprint: str
    sql: str
    users: tuple[str, ...]
    bucket_s: float
    chart: str
    highest_s: float | None
    total: TrendTotal | None
    rows: tuple[TrendBucket, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedShape:
    """A shape that costs more or less than before. ``a`` is the window before, ``b`` the one after.

    Args:
        rank: 1 is the one that cost most extra time.
        change: ``new`` did not run in a, ``gone`` not in b; the others ran in both, with another mean.
        extra_s: time that it took in b beyond what the same calls would have taken at a's mean; negative: saved.
            Of a new shape all its time, of one that is gone what it would have taken in a window as long as b.
        ratio: mean in b to mean in a.
        p_value: how likely such a difference is by chance alone, before the correction for the number of shapes.
    """

    rank: int
    change: Change
    sql: str
    extra_s: float
    ratio: float | None
    mean_a_s: float | None
    mean_b_s: float | None
    calls_a: int
    calls_b: int
    stddev_a_s: float | None
    stddev_b_s: float | None
    total_a_s: float
    total_b_s: float
    p_value: float | None
    fingerprint: str
    users: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSide:
    """One of the two windows, with what all statements of the database did in it."""

    window: AnswerWindow
    coverage: Coverage
    calls: int
    total_s: float
    shapes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowComparison(Envelope):
    """The answer of ``compare_windows``; ``window`` and ``coverage`` of the envelope are those of b.

    Args:
        verdict: the outcome in a sentence.
        a, b: the two windows.
        common_factor: by how much the typical shape became slower (above 1) or faster; a shape counts as changed only
            beyond that.
        tested: how many shapes ran often enough in both to be compared.
    """

    verdict: str
    a: WindowSide
    b: WindowSide
    common_factor: float
    tested: int
    rows: tuple[ChangedShape, ...]
