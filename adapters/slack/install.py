"""Installing Hermod in a workspace: "Add to Slack", consent, and the exchange of Slack's code for a token.

docs.slack.dev/authentication/installing-with-oauth. What protects the redirect is one value, ``state``: it is signed,
ends after ten minutes, holds once, and belongs to the browser that began (RFC 6749 section 10.12; RFC 9700 section
4.7). Whoever opens the redirect with anything else reaches nothing, and nothing is asked of Slack.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode, urlsplit, urlunsplit

import structlog
from aiohttp import web

from adapters.chat import AdapterError
from adapters.slack.client import SlackClient
from adapters.slack.installation import Installation, Installations, NewInstallation
from adapters.slack.outcome import Failed
from adapters.slack.parse import Identity
from adapters.slack.wire import Wire, part_of, text_of

log = structlog.get_logger("hermod.slack")

INSTALL_PATH = "/slack/install"
REDIRECT_PATH = "/slack/oauth_redirect"
COOKIE = "hermod_install"
STATE_S = 600.0
"""How long somebody may take to agree; Slack's code lives as long."""

PATIENCE_S = 5.0
_LONGEST_STATE = 300
_TOKEN = re.compile(r"(?:xoxe\.)?xoxb-[A-Za-z0-9-]{8,400}")  # the shape by which it is kept out of logs

