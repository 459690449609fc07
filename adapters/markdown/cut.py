"""Cutting running text: at a line, a sentence, a word, and at last between two graphemes.

A cut keeps the meaning: no mark of Markdown loses its partner, no character becomes a mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from adapters.markdown.grapheme import cut_before
from adapters.markdown.parse import parse_markdown
from adapters.markdown.room import Room
from adapters.markdown.tree import (
    Block,
    Break,
    Code,
    CodeBlock,
    Emphasis,
    Inline,
    Link,
    ListBlock,
    Quote,
    Rule,
    Strike,
    Strong,
    Table,
    Text,
)

_SENTENCE = re.compile(r"[.!?…][\"')\]]*\s|[。！？；]")
_BLOCK_START = re.compile(r"(\d{1,9})([.)])(?=\s|$)|([-+*#>=~`|:_])")
_TRIES = 12
_LOOKAHEAD = 400
_LOOKBACK = 4_000  # as long as a long paragraph


def split_text(text: str, room: Room) -> Iterator[str]:
    """Cut running text into parts that fit the room, none of them blank; they come lazily."""
    rest = text.strip("\n")
    while room.is_far_too_long(rest) or not room.holds(rest):
        head, rest = _cut_text(rest, room)
        if head.strip():
            yield head
    if rest.strip():
        yield rest


def _cut_text(text: str, room: Room) -> tuple[str, str]:
    """Cut off the longest good beginning; both sides are free of blanks at the cut."""
    most = max(1, room.longest(len(text) - 1, lambda n: text[:n], grain=room.grain))
    for at in islice(_cut_points(text, most), _TRIES):
        head, rest = text[:at].rstrip(), text[at:].lstrip()
        if head and rest and room.holds(head) and _same_meaning(text, at):
            return head, rest
    at = max(text.rfind(" ", 1, most + 1), text.rfind("\n", 1, most + 1))
    if at <= 0 or not text[:at].strip():
        at = cut_before(text, most)
    while at > 1 and not room.holds(text[:at].rstrip()):  # a rendering may grow where it is cut
        at = cut_before(text, at - max(1, at // 16))
    rest = text[at:].lstrip()
    return text[:at].rstrip(), _escape_start(rest) if at > 2 else rest


def _cut_points(text: str, most: int) -> Iterator[int]:
    """Places to cut in 1..``most``, the best first: line ends, sentence ends, blanks, any grapheme."""
    low = most // 2
    at = most + 1
    for _ in range(_TRIES // 3):
        at = text.rfind("\n", low, at)
        if at <= 0:
            break
        yield at
    ends = [m.end() for m in _SENTENCE.finditer(text, low, most + 1)]
    yield from reversed(ends[-_TRIES // 3 :])
    at = most + 1
    for _ in range(_TRIES // 3):
        at = text.rfind(" ", 1, at)
        if at <= 0:
            return
        yield at


def _same_meaning(text: str, at: int) -> bool:
    """True when the cut leaves every mark a mark and every character a character."""
    begin = max(0, at - _LOOKBACK)
    whole, head, rest = text[begin : at + _LOOKAHEAD], text[begin:at], text[at : at + _LOOKAHEAD]
    return visible_text(whole) == visible_text(head.rstrip()) + visible_text(rest.lstrip())


def visible_text(text: str) -> str:
    """All that a reader would see of a text, without blanks; marks of blocks are seen as one character."""
    return "".join("".join(_seen(block)) for block in parse_markdown(text).blocks)


def _seen(block: Block) -> Iterator[str]:
    match block:
        case CodeBlock(text):
            yield "▮" + "".join(text.split())
        case Quote(blocks):
            yield "▮" + "".join("".join(_seen(b)) for b in blocks)
        case ListBlock(items):
            for item in items:
                yield "▮" + "".join("".join(_seen(b)) for b in item)
        case Table(header, rows):
            yield "▮" + "".join(_seen_inline(c) for row in (header, *rows) for cell in row for c in cell)
        case Rule():
            yield "▮"
        case _:
            yield "".join(_seen_inline(c) for c in block.children)


def _seen_inline(node: Inline) -> str:
    match node:
        case Text(text) | Code(text):
            return "".join(text.split())
        case Link(url, children):
            return url + "".join(_seen_inline(c) for c in children)
        case Emphasis(children) | Strong(children) | Strike(children):
            return "".join(_seen_inline(c) for c in children)
        case Break():
            return ""


def _escape_start(text: str) -> str:
    """Keep a text that begins anew from turning into a heading, a list, a quote or a fence."""
    mark = _BLOCK_START.match(text)
    if mark is None:
        return text
    return "\\" + text if mark[3] else f"{mark[1]}\\{text[len(mark[1]) :]}"
