"""The tools through a real PgBouncer in transaction mode, where each call meets the session that the last one left."""

from __future__ import annotations

import asyncio

import pytest

from agent_core.context import SystemClock
from agent_core.errors import ToolFailed
from bot.tools.slow_queries.explain import explain_statement
from bot.tools.slow_queries.slow_queries import read_slow_queries
from bot.tools.targets import Targets
from tests.integration.slow_queries.conftest import MemorySnapshots
from tests.servers.pgbouncer import run_pooler
from tests.servers.postgres import Lab

pytestmark = pytest.mark.service("pgbouncer")

SLOW = "select pg_sleep(0.02) from generate_series(1, 2) where 'a' <> 'b'"


async def seed(lab: Lab) -> tuple[str, str]:
    database, role = await lab.create_database(), await lab.create_reader()
    async with lab.admin(database) as admin:
        await admin.execute("create table item (id int primary key, name text)")
        await admin.execute("insert into item select n, 'x' from generate_series(1, 1000) n")
        await admin.execute("grant select on item to public")
        await admin.execute("analyze item")
        await admin.execute(SLOW)
    return database, role


async def ask_everything(targets: Targets) -> None:
    found = await read_slow_queries(
        targets, MemorySnapshots(), SystemClock(), time_range="last_30min", threshold_s=0.01
    )
    assert [row.sql for row in found.rows if "pg_sleep" in row.sql and row.state == "finished"]
    for sql in ("select * from item where id = $1", "select * from item where name = 'x'"):
        plan = await explain_statement(targets, SystemClock(), sql=sql)
        assert plan.rows


async def test_every_tool_works_again_and_again_through_a_pooler(postgres: Lab) -> None:
    database, role = await seed(postgres)
    with run_pooler(postgres) as pooler:
        for _ in range(3):
            await ask_everything(pooler.targets(database, role))


async def test_many_at_once_share_the_sessions_of_a_pooler(any_postgres: Lab) -> None:
    database, role = await seed(any_postgres)
    with run_pooler(any_postgres, server_connections=2) as pooler:
        await asyncio.gather(*(ask_everything(pooler.targets(database, role)) for _ in range(6)))


async def test_nothing_of_a_call_is_left_in_the_session_of_a_pooler(any_postgres: Lab) -> None:
    import psycopg

    database, role = await seed(any_postgres)
    with run_pooler(any_postgres) as pooler:
        await ask_everything(pooler.targets(database, role))
        async with await psycopg.AsyncConnection.connect(pooler.url(database, role), prepare_threshold=None) as later:
            cursor = await later.execute("select name from pg_prepared_statements")
            assert await cursor.fetchall() == []
            for name, value in (
                ("statement_timeout", "0"),
                ("transaction_read_only", "off"),
                ("plan_cache_mode", "auto"),
            ):
                cursor = await later.execute("select current_setting(%s)", (name,))
                assert await cursor.fetchone() == (value,)


async def test_a_pooler_that_allows_no_transaction_is_told_with_a_remedy(any_postgres: Lab) -> None:
    database, role = await seed(any_postgres)
    with run_pooler(any_postgres, mode="statement") as pooler, pytest.raises(ToolFailed) as failed:
        await ask_everything(pooler.targets(database, role))
    assert failed.value.code == "connect_failed"
    assert "transaction" in str(failed.value.fix)
    assert any_postgres.passwords[role] not in str(failed.value)