_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Hermod</title></head>
<body><h1>{title}</h1><p>{text}</p>{link}</body></html>
"""

Identify = Callable[[str], Awaitable[Identity]]
"""Asks Slack whose token it is; raises ``AdapterError``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthApp:
    """The app as Slack knows it. ``public_url`` is where people's browsers reach Hermod, without a slash at its end."""

    client_id: str
    client_secret: str = field(repr=False)
    public_url: str

    @property
    def install_url(self) -> str:
        """The page that begins an installation."""
        return f"{self.public_url.rstrip('/')}{INSTALL_PATH}"

    @property
    def redirect_url(self) -> str:
        """Where Slack sends the browser back to; the app's settings at Slack have to list it."""
        return f"{self.public_url.rstrip('/')}{REDIRECT_PATH}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installing:
    """How workspaces install the app.

    Args:
        app: the app as Slack knows it.
        installations: keeps what was granted.
        may_install: tells whether a workspace may have Hermod; a token of another one is revoked at once.
    """

    app: OAuthApp
    installations: Installations
    may_install: Callable[[str], bool] = lambda workspace: True


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a valid state holds."""

    nonce: str
    expires_at: datetime


def build_state(secret: str, cookie: str, state: State) -> str:
    """Write a state for the browser that has ``cookie``, signed with ``secret``."""
    head = f"{int(state.expires_at.timestamp())}.{state.nonce}"
    return f"{head}.{_sign(secret, cookie, head)}"


def read_state(secret: str, cookie: str, text: str, now: datetime) -> State | None:
    """Read a state; None when it is not ours, not of this browser, or over."""
    head, _, signature = text.rpartition(".")
    until, _, nonce = head.partition(".")
    if not cookie or not nonce or len(text) > _LONGEST_STATE:
        return None
    expected = _sign(secret, cookie, head).encode()
    if not hmac.compare_digest(expected, signature.encode("utf-8", "surrogatepass")):
        return None
    expires_at = datetime.fromtimestamp(int(until), UTC)
    return State(nonce=nonce, expires_at=expires_at) if now < expires_at else None


def _sign(secret: str, cookie: str, head: str) -> str:
    signed = "\0".join(("hermod install state", head, cookie)).encode("utf-8", "surrogatepass")
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


class SlackInstaller:
    """The two pages of an installation. Mount ``build_routes`` in a server that people's browsers reach over HTTPS.

    Args:
        installing: see there.
        client: asks Slack in the app's name; it needs no token.
        scopes: the bot scopes to ask for.
        identify: learns who we are in a workspace, once, before the first event of it arrives.
        on_installed: called when an installation was kept.
        now: the clock.
    """

    def __init__(
        self,
        installing: Installing,
        *,
        client: SlackClient,
        scopes: Sequence[str],
        identify: Identify,
        on_installed: Callable[[Installation], None],
        now: Callable[[], datetime],
    ) -> None:
        app = self._app = installing.app
        self._client = client
        self._installations = installing.installations
        self._scopes = tuple(scopes)
        self._identify = identify
        self._on_installed = on_installed
        self._may_install = installing.may_install
        self._now = now
        self._secure = app.public_url.startswith("https:")
        self._cookie_path = urlsplit(app.install_url).path.removesuffix("/install")

    def build_routes(self) -> Sequence[web.RouteDef]:
        """Build the routes for aiohttp's server."""
        # no HEAD: a look at the redirect must not redeem anything
        return (
            web.get(INSTALL_PATH, self._begin, allow_head=False),
            web.get(REDIRECT_PATH, self._finish, allow_head=False),
        )

    async def _begin(self, request: web.Request) -> web.Response:
        """Send the browser to Slack's page of consent."""
        cookie = secrets.token_urlsafe(32)
        state = State(nonce=secrets.token_urlsafe(18), expires_at=self._now() + timedelta(seconds=STATE_S))
        # not slack_sdk's generator: it puts values into the address as they are
        query = {
            "client_id": self._app.client_id,
            "scope": ",".join(self._scopes),
            "redirect_uri": self._app.redirect_url,
            "state": build_state(self._app.client_secret, cookie, state),
        }
        where = f"{authorize_url(self._client.api_url)}?{urlencode(query)}"
        answer = web.Response(status=302, headers={**_HEADERS, "Location": where})
        answer.set_cookie(
            COOKIE,
            cookie,
            max_age=int(STATE_S),
            path=self._cookie_path,
            httponly=True,
            secure=self._secure,
            samesite="Lax",  # Slack's redirect is a top-level navigation, which brings it along
        )
        return answer

    async def _finish(self, request: web.Request) -> web.Response:
        """Take what Slack sent the browser back with."""
        query, cookie = request.query, request.cookies.get(COOKIE, "")
        try:
            answer = await self._redeem(query.get("state", ""), cookie, query.get("code", ""), query.get("error", ""))
        except AdapterError as error:
            log.error("slack_installation_failed", reason=str(error))
            answer = self._page(503, "Not installed", "Hermod cannot keep the installation now.", again=True)
        answer.del_cookie(COOKIE, path=self._cookie_path)
        return answer

    async def _redeem(self, text: str, cookie: str, code: str, error: str) -> web.Response:
        state = read_state(self._app.client_secret, cookie, text, self._now())
        if state is None:
            log.warning("slack_install_state_refused", has_cookie=bool(cookie))
            reason = "This link is too old, or belongs to another browser."
            return self._page(400, "Not installed", reason, again=True)
        if not await self._installations.use_nonce(state.nonce, expires_at=state.expires_at):
            log.warning("slack_install_state_used_again")
            return self._page(400, "Not installed", "This link was used before.", again=True)
        if error or not code:
            log.info("slack_install_declined", reason=error[:50] or "no code")
            return self._page(
                403, "Not installed", "Slack says that nobody agreed, so nothing was changed.", again=True
            )
        granted = await self._exchange(code)
        if isinstance(granted, str):
            return self._page(502, "Not installed", granted, again=True)
        return await self._keep(granted)

    async def _exchange(self, code: str) -> Wire | str:
        """Exchange the code for a token; a text says why there is none."""
        app = self._app
        # in the body: slack_sdk's own method puts the secret into a header that aiohttp is about to drop
        form = {
            "client_id": app.client_id,
            "client_secret": app.client_secret,
            "code": code,
            "redirect_uri": app.redirect_url,
        }
        granted = await self._client.call(
            "oauth.v2.access", lambda web: web.api_call("oauth.v2.access", data=form), patience_s=PATIENCE_S
        )
        if isinstance(granted, Failed):
            log.error("slack_code_not_exchanged", reason=granted.said)
            return "Slack did not take the code of this installation; the log of Hermod says why."
        if problem := find_problem(granted):
            log.error("slack_grant_refused", reason=problem)
            return f"Hermod cannot work with what Slack granted: {problem}."
        return granted

    async def _keep(self, granted: Wire) -> web.Response:
        new = parse_grant(granted, bot="", now=self._now())
        if not self._may_install(new.workspace):
            await self._revoke(new.token)
            log.warning("slack_installation_refused", workspace=new.workspace, name=new.name)
            text = f"Hermod is not open to {new.name}. Its operator has to allow the workspace {new.workspace}."
            return self._page(403, "Not installed", text)
        identity = await self._identify(new.token)
        if new.workspace not in (identity.team, identity.enterprise):
            raise AdapterError(f"slack: the token of {new.workspace} belongs to {identity.team}")
        kept = await self._installations.save(parse_grant(granted, bot=identity.bot, now=self._now()))
        if kept is None:
            raise AdapterError(f"slack: the installation of {new.workspace} was not kept")
        self._on_installed(kept)
        log.info("slack_installed", workspace=kept.workspace, name=kept.name, revision=kept.revision)
        text = f"Hermod is installed in {kept.name}. Invite it to a channel (/invite) and mention it there."
        return self._page(200, "Installed", text)

    async def _revoke(self, token: str) -> None:
        """Give a token back that is not to be used."""
        answer = await self._client.call("auth.revoke", lambda web: web.auth_revoke(token=token), patience_s=PATIENCE_S)
        if isinstance(answer, Failed):
            log.warning("slack_token_not_revoked", reason=answer.said)

    def _page(self, status: int, title: str, text: str, *, again: bool = False) -> web.Response:
        link = f'<p><a href="{html.escape(self._app.install_url)}">Start again</a></p>' if again else ""
        body = _PAGE.format(title=html.escape(title), text=html.escape(text), link=link)
        return web.Response(status=status, text=body, content_type="text/html", charset="utf-8", headers=_HEADERS)


