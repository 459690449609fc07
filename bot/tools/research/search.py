"""Search services with an HTTP API: how they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import assert_never
from urllib.parse import urlsplit, urlunsplit

from agent_core.errors import ToolFailed
from bot.settings_tree import ResearchSettings
from bot.tools.research.keyless import Keyless
from bot.tools.research.results import Found, SearchService, build_row, explain, list_objects, pick, read_json
from bot.tools.research.text import clean_line
from bot.tools.research.web import StatusFailed, WebClient

BRAVE_URL = "https://api.search.brave.com/res/v1/web/search"
TAVILY_URL = "https://api.tavily.com/search"
MOST_QUERY_CHARS = 400
"""Of what is searched for; Brave and Tavily take no more."""

_MOST_BYTES = 2 * 1024 * 1024


def build_service(settings: ResearchSettings) -> SearchService:
    """Build the service that the settings name."""
    key = "" if settings.api_key is None else settings.api_key.get_secret_value()
    match settings.searches_with:
        case "searxng":
            return SearXNG(settings.search_url or "", timeout_s=settings.timeout_s)
        case "brave":
            return Brave(key, url=settings.search_url or BRAVE_URL, timeout_s=settings.timeout_s)
        case "tavily":
            return Tavily(key, url=settings.search_url or TAVILY_URL, timeout_s=settings.timeout_s)
        case "keyless" | None:  # None is refused when the settings are loaded
            return Keyless(timeout_s=settings.timeout_s)
        case other:
            assert_never(other)


def list_missing(settings: ResearchSettings, installed: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the names of the tools that can only say that the extra ``research`` is not installed."""
    if not settings.enabled:
        return ()
    needs = {"web_search": "ddgs"} if settings.searches_with == "keyless" else {}
    return tuple(tool for tool, module in {**needs, "read_webpage": "trafilatura"}.items() if not installed(module))


def open_client(url: str, timeout_s: float) -> WebClient:
    """Open a client for a server of the settings, which may stand in a private network."""
    return WebClient(allowed=[name_server(url)], timeout_s=timeout_s, most_bytes=_MOST_BYTES)


def name_server(url: str) -> str:
    """Return the ``host:port`` of a URL, as ``WebClient`` compares it."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


# -- the services ----------------------------------------------------------------------------------


class SearXNG:
    """A SearXNG, whose ``search.formats`` have ``json`` (https://docs.searxng.org/dev/search_api.html)."""

    name = "SearXNG"

    def __init__(self, url: str, *, timeout_s: float) -> None:
        parts = urlsplit(url)
        path = parts.path.rstrip("/")
        path = path if path.endswith("/search") else f"{path}/search"
        self._url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        self._timeout_s = timeout_s

    async def search(self, query: str, limit: int) -> Found:
        """See ``SearchService``."""
        try:
            async with open_client(self._url, self._timeout_s) as client:
                fetched = await client.get(self._url, parameters={"q": query, "format": "json"})
        except ToolFailed as error:
            if isinstance(error, StatusFailed) and error.status == 403:
                raise ToolFailed(
                    "SearXNG refuses to answer as JSON (status 403)",
                    code="search_failed",
                    fix="add json to search.formats in the settings.yml of SearXNG, and restart it",
                ) from None
            raise explain(self.name, error) from None
        answer = read_json(self.name, fetched)
        rows = [
            build_row(r.get("title"), r.get("url"), r.get("content"), r.get("publishedDate"))
            for r in list_objects(self.name, answer.get("results"))
        ]
        return Found(rows=tuple(pick(rows, limit)), warnings=tuple(_unresponsive(answer.get("unresponsive_engines"))))


def _unresponsive(engines: object) -> Iterator[str]:
    named = [
        ": ".join(clean_line(str(part), 60) for part in engine[:2])
        for engine in (engines if isinstance(engines, list) else [])
        if isinstance(engine, list) and engine
    ]
    if named:
        yield f"SearXNG got no answer of: {'; '.join(named[:10])}"


class Brave:
    """Brave's web search (https://api-dashboard.search.brave.com/app/documentation/web-search/get-started)."""

    name = "Brave"

    def __init__(self, key: str, *, url: str, timeout_s: float) -> None:
        self._key, self._url, self._timeout_s = key, url, timeout_s

    async def search(self, query: str, limit: int) -> Found:
        """See ``SearchService``."""
        words = " ".join(query.split()[:50])  # more are refused
        try:
            async with open_client(self._url, self._timeout_s) as client:
                fetched = await client.get(
                    self._url,
                    parameters={"q": words, "count": str(limit)},
                    headers={"X-Subscription-Token": self._key, "Accept": "application/json"},
                )
        except ToolFailed as error:
            # a wrong key is status 422 with a word in the body
            wrong = isinstance(error, StatusFailed) and b"SUBSCRIPTION_TOKEN" in error.body
            raise explain(self.name, error, key_refused=wrong) from None
        answer = read_json(self.name, fetched)
        web = answer.get("web")  # left out when there is nothing
        rows = [
            build_row(r.get("title"), r.get("url"), r.get("description"), r.get("page_age"))
            for r in list_objects(self.name, web.get("results") if isinstance(web, Mapping) else [])
        ]
        return Found(rows=tuple(pick(rows, limit)))


class Tavily:
    """Tavily's search (https://docs.tavily.com/documentation/api-reference/endpoint/search)."""

    name = "Tavily"

    def __init__(self, key: str, *, url: str, timeout_s: float) -> None:
        self._key, self._url, self._timeout_s = key, url, timeout_s

    async def search(self, query: str, limit: int) -> Found:
        """See ``SearchService``."""
        try:
            async with open_client(self._url, self._timeout_s) as client:
                fetched = await client.get(
                    self._url,
                    headers={"Authorization": f"Bearer {self._key}"},
                    json={"query": query, "max_results": limit, "search_depth": "basic"},
                )
        except ToolFailed as error:
            raise explain(self.name, error) from None
        answer = read_json(self.name, fetched)
        rows = [
            build_row(r.get("title"), r.get("url"), r.get("content"), r.get("published_date"))
            for r in list_objects(self.name, answer.get("results"))
        ]
        return Found(rows=tuple(pick(rows, limit)))
