"""Everything that goes out to Discord: posts, drafts, typing, signs, files, and reading threads."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Protocol, TypeVar

import structlog

from adapters.chat import (
    Author,
    Delivered,
    Delivery,
    Draft,
    FileRef,
    InDoubt,
    Rejected,
    Reply,
    RetryLater,
    Said,
    ThreadRef,
)
from adapters.discord.body import build_nonce
from adapters.discord.client import DiscordClient
from adapters.discord.content import Names
from adapters.discord.drafts import DiscordDrafts
from adapters.discord.files import CDN_HOSTS, FILE_MAX, fetch_bytes, find_address, parse_address
from adapters.discord.history import ROOT_S, WINDOW_S, Search, build_said, fetch_history, find_posted
from adapters.discord.outcome import Failed
from adapters.discord.parcel import TEXT_MAX
from adapters.discord.parse import DIRECT
from adapters.discord.payload import Payload
from adapters.discord.render import content_size, render_reply
from adapters.discord.threads import COMMAND, DiscordThreads, Place
from adapters.discord.wire import Wire, snowflake_of, time_of

log = structlog.get_logger("hermod.discord")

SIGNS: Mapping[str, str] = MappingProxyType({"queued": "\u23f3", "seen": "\U0001f440", "stopped": "\U0001f6d1"})
"""The emoji of ``react``: an hourglass, eyes, a stop sign."""

TOKEN_S = 780.0
"""So long a command's answer certainly becomes its announced message, and may be repeated."""

MOST_REMEMBERED = 5_000

_Known = TypeVar("_Known")


class Answers(Protocol):
    """Posts by the token of an interaction, as ``DiscordInteractions`` does."""

    async def answer(self, reply: Reply, payload: Payload) -> Delivery | None:
        """Post a reply to an interaction; None when it is to be posted as the bot."""
        ...


