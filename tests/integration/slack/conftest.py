from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from adapters.chat import Action, Command, Deleted, Inbound, Message, Stop
from adapters.slack.app import SlackAdapter
from adapters.slack.manifest import BOT_SCOPES
from tests.servers.slack import SlackServer


class Inbox:
    """Stands where Hermod's inbox stands: takes what comes in, and may be told to fail or to wait."""

    def __init__(self) -> None:
        self.items: list[Inbound] = []
        self.failures = 0
        self.answer = True
        self.gate = asyncio.Event()
        self.gate.set()
        self._changed = asyncio.Condition()

    async def accept(self, inbound: Inbound) -> bool:
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise OSError("the disk is full")
        self.items.append(inbound)
        async with self._changed:
            self._changed.notify_all()
        return self.answer

    @property
    def messages(self) -> list[Message]:
        return [i for i in self.items if isinstance(i, Message)]

    @property
    def commands(self) -> list[Command]:
        return [i for i in self.items if isinstance(i, Command)]

    @property
    def actions(self) -> list[Action]:
        return [i for i in self.items if isinstance(i, Action)]

    @property
    def stops(self) -> list[Stop]:
        return [i for i in self.items if isinstance(i, Stop)]

    @property
    def deletions(self) -> list[Deleted]:
        return [i for i in self.items if isinstance(i, Deleted)]

    async def wait_for(self, predicate: Callable[[], Any], timeout_s: float = 30.0) -> None:
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: bool(predicate()))


@pytest.fixture
async def server() -> AsyncIterator[SlackServer]:
    """A workspace that grants exactly the scopes that the manifest asks for."""
    async with SlackServer(scopes=tuple(BOT_SCOPES), ack_timeout=3.0) as server:
        yield server


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def mode() -> str:
    """How events arrive; modules that hold for both ways override it."""
    return "socket"


def build_adapter(server: SlackServer, **options: Any) -> SlackAdapter:
    """Build an adapter that is quick to notice and to try again."""
    options = {"ping_interval_s": 0.2, "retry_s": 0.1, **options}
    if options.get("mode") == "http":
        options = {"signing_secret": server.signing_secret, **options}
    return SlackAdapter(server.bot_token, server.app_token, server.base_url, **options)


@asynccontextmanager
async def reachable(adapter: SlackAdapter, server: SlackServer) -> AsyncIterator[str]:
    """Serve the adapter's routes, if it has some, and tell the workspace the address."""
    app = web.Application()
    app.add_routes(adapter.build_routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/slack/events"
    if list(app.router.routes()):
        server.request_url = url
    try:
        yield url
    finally:
        await runner.cleanup()


@asynccontextmanager
async def running(server: SlackServer, inbox: Inbox, **options: Any) -> AsyncIterator[SlackAdapter]:
    """A connected adapter, whichever way events arrive."""
    adapter = build_adapter(server, **options)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(reachable(adapter, server))
        stack.push_async_callback(adapter.stop)
        await adapter.start(inbox.accept)
        await wait_connected(adapter)
        yield adapter


@pytest.fixture
async def adapter(server: SlackServer, inbox: Inbox, mode: str) -> AsyncIterator[SlackAdapter]:
    """A connected adapter."""
    async with running(server, inbox, mode=mode) as adapter:
        yield adapter


async def wait_connected(adapter: SlackAdapter, timeout_s: float = 30.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not adapter.connected:  # noqa: ASYNC110 - a property tells, nothing calls
            await asyncio.sleep(0.005)


async def both_open(server: SlackServer, count: int = 2) -> None:
    """Wait until the adapter has as many websockets as it wants."""
    await server.wait_until(lambda: len(server.open_sockets) == count)


async def all_acknowledged(server: SlackServer, count: int, timeout_s: float = 30.0) -> None:
    """Wait until ``count`` deliveries were made and every one is acknowledged."""
    await server.wait_until(
        lambda: len(server.deliveries) >= count and all(d.acked for d in server.deliveries), timeout_s
    )
