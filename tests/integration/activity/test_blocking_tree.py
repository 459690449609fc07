"""Lock trees of live Postgres servers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from agent_core.tools.results import render_value
from bot.tools.activity.answer import BlockingTree
from bot.tools.activity.blocking import read_blocking_tree
from bot.tools.activity.knots import NOBODY_WAITS
from bot.tools.envelope import WHOLE
from bot.tools.targets import Target, Targets
from reading.layout import render_result
from tests.integration.activity.conftest import CLOCK, Connection, Yard, chain_of, everybody
from tests.stopwatch import least_wall_s


async def look(
    yard: Yard, *, min_wait_s: float = 0.0, role: str | None = None, database: str | None = None
) -> BlockingTree:
    """The trees, without those that others' tests have on the same server."""
    targets = yard.lab.targets(database or yard.database, role or yard.reader)
    return await read_blocking_tree(targets, CLOCK, min_wait_s=min_wait_s)


async def hold_row(connection: Connection, row: int, secret: str = "") -> int:
    await connection.execute("begin")
    await connection.execute("update acct set bal = bal + 1, owner = %s where id = %s", (secret, row))
    return connection.info.backend_pid


async def test_a_lock_chain_of_four_is_shown_root_first_within_two_seconds(yard: Yard) -> None:
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(yard.session()) for _ in range(4)]
        pids = [await hold_row(session, n) for n, session in enumerate(sessions, 1)]
        for n, session in enumerate(sessions[1:], 1):
            await yard.wait_for(session, f"update acct set bal = 7, owner = 's3cret-owner' where id = {n}")
        answer = await look(yard)
        assert await least_wall_s(lambda: look(yard), enough_s=2) < 2
        (root,) = answer.rows
        assert chain_of(root) == pids
        assert (root.role, root.state, root.wait_s, root.wanted_lock) == ("root", "idle in transaction", None, None)
        assert everybody(answer.rows, lambda row: row.waiters) == [3, 2, 1, 0]
        assert everybody(root.children, lambda row: row.role) == ["waiter"] * 3
        assert everybody(answer.rows, lambda row: row.relation) == ["public.acct"] * 4
        waits = [row.wait_s for row in (root.children[0], root.children[0].children[0])]
        assert waits[0] is not None
        assert waits[1] is not None
        assert waits[0] > waits[1] > 0
        middle = root.children[0]
        assert middle.wanted_lock is not None
        assert middle.wanted_lock.startswith("ShareLock on transaction ")
        assert middle.wanted_lock.endswith(" (a row of public.acct)")
        assert root.held_lock is not None
        assert root.held_lock.startswith("ExclusiveLock on transaction ")
        assert answer.waiting_sessions == 3
        assert answer.summary.startswith(
            f"Root: session {pids[0]} (user {yard.app}, app lab-app) is idle in transaction"
        )
        assert "3 sessions wait behind it" in answer.summary
        assert answer.coverage == WHOLE
        assert "s3cret-owner" not in render_value(answer)
        assert middle.query == "update acct set bal = $1, owner = $2 where id = $3"
        shown = render_result(render_value(answer), {})
        assert shown.index(f"**root** pid {pids[0]}") < shown.index(f"**waiter** pid {pids[1]}")


async def test_a_chain_of_five_with_a_prepared_transaction_and_a_parallel_query_is_shown_whole(
    roomy_yard: Yard,
) -> None:
    """The root has no session (number 0), and the last one waits with parallel workers of its own."""
    yard = roomy_yard
    gid = f"batch of {yard.database}'s"
    async with yard.lab.admin(yard.database) as admin:
        await admin.execute(
            "create table wide as select g as id, repeat('x', 50) as pad from generate_series(1, 60000) g"
        )
        await admin.execute("alter table wide set (parallel_workers = 2)")
        await admin.execute("analyze wide")
        await admin.execute("grant all on wide to public")
    async with AsyncExitStack() as stack:
        first, second, third, parallel = [await stack.enter_async_context(yard.session()) for _ in range(4)]
        await hold_row(first, 1)
        await first.execute(_prepare(gid))
        pids = [0, second.info.backend_pid, third.info.backend_pid, parallel.info.backend_pid]
        try:
            await hold_row(second, 2)
            await hold_row(third, 3)
            await third.execute("lock table wide in access exclusive mode")
            await yard.wait_for(second, "update acct set bal = 2 where id = 1")
            await yard.wait_for(third, "update acct set bal = 2 where id = 2")
            await yard.wait_for(parallel, "select count(*) from wide where pad like '%y%'")
            answer = await look(yard)
            (root,) = answer.rows
            assert chain_of(root) == pids
            assert (root.role, root.state, root.user, root.db) == ("root", "prepared", yard.app, yard.database)
            assert root.note is not None
            assert _quote(gid) in root.note
            assert f"the prepared transaction {_quote(gid)}" in answer.summary
            assert "belongs to no session" in answer.summary
            last = root.children[0].children[0].children[0]
            assert last.wanted_lock == "AccessShareLock on public.wide"
        finally:
            async with yard.lab.admin(yard.database) as admin:
                await admin.execute(b"rollback prepared " + _quote(gid).encode())


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _prepare(gid: str) -> bytes:
    return b"prepare transaction " + _quote(gid).encode()


