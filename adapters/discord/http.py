"""The one way to Discord's REST API: the library's own calls and ours, at one address, with one token.

discord.py's client sends every route to a class variable, tries a failed call again by itself for half a minute, and
sleeps on a 429. Its own calls (login, the gateway's address) may do so; what Hermod posts may not, since whoever
keeps the outbox decides when to try again. So ``attempt`` makes exactly one request, and says what came back.
"""

from __future__ import annotations

import asyncio
import io
import ipaddress
import json
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
from discord.http import HTTPClient, Route

API_URL = "https://discord.com/api/v10"

CONNECT_S = 5.0

CLOSE_S = 3.0
"""So long ``close`` waits for calls under way: one that is cut off leaves a post in doubt."""

PATIENT_S = 30.0
"""The longest 429 that discord.py itself sleeps on (the least that it can be told)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file of a request."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What Discord answered to one request. ``data`` is its JSON, None without any; header names are lower case."""

    status: int
    data: object
    headers: Mapping[str, str]


class DiscordHttp(HTTPClient):
    """Discord's REST API at ``api_url``. Safe to call concurrently.

    Give it to a ``discord.Client`` as its ``http``: the token comes with ``static_login`` (``Client.login``). Where
    nothing logs in, give ``token``.

    Args:
        api_url: base of the API, with its version; a loopback address is never reached through a proxy.
        token: the bot's token.
    """

    def __init__(self, *, api_url: str = API_URL, token: str = "") -> None:
        super().__init__(
            cast(asyncio.AbstractEventLoop, None),  # a client sets it when it logs in, as it does with its own
            proxy=find_proxy(api_url),
            max_ratelimit_timeout=PATIENT_S,
        )
        self.token = token.strip() or None
        self.api_url = api_url.rstrip("/")
        self._own: aiohttp.ClientSession | None = None
        self._running: set[asyncio.Future[None]] = set()  # calls of ``attempt``

    @property
    def session(self) -> aiohttp.ClientSession:
        """The connections of our own calls, without cookies. Opened on first use."""
        if self._own is None or self._own.closed:
            self._own = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S, sock_connect=CONNECT_S),
            )
        return self._own

    async def close(self) -> None:
        """Let calls under way end, for a moment, and close every connection; a later ``attempt`` opens new ones."""
        session, self._own = self._own, None
        if session is not None:
            if self._running:
                await asyncio.wait(set(self._running), timeout=CLOSE_S)
            await session.close()
        await super().close()

    async def request(self, route: Route, **kwargs: Any) -> Any:
        """Make a call of the library's own, with its retries, at ``api_url``."""
        route.url = self.build_url(route)
        return await super().request(route, **kwargs)

    async def attempt(
        self, route: Route, *, body: object = None, files: Sequence[Upload] = (), timeout_s: float = 20.0
    ) -> Answer:
        """Make one request, never a second one.

        Args:
            route: which call; its URL is moved to ``api_url``.
            body: JSON; with ``files`` it becomes the part ``payload_json``.
            files: become the parts ``files[0]`` and so on.
            timeout_s: of the whole call.

        Raises:
            aiohttp.ClientError, OSError: the connection was not made, or broke.
            TimeoutError: there was no answer in time.
        """
        headers = {"User-Agent": self.user_agent}
        if self.token:
            headers["Authorization"] = f"Bot {self.token}"
        data: aiohttp.FormData | bytes | None = None
        if files:
            data = _build_form(body, files)
        elif body is not None:
            headers["Content-Type"] = "application/json"
            data = _to_json(body)
        with self._call_under_way():
            async with (
                asyncio.timeout(timeout_s),
                self.session.request(
                    route.method,
                    self.build_url(route),
                    data=data,
                    headers=headers,
                    proxy=self.proxy,
                    allow_redirects=False,  # the token is for this host only
                ) as response,
            ):
                content = await response.read()
        return Answer(
            status=response.status,
            data=_parse(content, response.content_type),
            headers={name.lower(): value for name, value in response.headers.items()},
        )

    @contextmanager
    def _call_under_way(self) -> Iterator[None]:
        ended = asyncio.get_running_loop().create_future()
        self._running.add(ended)
        try:
            yield
        finally:
            self._running.discard(ended)
            ended.set_result(None)

    def build_url(self, route: Route) -> str:
        """Build the address of a route here."""
        if route.url.startswith(self.api_url):
            return route.url
        return self.api_url + route.url.removeprefix(Route.BASE)


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


def _build_form(body: object, files: Sequence[Upload]) -> aiohttp.FormData:
    form = aiohttp.FormData(quote_fields=False)  # Discord does not take "files%5B0%5D"
    form.add_field("payload_json", _to_json(body or {}).decode(), content_type="application/json")
    for n, file in enumerate(files):
        name = "".join(c for c in file.name if c not in '"\\\r\n')  # it stands in a header, unquoted
        form.add_field(f"files[{n}]", io.BytesIO(file.content), filename=name, content_type="application/octet-stream")
    return form


def _to_json(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _parse(content: bytes, content_type: str) -> object:
    if content_type != "application/json" or not content:
        return None
    try:
        return cast(object, json.loads(content))
    except (ValueError, RecursionError):
        return None
