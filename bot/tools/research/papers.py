"""Papers of arXiv and Semantic Scholar: asked side by side, and merged so that each paper stands once."""

from __future__ import annotations

import asyncio
import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.settings_tree import ResearchSettings
from bot.tools.research.answer import Paper
from bot.tools.research.results import explain, is_page, list_objects, read_json
from bot.tools.research.search import open_client
from bot.tools.research.text import clean_line
from bot.tools.research.web import Fetched

MOST_PAPERS = 10
ARXIV, SCHOLAR = "arXiv", "Semantic Scholar"
ARXIV_EVERY_S = 3.0
"""arXiv asks for one request in three seconds (https://info.arxiv.org/help/api/tou.html)."""
LONGEST_TURN_S = 10.0

TITLE_CHARS, AUTHORS_CHARS, SNIPPET_CHARS = 300, 200, 600
_MOST_AUTHORS = 6
_WORD = re.compile(r"[\w.+-]*\w", re.UNICODE)
_MOST_WORDS = 12
_ARXIV_ID = re.compile(r"arxiv\.org/abs/([\w.-]+(?:/\d+)?)", re.IGNORECASE)
_VERSION = re.compile(r"v\d+$")
_ARXIV_DOI = "10.48550/arxiv."
_ATOM = "{http://www.w3.org/2005/Atom}"
_OF_ARXIV = "{http://arxiv.org/schemas/atom}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPapers:
    """The papers, best first, and what a source that did not serve said."""

    rows: tuple[Paper, ...]
    warnings: tuple[str, ...] = ()


class Turns:
    """Lets requests through one at a time, and so long after one another.

    Args:
        clock: time.
        every_s: from one request to the next, in seconds.
        longest_s: nobody waits longer.
    """

    def __init__(self, clock: Clock, *, every_s: float = ARXIV_EVERY_S, longest_s: float = LONGEST_TURN_S) -> None:
        self._clock = clock
        self._every_s, self._longest_s = every_s, longest_s
        self._next = 0.0

    async def wait(self) -> None:
        """Wait for the turn.

        Raises:
            ToolFailed: ``rate_limited``; too many wait already.
        """
        now = self._clock.monotonic()
        turn = max(now, self._next)
        if turn - now > self._longest_s:
            raise ToolFailed(f"{ARXIV}: too many searches wait already", code="rate_limited", retryable=True)
        self._next = turn + self._every_s  # taken before we wait, so that the next one comes behind
        if turn > now:
            await self._clock.sleep(turn - now)


