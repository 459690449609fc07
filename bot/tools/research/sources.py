"""The sources of an answer: what was really read and found in its run, told by the results and not by a model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from agent_core.tools.base import ToolResult
from bot.tools.research.results import is_page, same_page
from bot.tools.research.text import clean_line
from reading.past import parse_result

READ_WEBPAGE, WEB_SEARCH, SEARCH_PAPERS = "read_webpage", "web_search", "search_papers"
MOST_SOURCES = 10
HEADING = "**Sources**"
_TITLE_CHARS = 120
_MARKS = re.compile(r"[\\`*\[\]<>~|]|&(?=#?\w+;)|(?<!\w)_|_(?!\w)")
_IN_URL = {ord("("): "%28", ord(")"): "%29"}
"""What could end the address of a link; a percent sign and the number mean the same."""


def list_sources(results: Sequence[ToolResult]) -> str:
    """Write the sources of an answer that rests on ``results`` as Markdown; empty when it rests on none.

    First the pages that were read, in the order of reading, then those that were only found; each page once, numbered,
    at most ``MOST_SOURCES``. Titles are of strangers: they become plain text.
    """
    read: dict[str, tuple[str, str]] = {}
    found: dict[str, tuple[str, str]] = {}
    for result in results:
        value = parse_result(result.content) if result.ok else None
        if not isinstance(value, Mapping):
            continue
        pages = read if result.name == READ_WEBPAGE else found
        for title, url in _pages(result.name, value):
            pages.setdefault(same_page(url), (title, url))
    listed = [*read.values(), *(page for key, page in found.items() if key not in read)]
    if not listed:
        return ""
    lines = [f"{n}. {_link(title, url)}" for n, (title, url) in enumerate(listed[:MOST_SOURCES], 1)]
    more = len(listed) - MOST_SOURCES
    return "\n".join([HEADING, "", *lines, *([f"\nand {more} more that were found"] if more > 0 else [])])


def _pages(tool: str, value: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    if tool == READ_WEBPAGE:
        rows: object = [value]
    elif tool in (WEB_SEARCH, SEARCH_PAPERS):
        rows = value.get("rows")
    else:
        return
    for row in rows if isinstance(rows, list) else []:
        title, url = (row.get("title"), row.get("url")) if isinstance(row, Mapping) else (None, None)
        if isinstance(url, str) and is_page(url):
            yield (title if isinstance(title, str) else ""), url


def _link(title: str, url: str) -> str:
    address, shown = url.translate(_IN_URL), clean_line(title, _TITLE_CHARS)
    if not shown or shown.startswith(("http:", "https:")):
        return f"<{address}>"
    label = _MARKS.sub(lambda mark: f"\\{mark[0]}", shown)
    return f"[{label}]({address})"
