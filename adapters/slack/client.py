"""Outbound calls to Slack: what went through, what did not, and what to do about it.

Slack's own client is used with all of its retries switched off: it would send a message twice after a broken
connection. Every outcome of a post is a value; whoever keeps the outbox decides when to try again.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from adapters.chat import AdapterError, AdapterNotConfigured, Delivered, Delivery, InDoubt, Rejected, RetryLater
from adapters.slack.parse import Identity, Person, Wire, parse_identity, parse_person, part_of, parts_of, text_of

log = structlog.get_logger("hermod.slack")

EVENT_TYPE = "hermod_reply"
"""The type of the metadata that marks our posts; its payload holds the reply's key."""

LATE_S = 3.0
"""A post whose turn is over for so long is not made; shorter than the time after which others take work over."""

PAGE = 200
MAX_PAGES = 50

_COPY_AGAIN = "copy the token again from the app's page at api.slack.com/apps and set it in [slack]"

REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "not_in_channel": "invite Hermod to the channel: /invite @hermod",
        "channel_not_found": "the channel does not exist or Hermod is not in it; invite it: /invite @hermod",
        "is_archived": "the channel is archived; unarchive it or ask in another one",
        "restricted_action": "the workspace allows only some people to post in this channel; ask its admins",
        "restricted_action_thread_locked": "the thread is locked",
        "missing_scope": "add the scope to the app (manifest.yml has the full list) and reinstall it",
        "not_allowed_token_type": "the bot token begins with xoxb-, the app token with xapp-; check [slack]",
        "not_authed": _COPY_AGAIN,
        "invalid_auth": _COPY_AGAIN,
        "account_inactive": "the app was removed from the workspace; install it again and set the new token",
        "token_revoked": "the token was revoked; install the app again and set the new token",
        "token_expired": "the token expired; install the app again and set the new token",
        "no_permission": "the token may not do this; reinstall the app with the scopes of manifest.yml",
        "ekm_access_denied": "the organisation's key policy forbids posting; ask its admins",
        "msg_too_long": "the text is too long for one post",
        "no_text": "the text is empty",
    }
)

_REFUSED = frozenset(
    {"not_authed", "invalid_auth", "account_inactive", "token_revoked", "token_expired", "not_allowed_token_type",
     "missing_scope", "no_permission"}
)  # fmt: skip
_BUSY = frozenset({"ratelimited", "rate_limited", "service_unavailable", "team_added_to_org"})
_UNCLEAR = frozenset({"", "internal_error", "fatal_error", "request_timeout"})

# AttributeError: what Slack's client raises for a 200 whose body is plain text, as some proxies answer
CALL_ERRORS = (SlackApiError, aiohttp.ClientError, OSError, TimeoutError, AttributeError)


class SlackUnreachable(AdapterError):
    """Slack did not answer; a later try may succeed."""


def error_code(error: BaseException) -> str:
    """Return Slack's word for what failed, empty when the failure was not Slack's own answer."""
    if isinstance(error, SlackApiError):
        data = getattr(error.response, "data", None)
        if isinstance(data, Mapping):
            return text_of(data, "error")
    return ""


def describe(error: BaseException) -> str:
    """Say what failed and what to do, without tokens and addresses."""
    code = error_code(error)
    if not code:
        return f"Slack did not answer as it should ({type(error).__name__})"
    needed = text_of(error.response.data, "needed") if isinstance(error, SlackApiError) else ""
    remedy = REMEDIES.get(code, "")
    return f"Slack refused: {code}" + (f" (needs {needed})" if needed else "") + (f"; {remedy}" if remedy else "")


def outcome_of(error: BaseException) -> RetryLater | Rejected | InDoubt:
    """Say what a failed post means: certainly not posted, never possible, or not known.

    Slack documents of ``fatal_error`` and ``internal_error`` that parts of the work may have been done.
    """
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.InvalidURL):
        return RetryLater(after_s=3.0, reason=f"Slack could not be reached ({type(error).__name__})")
    if not isinstance(error, SlackApiError):
        return InDoubt(reason=f"the connection to Slack broke ({type(error).__name__})")
    code, status = error_code(error), _status(error)
    if status == 429 or code in _BUSY:
        return RetryLater(after_s=retry_after(error), reason=f"Slack asks to wait ({code or status})")
    if status >= 500 or code in _UNCLEAR:
        return InDoubt(reason=f"Slack failed while it worked on the post ({code or status})")
    return Rejected(reason=describe(error))


def retry_after(error: SlackApiError, default_s: float = 1.0) -> float:
    """Return how many seconds Slack asks to wait."""
    headers = getattr(error.response, "headers", None)
    for name, value in headers.items() if isinstance(headers, Mapping) else ():
        if name.lower() == "retry-after":
            try:
                return max(0.0, float(value))
            except (TypeError, ValueError):
                break
    return default_s


