"""What tests of installing share: a public address, a browser, and an adapter whose installations are in a database."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from adapters.chat import Message, Reply, ThreadRef
from adapters.slack.app import SlackAdapter
from adapters.slack.install import Installing, OAuthApp
from bot.installations import StoredInstallations, TokenSeal
from bot.storage import open_store
from tests.integration.slack.conftest import Inbox, wait_connected
from tests.servers.slack import SlackServer

KEY = "a-key-of-the-tests-that-is-long-enough"
OTHER_KEY = "another-key-of-the-tests-that-is-new"
T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@dataclass
class TestClock:
    """A wall clock that stands still until a test turns it."""

    __test__ = False

    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    async def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class Office:
    """A running adapter that many workspaces may install."""

    adapter: SlackAdapter
    inbox: Inbox
    server: SlackServer
    url: str
    installations: StoredInstallations
    clock: TestClock

    async def install(self, team: str = "", **how: Any) -> tuple[int, str]:
        """A person installs Hermod in the browser, to the end."""
        return await self.server.install(f"{self.url}/slack/install", team=team, **how)

    async def ask(self, text: str, channel: str, **how: Any) -> Message:
        """A person mentions the bot; returns the message that arrived."""
        seen = len(self.inbox.messages)
        ts = await self.server.mention(text, channel=channel, **how)
        await self.inbox.wait_for(lambda: any(m.id == ts for m in self.inbox.messages[seen:]))
        return next(m for m in self.inbox.messages if m.id == ts)

    async def answer(self, message: Message, key: str = "run-1/1") -> Any:
        return await self.adapter.post(Reply(thread=message.thread, text=f"to {message.text}", key=key))


@asynccontextmanager
async def open_installations(
    folder: Path, clock: TestClock, *keys: str, name: str = "hermod.db"
) -> AsyncIterator[StoredInstallations]:
    store = open_store(f"sqlite:///{folder}/{name}")
    await store.open()
    try:
        yield StoredInstallations(store, TokenSeal(keys or (KEY,)), clock)
    finally:
        await store.close()


@asynccontextmanager
async def open_office(
    server: SlackServer,
    folder: Path,
    *,
    keys: tuple[str, ...] = (KEY,),
    clock: TestClock | None = None,
    mode: str = "socket",
    allowed: tuple[str, ...] = (),
    start: bool = True,
    bot_token: str = "",
    **options: Any,
) -> AsyncIterator[Office]:
    """An adapter with its pages on a public address; ``allowed`` names the workspaces that may install it."""
    clock, inbox = clock or TestClock(), Inbox()
    async with AsyncExitStack() as stack:
        installations = await stack.enter_async_context(open_installations(folder, clock, *keys))
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        url = f"http://localhost:{listener.getsockname()[1]}"  # a browser keeps no cookies of a mere number
        adapter = SlackAdapter(
            bot_token,
            server.app_token if mode == "socket" else "",
            server.base_url,
            mode="http" if mode == "http" else "socket",
            signing_secret=server.signing_secret if mode == "http" else "",
            installing=Installing(
                app=OAuthApp(client_id=server.client_id, client_secret=server.client_secret, public_url=url),
                installations=installations,
                may_install=lambda workspace: not allowed or workspace in allowed,
            ),
            now=clock.now,
            ping_interval_s=0.2,
            retry_s=0.1,
            **options,
        )
        stack.push_async_callback(adapter.stop)
        app = web.Application()
        app.add_routes(adapter.build_routes())
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.SockSite(runner, listener).start()
        if mode == "http":
            server.request_url = f"{url}/slack/events"
        if start:
            await adapter.start(inbox.accept)
            await wait_connected(adapter)
        yield Office(adapter, inbox, server, url, installations, clock)


def thread_of(workspace: str, channel: str, ts: str) -> ThreadRef:
    return ThreadRef(platform="slack", workspace=workspace, channel=channel, thread=ts)
