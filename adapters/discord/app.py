"""Discord as a ``ChatAdapter``: what comes in by the gateway, and what goes out by the REST API, put together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import partial

import structlog

from adapters.chat import (
    Accept,
    AdapterNotConfigured,
    Author,
    Capabilities,
    ConnectionState,
    Delivered,
    Delivery,
    Draft,
    FileRef,
    InDoubt,
    Problem,
    Reply,
    Said,
    ThreadRef,
)
from adapters.commands import CommandOffer, Complete
from adapters.discord.budget import IDENTIFY_GAP_S
from adapters.discord.checkup import DiscordCheckup
from adapters.discord.client import DiscordClient
from adapters.discord.commands import sync_commands
from adapters.discord.connection import CATCH_UP_S, FIRST_S, DiscordConnection
from adapters.discord.directory import DiscordDirectory
from adapters.discord.gateway import HEARTBEAT_TIMEOUT_S
from adapters.discord.http import API_URL
from adapters.discord.intake import DiscordIntake, OnRemoved, ignore
from adapters.discord.interactions import DiscordInteractions
from adapters.discord.outbound import DiscordOutbound
from adapters.discord.outcome import Failed
from adapters.discord.parse import PLATFORM, Identity
from adapters.discord.places import DiscordPlaces, thread_below
from adapters.discord.render import LIMITS
from adapters.discord.session import GatewayHttp
from adapters.discord.threads import DiscordThreads
from adapters.discord.wire import Wire
from adapters.places import ChannelLook, PersonLook

log = structlog.get_logger("hermod.discord")

CAPABILITIES = Capabilities(
    threads=True,
    status=True,
    status_ttl_s=10.0,
    edits=True,
    buttons=True,
    files=True,
    drafts=True,
    history=True,
    private=True,
)

CANNOT_READ = (
    "I cannot read messages here that do not mention me: the Message Content Intent of my application is off. "
    "Please mention me in each message. Whoever runs me can switch it on (discord.com/developers/applications, Bot)."
)

_MOST_TOLD = 5_000
_NOTICE_WITHIN = 100  # messages: longer ago it may be said once more


class DiscordAdapter:
    """Discord, over its gateway. All methods may be called concurrently.

    A slash command in a channel belongs to no thread; its ``ThreadRef.thread`` is ``command-`` and the interaction's
    id, and replies to such a thread answer the interaction, or are posted into the channel itself.

    Args:
        token: the bot's.
        api_url: base of the REST API, with its version.
        gateway_url: connect there instead of where Discord says; also to resume. None for where Discord says.
        guild_ids: guilds that alone get the slash commands (development); empty: all.
        shard_count: shards in all; None for as many as Discord advises.
        shard_ids: shards to keep here; empty for all.
        processes: so many processes of this bot run side by side, and divide what Discord allows all of them.
        bots: ids of other bots (or webhooks) whose mentions count; all others are dropped.
        on_removed: called when a guild removed Hermod.
        redact: removes secrets from questions, whose first words become the names of threads.
        retry_s: the pause after a first failure to connect, or to store something; it doubles with each further one.
        identify_gap_s: between two starts of a session, as Discord demands it.
        catch_up_s: what was said so long before a start is read again, and what was said while no session was there.
        first_s: ``start`` waits for so long until the first session is there.
        heartbeat_timeout_s: a connection over which nothing came for so long is made again.
        now, monotonic, sleep: the clock.
    """

    platform = PLATFORM
    capabilities = CAPABILITIES
    limits = LIMITS

    def __init__(
        self,
        token: str,
        *,
        api_url: str = API_URL,
        gateway_url: str | None = None,
        guild_ids: Collection[str] = (),
        shard_count: int | None = None,
        shard_ids: Collection[int] = (),
        processes: int = 1,
        bots: Collection[str] = (),
        on_removed: OnRemoved = ignore,
        redact: Callable[[str], str] = str,
        retry_s: float = 0.5,
        identify_gap_s: float = IDENTIFY_GAP_S,
        catch_up_s: float = CATCH_UP_S,
        first_s: float = FIRST_S,
        heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._token = token.strip()
        self._guild_ids = tuple(guild_ids)
        checkup = partial(DiscordCheckup, self._token, api_url, gateway_url=gateway_url, guild_ids=self._guild_ids)
        self._build_checkup = partial(checkup, shard_count=shard_count, now=now, monotonic=monotonic)
        self._http = GatewayHttp(api_url=api_url, token=self._token)
        client = self._client = DiscordClient(self._http, monotonic=monotonic, sleep=sleep)
        client.calls.pace.share(processes)
        directory = self._directory = DiscordDirectory(client.calls, monotonic=monotonic)
        self._places = DiscordPlaces(client, monotonic=monotonic)
        threads = DiscordThreads(client, redact=redact)
        self._interactions = DiscordInteractions(client, now=now)
        answers = self._interactions
        self._outbound = DiscordOutbound(
            client, threads, answers=answers, names=directory, file_max=directory.find_file_max, now=now
        )
        intake = DiscordIntake(
            directory=directory,
            threads=threads,
            fetch_page=self._fetch_page,
            bots=bots,
            on_interaction=self._interactions.receive,
            on_removed=on_removed,
            on_unreadable=self._tell_unreadable,
            redact=redact,
            retry_s=retry_s,
            now=now,
            sleep=sleep,
        )
        self._connection = DiscordConnection(
            self._http,
            client.calls,
            directory=directory,
            intake=intake,
            gateway_url=gateway_url or "",
            shard_count=shard_count,
            shard_ids=shard_ids,
            on_ready=self._sync,
            retry_s=retry_s,
            identify_gap_s=identify_gap_s,
            catch_up_s=catch_up_s,
            first_s=first_s,
            heartbeat_timeout_s=heartbeat_timeout_s,
            now=now,
            monotonic=monotonic,
            sleep=sleep,
        )
        self._offers: tuple[CommandOffer, ...] | None = None
        self._told: dict[str, None] = {}

    # -- the connection
    @property
    def connected(self) -> bool:
        """True while events can arrive on every shard of ours."""
        return self._connection.connected

    @property
    def state(self) -> ConnectionState:
        """How the connection stands, since when, and when something last came in."""
        return self._connection.state

    async def start(self, accept: Accept) -> None:
        """Learn who we are, then let events come; nothing is accepted before our own identity is known.

        Returns also when Discord cannot be reached, or lets us start only later: it is then tried again until
        ``stop``, and ``connected`` tells.

        Raises:
            AdapterNotConfigured: the token is missing or refused, or Discord refuses what we ask for.
        """
        if not self._token:
            raise AdapterNotConfigured(
                "discord: token is missing; set it in [discord] or HERMOD_DISCORD__TOKEN "
                "(discord.com/developers/applications, page Bot)"
            )
        await self._connection.start(accept)

    async def wind_down(self) -> None:
        """Go on receiving and storing until ``stop``, since Discord delivers nothing twice.

        A command that is given meanwhile is announced as any other one; the next process answers it.
        """

    async def stop(self) -> None:
        """Stop receiving, let what was received be stored, close everything. Safe to call twice."""
        await self._connection.stop()
        await self._outbound.close()
        await self._http.close()

    # -- commands
    def offer_commands(self, offers: Sequence[CommandOffer], complete: Complete) -> None:
        """Show these commands from the next ``start`` on."""
        self._offers = tuple(offers)
        self._interactions.offer(offers, complete)

    async def _sync(self, identity: Identity) -> None:
        """Let Discord show the commands; once in a start, since a reconnect changes none."""
        if self._offers is not None:
            await sync_commands(self._client.calls, self._offers, self._guild_ids, application_id=identity.application)

    # -- what no event tells
    async def _fetch_page(self, channel: str, before: str) -> tuple[Wire, ...] | None:
        page = await self._client.fetch_messages(channel, before=before)
        return None if isinstance(page, Failed) else page

    async def _tell_unreadable(self, thread: ThreadRef) -> None:
        """Say once in a thread of ours that what is said there cannot be read; also a restart says it only once."""
        if thread.key in self._told:
            return
        self._told[thread.key] = None
        while len(self._told) > _MOST_TOLD:
            del self._told[next(iter(self._told))]
        # a nonce may not be told in the history, but our own words are always readable
        past = await self._outbound.fetch_history(thread, limit=_NOTICE_WITHIN)
        if not any(said.own and said.text == CANNOT_READ for said in past):
            key = f"unreadable/{thread.key}"
            await self._outbound.post(Reply(thread=thread, text=CANNOT_READ, key=key, priority=1))

    # -- what goes out
    async def post(self, reply: Reply) -> Delivery:
        """Post one reply that fits ``limits``. Failures are values; only cancellation is raised."""
        return await self._outbound.post(reply)

    async def find_posted(self, thread: ThreadRef, key: str) -> Delivered | InDoubt | None:
        """Look in the thread for our own message whose nonce ``key`` gives."""
        return await self._outbound.find_posted(thread, key)

    async def set_status(self, thread: ThreadRef, text: str) -> None:
        """Show that work goes on. Best effort; never raises."""
        await self._outbound.set_status(thread, text)

    def open_draft(self, thread: ThreadRef, *, asker: Author | None) -> Draft | None:
        """Begin an answer that people see while it is written."""
        return self._outbound.open_draft(thread, asker=asker)

    async def discard_draft(self, thread: ThreadRef, remote_id: str) -> None:
        """Remove what a process that died left of a draft."""
        await self._outbound.discard_draft(thread, remote_id)

    async def fetch_history(self, thread: ThreadRef, *, limit: int) -> tuple[Said, ...]:
        """Read what was said in a thread, oldest first."""
        return await self._outbound.fetch_history(thread, limit=limit)

    async def fetch_file(self, file: FileRef, *, max_bytes: int) -> bytes | None:
        """Fetch an attached file from Discord's own hosts only."""
        return await self._outbound.fetch_file(file, max_bytes=max_bytes)

    async def react(self, thread: ThreadRef, message_id: str, sign: str) -> None:
        """Put a sign on a message, or take it off."""
        await self._outbound.react(thread, message_id, sign)

    # -- places
    async def look_at_channel(self, workspace: str, channel: str) -> ChannelLook:
        """Tell whether Hermod can post in a channel; see ``DiscordPlaces``."""
        return await self._places.look_at_channel(workspace, channel)

    async def look_at_person(self, workspace: str, user: str) -> PersonLook:
        """Tell whether a person is still in a server, and what they are."""
        return await self._places.look_at_person(workspace, user)

    def thread_below(self, thread: ThreadRef, remote_id: str) -> ThreadRef:
        """Return the thread below a post that stands in the channel itself."""
        return thread_below(thread, remote_id)

    async def check(self) -> tuple[Problem, ...]:
        """Look at the token, the application, the gateway and permissions. Never raises."""
        checkup = self._build_checkup()
        try:
            return await checkup.check()
        finally:
            await checkup.stop()
