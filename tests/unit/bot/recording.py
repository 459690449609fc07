"""A chat platform in memory, whose answers a test decides."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import UTC, datetime

from adapters.chat import (
    Accept,
    Author,
    Capabilities,
    Delivered,
    Delivery,
    InDoubt,
    Limits,
    Message,
    PlainPlatform,
    Problem,
    Reply,
    ThreadRef,
)

ALICE = Author(id="U1", name="alice")
BOB = Author(id="U2", name="bob")


class MemoryChat(PlainPlatform):
    """Keeps what is posted. ``outcomes`` are taken for the next posts, each a value or a function of the reply."""

    platform = "memory"
    capabilities = Capabilities(status=True, status_ttl_s=0)
    limits = Limits(text_max=4000)
    connected = True

    def __init__(self) -> None:
        self.posts: list[Reply] = []
        self.statuses: list[str] = []
        self.outcomes: list[Delivery | Callable[[Reply], Delivery]] = []
        self.lookups: list[Delivered | InDoubt | None] = []
        self._numbers = itertools.count(1)
        self._posted = asyncio.Event()

    async def start(self, accept: Accept) -> None: ...

    async def stop(self) -> None: ...

    async def post(self, reply: Reply) -> Delivery:
        if self.outcomes:
            outcome = self.outcomes.pop(0)
            return outcome if not callable(outcome) else outcome(reply)
        return self.take(reply)

    def take(self, reply: Reply) -> Delivery:
        """Post for real."""
        self.posts.append(reply)
        self._posted.set()
        return Delivered(remote_id=f"m{next(self._numbers)}")

    async def wait_for_posts(self, count: int, timeout_s: float = 10.0) -> None:
        """Wait until so many posts are there."""
        async with asyncio.timeout(timeout_s):
            while len(self.posts) < count:
                self._posted.clear()
                await self._posted.wait()

    async def find_posted(self, thread: ThreadRef, key: str) -> Delivered | InDoubt | None:
        if self.lookups:
            return self.lookups.pop(0)
        return Delivered(remote_id="found") if any(p.key == key for p in self.posts) else None

    async def set_status(self, thread: ThreadRef, text: str) -> None:
        self.statuses.append(text)

    async def check(self) -> tuple[Problem, ...]:
        return ()


def message(
    text: str,
    *,
    number: int = 1,
    author: Author = ALICE,
    thread: str = "t1",
    mentioned: bool = True,
    channel: str = "C1",
) -> Message:
    place = ThreadRef(platform="memory", workspace="W1", channel=channel, thread=thread)
    return Message(
        thread=place,
        id=f"id{number}",
        author=author,
        text=text,
        mentioned=mentioned,
        sent_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
