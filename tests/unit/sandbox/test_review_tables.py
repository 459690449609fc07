"""Tables that hostile code leaves in place of the ones that Hermod's own lines would write."""

from __future__ import annotations

import json

import pytest

from bot.tools.python_sandbox.cell import CELL_CHARS, HEAD_COLUMNS, HEAD_ROWS
from bot.tools.python_sandbox.made import Made, read_table
from bot.tools.python_sandbox.show import build_result, render_made
from bot.tools.python_sandbox.types import RunStatus, SandboxOutcome

OUTPUT_ID = "py_0123456789abcdef"
MOST_SHOWN_CHARS = 20_000


def build_table(*, columns: int = 1, rows: int = 1, text: str = "x", row_count: int = 1) -> bytes:
    row = [text] * columns
    return json.dumps({"columns": row, "rows": [row] * rows, "row_count": row_count, "column_count": 1}).encode()


@pytest.mark.parametrize(
    "content",
    [
        build_table(columns=12_000, rows=3),
        build_table(columns=HEAD_COLUMNS + 1),
        build_table(rows=HEAD_ROWS + 1),
        build_table(text="x" * (CELL_CHARS + 1)),
        build_table(text="x" * 200_000),
        build_table(row_count=10**1000),
    ],
)
def test_a_forged_table_that_is_larger_than_ours_is_none(content: bytes) -> None:
    assert read_table(content) is None


def test_the_largest_table_fits_into_a_few_messages() -> None:
    table = read_table(build_table(columns=HEAD_COLUMNS, rows=HEAD_ROWS, text="|" * CELL_CHARS))
    assert table is not None
    made = Made(output_id=OUTPUT_ID, outcome=SandboxOutcome(status=RunStatus.OK), table=table)
    assert len(render_made(made)[0]) < MOST_SHOWN_CHARS
    assert len(json.dumps(build_result(made, given={}, limit=8_000))) < MOST_SHOWN_CHARS
