"""What the research tools answer. Instants are ISO 8601 as the source tells them; texts are of strangers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPage:
    """One result of a search. ``published`` is empty where the search service does not tell."""

    title: str
    url: str
    snippet: str
    published: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """What ``web_search`` found, best first.

    Args:
        ok: always true; what fails raises ``ToolFailed``.
        source: the search service.
        searched_for: the words that it was asked for.
        rows: at most as many as were asked for; none where nothing was found.
        warnings: why there may be fewer than there are on the web.
        took_ms: the whole call, in milliseconds.
    """

    ok: Literal[True] = True
    source: str
    searched_for: str
    rows: tuple[FoundPage, ...]
    warnings: tuple[str, ...] = ()
    took_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAnswer:
    """The text of one page.

    Args:
        ok: always true; what fails raises ``ToolFailed``.
        url: where it came from in the end, after redirects.
        title, author, published: empty where the page does not tell.
        kind: its media type.
        characters: of the whole text.
        text: its beginning.
        more: how to get at the rest; empty when ``text`` is the whole.
        warnings: what is not in the text.
        took_ms: the whole call, in milliseconds.
    """

    ok: Literal[True] = True
    url: str
    title: str = ""
    author: str = ""
    published: str = ""
    kind: str
    characters: int
    text: str
    more: str = ""
    warnings: tuple[str, ...] = ()
    took_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """One paper. ``citations`` is null where no source tells; the other fields are then empty, ``year`` null."""

    title: str
    authors: str
    year: int | None
    citations: int | None = None
    url: str
    doi: str = ""
    arxiv: str = ""
    snippet: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PapersAnswer:
    """What ``search_papers`` found, best first; ``warnings`` name a source that did not serve."""

    ok: Literal[True] = True
    source: str
    searched_for: str
    year: int | None
    rows: tuple[Paper, ...]
    warnings: tuple[str, ...] = ()
    took_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportAnswer:
    """A report that ``generate_report`` put together: the file that goes along with the answer is ``markdown``."""

    ok: Literal[True] = True
    file: str
    characters: int
    markdown: str
