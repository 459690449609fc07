"""From the Markdown tree to Slack's mrkdwn.

Escaping is the default: whatever comes from a model or a tool is text, and only this module writes ``<``.
It does so for links with an allowed scheme and for the user mentions that a reply lists; so no text can
ping a channel, a group or a person by itself. Rules: docs.slack.dev/messaging/formatting-message-text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from rich.cells import cell_len

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
    parse_markdown,
    plain_text,
)

TEXT_CUT = 40_000
"""Slack silently cuts ``text`` behind this many characters (chat.postMessage, reference page)."""

TABLE_WIDTH = 110
"""Columns of a table drawn in monospace; a wider one is written as one paragraph a row."""

_ZERO_WIDTH = "\u200b"
_BACKTICK = "\u02cb"  # looks like a backtick and never opens a code span
_SCHEMES = ("http://", "https://", "mailto:")
_MENTION = re.compile(r"<@([UW][A-Z0-9]+)>")
_SAFE_NEIGHBOURS = frozenset(" \n\t()[]{}.,:;!?\"'-/")
_BULLETS = ("•", "◦", "▪")
_HOST_LIKE = re.compile(r"(?:[a-z][a-z0-9+.-]*://|www\.)\S+|[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}(?:[/:?#]\S*)?", re.I)


def escape(text: str) -> str:
    """Return text that Slack shows exactly as given (``&``, ``<`` and ``>`` are its only special marks)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def render_mrkdwn(markdown: str, mentions: Collection[str] = ()) -> str:
    """Render canonical Markdown for the ``text`` of a Slack message.

    Args:
        markdown: at most ``adapters.slack.app.LIMITS.text_max`` characters.
        mentions: ids of the users whose ``<@ID>`` in the text may ping them.

    Returns:
        mrkdwn shorter than ``TEXT_CUT``. A text whose rendering would be longer (one link definition used a
        thousand times) is shown as its escaped source instead.
    """
    rendered = render_document(parse_markdown(markdown), mentions)
    return rendered if len(rendered) < TEXT_CUT else escape(_without_fences(markdown))


def render_document(document: Document, mentions: Collection[str] = ()) -> str:
    """Render a whole tree; see ``render_mrkdwn``."""
    return "\n\n".join(_Emitter(frozenset(mentions)).blocks(document.blocks)).strip("\n")


@dataclass(frozen=True, slots=True)
class _Emitter:
    mentions: frozenset[str]

    # -- blocks
    def blocks(self, blocks: Iterable[Block], depth: int = 0) -> Iterator[str]:
        for block in blocks:
            text = self._block(block, depth)
            if text:
                yield text

    def _block(self, block: Block, depth: int) -> str:
        match block:
            case Paragraph(children):
                text = self.line(children)
            case Heading(_, children):
                text = self.line((Strong(children),))
            case CodeBlock(code):
                text = _fence(code)
            case Quote(blocks):
                text = self._quote(blocks)
            case ListBlock():
                text = self._list(block, depth)
            case Table():
                text = self._table(block)
            case Rule():
                text = "─" * 16
        return text

    def _quote(self, blocks: tuple[Block, ...]) -> str:
        """Slack knows neither nested quotes nor fences in quotes: one level, fences stand outside."""
        parts = []
        for block in blocks:
            text = self._block(block, 0)
            fenced = isinstance(block, CodeBlock | Table | ListBlock) and "```" in text
            inner = text if fenced or isinstance(block, Quote) else "\n".join(f"> {x}" for x in text.split("\n"))
            if inner:
                parts.append(inner)
        return "\n".join(parts)

    def _list(self, block: ListBlock, depth: int) -> str:
        indent = "    " * depth
        lines: list[str] = []
        for n, item in enumerate(block.items):
            mark = _BULLETS[depth % len(_BULLETS)] if block.start is None else f"{block.start + n}."
            first, *others = item or (Paragraph(()),)
            head = self._block(first, depth + 1)
            if isinstance(first, ListBlock | CodeBlock | Table | Quote):
                lines += [f"{indent}{mark}", head]
            else:
                lines.append(f"{indent}{mark} " + head.replace("\n", f"\n{indent}    "))
            for other in others:
                text = self._block(other, depth + 1)
                plain = isinstance(other, Paragraph | Heading | Rule)
                lines.append(f"{indent}    " + text.replace("\n", f"\n{indent}    ") if plain else text)
        return "\n".join(lines)

    def _table(self, table: Table) -> str:
        rows = [[_cell(cell) for cell in row] for row in (table.header, *table.rows)]
        widths = [max(cell_len(row[n]) for row in rows) for n in range(len(table.header))]
        if sum(widths) + 3 * (len(widths) - 1) > TABLE_WIDTH:
            return self._records(table)
        lines = [_aligned(row, widths, table.align) for row in rows]
        lines.insert(1, "-+-".join("-" * width for width in widths))
        return _fence("\n".join(lines))

    def _records(self, table: Table) -> str:
        """A wide table: the first cell of a row in bold, the others named by their column."""
        records = []
        for row in table.rows:
            first, *others = zip(table.header, row, strict=True)
            lines = [self.line((Strong(first[1]),)) or "—"]
            lines += [f"    {self.line(head)}: {self.line(cell)}" for head, cell in others if plain_text(cell).strip()]
            records.append("\n".join(lines))
        return "\n".join(records) or self.line((Strong(tuple(c for cell in table.header for c in (*cell, Text(" ")))),))

    # -- inside a line
    def line(self, children: tuple[Inline, ...]) -> str:
        """Render a line of inline nodes, with the blanks that Slack's marks need around them."""
        return _Line().add(self._runs(children, "")).text

    def _runs(self, children: tuple[Inline, ...], inside: str) -> Iterator[tuple[str, bool]]:
        """Pieces of output; true for those that begin and end with a formatting mark."""
        for child in children:
            match child:
                case Text(text):
                    yield self._text(text), False
                case Code(text):
                    yield _code(text), True
                case Break():
                    yield (" " if inside else "\n"), False
                case Emphasis(inner):
                    yield from self._marked("_", inner, inside)
                case Strong(inner):
                    yield from self._marked("*", inner, inside)
                case Strike(inner):
                    yield from self._marked("~", inner, inside)
                case Link(url, inner):
                    yield _link(url, plain_text(inner)), False

    def _marked(self, mark: str, children: tuple[Inline, ...], inside: str) -> Iterator[tuple[str, bool]]:
        if mark in inside or not plain_text(children).strip():
            yield from self._runs(children, inside)
        else:
            text = _Line().add(self._runs(children, inside + mark)).text
            yield f"{mark}{text.strip()}{mark}", True

    def _text(self, text: str) -> str:
        out, done = [], 0
        for found in _MENTION.finditer(text):
            if found[1] in self.mentions:
                out += [_literal(text[done : found.start()]), found[0]]
                done = found.end()
        return "".join([*out, _literal(text[done:])])


