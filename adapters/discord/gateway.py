"""The gateway: one connection for each shard, kept until ``close``, resumed where Discord lets it.

The protocol itself (hello, heartbeats, identify, resume, compression) is discord.py's. How long to wait before the next
try, where to connect, and what is final is decided here: discord.py's own loop identifies anew after a connection that
could not be made, although resuming would have brought what was said meanwhile, and waits for up to 17 minutes.
"""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import aiohttp
import discord
import structlog
import yarl
from discord.gateway import DiscordWebSocket, KeepAliveHandler, ReconnectWebSocket

from adapters.chat import AdapterError, AdapterNotConfigured
from adapters.discord.budget import StartBudget
from adapters.discord.session import SHAPE_ERRORS, GatewayHttp, OnEvent, OnInteraction, ShardedClient

log = structlog.get_logger("hermod.discord")

FATAL: Mapping[int, str] = MappingProxyType(
    {
        4004: "the token is refused; reset it (discord.com/developers/applications, page Bot) and set discord.token",
        4010: "a shard does not exist; check discord.shard_ids and discord.shard_count",
        4011: "the bot is in so many servers that more shards are required; raise discord.shard_count, or leave it out",
        4012: "the gateway does not speak version 10 any more; install a newer Hermod",
        4013: "the intents are not valid; install a newer Hermod",
        4014: "an intent is not allowed; install a newer Hermod",
    }
)
"""Close codes after which connecting again is of no use, and what to do
(docs.discord.com/developers/topics/opcodes-and-status-codes, "Gateway Close Event Codes")."""

NOT_ALLOWED = 4014
"""Of what Hermod asks for only the content of messages can be forbidden; without it much still works."""

CONNECT_S = 30.0
"""From opening a websocket to having said who we are."""

LONGEST_PAUSE_S = 30.0

LASTING_S = 10.0
"""A connection that lived for so long was a good one: the next one is made at once."""

FAREWELL_S = 2.0

HEARTBEAT_TIMEOUT_S = 60.0
"""A connection over which nothing came for so long is dead: Discord answers a heartbeat every 41 seconds or so."""

_RESUME_ADDRESS_TRIES = 2  # then the ordinary address is tried, which takes a resume as well

_NETWORK = (OSError, aiohttp.ClientError, TimeoutError, AdapterError)

_BROKEN = (*_NETWORK, discord.DiscordException, zlib.error, RuntimeError, *SHAPE_ERRORS)
"""What may come out of a connection that cannot be made, or breaks, or over which comes what discord.py cannot read."""


@dataclass(frozen=True, slots=True)
class _Session:
    """A session that can be resumed."""

    id: str
    sequence: int
    gateway: yarl.URL


class GatewayRefused(AdapterError):
    """Discord said that connecting again is of no use; the operator has to act."""


