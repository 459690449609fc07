"""Trying indexes on a copy: built, planned with, measured, and rolled back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from agent_core.errors import ToolFailed
from bot.tools.index_advice.choose import Built, PlanCost, Query
from bot.tools.index_advice.conditions import Comparison
from bot.tools.index_advice.hypothetical import plan_cost
from bot.tools.index_advice.scratch import Copy
from bot.tools.index_advice.shape import IndexShape
from bot.tools.slow_queries.explain_find import quote_identifier as quote
from bot.tools.slow_queries.explain_prepare import ParameterValue, plan_prepared

_RUNS = 3
_COUNTS = frozenset({"bigint", "integer", "smallint", "numeric"})
_COUNT = 10


class ScratchBench:
    """A copy on which indexes are built and dropped inside one transaction that is never committed."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._number = 0

    async def plan(self, query: Query) -> PlanCost | None:
        """See ``Bench``."""
        db = self._copy.db
        await db.execute(b"savepoint hermod_cost")
        try:
            return await plan_cost(db, query)
        except ToolFailed:
            await db.execute(b"rollback to savepoint hermod_cost")
            return None

    async def add(self, shape: IndexShape) -> Built | None:
        """See ``Bench``."""
        import psycopg

        db = self._copy.db
        self._number += 1
        name = f"hermod_advised_{self._number}"
        await db.execute(b"savepoint hermod_index")
        try:
            await db.execute(shape.build_ddl(name).encode())
            if not all(key.is_column for key in shape.keys):
                # An expression has statistics only once its index was analysed; without them its rows are guessed.
                await db.execute(f"analyze {shape.relation}".encode())
        except psycopg.Error:
            if db.connection.closed:
                raise
            await db.execute(b"rollback to savepoint hermod_index")
            return None
        handle = f"{quote(shape.schema)}.{name}"
        row = await db.fetch_one("select pg_catalog.pg_relation_size(%s::text::regclass)::int8 as size", (handle,))
        size = row["size"] if row is not None else 0
        share = self._copy.shares.get((shape.schema, shape.table), 1.0)
        whole = round(size / share) if isinstance(size, int) and share > 0 else 0
        return Built(shape=shape, name=name, handle=handle, size_bytes=whole)

    async def remove(self, built: Built) -> None:
        """See ``Bench``."""
        await self._copy.db.execute(f"drop index {built.handle}".encode())

    @asynccontextmanager
    async def without(self, built: Sequence[Built]) -> AsyncIterator[None]:
        """Take indexes away for a while."""
        import psycopg

        db = self._copy.db
        await db.execute(b"savepoint hermod_without")
        for one in built:
            await self.remove(one)
        try:
            yield
        finally:
            with suppress(psycopg.Error):
                await db.execute(b"rollback to savepoint hermod_without")

    async def choose_values(self, query: Query, comparisons: Sequence[Comparison]) -> tuple[ParameterValue, ...] | None:
        """Values for the parameters that rows of the copy really have; None when one cannot be found."""
        by_number = {c.parameter: c for c in comparisons if c.parameter is not None}
        values: list[ParameterValue] = []
        for number, kind in enumerate(query.prepared.types, 1):
            comparison = by_number.get(number)
            if comparison is not None and comparison.kind in ("equal", "range"):
                values.append(await self._typical(query, comparison))
            elif comparison is None and kind in _COUNTS:
                values.append(_COUNT)  # of a LIMIT, or in an expression
            else:
                return None
        return tuple(values)

    async def _typical(self, query: Query, comparison: Comparison) -> str | None:
        """The value of the row in the middle."""
        db = self._copy.db
        relation = next((name for alias, name in query.aliases if alias == comparison.alias), "")
        order = f"order by {comparison.key} " if comparison.kind == "range" else ""
        row = await db.fetch_one(
            f"select ({comparison.key})::text as value from {relation} where {comparison.key} is not null "
            f"{order}offset (select count(*) * 9 / 10 from {relation}) limit 1"
        )
        return None if row is None or row["value"] is None else str(row["value"])

    async def measure(self, query: Query, values: Sequence[ParameterValue] | None) -> float | None:
        """Execute a reading statement on the copy and return the best of three times, in seconds; None if it fails."""
        import psycopg

        db = self._copy.db
        await db.execute(b"savepoint hermod_run")
        best: float | None = None
        try:
            for _ in range(_RUNS):
                body = await plan_prepared(db, query.prepared, values, again=True, run=True)
                head = body[0] if isinstance(body, list) and body else {}
                taken = head.get("Execution Time") if isinstance(head, dict) else None
                if not isinstance(taken, (int, float)):
                    return None
                best = taken / 1000 if best is None else min(best, taken / 1000)
        except (ToolFailed, psycopg.Error):
            if db.connection.closed:
                raise
            await db.execute(b"rollback to savepoint hermod_run")
            return None
        return best
