"""An answer that people see while it is written: one message that is edited, with a stop button under it.

**How a draft becomes the answer.** An edit carries no nonce, and what a message says does not tell which reply it is;
so a message that was edited into the reply could not be told from a draft after ``kill -9``. Therefore ``finish`` posts
the reply like any other one (with its nonce, by the same door), and only then takes the draft away:

- killed before the post: the draft has its stop button and its row; whoever takes over removes it and posts;
- killed between post and removal: the post is found by its nonce, and the draft, which is another message, removed;
- the post is refused for a while, or in doubt: the draft stays until it is settled.

So the answer is never missing and never there twice; it is new to whoever watches the thread, and pings those whom it
mentions, which an edit would not. A reply that needs several messages is left to the sender, which cuts it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Protocol
from weakref import WeakSet

import structlog

from adapters.chat import Author, Delivered, Delivery, InDoubt, PlanStep, Rejected, Reply, RetryLater, ThreadRef
from adapters.discord.buttons import build_stop, has_stop
from adapters.discord.client import DiscordClient
from adapters.discord.outcome import Failed
from adapters.discord.page import Page, plan_lines, turn_page
from adapters.discord.payload import Payload
from adapters.discord.render import CONTENT_MAX, content_size, fits
from adapters.discord.threads import COMMAND, DiscordThreads, Place
from adapters.discord.wire import Wire, id_of, part_of
from adapters.markdown.growing import settle

log = structlog.get_logger("hermod.discord")

FIRST_S = 0.25
"""How long the first words wait for more."""

QUICK_S = 1.2
"""How often a draft is edited while Discord takes every edit."""

SLOW_S = 12.0
"""How seldom at most; each refusal doubles the time, each edit that is taken brings it down again."""

HALT_S = 10.0
CLOSE_S = 3.0
PAUSE_MAX_S = 60.0
MOST_TRIES = 3
PROGRESS = 2
"""The priority of what never waits for its turn."""


class DraftPort(Protocol):
    """What a draft needs of its thread. Every failure is a value; only cancellation is raised."""

    async def create(self, payload: Payload, *, nonce: str) -> Delivery:
        """Post a message in the thread; never waits for its turn. The same nonce never makes a second one."""
        ...

    async def edit(self, message_id: str, payload: Payload) -> Delivery:
        """Make a message another one; never waits for its turn."""
        ...

    async def delete(self, message_id: str) -> None:
        """Take a message away, as well as it can be done."""
        ...

    async def clear(self) -> None:
        """Take away whatever of ours stands unfinished in the thread, as well as it can be done."""
        ...

    async def post(self, reply: Reply) -> Delivery:
        """Post a reply as ``ChatAdapter.post`` does."""
        ...


class DiscordDraft:
    """See ``adapters.chat.Draft``.

    ``show`` never waits for Discord: a task writes the newest text as often as Discord takes it, and leaves out what
    came in between.

    Args:
        port: the thread.
        monotonic, sleep: the clock.
    """

    def __init__(
        self,
        port: DraftPort,
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._port = port
        self._monotonic = monotonic
        self._sleep = sleep
        self._nonce = secrets.token_hex(12)
        self._id = ""
        self._lost = False  # Discord did not tell whether the message was made
        self._tries = 0
        self._text = ""
        self._plan: tuple[PlanStep, ...] = ()
        self._page = Page()
        self._shown: Payload | None = None
        self._closed = asyncio.Event()
        self._calling = False
        self._changed = asyncio.Event()
        self._pause_s = QUICK_S
        self._next_at = 0.0
        self._writer: asyncio.Task[None] | None = None

    @property
    def remote_id(self) -> str:
        """The id of the message; empty while nothing is visible."""
        return self._id

    async def show(self, text: str, plan: Sequence[PlanStep] = ()) -> None:
        """Show the whole text so far, soon; returns at once."""
        if self._closed.is_set():
            return
        self._text, self._plan = text.lstrip(), tuple(plan)
        if self._writer is None:
            self._next_at = self._monotonic() + FIRST_S
            self._writer = asyncio.create_task(self._write(), name=f"discord-draft-{self._nonce}")
        self._changed.set()

    async def finish(self, reply: Reply) -> Delivery | None:
        """Post the reply and take the draft away; see the module. May be called again after ``RetryLater``."""
        await self.halt()
        await self._find_lost()
        if not self._id:
            return None
        if reply.private_to or not await asyncio.to_thread(fits, reply.text):
            await self._remove()
            return None
        outcome = await self._port.post(reply)
        if isinstance(outcome, Delivered):
            await self._remove()
        return outcome

    async def abandon(self) -> None:
        """Remove what is visible."""
        await self.halt()
        await self._find_lost()
        await self._remove()

    async def halt(self, within_s: float = HALT_S) -> None:
        """Write nothing more; a call that is under way is waited for, so long. What is visible stays."""
        self._closed.set()
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if self._calling:
            await asyncio.wait([writer], timeout=within_s)
        if not writer.done():
            self._lost |= self._calling and not self._id
            writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)

    # -- while it is written
    async def _write(self) -> None:
        while not self._closed.is_set():
            await self._changed.wait()
            wait_s = self._next_at - self._monotonic()
            if wait_s > 0:
                await self._sleep(wait_s)
            self._changed.clear()
            payload = self._build()
            if self._closed.is_set() or payload is None or payload == self._shown:
                continue
            with self._call_under_way():
                outcome = await self._send(payload)
            self._next_at = self._monotonic() + min(self._take(payload, outcome), PAUSE_MAX_S)

    @contextmanager
    def _call_under_way(self) -> Iterator[None]:
        self._calling = True
        try:
            yield
        finally:
            self._calling = False

    async def _send(self, payload: Payload) -> Delivery:
        if self._id:
            return await self._port.edit(self._id, payload)
        return await self._port.create(payload, nonce=self._nonce)

    def _take(self, payload: Payload, outcome: Delivery) -> float:
        """Take note of what became of a call; returns how long to wait before the next one."""
        match outcome:
            case Delivered(remote_id=remote_id):
                # after a doubt Discord may have answered with what it had made then, so it is written once more
                self._shown = None if self._lost else payload
                if self._lost:
                    self._changed.set()
                self._id, self._lost, self._tries = self._id or remote_id, False, 0
                self._pause_s = max(QUICK_S, self._pause_s * 0.8)
                return self._pause_s
            case RetryLater(after_s=after_s):
                self._pause_s = min(SLOW_S, self._pause_s * 2)
                self._changed.set()
                return max(after_s, self._pause_s)
            case InDoubt(reason=reason):
                self._lost |= not self._id
                self._tries += 1
                if self._tries >= MOST_TRIES:
                    self._closed.set()
                self._changed.set()
            case Rejected(reason=reason):
                self._closed.set()
        log.info("discord_draft_not_shown", reason=reason, given_up=self._closed.is_set())
        return self._pause_s

    def _build(self) -> Payload | None:
        """Build what is to be seen now; None while that is nothing."""
        plan = plan_lines(self._plan)
        head = "\n".join(plan)
        self._page = turn_page(self._page, settle(self._text), CONTENT_MAX - content_size(head) - 1)
        content = "\n".join([*plan, *([self._page.content] if self._page.content else [])])
        return Payload(content=content, components=build_stop()) if content.strip() else None

    # -- its end
    async def _find_lost(self) -> None:
        """Learn the id of a message that may have been made: asked for once more, Discord answers with the first.

        Where Discord does not take the question, there is no turn for it say, the message is looked for and removed.
        """
        if not self._lost:
            return
        self._lost = False
        outcome = await self._port.create(Payload(content="…", components=build_stop()), nonce=self._nonce)
        if isinstance(outcome, Delivered):
            self._id = outcome.remote_id
        else:
            log.info("discord_draft_looked_for", reason=outcome.reason)
            await self._port.clear()

    async def _remove(self) -> None:
        message_id, self._id = self._id, ""
        if message_id:
            await self._port.delete(message_id)


class DiscordDrafts:
    """Begins drafts, and removes what a process that died left of one. Safe to call concurrently.

    Args:
        client: the REST API.
        threads: knows where answers go.
        post: posts a reply as ``ChatAdapter.post`` does.
        sleep: the clock's; ``client.monotonic`` is its other half.
    """

    def __init__(
        self,
        client: DiscordClient,
        threads: DiscordThreads,
        *,
        post: Callable[[Reply], Awaitable[Delivery]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._threads = threads
        self._post = post
        self._sleep = sleep
        self._drafts: WeakSet[DiscordDraft] = WeakSet()

    def open(self, thread: ThreadRef, *, asker: Author | None) -> DiscordDraft | None:
        """Begin a draft.

        None for the answer of a command in a channel, which Discord announces itself, and for a bot that asks: it
        would take the first words for the answer.
        """
        if thread.thread.startswith(COMMAND) or (asker is not None and asker.bot):
            return None
        port = ThreadPort(self._client, self._threads, thread, self._post, partial(self.discard, thread, ""))
        draft = DiscordDraft(port, monotonic=self._client.monotonic, sleep=self._sleep)
        self._drafts.add(draft)
        return draft

    async def discard(self, thread: ThreadRef, remote_id: str) -> None:
        """Remove the message of a draft; without its id whatever of ours bears a stop button in this thread."""
        place = await self._threads.look(thread)
        if not isinstance(place, Place):
            if isinstance(place, Failed):
                log.warning("discord_draft_left", id=remote_id, reason=place.said)
            return
        for message_id in (remote_id,) if remote_id else await self._find_unfinished(place):
            await self._client.delete_message(place.channel_id, message_id)

    async def _find_unfinished(self, place: Place) -> tuple[str, ...]:
        own = await self._client.fetch_own_id()
        page = await self._client.fetch_messages(place.channel_id) if own else ()
        if isinstance(page, Failed):
            log.warning("discord_draft_left", reason=page.said)
            return ()
        return tuple(id_of(message, "id") for message in page if _is_unfinished(message, own, place))

    async def close(self) -> None:
        """Write nothing more; what is visible stays for ``discard``."""
        await asyncio.gather(*(draft.halt(CLOSE_S) for draft in list(self._drafts)))


def _is_unfinished(message: Wire, own: str, place: Place) -> bool:
    """True for a draft of ours. Where threads cannot be opened, a channel holds those of other questions too."""
    if id_of(part_of(message, "author"), "id") != own or not has_stop(message):
        return False
    return not place.reply_to or id_of(part_of(message, "message_reference"), "message_id") == place.reply_to


class ThreadPort:
    """A thread as ``DraftPort``; it is opened when something has to stand in it."""

    def __init__(
        self,
        client: DiscordClient,
        threads: DiscordThreads,
        thread: ThreadRef,
        post: Callable[[Reply], Awaitable[Delivery]],
        clear: Callable[[], Awaitable[None]],
    ) -> None:
        self._client = client
        self._threads = threads
        self._thread = thread
        self._post = post
        self._clear = clear

    async def create(self, payload: Payload, *, nonce: str) -> Delivery:
        """Post a message in the thread."""
        place = await self._threads.place(self._thread)
        if not isinstance(place, Place):
            return place
        payload = replace(payload, reply_to=place.reply_to)
        return await self._client.create_message(place.channel_id, payload, nonce=nonce, priority=PROGRESS)

    async def edit(self, message_id: str, payload: Payload) -> Delivery:
        """Make a message another one."""
        place = await self._threads.place(self._thread)
        if not isinstance(place, Place):
            return place
        return await self._client.edit_message(place.channel_id, message_id, payload, priority=PROGRESS)

    async def delete(self, message_id: str) -> None:
        """Take a message away."""
        place = await self._threads.place(self._thread)
        if isinstance(place, Place):
            await self._client.delete_message(place.channel_id, message_id)

    async def clear(self) -> None:
        """Take away whatever of ours stands unfinished in the thread."""
        await self._clear()

    async def post(self, reply: Reply) -> Delivery:
        """Post a reply."""
        return await self._post(reply)
