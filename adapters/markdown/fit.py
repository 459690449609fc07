"""Cutting a canonical Markdown text into parts that each fit into one post.

Cuts are made between blocks where possible, then inside the block that is too long: code between lines
(each part a closed fence with the language), tables between rows (each part with the header), lists
between items, text at a line, a sentence, a word, and at last between two graphemes. No word is lost or
said twice, except a table's header. Link definitions stay where they are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Literal

from markdown_it.token import Token

from adapters.chat import Limits
from adapters.markdown.grapheme import cut_before
from adapters.markdown.parse import parse_markdown, tokenize
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

Measure = Callable[[str], int]

MIN_TEXT_MAX = 64
"""Smaller posts could not hold a fence, its language and a word."""

_Kind = Literal["text", "heading", "fence", "table", "list", "item", "quote"]
_ITEM = re.compile(r"( {0,3}(?:[-*+]|\d{1,9}[.)]))(?:[ \t]{1,4}|(?=\n)|$)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*$")
_SENTENCE = re.compile(r"[.!?…][\"')\]]*\s|[。！？；]")
_BLOCK_START = re.compile(r"(\d{1,9})([.)])(?=\s|$)|([-+*#>=~`|:_])")
_TRIES = 12
_LOOKAHEAD = 400


def unit_size(unit: Literal["chars", "utf16", "utf8"]) -> Measure:
    """Return the function that counts a text in a platform's unit."""
    match unit:
        case "chars":
            return len
        case "utf16":
            return lambda text: len(text.encode("utf-16-le", "surrogatepass")) // 2
        case "utf8":
            return lambda text: len(text.encode("utf-8", "surrogatepass"))


def fit_markdown(text: str, limits: Limits, *, measure: Measure | None = None) -> tuple[str, ...]:
    """Cut ``text`` into parts of canonical Markdown that each fit ``limits``.

    Args:
        text: canonical Markdown of any length.
        limits: ``text_max`` is at least ``MIN_TEXT_MAX``.
        measure: how much of ``text_max`` a part takes; by default its length in ``limits.unit``. A platform
            whose rendering grows a text passes the size of the rendering.

    Returns:
        The parts in order, none of them blank; an empty tuple for a blank text.

    Raises:
        ValueError: ``limits.text_max`` is too small.
    """
    if limits.text_max < MIN_TEXT_MAX:
        raise ValueError(f"a post of {limits.text_max} is too small to cut a text for; at least {MIN_TEXT_MAX}")
    return tuple(_fit(_normalise(text), _Room(limits.text_max, measure or unit_size(limits.unit))))


