"""The way in: who we are, then the gateway, tried again until it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta

import discord
import structlog

from adapters.chat import Accept, AdapterNotConfigured, ConnectionState
from adapters.discord.budget import IDENTIFY_GAP_S, GatewayInfo, StartBudget
from adapters.discord.calls import DiscordCalls
from adapters.discord.directory import DiscordDirectory
from adapters.discord.gateway import HEARTBEAT_TIMEOUT_S, DiscordGateway, GatewayRefused
from adapters.discord.intake import DiscordIntake
from adapters.discord.login import DiscordUnreachable, fetch_gateway, fetch_identity
from adapters.discord.parse import Identity
from adapters.discord.session import GatewayHttp

log = structlog.get_logger("hermod.discord")

LONGEST_PAUSE_S = 30.0

FIRST_S = 15.0
"""``start`` waits for so long until the first session is there."""

DRAIN_S = 3.0

CATCH_UP_S = 300.0
"""What was said so long before a start is read again. It is what a restart takes, with room."""

OVERLAP_S = 120.0
"""A connection may be dead for so long before that is noticed, so what was said then is read again as well."""

OnReady = Callable[[Identity], Awaitable[None]]
"""Called once in a ``start``, when the first session is there, never on a reconnect."""


class DiscordConnection:
    """Connects, and stays connected.

    Args:
        http: for websockets; whoever made it closes it.
        calls: for login, in turn with all other calls.
        directory: is told of the cache.
        intake: takes what comes in.
        gateway_url: connect there instead of where Discord says; empty for that.
        shard_count: shards in all; None for as many as Discord advises.
        shard_ids: the shards to keep here; empty for all.
        on_ready: see ``OnReady``.
        retry_s: the pause after a first failure; it doubles with each further one.
        identify_gap_s: between two starts of a session.
        catch_up_s: see ``CATCH_UP_S``.
        first_s: see ``FIRST_S``.
        heartbeat_timeout_s: see ``gateway.HEARTBEAT_TIMEOUT_S``.
        now, monotonic, sleep: the clock.
    """

    def __init__(
        self,
        http: GatewayHttp,
        calls: DiscordCalls,
        *,
        directory: DiscordDirectory,
        intake: DiscordIntake,
        gateway_url: str = "",
        shard_count: int | None = None,
        shard_ids: Collection[int] = (),
        on_ready: OnReady,
        retry_s: float,
        identify_gap_s: float = IDENTIFY_GAP_S,
        catch_up_s: float = CATCH_UP_S,
        first_s: float = FIRST_S,
        heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._http = http
        self._calls = calls
        self._directory = directory
        self._intake = intake
        self._url = gateway_url
        self._shard_count = shard_count
        self._shard_ids = tuple(shard_ids)
        self._on_ready = on_ready
        self._retry_s = retry_s
        self._catch_up_s = catch_up_s
        self._first_s = first_s
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._now = now
        self._monotonic = monotonic
        self._sleep = sleep
        self._budget = StartBudget(self._fetch_gateway, gap_s=identify_gap_s, monotonic=monotonic, sleep=sleep)
        self._gateway: DiscordGateway | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._coming_up: asyncio.Task[None] | None = None
        self._since: datetime | None = None
        self._heard: dict[int, datetime] = {}  # by shard: until then nothing was missed
        self._told_ready = False
        self.identity: Identity | None = None

    @property
    def connected(self) -> bool:
        """True while events can arrive on every shard of ours."""
        return self._intake.is_open and self._gateway is not None and self._gateway.connected

    @property
    def state(self) -> ConnectionState:
        """How the connection stands, since when, and when something last came in."""
        return ConnectionState(
            connected=self.connected,
            since=self._since if self.connected else None,
            last_event_at=self._intake.last_event_at,
        )

    async def start(self, accept: Accept) -> None:
        """Connect; returns also when Discord cannot be reached, and then goes on trying until ``stop``.

        Raises:
            AdapterNotConfigured: the token is refused, or Discord says that connecting is of no use.
        """
        coming_up = self._coming_up = asyncio.create_task(self._come_up(accept), name="discord-start")
        try:
            await asyncio.wait([coming_up])
        except asyncio.CancelledError:
            coming_up.cancel()
            raise
        if self._coming_up is not coming_up or coming_up.cancelled():
            return  # ``stop`` was quicker
        match coming_up.exception():
            case DiscordUnreachable() as error:
                log.warning("discord_not_reached", reason=str(error))
                self._spawn(self._keep_trying(accept), "discord-coming-up")
            case None:
                pass
            case error:
                raise error

    async def stop(self) -> None:
        """End every connection, take nothing more, and let what was taken be stored. Safe to call twice."""
        tasks: set[asyncio.Task[None]] = set(self._tasks)
        coming_up, self._coming_up = self._coming_up, None
        if coming_up is not None:
            tasks.add(coming_up)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            await gateway.close()
        self._intake.close()  # not before: what still came is delivered once only
        await self._intake.drain(DRAIN_S)

    async def _come_up(self, accept: Accept) -> None:
        identity = await fetch_identity(self._calls)
        count = self._shard_count or (await fetch_gateway(self._calls)).shards
        self.identity = identity
        if not identity.reads_all:
            log.info("discord_content_limited", reads="messages that mention Hermod, and direct ones")
        gateway = self._gateway = DiscordGateway(
            self._http,
            self._budget,
            url=self._url,
            intents=build_intents(identity),
            shard_count=count,
            shard_ids=self._shard_ids or range(count),
            on_event=self._intake.take,
            on_interaction=self._intake.take_interaction,
            on_begun=self._begin,
            on_lost=self._lose,
            on_content_refused=self._lose_content,
            retry_s=self._retry_s,
            heartbeat_timeout_s=self._heartbeat_timeout_s,
            monotonic=self._monotonic,
            sleep=self._sleep,
        )
        self._directory.attach(gateway.client)
        self._told_ready = False
        self._intake.open(accept, identity, shards=count)
        try:
            await gateway.start(self._first_s)
        except GatewayRefused as refused:
            self._intake.close()
            self._gateway = None
            raise AdapterNotConfigured(str(refused)) from None

    async def _keep_trying(self, accept: Accept) -> None:
        pause_s = self._retry_s
        while self._gateway is None:
            await self._sleep(pause_s)
            try:
                await self._come_up(accept)
            except DiscordUnreachable as error:
                log.warning("discord_not_reached", reason=str(error))
            except AdapterNotConfigured as error:
                log.error("discord_refused", reason=str(error))
                return
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    def _begin(self, shard: int) -> None:
        """A shard has a new session: what was said since the last one ended comes with no event."""
        since = self._heard.get(shard, self._now() - timedelta(seconds=self._catch_up_s))
        self._intake.begin(shard, since)
        self._since = self._now()
        identity = self.identity
        if identity is not None and not self._told_ready:
            self._told_ready = True
            self._spawn(self._on_ready(identity), "discord-ready")

    def _lose(self, shard: int) -> None:
        self._heard[shard] = self._now() - timedelta(seconds=min(OVERLAP_S, self._catch_up_s))

    def _lose_content(self) -> None:
        if self.identity is not None:
            self.identity = replace(self.identity, reads_all=False)
            self._intake.limit(self.identity)

    async def _fetch_gateway(self) -> GatewayInfo:
        return await fetch_gateway(self._calls)

    def _spawn(self, work: Awaitable[None], name: str) -> None:
        task = asyncio.ensure_future(work)
        task.set_name(name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("discord_task_failed", task=task.get_name(), reason=type(error).__name__, exc_info=error)


def build_intents(identity: Identity) -> discord.Intents:
    """Build what the gateway is asked for; the content of all messages only where the application may have it."""
    intents = discord.Intents.none()
    intents.guilds = True
    intents.guild_messages = True
    intents.dm_messages = True
    intents.message_content = identity.reads_all
    return intents
