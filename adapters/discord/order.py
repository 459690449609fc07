"""Keeps what arrives in one place in its order, while places go on side by side and the gateway's reader goes on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger("hermod.discord")

Work = Callable[[], Awaitable[object]]

MOST_WAITING = 10_000
"""So much may wait in all; what comes then is not taken."""


class Lanes:
    """Runs work one after the other for each key. Keys without work cost nothing.

    Args:
        most: see ``MOST_WAITING``.
    """

    def __init__(self, *, most: int = MOST_WAITING) -> None:
        self._most = most
        self._waiting: dict[str, deque[Work]] = {}
        self._running: dict[str, asyncio.Future[object]] = {}
        self._count = 0

    @property
    def count(self) -> int:
        """How much waits or runs."""
        return self._count

    def put(self, key: str, work: Work) -> bool:
        """Add work behind what waits for ``key``; returns at once. False: there is too much, and it was not taken."""
        if self._count >= self._most:
            return False
        self._count += 1
        self._waiting.setdefault(key, deque()).append(work)
        if key not in self._running:
            self._start(key)
        return True

    async def drain(self, grace_s: float) -> int:
        """Wait up to ``grace_s`` seconds until all is done, then end the rest.

        Returns:
            How much was not done.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + grace_s
        while self._running and loop.time() < end:
            await asyncio.wait(set(self._running.values()), timeout=end - loop.time())
            await asyncio.sleep(0)  # lets the next of each key start
        left = self._count
        self._count -= sum(map(len, self._waiting.values()))
        self._waiting.clear()
        running = set(self._running.values())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        return left

    def _start(self, key: str) -> None:
        work = self._waiting[key].popleft()
        task = asyncio.ensure_future(work())
        self._running[key] = task
        task.add_done_callback(lambda done: self._next(key, done))

    def _next(self, key: str, done: asyncio.Future[object]) -> None:
        self._count -= 1
        del self._running[key]
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("discord_event_failed", reason=type(error).__name__, exc_info=error)
        if self._waiting.get(key):
            self._start(key)
        else:
            self._waiting.pop(key, None)
