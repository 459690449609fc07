"""Keeps what arrives in one thread in the order in which it was said, while threads go on side by side.

Slack gives each event to one of several connections, so that of two messages that follow each other closely the
later one may be read first.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _Ticket:
    at: str
    number: int
    granted: asyncio.Future[None]
    settled: bool = False

    def __lt__(self, other: _Ticket) -> bool:
        return (self.at, self.number) < (other.at, other.number)


@dataclass(slots=True)
class _Line:
    waiting: list[_Ticket] = field(default_factory=list)
    busy: bool = False


class ArrivalOrder:
    """Lets one at a time into each key, the earliest first. Keys that nobody waits for cost nothing.

    Args:
        settle_s: how long each one lets others of its key come forward, which were said before and read after it.
        sleep: the clock.
    """

    def __init__(self, *, settle_s: float = 0.003, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._settle_s = settle_s
        self._sleep = sleep
        self._lines: dict[str, _Line] = {}
        self._numbers = itertools.count()

    @asynccontextmanager
    async def turn(self, key: str, at: str = "") -> AsyncIterator[None]:
        """Wait for those who were said before ``at`` (Slack's ``ts``), then hold the key for the block."""
        line = self._lines.setdefault(key, _Line())
        ticket = _Ticket(at, next(self._numbers), asyncio.get_running_loop().create_future())
        heapq.heappush(line.waiting, ticket)
        try:
            await self._sleep(self._settle_s)
            ticket.settled = True
            self._let_next(line)
            await ticket.granted
            yield
        finally:
            self._leave(key, line, ticket)

    def _let_next(self, line: _Line) -> None:
        if line.busy or not line.waiting or not line.waiting[0].settled:
            return  # an unsettled one calls again when it has settled
        line.busy = True
        heapq.heappop(line.waiting).granted.set_result(None)

    def _leave(self, key: str, line: _Line, ticket: _Ticket) -> None:
        if ticket.granted.done() and not ticket.granted.cancelled():
            line.busy = False
        elif ticket in line.waiting:  # cancelled while it waited
            line.waiting.remove(ticket)
            heapq.heapify(line.waiting)
        self._let_next(line)
        if not line.busy and not line.waiting:
            self._lines.pop(key, None)
