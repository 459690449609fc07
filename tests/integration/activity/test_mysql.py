"""Running statements, lock trees, rights and endings on a live MariaDB."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from agent_core.tools.results import render_value
from bot.tools.activity.answer import BlockingTree, RunningQueries, RunningQuery
from bot.tools.activity.blocking import read_blocking_tree
from bot.tools.activity.knots import NOBODY_WAITS
from bot.tools.activity.mysql_blocking import MDL_LINE
from bot.tools.activity.mysql_locks import ROW_WAITS_MARIADB, ROW_WAITS_MYSQL
from bot.tools.activity.mysql_sessions import OWN_PROGRAM, SESSIONS_MARIADB, SESSIONS_MYSQL, text_of
from bot.tools.activity.preflight import read_preflight
from bot.tools.activity.running import read_running_queries
from bot.tools.envelope import WHOLE
from bot.tools.mysql.connection import open_mysql
from reading.layout import render_result
from tests.integration.activity.conftest import CLOCK, PATIENCE_S, chain_of, everybody
from tests.integration.activity.test_ending import ENDINGS, Yes, ask
from tests.servers.mariadb import FIRST, MariaDBServer, MariaLab, Session, start_mariadb, stop_mariadb
from tests.stopwatch import least_wall_s

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="session", params=[FIRST])
def knowing_mariadb() -> Iterator[MariaLab]:
    """A server that tells who holds metadata locks, and does not end deadlocks before they are looked at."""
    settings = {
        "performance-schema-instrument": "wait/lock/metadata/sql/mdl=ON",
        "innodb-lock-wait-timeout": "100",
    }
    lab = start_mariadb(settings)
    yield lab
    stop_mariadb(lab)


@dataclass(frozen=True, kw_only=True)
class Pasture:
    """A database with a table ``acct`` of nine rows, and an application's sessions that lock them."""

    lab: MariaLab
    database: str
    app: str
    reader: str
    tasks: dict[int, asyncio.Task[object]] = field(default_factory=dict)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[tuple[Session, int]]:
        """A session of the application with its number; what it still waits for at the end is given up."""
        async with self.lab.connect(self.database, self.app) as session:
            pid = int(str(await session.value("select connection_id()")))
            try:
                yield session, pid
            finally:
                if (task := self.tasks.pop(pid, None)) is not None:
                    async with self.lab.admin() as admin:
                        await admin.execute(f"kill soft {pid}")
                    await asyncio.gather(task, return_exceptions=True)
        await self.until("select count(*) = 0 from information_schema.processlist where id = %s", (pid,))

    def begin(self, session: Session, pid: int, statement: str) -> None:
        """Run a statement without waiting for its end."""

        async def run() -> object:
            return await session.execute(statement)

        self.tasks[pid] = asyncio.create_task(run())

    async def wait_for(self, session: Session, pid: int, statement: str) -> None:
        """Run a statement that has to wait for a lock, and return once the server says that it does."""
        self.begin(session, pid, statement)
        await self.until(
            "select (select count(*) from information_schema.innodb_trx where trx_mysql_thread_id = %s "
            "and trx_state = 'LOCK WAIT') + (select count(*) from information_schema.processlist where id = %s "
            "and (state like 'Waiting for%%lock' or state = 'User lock'))",
            (pid, pid),
        )

    async def until(self, query: str, parameters: tuple[object, ...] = ()) -> None:
        """Ask the server until it says something else than 0."""
        async with asyncio.timeout(PATIENCE_S), self.lab.admin(self.database) as admin:
            while True:
                if await admin.value(query, parameters):
                    return
                await asyncio.sleep(0.15)  # InnoDB refreshes its tables ten times a second at most

    async def running(self, *, min_seconds: float = 0.0, idle: bool = True, role: str = "") -> RunningQueries:
        targets = self.lab.targets("", role or self.reader)
        return await read_running_queries(targets, CLOCK, min_seconds=min_seconds, include_idle_in_tx=idle)

    async def tree(self, *, min_wait_s: float = 0.0, role: str = "") -> BlockingTree:
        targets = self.lab.targets("", role or self.reader)
        return await read_blocking_tree(targets, CLOCK, min_wait_s=min_wait_s)


