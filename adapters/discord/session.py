"""discord.py's client as Hermod uses it: its cache and its way of reading the gateway, at addresses of our own.

It keeps guilds, channels, threads and roles, and neither members nor messages. Messages do not become its objects: they
are handed over as they came, which is all that ``parse`` needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import aiohttp
import discord
import structlog
from discord.state import AutoShardedConnectionState

from adapters.discord.http import DiscordHttp, find_proxy
from adapters.discord.wire import Wire

log = structlog.get_logger("hermod.discord")

OnEvent = Callable[[str, Wire], None]
"""Takes an event of the gateway by its name. Must return at once: until then nothing else is read."""

OnInteraction = Callable[[discord.Interaction], None]
"""Takes an interaction. Must return at once."""

OnShard = Callable[[int, bool], None]
"""Told that a shard has its session: a new one (true), or one that goes on (false)."""

INSTEAD = frozenset({"MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE", "MESSAGE_DELETE_BULK"})
"""Events that discord.py does not see."""

BESIDES = frozenset({"GUILD_CREATE", "GUILD_DELETE", "THREAD_DELETE"})
"""Events that both see."""

# what discord.py raises for a payload of another shape than Discord documents
SHAPE_ERRORS = (TypeError, AttributeError, LookupError, ValueError)


class GatewayHttp(DiscordHttp):
    """The REST API, and websockets that are known to whoever has to close them."""

    def __init__(self, *, api_url: str, token: str) -> None:
        super().__init__(api_url=api_url, token=token)
        self._opened: dict[asyncio.Task[Any] | None, aiohttp.ClientWebSocketResponse] = {}

    async def ws_connect(self, url: str, *, compress: int = 0) -> aiohttp.ClientWebSocketResponse:
        """Open a websocket on behalf of the current task. discord.py calls this."""
        socket = await self.session.ws_connect(
            url,
            proxy=find_proxy(url.replace("ws", "http", 1)),
            max_msg_size=0,  # a guild's first event may be of any size
            autoclose=False,
            compress=compress,
            headers={"User-Agent": self.user_agent},
        )
        self._opened[asyncio.current_task()] = socket
        return socket

    def take_opened(self) -> aiohttp.ClientWebSocketResponse | None:
        """Return the websocket that the current task opened last, once."""
        return self._opened.pop(asyncio.current_task(), None)


class _State(AutoShardedConnectionState["ShardedClient"]):
    """The cache, with our own readers of messages. A shape that is not understood ends no connection."""

    def __init__(self, *, on_event: OnEvent, on_interaction: OnInteraction, **options: Any) -> None:
        super().__init__(**options)
        self._on_interaction = on_interaction
        for kind in INSTEAD:
            self.parsers[kind] = partial(on_event, kind)
        for kind in BESIDES:
            self.parsers[kind] = partial(_both, self.parsers[kind], partial(on_event, kind))
        for kind, parser in list(self.parsers.items()):
            self.parsers[kind] = partial(_guarded, kind, parser)

    def parse_interaction_create(self, data: Any) -> None:
        """Hand an interaction over."""
        self._on_interaction(discord.Interaction(data=data, state=self))


class ShardedClient(discord.AutoShardedClient):
    """A client of so many shards, whose connections are made by ``gateway``.

    Args:
        http: for all its calls and websockets.
        intents: what the gateway is asked for.
        shard_count: shards in all.
        heartbeat_timeout_s: a connection over which nothing came for so long is dead, whatever TCP says.
        on_event, on_interaction, on_shard: see their types.
    """

    def __init__(
        self,
        http: GatewayHttp,
        *,
        intents: discord.Intents,
        shard_count: int,
        heartbeat_timeout_s: float,
        on_event: OnEvent,
        on_interaction: OnInteraction,
        on_shard: OnShard,
    ) -> None:
        self._given_http = http
        self._on_event = on_event
        self._on_interaction = on_interaction
        self._on_shard = on_shard
        # nobody speaks here, so that the libraries for it are missing is not worth a warning at every start
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
        super().__init__(
            intents=intents,
            shard_count=shard_count,
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            allowed_mentions=discord.AllowedMentions.none(),
            heartbeat_timeout=heartbeat_timeout_s,
            guild_ready_timeout=0.0,  # nothing waits for discord.py's "ready"
        )

    def _get_state(self, **options: Any) -> _State:
        self.http = self._given_http  # instead of the one at a fixed address that was just made
        return _State(
            dispatch=self.dispatch,
            handlers=self._handlers,
            hooks=self._hooks,
            http=self.http,
            on_event=self._on_event,
            on_interaction=self._on_interaction,
            **options,
        )

    async def prepare(self, shards: tuple[int, ...]) -> None:
        """Make it ready for connections of these shards. To be called once, in the running loop."""
        await self._async_setup_hook()
        self._connection.shard_ids = list(shards)

    @property
    def reads_all(self) -> bool:
        """True while the content of all messages is asked for."""
        return self.intents.message_content

    def forgo_content(self) -> None:
        """Begin further sessions without it."""
        intents = self.intents
        intents.message_content = False
        self._connection._intents = intents

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """Do nothing: ``budget`` has waited before the websocket was opened."""

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Notice that a session began or goes on."""
        if event in ("shard_connect", "shard_resumed"):
            self._on_shard(args[0], event == "shard_connect")
        super().dispatch(event, *args, **kwargs)


def _both(first: Callable[[Any], None], second: Callable[[Any], None], data: Any) -> None:
    first(data)
    second(data)


def _guarded(kind: str, parser: Callable[[Any], None], data: Any) -> None:
    try:
        parser(data)
    except SHAPE_ERRORS as error:
        log.warning("discord_event_not_understood", kind=kind, reason=type(error).__name__)
