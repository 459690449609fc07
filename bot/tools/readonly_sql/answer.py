"""What ``run_readonly_sql`` is asked, and what it answers: rows of cells that JSON can hold without a loss."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.tools.envelope import Envelope, LeftOut

TOOL = "run_readonly_sql"

MOST_ROWS = 1_000
"""Rows that can be asked for."""

LONGEST_TIMEOUT_S = 30.0
"""Seconds that can be asked for."""

MOST_BYTES = 1024 * 1024
"""Of the cells' texts in one answer, in UTF-8; rows that do not fit are left out."""

MOST_CELL_CHARS = 4_000
"""Of one cell; the rest of a longer text is left out, and counted."""

_SAFE_INTEGER = 2**53
"""Beyond it a JSON reader that keeps numbers as doubles loses digits (RFC 8259, section 6)."""

Cell = str | int | float | bool | None
Parameter = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlRequest:
    """One call of the tool, checked.

    Args:
        sql: the text as it came.
        parameters: values for its placeholders, in order.
        max_rows: 1 to ``MOST_ROWS``.
        timeout_s: for the statement, up to ``LONGEST_TIMEOUT_S``.
    """

    sql: str
    parameters: tuple[Parameter, ...] = ()
    max_rows: int = 100
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlRows(Envelope):
    """The answer.

    Args:
        columns, types: of the result, in order; names need not be unique. Types in the database's words.
        rows: one tuple a row, a cell for each column. Exact numbers and integers beyond 2**53 are texts, so are
            instants (ISO 8601, with a zone where the type has one), NaN and the infinities; binary data are a note of
            their length.
        row_count: how many rows are in the answer.
        more_rows: the statement had more rows than these. They are not counted (``truncated.rows`` stays 0): that
            would mean to run it to its end.
        cells_cut: cells of which only the beginning is shown; ``truncated.bytes`` is what they lost together.
        sql: the statement as it was run, without what stood around it.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    row_count: int
    more_rows: bool = False
    cells_cut: int = 0
    sql: str


class Sheet:
    """Takes the rows of a result one by one, within the bounds of one answer.

    Args:
        max_rows: most rows to take.
        most_bytes, most_cell_chars: see ``MOST_BYTES`` and ``MOST_CELL_CHARS``.
    """

    def __init__(self, *, max_rows: int, most_bytes: int = MOST_BYTES, most_cell_chars: int = MOST_CELL_CHARS) -> None:
        self._max_rows = max_rows
        self._room = most_bytes
        self._most_cell_chars = most_cell_chars
        self._rows: list[tuple[Cell, ...]] = []
        self.more_rows = False
        self.cells_cut = 0
        self.bytes_cut = 0
        self.full_of_bytes = False

    def add(self, values: Sequence[object]) -> bool:
        """Take a row; false when there was no room for it, after which no more should be read."""
        if len(self._rows) >= self._max_rows:
            self.more_rows = True
            return False
        cells = tuple(to_cell(value) for value in values)
        shown = tuple(self._shorten(cell) for cell in cells)
        size = sum(len(cell.encode(errors="replace")) if isinstance(cell, str) else 8 for cell in shown)
        if size > self._room:
            self.more_rows = self.full_of_bytes = True
            return False
        self._room -= size
        for cell, part in zip(cells, shown, strict=True):
            if isinstance(cell, str) and isinstance(part, str) and cell is not part:
                self.count_cut(len(cell.encode(errors="replace")) - len(part.encode(errors="replace")))
        self._rows.append(shown)
        return True

    def count_cut(self, size_bytes: int) -> None:
        """Note that a cell lost so many bytes, here or already on the server."""
        self.cells_cut += 1
        self.bytes_cut += size_bytes

    @property
    def rows(self) -> tuple[tuple[Cell, ...], ...]:
        """What was taken."""
        return tuple(self._rows)

    @property
    def truncated(self) -> LeftOut:
        """For the envelope."""
        return LeftOut(bytes=self.bytes_cut)

    def warnings(self) -> tuple[str, ...]:
        """Say what is not in the answer, and how to get at it."""
        said: list[str] = []
        if self.full_of_bytes:
            said.append(f"only the first {len(self._rows)} rows fit into an answer; select fewer or shorter columns")
        elif self.more_rows:
            said.append(
                f"there are more rows than the {len(self._rows)} shown; aggregate, filter, or raise max_rows "
                f"(up to {MOST_ROWS})"
            )
        if self.cells_cut:
            said.append(f"{self.cells_cut} long values are cut to {self._most_cell_chars} characters or less")
        return tuple(said)

    def _shorten(self, cell: Cell) -> Cell:
        if isinstance(cell, str) and len(cell) > self._most_cell_chars:
            return cell[: self._most_cell_chars]
        return cell


def to_cell(value: object) -> Cell:
    """Turn a driver's value into one that JSON holds without a loss; see ``SqlRows.rows``."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -_SAFE_INTEGER <= value <= _SAFE_INTEGER else str(value)
        case float():
            return value if math.isfinite(value) else _name_odd_float(value)
        case bytes() | bytearray() | memoryview():
            return note_binary(len(value))
        case _:
            return _write(value)


def _write(value: object) -> str:
    match value:
        case datetime.datetime():
            return value.isoformat().replace("+00:00", "Z")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case Mapping() | list() | tuple():
            return json.dumps(value, ensure_ascii=False, default=str)
        case set() | frozenset():
            return ",".join(sorted(map(str, value)))
        case _:  # exact numbers, intervals, UUIDs, addresses
            return str(value)


def note_binary(size_bytes: int) -> str:
    """What stands in place of binary data."""
    return f"<{size_bytes} bytes>"


def _name_odd_float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
