"""Cutting a canonical Markdown text into parts that each fit into one post.

Cuts are made between blocks where possible, then inside the block that is too long: code between lines
(each part a closed fence with the language), tables between rows (each part with the header), lists
between items, text at a line, a sentence, a word, and at last between two graphemes. No word is lost or
said twice, except a table's header. A part brings along the link definitions that it uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from adapters.chat import Limits
from adapters.markdown.cut import split_text
from adapters.markdown.grapheme import cut_before
from adapters.markdown.parse import tokenize_blocks
from adapters.markdown.pieces import Definitions, Piece, fence, join, normalise, read_items, read_pieces
from adapters.markdown.room import MIN_TEXT_MAX, Costs, Rest, Room, Size, add

Measure = Callable[[str], int]

PARTS_MAX = 12
"""More posts in a row are a flood; what is beyond goes into a file."""

CHARS_MAX = 40_000
"""A longer answer is read as a file."""

TAIL_NAME = "answer.md"
"""The file that holds what is beyond the ceilings."""

TAIL_NOTE = "*… the rest of this answer ({count} characters) is in the attached file {name}.*"
"""What the last part says then."""

_ITEM = re.compile(r"( {0,3}(?:[-*+]|\d{1,9}[.)]))(?:[ \t]{1,4}|(?=\n)|$)")


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
            whose rendering grows a text passes the size of the rendering. Two blocks in one part may not take
            more than each alone and what is between them.

    Returns:
        The parts in order, none of them blank; an empty tuple for a blank text.

    Raises:
        ValueError: ``limits.text_max`` is too small.
    """
    if limits.text_max < MIN_TEXT_MAX:
        raise ValueError(f"a post of {limits.text_max} is too small to cut a text for; at least {MIN_TEXT_MAX}")
    count, grain = measure or unit_size(limits.unit), _grain(limits, measure)
    return tuple(fit_costs(text, (limits.text_max,), lambda part: (count(part),), grain=grain))


def fit_costs(text: str, size: Size, costs: Costs, *, grain: int = 1) -> Iterator[str]:
    """Cut ``text`` like ``fit_markdown``, for a platform that counts several things at once; the parts come lazily.

    Args:
        text: canonical Markdown of any length.
        size: the most of each thing in one post; the first counts something like characters.
        costs: how much of each a text takes.
        grain: to how many characters a cut is searched; more than 1 where ``costs`` is expensive.
    """
    return _fit_costs(text, size, costs, grain, Rest())


