"""``db_health`` on servers with something wrong on them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace

import pytest

from agent_core.errors import ToolFailed
from bot.tools.database_health import read_db_health
from bot.tools.database_health.answer import Check
from bot.tools.database_health.checks import HEALTH_BOUNDS, Bounds, CheckName, HealthBounds
from bot.tools.targets import Target
from tests.integration.database_health.conftest import CLOCK, target_of, until
from tests.servers.postgres import FIRST, SYSTEM, Lab, start_lab, stop_lab


async def look(target: Target, name: CheckName, bounds: HealthBounds = HEALTH_BOUNDS) -> Check:
    """Run one check."""
    (row,) = (await read_db_health(target, CLOCK, checks=[name], bounds=bounds)).rows
    assert row.check == name
    return row


async def until_status(
    target: Target, name: CheckName, statuses: Sequence[str], bounds: HealthBounds = HEALTH_BOUNDS
) -> Check:
    """Ask until a check has one of the statuses."""
    row = await look(target, name, bounds)

    async def there() -> bool:
        nonlocal row
        row = await look(target, name, bounds)
        return row.status in statuses

    await until(there)
    return row


@pytest.fixture
async def database(postgres: Lab) -> str:
    return await postgres.create_database()


@pytest.fixture
async def target(postgres: Lab, database: str) -> Target:
    return target_of(postgres, database, await postgres.create_reader())


async def test_a_connection_storm_is_found_with_who_connects(postgres: Lab, database: str, target: Target) -> None:
    app = await postgres.create_role()
    async with AsyncExitStack() as stack:
        for _ in range(30):
            await stack.enter_async_context(postgres.connect(database, app))
        row = await look(target, "connections")
        assert row.status in ("warn", "critical")
        assert row.value is not None
        assert row.value >= 31 / 37
        assert "a storm: " in row.evidence
        assert row.items[0] == f"30 of role {app} in {database}: idle"
        assert "pgbouncer" in row.advice
        assert row.bound == "warn from 80 %, critical from 95 %"


async def test_a_session_idle_in_transaction_is_found_once_it_lasts(
    postgres: Lab, database: str, target: Target
) -> None:
    app = await postgres.create_role()
    bounds = replace(HEALTH_BOUNDS, idle_s=Bounds(warn=0.2, critical=3600))
    async with postgres.connect(database, app) as connection:
        await connection.execute("begin")
        await connection.execute("select 'hunter2'")
        pid = connection.info.backend_pid
        row = await until_status(target, "idle_in_transaction", ["warn"], bounds)
        assert "nobody waits for them" in row.evidence
        (item,) = row.items
        assert item.startswith(f"pid {pid} of role {app} in {database}: idle for ")
        assert item.endswith("last statement: select $1")
        assert "idle_in_transaction_session_timeout" in row.advice
        await connection.execute("rollback")
        row = await until_status(target, "idle_in_transaction", ["ok"], bounds)
    assert row.evidence == "no session idles in a transaction"


async def test_an_idle_session_that_others_wait_for_is_a_warning_at_once(
    postgres: Lab, database: str, target: Target
) -> None:
    async with postgres.admin(database) as idle, postgres.admin(database) as waiter:
        await idle.execute("create table t (a int)")
        await idle.execute("begin; lock table t in access exclusive mode")
        waiting = asyncio.create_task(waiter.execute("select * from t"))
        row = await until_status(
            target, "idle_in_transaction", ["warn"], replace(HEALTH_BOUNDS, idle_s=Bounds(warn=3600))
        )
        assert "1 session waiting for them" in row.evidence
        assert "1 session waiting for it" in row.items[0]
        await idle.execute("commit")
        await waiting


async def test_old_transactions_are_found(postgres: Lab, database: str, target: Target) -> None:
    bounds = replace(HEALTH_BOUNDS, transaction_s=Bounds(warn=0.2, critical=3600))
    async with postgres.admin(database) as old:
        await old.execute("begin; select 1")
        row = await until_status(target, "long_transactions", ["warn"], bounds)
        assert f"pid {old.info.backend_pid} of role postgres in {database}" in row.items[0]
        assert "VACUUM" in row.advice


async def test_a_sequence_near_its_end_is_found_by_its_columns_type(
    postgres: Lab, database: str, target: Target
) -> None:
    async with postgres.admin(database) as admin:
        await admin.execute('create table "Orders" (id serial, small smallint, tiny int)')
        await admin.execute("""select setval('"Orders_id_seq"', 2100000000)""")
        # A sequence of bigints that fills a smaller column through its default, owned by nothing.
        await admin.execute("""create sequence loose; alter table "Orders" alter small set default nextval('loose')""")
        await admin.execute("select setval('loose', 30000)")
        await admin.execute("create sequence fine; select nextval('fine')")
        await admin.execute("create sequence round maxvalue 10 cycle; select setval('round', 10)")
        await admin.execute("create sequence down increment -1 minvalue -100 maxvalue -1; select setval('down', -95)")
        hidden = await look(target, "sequences")
        assert hidden.status == "unknown"
        assert hidden.grant == f"GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO {target.user};"
        await admin.execute(hidden.grant.encode())
        row = await look(target, "sequences")
    assert row.status == "critical"
    assert row.grant is None
    assert row.value == round((2100000000 - 1) / (2**31 - 2), 4)
    assert row.items == (
        'sequence public."Orders_id_seq" is at 2,100,000,000 of 2,147,483,647 (98 %), 47,483,647 values left; '
        'column public."Orders".id is integer',
        "sequence public.down is at -95 of -100 (95 %), 5 values left",
        'sequence public.loose is at 30,000 of 32,767 (92 %), 2,767 values left; column public."Orders".small '
        "is smallint",
    )


async def test_what_looks_like_a_guarantee_and_is_none_is_found(postgres: Lab, database: str, target: Target) -> None:
    async with postgres.admin(database) as admin:
        assert (await look(target, "objects")).status == "ok"
        await admin.execute(
            """create table a (id int primary key); create table b (a_id int references a, n int);
            alter table b add constraint positive check (n > 0) not valid;
            alter table b disable trigger all;
            create unlogged table scratch as select generate_series(1, 100000) as g;
            create unlogged table small as select 1 as g"""
        )
        row = await look(target, "objects")
    assert row.status == "warn"
    assert row.evidence == "2 x disabled trigger, 1 x unlogged table, 1 x unvalidated constraint"
    assert any("public.b positive: old rows may break it" in item for item in row.items)
    assert any("a foreign key is not checked" in item for item in row.items)
    assert any(item.startswith("unlogged table public.scratch: ") for item in row.items)


async def test_cache_misses_are_told_for_the_moment_or_since_the_counters_began(
    postgres: Lab, database: str, target: Target
) -> None:
    row = await look(target, "cache_hit")
    assert row.status == "ok"
    assert "as too little was read just now" in row.evidence
    stop = asyncio.Event()

    async def read_on() -> None:
        async with postgres.admin(database) as busy:
            while not stop.is_set():
                await busy.execute("select count(*) from pg_attribute a, generate_series(1, 20) where a.attnum > 0")

    async with asyncio.TaskGroup() as group:
        group.create_task(read_on())
        small = replace(HEALTH_BOUNDS, miss_least=100)

        async def windowed() -> bool:
            nonlocal row
            row = await look(target, "cache_hit", small)
            return "in the last " in row.evidence

        await until(windowed)
        stop.set()
    assert row.value is not None
    assert 0 < row.value <= 1


async def test_without_pg_monitor_each_check_says_what_it_lacks_and_the_others_answer(
    postgres: Lab, database: str
) -> None:
    plain = await postgres.create_role()
    async with postgres.admin(database) as admin, postgres.admin(database) as idle:
        await idle.execute("begin; select 1")
        answer = await read_db_health(target_of(postgres, database, plain), CLOCK)
        rows = {row.check: row for row in answer.rows}
        unknown = {name for name, row in rows.items() if row.status == "unknown"}
        assert unknown == {"long_transactions", "idle_in_transaction"}
        assert {rows[name].grant for name in (*unknown, "connections")} == {f"GRANT pg_monitor TO {plain};"}
        assert "whose state this role may not see" in rows["connections"].evidence
        assert rows["wraparound"].status == "ok"
        assert answer.status == "ok"
        assert not answer.coverage.complete
        assert answer.warnings == (f"to see more: GRANT pg_monitor TO {plain};",)
        await admin.execute(f"grant pg_monitor to {plain}".encode())
        again = await read_db_health(target_of(postgres, database, plain), CLOCK)
    assert again.coverage.complete
    assert again.warnings == ()


async def test_a_check_that_fails_is_unknown_and_the_others_answer(postgres: Lab, database: str) -> None:
    reader = await postgres.create_reader()
    async with postgres.admin(database) as admin:
        await admin.execute("revoke select on pg_catalog.pg_replication_slots from public")
        answer = await read_db_health(target_of(postgres, database, reader), CLOCK)
    rows = {row.check: row for row in answer.rows}
    assert len(rows) == 11
    assert {row.check for row in answer.rows if row.status == "unknown"} == {"slots"}
    assert rows["slots"].grant is not None


async def test_checks_of_the_other_engine_are_unknown_only_when_asked_for(target: Target) -> None:
    answer = await read_db_health(target, CLOCK, checks=["history", "wraparound"])
    assert [(row.check, row.status) for row in answer.rows] == [("history", "unknown"), ("wraparound", "ok")]


async def test_targets_of_other_engines_are_refused_by_name() -> None:
    with pytest.raises(ToolFailed, match="db_health cannot read target 'file'") as caught:
        await read_db_health(Target.from_url("file", "sqlite:///a.db"), CLOCK)
    assert caught.value.code == "unsupported"


# -- a server that replicates ---------------------------------------------------------------------


@pytest.fixture(scope="module", params=[FIRST, SYSTEM])
def primary(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A server that writes WAL as production does, with little room for it, and prepared transactions."""
    settings = {
        "wal_level": "replica",
        "max_wal_senders": "4",
        "max_prepared_transactions": "4",
        "max_wal_size": "32MB",
        "min_wal_size": "32MB",
        "autovacuum": "off",
    }
    lab = start_lab(request.param, settings=settings)
    yield lab
    stop_lab(lab)