async def make_pasture(lab: MariaLab) -> Pasture:
    database = await lab.create_database()
    app, reader = await lab.create_role(f"all on {database}.*"), await lab.create_reader(database)
    async with lab.admin(database) as admin:
        await admin.execute("create table acct(id int primary key, owner varchar(40), bal int) engine=innodb")
        await admin.execute("insert into acct select seq, 'nobody', 0 from seq_1_to_9")
    return Pasture(lab=lab, database=database, app=app, reader=reader)


@pytest.fixture
async def pasture(mariadb: MariaLab) -> Pasture:
    return await make_pasture(mariadb)


@pytest.fixture
async def knowing(knowing_mariadb: MariaLab) -> Pasture:
    return await make_pasture(knowing_mariadb)


async def hold_row(session: Session, row: int) -> None:
    await session.execute("begin")
    await session.execute("update acct set bal = bal + 1, owner = 's3cret-owner' where id = %s", (row,))


def of(answer: RunningQueries, pid: int) -> RunningQuery:
    (row,) = [row for row in answer.rows if row.pid == pid]
    return row


# -- running -------------------------------------------------------------------------------------------


async def test_a_running_statement_is_shown_with_its_age_and_without_its_literals(pasture: Pasture) -> None:
    async with pasture.session() as (session, pid):
        pasture.begin(session, pid, "select sleep(60), 's3cret-literal'")
        await pasture.until("select count(*) from information_schema.processlist where state = 'User sleep'")
        answer = await pasture.running()
        row = of(answer, pid)
        assert (row.state, row.query, row.user, row.db, row.app, row.wait) == (
            "active",
            "select sleep(?), ?",
            pasture.app,
            pasture.database,
            "lab-app",
            "Timeout: sleep",
        )
        assert row.age_s is not None
        assert 0 <= row.age_s < 60
        assert row.query_id is not None
        assert row.query_id.isdigit()
        assert (answer.engine, answer.active, answer.coverage) == ("mariadb", 1, WHOLE)
        assert "s3cret" not in render_value(answer)
        assert (await pasture.running(min_seconds=3600)).rows == ()
        assert f"| {pid} |" in render_result(render_value(answer), {})


async def test_a_session_idle_in_a_transaction_is_found_with_its_last_statement(pasture: Pasture) -> None:
    async with pasture.session() as (session, pid):
        await hold_row(session, 1)
        await pasture.until("select count(*) from information_schema.innodb_trx where trx_mysql_thread_id = %s", (pid,))
        answer = await pasture.running()
        row = of(answer, pid)
        assert (row.state, row.wait) == ("idle in transaction", None)
        assert row.query == "update acct set bal = bal + ?, owner = ? where id = ?"
        assert row.xact_age_s is not None
        assert 0 <= row.xact_age_s < 60
        assert (answer.active, answer.idle_in_transaction) == (0, 1)
        assert (await pasture.running(idle=False)).rows == ()


async def test_on_a_quiet_server_nothing_is_invented_and_our_own_sessions_are_left_out(pasture: Pasture) -> None:
    targets = pasture.lab.targets("", pasture.reader)
    async with pasture.session(), open_mysql(targets["lab"]) as ours:
        await ours.fetch(f"select count(*) from {pasture.database}.acct")
        await pasture.until("select count(*) from information_schema.innodb_trx where trx_is_read_only = 1")
        answer = await pasture.running()
        assert (answer.rows, answer.hidden_sessions, answer.coverage) == ((), 0, WHOLE)


def test_our_own_connections_are_known_by_the_name_that_they_are_given() -> None:
    from bot.tools.mysql.driver import CONNECT_ATTRIBUTE

    assert OWN_PROGRAM == CONNECT_ATTRIBUTE


