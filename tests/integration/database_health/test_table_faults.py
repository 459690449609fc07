"""``table_health`` on databases with something wrong in them."""

from __future__ import annotations

import asyncio
from typing import LiteralString

from bot.tools.database_health import read_table_health
from bot.tools.database_health.answer import TableFacts, TableHealth
from tests.integration.database_health.conftest import CLOCK, target_of, until
from tests.servers.postgres import Lab

BIG: LiteralString = """
create table big (id int primary key, town int, filler text) with (autovacuum_enabled = false);
insert into big select g, g % 500, repeat('x', 60) from generate_series(1, 100000) g"""
VACUUM: LiteralString = "vacuum (analyze)"


async def run(lab: Lab, database: str, *statements: LiteralString) -> None:
    """Run statements on a connection of their own, and see that what it counted has reached the views.

    A VACUUM that runs before then counts the rows once more.
    """
    async with lab.admin(database) as admin:
        for text in statements:
            for statement in text.split(";"):
                await admin.execute(statement)
        pid = admin.info.backend_pid

    async def gone() -> bool:
        async with lab.admin() as other:
            query = "select from pg_stat_activity where pid = %s"
            return await (await other.execute(query, (pid,))).fetchone() is None

    await until(gone)


async def until_told(lab: Lab, database: str, role: str, table: str, words: str) -> TableFacts:
    """Ask until the counters have reached the views."""
    answer: TableHealth | None = None

    async def told() -> bool:
        nonlocal answer
        answer = await read_table_health(target_of(lab, database, role), CLOCK)
        return any(row.table == table and words in row.findings for row in answer.rows)

    await until(told)
    assert answer is not None
    return next(row for row in answer.rows if row.table == table)


async def test_a_missing_index_shows_as_sequential_scans_of_a_large_table(postgres: Lab) -> None:
    database, reader = await postgres.create_database(), await postgres.create_reader()
    await run(postgres, database, BIG)
    await run(postgres, database, VACUUM)
    await run(postgres, database, *["select * from big where town = 7"] * 12)
    row = await until_told(postgres, database, reader, "public.big", "sequential scans")
    assert "read 1,200,000 rows" in row.findings
    assert "beside 0 index scans" in row.findings
    assert "an index may be missing" in row.findings
    assert row.seq_scans is not None
    assert row.seq_scans >= 12


async def test_dead_rows_are_told_with_why_autovacuum_does_not_come(postgres: Lab) -> None:
    database, reader = await postgres.create_database(), await postgres.create_reader()
    await run(postgres, database, BIG)
    await run(postgres, database, VACUUM)
    await run(postgres, database, "update big set town = town + 1 where id % 2 = 0")
    row = await until_told(postgres, database, reader, "public.big", "50,000 dead rows")
    assert "33 % of all" in row.findings
    assert "ALTER TABLE public.big RESET (autovacuum_enabled)" in row.findings
    assert row.last_vacuum is not None


async def test_bloat_is_measured_where_the_extension_is_and_estimated_where_it_is_not(postgres: Lab) -> None:
    database, reader = await postgres.create_database(), await postgres.create_reader()
    await run(postgres, database, BIG)
    await run(postgres, database, VACUUM)
    # Some rows of each page stay, so that VACUUM can give no page back.
    await run(postgres, database, "delete from big where id % 10 <> 0")
    await run(postgres, database, VACUUM)
    blind = await read_table_health(target_of(postgres, database, reader), CLOCK)
    assert blind.rows[0].bloat_method == "none"
    assert blind.rows[0].bloat_bytes is None
    name = target_of(postgres, database, reader).database
    assert blind.warnings == (
        f"the bloat of some tables is not known; in database {name}: "
        f"CREATE EXTENSION pgstattuple; GRANT pg_stat_scan_tables TO {reader};",
    )
    async with postgres.admin(database) as admin:
        await admin.execute(f"grant select on big to {reader}".encode())
        estimated = await until_told(postgres, database, reader, "public.big", "hold no live rows")
        await admin.execute("create extension pgstattuple")
        measured = await until_told(postgres, database, reader, "public.big", "pgstattuple_approx")
        row = await (
            await admin.execute("select approx_free_space + dead_tuple_len from pgstattuple_approx('big')")
        ).fetchone()
    assert estimated.bloat_method == "statistics"
    assert measured.bloat_method == "pgstattuple_approx"
    assert row is not None
    assert measured.bloat_bytes == int(row[0])
    assert measured.bloat_share is not None
    assert estimated.bloat_share is not None
    assert measured.bloat_share > 0.8
    assert abs(estimated.bloat_share - measured.bloat_share) < 0.1
    assert measured.dead_rows == 0


async def test_the_estimate_sees_no_bloat_in_tables_without_any(postgres: Lab) -> None:
    database, reader = await postgres.create_database(), await postgres.create_reader()
    await run(
        postgres,
        database,
        """create table narrow as select g as a from generate_series(1, 200000) g;
        create table padded as select g % 2 = 0 as b1, g::bigint as i1, g % 3 = 0 as b2, g::bigint as i2,
          case when g % 4 = 0 then g end as n from generate_series(1, 100000) g;
        create table wide as select repeat(md5(g::text), 1 + g % 8) as t, now() as at from generate_series(1, 20000) g;
        create table loose (a int, t text) with (fillfactor = 60);
        insert into loose select g, repeat('y', 30) from generate_series(1, 60000) g""",
    )
    await run(postgres, database, VACUUM)
    await run(postgres, database, "create extension pgstattuple")
    async with postgres.admin(database) as admin:
        measured = (await read_table_health(target_of(postgres, database, reader), CLOCK)).rows
        await admin.execute("drop extension pgstattuple")
        await admin.execute(f"grant select on all tables in schema public to {reader}".encode())
        estimated = (await read_table_health(target_of(postgres, database, reader), CLOCK)).rows
    assert {row.bloat_method for row in measured} == {"pgstattuple_approx"}
    assert {row.bloat_method for row in estimated} == {"statistics"}
    assert max(row.bloat_share or 0 for row in measured) < 0.05
    assert max(row.bloat_share or 0 for row in estimated) < 0.1
    assert not any(row.findings for row in (*measured, *estimated))


