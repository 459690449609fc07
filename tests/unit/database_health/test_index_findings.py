"""What is said of an index, by what is known about the server."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bot.tools.database_health.answer import IndexFinding
from bot.tools.database_health.index_health import select_rows
from bot.tools.database_health.postgres_index_findings import judge_indexes
from bot.tools.database_health.postgres_indexes import IndexEntry
from bot.tools.database_health.postgres_server import PostgresServer
from bot.tools.database_health.redundancy import KeyPart

DAY_S = 86_400.0
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SERVER = PostgresServer(
    now=NOW,
    role="reader",
    database="shop",
    standby=False,
    sees_all=True,
    standbys=0,
    counters_since=NOW - timedelta(days=30),
)
INDEX = IndexEntry(
    oid="10",
    table_oid="1",
    table="public.t",
    index="public.lonely",
    definition="CREATE INDEX lonely ON public.t USING btree (a) WHERE (b = 'hunter2'::text)",
    size_bytes=5 * 1024**2,
    method="btree",
    partitioned=False,
    parent="",
    root="10",
    parts=(KeyPart(text="a"),),
    included=frozenset(),
    predicate="",
    parameters=(),
    unique=False,
    primary=False,
    exclusion=False,
    deferrable=False,
    valid=True,
    replident=False,
    clustered=False,
    nulls_not_distinct=False,
    constraint="",
    referenced=False,
    foreign_keys=(),
    scans=0,
    writes=0,
    building=False,
    table_busy=False,
)


def judge(server: PostgresServer, *entries: IndexEntry) -> tuple[IndexFinding, ...]:
    return judge_indexes(entries, server, enough_s=7 * DAY_S).findings


def test_old_counters_carry_a_suggestion() -> None:
    (row,) = judge(SERVER, replace(INDEX, writes=1_234_567))
    assert row.finding == (
        "not scanned in the 30 days since the counters began; the table was written 1,234,567 times meanwhile"
    )
    assert row.suggestion == "DROP INDEX CONCURRENTLY public.lonely;"
    assert "hunter2" not in row.definition


def test_counters_of_unknown_age_carry_none() -> None:
    (row,) = judge(replace(SERVER, counters_since=None), INDEX)
    assert row.finding == "no scan is counted, but it is not known since when"
    assert row.suggestion is None


def test_a_clock_that_went_back_makes_counters_young_and_not_negative() -> None:
    (row,) = judge(replace(SERVER, counters_since=NOW + timedelta(hours=1)), INDEX)
    assert "in the 0 s since the counters began; too short" in row.finding


def test_one_use_is_a_use() -> None:
    assert judge(SERVER, replace(INDEX, scans=1)) == ()


def test_an_index_in_use_that_is_much_smaller_than_its_cover_is_not_dropped_lightly() -> None:
    used = replace(INDEX, scans=900, size_bytes=1024**2)
    wide = replace(
        INDEX, oid="11", root="11", index="public.wide", parts=(KeyPart(text="a"), KeyPart(text="b")), scans=5
    )
    (row,) = judge(SERVER, used, wide)
    assert (row.kind, row.covered_by) == ("prefix_redundant", "public.wide")
    assert "at 5.0 times its size" in row.finding
    assert "900 scans here, 5 there" in row.finding
    assert any("compare plans before dropping it" in note for note in row.notes)


def test_rows_come_worst_kind_first_and_small_ones_are_counted() -> None:
    rows = [
        IndexFinding(table="t", index=kind + str(size), kind=kind, size_bytes=size, finding="", suggestion=None)  # type: ignore[arg-type]
        for kind, size in (("unused", 9 * 1024**2), ("unused", 5), ("duplicate", 2 * 1024**2), ("invalid", 7))
    ]
    chosen, left_out, warnings = select_rows(rows, 1)
    assert [row.kind for row in chosen] == ["invalid", "duplicate", "unused"]
    assert left_out.rows == 0
    assert warnings == ["1 more below 1 MiB left out; min_size_mb=0 lists them"]