def _status(error: SlackApiError) -> int:
    status = getattr(error.response, "status_code", None) or getattr(error.response, "status", 0)
    return status if isinstance(status, int) else 0


class Pacer:
    """Keeps to the pace of a channel once Slack has complained.

    Slack allows about one message a second in a channel and short bursts above that, without saying how long
    (docs.slack.dev/apis/web-api/rate-limits). So posts run free until a 429; from then on the channel gets one
    message a second, until a minute has passed without another complaint.
    """

    def __init__(self, monotonic: Callable[[], float], *, interval_s: float = 1.0, calm_s: float = 60.0) -> None:
        self._monotonic = monotonic
        self._interval_s = interval_s
        self._calm_s = calm_s
        self._next: dict[str, float] = {}
        self._until: dict[str, float] = {}

    def reserve(self, channel: str, patience_s: float) -> tuple[bool, float]:
        """Take the next turn if it comes within ``patience_s``; returns whether, and how long until it."""
        now = self._monotonic()
        if self._until.get(channel, 0.0) <= now:
            self._until.pop(channel, None)
            self._next.pop(channel, None)
            return True, 0.0
        turn = max(now, self._next.get(channel, now))
        if turn - now > patience_s:
            return False, turn - now
        self._next[channel] = turn + self._interval_s
        return True, turn - now

    def slow_down(self, channel: str, after_s: float) -> None:
        """Slack complained: nothing for ``after_s`` seconds, then one at a time."""
        now = self._monotonic()
        self._next[channel] = max(self._next.get(channel, now), now + after_s)
        self._until[channel] = max(self._until.get(channel, now), now + after_s + self._calm_s)


