"""A look at a Slack app from outside, for ``hermod doctor``: what is missing, and what to click.

What Slack does not tell a bot is not looked at: which events are subscribed, and what the app's page says.
"""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal

import aiohttp

from adapters.chat import AdapterError, AdapterNotConfigured, Problem
from adapters.slack.client import SlackClient
from adapters.slack.manifest import APP_SCOPE, BOT_SCOPES, EVENT_SCOPES
from adapters.slack.outcome import CALL_ERRORS, Failed
from adapters.slack.wire import number_of, text_of

TOKEN_KINDS: Mapping[str, str] = {
    "xoxb-": "a bot token",
    "xapp-": "an app-level token",
    "xoxp-": "a user token",
    "xoxe": "a token that expires (rotation is switched on) or a token to refresh one",
    "xoxa-": "a workspace token of an old kind",
    "xoxc-": "a token of a browser",
    "xoxd-": "a cookie of a browser",
    "xoxs-": "a token of a browser",
}
"""docs.slack.dev/authentication/tokens"""

FIX_BOT = 'copy the "Bot User OAuth Token" (xoxb-...) from "OAuth & Permissions" into [slack] bot_token'
FIX_APP = (
    f'"Basic Information", "App-Level Tokens": generate one with the scope {APP_SCOPE} (xapp-...), '
    "and set it as [slack] app_token"
)
FIX_SIGNING = 'copy the "Signing Secret" from "Basic Information" into [slack] signing_secret'
SCOPE_FIX = (
    '"OAuth & Permissions", "Bot Token Scopes": add {scope}; then "Reinstall to Workspace" at the top of that page'
)
INVITE_FIX = "in the channel write /invite @hermod, or take the channel out of {where}"
CLOCK_FIX = "let the machine keep its time (timedatectl set-ntp true, or chrony)"
SHARED_FIX = "end the other process, or give it an app of its own: Slack gives each event to one connection only"

SKEW_WARN_S, SKEW_MOST_S = 30.0, 300.0
"""From five minutes on Slack's signatures are refused (``adapters.slack.http.WINDOW_S``)."""

HELLO_S = 5.0
MOST_CHANNELS = 50
FINE = (
    "tokens, scopes, clock and channels are as they should be (Slack does not tell which events are subscribed: "
    "compare with `hermod manifest`)"
)

_NOT_IN = ("not_in_channel", "channel_not_found", "is_archived")


