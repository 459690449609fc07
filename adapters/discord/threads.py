"""Where an answer goes: the thread of a question, opened when something has to stand in it, or the channel itself.

Nothing is stored. What memory does not hold is asked again: a thread that is opened on a message has the message's
id, so ``GET`` tells whether there is one, and a second try to open it says so (160004).
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from weakref import WeakValueDictionary

import structlog

from adapters.chat import COMMAND_THREAD, Rejected, RetryLater, ThreadRef
from adapters.discord.client import MESSAGE, DiscordClient
from adapters.discord.content import build_title, read_name
from adapters.discord.history import read_text
from adapters.discord.outcome import (
    LOCKED,
    NO_ACCESS,
    NO_PERMISSION,
    NOT_THIS_CHANNEL,
    THREAD_EXISTS,
    TOO_MANY_THREADS,
    UNKNOWN_CHANNEL,
    UNKNOWN_MESSAGE,
    Failed,
)
from adapters.discord.parse import DIRECT
from adapters.discord.wire import id_of, part_of

log = structlog.get_logger("hermod.discord")

COMMAND = COMMAND_THREAD
"""Begins the ``thread`` of a slash command in a channel; the interaction's id follows."""

MOST_REMEMBERED = 5_000
UNNAMED = "Hermod"

NO_THREADS = frozenset({NO_PERMISSION, NO_ACCESS, NOT_THIS_CHANNEL, TOO_MANY_THREADS, LOCKED})
"""Codes that mean that no thread can be opened here, though a reply may be possible."""

_NOTICES = {
    TOO_MANY_THREADS: "-# I answer here: this server has as many active threads as Discord allows.",
    NOT_THIS_CHANNEL: "-# I answer here: this kind of channel has no threads.",
}
_NO_MESSAGE = "the message on which this thread begins was deleted, so there is no place for what belongs there"

_NOTICE = (
    "-# I answer here, since I may not open a thread in this channel; "
    "it takes the permissions Create Public Threads and Send Messages in Threads."
)


_MARKS = re.compile(r"\\([^\w\s])|\*{1,3}|__|~~|\|\||`|(?<!\w)_|_(?!\w)")
"""Marks inside a line, as ``render`` writes them, and the backslash before what is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to post: a channel or thread and, where there is no thread, the message to reply to."""

    channel_id: str
    reply_to: str = ""


@dataclass(slots=True)
class _Known:
    state: Literal["open", "missing", "none"] = "missing"  # none: there can be no thread
    title: str = ""
    notice: str = ""  # what people have to be told about the place, until it was told
    ours: bool = False  # opened by us just now, so that nobody has said anything in it


