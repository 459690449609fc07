"""Whose turn it is: a bounded number of runs at once, shared out between threads, one for each."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bot.tools.python_sandbox.types import SandboxUnavailable

PER_CORE = 2
MOST_WAITING = 200


def count_places() -> int:
    """Return how many runs this machine takes at once: two for each core that this process may use."""
    return PER_CORE * len(os.sched_getaffinity(0))


class Turns:
    """A queue that is fair between keys: a thread that asks for ten runs does not hold up one that asks for one.

    Args:
        places: runs at once.
        most_waiting: bound of the queue; who comes later is told so.
    """

    def __init__(self, places: int, *, most_waiting: int = MOST_WAITING) -> None:
        self._free = places
        self._most_waiting = most_waiting
        self._running: set[str] = set()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def take(self, key: str) -> AsyncIterator[None]:
        """Hold a place for as long as the block takes. Cancelling gives it back, or leaves the queue.

        Raises:
            SandboxUnavailable: too many runs are waiting.
        """
        if self._free and key not in self._running and key not in self._waiting:
            self._begin(key)
        else:
            await self._wait(key)
        try:
            yield
        finally:
            self._end(key)

    def _begin(self, key: str) -> None:
        self._free -= 1
        self._running.add(key)

    def _end(self, key: str) -> None:
        self._free += 1
        self._running.discard(key)
        self._wake()

    async def _wait(self, key: str) -> None:
        if sum(map(len, self._waiting.values())) >= self._most_waiting:
            raise SandboxUnavailable("too many programs wait for the sandbox; nothing was run, try again in a minute")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end(key)  # it had been given the place in the same moment
            else:
                self._forget(key, turn)
            raise

    def _forget(self, key: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(key)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._waiting[key]

    def _wake(self) -> None:
        for key in tuple(self._waiting):
            if not self._free:
                return
            if key in self._running:
                continue
            queue = self._waiting[key]
            turn = queue.popleft()
            if queue:
                self._waiting.move_to_end(key)
            else:
                del self._waiting[key]
            if turn.done():  # cancelled; whoever waits on it does not need it
                self._wake()
                return
            self._begin(key)
            turn.set_result(None)