async def test_the_statement_for_mysql_8_finds_the_sessions_that_our_own_does(pasture: Pasture) -> None:
    """MySQL 8 is asked through performance_schema.threads, which this server has with the same columns
    (https://dev.mysql.com/doc/refman/8.4/en/performance-schema-threads-table.html); never run on MySQL.
    """
    async with pasture.session() as (session, pid), pasture.session():
        pasture.begin(session, pid, "select sleep(60)")
        await pasture.until("select count(*) from information_schema.processlist where state = 'User sleep'")
        async with open_mysql(pasture.lab.target("", pasture.reader)) as db:
            ours, theirs = await db.fetch(SESSIONS_MARIADB), await db.fetch(SESSIONS_MYSQL)
    named = ("pid", "username", "db", "command", "query")

    def sessions(rows: list[Mapping[str, object]]) -> list[list[str]]:
        return sorted([text_of(row[name]) for name in named] for row in rows if row["db"] == pasture.database)

    assert len(sessions(ours)) == 2
    assert sessions(ours) == sessions(theirs)
    assert set(ours[0]) == set(theirs[0])


async def test_without_process_the_hidden_sessions_are_counted_and_the_grant_is_named(pasture: Pasture) -> None:
    blind = await pasture.lab.create_role()
    async with pasture.session() as (session, _):
        await hold_row(session, 1)
        answer = await pasture.running(role=blind)
        assert answer.rows == ()
        assert answer.hidden_sessions >= 1
        assert f"GRANT PROCESS ON *.* TO '{blind}'@'%';" in answer.coverage.reasons[0]


class PacificServer(MariaDBServer):
    """A server whose system is eight hours behind UTC."""

    def _spawn(self, command, *, log="", piped=False):  # type: ignore[no-untyped-def]
        if command[0].endswith("mariadbd"):
            command = ["/usr/bin/env", "TZ=PST8", *command]
        return super()._spawn(command, log=log, piped=piped)


@pytest.mark.service("mariadb")
def test_transactions_are_not_hours_old_where_the_system_is_in_another_time_zone() -> None:
    """InnoDB writes its times in the system's zone, and the session that asks is in UTC."""
    server = PacificServer()
    server.start()
    lab = MariaLab(server=server, passwords={"root": server.password})

    async def look() -> None:
        pasture = await make_pasture(lab)
        async with pasture.session() as (holder, pid), pasture.session() as (waiter, waiting):
            await hold_row(holder, 1)
            await pasture.wait_for(waiter, waiting, "update acct set bal = 7 where id = 1")
            assert str(await holder.value("select @@system_time_zone")) == "PST"
            age_s = of(await pasture.running(), pid).xact_age_s
            assert age_s is not None
            assert 0 <= age_s < 600
            wait_s = (await pasture.tree()).rows[0].children[0].wait_s
            assert wait_s is not None
            assert 0 <= wait_s < 600

    try:
        asyncio.run(look())
    finally:
        server.stop()


# -- lock trees ----------------------------------------------------------------------------------------


async def test_a_lock_chain_of_four_is_shown_root_first_within_two_seconds(pasture: Pasture) -> None:
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(pasture.session()) for _ in range(4)]
        for n, (session, _) in enumerate(sessions, 1):
            await hold_row(session, n)
        for n, (session, pid) in enumerate(sessions[1:], 1):
            await pasture.wait_for(session, pid, f"update acct set bal = 7, owner = 's3cret-owner' where id = {n}")
        pids = [pid for _, pid in sessions]
        answer = await pasture.tree()
        assert await least_wall_s(pasture.tree, enough_s=2) < 2
        (root,) = answer.rows
        assert chain_of(root) == pids
        assert (root.role, root.state, root.wait_s, root.wanted_lock) == ("root", "idle in transaction", None, None)
        assert root.held_lock == f"X lock on a row of {pasture.database}.acct (index PRIMARY)"
        assert root.children[0].wanted_lock == root.held_lock
        assert everybody(answer.rows, lambda row: row.waiters) == [3, 2, 1, 0]
        assert everybody(answer.rows, lambda row: row.relation) == [f"{pasture.database}.acct"] * 4
        assert all(isinstance(wait, float) for wait in everybody(root.children, lambda row: row.wait_s))
        assert answer.summary.startswith(
            f"Root: session {pids[0]} (user {pasture.app}, app lab-app) is idle in transac"
        )
        assert answer.waiting_sessions == 3
        assert answer.coverage == WHOLE
        assert "s3cret-owner" not in render_value(answer)
        assert "X lock" in render_result(render_value(answer), {})


