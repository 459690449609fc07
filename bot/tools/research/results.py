"""What search services answer, in one form, and what their refusals mean."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Protocol
from urllib.parse import urlsplit

from agent_core.errors import ToolFailed
from bot.tools.research.answer import FoundPage
from bot.tools.research.text import clean_line
from bot.tools.research.web import Fetched, StatusFailed

TITLE_CHARS, SNIPPET_CHARS, LONGEST_URL = 200, 500, 2_000
_NO_PAGE = re.compile(r"[\s<>\"\\^`{|}\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search service answered, best first; ``warnings`` say what it could not ask."""

    rows: tuple[FoundPage, ...]
    warnings: tuple[str, ...] = ()


class SearchService(Protocol):
    """Searches the web. ``name`` is how people call it."""

    name: str

    async def search(self, query: str, limit: int) -> Found:
        """Search.

        Raises:
            ToolFailed: ``rate_limited``, ``quota_used_up``, ``key_refused``, ``search_failed``, ``missing_extra``; the
                message names the service, and ``fix`` says what to do.
        """
        ...


# -- what they answer ------------------------------------------------------------------------------


def read_json(name: str, fetched: Fetched) -> Mapping[str, object]:
    """Read an answer that has to be a JSON object.

    Raises:
        ToolFailed: ``search_failed``; it is something else.
    """
    try:
        value = json.loads(fetched.body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ToolFailed(
            f"{name} answered with something that is no JSON object",
            code="search_failed",
            fix="look whether the address in [research] is the one of its API",
        )
    return value


def list_objects(name: str, values: object) -> list[Mapping[str, object]]:
    """Return the objects of a list of results.

    Raises:
        ToolFailed: ``search_failed``; it is no list, so the API is another one than we know.
    """
    if not isinstance(values, list):
        raise ToolFailed(
            f"{name} answered without a list of results",
            code="search_failed",
            fix="look whether the address in [research] is the one of its API",
        )
    return [value for value in values if isinstance(value, dict)]


def build_row(title: object, url: object, snippet: object, published: object) -> FoundPage | None:
    """Build one result; None where it has no address of a page."""
    address = url.strip() if isinstance(url, str) else ""
    if not is_page(address):
        return None
    return FoundPage(
        title=clean_line(title, TITLE_CHARS) if isinstance(title, str) and title.strip() else address,
        url=address,
        snippet=clean_line(snippet, SNIPPET_CHARS) if isinstance(snippet, str) else "",
        published=_read_date(published),
    )


def is_page(url: str) -> bool:
    """Tell whether a text is the address of a page that can be shown as a link."""
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and len(url) <= LONGEST_URL
            and parts.username is None
            and not _NO_PAGE.search(url)
            and url.isprintable()  # what turns the direction of writing could show another address
        )
    except ValueError:
        return False


def _read_date(text: object) -> str:
    """Return a date as services write it in ISO 8601: they use that, or the form of e-mail."""
    if not isinstance(text, str) or not text.strip():
        return ""
    if re.match(r"\d{4}-\d\d-\d\d", text.strip()):
        return clean_line(text, 40).removesuffix("T00:00:00")  # a day, in the form of an instant
    try:
        return parsedate_to_datetime(text).date().isoformat()
    except (ValueError, IndexError):
        return clean_line(text, 40)


def pick(rows: Sequence[FoundPage | None], limit: int) -> Iterator[FoundPage]:
    """Yield at most ``limit`` results, each page once."""
    seen: set[str] = set()
    for row in rows:
        if row is None or (page := same_page(row.url)) in seen:
            continue
        seen.add(page)
        yield row
        if len(seen) == limit:
            return


def same_page(url: str) -> str:
    """Return what two addresses of one page have in common: no scheme, no ``www.``, no fragment, no last slash."""
    parts = urlsplit(url)
    path = f"{parts.path.rstrip('/')}?{parts.query}" if parts.query else parts.path.rstrip("/")
    return f"{(parts.netloc or '').lower().removeprefix('www.')}{path}"


# -- what their refusals mean ----------------------------------------------------------------------


def explain(name: str, error: ToolFailed, *, key_refused: bool = False) -> ToolFailed:
    """Say which service failed, and what a person can do about it."""
    status = error.status if isinstance(error, StatusFailed) else 0
    if key_refused or status in (401, 403):
        return ToolFailed(
            f"{name} refuses the key (status {status})",
            code="key_refused",
            fix="look at the key in [research] of the settings, and whether its plan covers this API",
        )
    if status == 429:
        return ToolFailed(
            f"{name} was asked too often (status 429)", code="rate_limited", fix="try again in a minute", retryable=True
        )
    if status in (402, 432, 433):
        return ToolFailed(
            f"{name}: what the plan of this key includes is used up (status {status})",
            code="quota_used_up",
            fix=f"raise the limit of the plan at {name}, or name another provider in [research]",
        )
    return ToolFailed(
        f"{name}: {error}",
        code="search_failed",
        fix="try again later, or look at [research] in the settings",
        retryable=error.retryable,
    )
