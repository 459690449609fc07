"""The implementations that the suite is run on. Another database is one more line in ``BACKENDS``."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from bot.storage import open_store
from tests.servers.postgres import Lab, start_lab, stop_lab

_HANG_UP = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE datname = current_database() AND pid <> pg_backend_pid()"""
# Rows that refer to others go first; a table whose rows were many is made anew, or the next test would wade through.
_EMPTY = """SELECT format(CASE WHEN pg_table_size(oid) > 1000000 THEN 'TRUNCATE %I CASCADE' ELSE 'DELETE FROM %I' END,
    relname)
  FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'schema_version'
  ORDER BY EXISTS (SELECT 1 FROM pg_constraint WHERE confrelid = pg_class.oid),
    relname = 'thread' OR relname = 'schedule'"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """``build_url`` names a fresh, empty database; ``build_ready_url`` one that a store was opened on before.

    ``run_sql`` changes it behind the Store's back, ``measure_bytes`` tells how large it is, ``drop`` removes it.
    """

    name: str
    build_url: Callable[[Path], str]
    build_ready_url: Callable[[Path], str]
    run_sql: Callable[[str, str], None]
    measure_bytes: Callable[[str], int]
    drop: Callable[[str], None]


def _build_sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder}/hermod.db"


def _run_sqlite(url: str, statement: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10)) as connection:
        connection.execute(statement)
        connection.commit()


def _measure_sqlite(url: str) -> int:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        (row,) = connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchall()
    return int(row[0])


def _keep(_: str) -> None:
    """Its folder is the test's own."""


SQLITE = Backend(
    name="sqlite",
    build_url=_build_sqlite_url,
    build_ready_url=_build_sqlite_url,
    run_sql=_run_sqlite,
    measure_bytes=_measure_sqlite,
    drop=_keep,
)


class _Server:
    """Databases on one Postgres server. One that a test is done with is emptied, and is the next test's."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._numbers = itertools.count()
        self._free: list[str] = []

    def build_url(self, _: Path) -> str:
        name = f"store_{next(self._numbers)}"
        _run_postgres(self._lab.server.url(), f"CREATE DATABASE {name}")
        return self._lab.server.url(name)

    def build_ready_url(self, folder: Path) -> str:
        if self._free:
            return self._free.pop()
        url = self.build_url(folder)
        asyncio.run(_make_ready(url))
        return url

    def empty(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(_HANG_UP)
            for (statement,) in connection.execute(_EMPTY).fetchall():
                connection.execute(statement)
        self._free.append(url)


async def _make_ready(url: str) -> None:
    store = open_store(url)
    await store.open()
    await store.close()


@contextmanager
def start_postgres() -> Iterator[Backend]:
    """A server of its own."""
    lab = start_lab("first", settings={"max_connections": "120"}, preload=False)
    try:
        server = _Server(lab)
        yield Backend(
            name="postgres",
            build_url=server.build_url,
            build_ready_url=server.build_ready_url,
            run_sql=_run_postgres,
            measure_bytes=_measure_postgres,
            drop=server.empty,
        )
    finally:
        stop_lab(lab)


def _measure_postgres(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class"
            " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        ).fetchone()
    assert row is not None
    return int(row[0])


def _run_postgres(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


BACKENDS = (
    pytest.param("sqlite", id="sqlite"),
    pytest.param("postgres", id="postgres", marks=pytest.mark.service("postgres")),
)
