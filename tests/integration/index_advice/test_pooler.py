"""Index advice through a real PgBouncer: the session goes on after us, and must not plan with what we imagined."""

from __future__ import annotations

import asyncio
import contextlib

import psycopg
import pytest

from agent_core.context import SystemClock
from bot.tools.index_advice.advise import Question, recommend_indexes
from bot.tools.index_advice.answer import IndexReport
from tests.integration.index_advice.conftest import MemorySnapshots, open_warehouse
from tests.servers.pgbouncer import Pooler, run_pooler
from tests.servers.postgres import Lab

CREATING = "select 1 from pg_stat_activity where query like '%hypopg_create_index%' and pid <> pg_backend_pid()"
pytestmark = pytest.mark.service("pgbouncer")


async def count_imagined(pooler: Pooler, database: str, role: str) -> tuple[object, ...] | None:
    """Hypothetical indexes and prepared statements in the one session that the pooler has."""
    connection = await psycopg.AsyncConnection.connect(
        pooler.url(database, role), autocommit=True, prepare_threshold=None
    )
    async with connection:
        cursor = await connection.execute(
            "select (select count(*) from hypopg()), "
            "(select count(*) from pg_prepared_statements where name like 'hermod%')"
        )
        return await cursor.fetchone()


@pytest.mark.parametrize("cancelled", [False, True])
async def test_nothing_imagined_stays_in_a_session_of_a_pooler(
    hypopg_postgres: Lab, store: MemorySnapshots, cancelled: bool
) -> None:
    database, target = await open_warehouse(hypopg_postgres, hypopg=True)
    with run_pooler(hypopg_postgres) as pooler:
        targets = pooler.targets(database, target.user)
        question = Question(sql="select * from orders where customer_id = $1")

        def begin() -> asyncio.Task[IndexReport]:
            return asyncio.create_task(recommend_indexes(targets, store, SystemClock(), question, scratch=None))

        if cancelled:
            async with hypopg_postgres.admin(database) as admin, asyncio.timeout(60):
                in_the_midst = False
                while not in_the_midst:  # a call may be over before it is seen to create one
                    call = begin()
                    while not call.done():
                        cursor = await admin.execute(CREATING)
                        if await cursor.fetchone() is not None:
                            break
                    in_the_midst = call.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await call
            assert call.cancelled()
        else:
            assert (await begin()).rows
        assert await count_imagined(pooler, database, target.user) == (0, 0)
