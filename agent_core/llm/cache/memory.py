"""Both tiers in the memory of one process, bounded."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import mul
from typing import Any

from agent_core.llm.cache.policy import Entry, Scored


class MemoryExact:
    """Entries in a dict; the least recently used goes when there are more than ``limit``."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    async def get(self, key: str) -> Entry | None:
        """Return the entry, or None."""
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    async def put(self, key: str, entry: Entry, ttl_s: float) -> None:
        """Keep the entry; whether it has expired is for the reader to see."""
        self._entries.pop(key, None)
        self._entries[key] = entry
        while len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    async def count(self, origin: str) -> int:
        """Return how many entries have this origin."""
        return sum(entry.origin == origin for entry in self._entries.values())

    async def drop(self, origin: str) -> int:
        """Drop every entry with this origin."""
        keys = [key for key, entry in self._entries.items() if entry.origin == origin]
        for key in keys:
            del self._entries[key]
        return len(keys)

    async def aclose(self) -> None:
        """Forget everything."""
        self._entries.clear()


class MemorySemantic:
    """Vectors compared one by one, with numpy where it is installed; the oldest goes beyond ``limit``."""

    def __init__(self, limit: int = 2_000) -> None:
        self._limit = limit
        self._rows: dict[str, tuple[str, Sequence[float], Entry]] = {}
        self._pack: Callable[..., Any] = tuple
        self._dot: Callable[..., Any] = lambda a, b: sum(map(mul, a, b))
        try:
            import numpy as np
        except ImportError:
            return
        self._pack, self._dot = np.array, np.dot

    async def search(self, partition: str, vector: Sequence[float], now: float, limit: int) -> Scored:
        """Return the most similar entries of the partition, best first, off the loop: it may take milliseconds."""
        rows = [(unit, entry) for part, unit, entry in self._rows.values() if part == partition]
        return await asyncio.to_thread(self._rank, rows, self._unit(vector), now, limit) if rows else ()

    async def put(self, key: str, partition: str, vector: Sequence[float], entry: Entry) -> None:
        """Keep the entry under the direction of its vector."""
        self._rows.pop(key, None)
        self._rows[key] = (partition, self._unit(vector), entry)
        while len(self._rows) > self._limit:
            del self._rows[next(iter(self._rows))]

    async def count(self, origin: str) -> int:
        """Return how many entries have this origin."""
        return sum(row[2].origin == origin for row in self._rows.values())

    async def drop(self, origin: str) -> int:
        """Drop every entry with this origin."""
        before = len(self._rows)
        self._rows = {key: row for key, row in self._rows.items() if row[2].origin != origin}
        return before - len(self._rows)

    async def aclose(self) -> None:
        """Forget everything."""
        self._rows.clear()

    def _unit(self, vector: Sequence[float]) -> Sequence[float]:
        length = math.hypot(*vector)
        if not 0 < length < math.inf:
            raise ValueError("the embedding has no direction")
        unit: Sequence[float] = self._pack([x / length for x in vector])
        return unit

    def _rank(
        self, rows: Sequence[tuple[Sequence[float], Entry]], unit: Sequence[float], now: float, limit: int
    ) -> Scored:
        live = [row for row in rows if row[1].expires_at > now and len(row[0]) == len(unit)]
        return sorted(((float(self._dot(u, unit)), e) for u, e in live), key=lambda pair: -pair[0])[:limit]
