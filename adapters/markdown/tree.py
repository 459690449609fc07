"""The tree of a canonical Markdown text. All nodes are immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Align = Literal["left", "center", "right"]

# -- inside a line ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """Characters without any meaning; escapes and entities are resolved."""

    text: str


@dataclass(frozen=True, slots=True)
class Code:
    """A code span."""

    text: str


@dataclass(frozen=True, slots=True)
class Break:
    """A line break. ``hard`` was asked for; a soft one is where the source line ended."""

    hard: bool = False


@dataclass(frozen=True, slots=True)
class Emphasis:
    """Usually italic."""

    children: tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class Strong:
    """Usually bold."""

    children: tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class Strike:
    """Struck through."""

    children: tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A link or an image (whose label is its description). ``url`` is as written, any scheme."""

    url: str
    children: tuple[Inline, ...]


Inline = Text | Code | Break | Emphasis | Strong | Strike | Link

# -- blocks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    children: tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; ``level`` 1 to 6."""

    level: int
    children: tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """Code, fenced or indented, without its final newline. ``language`` may be empty."""

    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Quote:
    """A block quote."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class ListBlock:
    """A list. ``start`` is the first number of an ordered list, None for bullets."""

    items: tuple[tuple[Block, ...], ...]
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table; every row has as many cells as ``header``."""

    header: tuple[tuple[Inline, ...], ...]
    rows: tuple[tuple[tuple[Inline, ...], ...], ...]
    align: tuple[Align, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A horizontal rule."""


Block = Paragraph | Heading | CodeBlock | Quote | ListBlock | Table | Rule


@dataclass(frozen=True, slots=True)
class Document:
    """A whole text."""

    blocks: tuple[Block, ...]


def plain_text(children: tuple[Inline, ...]) -> str:
    """Return the characters of a line without any formatting; breaks become spaces, links their labels."""
    out: list[str] = []
    for child in children:
        match child:
            case Text(text) | Code(text):
                out.append(text)
            case Break():
                out.append(" ")
            case Emphasis(inner) | Strong(inner) | Strike(inner) | Link(_, inner):
                out.append(plain_text(inner))
    return "".join(out)
