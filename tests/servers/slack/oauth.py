"""Installing the app: docs.slack.dev/authentication/installing-with-oauth."""

from __future__ import annotations

import base64
import secrets
from urllib.parse import urlencode, urlsplit

from aiohttp import ClientSession, web

from tests.servers.slack.files import Files
from tests.servers.slack.model import Json, SlackError

CODE_TTL_S = 600.0


class OAuth(Files):
    """The consent page, and the exchange of its code for a token."""

    async def _authorize(self, request: web.Request) -> web.StreamResponse:
        """The page behind "Add to Slack", for somebody who agrees at once (``deny=1``: refuses).

        ``team`` chooses the workspace; it answers with the redirect that the browser follows.
        """
        query = request.query
        if query.get("client_id") != self.client_id:
            return web.Response(status=400, text="invalid_client_id")
        if not query.get("scope"):
            return web.Response(status=400, text="invalid_scope_requested")
        space = self.workspaces.get(query.get("team") or self.team_id)
        if space is None:
            return web.Response(status=400, text="invalid_team")
        target = query.get("redirect_uri") or "http://127.0.0.1:9/"
        sent: Json = {"state": query.get("state", "")}
        if query.get("deny"):
            sent["error"] = "access_denied"
        else:
            code = sent["code"] = secrets.token_hex(16)
            self._codes[code] = {
                "team": space.id,
                "scope": query["scope"],
                "redirect_uri": query.get("redirect_uri"),
                "user": query.get("user", "U1ALICE"),
                "born": self.clock.now(),
            }
        where = f"{target}{'&' if urlsplit(target).query else '?'}{urlencode(sent)}"
        return web.Response(status=302, headers={"Location": where})

    async def install(self, url: str, *, team: str = "", deny: bool = False) -> tuple[int, str]:
        """Follow an "Add to Slack" link as a person's browser does, to the end; returns the last status and text.

        Cookies that the app sets on the way (Bolt's state cookie) are kept, the app's redirect to here included.
        """
        async with ClientSession() as browser:
            async with browser.get(url, allow_redirects=False) as page:
                target = page.headers.get("Location", url) if page.status in (301, 302, 303, 307) else url
                if target == url:  # a page with a link on it
                    text = await page.text()
                    start = text.find(f"{self.origin}/oauth/v2/authorize")
                    target = text[start : text.find('"', start)].replace("&amp;", "&") if start >= 0 else url
            more = urlencode([("team", team)] * bool(team) + [("deny", "1")] * deny)
            async with browser.get(f"{target}&{more}" if more else target) as done:
                return done.status, await done.text()

    def api_oauth_v2_access(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/oauth.v2.access: a code works once, for ten minutes."""
        if a.get("client_id") != self.client_id:
            raise SlackError("invalid_client_id")
        if a.get("client_secret") != self.client_secret:
            raise SlackError("bad_client_secret")
        grant = self._codes.pop(str(a.get("code")), None)
        if grant is None or self.clock.now() - grant["born"] > CODE_TTL_S:
            raise SlackError("invalid_code")
        if (a.get("redirect_uri") or None) != grant["redirect_uri"]:
            raise SlackError("bad_redirect_uri")
        space = self.workspaces[grant["team"]]
        space.bot_token = f"xoxb-{space.id.lower()}-{secrets.token_hex(6)}"
        space.installed = True
        space.scopes = tuple(s.strip() for s in grant["scope"].split(",") if s.strip())
        return {
            "app_id": self.app_id,
            "access_token": space.bot_token,
            "token_type": "bot",
            "scope": ",".join(space.scopes),
            "bot_user_id": space.bot_user,
            "is_enterprise_install": False,
            "team": {"id": space.id, "name": space.name},
            "enterprise": {"id": space.enterprise_id, "name": "Fake Org"} if space.enterprise_id else None,
            "authed_user": {"id": grant["user"]},
        }

    @staticmethod
    def _basic(header: str) -> Json:
        """The client's id and secret from an ``Authorization: Basic`` header."""
        try:
            name, _, secret = base64.b64decode(header.removeprefix("Basic "), validate=True).decode().partition(":")
        except ValueError:
            return {}
        return {"client_id": name, "client_secret": secret}
