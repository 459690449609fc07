"""Tables for Slack: its own table block where one fits, else monospace, else a short preview and a CSV file.

Limits and shapes: docs.slack.dev/reference/block-kit/blocks/table-block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.chat import Attachment
from adapters.markdown import (
    Block,
    Break,
    Document,
    Inline,
    ListBlock,
    Paragraph,
    Quote,
    Table,
    Text,
    cell_text,
    plain_text,
    table_csv,
    table_width,
)
from adapters.slack.mrkdwn import TABLE_WIDTH

Wire = dict[str, Any]  # what the API takes
Spans = Callable[[tuple[Inline, ...]], list[Wire]]
"""Renders the inline nodes of a cell to rich text."""

PREVIEW_ROWS, PREVIEW_COLUMNS, PREVIEW_CELL = 10, 6, 80
"""What is shown of a table that is posted as a file."""

EMPTY_CELL = " "
"""Slack refuses cells without characters."""

_WRAP_FROM = 40  # a column with longer cells is wrapped instead of cut at the edge


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLimits:
    """What Slack takes: rows with the header, columns, and characters over all tables of a message."""

    rows: int = 100
    columns: int = 20
    chars: int = 10_000


@dataclass(frozen=True, slots=True)
class Shelved:
    """A document in which too large tables are previews, and the files that hold them whole."""

    document: Document
    files: tuple[Attachment, ...]


def table_chars(table: Table) -> int:
    """Return the characters of all cells, as Slack counts them: an empty one has to hold a blank."""
    return sum(max(1, len(_flat(cell))) for row in (table.header, *table.rows) for cell in row)


def is_native(table: Table, limits: TableLimits, chars_left: int) -> bool:
    """True when the table fits into a table block, with so many characters left for it."""
    if len(table.rows) + 1 > limits.rows or len(table.header) > limits.columns:
        return False
    return table_chars(table) <= chars_left


def table_block(table: Table, spans: Spans) -> Wire:
    """Render a table that ``is_native`` to a table block; inline styles and links are kept."""
    rows = (table.header, *table.rows)
    settings = [
        {"align": side, "is_wrapped": any(len(_flat(row[n])) > _WRAP_FROM for row in rows)}
        for n, side in enumerate(table.align)
    ]
    return {
        "type": "table",
        "rows": [[_cell(cell, spans) for cell in row] for row in rows],
        "column_settings": settings,
    }


def shelve_tables(document: Document, limits: TableLimits) -> Shelved:
    """Replace every table that Slack cannot show well by a preview, and write it to a CSV file.

    Those are tables over ``limits``. A table that only does not fit beside the others of its message stays.
    """
    if not _has_table(document.blocks):
        return Shelved(document, ())
    shelf = _Shelf(limits, [])
    return Shelved(Document(tuple(shelf.blocks(document.blocks))), tuple(shelf.files))


@dataclass(frozen=True, slots=True)
class _Shelf:
    limits: TableLimits
    files: list[Attachment]

    def blocks(self, blocks: Sequence[Block]) -> Iterator[Block]:
        for block in blocks:
            match block:
                case Table() if not is_native(block, self.limits, self.limits.chars):
                    yield from self._shelve(block)
                case Quote(inner):
                    yield Quote(tuple(self.blocks(inner)))
                case ListBlock(items, start):
                    yield ListBlock(tuple(tuple(self.blocks(item)) for item in items), start)
                case _:
                    yield block

    def _shelve(self, table: Table) -> Iterator[Block]:
        name = f"table-{len(self.files) + 1}.csv"
        self.files.append(Attachment(name=name, content=table_csv(table), title=name))
        rows, columns = table.rows[:PREVIEW_ROWS], PREVIEW_COLUMNS
        yield Table(
            tuple(map(_clip, table.header[:columns])),
            tuple(tuple(map(_clip, row[:columns])) for row in rows),
            table.align[:columns],
        )
        size = f"{len(table.rows):,} rows × {len(table.header)} columns"
        yield Paragraph((Text(f"The table has {size}; the first of them are shown, all are in the file {name}."),))


def _clip(cell: tuple[Inline, ...]) -> tuple[Inline, ...]:
    text = cell_text(cell)
    return cell if len(text) <= PREVIEW_CELL else (Text(text[: PREVIEW_CELL - 1] + "…"),)


def is_narrow(table: Table) -> bool:
    """True when the table can be read in monospace."""
    return table_width(table) <= TABLE_WIDTH


def _has_table(blocks: Sequence[Block]) -> bool:
    for block in blocks:
        match block:
            case Table():
                return True
            case Quote(inner):
                if _has_table(inner):
                    return True
            case ListBlock(items):
                if any(map(_has_table, items)):
                    return True
            case _:
                continue
    return False


def _cell(cell: tuple[Inline, ...], spans: Spans) -> Wire:
    flat = tuple(Text(" ") if isinstance(node, Break) else node for node in cell)
    if all(isinstance(node, Text) for node in flat):
        rendered = spans(flat)
        if all(span["type"] == "text" for span in rendered):
            text = "".join(span["text"] for span in rendered)
            return {"type": "raw_text", "text": text if text.strip() else EMPTY_CELL}
    rendered = spans(flat) or [{"type": "text", "text": EMPTY_CELL}]
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": rendered}]}


def _flat(cell: tuple[Inline, ...]) -> str:
    return plain_text(cell)
