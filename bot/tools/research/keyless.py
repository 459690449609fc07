"""Web search without a key, through the library ``ddgs``: it reads the result pages of public search engines.

The library blocks and has its own HTTP client; so it runs in a thread, no longer than a bound, and in few threads at a
time. It only ever connects to the search engines named here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence

from agent_core.errors import ToolFailed
from bot.tools.research.results import Found, build_row, pick

BACKENDS = ("duckduckgo", "brave", "mojeek", "startpage", "yahoo")
"""Search engines for the whole web; the library's other ones are encyclopedias, or switched off in it."""

MOST_AT_ONCE = 3
_ROUNDS = 3
"""The library asks its engines in a few rounds, each within its own timeout; so many fit into ours."""

_NOTHING = "No results found."
"""What the library says when no engine gave a result, also where one refused to answer."""


class Keyless:
    """Searches with nobody's key. See ``SearchService``.

    Args:
        timeout_s: for one search, in seconds.
        proxy: an HTTP proxy for the library; None: what ``DDGS_PROXY`` says, else the usual variables for proxies.
        ca_file: certificates that are trusted in the place of the usual ones; None: those.
    """

    name = "Keyless search"

    def __init__(self, *, timeout_s: float, proxy: str | None = None, ca_file: str | None = None) -> None:
        self._timeout_s = timeout_s
        self._proxy = proxy
        self._ca_file = ca_file
        self._places = threading.BoundedSemaphore(MOST_AT_ONCE)

    async def search(self, query: str, limit: int) -> Found:
        """See ``SearchService``; nothing is told of when a page was published."""
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await asyncio.to_thread(self._ask, query, limit)
        except TimeoutError:
            raise ToolFailed(
                f"{self.name}: the search engines did not answer within {self._timeout_s:g} seconds",
                code="search_failed",
                fix="try again later, or set up another provider in [research]",
                retryable=True,
            ) from None
        if not found:
            return Found(
                rows=(), warnings=("the search engines gave nothing; they may also have refused to answer a program",)
            )
        rows = (build_row(r.get("title"), r.get("href"), r.get("body"), None) for r in found)
        return Found(rows=tuple(pick([*rows], limit)))

    def _ask(self, query: str, limit: int) -> Sequence[Mapping[str, object]]:
        """Ask the library; in a thread, which may outlive the question by the library's own timeouts."""
        try:
            from ddgs import DDGS
            from ddgs.exceptions import DDGSException, RatelimitException
        except ImportError as error:
            raise ToolFailed(
                "the library for web search without a key is not installed",
                code="missing_extra",
                fix="pip install 'hermod-bot[research]', then start again; or set up a provider in [research]",
            ) from error
        if not self._places.acquire(blocking=False):
            raise ToolFailed(
                f"{self.name}: {MOST_AT_ONCE} searches are under way already",
                code="rate_limited",
                fix="search for one thing at a time",
                retryable=True,
            )
        try:
            with DDGS(
                proxy=self._proxy, timeout=max(1, int(self._timeout_s / _ROUNDS)), verify=self._ca_file or True
            ) as library:
                return library.text(query, max_results=limit, backend=",".join(BACKENDS))
        except RatelimitException:
            raise ToolFailed(
                f"{self.name}: the search engines were asked too often",
                code="rate_limited",
                fix="try again in a few minutes, or set up another provider in [research]",
            ) from None
        except DDGSException as error:
            if str(error) == _NOTHING:
                return ()
            raise ToolFailed(
                f"{self.name}: the search engines could not be reached, or refused to answer",
                code="search_failed",
                fix="look whether this machine reaches the web; try again later, or name another provider",
                retryable=True,
            ) from None
        finally:
            self._places.release()
