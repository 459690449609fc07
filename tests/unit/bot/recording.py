"""A chat platform in memory, whose answers a test decides."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
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
    PlanStep,
    Problem,
    Reply,
    Said,
    ThreadRef,
)

ALICE = Author(id="U1", name="alice")
BOB = Author(id="U2", name="bob")


class MemoryDraft:
    """Keeps what it was told to show; becomes a post, or goes."""

    def __init__(self, chat: MemoryChat) -> None:
        self._chat = chat
        self.remote_id = ""
        self.shown: list[tuple[str, tuple[PlanStep, ...]]] = []

    async def show(self, text: str, plan: Sequence[PlanStep] = ()) -> None:
        self.shown.append((text, tuple(plan)))
        self.remote_id = self.remote_id or self._chat.next_id("d")
        self._chat.visible[self.remote_id] = text
        self._chat.showing.set()
        await self._chat.may_show.wait()

    async def finish(self, reply: Reply) -> Delivery | None:
        if self._chat.finishes:
            outcome = self._chat.finishes.pop(0)
            return outcome(reply) if callable(outcome) else outcome
        if not self.remote_id:
            return None
        self._chat.visible.pop(self.remote_id)
        self._chat.posts.append(reply)
        self._chat.finished.append(reply.key)
        self._chat.became[self.remote_id] = reply
        return Delivered(remote_id=self.remote_id)

    async def abandon(self) -> None:
        self._chat.visible.pop(self.remote_id, None)


class MemoryChat(PlainPlatform):
    """Keeps what is posted. ``outcomes`` are taken for the next posts, each a value or a function of the reply.

    ``drafts`` gives drafts (``visible``: what people see of unfinished ones; ``finishes``: outcomes like ``outcomes``),
    ``past`` is what a thread's history tells (None: this platform has none).
    """

    platform = "memory"
    capabilities = Capabilities(status=True, status_ttl_s=0)
    limits = Limits(text_max=4000)
    connected = True

    def __init__(self, *, drafts: bool = False, past: Sequence[Said] | None = None) -> None:
        self.capabilities = replace(self.capabilities, drafts=drafts, history=past is not None)
        self.posts: list[Reply] = []
        self.statuses: list[str] = []
        self.outcomes: list[Delivery | Callable[[Reply], Delivery]] = []
        self.lookups: list[Delivered | InDoubt | None] = []
        self.reactions: list[tuple[str, str]] = []
        self.drafts: list[MemoryDraft] = []
        self.visible: dict[str, str] = {}
        self.finishes: list[Delivery | Callable[[Reply], Delivery | None] | None] = []
        self.finished: list[str] = []
        self.became: dict[str, Reply] = {}
        self.discarded: list[str] = []
        self.past = list(past or ())
        self.fetches = 0
        self.showing = asyncio.Event()
        self.may_show = asyncio.Event()
        self.may_show.set()
        self._numbers = itertools.count(1)
        self._posted = asyncio.Event()

    def next_id(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    def open_draft(self, thread: ThreadRef, *, asker: Author | None) -> MemoryDraft | None:
        if not self.capabilities.drafts:
            return None
        self.drafts.append(MemoryDraft(self))
        return self.drafts[-1]

    async def discard_draft(self, thread: ThreadRef, remote_id: str) -> None:
        self.discarded.append(remote_id)
        if remote_id in self.became:  # whoever is told to remove an answer removes it
            self.posts.remove(self.became[remote_id])
        elif remote_id:
            self.visible.pop(remote_id, None)
        else:
            self.visible.clear()

    async def fetch_history(self, thread: ThreadRef, *, limit: int) -> tuple[Said, ...]:
        self.fetches += 1
        return tuple(self.past[-limit:])

    async def react(self, thread: ThreadRef, message_id: str, sign: str) -> None:
        self.reactions.append((message_id, sign))

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
        return Delivered(remote_id=self.next_id("m"))

    async def wait_for_posts(self, count: int, timeout_s: float = 30.0) -> None:
        """Wait until so many posts are there."""
        async with asyncio.timeout(timeout_s):
            while len(self.posts) < count:
                self._posted.clear()
                await self._posted.wait()

    async def find_posted(self, thread: ThreadRef, key: str) -> Delivered | InDoubt | None:
        if self.lookups:
            return self.lookups.pop(0)
        drafted = next((remote_id for remote_id, reply in self.became.items() if reply.key == key), "found")
        return Delivered(remote_id=drafted) if any(p.key == key for p in self.posts) else None

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
