"""Arithmetic of free room in tables."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bot.tools.database_health.bloat import NO_BLOAT_KNOWN, ColumnWidth, add_bloat, estimate_bloat, measure_bloat

INT = ColumnWidth(width=4, null_share=0, align="i", fixed=True)
BIGINT = ColumnWidth(width=8, null_share=0, align="d", fixed=True)
BOOL = ColumnWidth(width=1, null_share=0, align="c", fixed=True)


def test_a_full_table_of_integers_has_no_bloat() -> None:
    # 226 rows of one integer fit on a page of 8 KiB: 24 + 4 -> 32 bytes and 4 for the pointer.
    bloat = estimate_bloat(table_bytes=100 * 8192, rows=22_600, columns=[INT], fill_factor=100, block_size=8192)
    assert (bloat.wasted_bytes, bloat.method) == (0, "statistics")


def test_half_the_rows_leave_half_the_room() -> None:
    bloat = estimate_bloat(table_bytes=100 * 8192, rows=11_300, columns=[INT], fill_factor=100, block_size=8192)
    assert bloat.wasted_bytes == 50 * 8192
    assert bloat.share == 0.5


def test_padding_between_columns_is_no_bloat() -> None:
    padded = [BOOL, BIGINT, BOOL, BIGINT]  # 24 + 1 + 7 + 8 + 1 + 7 + 8 = 56 bytes, 60 with the pointer: 136 a page
    bloat = estimate_bloat(table_bytes=10 * 8192, rows=1_360, columns=padded, fill_factor=100, block_size=8192)
    assert bloat.wasted_bytes == 0


def test_room_that_the_fill_factor_asks_for_is_no_bloat() -> None:
    bloat = measure_bloat(table_bytes=1000, free_bytes=400, dead_bytes=100, live_rows=1, dead_rows=1, fill_factor=70)
    assert bloat.wasted_bytes == 200
    assert bloat.share == 0.2


def test_an_empty_table_has_no_share_to_divide_by() -> None:
    bloat = measure_bloat(table_bytes=0, free_bytes=0, dead_bytes=0, live_rows=0, dead_rows=0, fill_factor=100)
    assert (bloat.wasted_bytes, bloat.share) == (0, 0.0)


def test_the_weakest_method_names_a_sum_and_nothing_known_stays_unknown() -> None:
    measured = measure_bloat(table_bytes=100, free_bytes=50, dead_bytes=0, live_rows=1, dead_rows=0, fill_factor=100)
    estimated = estimate_bloat(table_bytes=8192 * 2, rows=1, columns=[INT], fill_factor=100, block_size=8192)
    both = add_bloat([measured, estimated, NO_BLOAT_KNOWN], 100 + 8192 * 2)
    assert both.method == "statistics"
    assert both.wasted_bytes == 50 + 8192
    assert add_bloat([NO_BLOAT_KNOWN], 100) == NO_BLOAT_KNOWN
    assert add_bloat([], 0).method == "none"


columns = st.builds(
    ColumnWidth,
    width=st.floats(0, 4000),
    null_share=st.floats(0, 1),
    align=st.sampled_from(["c", "s", "i", "d"]),
    fixed=st.booleans(),
)


@given(st.integers(0, 10**12), st.floats(0, 1e9), st.lists(columns, max_size=8), st.integers(10, 100))
def test_an_estimate_lies_between_nothing_and_all(
    table_bytes: int, rows: float, widths: list[ColumnWidth], fill_factor: int
) -> None:
    bloat = estimate_bloat(table_bytes=table_bytes, rows=rows, columns=widths, fill_factor=fill_factor, block_size=8192)
    assert 0 <= bloat.wasted_bytes <= table_bytes
    assert 0 <= bloat.share <= 1
