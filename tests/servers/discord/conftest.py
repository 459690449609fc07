"""discord.py itself, pointed at the server by two overridden methods of its own objects; nothing global is touched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import discord
import pytest
import yarl
from discord.http import HTTPClient, Route
from discord.webhook.async_ import AsyncWebhookAdapter, async_context

from tests.servers.discord import DiscordServer, Json


class Http(HTTPClient):
    """discord.py's own REST client, with another address and without its second tries."""

    server: DiscordServer

    async def request(self, route: Route, **kwargs: Any) -> Any:
        route.url = self.server.base_url + route.url.removeprefix(Route.BASE)
        return await super().request(route, **kwargs)

    async def ws_connect(self, url: str, *, compress: int = 0) -> aiohttp.ClientWebSocketResponse:
        place = yarl.URL(self.server.gateway_url).with_query(yarl.URL(url).query)
        return await super().ws_connect(str(place), compress=compress)


class Webhooks(AsyncWebhookAdapter):
    """discord.py's own client for answers to interactions, with another address."""

    def __init__(self, server: DiscordServer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.server = server

    async def request(self, route: Route, *args: Any, **kwargs: Any) -> Any:
        route.url = self.server.base_url + route.url.removeprefix(Route.BASE)
        return await super().request(route, *args, **kwargs)


class Bot(discord.Client):
    """A client that notes the events it hears."""

    def __init__(self, server: DiscordServer, intents: discord.Intents | None = None, **options: Any) -> None:
        given = intents or discord.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=True)
        super().__init__(intents=given, **({"guild_ready_timeout": 0.3} | options))
        http = Http(self.http.loop)
        http.server = server
        self.http = self._connection.http = http
        self.heard: list[discord.Message] = []
        self.used: list[discord.Interaction[Any]] = []
        self.answer: Callable[[discord.Interaction[Any]], Awaitable[Any]] | None = None

    async def on_message(self, message: discord.Message) -> None:
        self.heard.append(message)

    async def on_interaction(self, interaction: discord.Interaction[Any]) -> None:
        self.used.append(interaction)
        if self.answer is not None:
            await self.answer(interaction)

    def texts(self) -> list[str]:
        return [message.content for message in self.heard]


@asynccontextmanager
async def connected(server: DiscordServer, bot: Bot, *, sessions: int = 1) -> AsyncIterator[Bot]:
    """Run a client until the block ends; it is ready inside."""
    async_context.set(Webhooks(server))
    before = len(server.live())
    async with bot:
        running = asyncio.create_task(bot.start(server.token))
        await server.wait_connected(sessions=before + sessions, timeout=30)
        async with asyncio.timeout(30):
            await bot.wait_until_ready()
        yield bot
    await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def server() -> AsyncIterator[DiscordServer]:
    async with DiscordServer() as server:
        yield server


@asynccontextmanager
async def rest(server: DiscordServer) -> AsyncIterator[Http]:
    """discord.py's REST client, logged in."""
    http = Http(asyncio.get_running_loop())
    http.server = server
    await http.static_login(server.token)
    try:
        yield http
    finally:
        await http.close()


@pytest.fixture
async def http(server: DiscordServer) -> AsyncIterator[Http]:
    async with rest(server) as client:
        yield client


async def refusal(call: Awaitable[Any]) -> tuple[int, int]:
    """HTTP status and Discord's code of a call that is refused; (0, 0) when it is not."""
    try:
        await call
    except discord.HTTPException as error:
        return error.status, error.code
    return 0, 0


def ask(http: HTTPClient, method: str, path: str, **json: Any) -> Awaitable[Any]:
    """A call by path, through discord.py's client."""
    return http.request(Route(method, path), json=json) if json else http.request(Route(method, path))


def button(custom_id: str | None = "yes", **fields: Any) -> Json:
    return {"type": 2, "style": 1, "label": "Yes", "custom_id": custom_id} | fields


def row(*parts: Json) -> Json:
    return {"type": 1, "components": list(parts)}
