"""What the gateway brings: understood, and handed over until it is stored.

Discord delivers an event once per session and wants no acknowledgement, so nothing brings back what could not be
stored: it is handed over again here, a few times. The reader of the gateway never waits: it puts what came into
``Lanes``, which keep each thread in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

import discord
import structlog

from adapters.chat import Accept, Inbound, Message, Removed, ThreadRef
from adapters.discord.content import build_title
from adapters.discord.directory import DiscordDirectory, PlaceUnknown
from adapters.discord.order import Lanes, Work
from adapters.discord.parse import (
    Channel,
    Identity,
    is_edited,
    is_for_us,
    is_ours,
    is_readable,
    mentions_us,
    parse_channel,
    parse_deleted,
    parse_message,
    parse_removed,
)
from adapters.discord.wire import Wire, id_of, ids_of, parse_time, parts_of, snowflake_of, text_of

log = structlog.get_logger("hermod.discord")

TRIES = 7
"""So often something is handed over when it cannot be stored: with the pauses between, for about half a minute."""

OnRemoved = Callable[[Removed], Awaitable[None]]
"""Called when a guild removed Hermod."""

OnUnreadable = Callable[[ThreadRef], Awaitable[None]]
"""Called when somebody says something in a thread of ours that comes without its content."""

OnInteraction = Callable[[discord.Interaction, Accept], Awaitable[None]]
"""Takes a command, a pressed button, or a half-typed option."""

FetchPage = Callable[[str, str], Awaitable["tuple[Wire, ...] | None"]]
"""Fetches the newest messages of a channel that are older than a message (empty: of all), the newest first, at most
100; None when it cannot."""

PAGES = 10
"""So many pages of a channel are read after a session was lost."""

OUTAGE_S = 120.0
"""So long before Discord says that a guild is unavailable its events may have ceased."""

_WITH_MESSAGES = (0, 2, 5, 10, 11, 12, 13)
_REMEMBERED = 5_000
_CONVERSATIONS = 200


class Threads(Protocol):
    """Where answers will go; ``threads.DiscordThreads``."""

    def remember(self, thread: ThreadRef, *, exists: bool, title: str = "") -> None:
        """Keep what is known of a thread: whether it is there, and what to call it otherwise."""
        ...


async def ignore(removed: Removed) -> None:
    """Do nothing."""


class DiscordIntake:
    """Understands events. ``take`` may be called at any time; nothing is taken before ``open`` and after ``close``.

    Args:
        directory: tells which place something stands in.
        threads: is told of every thread that something comes from.
        fetch_page: reads what no event told; see ``FetchPage``.
        bots: ids of other bots (or webhooks) whose mentions count; all others are dropped.
        on_interaction, on_removed, on_unreadable: see their types.
        redact: removes secrets from what becomes the name of a thread.
        retry_s: the pause before something is handed over again; it doubles.
        now, sleep: the clock.
    """

    def __init__(
        self,
        *,
        directory: DiscordDirectory,
        threads: Threads,
        fetch_page: FetchPage,
        bots: Collection[str] = (),
        on_interaction: OnInteraction,
        on_removed: OnRemoved = ignore,
        on_unreadable: OnUnreadable,
        redact: Callable[[str], str] = str,
        retry_s: float,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._directory = directory
        self._threads = threads
        self._fetch_page = fetch_page
        self._bots = frozenset(bots)
        self._on_interaction = on_interaction
        self._on_removed = on_removed
        self._on_unreadable = on_unreadable
        self._redact = redact
        self._retry_s = retry_s
        self._now = now
        self._sleep = sleep
        self._accept: Accept | None = None
        self._identity: Identity | None = None
        self._lanes = Lanes()
        self._own: dict[str, None] = {}  # ids of our own posts: that they are deleted is no news
        self._mentioned: dict[str, None] = {}  # ids of messages that mentioned us, so that an edit adds nothing
        self._handed: dict[str, None] = {}  # ids of messages that were handed over, so that none is read again
        self._direct: dict[str, None] = {}  # ids of conversations that something was said in
        self._gaps: dict[int, datetime] = {}  # by shard: since when messages may have been missed
        self._shown: set[str] = set()  # guilds that the sessions of now have shown
        self._away: dict[str, datetime] = {}  # by guild that is unavailable: since when
        self._shards = 1
        self._unread_told = False
        self.last_event_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        """True while events are taken."""
        return self._accept is not None

    def open(self, accept: Accept, identity: Identity, *, shards: int = 1) -> None:
        """Take events from now on; ``shards`` are there in all."""
        self._accept = accept
        self._identity = identity
        self._shards = shards

    def limit(self, identity: Identity) -> None:
        """Take note that the content of messages is kept from us from now on."""
        self._identity = identity

    def begin(self, shard: int, since: datetime) -> None:
        """Take note that a shard has a new session, and that what was said after ``since`` may have been missed."""
        self._gaps[shard] = since
        self._shown = {guild for guild in self._shown if self._shard_of(guild) != shard}
        accept, identity = self._accept, self._identity
        if accept is None or identity is None or shard:
            return
        for conversation in self._direct:  # shard 0 has all of them, and no event names them
            self._put(
                conversation, partial(self._catch_up, Channel(id=conversation), snowflake_of(since), accept, identity)
            )

    def close(self) -> None:
        """Take nothing more. What was taken is still handed over; see ``drain``."""
        self._accept = None

    async def drain(self, grace_s: float) -> None:
        """Wait up to ``grace_s`` seconds until what was taken is stored."""
        if left := await self._lanes.drain(grace_s):
            log.error("discord_events_lost", count=left, reason="Hermod was stopped while they could not be stored")

    # -- the gateway's reader calls these
    def take(self, kind: str, data: Wire) -> None:
        """Take an event; returns at once."""
        accept, identity = self._accept, self._identity
        if accept is None or identity is None:
            return
        self.last_event_at = self._now()
        match kind:
            case "MESSAGE_CREATE":
                self._take_said(data, accept, identity)
            case "MESSAGE_UPDATE":
                if self._adds_mention(data, identity):
                    self._take_said(data, accept, identity)
            case "MESSAGE_DELETE" | "MESSAGE_DELETE_BULK":
                self._take_deleted(data, accept)
            case "THREAD_DELETE":
                self._take_thread_deleted(data, accept)
            case "GUILD_CREATE":
                self._take_guild(data, accept, identity)
            case "GUILD_DELETE":
                self._take_guild_gone(data)

    def take_interaction(self, interaction: discord.Interaction) -> None:
        """Take an interaction; returns at once. Interactions wait for nothing, they have to be answered soon."""
        accept = self._accept
        if accept is not None:
            self.last_event_at = self._now()
            self._put(f"interaction-{interaction.id}", lambda: self._on_interaction(interaction, accept))

    def _take_said(self, said: Wire, accept: Accept, identity: Identity) -> None:
        message = id_of(said, "id")
        if is_ours(said, identity):
            _keep(self._own, message)
            return
        role = self._own_role(said)
        if not is_for_us(said, identity, role, self._bots):
            return
        channel, guild = id_of(said, "channel_id"), id_of(said, "guild_id")
        known = self._directory.find_known(channel, guild)
        at_top = known is not None and bool(known.guild) and not known.is_thread
        if not message or not channel or (at_top and not mentions_us(said, identity, role)):
            return  # what does not mention us counts in threads and direct messages only
        if mentions_us(said, identity, role):
            _keep(self._mentioned, message)
        if not guild:
            _keep(self._direct, channel, _CONVERSATIONS)
        self._put(message if at_top else channel, partial(self._say, said, accept, identity))

    def _adds_mention(self, said: Wire, identity: Identity) -> bool:
        """True for an edit by which a message mentions us that is not known to have done so before."""
        if not is_edited(said, self._now()) or id_of(said, "id") in self._mentioned:
            return False
        return mentions_us(said, identity, self._own_role(said))

    def _take_deleted(self, data: Wire, accept: Accept) -> None:
        ids = ids_of(data, "ids") or ids_of({"ids": [data.get("id")]}, "ids")
        if not ids or all(message in self._own for message in ids):
            return
        channel, guild = id_of(data, "channel_id"), id_of(data, "guild_id")
        known = self._directory.find_known(channel, guild)
        at_top = known is not None and bool(known.guild) and not known.is_thread
        for message in ids:
            if message not in self._own and channel:
                one = {"id": message, "channel_id": channel, "guild_id": guild}
                self._put(message if at_top else channel, partial(self._delete, one, accept))

    def _take_thread_deleted(self, data: Wire, accept: Accept) -> None:
        """A thread is gone, so its question is not answered any more."""
        thread = parse_channel(data)
        if thread is not None and thread.is_thread:
            for deleted in parse_deleted({"id": thread.id}, thread, self._now()):
                self._put(thread.id, partial(self._hand_over, deleted, accept))

    def _take_guild(self, data: Wire, accept: Accept, identity: Identity) -> None:
        """A guild is shown: read what was said in it while there was no session, or during its outage."""
        guild = id_of(data, "id")
        since = self._away.pop(guild, None) if guild in self._shown else self._gaps.get(self._shard_of(guild))
        if not guild or since is None:
            return
        self._shown.add(guild)
        joined = parse_time(text_of(data, "joined_at"))
        after = snowflake_of(since if joined is None else max(since, joined))
        for wire in (*parts_of(data, "channels"), *parts_of(data, "threads")):
            channel, newest = parse_channel(wire, guild), id_of(wire, "last_message_id")
            if channel is not None and wire.get("type") in _WITH_MESSAGES and newest and int(newest) > after:
                self._put(channel.id, partial(self._catch_up, channel, after, accept, identity))

    def _take_guild_gone(self, data: Wire) -> None:
        guild, removed = id_of(data, "id"), parse_removed(data)
        if removed is None:
            self._away.setdefault(guild, self._now() - timedelta(seconds=OUTAGE_S))
            return
        self._shown.discard(guild)
        self._away.pop(guild, None)
        self._put(removed.workspace, partial(self._remove, removed))

    def _shard_of(self, guild: str) -> int:
        return (int(guild) >> 22) % self._shards if guild else 0

    def _put(self, key: str, work: Work) -> None:
        if not self._lanes.put(key, work):
            log.error("discord_event_lost", reason="too much waits to be stored already", waiting=self._lanes.count)

    def _own_role(self, said: Wire) -> str:
        return self._directory.find_own_role(id_of(said, "guild_id")) if said.get("mention_roles") else ""

    # -- in the lanes
    async def _say(self, said: Wire, accept: Accept, identity: Identity) -> None:
        role = self._own_role(said)
        mentioned = mentions_us(said, identity, role)
        channel = await self._find_channel(said)
        if channel is None:
            if not mentioned:
                return
            # better an answer beside the thread than none
            channel = Channel(id=id_of(said, "channel_id"), guild=id_of(said, "guild_id"))
        if channel.guild and not channel.is_thread and not mentioned:
            return
        message = parse_message(said, channel, identity, self._directory, role)
        if message is None:
            log.warning("discord_event_not_understood", kind="MESSAGE_CREATE", reason="no address")
            return
        if not is_readable(said) and not mentioned:
            self._tell_unreadable(message, channel, identity)
            return
        exists = channel.is_thread or not channel.guild
        title = build_title(self._redact(message.text), message.author.name)
        self._threads.remember(message.thread, exists=exists, title=title)
        if await self._hand_over(message, accept):
            _keep(self._handed, message.id)

    async def _catch_up(self, channel: Channel, after: int, accept: Accept, identity: Identity) -> None:
        """Take what was said in a channel after an id, the oldest first. What is known already is known by its id."""
        seen: list[Wire] = []
        before, whole = "", False  # whole: what was seen begins before the gap, or with the channel
        for _ in range(PAGES):
            page = await self._fetch_page(channel.id, before)
            if page is None:
                log.warning("discord_gap_not_read", channel=channel.id)
                break
            seen += [{**said, "guild_id": channel.guild} for said in page if id_of(said, "id")]
            whole = len(page) < 100 or int(id_of(seen[-1], "id")) <= after
            if whole:
                break
            before = id_of(seen[-1], "id")
        begun = self._find_begin(seen, channel, identity) if whole else 0
        for said in reversed(seen):
            message = id_of(said, "id")
            if int(message) <= after or message in self._handed:
                continue
            if channel.guild and not channel.is_thread:
                self._take_said(said, accept, identity)
            elif int(message) >= begun and is_for_us(said, identity, self._own_role(said), self._bots):
                await self._say(said, accept, identity)  # here, so that what is said now comes after it

    def _find_begin(self, seen: Sequence[Wire], channel: Channel, identity: Identity) -> int:
        """Return the id of the first message by which we take part in a thread; what is before was not said to us.

        When it was said, it was turned away, since nobody had called us; nor is it a question afterwards.
        """
        if not channel.guild or channel.owner == identity.user or channel.id in self._mentioned:
            return 0
        signs = (s for s in seen if is_ours(s, identity) or mentions_us(s, identity, self._own_role(s)))
        return min((int(id_of(said, "id")) for said in signs), default=2**64)

    async def _delete(self, data: Wire, accept: Accept) -> None:
        channel = await self._find_channel(data)
        if channel is None:
            return  # the place is gone as well, or was never ours
        for deleted in parse_deleted(data, channel, self._now()):
            await self._hand_over(deleted, accept)

    async def _remove(self, removed: Removed) -> None:
        log.warning("discord_removal_told", guild=removed.workspace)
        await self._on_removed(removed)

    def _tell_unreadable(self, message: Message, channel: Channel, identity: Identity) -> None:
        """Something was said that we may not read. In a thread that we opened, people expect an answer."""
        if identity.reads_all:
            return  # then it is empty for everybody
        if not self._unread_told:
            self._unread_told = True
            log.warning(
                "discord_content_hidden",
                fix="switch Message Content Intent on (discord.com/developers/applications, page Bot) and start Hermod "
                "again; until then only messages that mention it, and direct ones, can be read",
            )
        if channel.owner == identity.user:
            thread = message.thread
            self._put(f"unreadable-{thread.thread}", partial(self._on_unreadable, thread))

    async def _find_channel(self, data: Wire) -> Channel | None:
        """Find where something stands; ask again when Discord does not tell."""
        for attempt in range(TRIES):
            if attempt:
                await self._sleep(self._retry_s * 2 ** (attempt - 1))
            try:
                return await self._directory.find(id_of(data, "channel_id"), id_of(data, "guild_id"))
            except PlaceUnknown as error:
                log.warning("discord_place_unknown", reason=str(error))
        return None

    async def _hand_over(self, inbound: Inbound, accept: Accept) -> bool:
        """Hand something over until it is stored, at most ``TRIES`` times; false when it never was."""
        for attempt in range(TRIES):
            if attempt:
                await self._sleep(self._retry_s * 2 ** (attempt - 1))
            # whatever it raises means that it is not stored; only being cancelled ourselves ends this
            (outcome,) = await asyncio.gather(accept(inbound), return_exceptions=True)
            if not isinstance(outcome, BaseException):
                return True
            log.warning("discord_event_not_stored", thread=inbound.thread.key, reason=type(outcome).__name__)
        log.error("discord_event_lost", thread=inbound.thread.key, id=inbound.id, reason="it could not be stored")
        return False


def _keep(ids: dict[str, None], new: str, most: int = _REMEMBERED) -> None:
    ids.pop(new, None)
    ids[new] = None
    while len(ids) > most:
        del ids[next(iter(ids))]
