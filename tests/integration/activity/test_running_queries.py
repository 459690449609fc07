"""What runs on live Postgres servers, and who is idle in a transaction."""

from __future__ import annotations

import pytest

from agent_core.tools.results import render_value
from bot.tools.activity.answer import RunningQueries, RunningQuery
from bot.tools.activity.running import read_running_queries
from bot.tools.envelope import WHOLE
from bot.tools.slow_queries.connection import open_read_only
from reading.layout import render_result
from tests.integration.activity.conftest import CLOCK, Yard
from tests.servers.postgres import Lab


async def look(
    yard: Yard, *, min_seconds: float = 0.0, include_idle_in_tx: bool = True, role: str | None = None
) -> RunningQueries:
    targets = yard.lab.targets(yard.database, role or yard.reader)
    return await read_running_queries(targets, CLOCK, min_seconds=min_seconds, include_idle_in_tx=include_idle_in_tx)


def of(answer: RunningQueries, pid: int) -> RunningQuery:
    (row,) = [row for row in answer.rows if row.pid == pid]
    return row


async def test_a_running_statement_is_shown_with_its_age_and_without_its_literals(yard: Yard) -> None:
    async with yard.session() as session:
        yard.begin(session, "select pg_sleep(60), 's3cret-literal'")
        await yard.until(
            "select count(*) = 1 from pg_stat_activity where pid = %s and wait_event = 'PgSleep'",
            (session.info.backend_pid,),
        )
        answer = await look(yard)
        row = of(answer, session.info.backend_pid)
        assert (row.state, row.query, row.user, row.db, row.app) == (
            "active",
            "select pg_sleep($1), $2",
            yard.app,
            yard.database,
            "lab-app",
        )
        assert row.wait == "Timeout: PgSleep"
        assert row.age_s is not None
        assert 0 <= row.age_s < 60
        assert row.query_id is not None
        assert isinstance(row.query_id, str)
        assert row.backend_start is not None
        assert row.backend_start.endswith("Z")
        assert answer.active == 1
        assert answer.coverage == WHOLE
        assert "s3cret-literal" not in render_value(answer)
        assert of(await look(yard, role=yard.app), session.info.backend_pid).query == row.query
        assert (await look(yard, min_seconds=3600)).rows == ()
        assert f"| {session.info.backend_pid} |" in render_result(render_value(answer), {})


async def test_a_session_idle_in_a_transaction_is_found_and_can_be_left_out(yard: Yard) -> None:
    async with yard.session() as session, yard.session() as failed:
        await session.execute("begin")
        await session.execute("select 's3cret-literal' from acct where id = 1")
        await failed.execute("begin")
        with pytest.raises(Exception, match="division"):
            await failed.execute("select 1 / 0")
        answer = await look(yard)
        row = of(answer, session.info.backend_pid)
        assert (row.state, row.wait) == ("idle in transaction", None)
        assert row.query == "select $1 from acct where id = $2"
        assert row.xact_age_s is not None
        assert row.age_s is not None
        assert row.xact_age_s >= row.age_s >= 0
        assert of(answer, failed.info.backend_pid).state == "idle in transaction (aborted)"
        assert (answer.active, answer.idle_in_transaction) == (0, 2)
        without = await look(yard, include_idle_in_tx=False)
        assert (without.rows, without.idle_in_transaction) == ((), 0)


async def test_on_a_quiet_server_nothing_is_invented_and_our_own_sessions_are_left_out(yard: Yard) -> None:
    targets = yard.lab.targets(yard.database, yard.reader)
    async with yard.session(), open_read_only(targets["lab"]) as ours:
        await ours.fetch("select 1")
        answer = await look(yard)
        assert (answer.rows, answer.active, answer.idle_in_transaction) == ((), 0, 0)
        assert answer.coverage == WHOLE
        assert "No rows." in render_result(render_value(answer), {})


