"""Addresses of web pages inside a question."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINK = re.compile(
    r"(?<![A-Za-z0-9])https?://[^\s<>\"|`\0，。；：！？、（）「」『』【】《》“”\u4e00-\u9fff]+", re.IGNORECASE
)
_CLOSING = ".,;:!?'*_~"
"""What stands behind an address and is none of it, at its end."""
_PAIRS = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An address with its place in a text."""

    url: str
    start: int
    end: int


def find_links(text: str) -> list[Link]:
    """Return the addresses that begin with ``http://`` or ``https://``, in order, without the sentence's own marks."""
    found = []
    for m in _LINK.finditer(text):
        url = m.group()
        while url[-1] in _CLOSING or url.count(url[-1]) > url.count(_PAIRS.get(url[-1], url[-1])):
            url = url[:-1]
        if url.partition("://")[2]:
            found.append(Link(url=url, start=m.start(), end=m.start() + len(url)))
    return found
