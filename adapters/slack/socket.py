"""The Socket Mode connection, with an owner for each of its tasks.

Slack's client reconnects by itself. What it does not do is wait for its tasks when it is closed, and leave a
connection address that no longer works; so this class keeps count of its tasks, and the adapter's watch
replaces the whole connection when it stays away for long.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import ClientWebSocketResponse
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

log = structlog.get_logger("hermod.slack")

Handle = Callable[["SlackSocket", SocketModeRequest], Awaitable[None]]


class SlackSocket(SocketModeClient):
    """One Socket Mode client. Create it inside the event loop; ``close`` ends everything that it began.

    Args:
        app_token: for asking a new address after a disconnect.
        web: the client that asks.
        proxy: for the websocket; None for a direct connection.
        logger: of Slack's client.
        handle: called for each envelope, concurrently.
        on_event: called when anything arrives.
        ping_interval_s: a connection without answers for four times as long is replaced.
    """

    def __init__(
        self,
        *,
        app_token: str,
        web: AsyncWebClient,
        proxy: str | None,
        logger: logging.Logger,
        handle: Handle,
        on_event: Callable[[], None],
        ping_interval_s: float,
    ) -> None:
        super().__init__(app_token=app_token, web_client=web, logger=logger, ping_interval=ping_interval_s)
        self.proxy = proxy
        self._handle = handle
        self._on_event = on_event
        self._running: set[asyncio.Task[None]] = set()
        self._greeted: ClientWebSocketResponse | None = None
        self._hello = asyncio.Event()
        self.socket_mode_request_listeners.append(self._on_request)
        self.message_listeners.append(self._on_hello)

    @property
    def ready(self) -> bool:
        """True while the connection is open and Slack has said hello on it."""
        session = self.current_session
        return (
            not self.closed
            and not self.stale
            and session is not None
            and session is self._greeted
            and not session.closed
        )

    async def wait_ready(self) -> None:
        """Wait for the first hello."""
        await self._hello.wait()

    async def process_message(self) -> None:
        """Take one frame from the queue and work on it in a task of its own, which ``close`` waits for."""
        raw: str | None = await self.message_queue.get()
        if raw is None:
            return
        message = json.loads(raw) if raw.startswith("{") else {}
        self._on_event()
        task = asyncio.create_task(self.run_message_listeners(message, raw))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self, grace_s: float = 3.0) -> None:
        """Stop receiving, let running work acknowledge for up to ``grace_s`` seconds, then end every task."""
        self.auto_reconnect_enabled = False
        self.default_auto_reconnect_enabled = False
        if self.message_receiver is not None:
            self.message_receiver.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=grace_s)
        self.closed = True
        session = self.current_session
        tasks = [*self._running, self.message_processor, self.current_session_monitor, self.message_receiver]
        living = [task for task in tasks if task is not None]
        for task in living:
            task.cancel()
        await asyncio.wait(living, timeout=grace_s)
        if session is not None:
            try:
                async with asyncio.timeout(grace_s):
                    await session.close()
            except TimeoutError:
                log.info("slack_socket_closed_without_farewell")
        await self.aiohttp_client_session.close()

    async def _on_request(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        await self._handle(self, request)

    async def _on_hello(self, client: AsyncBaseSocketModeClient, message: dict[str, object], raw: str | None) -> None:
        if message.get("type") != "hello":
            return
        self._greeted = self.current_session
        self._hello.set()
        connections = message.get("num_connections")
        if isinstance(connections, int) and connections > 1:
            # Slack gives each event to one connection only: another process with this token takes its share
            log.warning(
                "slack_socket_is_shared", connections=connections, hint="is another Hermod using this app token?"
            )
        log.info("slack_socket_connected")