async def find_papers(query: str, year: int | None, settings: ResearchSettings, turns: Turns) -> FoundPapers:
    """Ask both sources, and merge what they found.

    Raises:
        ToolFailed: ``search_failed``; neither served.
    """
    asked = await asyncio.gather(
        _ask_scholar(query, year, settings), _ask_arxiv(query, year, settings, turns), return_exceptions=True
    )
    lists: list[Sequence[Paper]] = []
    failures: list[ToolFailed] = []
    for answer in asked:
        if isinstance(answer, ToolFailed):
            failures.append(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            lists.append(answer)
    if not lists:
        raise ToolFailed(
            "; ".join(map(str, failures)),
            code="search_failed",
            fix="try again in a minute",
            retryable=any(failure.retryable for failure in failures),
        )
    warnings = tuple(f"{failure}, so its papers are missing here" for failure in failures)
    return FoundPapers(rows=tuple(merge(lists)[:MOST_PAPERS]), warnings=warnings)


# -- merging ---------------------------------------------------------------------------------------


def merge(lists: Sequence[Sequence[Paper]]) -> list[Paper]:
    """Take papers in turn from lists that are best first; one that stands in several comes once, with what all know.

    Two papers are the same by their DOI, by their number at arXiv, or by their title where no number speaks against it.
    """
    merged: list[Paper] = []
    for paper in (paper for papers in itertools.zip_longest(*lists) for paper in papers if paper is not None):
        known = next((n for n, other in enumerate(merged) if _same(paper, other)), None)
        if known is None:
            merged.append(paper)
        else:
            merged[known] = _complete(merged[known], paper)
    return merged


def _same(one: Paper, other: Paper) -> bool:
    for mine, theirs in ((one.doi.casefold(), other.doi.casefold()), (one.arxiv, other.arxiv)):
        if mine and mine == theirs:
            return True
    if _letters(one.title) != _letters(other.title) or not _letters(one.title):
        return False
    # the same title, such as "Introduction": not where both have a number of one kind, and it differs
    return not (one.arxiv and other.arxiv) and not (one.doi and other.doi)


def _letters(title: str) -> str:
    return "".join(c for c in title.casefold() if c.isalnum())


def _complete(one: Paper, other: Paper) -> Paper:
    return replace(
        one,
        authors=one.authors or other.authors,
        year=one.year if one.year is not None else other.year,
        citations=one.citations if one.citations is not None else other.citations,
        doi=one.doi or other.doi,
        arxiv=one.arxiv or other.arxiv,
        snippet=one.snippet or other.snippet,
    )


# -- Semantic Scholar (https://api.semanticscholar.org/api-docs/graph) -----------------------------


async def _ask_scholar(query: str, year: int | None, settings: ResearchSettings) -> list[Paper]:
    key = "" if settings.semantic_scholar_key is None else settings.semantic_scholar_key.get_secret_value()
    url = settings.semantic_scholar_url
    parameters = {
        "query": query,
        "limit": str(MOST_PAPERS),
        "fields": "title,authors,year,abstract,url,externalIds,citationCount",
        **({} if year is None else {"year": str(year)}),
    }
    try:
        async with open_client(url, settings.timeout_s) as client:
            fetched = await client.get(url, parameters=parameters, headers={"x-api-key": key} if key else None)
        answer = read_json(SCHOLAR, fetched)
        if answer.get("total") == 0 and "data" not in answer:  # it leaves the list out when there is nothing
            return []
        return [p for p in map(_read_scholar, list_objects(SCHOLAR, answer.get("data"))) if p is not None]
    except ToolFailed as error:
        raise error if str(error).startswith(SCHOLAR) else explain(SCHOLAR, error) from None


def _read_scholar(found: Mapping[str, object]) -> Paper | None:
    ids = found.get("externalIds")
    ids = ids if isinstance(ids, Mapping) else {}
    doi, arxiv = _text(ids.get("DOI")), _VERSION.sub("", _text(ids.get("ArXiv")))
    authors = found.get("authors")
    names = [_text(a.get("name")) for a in (authors if isinstance(authors, list) else []) if isinstance(a, Mapping)]
    url = _text(found.get("url"))
    title = clean_line(_text(found.get("title")), TITLE_CHARS)
    if not title or not is_page(url):
        return None
    return Paper(
        title=title,
        authors=_join(names),
        year=_number(found.get("year")),
        citations=_number(found.get("citationCount")),
        url=url,
        doi=_clean_doi(doi),
        arxiv=clean_line(arxiv, 40),
        snippet=clean_line(_text(found.get("abstract")), SNIPPET_CHARS),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _join(names: Sequence[str]) -> str:
    shown = [clean_line(name, 80) for name in names[:_MOST_AUTHORS] if name.strip()]
    more = " and others" if len(names) > _MOST_AUTHORS else ""
    return clean_line(", ".join(shown) + more, AUTHORS_CHARS)


def _clean_doi(doi: str) -> str:
    """Return a DOI without its resolver; that of an arXiv paper itself is left out, since its number says the same."""
    bare = clean_line(re.sub(r"^https?://(?:dx\.)?doi\.org/", "", doi.strip(), flags=re.IGNORECASE), 200)
    return "" if bare.casefold().startswith(_ARXIV_DOI) else bare


# -- arXiv (https://info.arxiv.org/help/api/user-manual.html) --------------------------------------


async def _ask_arxiv(query: str, year: int | None, settings: ResearchSettings, turns: Turns) -> list[Paper]:
    asked = build_arxiv_query(query, year)
    if not asked:
        return []
    try:
        await turns.wait()
        async with open_client(settings.arxiv_url, settings.timeout_s) as client:
            parameters = {"search_query": asked, "max_results": str(MOST_PAPERS), "sortBy": "relevance"}
            fetched = await client.get(settings.arxiv_url, parameters=parameters)
        return list(read_atom(fetched))
    except ToolFailed as error:
        raise error if str(error).startswith(ARXIV) else explain(ARXIV, error) from None


def build_arxiv_query(query: str, year: int | None) -> str:
    """Write the words of a question as a query of arXiv: all of them, and of one year. Empty without a word."""
    words = [word for word in _WORD.findall(query) if word.upper() not in ("AND", "OR", "ANDNOT")][:_MOST_WORDS]
    terms = [f'all:"{word}"' if "-" in word or "." in word else f"all:{word}" for word in words]
    if terms and year is not None:
        terms.append(f"submittedDate:[{year}01010000 TO {year}12312359]")
    return " AND ".join(terms)


def read_atom(fetched: Fetched) -> Iterator[Paper]:
    """Read arXiv's answer.

    A document type is refused before anything is parsed: without one there are no entities that could grow.

    Raises:
        ToolFailed: ``search_failed``; it is no such feed, or an error in the form of one.
    """
    text = fetched.body.decode("utf-8", "replace").removeprefix("\ufeff")
    try:
        if "<!DOCTYPE" in text or fetched.cut:
            raise ET.ParseError("not a whole feed")
        feed = ET.fromstring(text)  # noqa: S314  # the check above
    except (ET.ParseError, ValueError):
        feed = ET.Element("none")
    if feed.tag != f"{_ATOM}feed":
        raise ToolFailed(
            f"{ARXIV} answered with something that is no feed of papers",
            code="search_failed",
            fix="try again later, or look at arxiv_url in [research]",
        )
    for entry in feed.findall(f"{_ATOM}entry"):
        address = (entry.findtext(f"{_ATOM}id") or "").strip()
        if "/api/errors" in address:
            said = clean_line(entry.findtext(f"{_ATOM}summary") or "", 200)
            raise ToolFailed(f"{ARXIV} cannot read the question: {said}", code="search_failed", fix="use other words")
        if (paper := _read_entry(entry, address)) is not None:
            yield paper


def _read_entry(entry: ET.Element, address: str) -> Paper | None:
    title = clean_line(entry.findtext(f"{_ATOM}title") or "", TITLE_CHARS)
    found = _ARXIV_ID.search(address)
    url = re.sub(r"^http://", "https://", address) if found else address
    if not title or not is_page(url):
        return None
    names = [author.findtext(f"{_ATOM}name") or "" for author in entry.findall(f"{_ATOM}author")]
    published = entry.findtext(f"{_ATOM}published") or ""
    return Paper(
        title=title,
        authors=_join(names),
        year=int(published[:4]) if re.match(r"\d{4}-", published) else None,
        url=url,
        doi=_clean_doi(entry.findtext(f"{_OF_ARXIV}doi") or ""),
        arxiv=_VERSION.sub("", found[1]) if found else "",
        snippet=clean_line(entry.findtext(f"{_ATOM}summary") or "", SNIPPET_CHARS),
    )
