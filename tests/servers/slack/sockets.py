"""The Socket Mode server: docs.slack.dev/apis/events-api/using-socket-mode."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json

from aiohttp import WSMsgType, web

from tests.servers.slack.delivery import Deliveries
from tests.servers.slack.model import Json


class SocketMode(Deliveries):
    """Up to ten connections an app; each envelope goes to one of them."""

    _numbers = itertools.count(1)

    def _pick(self, which: int | None) -> list[web.WebSocketResponse]:
        """The open connections, or the ``which``-th of them (0 is the oldest)."""
        numbers = self.open_sockets if which is None else [self.open_sockets[which]]
        return [self._sockets[number] for number in numbers]

    async def disconnect(
        self,
        reason: str = "refresh_requested",
        *,
        grace: float = 0.2,
        which: int | None = None,
        close: bool = True,
    ) -> None:
        """Ask the sockets (or one) to go, then close them.

        Reasons: ``warning`` (about ten seconds ahead; with ``close=False`` nothing else happens yet),
        ``refresh_requested``, ``link_disabled``, ``too_many_websockets``.
        """
        frame = {"type": "disconnect", "reason": reason, "debug_info": {"host": "fake-applink"}}
        picked = self._pick(which)
        for ws in picked:
            with contextlib.suppress(ConnectionError):
                await ws.send_json(frame)
        if close:
            await asyncio.sleep(grace)
            for ws in picked:
                await ws.close()

    def refuse_sockets(self, times: int) -> None:
        """Answer the next connections with ``disconnect: too_many_websockets`` instead of a hello."""
        self._refusals = times

    async def kill_sockets(self, which: int | None = None) -> None:
        """Drop the TCP connections with no close frame, as a broken network does."""
        for ws in self._pick(which):
            if ws._req is not None and ws._req.transport is not None:
                ws._req.transport.abort()

    def silence(self, which: int | None = None, *, pongs: bool = False) -> None:
        """Keep the connection open but send nothing on it any more; with ``pongs`` pings are still answered."""
        for number in self.open_sockets if which is None else [self.open_sockets[which]]:
            self._silent[number] = pongs

    async def _socket_mode(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets:
            return web.Response(status=401, text="ticket unknown or already used")
        self._tickets.discard(ticket)
        ws = web.WebSocketResponse(autoping=False)
        await ws.prepare(request)
        if self._refusals > 0 or len(self.open_sockets) >= self.max_sockets:
            self._refusals = max(0, self._refusals - 1)
            reason: Json = {"type": "disconnect", "reason": "too_many_websockets"}
            await ws.send_json(reason | {"debug_info": {"host": "fake-applink"}})
            await ws.close()
            return ws
        number = next(self._numbers)
        self._sockets[number] = ws
        await ws.send_json(
            {
                "type": "hello",
                "num_connections": len(self.open_sockets),
                "connection_info": {"app_id": self.app_id},
                "debug_info": {"host": "fake-applink", "build_number": 1, "approximate_connection_time": 18060},
            }
        )
        await self._notify()
        try:
            async for msg in ws:
                if msg.type is WSMsgType.PING:
                    if self._silent.get(number, True):
                        await ws.pong(msg.data)
                elif msg.type is WSMsgType.TEXT:
                    self._take_frame(msg.data)
        finally:
            del self._sockets[number]
            await self._notify()
        return ws

    def _take_frame(self, data: str) -> None:
        try:
            frame = json.loads(data)
            future = self._acks.pop(frame["envelope_id"])
        except (ValueError, KeyError, TypeError):
            self.violations.append(f"unexpected or repeated socket frame: {data[:200]}")
            return
        if future.done():
            self.violations.append("acknowledged after the time allowed")
        else:
            future.set_result(frame.get("payload"))