async def test_who_queues_for_one_row_stands_side_by_side_behind_who_has_it(pasture: Pasture) -> None:
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(pasture.session()) for _ in range(3)]
        (one, first), (two, second), (three, third) = sessions
        await hold_row(one, 1)
        await pasture.wait_for(two, second, "update acct set bal = 7 where id = 1")
        await pasture.wait_for(three, third, "update acct set bal = 8 where id = 1")
        (root,) = (await pasture.tree()).rows
        assert root.pid == first
        assert {(row.pid, row.also_blocked_by) for row in root.children} == {(second, ()), (third, (second,))}
        held = next(row.held_lock for row in root.children if row.pid == second)
        assert held is not None
        assert held.startswith("none yet; in front in the queue for X lock")


async def test_a_prepared_xa_transaction_without_a_session_is_number_0(pasture: Pasture) -> None:
    xid = f"'{pasture.database}'"
    async with pasture.session() as (session, _):
        await session.execute(f"xa start {xid}")
        await session.execute("update acct set bal = 5 where id = 1")
        await session.execute(f"xa end {xid}")
        await session.execute(f"xa prepare {xid}")
    try:
        async with pasture.session() as (waiter, pid):
            await pasture.until("select count(*) from information_schema.innodb_trx where trx_mysql_thread_id = 0")
            await pasture.wait_for(waiter, pid, "update acct set bal = 7 where id = 1")
            answer = await pasture.tree()
            (root,) = answer.rows
            assert chain_of(root) == [0, pid]
            assert root.state == "prepared"
            assert "a prepared XA transaction belongs to no session" in answer.summary
    finally:
        async with pasture.lab.admin() as admin:
            await admin.execute(f"xa rollback {xid}")


async def test_metadata_locks_join_the_tree_and_a_waiting_change_keeps_later_ones_out(knowing: Pasture) -> None:
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(knowing.session()) for _ in range(4)]
        (one, _), (two, second), (three, third), (four, fourth) = sessions
        await hold_row(one, 1)
        await knowing.wait_for(two, second, "update acct set bal = 7 where id = 1")
        await knowing.wait_for(three, third, "alter table acct add column more int")
        await knowing.wait_for(four, fourth, "select count(*) from acct")
        answer = await knowing.tree()
        (root,) = answer.rows
        assert chain_of(root) == [pid for _, pid in sessions]
        change = root.children[0].children[0]
        assert change.wanted_lock == f"EXCLUSIVE metadata lock on {knowing.database}.acct"
        assert change.children[0].wanted_lock == f"SHARED_READ metadata lock on {knowing.database}.acct"
        assert any("at least as long" in warning for warning in answer.warnings)


async def test_a_lock_of_get_lock_is_shown_without_its_name(knowing: Pasture) -> None:
    async with knowing.session() as (holder, first), knowing.session() as (waiter, second):
        await holder.execute("select get_lock('s3cret-name', 5)")
        await knowing.wait_for(waiter, second, "select get_lock('s3cret-name', 60)")
        answer = await knowing.tree()
        (root,) = answer.rows
        assert chain_of(root) == [first, second]
        assert root.children[0].wanted_lock is not None
        assert root.children[0].wanted_lock.endswith("metadata lock on a lock of GET_LOCK")
        assert "s3cret" not in render_value(answer)


async def test_a_global_read_lock_that_stops_writers_is_found(knowing: Pasture) -> None:
    async with knowing.lab.admin() as admin, knowing.session() as (writer, pid):
        await admin.execute("flush tables with read lock")
        locker = int(str(await admin.value("select connection_id()")))
        try:
            await knowing.wait_for(writer, pid, "update acct set bal = 1 where id = 1")
            (root,) = (await knowing.tree()).rows
            assert chain_of(root) == [locker, pid]
        finally:
            await admin.execute("unlock tables")


