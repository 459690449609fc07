"""Whose statements are listed, and in which order: by user, database, application, blocks, temporary files and log."""

from __future__ import annotations

import asyncio

import pytest

from agent_core.context import SystemClock
from agent_core.errors import ToolFailed
from bot.tools.slow_queries.answer import SlowQueries
from bot.tools.slow_queries.engines import Order, read_any_slow_queries
from bot.tools.slow_queries.statements import EVERYTHING, Scope
from bot.tools.targets import Target, Targets
from tests.integration.slow_queries.conftest import MemorySnapshots
from tests.servers.postgres import Lab

CLOCK = SystemClock()


async def ask(targets: Targets, *, order_by: Order = "total", scope: Scope = EVERYTHING, **more: float) -> SlowQueries:
    answer = await read_any_slow_queries(
        targets,
        MemorySnapshots(),
        CLOCK,
        time_range="last_30min",
        threshold_s=more.get("threshold_s", 0.0),
        target=None,
        order_by=order_by,
        limit=50,
        include_system=False,
        scope=scope,
    )
    assert isinstance(answer, SlowQueries)
    return answer


async def test_only_the_statements_of_a_user_or_database_are_listed(postgres: Lab) -> None:
    here, there = await postgres.create_database(), await postgres.create_database()
    reader, one, two = await postgres.create_reader(), await postgres.create_role(), await postgres.create_role()
    for database, role, marker in ((here, one, "a_one"), (here, two, "a_two"), (there, one, "a_far")):
        async with postgres.connect(database, role) as connection:
            await connection.execute(f"select 1 as {marker}".encode())
    targets = postgres.targets(here, reader)

    async def list_markers(scope: Scope) -> set[str]:
        found = await ask(targets, scope=scope)
        return {marker for marker in ("a_one", "a_two", "a_far") if any(marker in row.sql for row in found.rows)}

    assert await list_markers(Scope()) == {"a_one", "a_two"}
    assert await list_markers(Scope(user=one)) == {"a_one"}
    assert await list_markers(Scope(database=there)) == {"a_far"}
    assert await list_markers(Scope(user=two, database=there)) == set()


async def test_names_that_the_server_does_not_have_are_told(any_postgres: Lab) -> None:
    targets = any_postgres.targets(await any_postgres.create_database(), await any_postgres.create_reader())
    for scope, word in ((Scope(user="nobody_here"), "role"), (Scope(database="nowhere"), "database")):
        with pytest.raises(ToolFailed) as failed:
            await ask(targets, scope=scope)
        assert failed.value.code == "unknown_name"
        assert word in str(failed.value)


async def test_of_an_application_what_runs_is_listed_and_the_rest_said_to_be_unknown(any_postgres: Lab) -> None:
    database, reader = await any_postgres.create_database(), await any_postgres.create_reader()
    role = await any_postgres.create_role()
    async with any_postgres.connect(database, role) as connection:
        running = asyncio.create_task(connection.execute("select pg_sleep(60)"))
        try:
            targets = any_postgres.targets(database, reader)
            found = await ask(targets, scope=Scope(app="lab-app"))
            while not found.rows:
                found = await ask(targets, scope=Scope(app="lab-app"))
            other = await ask(targets, scope=Scope(app="another"))
        finally:
            await connection.cancel_safe()
            await asyncio.gather(running, return_exceptions=True)
    assert [row.state for row in found.rows] == ["running"]
    assert "pg_sleep" in found.rows[0].sql
    assert not found.coverage.complete
    assert any("application names" in reason for reason in found.coverage.reasons)
    assert other.rows == ()


async def test_blocks_temporary_files_and_write_ahead_log_put_shapes_in_order(postgres: Lab) -> None:
    database, reader = await postgres.create_database(), await postgres.create_reader()
    async with postgres.admin(database) as admin:
        await admin.execute("create table wide (id int, pad text)")
        await admin.execute("insert into wide select n, repeat('x', 500) from generate_series(1, 20000) n")
        await admin.execute("set work_mem = '64kB'")
        await admin.execute("select pad from wide order by pad, id offset 19999")
        await admin.execute("select count(*) from wide")
    targets = postgres.targets(database, reader)
    by_log = (await ask(targets, order_by="wal")).rows
    assert by_log[0].sql.startswith("insert into wide")
    assert by_log[0].wal_bytes is not None
    assert by_log[0].wal_bytes > 20_000 * 500
    by_temp = (await ask(targets, order_by="temp")).rows
    assert "order by pad" in by_temp[0].sql
    assert by_temp[0].temp_bytes is not None
    assert by_temp[0].temp_bytes > 1_000_000
    by_blocks = (await ask(targets, order_by="io")).rows
    values = [row.io.read for row in by_blocks if row.io is not None]
    assert values == sorted(values, reverse=True)
    assert all(row.io is not None and row.io.hit >= 0 for row in by_blocks)
    scan = next(row for row in by_blocks if "count(*) from wide" in row.sql)
    assert scan.io is not None
    assert scan.io.hit + scan.io.read >= 20_000 * 500


@pytest.mark.parametrize(
    ("url", "order_by", "scope"),
    [
        ("slowlog:///tmp", "wal", EVERYTHING),
        ("mysql://u@127.0.0.1/d", "temp", EVERYTHING),
        ("postgresql://u@127.0.0.1/d", "p95", EVERYTHING),
        ("mysql://u@127.0.0.1/d", "total", Scope(user="x")),
        ("slowlog:///tmp", "total", Scope(app="x")),
    ],
)
async def test_what_a_target_does_not_tell_is_named_with_what_it_does(url: str, order_by: Order, scope: Scope) -> None:
    with pytest.raises(ToolFailed) as failed:
        await ask(Targets([Target.from_url("t", url)]), order_by=order_by, scope=scope)
    assert failed.value.code == "unsupported"
    assert failed.value.fix
