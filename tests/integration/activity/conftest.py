"""The servers, and lock chains on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psycopg
import pytest
from psycopg.rows import TupleRow

from agent_core.context import SystemClock
from bot.tools.activity.answer import LockedSession
from tests.servers.mariadb import mariadb
from tests.servers.postgres import FIRST, SYSTEM, Lab, any_postgres, bare_postgres, postgres, start_lab, stop_lab

__all__ = ["any_postgres", "bare_postgres", "mariadb", "postgres"]

CLOCK = SystemClock()
PATIENCE_S = 30.0

Connection = psycopg.AsyncConnection[TupleRow]


@pytest.fixture(scope="session", params=[FIRST, SYSTEM])
def roomy_postgres(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A server that allows prepared transactions and parallel workers."""
    settings = {
        "max_prepared_transactions": "5",
        "max_parallel_workers_per_gather": "2",
        "max_worker_processes": "8",
        "deadlock_timeout": "60s",  # so that a deadlock stays to be looked at
        "autovacuum": "off",
    }
    lab = start_lab(request.param, settings=settings)
    yield lab
    stop_lab(lab)


@dataclass(frozen=True, kw_only=True)
class Yard:
    """A database with a table ``acct`` of nine rows, and an application's sessions that lock them.

    Args:
        lab: the server.
        database: its database.
        app: the application's role.
        reader: Hermod's role, with pg_monitor.
    """

    lab: Lab
    database: str
    app: str
    reader: str
    tasks: dict[Connection, asyncio.Task[object]] = field(default_factory=dict)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """A session of the application; what it still waits for at the end is given up."""
        async with self.lab.connect(self.database, self.app) as connection:
            try:
                yield connection
            finally:
                await self._give_up(connection)
            pid = connection.info.backend_pid
        await self.until("select not exists(select from pg_stat_activity where pid = %s)", (pid,))

    async def wait_for(self, connection: Connection, statement: str) -> None:
        """Run a statement that has to wait for a lock, and return once the server says that it does."""
        pid = connection.info.backend_pid
        self.begin(connection, statement)
        await self.until(
            "select exists(select from pg_locks where pid = %s and not granted and (%s < 14 or to_jsonb(pg_locks) ->> "
            "'waitstart' is not null))",
            (pid, self.lab.major),
        )

    async def until(self, query: str, parameters: tuple[object, ...] = ()) -> None:
        """Ask the server until it says true."""
        async with asyncio.timeout(PATIENCE_S), self.lab.admin(self.database) as admin:
            while True:
                row = await (await admin.execute(query.encode(), parameters)).fetchone()
                if row is not None and row[0]:
                    return
                await asyncio.sleep(0.02)

    def begin(self, connection: Connection, statement: str) -> None:
        """Run a statement without waiting for its end."""

        async def run() -> object:
            return await connection.execute(statement.encode())

        self.tasks[connection] = asyncio.create_task(run())

    async def _give_up(self, connection: Connection) -> None:
        task = self.tasks.pop(connection, None)
        if task is not None:
            task.cancel()  # psycopg cancels on the server, too
            await asyncio.gather(task, return_exceptions=True)


async def make_yard(lab: Lab) -> Yard:
    database, reader, app = await lab.create_database(), await lab.create_reader(), await lab.create_role()
    async with lab.admin(database) as admin:
        await admin.execute("create table acct(id int primary key, owner text, bal int)")
        await admin.execute("insert into acct select g, 'nobody', 0 from generate_series(1, 9) g")
        await admin.execute("grant all on acct to public")
    return Yard(lab=lab, database=database, reader=reader, app=app)


@pytest.fixture
async def yard(postgres: Lab) -> Yard:
    """A yard on each ordinary server."""
    return await make_yard(postgres)


@pytest.fixture
async def roomy_yard(roomy_postgres: Lab) -> Yard:
    """A yard on servers with prepared transactions and parallel workers."""
    return await make_yard(roomy_postgres)


def chain_of(row: LockedSession) -> list[int]:
    """The numbers from a root down, where everybody has at most one behind."""
    assert len(row.children) <= 1
    return [row.pid, *(pid for child in row.children for pid in chain_of(child))]


def everybody(rows: tuple[LockedSession, ...], choose: Callable[[LockedSession], object]) -> list[object]:
    """One thing of each session of the trees."""
    return [thing for row in rows for thing in (choose(row), *everybody(row.children, choose))]
