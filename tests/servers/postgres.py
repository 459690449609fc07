"""A real Postgres for tests: started once a session, one database a test.

``postgres`` runs a test on the first server found (the embedded one) and on the system's, which is an older
version; ``any_postgres`` only on the first.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow

from bot.demo.postgres import EmbeddedPostgres, find_binaries
from bot.tools.targets import Target, Targets

_numbers = itertools.count(1)

FIRST = pytest.param("first", marks=pytest.mark.service("postgres"))
SYSTEM = pytest.param("system", marks=pytest.mark.service("system-postgres"))


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A running server. ``passwords`` are all that ever exist on it; no output may hold one."""

    server: EmbeddedPostgres
    major: int
    passwords: dict[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def admin(self, database: str = "postgres") -> AsyncIterator[psycopg.AsyncConnection[TupleRow]]:
        """A superuser's connection in autocommit."""
        connection = await psycopg.AsyncConnection.connect(self.server.url(database), autocommit=True)
        async with connection:
            yield connection

    async def create_database(self, *, extension: bool = True) -> str:
        """Make an empty database; with the extension unless told otherwise."""
        name = f"lab_{next(_numbers)}"
        async with self.admin() as admin:
            await admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        if extension:
            async with self.admin(name) as admin:
                await admin.execute("create extension pg_stat_statements")
        return name

    async def create_role(self, options: LiteralString = "", *, grant: str | None = None) -> str:
        """Make a role that may log in, with a password of its own."""
        name = f"role_{next(_numbers)}"
        secret = self.passwords[name] = f"s3cret-{name}-pass"
        async with self.admin() as admin:
            statement = sql.SQL("create role {} login " + options + " password {}")
            await admin.execute(statement.format(sql.Identifier(name), sql.Literal(secret)))
            if grant is not None:
                await admin.execute(sql.SQL("grant {} to {}").format(sql.Identifier(grant), sql.Identifier(name)))
        return name

    async def create_reader(self) -> str:
        """Make a role as the documentation advises: read-only, with ``pg_monitor``."""
        return await self.create_role(grant="pg_monitor")

    async def find_checkpointer(self) -> int | None:
        """The process of which a server has another one after a crash; None while nobody can connect."""
        try:
            async with self.admin() as admin:
                cursor = await admin.execute("select pid from pg_stat_activity where backend_type = 'checkpointer'")
                row = await cursor.fetchone()
        except psycopg.OperationalError:
            return None
        return None if row is None else int(row[0])

    def url(self, database: str, role: str) -> str:
        """The address for a role made here."""
        return self.server.url(database, user=role, password=self.passwords[role])

    def targets(
        self,
        database: str,
        role: str,
        name: str = "lab",
        *,
        allow_sql: bool = False,
        accept_risks: Iterable[str] | None = None,
    ) -> Targets:
        """One target for a role made here. Of the superuser, whom no tool takes otherwise, the risk is accepted."""
        risks = (("superuser",) if role == "postgres" else ()) if accept_risks is None else accept_risks
        return Targets([Target.from_url(name, self.url(database, role), allow_sql=allow_sql, accept_risks=risks)])

    @asynccontextmanager
    async def connect(self, database: str, role: str) -> AsyncIterator[psycopg.AsyncConnection[TupleRow]]:
        """A role's connection in autocommit, without prepared statements."""
        connection = await psycopg.AsyncConnection.connect(
            self.url(database, role), autocommit=True, prepare_threshold=None, application_name="lab-app"
        )
        async with connection:
            yield connection


def start_lab(kind: str, *, settings: Mapping[str, str] | None = None, preload: bool = True) -> Lab:
    """Start a server from outside an event loop; stop it with ``stop_lab``."""
    binaries = find_binaries() if kind == "first" else find_binaries(source="system")
    libraries = ("pg_stat_statements",) if preload else ()
    server = EmbeddedPostgres(binaries=binaries, preload=libraries, settings=settings)
    asyncio.run(server.start())
    return Lab(server=server, major=binaries.major, passwords={"postgres": server.password})


def stop_lab(lab: Lab) -> None:
    """Stop the server and remove what it wrote."""
    asyncio.run(lab.server.stop())


@pytest.fixture(scope="session", params=[FIRST, SYSTEM])
def postgres(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A server with pg_stat_statements loaded, of each version there is."""
    lab = start_lab(request.param)
    yield lab
    stop_lab(lab)


@pytest.fixture(scope="session", params=[FIRST])
def any_postgres(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A server with pg_stat_statements loaded."""
    lab = start_lab(request.param)
    yield lab
    stop_lab(lab)


@pytest.fixture(scope="session", params=[FIRST])
def bare_postgres(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A server that has loaded no library."""
    lab = start_lab(request.param, preload=False)
    yield lab
    stop_lab(lab)