async def test_d37_parallel_workers_are_folded_into_their_leader(roomy_yard: Yard) -> None:
    """They were shown as queries of their own; https://github.com/ankane/pghero/issues/258,
    https://github.com/dalibo/pg_activity/issues/68.
    """
    yard = roomy_yard
    async with yard.lab.admin(yard.database) as admin:
        await admin.execute("create table wide as select g as id from generate_series(1, 200000) g")
        await admin.execute("alter table wide set (parallel_workers = 2)")
        await admin.execute("analyze wide")
        await admin.execute("grant all on wide to public")
        await admin.execute(
            "create function slowly(n int) returns bool language plpgsql parallel safe as "
            "$$ begin perform pg_sleep(30); return true; end $$"
        )
    async with yard.session() as session:
        for setting in ("parallel_setup_cost = 0", "parallel_tuple_cost = 0", "min_parallel_table_scan_size = 0"):
            await session.execute(f"set {setting}".encode())
        yard.begin(session, "select count(*) from wide where slowly(id)")
        leader = session.info.backend_pid
        await yard.until("select count(*) = 2 from pg_stat_activity where leader_pid = %s", (leader,))
        answer = await look(yard)
        assert [(row.pid, row.workers, row.leader_pid) for row in answer.rows] == [(leader, 2, None)]
        assert answer.active == 1


async def test_d01_sessions_that_the_role_may_not_see_are_counted_and_the_grant_is_named(yard: Yard) -> None:
    """Hidden rows were shown as statements; https://github.com/dbulashev/dasha/issues/258."""
    blind = await yard.lab.create_role()
    async with yard.session() as session, yard.lab.connect(yard.database, blind) as own:
        await session.execute("begin")
        await own.execute("begin")
        answer = await look(yard, role=blind)
        assert [row.pid for row in answer.rows] == [own.info.backend_pid]
        assert answer.hidden_sessions >= 1
        assert not answer.coverage.complete
        assert f"GRANT pg_monitor TO {blind};" in answer.coverage.reasons[0]
        assert "<insufficient privilege>" not in render_value(answer)


async def test_a_session_that_the_role_may_not_track_is_told(any_postgres: Lab) -> None:
    yard = await make(any_postgres)
    async with yard.lab.admin(yard.database) as admin:
        await admin.execute("set track_activities = off")
        await admin.execute("begin")
        answer = await look(yard)
        assert answer.rows == ()
        assert "ALTER SYSTEM SET track_activities = on; SELECT pg_reload_conf();" in answer.coverage.reasons[0]
        await admin.execute("rollback")


async def make(lab: Lab) -> Yard:
    return Yard(
        lab=lab, database=await lab.create_database(), app=await lab.create_role(), reader=await lab.create_reader()
    )


async def test_a_statement_in_another_encoding_does_not_break_the_answer(any_postgres: Lab) -> None:
    yard = await make(any_postgres)
    name = f"{yard.database}_latin"
    async with any_postgres.admin() as admin:
        await admin.execute(f"create database {name} encoding 'LATIN1' locale 'C' template template0".encode())
    async with any_postgres.connect(name, yard.app) as session:
        await session.execute("begin")
        await session.execute('select 1 as "Größe"')
        answer = await look(yard)
        row = of(answer, session.info.backend_pid)
        assert row.query.startswith("select $1 as")
        assert row.db == name


async def test_a_comment_and_a_password_in_a_utility_statement_stay_inside(yard: Yard) -> None:
    async with yard.session() as session:
        await session.execute("begin")
        await session.execute(
            f"/* token=s3cret-comment */ alter role {yard.app} password 's3cret-password' -- s3cret-tail".encode()
        )
        text = render_value(await look(yard))
        assert "s3cret" not in text
        await session.execute("rollback")


async def test_many_sessions_stay_readable_and_the_rest_is_counted(any_postgres: Lab) -> None:
    from contextlib import AsyncExitStack

    yard = await make(any_postgres)
    long = "select " + ", ".join(f"{n} as a_column_with_a_long_name_{n}" for n in range(60))
    async with AsyncExitStack() as stack:
        for _ in range(28):
            session = await stack.enter_async_context(yard.session())
            await session.execute("begin")
            await session.execute(long.encode())
        answer = await look(yard)
        assert len(answer.rows) == answer.idle_in_transaction == 28
        assert answer.truncated.bytes > 0
        assert len(render_value(answer)) < 22_000
