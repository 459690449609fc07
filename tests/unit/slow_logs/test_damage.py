"""Nothing in a log is fatal: damage is counted and shown by its place, and the rest is read."""

from __future__ import annotations

import gzip
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.errors import ToolFailed
from bot.tools.slow_logs.formats import AnyFormat
from bot.tools.slow_logs.shapes import POSTGRES, ShapeTable
from bot.tools.slow_logs.sources import MOST_ENTRY
from tests.unit.slow_logs.logs import PREFIX, csv_row, json_row, my, only, read, timed

SQL = "select * from t\n where a = 'x'"
LOGS: dict[AnyFormat, str] = {
    "stderr": timed(SQL, 5) * 4,
    "csvlog": csv_row(f"duration: 5.000 ms  statement: {SQL}") * 4,
    "jsonlog": json_row(f"duration: 5.000 ms  statement: {SQL}") * 4,
    "mysql": my(SQL) * 4,
}
KINDS = pytest.mark.parametrize("kind", list(LOGS))


@KINDS
def test_a_file_cut_at_any_byte_loses_no_other_entry(kind: AnyFormat) -> None:
    log = LOGS[kind].encode()
    size = len(log) // 4
    for cut in range(0, len(log) - size, 7):
        prefix = PREFIX if kind == "stderr" else None
        tail = read(log[cut:], format=kind, prefix=prefix)
        whole = 4 - math.ceil(cut / size)
        # The cut entry may be read as a shorter statement, or one of MySQL without its first header line.
        assert whole <= sum(row.calls for row in tail.rows) <= whole + 1
        head = read(log[: len(log) - cut], format=kind, prefix=prefix)
        assert whole <= sum(row.calls for row in head.rows) <= whole + 1


@KINDS
def test_garbage_between_entries_is_counted_and_shown_by_its_place(kind: AnyFormat) -> None:
    log = LOGS[kind].encode()
    first, rest = log[: len(log) // 4], log[len(log) // 4 :]
    garbage = b"\x00\xff\xfe s3cr3t \x80\n" * 3
    answer = read(first + garbage + rest, format=kind, prefix=PREFIX if kind == "stderr" else None)
    assert only(answer).calls == 4
    assert answer.damaged.lines == 3
    place = answer.damaged.examples[0]
    assert (place.file, place.line) == ("log 0", first.count(b"\n") + 1)
    assert "3 lines could not be read" in answer.coverage.reasons
    assert "s3cr3t" not in repr(answer)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.integers(min_value=0), st.sampled_from(list(LOGS)))
def test_random_bytes_anywhere_are_never_fatal(noise: bytes, where: int, kind: AnyFormat) -> None:
    log = LOGS[kind].encode()
    at = where % len(log)
    answer = read(log[:at] + noise + log[at:], format=kind, prefix=PREFIX if kind == "stderr" else None)
    assert sum(row.calls for row in answer.rows) >= 2


@KINDS
def test_texts_in_another_encoding_are_read(kind: AnyFormat) -> None:
    log = LOGS[kind].replace("'x'", "'größe'").encode("latin-1")
    assert only(read(log, format=kind, prefix=PREFIX if kind == "stderr" else None)).calls == 4


@pytest.mark.parametrize("kind", ["stderr", "mysql"])
def test_a_very_long_entry_is_shortened_and_counted(kind: AnyFormat) -> None:
    values = ", ".join(["'s3cr3t'"] * (MOST_ENTRY // 8))
    sql = f"insert into t values ({values})"
    log = (timed if kind == "stderr" else my)(sql, 5.0) + LOGS[kind]
    answer = read(log)
    assert sum(row.calls for row in answer.rows) == 5
    assert any("were shortened" in warning for warning in answer.warnings)
    assert "s3cr3t" not in repr(answer)


def test_a_csv_record_of_unbounded_length_is_passed_over() -> None:
    answer = read(LOGS["csvlog"] + '2026-05-01 10:00:00.000 UTC,"' + "x" * (2 * MOST_ENTRY) + "\n" + LOGS["csvlog"])
    assert sum(row.calls for row in answer.rows) == 8
    assert answer.damaged.lines >= 1


def test_a_gzip_file_that_was_cut_off_is_read_up_to_there() -> None:
    draw = random.Random(1)
    log = "".join(timed(f"select {draw.random()}", 5) for _ in range(5_000)).encode()
    packed = gzip.compress(log)
    answer = read(packed[: len(packed) // 2], prefix=PREFIX)
    assert 1_000 < only(answer).calls < 4_000
    assert any("cut off" in place.reason for place in answer.damaged.examples)
    broken = read(packed + b"no gzip", prefix=PREFIX)
    assert only(broken).calls == 5_000
    assert broken.damaged.places == 1


def test_a_file_of_another_kind_is_refused_with_what_was_tried() -> None:
    with pytest.raises(ToolFailed) as caught:
        read("dear diary,\ntoday s3cr3t\n")
    assert caught.value.code == "log_format_unknown"
    for word in ("csvlog", "jsonlog", "MySQL", "common prefixes"):
        assert word in caught.value.message
    assert "log_line_prefix" in caught.value.fix
    assert "s3cr3t" not in caught.value.message + caught.value.fix


def test_a_file_of_another_kind_beside_a_log_is_passed_over_and_named() -> None:
    answer = read("dear diary\n", LOGS["mysql"], "")
    assert only(answer).calls == 4
    assert any("log 0" in warning for warning in answer.warnings)
    assert any("log 2 is empty" in warning for warning in answer.warnings)


def test_more_shapes_than_are_kept_are_summed_up_together() -> None:
    table = ShapeTable(dialect=POSTGRES, most_shapes=10)
    for number in range(100):
        for _ in range(2 if number else 40):
            table.add(0.0, 1.0, b"select a from t%d" % number, (None, None, None))
    shapes = table.finish()
    assert len(shapes) <= 10
    assert sum(shape.calls for shape in shapes) + table.others.calls == 198 + 40
    assert sum(shape.total_s for shape in shapes) + table.others.total_s == pytest.approx(238.0)
    assert max(shapes, key=lambda shape: shape.calls).sql == "select a from t0"
