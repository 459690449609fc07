"""How much of a table's file holds nothing: arithmetic on numbers that others read.

Two methods. ``pgstattuple_approx`` reads the pages that are not all visible and the free space map of the others, see
https://www.postgresql.org/docs/current/pgstattuple.html. The estimate works from the planner's statistics: how wide
rows are on average gives how many fit on a page (https://www.postgresql.org/docs/current/storage-page-layout.html),
and so how many pages the rows would need; it is off by a tenth easily, and more where statistics are old.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.tools.database_health.answer import BloatMethod

_PAGE_HEADER = 24
_ROW_POINTER = 4
_ROW_HEADER = 23
_MAXALIGN = 8
_ALIGNMENTS = {"c": 1, "s": 2, "i": 4, "d": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bloat:
    """What is neither live rows nor free space that the fill factor asks for.

    ``live_rows`` and ``dead_rows`` only where they were counted on the way.
    """

    wasted_bytes: int
    share: float
    method: BloatMethod
    live_rows: int | None = None
    dead_rows: int | None = None


NO_BLOAT_KNOWN = Bloat(wasted_bytes=0, share=0.0, method="none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnWidth:
    """One column as ``pg_stats`` and ``pg_attribute`` describe it.

    Args:
        width: bytes of a value that is not null, on average.
        null_share: how many values are null, 0..1.
        align: ``typalign``; ignored for values of variable length, which are mostly stored unaligned.
        fixed: values have one length.
    """

    width: float
    null_share: float
    align: str
    fixed: bool


def measure_bloat(
    *, table_bytes: int, free_bytes: float, dead_bytes: float, live_rows: int, dead_rows: int, fill_factor: int
) -> Bloat:
    """Judge what ``pgstattuple_approx`` found."""
    wanted = table_bytes * (100 - fill_factor) / 100
    bloat = _bloat(table_bytes, free_bytes + dead_bytes - wanted, "pgstattuple_approx")
    return replace(bloat, live_rows=live_rows, dead_rows=dead_rows)


def estimate_bloat(
    *, table_bytes: int, rows: float, columns: Sequence[ColumnWidth], fill_factor: int, block_size: int
) -> Bloat:
    """Estimate from the planner's statistics.

    Args:
        table_bytes: of the table's own file.
        rows: as the planner believes (``reltuples``).
        columns: all of the table's, in their order.
        fill_factor: in percent.
        block_size: of the server, 8192 for nearly all.
    """
    row_bytes = _align(_row_width(columns), _MAXALIGN) + _ROW_POINTER
    room = (block_size - _PAGE_HEADER) * fill_factor / 100
    per_page = max(1.0, room // row_bytes)
    needed = math.ceil(rows / per_page) * block_size
    return _bloat(table_bytes, table_bytes - needed, "statistics")


def add_bloat(parts: Sequence[Bloat], table_bytes: int) -> Bloat:
    """Add up the partitions that are known; ``table_bytes`` are theirs. The weakest method names the sum's."""
    known = [part for part in parts if part.method != "none"]
    if not known:
        return NO_BLOAT_KNOWN
    method: BloatMethod = "statistics" if any(part.method == "statistics" for part in known) else known[0].method
    return _bloat(table_bytes, sum(part.wasted_bytes for part in known), method)


def _bloat(table_bytes: int, wasted: float, method: BloatMethod) -> Bloat:
    wasted_bytes = min(table_bytes, max(0, int(wasted)))
    return Bloat(wasted_bytes=wasted_bytes, share=wasted_bytes / table_bytes if table_bytes else 0.0, method=method)


def _row_width(columns: Sequence[ColumnWidth]) -> float:
    nullable = any(column.null_share > 0 for column in columns)
    header = _ROW_HEADER + (math.ceil(len(columns) / 8) if nullable else 0)
    offset = float(_align(header, _MAXALIGN))
    for column in columns:
        if column.fixed and column.null_share < 1:
            offset = float(_align(offset, _ALIGNMENTS.get(column.align, 1)))
        offset += column.width * (1 - column.null_share)
    return offset


def _align(size: float, to: int) -> int:
    return math.ceil(size / to) * to