class DiscordThreads:
    """Knows and opens threads. Safe to call concurrently: one thread is opened once.

    Args:
        client: the REST API.
        redact: removes secrets from a question that becomes a name.
    """

    def __init__(self, client: DiscordClient, *, redact: Callable[[str], str] = str) -> None:
        self._client = client
        self._redact = redact
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def remember(self, thread: ThreadRef, *, exists: bool, title: str = "") -> None:
        """Take note of what an event told: the thread exists already, or will be called ``title`` when it is opened."""
        if thread.workspace == DIRECT or thread.thread.startswith(COMMAND):
            return
        known = self._known.get(thread.key)
        if known is None:
            self._keep(thread, _Known(state="open" if exists else "missing", title=title))
            return
        if exists:
            known.state = "open"
        known.title = known.title or title

    def find(self, thread: ThreadRef) -> Place | None:
        """Return the place as far as it is known without asking Discord; None when it is not, or not opened yet."""
        if thread.workspace == DIRECT or thread.thread.startswith(COMMAND):
            return Place(channel_id=thread.channel)
        known = self._known.get(thread.key)
        if known is None or known.state == "missing":
            return None
        if known.state == "open":
            return Place(channel_id=thread.thread)
        return Place(channel_id=thread.channel, reply_to=thread.thread)

    async def place(self, thread: ThreadRef) -> Place | Rejected | RetryLater:
        """Return where to post, and open the thread if that takes one.

        Where none can be opened (a permission, the kind of channel, the server's most threads) the answer is a reply
        in the channel, and ``notice`` says so.
        """
        found = self.find(thread)
        if found is not None:
            gone = self._client.calls.refusals.find("", found.channel_id)
            return _refused(gone) if gone is not None and gone.is_gone else found
        lock = self._opening.get(thread.key)
        if lock is None:
            lock = self._opening[thread.key] = asyncio.Lock()
        async with lock:
            return await self._open(thread)

    async def look(self, thread: ThreadRef) -> Place | Failed | None:
        """Return where posts of this thread stand, without opening one; None when there is no thread (yet).

        Also a question that just came in is asked for: it may come a second time, after a process that opened its
        thread died.
        """
        found = self.find(thread)
        if found is not None:
            return found
        channel = await self._client.fetch_channel(thread.thread)
        if isinstance(channel, Failed):
            return None if channel.code == UNKNOWN_CHANNEL else channel
        self.remember(thread, exists=True)
        return Place(channel_id=thread.thread)

    def notice(self, thread: ThreadRef) -> str:
        """Return what people still have to be told about the place, as a line of Discord's Markdown."""
        known = self._known.get(thread.key)
        return known.notice if known is not None else ""

    def told(self, thread: ThreadRef) -> None:
        """Take note that the notice was told."""
        known = self._known.get(thread.key)
        if known is not None:
            known.notice = ""

    def leave(self, thread: ThreadRef) -> bool:
        """Take note that nothing may be posted in a thread. True where the answer can be a reply in the channel now.

        That is so only for a thread that we just opened: what is said in another one is not for the channel.
        """
        known = self._known.get(thread.key)
        failed = self._client.calls.refusals.find(MESSAGE, thread.thread)
        if known is None or not known.ours or failed is None or failed.code not in (NO_PERMISSION, NO_ACCESS):
            return False
        log.warning("discord_thread_not_opened", channel=thread.channel, reason=failed.said)
        self._keep(thread, _Known(state="none", notice=_NOTICE))
        return True

    def is_new(self, thread: ThreadRef) -> bool:
        """True for a question that just came in, so that hardly anybody can have opened its thread."""
        known = self._known.get(thread.key)
        return known is not None and known.state == "missing"

    async def _open(self, thread: ThreadRef) -> Place | Rejected | RetryLater:
        found = self.find(thread) if self.is_new(thread) else await self.look(thread)
        if isinstance(found, Failed):
            return _refused(found)
        if found is not None:
            return found
        name = await self._name(thread)
        if isinstance(name, Failed):
            return _refused(name, what=_NO_MESSAGE)
        opened = await self._client.create_thread(thread.channel, thread.thread, name=name)
        if not isinstance(opened, Failed) or opened.code == THREAD_EXISTS:
            self._keep(thread, _Known(state="open", ours=not isinstance(opened, Failed)))
            return Place(channel_id=thread.thread)
        if opened.code not in NO_THREADS:
            return _refused(opened, what=_NO_MESSAGE)
        log.warning("discord_thread_not_opened", channel=thread.channel, reason=opened.said)
        self._keep(thread, _Known(state="none", notice=_NOTICES.get(opened.code, _NOTICE)))
        return Place(channel_id=thread.channel, reply_to=thread.thread)

    async def _name(self, thread: ThreadRef) -> str | Failed:
        """The name for a new thread: as it was remembered, else of the message itself."""
        known = self._known.get(thread.key)
        if known is not None and any(c.isalnum() for c in known.title):
            return build_title(known.title, "")
        message = await self._client.fetch_message(thread.channel, thread.thread)
        if isinstance(message, Failed):
            # without the permission to read, or for a while: the name is not worth failing for
            return message if message.code == UNKNOWN_MESSAGE or message.is_gone else UNNAMED
        own = await self._client.fetch_own_id()
        text = read_text(message, own=own, guild=thread.workspace)
        if id_of(part_of(message, "author"), "id") == own:  # people write names with marks in them, we only mark
            text = _MARKS.sub(r"\1", text)
        return build_title(self._redact(text), read_name(part_of(message, "author"), {}))

    def _keep(self, thread: ThreadRef, known: _Known) -> None:
        self._known[thread.key] = known
        self._known.move_to_end(thread.key)
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)


def _refused(failed: Failed, what: str = "") -> Rejected | RetryLater:
    """What it means that there is no place. Opening a thread twice is harmless, so nothing is in doubt."""
    if isinstance(failed.outcome, Rejected):
        gone = failed.is_gone or failed.code == UNKNOWN_MESSAGE
        return Rejected(reason=what if failed.code == UNKNOWN_MESSAGE and what else failed.said, gone=gone)
    return RetryLater(after_s=failed.later_s or 1.0, reason=failed.said)
