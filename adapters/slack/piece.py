"""Pieces of a growing answer: where it may be cut, and what of it may be shown before the rest is known."""

from __future__ import annotations

import re
from collections.abc import Callable

HOLD = 40
"""An unfinished word of up to so many characters waits for its end."""

_BREAK = "\u200b"
_LIVE = re.compile(r"<(?=[!@#])|\](?:\(|:)\s*<?(?=[!@#])|@(?=here|channel|everyone)", re.I)
_BEGUN = re.compile(r"(?:@\w*|<)\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`\n]*)\Z")


def neutralise(text: str) -> str:
    """Return Markdown for Slack's ``markdown_text`` in which nothing pings anybody.

    Slack reads ``<!channel>``, ``<@U1>`` and ``<#C1>`` there too. A zero-width space behind the ``<`` makes them plain
    text also inside code, where ``&lt;`` would be shown as such. For a text cut by ``settle`` the result only grows as
    the text grows.
    """
    return _LIVE.sub(lambda found: found[0] + _BREAK, text)


def settle(text: str) -> str:
    """Return the part of a growing text that can be shown now: up to its last whole word."""
    if text != text.rstrip():
        return text.rstrip()
    blank = max(text.rfind(" "), text.rfind("\n"), text.rfind("\t"))
    if len(text) - blank - 1 <= HOLD:
        return text[: blank + 1].rstrip()
    return _BEGUN.sub("", text)  # scripts without blanks


def open_fence(text: str) -> str:
    """Return the first line of the code block that ``text`` ends in, empty when it ends in none."""
    marks, opening = "", ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if not found:
            continue
        if not marks:
            marks, opening = found[1], found[1] + found[2].rstrip()
        elif found[1].startswith(marks) and not found[2].strip():
            marks, opening = "", ""
    return opening


def cut_at(text: str, fits: Callable[[str], bool], most: int) -> int:
    """Return how much of ``text`` makes one piece: between blocks, else lines, else words, if that is half of it.

    Args:
        text: the whole.
        fits: says whether a beginning of it fits; it may be slow (it renders), so it is asked a few times only.
        most: characters that never fit more than.

    Returns:
        At least 1, so that cutting ends.
    """
    end = min(len(text), most)
    while end > 1 and not fits(text[:end]):
        end = max(1, end * 85 // 100)
    if end == len(text):
        return end
    for mark in ("\n\n", "\n", " "):
        at = text.rfind(mark, end // 2, end)
        if at > 0 and (mark != "\n\n" or not open_fence(text[:at])):
            return at
    return end