class _Line:
    """Joins pieces; Slack takes a mark as a mark only beside blanks and some punctuation."""

    def __init__(self) -> None:
        self.text = ""
        self._after_mark = False

    def add(self, runs: Iterable[tuple[str, bool]]) -> _Line:
        for text, marked in runs:
            if not text:
                continue
            joint = self.text and (
                (marked and self.text[-1] not in _SAFE_NEIGHBOURS)
                or (self._after_mark and text[0] not in _SAFE_NEIGHBOURS)
            )
            self.text += (_ZERO_WIDTH if joint else "") + text
            self._after_mark = marked
        return self


def _literal(text: str) -> str:
    """Escape running text; its backticks must not pair with those of a real code span."""
    return escape(text.replace("`", _BACKTICK))


def _code(text: str) -> str:
    text = " ".join(text.replace("`", _BACKTICK).split("\n"))
    return f"`{escape(text)}`" if text.strip() else escape(text)


def _fence(text: str) -> str:
    return f"```\n{escape(_without_fences(text))}\n```" if text.strip() else ""


def _without_fences(text: str) -> str:
    return re.sub(r"`{3,}", lambda found: _ZERO_WIDTH.join(found[0]), text)


def _link(url: str, label: str) -> str:
    label = " ".join(label.split())
    if not url.lower().startswith(_SCHEMES):
        return _literal(f"{label} ({url})" if url and url != label else label)
    target = escape(url.replace("|", "%7C").replace(" ", "%20"))
    shown = url.removeprefix("mailto:")
    if not label or label in (url, shown):
        return f"<{target}>" if not url.lower().startswith("mailto:") else f"<{target}|{_literal(shown)}>"
    if _HOST_LIKE.fullmatch(label) and _host(label) != _host(url):  # the label would hide another host
        return f"{_literal(label)} (<{target}>)"
    return f"<{target}|{_literal(label)}>"


def _host(url: str) -> str:
    host = urlsplit(url if "://" in url else f"http://{url}").netloc.rpartition("@")[2]
    return host.lower().removeprefix("www.")


def _cell(children: tuple[Inline, ...]) -> str:
    return " ".join(plain_text(children).replace("`", _BACKTICK).split())


def _aligned(row: list[str], widths: list[int], align: tuple[str, ...]) -> str:
    cells = []
    for text, width, side in zip(row, widths, align, strict=True):
        space = width - cell_len(text)
        before = space if side == "right" else space // 2 if side == "center" else 0
        cells.append(" " * before + text + " " * (space - before))
    return " | ".join(cells).rstrip()
