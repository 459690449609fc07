"""One loopback port that is several services: SearXNG, Brave, Tavily, arXiv, Semantic Scholar, and web sites.

Each service checks what it is asked as the real one does, and answers in the shape that its reference page shows; the
contents are made up. ``WebServer.log`` has every request.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from aiohttp import web

from tests.servers.web import papers, sites
from tests.servers.web.services import Refusal, answer_brave, answer_searxng, answer_tavily

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    json: object = None


@dataclass(slots=True)
class WebServer:
    """The services. ``async with`` it.

    Args:
        key: the one that Brave, Tavily and Semantic Scholar take.
        failures: path -> status and body with which it answers instead.
        nothing: services find nothing.
        unresponsive: engines of SearXNG that did not answer, with their reasons.
    """

    key: str = "k-0123456789"
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)
    nothing: bool = False
    unresponsive: list[list[str]] = field(default_factory=list)
    log: list[Asked] = field(default_factory=list)
    address: str = ""
    released: asyncio.Event = field(default_factory=asyncio.Event)
    _runner: web.AppRunner | None = None

    def url(self, path: str) -> str:
        """Return the address of a path."""
        return f"http://{self.address}{path}"

    def asked(self, path: str) -> list[Asked]:
        """Return the requests of one path."""
        return [asked for asked in self.log if asked.path == path]

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = f"127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        self.log.append(Asked(path=request.path, query=dict(request.query), headers=dict(request.headers), json=body))
        if request.path in self.failures:
            status, text = self.failures[request.path]
            return web.Response(status=status, text=text, content_type="application/json")
        try:
            match request.path:
                case "/search" | "/searxng/search":
                    found = answer_searxng(request.query, nothing=self.nothing, unresponsive=self.unresponsive)
                    return web.json_response(found)
                case "/brave/res/v1/web/search":
                    return web.json_response(answer_brave(request, key=self.key, nothing=self.nothing))
                case "/tavily/search":
                    return web.json_response(answer_tavily(request, body, key=self.key, nothing=self.nothing))
                case "/arxiv/api/query":
                    text = papers.answer_arxiv(request.query, nothing=self.nothing)
                    return web.Response(text=text, content_type="application/atom+xml")
                case "/graph/v1/paper/search":
                    return web.json_response(papers.answer_scholar(request, key=self.key, nothing=self.nothing))
        except Refusal as refusal:
            return web.json_response(refusal.body, status=refusal.status)
        return await self._serve_site(request)

    async def _serve_site(self, request: web.Request) -> web.StreamResponse:
        match request.path.split("/")[1:]:
            case ["to", *_]:
                raise web.HTTPFound(request.query["url"])
            case ["chain", number]:
                raise web.HTTPFound("/page/news" if number == "0" else f"/chain/{int(number) - 1}")
            case ["bomb"]:
                page = b"<html><body><p>" + b"word " * 10_000_000
                headers = {"Content-Encoding": "gzip", "Content-Type": "text/html"}
                return web.Response(body=gzip.compress(page), headers=headers)
            case ["drip"]:
                return await self._drip(request)
            case ["page", name] if name in sites.PAGES:
                page, kind = sites.PAGES[name]
                return web.Response(body=page, headers={"Content-Type": kind} if kind else {})
        return web.Response(status=404, text="no such page", content_type="text/html")

    async def _drip(self, request: web.Request) -> web.StreamResponse:
        """Send a page that never ends, a byte at a time."""
        response = web.StreamResponse(headers={"Content-Type": "text/html"})
        await response.prepare(request)
        while not self.released.is_set() and request.transport is not None and not request.transport.is_closing():
            with contextlib.suppress(ConnectionError):
                await response.write(b".")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await self.released.wait()
        return response
