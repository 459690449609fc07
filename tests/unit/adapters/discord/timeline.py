"""Time that a test turns."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count


class Timeline:
    """Time that goes to the next sleeper when everybody sleeps."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._numbers = count()

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        heapq.heappush(self._sleepers, (self.seconds + seconds, next(self._numbers), woken))
        await woken.wait()

    async def settle(self) -> None:
        """Let everything run that need not wait for time."""
        for _ in range(30):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let time pass, and what was due run."""
        end = self.seconds + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.seconds, _, woken = heapq.heappop(self._sleepers)
            woken.set()
            await self.settle()
        self.seconds = end
        await self.settle()
