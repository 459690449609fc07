"""Pieces of a growing answer: where it may be cut, and what of it may be shown before the rest is known."""

from __future__ import annotations

import re
from collections.abc import Callable

HOLD = 40
"""An unfinished word of up to so many characters waits for its end."""

_BEGUN = re.compile(r"(?:@\w*|<)\Z")
_DELIMITER = re.compile(r"[|:\-\s]*-[|:\-\s]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`\n]*)\Z")


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


def open_table(text: str, rest: str) -> str:
    """Return the head of the table that ``text`` ends in and ``rest`` goes on with, empty when there is none."""
    if not rest.startswith("\n|"):
        return ""
    rows: list[str] = []
    for line in reversed(text.split("\n")):
        if not line.startswith("|"):
            break
        rows.append(line)
    return "\n".join(rows[:-3:-1]) if len(rows) > 1 and _DELIMITER.fullmatch(rows[-2]) else ""


def cut_at(text: str, fits: Callable[[str], bool], most: int, least: int = 0) -> int:
    """Return how much of ``text`` makes one piece: between blocks, else lines, else words, if that is half of it.

    Args:
        text: the whole.
        fits: says whether a beginning of it fits; it may be slow (it renders), so it is asked a few times only.
        most: characters that never fit more than.
        least: so much of it has to be in the piece, since it is visible already; it fits.

    Returns:
        At least 1, so that cutting ends.
    """
    least = min(max(1, least), len(text))
    end = max(least, min(len(text), most))
    while end > least and not fits(text[:end]):
        end = max(least, end * 85 // 100, (end + least) // 2)
    if end == len(text):
        return end
    for mark in ("\n\n", "\n", " "):
        at = text.rfind(mark, max(end // 2, least), end + (end == least))
        if at > 0 and (mark != "\n\n" or not open_fence(text[:at])):
            return at
    return end
