"""Statement shapes with their statistics, filled in one pass over a log and bounded in memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from bot.tools.slow_logs.keys import key_mysql, key_postgres
from bot.tools.slow_logs.mysql_text import fingerprint_mysql, redact_mysql
from bot.tools.slow_logs.sketch import Sketch
from bot.tools.slow_queries.redact_sql import fingerprint_sql, redact_sql

Who = tuple[bytes | None, ...]
"""User, database and application, as the log has them; always three."""

MOST_SHAPES = 5_000
"""Shapes that are kept apart; beyond it, those with the least time are summed up together."""

_MOST_KEYS = 20_000
_KEY_BYTES = 4 * 1024 * 1024
_MOST_WHO = 8
_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How statements of one family are named and redacted."""

    key: Callable[[bytes], bytes]
    redact: Callable[[str], str]
    fingerprint: Callable[[str], str]


POSTGRES = Dialect(key=key_postgres, redact=redact_sql, fingerprint=fingerprint_sql)
MYSQL = Dialect(key=key_mysql, redact=redact_mysql, fingerprint=fingerprint_mysql)


class Shape:
    """One statement shape. Durations are seconds, instants seconds since 1970.

    ``fold`` has to be called before the figures are read: durations come in batches.
    """

    __slots__ = (
        "buffer",
        "calls",
        "cancelled",
        "fingerprint",
        "first",
        "last",
        "least",
        "longest",
        "mean",
        "moment",
        "over",
        "plan",
        "plan_s",
        "rows",
        "rows_known",
        "sketch",
        "sql",
        "steps_s",
        "total_s",
        "who",
    )

    def __init__(self, fingerprint: str, sql: str) -> None:
        self.fingerprint = fingerprint
        self.sql = sql
        self.buffer: list[float] = []
        self.calls = self.cancelled = self.over = self.rows = 0
        self.total_s = self.mean = self.moment = self.longest = self.steps_s = self.plan_s = 0.0
        self.least = math.inf
        self.first, self.last = math.inf, -math.inf
        self.rows_known = False
        self.sketch = Sketch()
        self.who: dict[Who, int] = {}
        self.plan = ""

    def fold(self, threshold_s: float) -> None:
        """Work the waiting durations into the figures; mean and moment by Chan, Golub and LeVeque's pairwise update."""
        batch = self.buffer
        count = len(batch)
        if not count:
            return
        total = math.fsum(batch)
        mean = total / count
        moment = sum([(value - mean) ** 2 for value in batch])
        gap = mean - self.mean
        together = self.calls + count
        self.moment += moment + gap * gap * self.calls * count / together
        self.mean += gap * count / together
        self.calls = together
        self.total_s += total
        self.least = min(self.least, *batch) if count > 1 else min(self.least, batch[0])
        self.longest = max(self.longest, *batch) if count > 1 else max(self.longest, batch[0])
        self.over += sum([value >= threshold_s for value in batch]) if threshold_s > 0 else count
        self.sketch.add(batch)
        batch.clear()

    @property
    def stddev_s(self) -> float:
        """Of all executions (the population's), seconds."""
        return math.sqrt(max(0.0, self.moment / self.calls)) if self.calls else 0.0


