"""From the Markdown tree to Slack's mrkdwn.

Escaping is the default: whatever comes from a model or a tool is text, and only this module writes ``<``.
It does so for links with an allowed scheme and for the user mentions that a reply lists; so no text can
ping a channel, a group or a person by itself. Rules: docs.slack.dev/messaging/formatting-message-text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

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
    parse_markdown,
    plain_text,
    table_width,
)
from adapters.markdown.pieces import normalise
from adapters.slack.links import find_bare_urls, show_link

TEXT_CUT = 40_000
"""Slack silently cuts ``text`` behind this many characters (chat.postMessage, reference page)."""

TABLE_WIDTH = 110
"""Columns of a table drawn in monospace; a wider one is written as one paragraph a row."""

_ZERO_WIDTH = "\u200b"
_BACKTICK = "\u02cb"  # looks like a backtick and never opens a code span
MENTION = re.compile(r"<@([UW][A-Z0-9]+)>")
"""A user mention as a model writes it; it counts only for the people whom a reply lists."""

_SAFE_NEIGHBOURS = frozenset(" \n\t()[]{}.,:;!?\"'-/")
_BULLETS = ("•", "◦", "▪")
_QUOTE_LIKE = re.compile(r"^&gt;", re.M)
_ACCIDENTAL = re.compile(r"(?<![\w*_~])([*_~])(?=[^\s*_~])(?=[^\n]{0,300}[^\s*_~]\1(?![\w*_~]))")


def escape(text: str) -> str:
    """Return text that Slack shows exactly as given (``&``, ``<`` and ``>`` are its only special marks)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def render_mrkdwn(markdown: str, mentions: Collection[str] = (), trusted: Collection[str] | None = None) -> str:
    """Render canonical Markdown for the ``text`` of a Slack message.

    Args:
        markdown: canonical Markdown.
        mentions: ids of the users whose ``<@ID>`` in the text may ping them.
        trusted: hosts that may be linked to; None for any.

    Returns:
        mrkdwn shorter than ``TEXT_CUT``. Where the rendering would be longer (one link definition used a thousand
        times) it is the escaped source instead, cut at the end if need be.
    """
    rendered = render_document(parse_markdown(markdown), mentions, trusted)
    return rendered if len(rendered) < TEXT_CUT else cut_escaped(normalise(markdown), TEXT_CUT - 1)


def cut_escaped(text: str, most: int) -> str:
    """Return the text escaped, without fences, cut with ``…`` to at most ``most`` characters; no entity is torn."""
    text = _without_fences(text)
    escaped = escape(text)
    while len(escaped) > most:
        text = text[: max(0, len(text) - max(2, (len(escaped) - most) // 5))]
        escaped = escape(text) + "…"
    return escaped


def render_document(document: Document, mentions: Collection[str] = (), trusted: Collection[str] | None = None) -> str:
    """Render a whole tree, of any length; see ``render_mrkdwn``."""
    emitter = _Emitter(frozenset(mentions), None if trusted is None else frozenset(trusted))
    return "\n\n".join(emitter.blocks(document.blocks)).strip("\n")


@dataclass(frozen=True, slots=True)
class _Emitter:
    mentions: frozenset[str]
    trusted: frozenset[str] | None

    # -- blocks
    def blocks(self, blocks: Iterable[Block], depth: int = 0) -> Iterator[str]:
        for block in blocks:
            text = self._block(block, depth)
            if text:
                yield text

    def _block(self, block: Block, depth: int) -> str:
        match block:
            case Paragraph(children):
                text = _QUOTE_LIKE.sub(f"{_ZERO_WIDTH}&gt;", self.line(children))
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
            if not text:
                continue
            fenced = isinstance(block, CodeBlock | Table | ListBlock) and "```" in text
            inner = text if fenced or isinstance(block, Quote) else "\n".join(f"> {x}" for x in text.split("\n"))
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
        return _fence(draw_table(table)) if table_width(table) <= TABLE_WIDTH else self._records(table)

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
                    yield self._link(url, plain_text(inner)), False

    def _marked(self, mark: str, children: tuple[Inline, ...], inside: str) -> Iterator[tuple[str, bool]]:
        if mark in inside or not plain_text(children).strip():
            yield from self._runs(children, inside)
        else:
            text = _Line().add(self._runs(children, inside + mark)).text
            yield f"{mark}{text.strip()}{mark}", True

    def _text(self, text: str) -> str:
        out, done = [], 0
        for found in MENTION.finditer(text):
            if found[1] in self.mentions:
                out += [self._words(text[done : found.start()]), found[0]]
                done = found.end()
        return "".join([*out, self._words(text[done:])])

    def _words(self, text: str) -> str:
        """Running text; Slack itself makes links of the addresses in it, unless they are not to be trusted."""
        out, done = [], 0
        for begin, end in find_bare_urls(text) if "://" in text else ():
            url = escape(text[begin:end])
            linked = show_link(text[begin:end], "", self.trusted).url
            out += [_literal(text[done:begin]), url if linked else url.replace("://", f":{_ZERO_WIDTH}//", 1)]
            done = end
        return "".join([*out, _literal(text[done:])])

    def _link(self, url: str, label: str) -> str:
        shown = show_link(url, label, self.trusted)
        if not shown.url:
            return _literal(shown.before)
        target = escape(shown.url.replace("|", "%7C").replace(" ", "%20"))
        plain = shown.label == shown.url or shown.before
        link = f"<{target}>" if plain and not target.startswith("mailto:") else f"<{target}|{_literal(shown.label)}>"
        return f"{_literal(shown.before)}{link}{_literal(shown.after)}"


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
    """Escape running text; none of its characters may pair up as a mark of Slack's."""
    return _ACCIDENTAL.sub(rf"\1{_ZERO_WIDTH}", escape(text.replace("`", _BACKTICK)))


def _code(text: str) -> str:
    text = " ".join(text.replace("`", _BACKTICK).split("\n"))
    return f"`{escape(text)}`" if text.strip() else escape(text)


def _fence(text: str) -> str:
    return f"```\n{escape(_without_fences(text))}\n```" if text.strip() else ""


def _without_fences(text: str) -> str:
    return re.sub(r"`{3,}", lambda found: _ZERO_WIDTH.join(found[0]), text)
