"""Percentiles of a stream in little memory.

The method is DDSketch (Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error
guarantees", VLDB 2019, https://arxiv.org/abs/1908.10693): values are counted in buckets whose bounds grow by a constant
factor, so a value read back from its bucket is off by at most a fixed share of itself, whatever the distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

ACCURACY = 0.005
"""The largest relative error of a percentile: half a percent, against the value of exactly that rank."""

_GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
_SCALE = 1 / math.log(_GAMMA)
_LEAST = 1e-9  # logs write microseconds; what is below has a bucket of its own and reads back as 0


class Sketch:
    """Counts positive values so that percentiles can be read back within ``ACCURACY``."""

    __slots__ = ("_buckets", "_count", "_tiny")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._tiny = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, values: Iterable[float]) -> None:
        """Count values; those that are not positive count as 0."""
        buckets, log, ceil = self._buckets, math.log, math.ceil
        for value in values:
            self._count += 1
            if value <= _LEAST:
                self._tiny += 1
                continue
            bucket = ceil(log(value) * _SCALE)
            buckets[bucket] = buckets.get(bucket, 0) + 1

    def read(self, *shares: float) -> tuple[float, ...]:
        """Return the values at these shares (0..1, rising) by nearest rank; zeros when nothing was counted."""
        found: list[float] = []
        ordered = sorted(self._buckets.items())
        seen, at = self._tiny, 0
        value = 0.0
        for share in shares:
            rank = max(1, math.ceil(share * self._count))
            while seen < rank and at < len(ordered):
                bucket, count = ordered[at]
                value = 2 * _GAMMA**bucket / (_GAMMA + 1)
                seen += count
                at += 1
            found.append(value)
        return tuple(found)