async def test_a_metadata_wait_that_the_server_does_not_explain_is_told_with_the_line(pasture: Pasture) -> None:
    async with pasture.session() as (holder, _), pasture.session() as (change, pid):
        await hold_row(holder, 1)
        await pasture.wait_for(change, pid, "alter table acct add column more int")
        answer = await pasture.tree()
        assert (answer.rows, answer.summary) == ((), NOBODY_WAITS)
        assert f"1 session ({pid}) waits for a metadata or user lock" in answer.coverage.reasons[0]
        assert MDL_LINE in answer.coverage.reasons[0]


async def test_on_a_quiet_server_no_lock_is_invented(knowing: Pasture) -> None:
    async with knowing.session() as (one, _), knowing.session() as (other, _):
        await hold_row(one, 1)
        await hold_row(other, 2)
        answer = await knowing.tree()
        assert (answer.rows, answer.summary, answer.coverage) == ((), NOBODY_WAITS, WHOLE)


async def test_without_process_row_waits_are_hidden_and_the_grant_is_named(pasture: Pasture) -> None:
    blind = await pasture.lab.create_role()
    async with pasture.session() as (holder, _), pasture.session() as (waiter, pid):
        await hold_row(holder, 1)
        await pasture.wait_for(waiter, pid, "update acct set bal = 7 where id = 1")
        answer = await pasture.tree(role=blind)
        assert answer.rows == ()
        assert not answer.coverage.complete
        assert f"GRANT PROCESS ON *.* TO '{blind}'@'%';" in answer.coverage.reasons[0]


async def test_the_statement_for_mysql_8_gives_on_tables_of_its_columns_what_our_own_does(pasture: Pasture) -> None:
    """MySQL 8 has performance_schema.data_locks and data_lock_waits
    (https://dev.mysql.com/doc/refman/8.4/en/performance-schema-data-lock-waits-table.html); from documentation, never
    run on MySQL. Here two views have their columns.
    """
    views = pasture.database
    async with pasture.lab.admin(views) as admin:
        await admin.execute(
            "create sql security invoker view data_lock_waits as select requesting_trx_id as "
            "REQUESTING_ENGINE_TRANSACTION_ID, requested_lock_id as REQUESTING_ENGINE_LOCK_ID, blocking_trx_id as "
            "BLOCKING_ENGINE_TRANSACTION_ID, blocking_lock_id as BLOCKING_ENGINE_LOCK_ID "
            "from information_schema.innodb_lock_waits"
        )
        await admin.execute(
            "create sql security invoker view data_locks as select lock_id as ENGINE_LOCK_ID, "
            f"'{views}' as OBJECT_SCHEMA, 'acct' as OBJECT_NAME, lock_index as INDEX_NAME, lock_type as LOCK_TYPE, "
            "lock_mode as LOCK_MODE from information_schema.innodb_locks"
        )
        await admin.execute(f"grant select on {views}.* to {pasture.reader}@'%'")
    async with pasture.session() as (holder, _), pasture.session() as (waiter, pid):
        await hold_row(holder, 1)
        await pasture.wait_for(waiter, pid, "update acct set bal = 7 where id = 1")
        async with open_mysql(pasture.lab.target("", pasture.reader)) as db:
            (ours,) = await db.fetch(ROW_WAITS_MARIADB)
            (theirs,) = await db.fetch(ROW_WAITS_MYSQL.replace("performance_schema.", f"{views}."))
        timed = ("wait_s", "blocking_s")
        assert {k: str(v).replace("`", "") for k, v in ours.items() if k not in timed} == {
            k: str(v) for k, v in theirs.items() if k not in timed
        }


# -- preflight and endings -----------------------------------------------------------------------------


