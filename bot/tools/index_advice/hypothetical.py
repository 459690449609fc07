"""Trying indexes with HypoPG: the target's own planner plans as if they were there. Nothing is built.

HypoPG keeps hypothetical indexes in the memory of the session, also inside a READ ONLY transaction, and they outlive
a ROLLBACK: they are taken away when the bench closes. A statement that is prepared already keeps its old plan, so it
is prepared again after every change. See https://hypopg.readthedocs.io/en/rel1_stable/usage.html.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from agent_core.errors import ToolFailed
from bot.tools.index_advice.choose import Built, PlanCost, Query
from bot.tools.index_advice.shape import IndexShape
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly
from bot.tools.slow_queries.explain_find import quote_identifier
from bot.tools.slow_queries.explain_nodes import parse_plan
from bot.tools.slow_queries.explain_prepare import plan_prepared

if TYPE_CHECKING:
    from psycopg import Error

_SAVE = f"SAVEPOINT hermod_index {OWN_MARK}".encode()
_BACK = f"ROLLBACK TO SAVEPOINT hermod_index {OWN_MARK}".encode()

_OPEN = f"SAVEPOINT hermod_bench {OWN_MARK}".encode()
_CLOSE = f"ROLLBACK TO SAVEPOINT hermod_bench {OWN_MARK}".encode()

_FIND = f"""select {OWN_MARK} n.nspname::text as schema, e.extversion as version
from pg_catalog.pg_extension e join pg_catalog.pg_namespace n on n.oid = e.extnamespace
where e.extname = 'hypopg' and pg_catalog.has_schema_privilege(n.oid, 'usage')"""


class HypotheticalBench:
    """The target itself, with indexes that only its planner sees. Made by ``open_hypothetical``."""

    def __init__(self, db: ReadOnly, schema: str) -> None:
        self._db = db
        self._schema = quote_identifier(schema)

    async def plan(self, query: Query) -> PlanCost | None:
        """See ``Bench``."""
        return await plan_cost(self._db, query)

    async def add(self, shape: IndexShape) -> Built | None:
        """See ``Bench``."""
        import psycopg

        db = self._db
        await db.execute(_SAVE)
        try:
            cursor = await db.execute(
                f"select {OWN_MARK} indexrelid::int8 as oid, indexname::text as name "
                f"from {self._schema}.hypopg_create_index(%s)".encode(),
                (shape.build_ddl(),),
            )
            row = await cursor.fetchone()
        except psycopg.Error as error:
            await undo_refusal(db, error)
            return None
        if row is None:
            return None
        oid = str(row["oid"])
        size = await db.fetch_one(
            f"select {OWN_MARK} {self._schema}.hypopg_relation_size(%s::oid)::int8 as size", (int(oid),)
        )
        size_bytes = size["size"] if size is not None else 0
        known = size_bytes if isinstance(size_bytes, int) else 0
        return Built(shape=shape, name=str(row["name"]), handle=oid, size_bytes=known)

    async def remove(self, built: Built) -> None:
        """See ``Bench``."""
        await self._db.fetch(f"select {OWN_MARK} {self._schema}.hypopg_drop_index(%s::oid)", (int(built.handle),))

    async def reset(self) -> None:
        """Take all hypothetical indexes away."""
        await self._db.fetch(f"select {OWN_MARK} {self._schema}.hypopg_reset()")


@asynccontextmanager
async def open_hypothetical(db: ReadOnly) -> AsyncIterator[HypotheticalBench | None]:
    """Yield a bench on the target; None when HypoPG is not installed there, or not usable."""
    import psycopg

    row = await db.fetch_one(_FIND)
    if row is None:
        yield None
        return
    bench = HypotheticalBench(db, str(row["schema"]))
    await bench.reset()
    await db.execute(_OPEN)
    try:
        yield bench
    finally:
        # Behind a pooler the session goes on after us; a broken connection takes them with it.
        if not db.connection.closed:
            with suppress(ToolFailed, psycopg.Error):
                await db.execute(_CLOSE)  # an error or a cancelled call may have aborted the transaction
                await bench.reset()


async def plan_cost(db: ReadOnly, query: Query) -> PlanCost | None:
    """The cost of a plan that is made anew; None when the server sent none.

    Raises:
        ToolFailed: the server refuses the statement.
    """
    try:
        top = parse_plan(await plan_prepared(db, query.prepared, again=True))
    except ValueError:
        return None
    names = frozenset(name for node in top.walk() if (name := node.text("Index Name")))
    return PlanCost(cost=top.number("Total Cost"), indexes=names)


async def undo_refusal(db: ReadOnly, error: Error) -> None:
    """Make the transaction usable again after the server refused an index; other errors are passed on.

    Raises:
        psycopg.Error: the connection is gone.
    """
    if db.connection.closed:
        raise error
    await db.execute(_BACK)