async def fetch_scopes(api_url: str, bot_token: str) -> frozenset[str] | None:
    """Ask Slack what a token may do; None when it does not tell.

    Raises:
        AdapterNotConfigured: Slack refuses the token.
        SlackUnreachable: try again later.
    """
    client = SlackClient(bot_token=bot_token, app_token="", api_url=api_url)
    try:
        return (await client.identify()).scopes
    finally:
        await client.close()


def authorize_url(api_url: str) -> str:
    """Return the page of consent that belongs to a Web API: the same host, ``/oauth/v2/authorize``."""
    parts = urlsplit(api_url)
    return urlunsplit((parts.scheme, parts.netloc, "/oauth/v2/authorize", "", ""))


def find_problem(granted: Wire) -> str:
    """Say what is wrong with an answer of oauth.v2.access, without the token; empty when it can be used."""
    if text_of(granted, "token_type") != "bot" or not _TOKEN.fullmatch(text_of(granted, "access_token")):
        return "it is no bot token; the app needs bot scopes"
    if granted.get("refresh_token") or granted.get("expires_in"):
        return (
            "its token expires; this release cannot renew tokens, so the app must not have token rotation switched on"
        )
    if not _workspace_of(granted) or not text_of(granted, "bot_user_id"):
        return "it names no workspace or no bot"
    return ""


def parse_grant(granted: Wire, *, bot: str, now: datetime) -> NewInstallation:
    """Read an answer of oauth.v2.access in which ``find_problem`` found none."""
    org_wide = granted.get("is_enterprise_install") is True
    place = part_of(granted, "enterprise" if org_wide else "team")
    workspace = _workspace_of(granted)
    return NewInstallation(
        workspace=workspace,
        name=text_of(place, "name") or workspace,
        enterprise=text_of(part_of(granted, "enterprise"), "id"),
        org_wide=org_wide,
        app=text_of(granted, "app_id"),
        token=text_of(granted, "access_token"),
        bot_user=text_of(granted, "bot_user_id"),
        bot=bot,
        scopes=frozenset(scope.strip() for scope in text_of(granted, "scope").split(",") if scope.strip()),
        installer=text_of(part_of(granted, "authed_user"), "id"),
        installed_at=now,
    )


def _workspace_of(granted: Wire) -> str:
    place = "enterprise" if granted.get("is_enterprise_install") is True else "team"
    return text_of(part_of(granted, place), "id")
