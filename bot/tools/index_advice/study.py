"""From statements to queries with candidates: planned on the target, taken apart, nothing tried yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_core.errors import ToolFailed
from bot.tools.index_advice.answer import Unhelped
from bot.tools.index_advice.candidates import Move, build_moves
from bot.tools.index_advice.catalog import Table, fetch_tables
from bot.tools.index_advice.choose import Query
from bot.tools.index_advice.statements import Statement, write_select
from bot.tools.index_advice.uses import TableUse, read_uses
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly
from bot.tools.slow_queries.explain_nodes import PlanNode, parse_plan
from bot.tools.slow_queries.explain_prepare import Prepared, plan_prepared, prepare_statement
from bot.tools.slow_queries.failures import quote_name
from bot.tools.slow_queries.plan import list_relations
from bot.tools.slow_queries.redact_sql import redact_sql

_SAVE = f"SAVEPOINT hermod_study {OWN_MARK}".encode()
_BACK = f"ROLLBACK TO SAVEPOINT hermod_study {OWN_MARK}".encode()
_SYSTEM = frozenset({"pg_catalog", "information_schema", "pg_toast"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Studied:
    """One statement, understood. ``cost``: of its plan as things are."""

    query: Query
    uses: tuple[TableUse, ...]
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """All of them. ``refused``: those that have no plan here."""

    studied: tuple[Studied, ...]
    refused: tuple[Unhelped, ...]
    tables: Mapping[tuple[str, str], Table]
    search_path: str


async def study_statements(db: ReadOnly, statements: Sequence[Statement], *, strict: bool) -> Study:
    """Plan every statement and find what could be tried for it.

    Args:
        db: a connection with the role's own search path.
        statements: what to look at.
        strict: fail with the first statement that has no plan, instead of listing it.

    Raises:
        ToolFailed: the target cannot be asked; with ``strict`` also what ``prepare_statement`` raises.
    """
    planned: list[tuple[Statement, Prepared, object]] = []
    refused: list[Unhelped] = []
    for statement in statements:
        await db.execute(_SAVE)
        try:
            select = write_select(statement.sql)
            if select is None:
                raise ToolFailed("it reads no table", code="unsupported", fix="pass a statement that reads")
            prepared = await prepare_statement(db, select)
            planned.append((statement, prepared, await plan_prepared(db, prepared)))
        except ToolFailed as failure:
            if strict:
                raise
            if db.connection.closed:
                raise
            await db.execute(_BACK)
            refused.append(_refuse(statement, failure.message.partition(": ")[2] or failure.message))
    relations = dict.fromkeys(pair for _, _, body in planned for pair in list_relations(body))
    tables = await fetch_tables(db, [pair for pair in relations if pair[0] not in _SYSTEM])
    studied = tuple(_study(statement, prepared, parse_plan(body), tables) for statement, prepared, body in planned)
    row = await db.fetch_one(f"select {OWN_MARK} pg_catalog.current_setting('search_path') as path")
    return Study(
        studied=studied,
        refused=tuple(refused),
        tables=tables,
        search_path='"$user", public' if row is None else str(row["path"]),
    )


def _study(statement: Statement, prepared: Prepared, top: PlanNode, tables: Mapping[tuple[str, str], Table]) -> Studied:
    uses = read_uses(top, tables, statement.sql)
    moves: dict[Move, None] = {}
    for use in uses:
        moves |= dict.fromkeys(build_moves(use))
    names = {use.alias: f"{quote_name(use.table.schema)}.{quote_name(use.table.name)}" for use in uses}
    query = Query(
        fingerprint=statement.fingerprint,
        sql=statement.sql,
        prepared=prepared,
        tables=frozenset(names.values()),
        aliases=tuple(names.items()),
        moves=tuple(moves),
        weight=float(statement.calls or 1),
        calls=statement.calls,
    )
    return Studied(query=query, uses=uses, cost=top.number("Total Cost"))


def _refuse(statement: Statement, reason: str) -> Unhelped:
    return Unhelped(fingerprint=statement.fingerprint, sql=redact_sql(statement.sql), reason=reason)