class SlackCheckup:
    """Looks at one app with one bot token. ``check`` never raises; ``stop`` closes the connections.

    Args:
        bot_token, app_token, signing_secret: of ``[slack]``; empty where they are not set.
        many: workspaces install the app by themselves, so there need not be a bot token.
        api_url: base of the Web API.
        mode: how events arrive.
        channels: ids of channels that the settings name, each with the setting's name.
        running: how many connections of Socket Mode a running process of these settings has; 0 when none runs.
        now, monotonic: the clock.
    """

    fine = FINE

    def __init__(
        self,
        bot_token: str,
        app_token: str = "",
        api_url: str = "https://slack.com/api/",
        *,
        mode: Literal["socket", "http"] = "socket",
        signing_secret: str = "",
        many: bool = False,
        channels: Mapping[str, str] | None = None,
        running: int = 0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = SlackClient(bot_token=bot_token, app_token=app_token, api_url=api_url)
        self._bot_token, self._app_token, self._secret = bot_token.strip(), app_token.strip(), signing_secret.strip()
        self._mode, self._many = mode, many
        self._channels = dict(channels or {})
        self._running = running
        self._now = now
        self._monotonic = monotonic

    async def check(self) -> tuple[Problem, ...]:
        """Look at tokens, clock, scopes, channels and the connection, in this order."""
        problems = [*self._check_kinds(), *await self._check_clock()]
        if self._bot_token:
            try:
                identity = await self._client.identify()
            except AdapterError as error:
                problems.append(_problem(error, FIX_BOT))
            else:
                problems += _check_scopes(identity.scopes)
                problems += await self._check_channels()
        if self._mode == "socket" and self._app_token:
            problems += await self._check_socket()
        return tuple(problems)

    async def stop(self) -> None:
        """Close every connection. Safe to call twice."""
        await self._client.close()

    def _check_kinds(self) -> Iterator[Problem]:
        if self._bot_token or not self._many:
            yield from _check_kind("bot_token", self._bot_token, "xoxb-", FIX_BOT)
        if self._mode == "socket":
            yield from _check_kind("app_token", self._app_token, "xapp-", FIX_APP)
        elif not self._secret:
            yield Problem(what="slack: signing_secret is missing", fix=FIX_SIGNING)
        elif kind := _kind_of(self._secret):
            yield Problem(what=f"slack: signing_secret holds {kind}", fix=FIX_SIGNING)

    async def _check_clock(self) -> Iterator[Problem]:
        """Compare the Date of Slack's answer with our clock, as of the middle of the call."""
        begun, before = self._monotonic(), self._now()
        try:
            answer = await self._client.web.api_test()
        except CALL_ERRORS:
            return iter(())  # that Slack cannot be reached is told by the next call
        took_s = self._monotonic() - begun
        date = next((str(value) for name, value in answer.headers.items() if name.lower() == "date"), "")
        try:
            theirs = email.utils.parsedate_to_datetime(date)
        except ValueError:
            return iter(())
        # the header has whole seconds, so half a second is added to what it says
        skew_s = theirs.timestamp() + 0.5 - (before.timestamp() + took_s / 2)
        unsure_s = took_s / 2 + 0.5
        if abs(skew_s) - unsure_s < SKEW_WARN_S:
            return iter(())
        side = "behind" if skew_s > 0 else "ahead of"
        fatal = self._mode == "http" and abs(skew_s) >= SKEW_MOST_S
        more = "; Slack's deliveries are refused as too old" if fatal else ""
        what = f"slack: this machine's clock is {abs(skew_s):.0f} s {side} Slack's{more}"
        return iter((Problem(what=what, fix=CLOCK_FIX, fatal=fatal),))

    async def _check_socket(self) -> list[Problem]:
        """Open one connection for a moment: Slack's greeting says how many the app has."""
        try:
            url = await self._client.open_socket()
        except AdapterError as error:
            return [_problem(error, FIX_APP)]
        try:
            async with (
                asyncio.timeout(HELLO_S),
                self._client.session.ws_connect(url, proxy=self._client.proxy) as socket,
            ):
                greeting = await socket.receive_json()
        except (aiohttp.ClientError, TimeoutError, OSError, TypeError, ValueError) as error:
            what = f"slack: the websocket could not be opened ({type(error).__name__})"
            return [Problem(what=what, fix="let a proxy or firewall pass wss:// to Slack", fatal=False)]
        if not isinstance(greeting, Mapping):
            return []
        if text_of(greeting, "reason") == "too_many_websockets":
            return [Problem(what="slack: the app has as many connections as Slack allows", fix=SHARED_FIX)]
        others = number_of(greeting, "num_connections") - 1 - self._running
        if others <= 0:
            return []
        number = "1 more connection uses" if others == 1 else f"{others} more connections use"
        whose = (
            "besides the running Hermod of these settings" if self._running else "and no Hermod of these settings runs"
        )
        return [
            Problem(
                what=f"slack: {number} this app token, {whose}: events go to another process",
                fix=SHARED_FIX,
                fatal=False,
            )
        ]

    async def _check_channels(self) -> list[Problem]:
        problems = []
        for channel, where in list(self._channels.items())[:MOST_CHANNELS]:
            answer = await self._client.call(
                "conversations.history",
                lambda web, channel=channel: web.conversations_history(channel=channel, limit=1),  # type: ignore[misc]
                channel=channel,
                patience_s=5.0,
            )
            if isinstance(answer, Failed) and answer.code in _NOT_IN:
                what = f"slack: Hermod is not in the channel {channel} of {where} ({answer.code})"
                problems.append(Problem(what=what, fix=INVITE_FIX.format(where=where), fatal=False))
        return problems


def _kind_of(secret: str) -> str:
    return next((kind for prefix, kind in TOKEN_KINDS.items() if secret.startswith(prefix)), "")


def _check_kind(name: str, token: str, prefix: str, fix: str) -> Iterator[Problem]:
    if not token:
        yield Problem(what=f"slack: {name} is missing", fix=fix)
    elif not token.startswith(prefix):
        kind = _kind_of(token)
        yield Problem(what=f"slack: {name} is {kind or 'no token of Slack'}, not {TOKEN_KINDS[prefix]}", fix=fix)


def _check_scopes(granted: frozenset[str] | None) -> Iterator[Problem]:
    if granted is None:
        yield Problem(what="slack: Slack did not tell which scopes are granted", fix="try again later", fatal=False)
        return
    for scope, reason in BOT_SCOPES.items():
        if scope not in granted:
            events = [event for event, needed in EVENT_SCOPES.items() if needed == scope]
            lost = f"; without it Slack does not send the event {', '.join(events)}" if events else ""
            yield Problem(
                what=f"slack: the scope {scope} is missing ({reason}{lost})", fix=SCOPE_FIX.format(scope=scope)
            )


def _problem(error: AdapterError, fix: str) -> Problem:
    what = str(error)
    if isinstance(error, AdapterNotConfigured):
        what, _, told = what.partition("; ")
        return Problem(what=what, fix=told or fix)
    return Problem(what=what, fix="check api_url and the network", fatal=False)
