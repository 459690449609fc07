"""Several Socket Mode connections, so that there is always one while another is replaced.

Slack closes every connection after some hours and says so before ("warning", "refresh_requested"). A new one is then
opened first, and the old one serves until Slack closes it. Each event comes on one of them. Everything that fails is
tried again, at growing distances; that nothing is asked before Slack's ``Retry-After`` is over, the client sees to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import aiohttp
import structlog

from adapters.chat import AdapterError
from adapters.slack.client import SlackClient, SlackUnreachable
from adapters.slack.intake import SlackIntake
from adapters.slack.socket import HELLO_S, SOCKET_ERRORS, Ending, SlackSocket
from adapters.slack.wire import Wire, part_of, text_of

log = structlog.get_logger("hermod.slack")

LONGEST_PAUSE_S = 30.0
REFUSED_PAUSE_S = 60.0
CROWDED_PAUSE_S = 10.0
"""How long nothing is opened after ``too_many_websockets``; doubles up to five minutes while it goes on."""

LINGER_S = 15.0
"""How long a connection that Slack wants to close may go on beside its replacement."""

SHORT_LIFE_S = 10.0
"""A connection that lived shorter than this counts as a failure: the next attempt waits."""

FORGOTTEN_S = 60.0
"""How long Slack may still count a connection of ours that broke."""

_GENTLE: tuple[Ending, ...] = ("warning", "refresh_requested", "link_disabled", "quiet")


class _Crowded(SlackUnreachable):
    """Slack has too many connections of this app."""


class SlackSockets:
    """Keeps ``count`` connections open. Create it inside the event loop; ``close`` ends everything that it began.

    Args:
        client: asks for addresses.
        intake: takes what arrives.
        count: connections to keep; Slack allows ten for each app.
        ping_interval_s, quiet_s: see ``SlackSocket``.
        base_pause_s: the first pause after a failure; it doubles with each further one.
        monotonic, sleep: the clock.
    """

    def __init__(
        self,
        *,
        client: SlackClient,
        intake: SlackIntake,
        count: int = 2,
        ping_interval_s: float = 5.0,
        quiet_s: float = 300.0,
        base_pause_s: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if count < 1:
            raise ValueError("at least one connection is needed")
        self._client = client
        self._intake = intake
        self._count = count
        self._ping_interval_s = ping_interval_s
        self._quiet_s = quiet_s
        self._base_pause_s = base_pause_s
        self._monotonic = monotonic
        self._sleep = sleep
        self._session: aiohttp.ClientSession | None = None
        self._sockets: set[SlackSocket] = set()
        self._lost_at: list[float] = []
        self._opening = asyncio.Lock()  # one at a time: so a wish to wait holds for all
        self._keepers: set[asyncio.Task[None]] = set()
        self._lingering: set[asyncio.Task[None]] = set()
        self._told = 0
        self._crowded = 0

    @property
    def connected(self) -> bool:
        """True while events can arrive on at least one connection."""
        return any(socket.ready for socket in self._sockets)

    async def start(self) -> None:
        """Open the first connection, and keep as many as there shall be from now on.

        Raises:
            AdapterNotConfigured: the app token is missing or refused; nothing is kept.
            SlackUnreachable: there is no connection yet; it is tried again until ``close``.
        """
        failure: SlackUnreachable | None = None
        first: SlackSocket | None = None
        try:
            async with self._opening:
                first = await self._open()
        except SlackUnreachable as error:
            failure = error
        for n in range(self._count):
            self._keep(first if n == 0 else None, self._pause_after(failure, 0.0) if failure else 0.0)
        if failure is not None:
            raise failure

    async def close(self, grace_s: float = 3.0) -> None:
        """Stop receiving first, let running work acknowledge for up to ``grace_s``, then close every connection."""
        tasks = [*self._keepers, *self._lingering]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._sockets:
            await asyncio.gather(*(socket.close(grace_s) for socket in self._sockets))
        self._sockets.clear()
        if self._session is not None:
            await self._session.close()
            self._session = None

    # -- keeping
    def _keep(self, socket: SlackSocket | None, pause_s: float) -> None:
        task = asyncio.create_task(self._keep_one(socket, pause_s), name="slack-socket-keeper")
        self._keepers.add(task)
        task.add_done_callback(self._on_keeper_done)

    def _on_keeper_done(self, task: asyncio.Task[None]) -> None:
        """A keeper never ends by itself: when it does, that is a defect, and events must arrive nevertheless."""
        self._keepers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("slack_socket_keeper_failed", exc_info=error)
            self._keep(None, LONGEST_PAUSE_S)

    async def _keep_one(self, socket: SlackSocket | None, pause_s: float) -> None:
        """Keep one connection for ever. ``pause_s`` is waited before the next attempt; it grows with failures."""
        while True:
            if socket is None:
                socket, pause_s = await self._try(pause_s)
                continue
            born = self._monotonic()
            ending = await socket.wait_ending()
            old, socket = socket, None
            pause_s = 0.0 if self._monotonic() - born >= SHORT_LIFE_S else self._longer(pause_s)
            if ending == "too_many_websockets":
                pause_s = self._pause_after(_Crowded(), pause_s)
            log.info("slack_socket_ended", reason=ending, next_in_s=pause_s)
            if ending in _GENTLE:
                self._let_linger(old)  # while its replacement is opened
            else:
                await self._drop(old)

    async def _try(self, pause_s: float) -> tuple[SlackSocket | None, float]:
        """Try once, after a pause. Returns the connection, or none; and the pause before the next attempt."""
        if pause_s > 0:
            await self._sleep(pause_s)
        try:
            async with self._opening:
                return await self._open(), pause_s
        except AdapterError as error:
            return None, self._pause_after(error, pause_s)

    def _pause_after(self, error: AdapterError, pause_s: float) -> float:
        """Say why there is no connection, and how long to wait. A crowd is told once until it is over."""
        if isinstance(error, _Crowded):
            if not self._crowded:
                log.error(
                    "slack_has_too_many_sockets",
                    hint="end other processes that use this app token; Slack allows ten connections for each app",
                )
            self._crowded += 1
            return min(300.0, CROWDED_PAUSE_S * 2.0 ** min(self._crowded - 1, 5))
        if isinstance(error, SlackUnreachable):
            log.warning("slack_not_connected", reason=str(error))
            return self._longer(pause_s)
        log.error("slack_not_connected", reason=str(error))
        return REFUSED_PAUSE_S

    def _longer(self, pause_s: float) -> float:
        return min(LONGEST_PAUSE_S, max(self._base_pause_s, pause_s * 2))

    def _let_linger(self, socket: SlackSocket) -> None:
        task = asyncio.create_task(self._linger(socket), name="slack-socket-lingering")
        self._lingering.add(task)
        task.add_done_callback(self._lingering.discard)

    async def _linger(self, socket: SlackSocket) -> None:
        """Let a connection that is to go deliver what is still on its way."""
        try:
            async with asyncio.timeout(LINGER_S):
                await socket.wait_over()
        except TimeoutError:
            log.info("slack_socket_lingered")
        await self._drop(socket)

    # -- opening
    async def _open(self) -> SlackSocket | None:
        """Open one connection.

        Raises:
            AdapterNotConfigured: the app token is missing or refused.
            SlackUnreachable: try again later.
        """
        url = await self._client.open_socket()
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=HELLO_S))
        socket = SlackSocket(
            on_envelope=self._on_envelope,
            on_hello=self._on_hello,
            ping_interval_s=self._ping_interval_s,
            quiet_s=self._quiet_s,
            monotonic=self._monotonic,
        )
        self._sockets.add(socket)  # before the hello, which tells how many there are
        try:
            ended = await socket.open(self._session, url, self._client.proxy)
        except SOCKET_ERRORS as error:
            await self._drop(socket)
            why = type(error).__name__
            said = f"slack: the websocket could not be opened ({why}); does a proxy block it?"
            raise SlackUnreachable(said) from None
        except asyncio.CancelledError:
            await self._drop(socket)
            raise
        if ended is not None:
            await self._drop(socket)
            if ended == "too_many_websockets":
                raise _Crowded
            raise SlackUnreachable(f"slack: the websocket ended before it could be used ({ended})")
        self._crowded = 0
        log.info("slack_socket_connected")
        return socket

    async def _drop(self, socket: SlackSocket) -> None:
        await socket.close()
        if socket in self._sockets:
            self._sockets.discard(socket)
            self._lost_at.append(self._monotonic())

    # -- what arrives
    def _on_hello(self, connections: int) -> None:
        """Warn when Slack counts more connections than we have: it gives each event to one of them only."""
        now = self._monotonic()
        self._lost_at = [at for at in self._lost_at if now - at < FORGOTTEN_S]
        ours = len(self._sockets) + len(self._lost_at)
        if connections > ours and connections != self._told:
            log.warning(
                "slack_socket_is_shared",
                connections=connections,
                ours=len(self._sockets),
                hint="is another Hermod using this app token?",
            )
        self._told = connections if connections > ours else 0

    async def _on_envelope(self, socket: SlackSocket, envelope: Wire) -> None:
        envelope_id = text_of(envelope, "envelope_id")
        answer = await self._intake.receive(part_of(envelope, "payload"), delivery_id=envelope_id)
        if not answer.ok:
            return
        body = answer.body if envelope.get("accepts_response_payload") is True else None
        # a connection that broke meanwhile: Slack knows the envelope on any other one too
        for way in (socket, *(other for other in self._sockets if other is not socket and other.ready)):
            try:
                await way.acknowledge(envelope_id, body)
            except OSError:
                continue
            return
        log.info("slack_not_acknowledged", reason="no connection")
