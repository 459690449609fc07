"""The blocks of a text as source, and what has to stay with them: their fences closed, their links defined."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from markdown_it.common.utils import normalizeReference
from markdown_it.token import Token

from adapters.markdown.parse import clean, find_definitions, tokenize_blocks

Kind = Literal["text", "heading", "fence", "table", "list", "item", "quote"]

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*$")
_BRACKETS = re.compile(r"\[((?:[^\[\]\\]|\\.){1,300})\]")
_KINDS: Mapping[str, Kind] = {
    "heading_open": "heading",
    "fence": "fence",
    "code_block": "fence",
    "table_open": "table",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "blockquote_open": "quote",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A block as source text."""

    kind: Kind
    text: str
    gap: str = "\n\n"  # before it, when it follows another piece in the same part
    torn: bool = False  # the end of a block that was cut; what follows begins a new block


def normalise(text: str) -> str:
    """Return the text with one kind of line end, without NUL, and ``clean``."""
    return clean(text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd"))


def join(pieces: list[Piece]) -> str:
    """Return the source of several blocks, one after the other."""
    text = pieces[0].text
    for before, piece in pairwise(pieces):
        text += ("\n\n" if before.torn else piece.gap) + piece.text
    return text


def read_pieces(text: str) -> list[Piece]:
    """The top-level blocks as source text, with what lies between them (link definitions) as text."""
    lines = text.split("\n")
    pieces: list[Piece] = []
    done = 0

    def add(kind: Kind, begin: int, end: int, source: str | None = None) -> None:
        source = "\n".join(lines[begin:end]).strip("\n").rstrip() if source is None else source
        if source.strip():
            blank = begin > 0 and not lines[begin - 1].strip()
            pieces.append(Piece(kind, source, "\n\n" if blank else "\n"))

    for token in tokenize_blocks(text):
        if token.level or token.nesting < 0 or token.map is None:
            continue
        begin, end = token.map
        add("text", done, begin)
        source = _heading(token, lines[begin:end]) or _closed_fence(token, lines[begin:end])
        add(_KINDS.get(token.type, "text"), begin, end, source)
        done = end
    add("text", done, len(lines))
    return pieces


def read_items(text: str) -> list[Piece]:
    """The items of a list."""
    lines = text.split("\n")
    spans = [t.map for t in tokenize_blocks(text) if t.type == "list_item_open" and t.level == 1 and t.map]
    items = []
    for begin, end in spans:
        loose = begin > 0 and not lines[begin - 1].strip()
        source = "\n".join(lines[begin:end]).rstrip()
        items.append(Piece("item", source, "\n\n" if loose else "\n"))
    return items


def _heading(token: Token, lines: list[str]) -> str | None:
    """An underlined heading in the one-line form, so that a cut cannot lose its underline."""
    if token.type != "heading_open" or token.markup.startswith("#"):
        return None
    return "#" * int(token.tag[1:]) + " " + " ".join(line.strip() for line in lines[:-1] if line.strip())


def _closed_fence(token: Token, lines: list[str]) -> str | None:
    """A fence that the text never closes, closed; indented code as a fence."""
    if token.type == "code_block":
        return fence("", _free_marker(token.content), token.content.removesuffix("\n").split("\n"))
    if token.type != "fence":
        return None
    closing = _FENCE.match(lines[-1]) if len(lines) > 1 else None
    if closing and closing[1].startswith(token.markup):
        return None
    return fence(token.info.strip(), token.markup, token.content.removesuffix("\n").split("\n"))


def fence(info: str, marker: str, lines: list[str]) -> str:
    """Return a code block as source."""
    return "\n".join([marker + info, *lines, marker])


def _free_marker(content: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    return "`" * max(3, longest + 1)


@dataclass(frozen=True, slots=True)
class Definitions:
    """Where the references of a text lead (``[docs]: https://…``); every part needs those that it uses."""

    targets: Mapping[str, str]

    @classmethod
    def read(cls, text: str, *, most: int) -> Definitions:
        """Read the definitions of a text, none of them longer than ``most`` characters."""
        found = find_definitions(text) if "]:" in text else {}
        return cls({label: url for label, url in found.items() if len(label) + len(url) <= most})

    def complete(self, part: str) -> str:
        """Return the part with the definitions that it uses and lacks."""
        if not self.targets:
            return part
        used = dict.fromkeys(normalizeReference(label) for label in _BRACKETS.findall(part))
        used = {label: None for label in used if label in self.targets}
        missing = used.keys() - find_definitions(part).keys() if used else ()
        lines = [f"[{label}]: <{self.targets[label]}>" for label in used if label in missing]
        return "\n".join([part, "", *lines]) if lines else part

    def without(self, pieces: list[Piece]) -> list[Piece]:
        """Return the pieces without those that only define what ``complete`` puts where it is used."""
        return [p for p in pieces if p.kind != "text" or not self._only_defines(p.text)]

    def _only_defines(self, text: str) -> bool:
        if not self.targets or not text.lstrip().startswith("[") or tokenize_blocks(text):
            return False
        return find_definitions(text).keys() <= self.targets.keys()