async def test_slots_that_keep_wal_are_found(primary: Lab) -> None:
    target = target_of(primary, await primary.create_database(), await primary.create_reader())
    async with primary.admin() as admin:
        assert (await look(target, "slots")).evidence == "there are no replication slots"
        await admin.execute("select pg_create_physical_replication_slot('forgotten', true)")
        await admin.execute("create table filler as select repeat('x', 700) as t from generate_series(1, 50000)")
        row = await look(target, "slots")
        assert row.status == "warn"
        assert row.value is not None
        assert row.value > 30 * 1024**2
        assert row.items[0].startswith("physical slot forgotten, not in use")
        assert "pg_drop_replication_slot" in row.advice
        await admin.execute("select pg_drop_replication_slot('forgotten')")
        await admin.execute("drop table filler")
    assert (await look(target, "slots")).status == "ok"


async def test_checkpoints_forced_by_wal_are_found(primary: Lab) -> None:
    target = target_of(primary, await primary.create_database(), await primary.create_reader())
    async with primary.admin() as admin:

        async def forced() -> bool:
            await admin.execute("create table t as select repeat('x', 700) as t from generate_series(1, 50000)")
            await admin.execute("drop table t")
            return (await look(target, "checkpoints")).status in ("warn", "critical")

        await until(forced, within_s=60)
    row = await look(target, "checkpoints")
    assert "max_wal_size (now 32 MiB)" in row.advice
    assert row.value is not None
    assert row.value >= 6