async def test_a_waiting_parallel_worker_stands_as_its_leader(roomy_yard: Yard) -> None:
    """The workers of a query wait for an advisory lock inside a function; only their leader is a session."""
    yard = roomy_yard
    async with yard.lab.admin(yard.database) as admin:
        await admin.execute("create table wide as select g as id from generate_series(1, 200000) g")
        await admin.execute("alter table wide set (parallel_workers = 2)")
        await admin.execute("analyze wide")
        await admin.execute(
            "create function busy(n int) returns bool language plpgsql parallel safe as "
            "$$ begin perform pg_advisory_xact_lock_shared(77); return true; end $$"
        )
        await admin.execute("grant all on wide to public")
    async with yard.session() as holder, yard.session() as parallel:
        await holder.execute("select pg_advisory_lock(77)")
        for setting in ("parallel_setup_cost = 0", "parallel_tuple_cost = 0", "min_parallel_table_scan_size = 0"):
            await parallel.execute(f"set {setting}".encode())
        leader = parallel.info.backend_pid
        yard.begin(parallel, "select count(*) from wide where busy(id)")
        await yard.until(
            "select count(*) >= 2 from pg_stat_activity a join pg_locks l using (pid) "
            "where a.leader_pid = %s and l.locktype = 'advisory' and not l.granted",
            (leader,),
        )
        answer = await look(yard)
        (root,) = answer.rows
        assert chain_of(root) == [holder.info.backend_pid, leader]
        assert root.held_lock == "ExclusiveLock on advisory lock 77"
        assert root.children[0].wanted_lock == "ShareLock on advisory lock 77"


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("pg_advisory_lock(-42)", "advisory lock -42"),
        ("pg_advisory_lock(9000000000000000001)", "advisory lock 9000000000000000001"),
        ("pg_advisory_lock(7, -8)", "advisory lock (7, -8)"),
    ],
)
async def test_advisory_locks_are_named_by_the_key_that_was_asked_for(yard: Yard, call: str, name: str) -> None:
    async with yard.session() as holder, yard.session() as waiter:
        await holder.execute(f"select {call}".encode())
        await yard.wait_for(waiter, f"select {call}")
        (root,) = (await look(yard)).rows
        assert chain_of(root) == [holder.info.backend_pid, waiter.info.backend_pid]
        assert root.held_lock == f"ExclusiveLock on {name}"
        assert root.children[0].wanted_lock == f"ExclusiveLock on {name}"
        assert root.state == "idle"


async def test_d38_two_who_wait_for_one_table_side_by_side_do_not_block_each_other(yard: Yard) -> None:
    """They did with a hand-made join over pg_locks; https://github.com/Tracer-Cloud/opensre/pull/2934."""
    async with yard.session() as holder, yard.session() as one, yard.session() as other:
        await holder.execute("begin")
        await holder.execute("lock table acct in access exclusive mode")
        await yard.wait_for(one, "select count(*) from acct")
        await yard.wait_for(other, "select max(bal) from acct")
        (root,) = (await look(yard)).rows
        assert [child.pid for child in root.children] == [one.info.backend_pid, other.info.backend_pid]
        assert everybody(root.children, lambda row: (row.waiters, row.also_blocked_by)) == [(0, ()), (0, ())]


async def test_d38_a_table_of_another_database_is_not_taken_for_one_of_ours(yard: Yard) -> None:
    """Numbers of tables repeat between databases; https://github.com/Tracer-Cloud/opensre/pull/2934."""
    elsewhere = await yard.lab.create_database()
    # A catalog has the same number in every database.
    async with yard.lab.admin(yard.database) as holder, yard.session() as waiter:
        await holder.execute("begin")
        await holder.execute("lock table pg_ts_template in access exclusive mode")
        await yard.wait_for(waiter, "select count(*) from pg_ts_template")
        (root,) = (await look(yard, database=elsewhere)).rows
        wanted = root.children[0].wanted_lock
        assert wanted is not None
        assert wanted.startswith("AccessShareLock on relation ")
        assert wanted.endswith(f" of database {yard.database}")
        assert root.relation is None
        assert root.db == yard.database
        (root,) = (await look(yard)).rows
        assert root.relation == "pg_catalog.pg_ts_template"
        await holder.execute("rollback")


