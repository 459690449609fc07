"""Calls of Slack's Web API: each one has its turn, none is tried again by itself, every failure is a value.

Slack's own client is used with all of its retries switched off: it would send a message twice after a broken
connection. Whoever keeps the outbox decides when to try again.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from adapters.chat import AdapterError, AdapterNotConfigured, Rejected, RetryLater
from adapters.slack.outcome import CALL_ERRORS, DEAD_TOKENS, Failed, build_failed, error_code
from adapters.slack.pace import Pace, Wait
from adapters.slack.parse import Identity, Person, parse_identity, parse_person
from adapters.slack.wire import Wire, part_of, text_of

log = structlog.get_logger("hermod.slack")

LATE_S = 3.0
"""A post whose turn is over for so long is not made; shorter than the time after which others take work over."""

Send = Callable[[AsyncWebClient], Awaitable[AsyncSlackResponse]]

Renew = Callable[[str, str], Awaitable[str | None]]
"""Given a token and Slack's word for why it is dead: returns the one that took its place, None for none."""


class SlackUnreachable(AdapterError):
    """Slack did not answer; a later try may succeed."""


class SlackClient:
    """A workspace's Web API, paced. Safe to call concurrently.

    Args:
        bot_token, app_token: as the app's page shows them.
        api_url: base of the Web API; a loopback address is never reached through a proxy.
        timeout_s: the longest time of one call.
        renew: asked when Slack refuses the bot token; a call is made once more with the token that it gives.
        monotonic, sleep: the clock of ``pace``, which gives every call its turn.
    """

    def __init__(
        self,
        *,
        bot_token: str,
        app_token: str,
        api_url: str,
        timeout_s: float = 20.0,
        renew: Renew | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._bot_token = bot_token.strip()
        self._app_token = app_token.strip()
        self._api_url = api_url
        self._timeout_s = timeout_s
        self._renew = renew
        self._ended: Failed | None = None
        self._monotonic = monotonic
        self.pace = Pace(monotonic=monotonic, sleep=sleep)
        self._session: aiohttp.ClientSession | None = None
        self._web: AsyncWebClient | None = None
        self.proxy = find_proxy(api_url)
        self.sdk_log = logging.getLogger("hermod.slack.sdk")
        self.sdk_log.setLevel(logging.WARNING)  # below it Slack's client logs request bodies

    def build_web(self, token: str | None) -> AsyncWebClient:
        """Build a client of Slack's for this address, without retries, on the shared session."""
        web = AsyncWebClient(
            token=token,
            base_url=self._api_url,
            timeout=int(self._timeout_s),
            session=self.session,
            logger=self.sdk_log,
            retry_handlers=[],
        )
        web.proxy = self.proxy  # the client takes any proxy variable, whatever NO_PROXY says
        return web

    @property
    def session(self) -> aiohttp.ClientSession:
        """The connections, for what is no method of the Web API (files, ``response_url``)."""
        if self._session is None or self._session.closed:
            limits = aiohttp.ClientTimeout(total=self._timeout_s, connect=5.0, sock_connect=5.0)
            self._session = aiohttp.ClientSession(timeout=limits)
        return self._session

    @property
    def authorization(self) -> str:
        """The header that acts as the bot; for Slack's own hosts only."""
        return f"Bearer {self._bot_token}"

    @property
    def api_url(self) -> str:
        """The base of the Web API."""
        return self._api_url

    @property
    def web(self) -> AsyncWebClient:
        """The client that acts as the bot."""
        if self._web is None:
            self._web = self.build_web(self._bot_token)
        return self._web

    def use_token(self, bot_token: str) -> None:
        """Act with another token from now on, also where ``end`` was called."""
        self._bot_token, self._web, self._ended = bot_token.strip(), None, None

    def end(self, reason: str) -> None:
        """Make no call as the bot any more: the workspace removed the app. ``reason`` is for the log."""
        said = f"the workspace removed the app ({reason}); somebody there has to install it again"
        self._ended = Failed(code="account_inactive", said=said, outcome=Rejected(reason=said), sent=False)

    async def close(self) -> None:
        """Close every connection; a later call, or one made meanwhile, opens new ones, and another close ends those."""
        session, self._session, self._web = self._session, None, None
        if session is not None:
            await session.close()

    # -- who we are
    async def identify(self) -> Identity:
        """Ask auth.test who we are.

        Raises:
            AdapterNotConfigured: the bot token is missing or refused, or belongs to no bot.
            SlackUnreachable: try again later.
        """
        if not self._bot_token:
            raise AdapterNotConfigured("slack: bot_token is missing; set it in [slack] or HERMOD_SLACK__BOT_TOKEN")
        answer = await self._ask("auth.test", lambda web: web.auth_test(), patience_s=5.0)
        if isinstance(answer, Failed):
            raise _start_error("bot_token", answer)
        identity = parse_identity(_data(answer), _scopes(answer))
        if identity is None:
            raise AdapterNotConfigured("slack: bot_token belongs to no bot; use the Bot User OAuth Token (xoxb-...)")
        return identity

    async def open_socket(self) -> str:
        """Ask for the address of a Socket Mode connection.

        Raises:
            AdapterNotConfigured: the app token is missing or refused.
            SlackUnreachable: try again later.
        """
        if not self._app_token:
            raise AdapterNotConfigured("slack: app_token is missing; set it in [slack] or HERMOD_SLACK__APP_TOKEN")
        answer = await self.call(
            "apps.connections.open", lambda web: web.apps_connections_open(app_token=self._app_token), patience_s=5.0
        )
        if isinstance(answer, Failed):
            raise _start_error("app_token", answer)
        return text_of(answer, "url")

    async def fetch_person(self, user: str, identity: Identity) -> Person | None:
        """Ask users.info; None when it does not tell."""
        answer = await self.call("users.info", lambda web: web.users_info(user=user), priority=1, patience_s=5.0)
        if isinstance(answer, Failed):
            log.info("slack_user_unknown", user=user, reason=answer.said)
            return None
        return parse_person(part_of(answer, "user"), identity)

    # -- one call
    async def call(
        self,
        method: str,
        send: Send,
        *,
        channel: str = "",
        priority: int = 0,
        patience_s: float = 0.0,
        since: float | None = None,
        timeout_s: float | None = None,
    ) -> Wire | Failed:
        """Make one call when it is its turn.

        Args:
            method: its name, which has a rate in ``pace``.
            send: makes the call with the client that it is given.
            channel: the channel that the call is for, where the rate is a channel's.
            priority: see ``Reply.priority``; 2 never waits.
            patience_s: how long to wait for the turn.
            since: when it was last known that this process may make the call (monotonic). When that is more than
                ``LATE_S`` ago as the call is about to leave, it is not made: by now another process may have made it.
            timeout_s: of the call itself; by default the client's.

        Returns:
            What Slack answered, or why it did not. Only cancellation is raised.
        """
        answer = await self._ask(
            method,
            send,
            channel=channel,
            priority=priority,
            patience_s=patience_s,
            since=since,
            timeout_s=timeout_s,
        )
        return answer if isinstance(answer, Failed) else _data(answer)

    async def _ask(
        self,
        method: str,
        send: Send,
        *,
        channel: str = "",
        priority: int = 0,
        patience_s: float = 0.0,
        since: float | None = None,
        timeout_s: float | None = None,
    ) -> AsyncSlackResponse | Failed:
        if self._ended is not None:
            return self._ended
        turn = await self.pace.turn(method, channel, priority=priority, patience_s=patience_s)
        if isinstance(turn, Wait):
            return _not_sent(turn.after_s, f"more calls of {method} than Slack takes")
        try:
            if since is not None and self._monotonic() > since + LATE_S:
                turn.unused()
                return _not_sent(0.0, "this process stood still for a while")
            async with asyncio.timeout(timeout_s):
                return await self._send(send)
        except CALL_ERRORS as error:
            failed = build_failed(error)
            if isinstance(failed.outcome, RetryLater) and failed.code:
                turn.refused(failed.outcome.after_s)
            return failed
        finally:
            turn.answered()

    async def _send(self, send: Send) -> AsyncSlackResponse:
        """Make the call; once more where the token is dead and another one took its place: nothing was done then."""
        token = self._bot_token
        try:
            return await send(self.web)
        except SlackApiError as error:
            code = error_code(error)
            newer = await self._renew(token, code) if self._renew is not None and code in DEAD_TOKENS else None
            if newer is None:
                raise
        self.use_token(newer)
        return await send(self.web)


def find_proxy(url: str) -> str | None:
    """Return the proxy for a URL, as the environment says; never one for this machine itself."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost" or host.endswith(".localhost")
    if local or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _not_sent(after_s: float, reason: str) -> Failed:
    return Failed(code="", said=reason, outcome=RetryLater(after_s=after_s, reason=reason), sent=False)


def _start_error(setting: str, failed: Failed) -> AdapterError:
    if failed.refused or (failed.code and isinstance(failed.outcome, Rejected)):
        return AdapterNotConfigured(f"slack: {setting} was not accepted. {failed.said}")
    return SlackUnreachable(f"slack: {failed.said}; is api_url right and the network up?")


def _data(answer: AsyncSlackResponse) -> Wire:
    return answer.data if isinstance(answer.data, Mapping) else {}


def _scopes(answer: AsyncSlackResponse) -> frozenset[str] | None:
    for name, value in answer.headers.items():
        if name.lower() == "x-oauth-scopes":
            return frozenset(scope.strip() for scope in str(value).split(",") if scope.strip())
    return None
