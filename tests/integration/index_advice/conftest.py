"""Servers and a warehouse for index advice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from agent_core.context import SystemClock
from bot.tools.index_advice.advise import Question, recommend_indexes
from bot.tools.index_advice.answer import IndexReport
from bot.tools.index_advice.scratch import ScratchLimits
from bot.tools.targets import Target, Targets
from tests.integration.index_advice.twenty import ANALYZE, SCHEMA
from tests.integration.slow_queries.conftest import MemorySnapshots, store
from tests.servers.postgres import FIRST, Lab, any_postgres, postgres, start_lab, stop_lab

__all__ = ["MemorySnapshots", "any_postgres", "postgres", "store"]

# What it knows of its tables changes by nobody's hand but a test's.
_QUIET = {"autovacuum": "off"}
_SYSTEM_WITH_HYPOPG = pytest.param(
    "system", marks=[pytest.mark.service("system-postgres"), pytest.mark.service("hypopg")]
)


@pytest.fixture(scope="session", params=[_SYSTEM_WITH_HYPOPG])
def hypopg_postgres(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The system's server, for which there is a package of HypoPG."""
    lab = start_lab(request.param, settings=_QUIET)
    yield lab
    stop_lab(lab)


@pytest.fixture(scope="session", params=[FIRST])
def plain_postgres(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The embedded server, which has no HypoPG."""
    lab = start_lab(request.param, settings=_QUIET)
    yield lab
    stop_lab(lab)


CLOCK = SystemClock()
EQUALITY = "select * from orders where customer_id = $1"
SCRATCH = ScratchLimits()


async def ask(
    target: Target, store: MemorySnapshots, *, scratch: ScratchLimits | None = SCRATCH, **question: object
) -> IndexReport:
    """Ask the tool; ``question`` are fields of ``Question``."""
    asked = Question(**question)  # type: ignore[arg-type] # each test passes fields of it
    return await recommend_indexes(Targets([target]), store, CLOCK, asked, scratch=scratch)


def readable(target: Target) -> Target:
    """The same target where the operator lets rows be read."""
    return replace(target, allow_sql=True)


_warehouses: dict[str, tuple[str, str]] = {}


async def open_warehouse(lab: Lab, *, hypopg: bool) -> tuple[str, Target]:
    """The twenty queries' tables, once a server, and a target on them as a reader. No test may change them."""
    known = _warehouses.get(str(lab.server.folder))
    if known is None:
        database, reader = await fill_warehouse(lab, hypopg=hypopg)
        known = _warehouses[str(lab.server.folder)] = (database, reader)
    database, reader = known
    return database, lab.targets(database, reader)["lab"]


async def fill_warehouse(lab: Lab, *, hypopg: bool) -> tuple[str, str]:
    """Make a database with the twenty queries' tables; returns its name and a reader's."""
    database, reader = await lab.create_database(), await lab.create_reader()
    async with lab.admin(database) as admin:
        if hypopg:
            await admin.execute("create extension hypopg")
        for statement in SCHEMA.split(";"):
            if statement.strip():
                await admin.execute(statement.encode())
        for table in ANALYZE:
            await admin.execute(f"vacuum analyze {table}".encode())
        await admin.execute(f"grant select on all tables in schema public to {reader}".encode())
    return database, reader
