"""Text that runs from right to left inside lines that run from left to right.

Without isolation a Hebrew or Arabic name drags the punctuation and the numbers around it to its other side
(Unicode TR9). So such a run stands between FSI and PDI wherever the line as a whole runs the other way. Code stays
as it is. Characters that override the direction never get here: the parser removes them.
"""

from __future__ import annotations

import re
from dataclasses import replace

from adapters.markdown.parse import BIDI_CONTROLS
from adapters.markdown.tree import (
    Block,
    CodeBlock,
    Document,
    Emphasis,
    Heading,
    Inline,
    Link,
    ListBlock,
    Paragraph,
    Quote,
    Rule,
    Strike,
    Strong,
    Table,
    Text,
    plain_text,
)

FSI, PDI = "\u2068", "\u2069"

_RTL_CHARS = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
_RTL = re.compile(f"[{_RTL_CHARS}]")
RTL_RUN = re.compile(f"[{_RTL_CHARS}](?:[^\\w\\n]*[{_RTL_CHARS}\u0300-\u036f])*")
"""Characters that run from right to left, with the signs and blanks between them."""
_LETTER = re.compile(r"[^\W\d_]")
_INVISIBLE = {ord(c): None for c in BIDI_CONTROLS + "\u200b\u200c\u200d\u200e\u200f\u2060\u061c\ufeff\u00ad"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def clean_name(name: str) -> str:
    """Return a name (of a file, a table, a person) without characters that are not seen or that reorder others."""
    return _CONTROL.sub(" ", name.translate(_INVISIBLE)).strip()


def find_rtl(text: str) -> int:
    """Return where the first character is that runs from right to left, -1 for none."""
    found = _RTL.search(text)
    return found.start() if found else -1


def leans_left(text: str) -> bool:
    """True for a line that runs from left to right and has runs that do not; see ``isolate``."""
    rtl = len(_RTL.findall(text))
    if not rtl:
        return False
    ltr = len(_LETTER.findall(text)) - rtl
    runs = RTL_RUN.findall(text)
    return ltr >= rtl or (len(runs) == 1 and len(runs[0].split()) <= 3 and ltr * 2 >= rtl)


def isolate(text: str) -> str:
    """Isolate the runs from right to left in one line; a line that runs so itself stays as it is.

    A line runs from left to right when most of its letters do, or when all that runs the other way is one short
    name.
    """
    return RTL_RUN.sub(rf"{FSI}\g<0>{PDI}", text) if leans_left(text) else text


def isolate_document(document: Document) -> Document:
    """Return the document with the runs of every line isolated, code excepted."""
    return Document(tuple(_block(block) for block in document.blocks))


def _block(block: Block) -> Block:
    match block:
        case Paragraph(children) | Heading(_, children):
            return replace(block, children=_line(children))
        case Quote(blocks):
            return Quote(tuple(_block(b) for b in blocks))
        case ListBlock(items, start):
            return ListBlock(tuple(tuple(_block(b) for b in item) for item in items), start)
        case Table(header, rows, align):
            return Table(tuple(map(_line, header)), tuple(tuple(map(_line, row)) for row in rows), align)
        case CodeBlock() | Rule():
            return block


def _line(children: tuple[Inline, ...]) -> tuple[Inline, ...]:
    if all(isinstance(node, Text) and node.text.isascii() for node in children):
        return children
    return tuple(map(_inline, children)) if leans_left(plain_text(children)) else children


def _inline(node: Inline) -> Inline:
    match node:
        case Text(text):
            return Text(RTL_RUN.sub(rf"{FSI}\g<0>{PDI}", text))
        case Emphasis(children) | Strong(children) | Strike(children) | Link(_, children):
            return replace(node, children=tuple(map(_inline, children)))
        case _:
            return node
