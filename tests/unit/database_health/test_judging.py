"""Bounds: what is told, and what is not yet."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.tools.database_health.answer import IndexFinding
from bot.tools.database_health.bloat import NO_BLOAT_KNOWN, Bloat
from bot.tools.database_health.checks import HEALTH_BOUNDS, Bounds, order_checks, unknown, worst
from bot.tools.database_health.fitting import fit_rows
from bot.tools.database_health.mysql_checks import judge_pool, judge_replica
from bot.tools.database_health.mysql_server import MySqlServer
from bot.tools.database_health.mysql_tables import largest_value
from bot.tools.database_health.mysql_tables import used_share as used_auto
from bot.tools.database_health.postgres_objects import used_share
from bot.tools.database_health.postgres_replication import grade_slot
from bot.tools.database_health.postgres_server import PostgresServer
from bot.tools.database_health.postgres_table_findings import judge_scans, judge_storage
from bot.tools.database_health.postgres_tables import TableEntry, VacuumSettings
from bot.tools.database_health.postgres_workload import Blocks, judge_cache, judge_checkpoints
from bot.tools.database_health.wording import percent, say_age, say_number, say_some

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
GiB = 1024**3
SERVER = PostgresServer(
    now=NOW,
    role="reader",
    database="shop",
    standby=False,
    sees_all=True,
    standbys=0,
    counters_since=NOW - timedelta(days=9),
)
MYSQL = MySqlServer(now=NOW, account="'r'@'%'", database="shop", started_at=NOW - timedelta(days=9))
TABLE = TableEntry(
    oid="1",
    table="public.t",
    root="",
    size_bytes=100_000_000,
    heap_bytes=80_000_000,
    index_bytes=20_000_000,
    toast_bytes=0,
    tuples=1_000_000.0,
    pages=9766,
    heap=True,
    fill_factor=100,
    autovacuum=True,
    live=1_000_000,
    dead=0,
    modified=0,
    seq_scans=0,
    seq_rows=0,
    index_scans=0,
    vacuumed=NOW - timedelta(hours=3),
    analyzed=NOW - timedelta(hours=3),
    xid_age=100,
    multixact_age=0,
)
SETTINGS = VacuumSettings(
    block_size=8192, autovacuum=True, counts=True, vacuum_base=50, vacuum_scale=0.2, freeze_max_age=200_000_000
)


def storage(bloat: Bloat = NO_BLOAT_KNOWN, **changes: object) -> list[str]:
    return judge_storage(replace(TABLE, **changes), SETTINGS, bloat, now=NOW)  # type: ignore[arg-type]


def test_a_table_in_good_order_has_no_finding() -> None:
    assert storage() == []


@pytest.mark.parametrize(("dead", "told"), [(200_050, False), (260_000, True)])
def test_dead_rows_count_from_where_autovacuum_should_come(dead: int, told: bool) -> None:
    found = storage(dead=dead)
    assert bool(found) is told
    if told:
        assert found[0].startswith("260,000 dead rows, 21 % of all; last vacuumed 180 min ago; autovacuum is due")


def test_few_dead_rows_of_a_small_table_are_nothing() -> None:
    assert storage(live=100, dead=9_000, tuples=100.0) == []


def test_counted_rows_win_over_believed_ones() -> None:
    counted = Bloat(wasted_bytes=0, share=0.0, method="pgstattuple_approx", live_rows=1_000_000, dead_rows=0)
    assert storage(counted, dead=900_000) == []


@pytest.mark.parametrize(
    ("method", "share", "told"),
    [("pgstattuple_approx", 0.45, True), ("statistics", 0.45, False), ("statistics", 0.55, True), ("none", 0.9, False)],
)
def test_an_estimate_has_to_show_more_bloat_than_a_measurement(method: str, share: float, told: bool) -> None:
    bloat = Bloat(wasted_bytes=int(80_000_000 * share), share=share, method=method)  # type: ignore[arg-type]
    assert bool(storage(bloat)) is told


def test_transaction_ids_are_told_from_twice_the_freeze_age_on() -> None:
    assert storage(xid_age=390_000_000) == []
    (finding,) = storage(xid_age=410_000_000)
    assert "410,000,000 transactions old, 19 % of the way to wraparound" in finding
    (finding,) = storage(multixact_age=1_500_000_000)
    assert "multixact is 70 %" in finding


def test_scans_of_small_tables_few_scans_and_scans_beside_many_lookups_are_nothing() -> None:
    def told(scans: int = 50, rows_read: int = 5_000_000, index_scans: int = 0, rows: float = 100_000) -> bool:
        return bool(judge_scans(scans=scans, rows_read=rows_read, index_scans=index_scans, rows=rows, since=""))

    assert told()
    assert not told(rows=9_000, rows_read=50 * 9_000)
    assert not told(scans=9, rows_read=900_000)
    assert not told(index_scans=100_000)
    assert not told(rows_read=50 * 100)
    assert not told(scans=0, rows_read=0)


@pytest.mark.parametrize(
    ("low", "high", "last", "step", "column", "share"),
    [
        (1, 2**63 - 1, None, 1, "bigint", 0.0),
        (1, 100, 1, 1, "", 0.0),
        (1, 101, 51, 1, "", 0.5),
        (1, 100, 100, 1, "", 1.0),
        (1, 2**63 - 1, 2**31 - 1, 1, "integer", 1.0),
        (1, 2**63 - 1, 2**31 - 1, 1, "bigint", 0.0),
        (-101, -1, -51, -1, "", 0.5),
        (-(2**63), -1, -(2**31), -1, "integer", 1.0),
        (5, 5, 5, 1, "", 1.0),
        (1, 2**63 - 1, 40_000, 1, "smallint", 1.0),
    ],
)
def test_sequences_are_measured_in_their_direction_and_by_their_column(
    low: int, high: int, last: int | None, step: int, column: str, share: float
) -> None:
    row = {"low": float(low), "high": float(high), "last": last, "step": float(step), "column_type": column}
    assert used_share(row) == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize(
    ("slot", "status"),
    [
        ({"active": True, "kept_bytes": 1.0 * GiB}, "ok"),
        ({"active": True, "kept_bytes": 5.0 * GiB}, "warn"),
        ({"active": False, "kept_bytes": 1024.0}, "ok"),
        ({"active": False, "kept_bytes": 0.1 * GiB}, "warn"),
        ({"active": False, "kept_bytes": 9.0 * GiB}, "critical"),
        ({"active": True, "kept_bytes": None, "wal_status": "lost"}, "critical"),
        ({"active": True, "kept_bytes": 1.0, "wal_status": "unreserved"}, "critical"),
        ({"active": False, "kept_bytes": None, "invalidated": "wal_removed"}, "critical"),
    ],
)
def test_slots_are_judged_by_use_size_and_state(slot: dict[str, object], status: str) -> None:
    assert grade_slot(slot, HEALTH_BOUNDS) == status


def checkpoints(**changes: float | None) -> str:
    numbers: dict[str, float | None] = {
        "timed": 10,
        "requested": 100,
        "age_s": 3600.0,
        "wal_bytes": 100.0 * GiB,
        "max_wal_bytes": float(GiB),
        "timeout_s": 300.0,
    }
    return judge_checkpoints(**{**numbers, **changes}, bounds=HEALTH_BOUNDS).status  # type: ignore[arg-type]


def test_only_checkpoints_that_the_wal_explains_count_as_forced() -> None:
    assert checkpoints() == "critical"
    assert checkpoints(requested=20) == "warn"
    assert checkpoints(wal_bytes=None) == "critical"
    assert checkpoints(wal_bytes=GiB / 4) == "ok"  # DROP DATABASE, backups and people asked for them
    assert checkpoints(timed=1000) == "ok"
    assert checkpoints(requested=9) == "ok"
    assert checkpoints(age_s=86_400.0 * 30) == "ok"


def test_the_cache_is_judged_over_the_moment_if_enough_was_read_in_it() -> None:
    before = Blocks(hit=1_000_000.0, read=0.0, at=NOW)
    busy = Blocks(hit=1_010_000.0, read=90_000.0, at=NOW + timedelta(seconds=2))
    check = judge_cache(before, busy, SERVER, HEALTH_BOUNDS)
    assert (check.status, check.value) == ("warn", 0.1)
    assert check.evidence == "10 % of 100,000 block reads came from shared_buffers in the last 2 s"
    quiet = Blocks(hit=1_000_010.0, read=0.0, at=NOW + timedelta(seconds=2))
    check = judge_cache(before, quiet, SERVER, HEALTH_BOUNDS)
    assert (check.status, check.value) == ("ok", 1.0)
    assert "since 2026-11-21T12:00:00Z, as too little was read just now" in check.evidence


def test_a_reset_between_the_readings_and_an_idle_server_are_no_alarm() -> None:
    before = Blocks(hit=1_000_000.0, read=500_000.0, at=NOW)
    after = Blocks(hit=5.0, read=50.0, at=NOW + timedelta(seconds=1))
    check = judge_cache(before, after, SERVER, HEALTH_BOUNDS)
    assert (check.status, check.value) == ("ok", None)
    assert "too few to judge" in check.evidence
    pool = judge_pool((10.0, 10.0), (5.0, 5.0), 1.0, MYSQL, HEALTH_BOUNDS)
    assert (pool.status, pool.value) == ("ok", None)
    pool = judge_pool((0.0, 0.0), (100_000.0, 50_000.0), 1.0, MYSQL, HEALTH_BOUNDS)
    assert (pool.status, pool.value) == ("warn", 0.5)


@pytest.mark.parametrize(
    ("row", "status", "said"),
    [
        (None, "ok", "this server is no replica"),
        # As MySQL 8.4 names them; from documentation, never run.
        ({"Replica_IO_Running": "Yes", "Replica_SQL_Running": "Yes", "Seconds_Behind_Source": 0}, "ok", "0 s behind"),
        (
            {"Replica_IO_Running": "Yes", "Replica_SQL_Running": "Yes", "Seconds_Behind_Source": 900},
            "critical",
            "15 min",
        ),
        # As MariaDB names them.
        ({"Slave_IO_Running": "Yes", "Slave_SQL_Running": "Yes", "Seconds_Behind_Master": 60}, "warn", "60 s behind"),
        (
            {
                "Slave_IO_Running": "Yes",
                "Slave_SQL_Running": "No",
                "Seconds_Behind_Master": None,
                "Last_SQL_Errno": 1062,
            },
            "critical",
            "applying: No, error 1062",
        ),
        (
            {"Slave_IO_Running": "Connecting", "Slave_SQL_Running": "Yes", "Seconds_Behind_Master": None},
            "warn",
            "an unknown time behind; receiving: Connecting",
        ),
    ],
)
def test_replicas_are_judged_by_whether_they_run_and_how_late_they_are(
    row: dict[str, object] | None, status: str, said: str
) -> None:
    check = judge_replica(row, "", HEALTH_BOUNDS)
    assert check.status == status
    assert said in check.evidence


@pytest.mark.parametrize(
    ("kind", "largest"),
    [
        ("tinyint(3) unsigned", 255),
        ("tinyint(4)", 127),
        ("smallint", 32_767),
        ("mediumint unsigned", 16_777_215),
        ("int(11)", 2_147_483_647),
        ("int unsigned zerofill", 4_294_967_295),
        ("bigint(20) unsigned", 2**64 - 1),
        ("double", 0),
        ("", 0),
    ],
)
def test_integer_types_of_mysql_have_their_ends(kind: str, largest: int) -> None:
    assert largest_value(kind) == largest


def test_the_next_auto_increment_value_is_not_used_yet() -> None:
    assert used_auto(1, 127) == 0
    assert used_auto(128, 127) == 1
    assert used_auto(None, 127) == 0


def test_the_worst_status_wins_and_unknown_only_where_nothing_is_known() -> None:
    assert worst(["ok", "critical", "warn", "unknown"]) == "critical"
    assert worst(["unknown", "ok"]) == "ok"
    assert worst(["unknown"]) == "unknown"
    assert worst([]) == "unknown"
    ordered = order_checks(
        [replace(unknown("a", "b"), status=status) for status in ("ok", "unknown", "warn", "critical")]
    )
    assert [check.status for check in ordered] == ["critical", "warn", "unknown", "ok"]
    assert Bounds(warn=1, critical=2).grade(2) == "critical"
    assert Bounds(warn=1).grade(99) == "warn"


def test_rows_that_do_not_fit_are_counted_and_one_always_stays() -> None:
    row = IndexFinding(table="t", index="i", kind="unused", size_bytes=1, finding="x" * 900, suggestion=None)
    rows, left_out = fit_rows([row] * 50)
    assert 5 < len(rows) < 20
    assert len(rows) + left_out == 50
    assert fit_rows([row], most_chars=10) == ((row,), 0)
    assert fit_rows([]) == ((), 0)


def test_numbers_are_written_as_people_say_them() -> None:
    assert [percent(share) for share in (0, 0.0312, 0.953, 0.9999, 1)] == ["0 %", "3.1 %", "95 %", "over 99 %", "100 %"]
    assert say_age(3 * 86_400) == "3 days"
    assert say_age(90_000) == "25 h"
    assert (say_number(1, "row"), say_number(2_000, "row")) == ("1 row", "2,000 rows")
    assert say_some(["a", "b", "c"], most=2) == "a, b and 1 more"