class DiscordOutbound:
    """What a Discord ``ChatAdapter`` says. All methods may be called concurrently; see the contract for each.

    Args:
        client: the REST API.
        threads: knows where answers go.
        answers: posts replies to commands and buttons; without it all is posted as the bot.
        names: of channels and roles, for ``fetch_history``.
        file_max: given a guild's id, how many bytes of one file it takes.
        file_hosts: of files that may be fetched.
        now: the clock of the age of a command; aware.
        sleep: the clock of drafts; ``client.monotonic`` is its other half.
    """

    def __init__(
        self,
        client: DiscordClient,
        threads: DiscordThreads,
        *,
        answers: Answers | None = None,
        names: Names | None = None,
        file_max: Callable[[str], int] = lambda guild: FILE_MAX,
        file_hosts: Collection[str] = CDN_HOSTS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._threads = threads
        self._answers = answers
        self._names = names
        self._file_max = file_max
        self._file_hosts = frozenset(file_hosts)
        self._now = now
        self._sent: OrderedDict[str, float] = OrderedDict()  # by key: when it was posted for the first time
        self._unseen: OrderedDict[str, None] = OrderedDict()  # keys of private posts that nobody can look for
        self._no_typing: OrderedDict[str, None] = OrderedDict()  # channels in which we may not
        self._drafts = DiscordDrafts(client, threads, post=self.post, sleep=sleep)

    async def close(self) -> None:
        """Stop showing drafts; what is visible stays. Safe to call twice."""
        await self._drafts.close()

    # -- posting
    async def post(self, reply: Reply) -> Delivery:
        """Post one reply that fits ``LIMITS``. Failures are values; only cancellation is raised.

        A reply to a command or a button goes out by its interaction, as long as that is possible. A private one that
        cannot becomes a direct message: it is never shown to all.
        """
        try:
            # some texts take a second to be rendered, and nothing else must wait for that
            payload = await asyncio.to_thread(render_reply, reply)
        except ValueError as error:
            return Rejected(reason=f"the reply cannot be shown: {error}")
        _remember(self._sent, reply.key, self._sent.get(reply.key, self._client.monotonic()))
        outcome: Delivery | None = None
        if self._answers is not None and (reply.respond_to or reply.private_to):
            outcome = await self._answers.answer(reply, payload)
        if outcome is None and reply.private_to and reply.thread.workspace != DIRECT:
            outcome = await self._post_direct(reply, payload)
        if outcome is None:
            return await self._post_public(reply, replace(payload, private=False))
        if isinstance(outcome, InDoubt) and reply.private_to:
            _remember(self._unseen, reply.key, None)
        return outcome

    async def _post_public(self, reply: Reply, payload: Payload) -> Delivery:
        place = await self._threads.place(reply.thread)
        if not isinstance(place, Place):
            return place
        notice = self._threads.notice(reply.thread)
        text = f"{payload.content}\n{notice}" if notice else payload.content
        told = bool(notice) and content_size(text) <= TEXT_MAX
        outcome = await self._client.create_message(
            place.channel_id,
            replace(payload, content=text if told else payload.content, reply_to=place.reply_to),
            nonce=build_nonce(reply.key),
            priority=min(reply.priority, 1),  # also a notice is worth waiting for
            file_max=self._file_max(reply.thread.workspace),
        )
        if told and isinstance(outcome, Delivered):
            self._threads.told(reply.thread)
        if isinstance(outcome, Rejected) and self._threads.leave(reply.thread):
            return await self._post_public(reply, payload)
        return outcome

    async def _post_direct(self, reply: Reply, payload: Payload) -> Delivery:
        """Show a private reply to its reader in a direct message."""
        channel = await self._client.open_direct(reply.private_to)
        if isinstance(channel, Failed):
            # opening a conversation twice is harmless, so nothing is in doubt
            later = isinstance(channel.outcome, InDoubt)
            return RetryLater(after_s=1.0, reason=channel.said) if later else channel.outcome
        return await self._client.create_message(
            channel, replace(payload, private=False, reply_to=""), nonce=build_nonce(reply.key)
        )

    async def find_posted(self, thread: ThreadRef, key: str) -> Delivered | InDoubt | None:
        """Look for an earlier post with this key: found, certainly absent (None), or not readable.

        See ``Search`` for how it is known.
        """
        if key in self._unseen:
            return InDoubt(reason="a post that only one person sees cannot be looked for")
        own = await self._client.fetch_own_id()
        place = await self._threads.look(thread)
        if not own or isinstance(place, Failed):
            said = place.said if isinstance(place, Failed) else "Discord does not tell who we are now"
            return InDoubt(reason=f"the thread could not be read: {said}")
        repeatable = self._was_sent_lately(key) or self._is_announced(thread, key)
        return await find_posted(self._client, *self._build_search(thread, place, key, own), repeatable=repeatable)

    def _build_search(self, thread: ThreadRef, place: Place | None, key: str, own: str) -> tuple[str, Search]:
        """The channel to look in, and what for."""
        asked, now = thread.thread.removeprefix(COMMAND), self._now()
        if asked != thread.thread:  # a command in a channel, or a report, whose name tells no time
            since = asked if asked.isdecimal() else str(snowflake_of(now - timedelta(seconds=ROOT_S)))
            return thread.channel, Search(key, own=own, now=now, since=since, alone=False)
        if place is None or place.reply_to:  # it was not posted, or as a reply in the channel
            return thread.channel, Search(key, own=own, now=now, since=asked, reply_to=asked)
        return place.channel_id, Search(key, own=own, now=now, since=asked)

    def _was_sent_lately(self, key: str) -> bool:
        first = self._sent.get(key)
        return first is not None and self._client.monotonic() - first < WINDOW_S

    def _is_announced(self, thread: ThreadRef, key: str) -> bool:
        """True for the first part of the answer to a command: it becomes the announced message, however often."""
        asked, part = thread.thread.removeprefix(COMMAND), key.rpartition("/")[2]
        if self._answers is None or asked == thread.thread or not asked.isdecimal():
            return False
        first = not part.isdecimal() or int(part) <= 1
        return first and (self._now() - time_of(asked)).total_seconds() < TOKEN_S

    # -- while it works
    async def set_status(self, thread: ThreadRef, text: str) -> None:
        """Show the bot as typing for ten seconds, or until it posts. Best effort; never raises.

        A refusal that holds (no permission, no such channel) ends it for this place, a 429 for as long as it says. A
        command announces its answer anyway.
        """
        if not text or thread.thread.startswith(COMMAND):
            return
        place = await self._threads.place(thread)
        if not isinstance(place, Place) or place.channel_id in self._no_typing:
            return
        failed = await self._client.send_typing(place.channel_id)
        if failed is not None and isinstance(failed.outcome, Rejected):
            _remember(self._no_typing, place.channel_id, None)
            log.info("discord_typing_switched_off", channel=place.channel_id, reason=failed.said)

    async def react(self, thread: ThreadRef, message_id: str, sign: str) -> None:
        """Put a sign (``queued``, ``seen``, ``stopped``) on a message, or take it off (``-queued``). Best effort.

        The message on which a thread was opened stands in the parent channel, that of a forum's post in the thread.
        """
        emoji = SIGNS.get(sign.removeprefix("-"))
        if emoji is None or not message_id.isdecimal() or thread.thread.startswith(COMMAND):
            return
        places = dict.fromkeys((thread.thread, thread.channel))
        if message_id == thread.thread:
            places = dict.fromkeys((thread.channel, thread.thread))
        for channel_id in places:
            failed = await self._client.set_reaction(channel_id, message_id, emoji, on=not sign.startswith("-"))
            if failed is None or not failed.is_missing:
                break
        else:
            return
        if failed is not None:
            log.info("discord_sign_not_set", channel=channel_id, reason=failed.said)

    # -- drafts
    def open_draft(self, thread: ThreadRef, *, asker: Author | None) -> Draft | None:
        """Begin an answer that people see while it is written; see ``DiscordDrafts.open`` for where there is none."""
        return self._drafts.open(thread, asker=asker)

    async def discard_draft(self, thread: ThreadRef, remote_id: str) -> None:
        """Remove what a process that died left of a draft. Best effort; never raises."""
        await self._drafts.discard(thread, remote_id)

    # -- reading
    async def fetch_history(self, thread: ThreadRef, *, limit: int) -> tuple[Said, ...]:
        """Read what was said in a thread, oldest first, at most the newest ``limit``; empty when it cannot be read.

        A question that just came in has no past: its thread is not opened yet.
        """
        if thread.thread.startswith(COMMAND) or limit <= 0 or self._threads.is_new(thread):
            return ()
        place = await self._threads.look(thread)
        if isinstance(place, Failed):
            log.warning("discord_history_not_read", channel=thread.channel, reason=place.said)
            return ()
        own = await self._client.fetch_own_id()

        def read(message: Wire) -> Said | None:
            return build_said(message, own=own, guild=thread.workspace, names=self._names)

        direct = thread.workspace == DIRECT
        opened = direct or (place is not None and not place.reply_to)
        return await fetch_history(
            self._client,
            channel_id=place.channel_id if place is not None and opened else "",
            limit=limit,
            read=read,
            starter=None if direct else (thread.channel, thread.thread),
        )

    async def fetch_file(self, file: FileRef, *, max_bytes: int) -> bytes | None:
        """Fetch an attached file, never more than ``max_bytes``; None when it cannot or must not be fetched.

        Addresses of files end after a day, so the message is asked for a new one.
        """
        where = parse_address(file)
        if where is None:
            content: bytes | str = "it is no attachment of a message"
        elif file.size > max_bytes:
            content = f"it has {file.size} bytes"
        else:
            channel_id, message_id, attachment_id = where
            url, content = find_address(await self._client.fetch_message(channel_id, message_id), attachment_id)
            if url:
                content = await fetch_bytes(self._client.http, url, max_bytes=max_bytes, hosts=self._file_hosts)
        if isinstance(content, str):
            log.warning("discord_file_not_fetched", file=file.id, reason=content)
            return None
        return content


def _remember(keys: OrderedDict[str, _Known], key: str, value: _Known) -> None:
    keys[key] = value
    keys.move_to_end(key)
    while len(keys) > MOST_REMEMBERED:
        keys.popitem(last=False)
