"""The one table that all benchmarks print into."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line.

    Args:
        cell: what was done.
        who: by whom.
        value: the figure, with its unit.
        ratio: the figure's relation to a control of the same run, empty where there is none.
        bound: what must hold, empty where nothing must.
        holds: whether it does; always true without a bound.
    """

    cell: str
    who: str
    value: str
    ratio: str = ""
    bound: str = ""
    holds: bool = True

    @property
    def verdict(self) -> str:
        """``ok``, ``MISSED``, or nothing."""
        return ("ok" if self.holds else "MISSED") if self.bound else ""


HEADS = ("what", "who", "value", "ratio [min-max]", "bound", "")


def render_table(rows: Sequence[Row]) -> str:
    """Lay the rows out in columns, as Markdown; a cell's name is given once."""
    lines: list[tuple[str, ...]] = [HEADS]
    last = ""
    for row in rows:
        lines.append(("" if row.cell == last else row.cell, row.who, row.value, row.ratio, row.bound, row.verdict))
        last = row.cell
    widths = [max(len(line[n]) for line in lines) for n in range(len(HEADS))]
    laid = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    laid.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(laid)


def render_ratio(ratios: Sequence[float]) -> str:
    """Median, minimum and maximum."""
    return f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]"