async def test_a_server_of_13_has_no_view_of_wal_and_is_judged_without_it(primary: Lab) -> None:
    """Such a server is not run here (https://www.postgresql.org/docs/13/monitoring-stats.html): its view is taken away.

    The newer ones lose theirs in one database, which shows that columns are looked for, not guessed.
    """
    database = await primary.create_database()
    target = target_of(primary, database, await primary.create_reader())
    assert " of WAL in " in (await look(target, "checkpoints")).evidence
    async with primary.admin(database) as admin:
        await admin.execute("set allow_system_table_mods = on; drop view pg_catalog.pg_stat_wal")
    row = await look(target, "checkpoints")
    assert row.status != "unknown"
    assert " of WAL in " not in row.evidence
    assert "requested in " in row.evidence


async def test_prepared_transactions_are_old_ones_too(primary: Lab) -> None:
    database = await primary.create_database()
    plain = target_of(primary, database, await primary.create_role())
    bounds = replace(HEALTH_BOUNDS, transaction_s=Bounds(warn=0.1, critical=3600))
    async with primary.admin(database) as admin:
        await admin.execute("create table t (a int)")
        await admin.execute("begin; insert into t values (1); prepare transaction 'hunter2'")
        row = await until_status(plain, "long_transactions", ["warn"], bounds)
        await admin.execute("rollback prepared 'hunter2'")
    assert row.items[0].startswith("prepared transaction ")
    assert "ROLLBACK PREPARED" in row.advice
    assert "hunter2" not in json.dumps(asdict(row))


async def test_a_lost_synchronous_standby_is_critical(primary: Lab) -> None:
    target = target_of(primary, await primary.create_database(), await primary.create_reader())
    async with primary.admin() as admin:
        assert (await look(target, "replication")).evidence == "no standby streams from here"
        await admin.execute("alter system set synchronous_standby_names = 'gone'")
        await admin.execute("select pg_reload_conf()")
        row = await until_status(target, "replication", ["critical"])
        await admin.execute("alter system reset synchronous_standby_names")
        await admin.execute("select pg_reload_conf()")
        await until_status(target, "replication", ["ok"])
    assert "every commit waits" in row.evidence


async def test_old_transaction_ids_are_found_with_the_tables_that_hold_them(primary: Lab) -> None:
    database = await primary.create_database()
    target = target_of(primary, database, await primary.create_reader())
    assert (await look(target, "wraparound")).status == "ok"
    # Two thousand million transactions take days: so the bound comes to the server, not the server to the bound.
    bounds = replace(HEALTH_BOUNDS, wraparound=Bounds(warn=2_000 / 2**31, critical=0.9))
    async with primary.admin(database) as admin:
        await admin.execute("create table old_rows (a int)")
        await admin.execute("do $$begin for i in 1..2500 loop perform pg_current_xact_id(); commit; end loop; end$$")
        row = await look(target, "wraparound", bounds)
    assert row.status == "warn"
    assert "autovacuum freezes from 200,000,000 on" in row.evidence
    assert any("table public.old_rows" in item for item in row.items)
    assert "VACUUM (FREEZE)" in row.advice