class SlackClient:
    """Typed calls of the few Web API methods that Hermod uses. Safe to call concurrently.

    Args:
        bot_token, app_token: as the app's page shows them.
        api_url: base of the Web API; a loopback address is never reached through a proxy.
        timeout_s: the longest time of one call.
        monotonic, sleep: the clock of the pacing.
    """

    def __init__(
        self,
        *,
        bot_token: str,
        app_token: str,
        api_url: str,
        timeout_s: float = 20.0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._bot_token = bot_token.strip()
        self._app_token = app_token.strip()
        self._api_url = api_url
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._sleep = sleep
        self._pacer = Pacer(monotonic)
        self._session: aiohttp.ClientSession | None = None
        self._web: AsyncWebClient | None = None
        self._status_off = ""
        self.proxy = find_proxy(api_url)
        self.sdk_log = logging.getLogger("hermod.slack.sdk")
        self.sdk_log.setLevel(logging.WARNING)  # below it Slack's client logs request bodies

    def build_web(self, token: str | None) -> AsyncWebClient:
        """Build a client of Slack's for this address, without retries, on the shared session."""
        if self._session is None or self._session.closed:
            limits = aiohttp.ClientTimeout(total=self._timeout_s, connect=5.0, sock_connect=5.0)
            self._session = aiohttp.ClientSession(timeout=limits)
        web = AsyncWebClient(
            token=token,
            base_url=self._api_url,
            timeout=int(self._timeout_s),
            session=self._session,
            logger=self.sdk_log,
            retry_handlers=[],
        )
        web.proxy = self.proxy  # the client takes any proxy variable, whatever NO_PROXY says
        return web

    @property
    def web(self) -> AsyncWebClient:
        """The client that acts as the bot."""
        if self._web is None:
            self._web = self.build_web(self._bot_token)
        return self._web

    async def close(self) -> None:
        """Close every connection; a later call opens new ones."""
        self._web = None
        if self._session is not None:
            await self._session.close()
            self._session = None

    # -- who we are
    async def identify(self) -> Identity:
        """Ask auth.test who we are.

        Raises:
            AdapterNotConfigured: the bot token is missing or refused, or belongs to no bot.
            SlackUnreachable: try again later.
        """
        if not self._bot_token:
            raise AdapterNotConfigured("slack: bot_token is missing; set it in [slack] or HERMOD_SLACK__BOT_TOKEN")
        try:
            answer = await self.web.auth_test()
        except CALL_ERRORS as error:
            raise _start_error("bot_token", error) from None
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
        try:
            answer = await self.web.apps_connections_open(app_token=self._app_token)
        except CALL_ERRORS as error:
            raise _start_error("app_token", error) from None
        return text_of(_data(answer), "url")

    async def fetch_person(self, user: str, identity: Identity) -> Person | None:
        """Ask users.info; None when it does not tell."""
        try:
            answer = await self.web.users_info(user=user)
        except CALL_ERRORS as error:
            log.info("slack_user_unknown", user=user, reason=describe(error))
            return None
        return parse_person(part_of(_data(answer), "user"), identity)

    # -- posting
    async def post(self, *, channel: str, thread_ts: str | None, text: str, key: str, patience_s: float) -> Delivery:
        """Post mrkdwn, marked with ``key``; waits at most ``patience_s`` for the channel's turn.

        A process that stood still while it waited posts nothing: by now another one may have done so.
        """
        mine, wait_s = self._pacer.reserve(channel, patience_s)
        if not mine:
            return RetryLater(after_s=wait_s, reason="the channel had more messages than Slack takes")
        if wait_s > 0:
            due = self._monotonic() + wait_s
            await self._sleep(wait_s)
            if self._monotonic() > due + LATE_S:
                return RetryLater(after_s=0.0, reason="this process stood still for a while")
        try:
            answer = await self.web.chat_postMessage(
                channel=channel,
                thread_ts=thread_ts,
                text=text,
                mrkdwn=True,
                link_names=False,
                unfurl_links=False,
                unfurl_media=False,
                metadata={"event_type": EVENT_TYPE, "event_payload": {"key": key}},
            )
        except CALL_ERRORS as error:
            outcome = outcome_of(error)
            if isinstance(outcome, RetryLater) and isinstance(error, SlackApiError):
                self._pacer.slow_down(channel, outcome.after_s)
            return outcome
        return Delivered(remote_id=text_of(_data(answer), "ts"))

    async def find_posted(
        self, *, channel: str, thread_ts: str | None, key: str, identity: Identity
    ) -> Delivered | InDoubt | None:
        """Look through the thread (without ``thread_ts``: the newest of the channel) for our post with ``key``."""
        cursor: str | None = None
        for _ in range(MAX_PAGES if thread_ts else 5):
            try:
                answer = await self._page(channel, thread_ts, cursor)
            except CALL_ERRORS as error:
                if error_code(error) == "thread_not_found":
                    return None
                return InDoubt(reason=f"the thread could not be read: {describe(error)}")
            data = _data(answer)
            for message in parts_of(data, "messages"):
                if _is_post(message, key, identity):
                    return Delivered(remote_id=text_of(message, "ts"))
            cursor = text_of(part_of(data, "response_metadata"), "next_cursor")
            if not cursor:
                return None
        return InDoubt(reason="there are too many messages to look through")

    async def _page(self, channel: str, thread_ts: str | None, cursor: str | None) -> AsyncSlackResponse:
        if thread_ts is None:
            return await self.web.conversations_history(
                channel=channel, cursor=cursor, limit=PAGE, include_all_metadata=True
            )
        return await self.web.conversations_replies(
            channel=channel, ts=thread_ts, cursor=cursor, limit=PAGE, include_all_metadata=True
        )

    async def set_status(self, *, channel: str, thread_ts: str, text: str, timeout_s: float = 3.0) -> None:
        """Show a status in a thread, as well as it goes. Falls quiet for good where the app may not."""
        if self._status_off:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self.web.assistant_threads_setStatus(channel_id=channel, thread_ts=thread_ts, status=text)
        except CALL_ERRORS as error:
            code = error_code(error)
            if code in _REFUSED or code in ("unknown_method", "method_not_supported_for_channel_type"):
                self._status_off = code
                log.warning("slack_status_switched_off", reason=describe(error))


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


def _start_error(setting: str, error: BaseException) -> AdapterError:
    code = error_code(error)
    if code in _REFUSED or (code and isinstance(outcome_of(error), Rejected)):
        return AdapterNotConfigured(f"slack: {setting} was not accepted. {describe(error)}")
    return SlackUnreachable(f"slack: {describe(error)}; is api_url right and the network up?")


def _data(answer: AsyncSlackResponse) -> Wire:
    return answer.data if isinstance(answer.data, Mapping) else {}


def _scopes(answer: AsyncSlackResponse) -> frozenset[str] | None:
    for name, value in answer.headers.items():
        if name.lower() == "x-oauth-scopes":
            return frozenset(scope.strip() for scope in str(value).split(",") if scope.strip())
    return None


def _is_post(message: Wire, key: str, identity: Identity) -> bool:
    """True for our own message with this key; another app's metadata never counts."""
    ours = text_of(message, "bot_id") == identity.bot or text_of(message, "user") == identity.bot_user
    metadata = part_of(message, "metadata")
    return (
        ours
        and text_of(metadata, "event_type") == EVENT_TYPE
        and text_of(part_of(metadata, "event_payload"), "key") == key
    )