async def test_a_role_that_lacks_the_right_to_measure_gets_the_exact_lines(postgres: Lab) -> None:
    database, plain = await postgres.create_database(), await postgres.create_role()
    await run(postgres, database, BIG)
    await run(postgres, database, VACUUM, 'create schema "Ext"; create extension pgstattuple with schema "Ext"')
    answer = await read_table_health(target_of(postgres, database, plain), CLOCK)
    (hint,) = answer.warnings
    assert answer.rows[0].bloat_method == "none"
    assert answer.rows[0].live_rows == 100_000
    async with postgres.admin(database) as admin:
        for line in hint.partition(": ")[2].split(";"):
            if line.strip():
                await admin.execute(line.encode())
    again = await read_table_health(target_of(postgres, database, plain), CLOCK)
    assert again.warnings == ()
    assert again.rows[0].bloat_method == "pgstattuple_approx"


async def test_a_table_that_was_never_analyzed_is_told(postgres: Lab) -> None:
    database, reader = await postgres.create_database(), await postgres.create_reader()
    await run(
        postgres,
        database,
        """create table fresh (a int) with (autovacuum_enabled = false);
        insert into fresh select generate_series(1, 30000)""",
    )
    row = await until_told(postgres, database, reader, "public.fresh", "not analyzed")
    assert "ANALYZE public.fresh" in row.findings
    assert row.last_analyze is None


async def test_partitions_are_one_row_and_findings_name_the_partition(postgres: Lab) -> None:
    database, reader = await postgres.create_database(), await postgres.create_reader()
    await run(
        postgres,
        database,
        """create table p (id int, filler text) partition by range (id);
        create table p_1 partition of p for values from (0) to (60000) with (autovacuum_enabled = false);
        create table p_2 partition of p for values from (60000) to (120000);
        insert into p select g, repeat('x', 50) from generate_series(1, 119999) g""",
    )
    await run(postgres, database, VACUUM)
    await run(postgres, database, "update p set id = id where id < 30000")
    row = await until_told(postgres, database, reader, "public.p", "dead rows")
    assert row.partitions == 2
    assert row.live_rows == 119_999
    assert "public.p_1: 29,999 dead rows" in row.findings
    answer = await read_table_health(target_of(postgres, database, reader), CLOCK)
    assert [row.table for row in answer.rows] == ["public.p"]
    async with postgres.admin(database) as admin:
        sizes = await admin.execute(
            "select sum(pg_total_relation_size(oid)) from pg_class where relname in ('p_1', 'p_2')"
        )
        assert await sizes.fetchone() == (row.size_bytes,)


async def test_small_tables_with_findings_come_after_the_largest(postgres: Lab) -> None:
    database, reader = await postgres.create_database(), await postgres.create_reader()
    await run(postgres, database, BIG)
    await run(postgres, database, VACUUM)
    await run(
        postgres,
        database,
        """create table small (a int) with (autovacuum_enabled = false);
        insert into small select generate_series(1, 20000);
        create table tiny (a int)""",
    )
    await until_told(postgres, database, reader, "public.small", "not analyzed")
    answer = await read_table_health(target_of(postgres, database, reader), CLOCK, top=1)
    assert [row.table for row in answer.rows] == ["public.big", "public.small"]
    assert answer.examined == 3


async def test_a_locked_table_is_told_and_the_others_are_measured(postgres: Lab) -> None:
    database, reader = await postgres.create_database(), await postgres.create_reader()
    await run(postgres, database, "create table busy (a int); create table calm (a int)")
    async with postgres.admin(database) as admin, postgres.admin(database) as waiting:
        await admin.execute("begin; lock table busy in access exclusive mode")
        answer = await read_table_health(target_of(postgres, database, reader), CLOCK)
        await admin.execute("rollback")
        assert [row.table for row in answer.rows] == ["public.calm"]
        assert answer.coverage.reasons == ("a session has public.busy for itself, so that it could not be looked at",)
        # One that only waits for the table keeps everybody else out, too.
        await admin.execute("begin; select * from busy")
        altering = asyncio.create_task(waiting.execute("alter table busy add column b int"))

        async def waits() -> bool:
            query = "select from pg_locks where relation = 'busy'::regclass and not granted"
            return await (await admin.execute(query)).fetchone() is not None

        await until(waits)
        answer = await read_table_health(target_of(postgres, database, reader), CLOCK)
        await admin.execute("rollback")
        await altering
    assert [row.table for row in answer.rows] == ["public.calm"]


async def test_old_transaction_ids_are_told_with_how_far_wraparound_is(postgres: Lab) -> None:
    """The least that autovacuum_freeze_max_age can be is 100,000, and it can only be set at start: so by bounds."""
    database, reader = await postgres.create_database(), await postgres.create_reader()
    await run(postgres, database, "create table t (a int)")
    answer = await read_table_health(target_of(postgres, database, reader), CLOCK)
    (row,) = answer.rows
    assert row.xid_age is not None
    assert 0 < row.xid_age < 100_000
    assert row.xid_share == round(row.xid_age / 2**31, 4)
    assert row.multixact_age == 0
