"""From canonical Markdown to its tree: CommonMark with tables and strikethrough, HTML as plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from adapters.markdown.tree import (
    Align,
    Block,
    Break,
    Code,
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
)

BIDI_CONTROLS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Characters that reorder what follows them (Unicode TR9, explicit formatting); no text of ours contains them."""

_CLEAN: dict[int, str | None] = {ord(c): None for c in BIDI_CONTROLS}
_CLEAN |= dict.fromkeys(range(0xD800, 0xE000), "\ufffd")  # halves of characters, which no platform takes

MAX_NESTING = 40
"""Deeper structures are shown as plain text: the parser would silently drop what is inside them."""

_LEFT_BOLD = re.compile(r"\*\*(?![\s*])([^*\n]*[^\s*])\*\*(?!\*)")


def clean(text: str) -> str:
    """Return the text without what reorders other text and without halves of characters; line by line the same."""
    return text if text.isascii() else text.translate(_CLEAN)


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING + 2})
    return parser.enable(["table", "strikethrough"]).disable("text_join")  # escaped characters stay apart


@cache
def _block_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING + 2})
    return parser.enable(["table"]).disable("inline")


def tokenize_blocks(text: str) -> list[Token]:
    """Return the tokens of the blocks only, like ``tokenize``; what is inside their lines is not read."""
    tokens = _block_parser().parse(clean(text))
    return [] if any(t.level >= MAX_NESTING for t in tokens) else tokens


def tokenize(text: str) -> list[Token]:
    """Return the parser's tokens; an empty list when the text nests deeper than ``MAX_NESTING``."""
    tokens = _parser().parse(clean(text))
    return [] if any(t.level >= MAX_NESTING for t in tokens) else tokens


def find_definitions(text: str) -> dict[str, str]:
    """Return the link definitions of a text: the normalised label and where it leads."""
    env: dict[str, dict[str, dict[str, str]]] = {}
    _block_parser().parse(text, env)
    return {label: found["href"] for label, found in env.get("references", {}).items()}


def parse_markdown(text: str) -> Document:
    """Parse canonical Markdown. Any text is valid; safe to call from several threads.

    Returns:
        The tree. A text that nests absurdly deep comes back as one paragraph of plain text.
    """
    tokens = tokenize(text)
    if not tokens and text.strip():
        return Document((Paragraph((Text(clean(text).strip()),)),))
    return Document(tuple(_blocks(_Cursor(tokens))))


class _Cursor:
    """Walks over tokens; ``until`` says which closing token ends the present container."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def take(self) -> Token | None:
        if self._at >= len(self._tokens):
            return None
        self._at += 1
        return self._tokens[self._at - 1]


def _blocks(cursor: _Cursor, until: str = "") -> Iterator[Block]:
    while (token := cursor.take()) is not None and token.type != until:
        match token.type:
            case "paragraph_open" | "heading_open":
                inline = cursor.take()
                children = _inlines(inline.children or []) if inline else ()
                cursor.take()
                yield Heading(int(token.tag[1:]), children) if token.type == "heading_open" else Paragraph(children)
            case "fence" | "code_block":
                language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
                yield CodeBlock(token.content.removesuffix("\n"), language)
            case "blockquote_open":
                yield Quote(tuple(_blocks(cursor, "blockquote_close")))
            case "bullet_list_open" | "ordered_list_open":
                start = int(token.attrs.get("start", 1)) if token.type == "ordered_list_open" else None
                yield ListBlock(tuple(_items(cursor, token.type.replace("open", "close"))), start)
            case "table_open":
                yield _table(cursor)
            case "hr":
                yield Rule()
            case _:  # nothing else is enabled
                continue


def _items(cursor: _Cursor, until: str) -> Iterator[tuple[Block, ...]]:
    while (token := cursor.take()) is not None and token.type != until:
        yield tuple(_blocks(cursor, "list_item_close"))


def _table(cursor: _Cursor) -> Table:
    rows: list[list[tuple[Inline, ...]]] = []
    align: list[Align] = []
    while (token := cursor.take()) is not None and token.type != "table_close":
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            if token.type == "th_open":
                style = str(token.attrs.get("style", ""))
                align.append("right" if "right" in style else "center" if "center" in style else "left")
            inline = cursor.take()
            rows[-1].append(_inlines(inline.children or []) if inline else ())
    return Table(tuple(rows[0]), tuple(tuple(row) for row in rows[1:]), tuple(align))


def _inlines(tokens: Sequence[Token]) -> tuple[Inline, ...]:
    """Build the tree of one line from the parser's flat list of openings and closings."""
    stack: list[tuple[Token | None, list[Inline]]] = [(None, [])]
    for token in tokens:
        out = stack[-1][1]
        if token.nesting == 1:
            stack.append((token, []))
        elif token.nesting == -1:
            opening, children = stack.pop()
            stack[-1][1].append(_span(opening, tuple(children)))
        elif token.type == "code_inline":
            out.append(Code(token.content))
        elif token.type in ("softbreak", "hardbreak"):
            out.append(Break(hard=token.type == "hardbreak"))
        elif token.type == "image":
            out.append(Link(str(token.attrs.get("src", "")), _inlines(token.children or [])))
        elif token.content:
            content = clean(token.content)  # entities can bring some in
            for piece in _bold(content) if token.type == "text" else (Text(content),):
                _append(out, piece)
    return tuple(stack[0][1])


def _append(out: list[Inline], piece: Inline) -> None:
    if isinstance(piece, Text) and out and isinstance(out[-1], Text):
        out[-1] = Text(out[-1].text + piece.text)
    else:
        out.append(piece)


def _bold(text: str) -> Iterator[Inline]:
    """Text in which CommonMark left ``**`` as they are, since punctuation meets a letter (``**Note:**so``).

    Models write that often, most of all in languages without blanks between words.
    """
    done = 0
    for found in _LEFT_BOLD.finditer(text):
        yield from (Text(part) for part in (text[done : found.start()],) if part)
        yield Strong((Text(found[1]),))
        done = found.end()
    yield from (Text(part) for part in (text[done:],) if part)


def _span(opening: Token | None, children: tuple[Inline, ...]) -> Inline:
    match opening.type if opening else "":
        case "em_open":
            return Emphasis(children)
        case "strong_open":
            return Strong(children)
        case "s_open":
            return Strike(children)
        case _:
            return Link(str(opening.attrs.get("href", "")) if opening else "", children)