async def test_a_reader_as_the_documentation_advises_misses_nothing(pasture: Pasture) -> None:
    answer = await read_preflight(pasture.lab.targets("", pasture.reader), CLOCK)
    assert [row for row in answer.rows if row.status == "missing"] == []
    assert (answer.account, answer.server_role) == (f"'{pasture.reader}'@'%'", "primary")
    assert answer.statements_since is not None
    assert f"{MDL_LINE} -- metadata locks" in answer.to_run
    text = render_value(answer)
    assert all(secret not in text for secret in pasture.lab.passwords.values())
    assert "IDENTIFIED" not in text
    assert "metadata locks" in render_result(text, {})


async def test_the_grants_that_it_gives_mend_what_is_missing(pasture: Pasture) -> None:
    blind = await pasture.lab.create_role()
    targets = pasture.lab.targets("", blind)
    before = await read_preflight(targets, CLOCK)
    assert {row.name for row in before.rows if row.status == "missing"} == {"other sessions", "statement statistics"}
    assert before.server_role == "unknown"
    grants = [line for line in before.to_run if line.startswith("GRANT")]
    assert grants == [
        f"GRANT PROCESS ON *.* TO '{blind}'@'%'; -- other sessions",
        f"GRANT SELECT ON performance_schema.* TO '{blind}'@'%'; -- statement statistics",
    ]
    async with pasture.lab.admin() as admin:
        for line in grants:
            await admin.execute(line)
    after = await read_preflight(targets, CLOCK)
    assert [row.name for row in after.rows if row.status == "missing"] == []


@pytest.mark.service("mariadb")
def test_where_performance_schema_is_off_everything_still_answers() -> None:
    lab = start_mariadb({"performance-schema": "OFF"})

    async def look() -> None:
        pasture = await make_pasture(lab)
        answer = await read_preflight(lab.targets("", pasture.reader), CLOCK)
        assert [row.name for row in answer.rows if row.status == "missing"] == ["performance_schema"]
        assert answer.server_role == "unknown"
        async with pasture.session() as (holder, first), pasture.session() as (waiter, second):
            await hold_row(holder, 1)
            await pasture.wait_for(waiter, second, "update acct set bal = 7 where id = 1")
            (root,) = (await pasture.tree()).rows
            assert chain_of(root) == [first, second]
            assert of(await pasture.running(), first).state == "idle in transaction"

    try:
        asyncio.run(look())
    finally:
        stop_mariadb(lab)


@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.parametrize("approver", [None, Yes()], ids=["as wired", "even approved"])
async def test_d22_nothing_is_ended_and_what_would_have_been_is_named(
    pasture: Pasture, name: str, approver: Yes | None
) -> None:
    """A button ended sessions in read-only mode; https://github.com/sosedoff/pgweb/pull/859."""
    strong = await pasture.lab.create_role("process on *.*", "connection admin on *.*")
    async with pasture.session() as (session, pid):
        pasture.begin(session, pid, "select sleep(60), 's3cret-literal'")
        await pasture.until(
            "select count(*) from information_schema.processlist where id = %s and state = 'User sleep'", (pid,)
        )
        row = of(await pasture.running(), pid)
        targets = pasture.lab.targets("", strong)
        error = await ask(targets, name, {"pid": pid, "expected_query_id": row.query_id}, approver=approver)
        assert error["code"] == "approval_required"
        message = str(error["message"])
        assert f"session {pid} of target 'lab' (user {pasture.app}" in message
        assert "it is the session that was meant" in message
        assert "nothing was ended" in message
        assert "s3cret" not in json.dumps(error)
        other = await ask(targets, name, {"pid": pid, "expected_query_id": "1"}, approver=approver)
        assert "it executes something else by now" in str(other["message"])
        gone = await ask(targets, name, {"pid": 2**31}, approver=approver)
        assert "there is no session" in str(gone["message"])
        async with pasture.lab.admin() as admin:
            (found,) = await admin.execute(
                "select state, query_id from information_schema.processlist where id = %s", (pid,)
            )
        assert (found[0], str(found[1])) == ("User sleep", row.query_id)
        assert not pasture.tasks[pid].done()