async def test_who_queues_behind_a_waiting_change_of_a_table_is_put_behind_it(yard: Yard) -> None:
    async with yard.session() as reader, yard.session() as change, yard.session() as late:
        await reader.execute("begin")
        await reader.execute("select count(*) from acct")
        await yard.wait_for(change, "lock table acct in access exclusive mode; select 1")
        await yard.wait_for(late, "select count(*) from acct")
        (root,) = (await look(yard)).rows
        assert chain_of(root) == [s.info.backend_pid for s in (reader, change, late)]
        assert root.children[0].held_lock == "none yet; in front in the queue for AccessExclusiveLock on public.acct"


async def test_a_deadlock_is_cut_and_called_one(roomy_yard: Yard) -> None:
    yard = roomy_yard
    async with yard.session() as one, yard.session() as other:
        await hold_row(one, 1)
        await hold_row(other, 2)
        await yard.wait_for(one, "update acct set bal = 0 where id = 2")
        await yard.wait_for(other, "update acct set bal = 0 where id = 1")
        answer = await look(yard)
        (root,) = answer.rows
        assert chain_of(root) == [one.info.backend_pid, other.info.backend_pid]
        assert root.also_blocked_by == (other.info.backend_pid,)
        assert (
            root.note == f"waits for {other.info.backend_pid} behind it: a deadlock; the server ends one of them soon"
        )


async def test_short_waits_are_left_out_unless_somebody_behind_has_waited_longer(yard: Yard) -> None:
    async with yard.session() as holder, yard.session() as waiter:
        pid = await hold_row(holder, 1)
        await yard.wait_for(waiter, "update acct set bal = 7 where id = 1")
        answer = await look(yard, min_wait_s=3600)
        assert (answer.rows, answer.summary, answer.waiting_sessions) == ((), NOBODY_WAITS, 0)
        await asyncio.sleep(0)
        assert [row.pid for row in (await look(yard, min_wait_s=0)).rows] == [pid]


async def test_on_a_quiet_server_nothing_is_invented(yard: Yard) -> None:
    async with yard.session() as holder, yard.session() as other:
        await hold_row(holder, 1)
        await hold_row(other, 2)
        answer = await look(yard)
        assert (answer.rows, answer.summary, answer.waiting_sessions) == ((), NOBODY_WAITS, 0)
        assert answer.coverage == WHOLE
        assert "No session waits" in render_result(render_value(answer), {})


async def test_without_pg_monitor_the_tree_stands_and_the_missing_right_is_named(yard: Yard) -> None:
    blind = await yard.lab.create_role()
    async with yard.session() as holder, yard.session() as waiter:
        await hold_row(holder, 1)
        await yard.wait_for(waiter, "update acct set bal = 7 where id = 1")
        answer = await look(yard, role=blind)
        (root,) = answer.rows
        assert chain_of(root) == [holder.info.backend_pid, waiter.info.backend_pid]
        assert everybody(answer.rows, lambda row: row.state) == ["hidden", "hidden"]
        assert answer.hidden_sessions == 2
        assert not answer.coverage.complete
        assert f"GRANT pg_monitor TO {blind};" in answer.coverage.reasons[0]
        assert "does what this role may not see" in answer.summary


async def test_a_crowd_is_cut_to_what_is_readable_and_the_rest_is_counted(yard: Yard) -> None:
    async with AsyncExitStack() as stack:
        holder = await stack.enter_async_context(yard.session())
        await holder.execute("select pg_advisory_lock(5)")
        crowd = [await stack.enter_async_context(yard.session()) for _ in range(25)]
        for session in crowd:
            yard.begin(session, "select pg_advisory_lock_shared(5)")
        await yard.until("select count(*) = 25 from pg_locks where not granted and locktype = 'advisory'")
        answer = await look(yard)
        assert answer.waiting_sessions == 25
        assert len(answer.rows[0].children) == 25
        assert len(render_value(answer)) < 22_000


async def test_a_standard_target_of_another_engine_is_refused_by_name() -> None:
    targets = Targets([Target.from_url("file", "sqlite:////tmp/x.db")])
    with pytest.raises(Exception, match="blocking_tree cannot read target 'file'"):
        await read_blocking_tree(targets, CLOCK)
