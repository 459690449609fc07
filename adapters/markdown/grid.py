"""Tables beyond a platform's own: drawn in monospace by the width that is seen, or written as CSV."""

from __future__ import annotations

import csv
import io
import re

from rich.cells import cell_len

from adapters.markdown.tree import Inline, Table, plain_text

_NUMBER = re.compile(r"[+-]?[\d.,\s%]*[\d%]")


def cell_text(children: tuple[Inline, ...]) -> str:
    """Return a cell's characters on one line."""
    return " ".join(plain_text(children).split())


def draw_table(table: Table) -> str:
    """Draw a table in monospace: one line a row, columns aligned by display width (wide characters take two)."""
    rows = [[cell_text(cell) for cell in row] for row in (table.header, *table.rows)]
    widths = _widths(rows)
    lines = [_aligned(row, widths, table.align) for row in rows]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return "\n".join(lines)


def table_width(table: Table) -> int:
    """Return how many columns of a terminal ``draw_table`` takes."""
    widths = _widths([[cell_text(cell) for cell in row] for row in (table.header, *table.rows)])
    return sum(widths) + 3 * (len(widths) - 1)


def table_csv(table: Table) -> str:
    """Return a table as CSV (RFC 4180). A cell that a spreadsheet would run as a formula gets a ``'`` in front."""
    out = io.StringIO()
    writer = csv.writer(out)
    for row in (table.header, *table.rows):
        writer.writerow([_inert(cell_text(cell)) for cell in row])
    return out.getvalue()


def _inert(text: str) -> str:
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") and not _NUMBER.fullmatch(text) else text


def _widths(rows: list[list[str]]) -> list[int]:
    return [max(cell_len(row[n]) for row in rows) for n in range(len(rows[0]))]


def _aligned(row: list[str], widths: list[int], align: tuple[str, ...]) -> str:
    cells = []
    for text, width, side in zip(row, widths, align, strict=True):
        space = width - cell_len(text)
        before = space if side == "right" else space // 2 if side == "center" else 0
        cells.append(" " * before + text + " " * (space - before))
    return " | ".join(cells).rstrip()
