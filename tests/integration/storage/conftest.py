"""A Postgres server for tests of what only that storage has; each test makes its own database and role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from psycopg import sql

from bot.storage import open_store
from bot.storage.base import Store
from tests.servers.postgres import FIRST, SYSTEM, Lab, start_lab, stop_lab


@dataclass(frozen=True, kw_only=True)
class Home:
    """A database that belongs to a role made for Hermod, as docs/storage.md has it."""

    lab: Lab
    database: str
    role: str

    @property
    def url(self) -> str:
        return self.lab.url(self.database, self.role)

    @property
    def secret(self) -> str:
        return self.lab.passwords[self.role]

    async def run_sql(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement as the superuser and return its rows, if it has any."""
        async with self.lab.admin(self.database) as admin:
            cursor = await admin.execute(statement.encode())
            return [tuple(row) for row in await cursor.fetchall()] if cursor.description else []


@pytest.fixture(scope="session", params=[FIRST, SYSTEM])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A server of each version there is."""
    started = start_lab(request.param, preload=False, settings={"max_connections": "120"})
    yield started
    stop_lab(started)


@pytest.fixture(scope="session", params=[FIRST])
def any_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    started = start_lab(request.param, preload=False, settings={"max_connections": "120"})
    yield started
    stop_lab(started)


async def make_home(lab: Lab) -> Home:
    database, role = await lab.create_database(extension=False), await lab.create_role()
    async with lab.admin() as admin:
        statement = sql.SQL("ALTER DATABASE {} OWNER TO {}")
        await admin.execute(statement.format(sql.Identifier(database), sql.Identifier(role)))
    return Home(lab=lab, database=database, role=role)


@pytest.fixture
async def home(any_lab: Lab) -> Home:
    return await make_home(any_lab)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
