"""From the Markdown tree to Discord's Markdown.

Escaping is the default: whatever comes from a model or a tool is text, and only this module writes marks. It writes
mentions for the people whom a reply lists, and links with an allowed scheme. Discord knows headings of three levels,
nested lists, quotes of one level, fenced code, and no tables, rules or pictures.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from adapters.discord.escape import USER, ZERO_WIDTH, break_fences, escape, escape_lines
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
from adapters.markdown.links import Shown, find_bare_urls, show_link

URL_MAX = 1_000
"""A longer address is shown as text, so that it can be cut."""

HEADINGS = 3
RULE = "─" * 16

_LANGUAGE = re.compile(r"[A-Za-z0-9_+\-.#]+")
_QUOTE, _QUOTED = "> ", "\\> "  # a quote in a quote is shown with the sign itself
_DEEPEST = 3
_ENCODED = str.maketrans({" ": "%20", "<": "%3C", ">": "%3E", "\\": "%5C", "`": "%60", "|": "%7C", "~": "%7E"})
_PINGS = re.compile("@(?=everyone|here)", re.I)
_BRACKETS = str.maketrans("[]", "()")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Discord's Markdown, and whom it mentions."""

    text: str
    mentions: frozenset[str] = frozenset()


def write_document(document: Document, mentions: Collection[str] = ()) -> Written:
    """Render a tree, of any length, to Discord's Markdown.

    Args:
        document: the tree.
        mentions: ids of the users whose ``<@ID>`` in running text becomes a mention.

    Returns:
        The text; empty where there is nothing to see.
    """
    writer = _Writer(frozenset(mentions))
    text = _join(writer.blocks(document.blocks)).strip()
    return Written(text=text, mentions=frozenset(writer.mentioned))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A rendered block. Fenced code is never indented; ``close`` ones stand right under the one before."""

    text: str
    fenced: bool = False
    opens: bool = False  # what follows stands right under it
    close: bool = False

    def prefixed(self, prefix: str, *, fences: bool = False) -> _Chunk:
        """Put ``prefix`` before every line; before those of a fence only if ``fences``."""
        if self.fenced and not fences:
            return self
        return _Chunk(prefix + self.text.replace("\n", f"\n{prefix}"), self.fenced, self.opens, self.close)


def _join(chunks: Iterable[_Chunk]) -> str:
    text, before = "", None
    for chunk in chunks:
        if before is not None:
            text += "\n" if before.opens or chunk.close else "\n\n"
        text += chunk.text
        before = chunk
    return text


@dataclass(frozen=True, slots=True)
class _Writer:
    mentions: frozenset[str]
    mentioned: set[str] = field(default_factory=set)

    # -- blocks
    def blocks(self, blocks: Iterable[Block], quotes: int = 0, lists: int = 0) -> Iterator[_Chunk]:
        for block in blocks:
            yield from (chunk for chunk in self._block(block, quotes, lists) if chunk.text.strip())

    def _block(self, block: Block, quotes: int, lists: int) -> Iterator[_Chunk]:
        match block:
            case Paragraph(children):
                yield _Chunk(escape_lines(self.line(children)))
            case Heading(level, children):
                yield self._heading(level, children, inside=lists > 0)
            case CodeBlock(code, language):
                yield _fence(code, language)
            case Quote(inner):
                yield from self._quote(inner, quotes, lists)
            case ListBlock():
                yield from self._list(block, quotes, lists)
            case Table():
                yield _fence(draw_table(block), "")
            case Rule():
                yield _Chunk(RULE)

    def _heading(self, level: int, children: tuple[Inline, ...], *, inside: bool) -> _Chunk:
        if level > HEADINGS or inside:
            return _Chunk(escape_lines(self.line((Strong(children),))), opens=True)
        text = " ".join(self.line(children).split("\n")).strip()
        if text.endswith("#"):
            text = f"{text[:-1]}\\#"
        return _Chunk(f"{'#' * level} {text}" if text else "", opens=True)

    def _quote(self, blocks: tuple[Block, ...], quotes: int, lists: int) -> Iterator[_Chunk]:
        inner = [*self.blocks(blocks, quotes + 1, lists)]
        if quotes:
            yield from (chunk.prefixed(_QUOTED) if quotes < _DEEPEST else chunk for chunk in inner)
        elif inner:
            yield _Chunk(_join(inner)).prefixed(_QUOTE)

    def _list(self, block: ListBlock, quotes: int, lists: int) -> Iterator[_Chunk]:
        for n, item in enumerate(block.items):
            mark = "- " if block.start is None else f"{block.start + n}. "
            chunks = [*self.blocks(item, quotes, lists + 1)]
            if not chunks or chunks[0].fenced:
                chunks.insert(0, _Chunk(""))
            elif isinstance(item[0], ListBlock | Quote):
                chunks.insert(0, _Chunk(ZERO_WIDTH))
            for at, chunk in enumerate(chunks):
                text = chunk.prefixed(" " * len(mark)).text
                text = f"{mark}{text[len(mark) :]}".rstrip(" ") if at == 0 else text
                yield _Chunk(text, chunk.fenced, close=True)

    # -- inside a line
    def line(self, children: tuple[Inline, ...]) -> str:
        """Render the inline nodes of a block."""
        resolved = _resolve(children, "")
        while (kept := _unmark(resolved, "")) != resolved:
            resolved = kept  # with a mark gone, one around it may be written in another way
        return self._spans(resolved, "")

    def _spans(self, children: Iterable[Inline], inside: str) -> str:
        out = ""
        for child in children:
            text, mark = self._span(child, inside)
            if out and text and mark and out[-1] == text[0]:
                out += ZERO_WIDTH  # marks that meet would be read as other marks
            if out[-1:] == "_" and text[:1].isalnum() and not out.endswith("\\_"):
                out += ZERO_WIDTH  # an underscore ends italics only before what is no word
            out += text
        return out

    def _span(self, child: Inline, inside: str) -> tuple[str, bool]:
        """Render one node; true when it begins and ends with a mark."""
        match child:
            case Text(text):
                return self._text(text, inside), False
            case Code(text):
                return _code(text), True
            case Break():
                return (" " if inside else "\n"), False
            case Link(url, inner):
                return _link(show_link(url, plain_text(inner), most=URL_MAX), inside), False
            case Emphasis(inner) | Strong(inner) | Strike(inner):
                return self._marked(_mark_of(child, inside), inner, inside)

    def _marked(self, mark: str, children: tuple[Inline, ...], inside: str) -> tuple[str, bool]:
        text = self._spans(children, inside + mark)
        bare = text.strip()
        if not bare:
            return text, False
        begin = text.index(bare)
        return f"{text[:begin]}{mark}{bare}{mark}{text[begin + len(bare) :]}", True

    def _text(self, text: str, inside: str) -> str:
        out, done = [], 0
        for found in USER.finditer(text):
            if found[1] in self.mentions:
                self.mentioned.add(found[1])
                out += [_words(text[done : found.start()], inside), f"<@{found[1]}>"]
                done = found.end()
        return "".join([*out, _words(text[done:], inside)])


def _resolve(children: Iterable[Inline], inside: str) -> list[Inline]:
    """Take marks in marks of the same kind, and links that may not be links, out: what they held meets its neighbours.

    Only then is text escaped, so that nothing is put together to a mark afterwards.
    """
    out: list[Inline] = []
    for child in children:
        match child:
            case Emphasis(inner) | Strong(inner) | Strike(inner):
                kind = type(child)
                parts = _resolve(inner, inside + kind.__name__)
                out += (
                    parts if kind.__name__ in inside or not plain_text(tuple(parts)).strip() else [kind(tuple(parts))]
                )
            case Link(url, inner):
                shown = show_link(url, plain_text(inner), most=URL_MAX)
                out.append(child if shown.url and not _is_mail(shown) else Text(_as_text(shown)))
            case _:
                out.append(child)
    return _merged(out)


def _unmark(children: Iterable[Inline], inside: str) -> list[Inline]:
    """Take marks out that code inside would end, since Discord looks for their end in code too."""
    out: list[Inline] = []
    for child in children:
        match child:
            case Emphasis(inner) | Strong(inner) | Strike(inner):
                mark = _mark_of(child, inside)
                if any(mark[0] in code for code in _codes(inner)):
                    out += _unmark(inner, inside)
                else:
                    out.append(type(child)(tuple(_unmark(inner, inside + mark))))
            case _:
                out.append(child)
    return _merged(out)


def _mark_of(child: Emphasis | Strong | Strike, inside: str) -> str:
    match child:
        case Emphasis(inner):
            return "_" if inside or any(isinstance(node, Strong) for node in inner) else "*"
        case Strong():
            return "**"
        case Strike():
            return "~~"


def _merged(children: Iterable[Inline]) -> list[Inline]:
    out: list[Inline] = []
    for child in children:
        if isinstance(child, Text) and out and isinstance(out[-1], Text):
            out[-1] = Text(out[-1].text + child.text)
        else:
            out.append(child)
    return out


def _is_mail(shown: Shown) -> bool:
    return shown.url.lower().startswith("mailto:")


def _as_text(shown: Shown) -> str:
    """A link that is none: its label and its address. Discord makes no links of mail addresses."""
    if not shown.url:
        return shown.before
    bare = shown.url[len("mailto:") :]
    return bare if shown.label == bare and not shown.before else f"{shown.before or f'{shown.label} ('}{bare})"


def _codes(children: Iterable[Inline]) -> Iterator[str]:
    for child in children:
        match child:
            case Code(text):
                yield text
            case Emphasis(inner) | Strong(inner) | Strike(inner):
                yield from _codes(inner)
            case _:
                continue


def _words(text: str, inside: str) -> str:
    out, done = [], 0
    for begin, end in find_bare_urls(text) if "://" in text else ():
        out += [escape(text[done:begin], all_underscores="_" in inside), _address(text[begin:end], inside)]
        done = end
    return "".join([*out, escape(text[done:], all_underscores="_" in inside)])


def _link(shown: Shown, inside: str) -> str:
    """Discord shows the marks themselves where the label of a link holds an address."""
    address = _address(shown.url, inside)
    if shown.before:
        return f"{escape(shown.before)}{address}{escape(shown.after)}"
    if shown.label == shown.url:
        return address
    if "://" in shown.label:
        return f"{escape(shown.label)} ({address})"
    return f"[{escape(shown.label.translate(_BRACKETS))}]({address})"


def _address(url: str, inside: str) -> str:
    """Write an address between angle brackets: exactly so far, and without a preview."""
    url = _PINGS.sub("%40", "".join(url.translate(_ENCODED).split()))
    for sign in "*_":
        url = url.replace(sign, f"%{ord(sign):X}") if sign in inside else url
    return f"<{url}>"


def _code(text: str) -> str:
    """Write a code span between one or two backticks; three would begin a block."""
    text = " ".join(text.split("\n"))
    if not text.strip():
        return text
    runs = {len(run) for run in re.findall("`+", text)}
    if 1 not in runs and max(runs, default=0) < 3:
        mark = "`"
    else:
        mark = "``"
        text = re.sub("`{2,}", lambda found: ZERO_WIDTH.join(found[0]), text)
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{mark}{pad}{text}{pad}{mark}"


def _fence(code: str, language: str) -> _Chunk:
    """Write fenced code; Discord shows the marks themselves around nothing."""
    if not code.strip():
        return _Chunk("")
    language = language if _LANGUAGE.fullmatch(language) else ""
    return _Chunk(f"```{language}\n{break_fences(code)}\n```", fenced=True, opens=True, close=True)
