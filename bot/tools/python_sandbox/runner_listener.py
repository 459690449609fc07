"""The port of a runner: HTTP/1.1 by aiohttp, one request on a connection, and no patience with silent ones.

A connection that carries a single request leaves nothing for a smuggled second one, and a sender that is slow, silent
or one of very many costs a timer and a socket, not memory: what aiohttp does not bound is bounded here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_LINGER_S = 2.0
"""How long a body that nobody wants is read and dropped, so that its sender sees the refusal and not a reset."""

_BACKLOG = 128


class Connection(web.RequestHandler):
    """One connection.

    Args:
        server: aiohttp's.
        listener: counts it.
    """

    def __init__(self, server: web.Server, listener: Listener) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            auto_decompress=False,
            keepalive_timeout=listener.head_s,
            lingering_time=_LINGER_S,
        )
        self._listener = listener
        self._timer: asyncio.TimerHandle | None = None
        self._sealed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many."""
        super().connection_made(transport)
        self._listener.connections += 1
        if self._listener.connections > self._listener.most_connections:
            self.force_close()
            return
        # newer releases of aiohttp do this as well, by keepalive_timeout
        self._timer = asyncio.get_running_loop().call_later(self._listener.head_s, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._listener.connections -= 1
        self.head_is_complete()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; what comes behind a whole request ends the connection, and the request with it."""
        if self._sealed and data:
            self.force_close()
            return
        super().data_received(data)

    def head_is_complete(self) -> None:
        """Stop the clock that runs until the head of the request is there."""
        if self._timer is not None:
            self._timer.cancel()

    def seal(self) -> None:
        """Take no more bytes: the request is whole."""
        self._sealed = True


class Listener:
    """Listens, and hands each request on; a handler is cancelled when its client goes.

    Args:
        handler: answers requests; its answers close their connection.
        head_s: how long the head of a request may take.
        most_connections: at once; more are closed at once.
    """

    def __init__(self, handler: Handler, *, head_s: float, most_connections: int) -> None:
        self._handler = handler
        self.head_s = head_s
        self.most_connections = most_connections
        self.connections = 0
        self.port = 0
        self._server: web.Server | None = None
        self._listening: asyncio.Server | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            OSError: the port is taken or may not be used.
        """
        server = self._server = web.Server(self._handle, handler_cancellation=True)
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            lambda: Connection(server, self), host, port, backlog=_BACKLOG, ssl=tls
        )
        self.port = int(self._listening.sockets[0].getsockname()[1])

    def stop_accepting(self) -> None:
        """Close the port; requests under way go on."""
        if self._listening is not None:
            self._listening.close()

    async def aclose(self) -> None:
        """Close the port and every connection; requests under way are cancelled."""
        self.stop_accepting()
        if self._server is not None:
            await self._server.shutdown(0.001)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        if isinstance(connection, Connection):
            connection.head_is_complete()
        answer = await self._handler(request)
        answer.headers.setdefault("Server", "hermod")  # aiohttp would tell every version
        return answer
