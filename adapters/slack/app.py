"""Slack over Socket Mode, as a ``ChatAdapter``.

The order that matters: an event is handed to ``accept`` first and acknowledged only when that returned, so that
Slack delivers it again when it could not be stored. Bolt does this with ``process_before_response``: it runs the
listener to its end before it answers, and answers 500 (which sends no acknowledgement) when the listener raised.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime
from typing import Any

import structlog
from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app, send_async_response
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.request import SocketModeRequest

from adapters.chat import (
    Accept,
    AdapterError,
    AdapterNotConfigured,
    Author,
    Capabilities,
    ConnectionState,
    Delivered,
    Delivery,
    InDoubt,
    Limits,
    PlainPlatform,
    Problem,
    Rejected,
    Reply,
    ThreadRef,
)
from adapters.slack.client import SlackClient, SlackUnreachable
from adapters.slack.directory import Directory
from adapters.slack.order import ArrivalOrder
from adapters.slack.parse import (
    COMMAND_THREAD,
    PLATFORM,
    Draft,
    Identity,
    Person,
    build_author,
    build_message,
    parse_actions,
    parse_command,
    parse_event,
    part_of,
    text_of,
)
from adapters.slack.render import TEXT_CUT, render_mrkdwn
from adapters.slack.socket import SlackSocket

log = structlog.get_logger("hermod.slack")

LIMITS = Limits(text_max=3500, unit="chars")
"""Of canonical Markdown. Slack recommends 4,000 characters and cuts at 40,000; escaping grows a text at most
fivefold, and ``render_mrkdwn`` stays below the cut for every text that fits here."""

CAPABILITIES = Capabilities(threads=True, status=True, status_ttl_s=120.0, buttons=True)

BOT_SCOPES = {
    "app_mentions:read": "to hear when it is mentioned",
    "channels:history": "to hear follow-ups in public channels, and to look whether a post arrived",
    "chat:write": "to answer, and to show that it works",
    "commands": "for /hermod",
    "groups:history": "to hear follow-ups in private channels, and to look whether a post arrived",
    "im:history": "to hear direct messages, and to look whether a post arrived",
    "mpim:history": "to hear group messages, and to look whether a post arrived",
    "users:read": "to know names, guests and people of other organisations",
}
"""The bot scopes that the code uses, each with its reason; ``manifest.yml`` asks for exactly these."""

BOT_EVENTS = ("app_mention", "message.channels", "message.groups", "message.im", "message.mpim")
"""The events that the code understands; ``manifest.yml`` subscribes to exactly these."""

UNKNOWN_COMMAND = "I do not know `{command}`. Mention me in a channel and ask in plain words, or try `/hermod help`."

_ANY = re.compile("")


class SlackAdapter(PlainPlatform):
    """A Slack workspace over Socket Mode. All methods may be called concurrently.

    A slash command belongs to no thread; its ``ThreadRef.thread`` is ``command-`` and the trigger id, and
    replies to such a thread are posted into the channel itself.

    Args:
        bot_token: ``xoxb-…``.
        app_token: ``xapp-…`` with ``connections:write``.
        api_url: base of the Web API.
        bots: ids of other bots whose messages count; all others are dropped.
        people_wait_s: the longest time that looking up names may hold up an acknowledgement.
        people_ttl_s: how long a person is taken as known.
        post_patience_s: the longest time that a post waits for its channel's turn.
        call_timeout_s: the longest time of one call of the Web API.
        ping_interval_s: of the websocket; without answers for four times as long it is replaced.
        stall_s: after so long without a connection, everything is opened anew.
        watch_s: how often that is looked at.
        now, monotonic, sleep: the clock.
    """

    platform = PLATFORM
    capabilities = CAPABILITIES
    limits = LIMITS

    def __init__(
        self,
        bot_token: str,
        app_token: str,
        api_url: str = "https://slack.com/api/",
        *,
        bots: Collection[str] = (),
        people_wait_s: float = 1.0,
        people_ttl_s: float = 3600.0,
        post_patience_s: float = 2.0,
        call_timeout_s: float = 20.0,
        ping_interval_s: float = 5.0,
        stall_s: float = 30.0,
        watch_s: float = 1.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = SlackClient(
            bot_token=bot_token,
            app_token=app_token,
            api_url=api_url,
            timeout_s=call_timeout_s,
            monotonic=monotonic,
            sleep=sleep,
        )
        self._tokens = {"bot_token": (bot_token, "xoxb-"), "app_token": (app_token, "xapp-")}
        self._bots = frozenset(bots)
        self._post_patience_s = post_patience_s
        self._ping_interval_s = ping_interval_s
        self._stall_s = stall_s
        self._watch_s = watch_s
        self._now = now
        self._monotonic = monotonic
        self._sleep = sleep
        self._people = Directory(self._fetch_person, monotonic=monotonic, ttl_s=people_ttl_s, wait_s=people_wait_s)
        self._order = ArrivalOrder()
        self._accept: Accept | None = None
        self._identity: Identity | None = None
        self._bolt: AsyncApp | None = None
        self._socket: SlackSocket | None = None
        self._watch: asyncio.Task[None] | None = None
        self._last_event_at: datetime | None = None
        self._connected_since: datetime | None = None

    # -- the connection
    @property
    def connected(self) -> bool:
        """True while the websocket is open and Slack has greeted on it."""
        return self._socket is not None and self._socket.ready

    @property
    def state(self) -> ConnectionState:
        """How the connection stands, since when, and when something last came in."""
        return ConnectionState(
            connected=self.connected,
            since=self._connected_since if self.connected else None,
            last_event_at=self._last_event_at,
        )

    async def start(self, accept: Accept) -> None:
        """Learn who we are, then open the socket; nothing is accepted before our own identity is known.

        Returns also when Slack cannot be reached: it is then tried again until ``stop``, and ``connected`` tells.

        Raises:
            AdapterNotConfigured: a token is missing or refused.
        """
        self._accept = accept
        try:
            await self._connect()
        except SlackUnreachable as error:
            log.warning("slack_not_reached", reason=str(error))
        self._watch = asyncio.create_task(self._keep_connected(), name="slack-watch")

    async def stop(self) -> None:
        """Stop receiving, let what was received be acknowledged, close everything. Safe to call twice."""
        self._accept = None
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
            self._watch = None
        if self._socket is not None:
            socket, self._socket = self._socket, None
            await socket.close()
        await self._people.close()
        await self._client.close()

    async def _connect(self) -> None:
        self._identity = self._identity or await self._client.identify()
        self._bolt = self._bolt or self._build_bolt(self._identity)
        url = await self._client.open_socket()
        if self._socket is not None:
            old, self._socket = self._socket, None
            await old.close()
        socket = self._socket = SlackSocket(
            app_token=self._tokens["app_token"][0],
            web=self._client.web,
            proxy=self._client.proxy,
            logger=self._client.sdk_log,
            handle=self._on_envelope,
            on_event=self._note_event,
            ping_interval_s=self._ping_interval_s,
        )
        socket.wss_uri = url
        try:
            async with asyncio.timeout(10.0):  # Slack's client would try the same address for ever
                await socket.connect()  # type: ignore[no-untyped-call]
                await socket.wait_ready()
        except TimeoutError:
            raise SlackUnreachable("slack: the websocket could not be opened; does a proxy block it?") from None
        self._connected_since = self._now()

    async def _keep_connected(self) -> None:
        """Open everything anew when the connection stays away; Slack's client does not get over every failure."""
        lost_at = self._monotonic()
        pause_s = 0.0
        while True:
            await self._sleep(self._watch_s)
            if self.connected:
                lost_at, pause_s = self._monotonic(), 0.0
                continue
            if self._socket is not None and self._monotonic() - lost_at < max(self._stall_s, pause_s):
                continue
            if self._socket is None and self._monotonic() - lost_at < pause_s:
                continue
            try:
                await self._connect()
                log.info("slack_reconnected")
            except AdapterError as error:
                log.error("slack_not_connected", reason=str(error))
            lost_at, pause_s = self._monotonic(), min(60.0, max(2.0, pause_s * 2))

    def _note_event(self) -> None:
        self._last_event_at = self._now()

    # -- what comes in
    def _build_bolt(self, identity: Identity) -> AsyncApp:
        """Register one listener for each kind of envelope, so that nothing stays unacknowledged."""

        async def authorize() -> AuthorizeResult:
            return AuthorizeResult(
                enterprise_id=identity.enterprise or None,
                team_id=identity.team,
                bot_id=identity.bot,
                bot_user_id=identity.bot_user,
            )

        bolt = AsyncApp(
            name="hermod",
            logger=self._client.sdk_log,
            client=self._client.build_web(None),
            authorize=authorize,
            process_before_response=True,
            request_verification_enabled=False,
            ssl_check_enabled=False,
            url_verification_enabled=False,
            attaching_function_token_enabled=False,
            attaching_conversation_kwargs_enabled=False,
        )
        bolt.event(_ANY)(self._on_event)
        bolt.command(_ANY)(self._on_command)
        bolt.block_action(_ANY)(self._on_action)
        return bolt

    async def _on_envelope(self, socket: SlackSocket, request: SocketModeRequest) -> None:
        if self._accept is None or self._bolt is None:
            return  # stopping: not acknowledged, so Slack delivers it to the next process
        begun = time.time()
        response: BoltResponse = await run_async_bolt_app(self._bolt, request)
        if response.status == 404:  # a kind of envelope that nobody here listens to
            log.info("slack_envelope_ignored", kind=request.type)
            response = BoltResponse(status=200)
        await send_async_response(socket, request, response, begun)

    async def _on_event(self, body: dict[str, Any]) -> None:
        accept, identity = self._ready()
        draft = parse_event(body, identity, bots=self._bots)
        if draft is None:
            return
        async with self._order.turn(draft.thread.key):
            await self._hand_over(draft, accept, identity)

    async def _hand_over(self, draft: Draft, accept: Accept, identity: Identity) -> None:
        concerns_us = draft.mentioned or draft.direct or draft.thread.thread != draft.id
        others = [person for person in draft.people if person != identity.bot_user]
        people = await self._people.find(others) if concerns_us else {}
        await accept(build_message(draft, people, identity))

    async def _on_command(self, body: dict[str, Any], ack: AsyncAck) -> None:
        accept, identity = self._ready()
        author = await self._author(text_of(body, "user_id"))
        command = parse_command(body, author, identity, self._now())
        if command is not None and await accept(command):
            await ack()
        else:
            name = text_of(body, "command").replace("`", "")
            await ack(text=UNKNOWN_COMMAND.format(command=name), response_type="ephemeral")

    async def _on_action(self, body: dict[str, Any], ack: AsyncAck) -> None:
        accept, identity = self._ready()
        user = part_of(body, "user")
        author = await self._author(text_of(user, "id"), team=text_of(user, "team_id"))
        for action in parse_actions(body, author, identity, self._now()):
            await accept(action)
        await ack()

    def _ready(self) -> tuple[Accept, Identity]:
        if self._accept is None or self._identity is None:
            raise AdapterError("slack: stopping; the event is left for the next process")
        return self._accept, self._identity

    async def _author(self, user: str, *, team: str = "") -> Author:
        people = await self._people.find([user] if user else [])
        identity = self._identity
        external = identity is not None and team not in ("", identity.team, identity.enterprise)
        return build_author(user, people.get(user), external=external)

    async def _fetch_person(self, user: str) -> Person | None:
        if self._identity is None:
            return None
        return await self._client.fetch_person(user, self._identity)

    # -- what goes out
    async def post(self, reply: Reply) -> Delivery:
        """Post one reply that fits ``limits``. Failures are values; only cancellation is raised."""
        text = render_mrkdwn(reply.text, reply.mentions)
        if not text.strip():
            return Rejected(reason="the text is empty")
        if len(text) >= TEXT_CUT:
            return Rejected(reason=f"the text is too long for one post ({len(text)} characters); fit it first")
        return await self._client.post(
            channel=reply.thread.channel,
            thread_ts=thread_ts_of(reply.thread),
            text=text,
            key=reply.key,
            patience_s=self._post_patience_s,
        )

    async def find_posted(self, thread: ThreadRef, key: str) -> Delivered | InDoubt | None:
        """Look in the thread for our own message whose metadata holds ``key``."""
        try:
            identity = self._identity = self._identity or await self._client.identify()
        except AdapterError as error:
            return InDoubt(reason=str(error))
        return await self._client.find_posted(
            channel=thread.channel, thread_ts=thread_ts_of(thread), key=key, identity=identity
        )

    async def set_status(self, thread: ThreadRef, text: str) -> None:
        """Show that work goes on (assistant.threads.setStatus). Best effort; never raises."""
        thread_ts = thread_ts_of(thread)
        if thread_ts is not None:
            await self._client.set_status(channel=thread.channel, thread_ts=thread_ts, text=text)

    async def check(self) -> tuple[Problem, ...]:
        """Look at tokens, scopes and reachability. Never raises; call ``stop`` afterwards to close connections."""
        problems = [
            Problem(
                what=f"slack: {name} does not begin with {prefix}", fix="the two tokens may be swapped; check [slack]"
            )
            for name, (token, prefix) in self._tokens.items()
            if token and not token.strip().startswith(prefix)
        ]
        try:
            identity = await self._client.identify()
        except AdapterError as error:
            problems.append(_problem(error))
        else:
            granted = identity.scopes
            problems += [
                Problem(
                    what=f"slack: the scope {scope} is missing ({reason})", fix="add it to the app and reinstall it"
                )
                for scope, reason in BOT_SCOPES.items()
                if granted is not None and scope not in granted
            ]
        try:
            await self._client.open_socket()
        except AdapterError as error:
            problems.append(_problem(error))
        return tuple(problems)


def thread_ts_of(thread: ThreadRef) -> str | None:
    """Return the ``thread_ts`` for a call; None for a command's thread, which is the channel itself."""
    return None if thread.thread.startswith(COMMAND_THREAD) else thread.thread


def _problem(error: AdapterError) -> Problem:
    what, _, fix = str(error).partition("; ")
    if isinstance(error, AdapterNotConfigured):
        return Problem(what=what, fix=fix or "check the tokens in [slack]")
    return Problem(what=what, fix=fix or "check api_url and the network", fatal=False)
