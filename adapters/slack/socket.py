"""One Socket Mode connection, from its address to its end (docs.slack.dev/apis/events-api/using-socket-mode).

Slack's own client reconnects by itself, closes the old connection before it opens the new one, and is known to stay
dead after some failures. Here a connection is used once and says how it ended; ``sockets.py`` replaces it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import aiohttp
import structlog

from adapters.slack.wire import Wire, number_of, text_of

log = structlog.get_logger("hermod.slack")

SILENT_PINGS = 4
"""After so many pings in a row that nothing at all answered, a connection is dead, whatever TCP says."""

MOST_RUNNING = 500
"""Envelopes of one connection that are worked on at once; what is behind them waits in the connection."""

HELLO_S = 10.0

Ending = Literal["closed", "silent", "quiet", "warning", "refresh_requested", "link_disabled", "too_many_websockets"]
"""Why a connection ended, or will end soon. The last four are Slack's words; an unknown word counts as a refresh."""

_SLACKS_WORDS: Mapping[str, Ending] = {
    "warning": "warning",
    "refresh_requested": "refresh_requested",
    "link_disabled": "link_disabled",
    "too_many_websockets": "too_many_websockets",
}

OnEnvelope = Callable[["SlackSocket", Wire], Awaitable[None]]

SOCKET_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)


class SlackSocket:
    """A websocket of Slack's.

    Args:
        on_envelope: called for each envelope, concurrently.
        on_hello: called once with the number of connections that the app has, as Slack counts.
        ping_interval_s: a ping is sent when nothing came for so long; see ``SILENT_PINGS``.
        quiet_s: a connection on which nothing came but answers to our own pings is to be replaced after so long.
        monotonic: the clock.
    """

    def __init__(
        self,
        *,
        on_envelope: OnEnvelope,
        on_hello: Callable[[int], None],
        ping_interval_s: float,
        quiet_s: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._on_envelope = on_envelope
        self._on_hello = on_hello
        self._ping_interval_s = ping_interval_s
        self._quiet_s = quiet_s
        self._monotonic = monotonic
        self._ws: aiohttp.ClientWebSocketResponse | None = None
        self._reader: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._greeted = asyncio.Event()
        self._begun = asyncio.Event()  # greeted, or over before that
        self._ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()

    @property
    def ready(self) -> bool:
        """True while events can arrive: Slack has said hello, and the connection lives."""
        return self._greeted.is_set() and not self._over.is_set() and self._ws is not None and not self._ws.closed

    async def open(self, session: aiohttp.ClientSession, url: str, proxy: str | None) -> Ending | None:
        """Connect and wait for the hello, at most ``HELLO_S`` seconds.

        Returns:
            None when it is ready, else why it ended before that.

        Raises:
            aiohttp.ClientError, OSError, TimeoutError: it could not be opened.
        """
        async with asyncio.timeout(HELLO_S):
            self._ws = await session.ws_connect(url, proxy=proxy, autoping=False)
            self._reader = asyncio.create_task(self._read(self._ws), name="slack-socket")
            await self._begun.wait()
        return None if self._greeted.is_set() else self._ending.result()

    async def wait_ending(self) -> Ending:
        """Wait until the connection has ended, or Slack announced that it will. Cancelling does no harm."""
        return await asyncio.shield(self._ending)

    async def wait_over(self) -> None:
        """Wait until nothing can arrive any more."""
        await self._over.wait()

    async def acknowledge(self, envelope_id: str, payload: Mapping[str, object] | None) -> None:
        """Tell Slack that it may forget an envelope.

        Raises:
            OSError: the connection is gone (aiohttp's errors for this are ``ConnectionResetError``s).
        """
        if self._ws is None or self._ws.closed:
            raise ConnectionResetError("the websocket is closed")
        answer: dict[str, object] = {"envelope_id": envelope_id}
        if payload is not None:
            answer["payload"] = payload
        await self._ws.send_str(json.dumps(answer))

    async def close(self, grace_s: float = 3.0) -> None:
        """Stop receiving, let running work acknowledge for up to ``grace_s`` seconds, then end every task."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        if self._running:
            await asyncio.wait(set(self._running), timeout=grace_s)
        left = set(self._running)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=grace_s)
        self._end("closed")
        self._over.set()
        if self._ws is not None:
            try:
                async with asyncio.timeout(grace_s):
                    await self._ws.close()
            except TimeoutError:
                log.info("slack_socket_closed_without_farewell")

    # -- reading
    async def _read(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        heard_at, silent = self._monotonic(), 0
        ending: Ending = "closed"
        try:
            while True:
                frame = await self._next(ws)
                if frame is None:
                    silent += 1
                    if silent >= SILENT_PINGS:
                        ending = "silent"
                        return
                    await ws.ping()
                    continue
                silent = 0
                if frame.type is aiohttp.WSMsgType.PONG:
                    if self._monotonic() - heard_at > self._quiet_s:
                        self._end("quiet")
                    continue
                heard_at = self._monotonic()
                if frame.type is aiohttp.WSMsgType.PING:
                    await ws.pong(frame.data)
                elif frame.type is aiohttp.WSMsgType.TEXT:
                    await self._take(frame.data)
                elif frame.type is not aiohttp.WSMsgType.BINARY:
                    return
        except SOCKET_ERRORS as error:
            log.info("slack_socket_broke", reason=type(error).__name__)
        finally:
            self._over.set()
            self._end(ending)

    async def _next(self, ws: aiohttp.ClientWebSocketResponse) -> aiohttp.WSMessage | None:
        """Return the next frame; None when nothing came for a while."""
        try:
            async with asyncio.timeout(self._ping_interval_s):
                return await ws.receive()
        except TimeoutError:
            return None

    async def _take(self, text: str) -> None:
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            log.warning("slack_frame_not_understood", size=len(text))
            return
        match message.get("type"):
            case "hello":
                self._greeted.set()
                self._begun.set()
                self._on_hello(number_of(message, "num_connections"))
            case "disconnect":
                self._end(_SLACKS_WORDS.get(text_of(message, "reason"), "refresh_requested"))
            case _ if text_of(message, "envelope_id"):
                await self._start(message)

    async def _start(self, envelope: Wire) -> None:
        while len(self._running) >= MOST_RUNNING:
            await asyncio.wait(set(self._running), return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(self._work(envelope), name="slack-envelope")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _work(self, envelope: Wire) -> None:
        await self._on_envelope(self, envelope)

    def _end(self, ending: Ending) -> None:
        if not self._ending.done():
            self._ending.set_result(ending)
        self._begun.set()
