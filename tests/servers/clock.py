"""The clock of the chat servers: it runs with the machine's, and a test may turn it forward."""

from __future__ import annotations

import asyncio
import time


class Clock:
    """Monotonic seconds plus what ``advance`` added; sleepers wake when their time has come either way."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._turned = asyncio.Event()

    def now(self) -> float:
        """Seconds since some fixed point."""
        return time.monotonic() + self._ahead_s

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time() + self._ahead_s

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass at once."""
        self._ahead_s += seconds
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    async def sleep(self, seconds: float) -> None:
        """Sleep by this clock."""
        due = self.now() + seconds
        while (left := due - self.now()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._turned.wait()
            except TimeoutError:
                continue
