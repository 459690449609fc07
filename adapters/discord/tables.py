"""Tables for Discord, which has none: monospace where it can be read, else the head of the table and a CSV file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from adapters.chat import Attachment
from adapters.markdown import (
    Block,
    CodeBlock,
    Document,
    Emphasis,
    Inline,
    Link,
    ListBlock,
    Paragraph,
    Quote,
    Strike,
    Strong,
    Table,
    Text,
    cell_text,
    draw_table,
    plain_text,
    table_csv,
    table_width,
    unit_size,
)

WIDTH_MAX = 90
"""Columns of monospace that a wide window shows in one line."""

SIZE_MAX = 1_600
"""UTF-16 units of a drawn table, so that one message holds it with some words beside it."""

ROWS_MAX = 40
PREVIEW_ROWS, PREVIEW_COLUMNS, PREVIEW_CELL = 8, 5, 24
"""What is shown of a table that is sent as a file."""

_size = unit_size("utf16")


@dataclass(frozen=True, slots=True)
class Shelved:
    """A document without tables, and the files that hold those of which only the head is shown."""

    document: Document
    files: tuple[Attachment, ...]


def shelve_tables(document: Document) -> Shelved:
    """Draw every table as code; one that is too wide or too long becomes its head, and a CSV file with all of it."""
    shelf = _Shelf([])
    return Shelved(Document(tuple(shelf.blocks(document.blocks))), tuple(shelf.files))


@dataclass(frozen=True, slots=True)
class _Shelf:
    files: list[Attachment]

    def blocks(self, blocks: Sequence[Block]) -> Iterator[Block]:
        for block in blocks:
            match block:
                case Table():
                    yield from self._table(_explicit(block))
                case Quote(inner):
                    yield Quote(tuple(self.blocks(inner)))
                case ListBlock(items, start):
                    yield ListBlock(tuple(tuple(self.blocks(item)) for item in items), start)
                case _:
                    yield block

    def _table(self, table: Table) -> Iterator[Block]:
        if len(table.rows) <= ROWS_MAX and table_width(table) <= WIDTH_MAX:
            drawn = draw_table(table)
            if _size(drawn) <= SIZE_MAX:
                yield CodeBlock(drawn)
                return
        name = f"table-{len(self.files) + 1}.csv"
        self.files.append(Attachment(name=name, content=table_csv(table), title=name))
        yield CodeBlock(draw_table(_head(table)))
        size = f"{len(table.rows):,} rows × {len(table.header)} columns"
        yield Paragraph((Text(f"The table has {size}; the first of them are shown, all are in the file {name}."),))


def _head(table: Table) -> Table:
    return Table(
        tuple(map(_clip, table.header[:PREVIEW_COLUMNS])),
        tuple(tuple(map(_clip, row[:PREVIEW_COLUMNS])) for row in table.rows[:PREVIEW_ROWS]),
        table.align[:PREVIEW_COLUMNS],
    )


def _clip(cell: tuple[Inline, ...]) -> tuple[Inline, ...]:
    text = cell_text(cell)
    if cell_len(text) <= PREVIEW_CELL:
        return (Text(text),)
    return (Text(set_cell_size(text, PREVIEW_CELL - 1).rstrip() + "…"),)


def _explicit(table: Table) -> Table:
    """Write out where the links of a table lead: nothing is a link in code or in a file."""
    rows = [tuple(tuple(map(_written_out, cell)) for cell in row) for row in (table.header, *table.rows)]
    return Table(rows[0], tuple(rows[1:]), table.align)


def _written_out(node: Inline) -> Inline:
    match node:
        case Link(url, children):
            label = " ".join(plain_text(children).split())
            bare = url.removeprefix("mailto:")
            return Text(bare if not label or label in (url, bare) else f"{label} ({bare})")
        case Emphasis(children) | Strong(children) | Strike(children):
            return type(node)(tuple(map(_written_out, children)))
        case _:
            return node