@dataclass(slots=True, kw_only=True)
class Others:
    """What was summed up together because there were too many shapes."""

    shapes: int = 0
    calls: int = 0
    total_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class ShapeTable:
    """Takes executions and sums them up by shape. Not safe to share between threads.

    Args:
        dialect: of the statements.
        outside, before, timeless: how many executions were left out, those of them that lie before ``since``, and those
            of which the log does not tell the time.
        lexed: how many texts the lexer had to look at.
        since, until: executions at or after the one and before the other are taken (seconds since 1970); those of
            unknown time only while neither is given.
        threshold_s: executions that took at least this are counted in ``Shape.over``.
    """

    dialect: Dialect
    since: float = -math.inf
    until: float = math.inf
    threshold_s: float = 0.0
    most_shapes: int = MOST_SHAPES
    others: Others = field(default_factory=Others)
    outside: int = 0
    before: int = 0
    timeless: int = 0
    lexed: int = 0
    _by_key: dict[bytes, Shape] = field(default_factory=dict)
    _key_bytes: int = 0
    _by_fingerprint: dict[str, Shape] = field(default_factory=dict)

    def add(self, at: float, duration_s: float, text: bytes, who: Who, rows: int | None = None) -> Shape | None:
        """Take one execution; ``at`` is NaN where the log does not say. None when it is out of the range."""
        if not self.since <= at < self.until and self._leaves_out(at):
            return None
        key = self.dialect.key(text)
        shape = self._by_key.get(key)
        if shape is None:
            shape = self._learn(key, text)
        buffer = shape.buffer
        buffer.append(duration_s)
        if len(buffer) >= _BATCH:
            shape.fold(self.threshold_s)
        # Calls of max() and min() for every execution would cost a tenth of the whole reading.
        if at > shape.last:  # noqa: PLR1730
            shape.last = at
        if at < shape.first:  # noqa: PLR1730
            shape.first = at
        counts = shape.who
        if who in counts:
            counts[who] += 1
        elif len(counts) < _MOST_WHO:
            counts[who] = 1
        if rows is not None:
            shape.rows += rows
            shape.rows_known = True
        return shape

    def add_step(self, at: float, duration_s: float, text: bytes) -> None:
        """Take the time of a parse or bind step: it belongs to the shape, and is no execution of its own."""
        if self.since <= at < self.until or not self._leaves_out(at):
            self.find(text).steps_s += duration_s

    def add_cancelled(self, at: float, text: bytes, who: Who) -> None:
        """Take an execution that was ended by a timeout or a person; the log does not say how long it had run."""
        if not self.since <= at < self.until and self._leaves_out(at):
            return
        shape = self.find(text)
        shape.cancelled += 1
        shape.first, shape.last = min(shape.first, at), max(shape.last, at)
        shape.who[who] = shape.who.get(who, 0) + (not shape.calls)

    def find(self, text: bytes) -> Shape:
        """Return the shape of a statement, which is new when there is none yet."""
        key = self.dialect.key(text)
        return self._by_key.get(key) or self._learn(key, text)

    @property
    def calls(self) -> int:
        """Executions that were taken, up to the last ``finish``."""
        return self.others.calls + sum(shape.calls for shape in self._by_fingerprint.values())

    def finish(self) -> list[Shape]:
        """Return all shapes, their figures up to date."""
        for shape in self._by_fingerprint.values():
            shape.fold(self.threshold_s)
        return list(self._by_fingerprint.values())

    def _leaves_out(self, at: float) -> bool:
        if math.isnan(at):
            if self.since == -math.inf and self.until == math.inf:
                return False
            self.timeless += 1
            return True
        self.outside += 1
        self.before += at < self.since
        return True

    def _learn(self, key: bytes, text: bytes) -> Shape:
        """Let the lexer look at a text; only what it leaves is kept."""
        self.lexed += 1
        sql = text.decode("utf-8", "replace")
        fingerprint = self.dialect.fingerprint(sql)
        shape = self._by_fingerprint.get(fingerprint)
        if shape is None:
            if len(self._by_fingerprint) >= self.most_shapes:
                self._sum_up_least()
            shape = Shape(fingerprint, self.dialect.redact(sql))
            self._by_fingerprint[fingerprint] = shape
        if len(self._by_key) >= _MOST_KEYS or self._key_bytes > _KEY_BYTES:
            self._by_key.clear()
            self._key_bytes = 0
        self._by_key[key] = shape
        self._key_bytes += len(key)
        return shape

    def _sum_up_least(self) -> None:
        """Sum up the half of the shapes that took the least time; one that comes again is counted anew."""
        ranked = sorted(self.finish(), key=lambda shape: shape.total_s)
        for shape in ranked[: len(ranked) // 2]:
            self.others.shapes += 1
            self.others.calls += shape.calls
            self.others.total_s += shape.total_s
            del self._by_fingerprint[shape.fingerprint]
        self._by_key.clear()
        self._key_bytes = 0