@dataclass(frozen=True, slots=True)
class _Room:
    """How much fits, measured inside whatever surrounds it (the marks of a quote, the indent of an item)."""

    size: int
    measure: Measure

    def holds(self, text: str) -> bool:
        return self.measure(text) <= self.size

    def inside(self, wrap: Callable[[str], str]) -> _Room | None:
        """The room that ``wrap`` leaves, or None when it leaves too little to be worth it."""
        if self.measure(wrap("x" * (MIN_TEXT_MAX // 2))) > self.size:
            return None
        return _Room(self.size, lambda text: self.measure(wrap(text)))

    def longest(self, count: int, build: Callable[[int], str]) -> int:
        """The largest n of 1..``count`` for which ``build(n)`` fits; 0 when none does."""
        low, high = 0, count
        while low < high:
            middle = (low + high + 1) // 2
            if self.holds(build(middle)):
                low = middle
            else:
                high = middle - 1
        return low


@dataclass(frozen=True, slots=True)
class _Piece:
    kind: _Kind
    text: str
    gap: str = "\n\n"  # before it, when it follows another piece in the same part
    torn: bool = False  # the end of a block that was cut; what follows begins a new block


def _normalise(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def _fit(text: str, room: _Room) -> Iterator[str]:
    return _pack(_pieces(text), room)


def _pack(pieces: list[_Piece], room: _Room) -> Iterator[str]:
    """Fill parts in order; a heading moves on together with what it stands above."""
    current: list[_Piece] = []
    for piece in pieces:
        if room.holds(_join([*current, piece])):
            current.append(piece)
            continue
        carried: list[_Piece] = []
        if len(current) > 1 and current[-1].kind == "heading" and room.holds(_join([current[-1], piece])):
            carried = [current.pop()]
        if current:
            yield _join(current)
        if carried or room.holds(piece.text):
            current = [*carried, piece]
            continue
        parts = _split(piece, room)
        yield from parts[:-1]
        current = [_Piece("text", last, torn=True) for last in parts[-1:]]
    if current:
        yield _join(current)


def _join(pieces: list[_Piece]) -> str:
    text = pieces[0].text
    for before, piece in pairwise(pieces):
        text += ("\n\n" if before.torn else piece.gap) + piece.text
    return text


# -- the blocks of a text --------------------------------------------------------------------------


def _pieces(text: str) -> list[_Piece]:
    """The top-level blocks as source text, with what lies between them (link definitions) as text."""
    lines = text.split("\n")
    pieces: list[_Piece] = []
    done = 0

    def add(kind: _Kind, begin: int, end: int, source: str | None = None) -> None:
        source = "\n".join(lines[begin:end]).strip("\n").rstrip() if source is None else source
        if source.strip():
            blank = begin > 0 and not lines[begin - 1].strip()
            pieces.append(_Piece(kind, source, "\n\n" if blank else "\n"))

    for token in tokenize(text):
        if token.level or token.nesting < 0 or token.map is None:
            continue
        begin, end = token.map
        add("text", done, begin)
        kind = _kind(token)
        add(kind, begin, end, _heading(token, lines[begin:end]) or _closed_fence(token, lines[begin:end]))
        done = end
    add("text", done, len(lines))
    return pieces


def _kind(token: Token) -> _Kind:
    kinds: dict[str, _Kind] = {
        "heading_open": "heading",
        "fence": "fence",
        "code_block": "fence",
        "table_open": "table",
        "bullet_list_open": "list",
        "ordered_list_open": "list",
        "blockquote_open": "quote",
    }
    return kinds.get(token.type, "text")


def _heading(token: Token, lines: list[str]) -> str | None:
    """An underlined heading in the one-line form, so that a cut cannot lose its underline."""
    if token.type != "heading_open" or token.markup.startswith("#"):
        return None
    return "#" * int(token.tag[1:]) + " " + " ".join(line.strip() for line in lines[:-1] if line.strip())


def _closed_fence(token: Token, lines: list[str]) -> str | None:
    """A fence that the text never closes, closed; indented code as a fence."""
    if token.type == "code_block":
        return _fence("", _free_marker(token.content), token.content.removesuffix("\n").split("\n"))
    if token.type != "fence":
        return None
    closing = _FENCE.match(lines[-1]) if len(lines) > 1 else None
    if closing and closing[1].startswith(token.markup):
        return None
    return _fence(token.info.strip(), token.markup, token.content.removesuffix("\n").split("\n"))


def _fence(info: str, marker: str, lines: list[str]) -> str:
    return "\n".join([marker + info, *lines, marker])


def _free_marker(content: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    return "`" * max(3, longest + 1)


# -- cutting one block -----------------------------------------------------------------------------


def _split(piece: _Piece, room: _Room) -> list[str]:
    match piece.kind:
        case "fence":
            return _split_fence(piece.text, room)
        case "table":
            return _split_table(piece.text, room)
        case "list":
            return list(_pack(_list_items(piece.text), room))
        case "item":
            return _split_item(piece.text, room)
        case "quote":
            return _split_quote(piece.text, room)
        case "text" | "heading":
            return _split_text(piece.text, room)


def _split_fence(text: str, room: _Room) -> list[str]:
    token = tokenize(text)[0]
    lines = token.content.removesuffix("\n").split("\n")
    words = token.info.split(maxsplit=1)
    info = words[0] if words and len(words[0]) <= MIN_TEXT_MAX // 4 else ""
    marker = token.markup
    if not room.holds(_fence(info, marker, ["x" * (MIN_TEXT_MAX // 4)])):
        return _split_text(text, room)
    parts: list[str] = []
    while lines:
        count = room.longest(len(lines), lambda n: _fence(info, marker, lines[:n]))
        if count:
            parts.append(_fence(info, marker, lines[:count]))
            del lines[:count]
            continue
        cut = room.longest(len(lines[0]), lambda n: _fence(info, marker, [lines[0][:n]]))
        cut = cut_before(lines[0], max(1, cut))
        parts.append(_fence(info, marker, [lines[0][:cut]]))
        lines[0] = lines[0][cut:]
    return parts


def _split_table(text: str, room: _Room) -> list[str]:
    head, rows = text.split("\n")[:2], text.split("\n")[2:]
    if not rows or not all(room.holds("\n".join([*head, row])) for row in rows):
        return _split_text(text, room)
    parts: list[str] = []
    while rows:
        count = max(1, room.longest(len(rows), lambda n: "\n".join([*head, *rows[:n]])))
        parts.append("\n".join([*head, *rows[:count]]))
        del rows[:count]
    return parts


def _list_items(text: str) -> list[_Piece]:
    lines = text.split("\n")
    spans = [t.map for t in tokenize(text) if t.type == "list_item_open" and t.level == 1 and t.map]
    items = []
    for begin, end in spans:
        loose = begin > 0 and not lines[begin - 1].strip()
        source = "\n".join(lines[begin:end]).rstrip()
        items.append(_Piece("item", source, "\n\n" if loose else "\n"))
    return items


def _split_item(text: str, room: _Room) -> list[str]:
    """The first part keeps the item's mark; what follows stands as a text of its own."""
    mark = _ITEM.match(text)
    if mark is None:
        return _split_text(text, room)
    first, *others = text.split("\n")
    inner = "\n".join([first[mark.end() :], *(_dedent(line, max(mark.end(), 2)) for line in others)])
    marker = mark[1] + " "

    def wrap(part: str) -> str:
        begin, *rest = part.split("\n")
        return "\n".join([marker + begin, *(" " * len(marker) + line if line else line for line in rest)])

    inside = room.inside(wrap)
    if inside is None or not inner.strip():
        return _split_text(text, room)
    parts = list(_fit(inner.strip("\n"), inside))
    return [wrap(parts[0]), *parts[1:]]


def _dedent(line: str, width: int) -> str:
    lead = len(line) - len(line.lstrip(" \t"))
    spaces = len(line[:lead].expandtabs(4))
    return " " * max(0, spaces - width) + line[lead:]


def _split_quote(text: str, room: _Room) -> list[str]:
    def wrap(part: str) -> str:
        return "\n".join(f"> {line}" if line else ">" for line in part.split("\n"))

    inside = room.inside(wrap)
    if inside is None:
        return _split_text(text, room)
    inner = "\n".join(re.sub(r"^ {0,3}> ?", "", line) for line in text.split("\n"))
    return [wrap(part) for part in _fit(inner, inside)]


# -- cutting running text --------------------------------------------------------------------------


def _split_text(text: str, room: _Room) -> list[str]:
    parts: list[str] = []
    rest = text.strip("\n")
    while not room.holds(rest):
        head, rest = _cut_text(rest, room)
        if head.strip():
            parts.append(head)
    if rest.strip():
        parts.append(rest)
    return parts


def _cut_text(text: str, room: _Room) -> tuple[str, str]:
    """Cut off the longest good beginning; both sides are free of blanks at the cut."""
    most = max(1, room.longest(len(text) - 1, lambda n: text[:n]))
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
    text = text[: at + _LOOKAHEAD]
    return _visible(text) == _visible(text[:at].rstrip()) + _visible(text[at:].lstrip())


def _visible(text: str) -> str:
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