def _fit_costs(text: str, size: Size, costs: Costs, grain: int, rest: Rest) -> Iterator[str]:
    text = normalise(text)
    definitions = Definitions.read(text, most=size[0] // 4)
    room = Room(size, lambda part: costs(definitions.complete(part)), grain, rest)
    for part in _pack(definitions.without(read_pieces(text)), room):
        yield definitions.complete(part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """An answer as it is posted: the parts, the last of which names the file that holds ``tail``."""

    parts: tuple[str, ...]
    tail: str = ""


def fit_answer(
    text: str,
    limits: Limits,
    *,
    measure: Measure | None = None,
    parts_max: int = PARTS_MAX,
    chars_max: int = CHARS_MAX,
    note: str = TAIL_NOTE,
) -> Fitted:
    """Cut ``text`` like ``fit_markdown``, and keep apart what is beyond the ceilings.

    Args:
        text: canonical Markdown of any length.
        limits: see ``fit_markdown``.
        measure: see ``fit_markdown``.
        parts_max: the most posts; at least 1.
        chars_max: the most characters in all posts together; at least ``limits.text_max``.
        note: what the last part says when there is a tail; ``{name}`` is ``TAIL_NAME``, ``{count}`` its characters.

    Returns:
        All parts, and the tail as canonical Markdown, empty when everything is in the parts.

    Raises:
        ValueError: ``limits.text_max`` is too small.
    """
    if limits.text_max < MIN_TEXT_MAX:
        raise ValueError(f"a post of {limits.text_max} is too small to cut a text for; at least {MIN_TEXT_MAX}")
    count, grain = measure or unit_size(limits.unit), _grain(limits, measure)
    return fit_answer_costs(
        text,
        (limits.text_max,),
        lambda p: (count(p),),
        grain=grain,
        parts_max=parts_max,
        chars_max=chars_max,
        note=note,
    )


def _grain(limits: Limits, measure: Measure | None) -> int:
    """To how many characters a cut is searched: a measure that is not just the length renders, which takes time."""
    return 1 if measure is None else max(1, limits.text_max // 50)


def fit_answer_costs(
    text: str,
    size: Size,
    costs: Costs,
    *,
    grain: int = 1,
    parts_max: int = PARTS_MAX,
    chars_max: int = CHARS_MAX,
    note: str = TAIL_NOTE,
) -> Fitted:
    """Cut ``text`` like ``fit_answer``, for a platform that counts several things at once (see ``fit_costs``)."""
    whole = fit_costs(text, (chars_max,), lambda part: (len(part),)) if len(text) > chars_max else (text,)
    head, *beyond = [*whole] or [""]  # a text of any length may show nothing
    cutting = Rest()
    coming = _fit_costs(head, size, costs, grain, cutting)
    parts = list(islice(coming, parts_max))
    cutting.begun = True  # what else comes is for the file: it stays as it is
    parts += coming
    if len(parts) <= parts_max and not beyond:
        return Fitted(parts=tuple(parts))
    reserved = costs("\n\n" + note.format(name=TAIL_NAME, count=10 * len(text)))
    smaller = tuple(max(1, most - taken) for most, taken in zip(size, reserved, strict=True))
    shown, rest = parts[: parts_max - 1], parts[parts_max - 1 :]
    last, *over = fit_costs("\n\n".join(rest[:1] or [shown.pop()]), smaller, costs, grain=grain)
    tail = "\n\n".join([*over, *rest[1:], *beyond])
    return Fitted(parts=(*shown, last + "\n\n" + note.format(name=TAIL_NAME, count=f"{len(tail):,}")), tail=tail)


# -- packing ---------------------------------------------------------------------------------------


def _fit(text: str, room: Room) -> Iterator[str]:
    return _pack(read_pieces(text), room)


def _pack(pieces: list[Piece], room: Room) -> Iterator[str]:
    """Fill parts in order; a heading moves on together with what it stands above."""
    current: list[Piece] = []
    load: Size = ()
    for piece in pieces:
        long = piece.kind == "text" and room.is_far_too_long(piece.text)
        cost = tuple(most + 1 for most in room.size) if long else room.cost(piece.text)
        if current:
            gap = room.cost("\n\n" if current[-1].torn else piece.gap)
            if room.fits(whole := add(add(load, gap), cost)):
                current.append(piece)
                load = whole
                continue
        elif room.fits(cost):
            current, load = [piece], cost
            continue
        carried: list[Piece] = []
        if len(current) > 1 and current[-1].kind == "heading" and room.holds(join([current[-1], piece])):
            carried = [current.pop()]
        if current:
            yield join(current)
        if carried or room.fits(cost):
            current = [*carried, piece]
            load = room.cost(join(current)) if carried else cost
            continue
        current = []
        for part in _split(piece, room):
            if current:
                yield join(current)
            current = [Piece("text", part, torn=True)]
        load = room.cost(current[0].text) if current else ()
    if current:
        yield join(current)


# -- cutting one block -----------------------------------------------------------------------------


def _split(piece: Piece, room: Room) -> Iterator[str]:
    match piece.kind:
        case "fence":
            return _split_fence(piece.text, room)
        case "table":
            return _split_table(piece.text, room)
        case "list":
            return _pack(read_items(piece.text), room)
        case "item":
            return _split_item(piece.text, room)
        case "quote":
            return _split_quote(piece.text, room)
        case "text" | "heading":
            return split_text(piece.text, room)


def _split_fence(text: str, room: Room) -> Iterator[str]:
    token = tokenize_blocks(text)[0]
    lines = token.content.removesuffix("\n").split("\n")
    words = token.info.split(maxsplit=1)
    info = words[0] if words and len(words[0]) <= MIN_TEXT_MAX // 4 else ""
    marker = token.markup
    if not room.holds(fence(info, marker, ["x" * (MIN_TEXT_MAX // 4)])):
        yield from split_text(text, room)
        return
    at = 0
    while at < len(lines):
        count = room.longest(len(lines) - at, lambda n: fence(info, marker, lines[at : at + n]))  # noqa: B023
        if count:
            yield fence(info, marker, lines[at : at + count])
            at += count
            continue
        line = lines[at]
        cut = room.longest(len(line), lambda n: fence(info, marker, [line[:n]]))  # noqa: B023
        cut = cut_before(line, max(1, cut))
        yield fence(info, marker, [line[:cut]])
        lines[at] = line[cut:]


def _split_table(text: str, room: Room) -> Iterator[str]:
    head, rows = text.split("\n")[:2], text.split("\n")[2:]
    if not rows or not all(room.holds("\n".join([*head, row])) for row in rows):
        yield from split_text(text, room)
        return
    at = 0
    while at < len(rows):
        count = max(1, room.longest(len(rows) - at, lambda n: "\n".join([*head, *rows[at : at + n]])))  # noqa: B023
        yield "\n".join([*head, *rows[at : at + count]])
        at += count


def _split_item(text: str, room: Room) -> Iterator[str]:
    """The first part keeps the item's mark; what follows stands as a text of its own."""
    mark = _ITEM.match(text)
    if mark is None:
        yield from split_text(text, room)
        return
    first, *others = text.split("\n")
    inner = "\n".join([first[mark.end() :], *(_dedent(line, max(mark.end(), 2)) for line in others)])
    marker = mark[1] + " "

    def wrap(part: str) -> str:
        begin, *rest = part.split("\n")
        return "\n".join([marker + begin, *(" " * len(marker) + line if line else line for line in rest)])

    inside = room.inside(wrap)
    if inside is None or not inner.strip():
        yield from split_text(text, room)
        return
    for n, part in enumerate(_fit(inner.strip("\n"), inside)):
        yield part if n else wrap(part)


def _dedent(line: str, width: int) -> str:
    lead = len(line) - len(line.lstrip(" \t"))
    spaces = len(line[:lead].expandtabs(4))
    return " " * max(0, spaces - width) + line[lead:]


def _split_quote(text: str, room: Room) -> Iterator[str]:
    def wrap(part: str) -> str:
        return "\n".join(f"> {line}" if line else ">" for line in part.split("\n"))

    inside = room.inside(wrap)
    if inside is None:
        yield from split_text(text, room)
        return
    inner = "\n".join(re.sub(r"^ {0,3}> ?", "", line) for line in text.split("\n"))
    for part in _fit(inner, inside):
        yield wrap(part)
