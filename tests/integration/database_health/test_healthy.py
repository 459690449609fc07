"""A healthy server: nothing is found where nothing is."""

from __future__ import annotations

from bot.tools.database_health import read_db_health, read_index_health, read_table_health
from tests.integration.database_health.conftest import CLOCK, make_healthy, target_of
from tests.servers.postgres import Lab


async def test_nothing_is_invented_on_a_healthy_server(postgres: Lab) -> None:
    database = await make_healthy(postgres)
    reader = await postgres.create_reader()
    async with postgres.admin(database) as admin, postgres.admin(database) as other:
        await admin.execute("create extension pgstattuple")
        await admin.execute(f"grant select on all sequences in schema public to {reader}".encode())
        # Somebody's temporary tables are nobody else's business, whatever state they are in.
        await other.execute("create temp table mine as select g as a, g as b from generate_series(1, 200000) g")
        await other.execute("create index on mine (a); create index on mine (a); delete from mine")
        target = target_of(postgres, database, reader)
        indexes = await read_index_health(target, CLOCK, min_size_mb=0, enough_s=0)
        tables = await read_table_health(target, CLOCK)
        health = await read_db_health(target, CLOCK)
    assert indexes.rows == ()
    assert indexes.examined == 15
    assert indexes.coverage.complete
    assert indexes.warnings == ()
    assert [(row.table, row.findings) for row in tables.rows] == [
        ("public.orders", ""),
        ("public.customers", ""),
        ("public.events", ""),
        ("public.towns", ""),
    ]
    assert tables.warnings == ()
    assert {row.check: row.status for row in health.rows} == dict.fromkeys((row.check for row in health.rows), "ok")
    assert len(health.rows) == 11
    assert health.status == "ok"
    assert health.coverage.complete
    assert not any(row.advice or row.grant for row in health.rows)
