"""Keep an answer small enough to be read whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MOST_CHARS = 14_000
"""Characters of JSON that the rows of an answer may have together; what a tool gives back is cut at some more."""

Row = TypeVar("Row", bound="DataclassInstance")


def fit_rows(rows: Sequence[Row], *, most_chars: int = MOST_CHARS) -> tuple[tuple[Row, ...], int]:
    """Take rows from the beginning as long as they fit, at least one; return them and how many are left out."""
    used = 0
    for position, row in enumerate(rows):
        used += len(json.dumps(asdict(row), ensure_ascii=False, default=str)) + 2
        if used > most_chars and position:
            return tuple(rows[:position]), len(rows) - position
    return tuple(rows), 0