class DiscordGateway:
    """Keeps the connections of some shards.

    Args:
        http: for the websockets.
        budget: lets a shard start a session; resuming needs no leave.
        url: connect there instead of where Discord says; empty for that.
        intents: what the gateway is asked for.
        shard_count: shards in all.
        shard_ids: the shards to keep here.
        on_event, on_interaction: take what comes in.
        on_begun: called when a shard has a new session, before anything else of it comes.
        on_lost: called when a shard's connection ends, until which everything came.
        on_content_refused: called when Discord does not let us read the content of all messages any more.
        retry_s: the pause after a first failure; it doubles with each further one.
        heartbeat_timeout_s: see ``HEARTBEAT_TIMEOUT_S``.
        monotonic, sleep: the clock.
    """

    def __init__(
        self,
        http: GatewayHttp,
        budget: StartBudget,
        *,
        url: str = "",
        intents: discord.Intents,
        shard_count: int,
        shard_ids: Collection[int],
        on_event: OnEvent,
        on_interaction: OnInteraction,
        on_begun: Callable[[int], None],
        on_lost: Callable[[int], None],
        on_content_refused: Callable[[], None],
        retry_s: float,
        heartbeat_timeout_s: float,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._http = http
        self._budget = budget
        self._url = yarl.URL(url) if url else None
        self._address = DiscordWebSocket.DEFAULT_GATEWAY  # until it was asked for
        self._shard_ids = tuple(shard_ids)
        self._on_begun = on_begun
        self._on_lost = on_lost
        self._on_content_refused = on_content_refused
        self._retry_s = retry_s
        self._monotonic = monotonic
        self._sleep = sleep
        self._up: set[int] = set()
        self._begun = asyncio.Event()  # a first shard is ready, or it is refused
        self.refused = ""
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self.client = ShardedClient(
            http,
            intents=intents,
            shard_count=shard_count,
            heartbeat_timeout_s=heartbeat_timeout_s,
            on_event=on_event,
            on_interaction=on_interaction,
            on_shard=self._note,
        )

    @property
    def connected(self) -> bool:
        """True while every shard has its session."""
        return not self.refused and self._up == set(self._shard_ids)

    async def start(self, wait_s: float) -> None:
        """Connect every shard, and wait up to ``wait_s`` seconds for the first.

        Raises:
            GatewayRefused: Discord said that it is of no use; nothing is left running.
        """
        await self.client.prepare(self._shard_ids)
        self._tasks = tuple(
            asyncio.create_task(self._guard(shard), name=f"discord-shard-{shard}") for shard in self._shard_ids
        )
        for task in self._tasks:
            task.add_done_callback(_tell_end)
        try:
            async with asyncio.timeout(wait_s):
                await self._begun.wait()
        except TimeoutError:
            log.warning("discord_not_connected_yet", waits_for_start_s=round(self._budget.waiting_s))
        if self.refused:
            await self.close()
            raise GatewayRefused(f"discord: {self.refused}")

    async def close(self) -> None:
        """End every connection. Safe to call twice."""
        self._begun.set()  # whoever waits in ``start`` goes on
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _note(self, shard: int, new: bool) -> None:
        self._up.add(shard)
        log.info("discord_shard_connected", shard=shard, resumed=not new)
        if new:
            self._on_begun(shard)
        self._begun.set()

    def _note_lost(self, shard: int) -> None:
        if shard in self._up:
            self._up.remove(shard)
            self._on_lost(shard)

    async def _guard(self, shard: int) -> None:
        """Keep a shard; when Discord refuses one, all end, and it is said once."""
        try:
            await self._keep(shard)
        except (GatewayRefused, AdapterNotConfigured) as refused:
            if not self.refused:
                self.refused = str(refused).removeprefix("discord: ")
                log.error("discord_refused", reason=self.refused, shard=shard)
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()
            self._begun.set()

    async def _keep(self, shard: int) -> None:
        session: _Session | None = None
        failures = 0
        while True:
            began = self._monotonic()
            session = await self._live(shard, session, failures)
            failures = 0 if self._monotonic() - began >= LASTING_S else failures + 1
            if failures > 1:
                await self._sleep(min(LONGEST_PAUSE_S, self._retry_s * 2 ** min(failures - 2, 10)))

    async def _live(self, shard: int, session: _Session | None, failures: int) -> _Session | None:
        """Have one connection, from its beginning to its end.

        Returns:
            What the next one can resume; None when it has to identify.

        Raises:
            GatewayRefused, AdapterNotConfigured: there is no use in another one.
        """
        ws: DiscordWebSocket | None = None
        code = 4000  # the session stays
        reads_all = self.client.reads_all
        try:
            url = await self._find_url(shard, session, failures)
            async with asyncio.timeout(CONNECT_S):
                ws = await DiscordWebSocket.from_client(
                    self.client,
                    initial=True,
                    gateway=url,
                    shard_id=shard,
                    session=session.id if session is not None else None,
                    sequence=session.sequence if session is not None else None,
                    resume=session is not None,
                )
            while True:
                await ws.poll_event()
        except ReconnectWebSocket as ended:
            if not ended.resume:
                log.info("discord_session_ended", shard=shard)
                self._note_lost(shard)
                await self._budget.wait_after_refusal()
                return None
        except discord.ConnectionClosed as closed:
            if closed.code == NOT_ALLOWED and reads_all:
                self._forgo_content()
                return None
            if closed.code in FATAL:
                raise GatewayRefused(f"{FATAL[closed.code]} (close code {closed.code})") from None
            log.info("discord_connection_closed", shard=shard, code=closed.code)
        except (GatewayRefused, AdapterNotConfigured):
            raise
        except _BROKEN as error:
            trace = None if isinstance(error, _NETWORK) else error
            log.warning("discord_connection_failed", shard=shard, reason=type(error).__name__, exc_info=trace)
        except asyncio.CancelledError:
            code = 1000
            raise
        finally:
            try:
                self._note_lost(shard)
            finally:  # also where a defect ends all of it
                await self._hang_up(ws, code)
        return _remember(ws, session)

    def _forgo_content(self) -> None:
        if self.client.reads_all:  # the first shard that hears of it tells the others
            self.client.forgo_content()
            log.warning(
                "discord_content_refused",
                fix="switch Message Content Intent on (discord.com/developers/applications, page Bot) and start Hermod "
                "again; until then only messages that mention it, and direct ones, can be read",
            )
            self._on_content_refused()

    async def _find_url(self, shard: int, session: _Session | None, failures: int) -> yarl.URL:
        """Return where to connect; to identify, that is when it is allowed."""
        if session is None:
            self._address = self._url or yarl.URL((await self._budget.take_start(shard)).url)
            return self._address
        return self._url or (session.gateway if failures <= _RESUME_ADDRESS_TRIES else self._address)

    async def _hang_up(self, ws: DiscordWebSocket | None, code: int) -> None:
        """Close a connection, and end the thread that discord.py keeps for its heartbeats, whoever began it.

        discord.py stops that thread in ``close`` only, which nobody can call when a connection breaks, or is given up,
        between its hello and its identification.
        """
        socket = self._http.take_opened()
        keepers = _find_keepers(socket)
        for keeper in keepers:
            keeper.stop()
        try:
            async with asyncio.timeout(FAREWELL_S):
                if ws is not None:
                    await ws.close(code=code)
                elif socket is not None:
                    await socket.close(code=code)
        except (OSError, aiohttp.ClientError, TimeoutError):
            log.info("discord_connection_closed_without_farewell")
        for keeper in keepers:
            await asyncio.to_thread(keeper.join, FAREWELL_S)


def _find_keepers(socket: aiohttp.ClientWebSocketResponse | None) -> list[KeepAliveHandler]:
    threads = [thread for thread in threading.enumerate() if isinstance(thread, KeepAliveHandler)]
    return [thread for thread in threads if socket is not None and thread.ws.socket is socket]


def _tell_end(task: asyncio.Task[None]) -> None:
    """Tell of a defect that ended a shard: nobody else would, and nothing comes over it any more."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("discord_shard_failed", task=task.get_name(), fix="start Hermod again", exc_info=error)


def _remember(ws: DiscordWebSocket | None, before: _Session | None) -> _Session | None:
    if ws is None or not ws.session_id or ws.sequence is None:
        return before
    gateway = before.gateway if before is not None and before.id == ws.session_id else ws.gateway
    return _Session(ws.session_id, ws.sequence, gateway)
