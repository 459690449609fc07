"""From the Markdown tree to Slack's rich text.

Rich text is what Slack's own composer writes. Its texts are taken literally: nothing in them can become a mention, a
link or a mark, so there is nothing to escape, and words in Chinese or Japanese can be bold without blanks around
them. A mention is an element of its own, and only the people whom a reply lists get one. The ``markdown`` block is
not used: Slack reads its own ``<…>`` marks in it, and how many blocks it becomes is not known beforehand.

Reference: docs.slack.dev/reference/block-kit/blocks/rich-text-block and .../block-elements/rich-text-*-element.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType

from adapters.markdown import (
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
    draw_table,
    plain_text,
)
from adapters.slack.links import find_bare_urls, show_link
from adapters.slack.mrkdwn import MENTION, escape
from adapters.slack.tables import TableLimits, Wire, is_narrow, is_native, table_block

HEADER_MAX = 150
INDENT_MAX = 8
OFFSET_MAX = 100_000
ELEMENTS_MAX = 100
"""Elements of one rich text block; Slack names no limit, so a long text becomes several blocks."""

RULE = "─" * 16

_PLAIN_STYLE: Mapping[str, bool] = MappingProxyType({})
_EMOJI_WORD = re.compile(r":[\w+-]+:")
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_LANGUAGES = {"py": "python", "js": "javascript", "ts": "typescript", "sh": "bash", "shell": "bash", "yml": "yaml",
              "golang": "go", "rs": "rust", "rb": "ruby", "md": "markdown", "postgresql": "sql", "psql": "sql",
              "mysql": "sql", "pgsql": "sql"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What blocks take of a message: characters with addresses, elements of rich text, blocks, characters in cells."""

    chars: int
    elements: int
    blocks: int
    table_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How the blocks of a message are made.

    Args:
        mentions: ids of the users who may be mentioned.
        trusted: hosts that may be linked to; None for any.
        tables: what a table block takes.
        native_tables: use table blocks at all; monospace instead.
        headers: use header blocks; bold text instead.
    """

    mentions: frozenset[str] = frozenset()
    trusted: frozenset[str] | None = None
    tables: TableLimits = TableLimits()
    native_tables: bool = True
    headers: bool = True


def build_blocks(document: Document, style: Style) -> tuple[Wire, ...]:
    """Render a document to blocks, however many they become."""
    builder = _Builder(style, style.tables.chars)
    for block in document.blocks:
        builder.add(block)
    builder.end_rich()
    return tuple(builder.out)


def load_of(blocks: Sequence[Wire]) -> Load:
    """Count what blocks made here take."""
    sizes = [sum(map(_size, _leaves(block))) for block in blocks]
    return Load(
        chars=sum(sizes),
        elements=sum(len(block["elements"]) for block in blocks if block["type"] == "rich_text"),
        blocks=len(blocks),
        table_chars=sum(size for block, size in zip(blocks, sizes, strict=True) if block["type"] == "table"),
    )


def shown_text(blocks: Sequence[Wire]) -> str:
    """Return all characters that a reader sees in blocks made here, without formatting."""
    return "".join(_seen(leaf) for block in blocks for leaf in _leaves(block))


def _leaves(part: Wire) -> Iterator[Wire]:
    """The texts, links and mentions of a block, and one thing without text for the end of each line."""
    inner: list[Wire] = part.get("elements") or [cell for row in part.get("rows", ()) for cell in row]
    for child in inner:
        yield from _leaves(child)
    if isinstance(part.get("text"), dict):
        yield part["text"]
    else:
        yield part


def _size(leaf: Wire) -> int:
    return max(1, len(leaf.get("text", "")) + len(leaf.get("url", "")) + len(leaf.get("user_id", "")))


def _seen(leaf: Wire) -> str:
    return f"<@{leaf['user_id']}>" if "user_id" in leaf else str(leaf.get("text") or leaf.get("url", ""))


@dataclass(slots=True)
class _Builder:
    """Collects blocks; running text goes into the section that is open, until something else begins."""

    style: Style
    table_chars_left: int
    out: list[Wire] = field(default_factory=list)
    rich: list[Wire] = field(default_factory=list)
    section: list[Wire] | None = None

    # -- blocks
    def add(self, block: Block) -> None:
        match block:
            case Paragraph(children):
                self._text(self.spans(children))
            case Heading(level, children):
                self._heading(level, children)
            case CodeBlock(text, language):
                self._code(text, language)
            case Quote(blocks):
                self._quote(blocks)
            case ListBlock():
                self._list(block, 0, 0)
            case Table():
                self._table(block)
            case Rule():
                self._rule()

    def end_rich(self) -> None:
        self.section = None
        if self.rich:
            self.out.append({"type": "rich_text", "elements": self.rich})
            self.rich = []

    def _element(self, element: Wire) -> None:
        self.section = None
        if len(self.rich) >= ELEMENTS_MAX:
            self.end_rich()
        self.rich.append(element)

    def _text(self, spans: list[Wire]) -> None:
        if not spans:
            return
        if self.section is None:
            spans = list(spans)
            self._element({"type": "rich_text_section", "elements": spans})
            self.section = spans
        else:
            self.section.extend([_span("\n\n"), *spans])

    def _heading(self, level: int, children: tuple[Inline, ...]) -> None:
        text = plain_text(children).strip()
        # a header's text is no rich text: Slack reads entities and emoji in it
        plain = text == escape(text) and "\n" not in text and not _EMOJI_WORD.search(text)
        if self.style.headers and level <= 2 and plain and 0 < len(text) <= HEADER_MAX and _is_text(children):
            self.end_rich()
            self.out.append({"type": "header", "text": {"type": "plain_text", "text": text, "emoji": False}})
        else:
            self._text(self.spans((Strong(children),)))

    def _code(self, text: str, language: str, *, border: bool = False) -> None:
        if not text:
            return
        element: Wire = {"type": "rich_text_preformatted", "elements": [_span(text)]}
        if _LANGUAGE.fullmatch(language):
            element["language"] = _LANGUAGES.get(language.lower(), language.lower())
        self._element(element | ({"border": 1} if border else {}))

    def _rule(self) -> None:
        if self.style.headers:
            self.end_rich()
            self.out.append({"type": "divider"})
        else:
            self._text([_span(RULE)])

    def _table(self, table: Table) -> None:
        if self.style.native_tables and is_native(table, self.style.tables, self.table_chars_left):
            block = table_block(table, self.spans)
            size = load_of([block]).table_chars  # an address that is shown beside its label makes a cell longer
            if size <= self.table_chars_left:
                self.end_rich()
                self.table_chars_left -= size
                self.out.append(block)
                return
        if is_narrow(table):
            self._code(draw_table(table), "")
        else:
            for row in table.rows or (table.header,):
                self._text(self._record(table.header, row))

    def _record(self, header: tuple[tuple[Inline, ...], ...], row: tuple[tuple[Inline, ...], ...]) -> list[Wire]:
        """A row of a table that is too wide: its first cell in bold, the others named by their column."""
        spans = self.spans((Strong(row[0]),)) or [_span("—")]
        for head, cell in zip(header[1:], row[1:], strict=True):
            spans += [_span("\n    "), *self.spans(head), _span(": "), *self.spans(cell)]
        return spans

    # -- quotes and lists
    def _quote(self, blocks: tuple[Block, ...]) -> None:
        """Slack's quotes hold text only and do not nest: lists and code stand in it with a quote's border."""
        texts: list[Wire] = []

        def flush() -> None:
            nonlocal texts
            if texts:
                self._element({"type": "rich_text_quote", "elements": texts})
                texts = []

        for block in blocks:
            match block:
                case Paragraph(children):
                    spans = self.spans(children)
                case Heading(_, children):
                    spans = self.spans((Strong(children),))
                case Rule():
                    spans = [_span(RULE)]
                case _:
                    flush()
                    self._bordered(block)
                    continue
            texts += [*([_span("\n\n")] if texts and spans else []), *spans]
        flush()

    def _bordered(self, block: Block) -> None:
        match block:
            case CodeBlock(text, language):
                self._code(text, language, border=True)
            case ListBlock():
                self._list(block, 0, 1)
            case _:
                self.add(block)

    def _list(self, block: ListBlock, depth: int, border: int) -> None:
        """Slack's lists are flat: each change of depth, and each block that is no text, begins a new one."""
        counted = block.start is not None and 1 <= block.start <= OFFSET_MAX
        items: list[Wire] = []
        begun = 0

        def flush(upto: int) -> None:
            nonlocal items, begun
            if items:
                element: Wire = {"type": "rich_text_list", "style": "ordered" if counted else "bullet"}
                element |= {"elements": items, "indent": min(depth, INDENT_MAX)} | ({"border": 1} if border else {})
                offset = (block.start or 1) - 1 + begun
                self._element(element | ({"offset": offset} if counted and offset else {}))
            items, begun = [], upto

        for n, item in enumerate(block.items):
            texts, others = _leading(item)
            spans = [] if counted or block.start is None else [_span(f"{block.start + n}. ")]
            for m, inlines in enumerate(texts):
                spans += [*([_span("\n")] if m else []), *self.spans(inlines)]
            items.append({"type": "rich_text_section", "elements": spans or [_span(" ")]})
            if others:
                flush(n + 1)
            for other in others:
                match other:
                    case ListBlock():
                        self._list(other, depth + 1, border)
                    case CodeBlock(text, language):
                        self._code(text, language, border=bool(border))
                    case _:
                        self.add(other)
        flush(len(block.items))

    # -- inside a line
    def spans(self, children: tuple[Inline, ...]) -> list[Wire]:
        """Render inline nodes to elements of a rich text section, neighbours of one style in one."""
        merged: list[Wire] = []
        for style, group in groupby(self._spans(children, _PLAIN_STYLE), key=_text_style):
            spans = list(group)
            if style is None:
                merged += spans
            else:
                merged.append(_span("".join(span["text"] for span in spans), dict(style)))
        return merged

    def _spans(self, children: Iterable[Inline], style: Mapping[str, bool]) -> Iterator[Wire]:
        for child in children:
            match child:
                case Text(text):
                    yield from self._words(text, style)
                case Code(text):
                    yield _span(" ".join(text.split("\n")) or " ", {**style, "code": True})
                case Break():
                    yield _span("\n", style)
                case Emphasis(inner):
                    yield from self._spans(inner, {**style, "italic": True})
                case Strong(inner):
                    yield from self._spans(inner, {**style, "bold": True})
                case Strike(inner):
                    yield from self._spans(inner, {**style, "strike": True})
                case Link(url, inner):
                    yield from self._link(url, plain_text(inner), style)

    def _words(self, text: str, style: Mapping[str, bool]) -> Iterator[Wire]:
        """Running text, with the mentions that count and with addresses as links: Slack finds neither by itself."""
        if "<@" not in text and "://" not in text:
            yield from (_span(text, style) for _ in text[:1])
            return
        marks = [(m.start(), m.end(), m[1]) for m in MENTION.finditer(text) if m[1] in self.style.mentions]
        marks += [(begin, end, "") for begin, end in find_bare_urls(text)]
        done = 0
        for begin, end, user in sorted(marks):
            if begin < done:
                continue
            if begin > done:
                yield _span(text[done:begin], style)
            if user:
                yield {"type": "user", "user_id": user} | ({"style": dict(style)} if style else {})
            else:
                yield from self._link(text[begin:end], "", style)
            done = end
        if done < len(text):
            yield _span(text[done:], style)

    def _link(self, url: str, label: str, style: Mapping[str, bool]) -> Iterator[Wire]:
        shown = show_link(url, label, self.style.trusted)
        if shown.before:
            yield _span(shown.before, style)
        if shown.url:
            span: Wire = {"type": "link", "url": shown.url}
            span |= {"text": shown.label} if shown.label != shown.url else {}
            yield span | ({"style": dict(style)} if style else {})
        if shown.after:
            yield _span(shown.after, style)


def _span(text: str, style: Mapping[str, bool] = _PLAIN_STYLE) -> Wire:
    return {"type": "text", "text": text} | ({"style": dict(style)} if style else {})


def _text_style(span: Wire) -> tuple[tuple[str, bool], ...] | None:
    return tuple(sorted(span.get("style", {}).items())) if span["type"] == "text" else None


def _is_text(children: Collection[Inline]) -> bool:
    for child in children:
        match child:
            case Text() | Break():
                continue
            case Emphasis(inner) | Strong(inner) if _is_text(inner):
                continue
            case _:
                return False
    return "://" not in plain_text(tuple(children))


def _leading(item: tuple[Block, ...]) -> tuple[list[tuple[Inline, ...]], list[Block]]:
    """The paragraphs that an item begins with, and what follows them."""
    texts: list[tuple[Inline, ...]] = []
    for n, block in enumerate(item):
        match block:
            case Paragraph(children):
                texts.append(children)
            case Heading(_, children):
                texts.append((Strong(children),))
            case _:
                return texts, list(item[n:])
    return texts, []
