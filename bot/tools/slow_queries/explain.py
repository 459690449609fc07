"""``explain_query``: the plan of a statement, which is never run.

The statement goes through PREPARE over the one-statement protocol first: the server then has said itself that it
is exactly one, and of a kind that has a plan. Only after that EXPLAIN sees it, without ANALYZE, in a READ ONLY
transaction that is rolled back.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly, open_read_only
from bot.tools.slow_queries.failures import explain_error, quote_name
from bot.tools.slow_queries.plan import PlanLine, list_relations, read_plan
from bot.tools.slow_queries.redact_sql import redact_message, redact_sql
from bot.tools.slow_queries.statement_check import take_statement
from bot.tools.targets import Target, Targets

if TYPE_CHECKING:
    from psycopg import Error

STATEMENT_TIMEOUT_S = 10.0
"""How long planning may take on the server, in seconds."""

_GENERIC_PLAN_SINCE = 160_000
_PREPARED = "hermod_statement"
_PREPARE = f"PREPARE {_PREPARED} {OWN_MARK} AS "
_RELATION = re.compile(r"permission denied for (?:table|view|materialized view|foreign table|relation) (\S+)")

# SQLSTATE classes whose messages are about the statement that was passed in.
_STATEMENT_CLASSES = ("42", "22", "0A", "21", "3F")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """The envelope. ``rows`` are the plan's nodes from the top; ``plan_kind`` says what the plan holds for."""

    ok: Literal[True] = True
    target: str
    engine: str
    engine_version: str
    source: str
    sql: str
    plan_kind: Literal["generic", "literal"]
    rows: tuple[PlanLine, ...]
    findings: tuple[str, ...]
    total_cost: float
    estimated_rows: int
    left_out: int
    warnings: tuple[str, ...]
    took_ms: float


async def explain_statement(targets: Targets, clock: Clock, *, sql: str, target: str | None = None) -> QueryPlan:
    """Plan ``sql`` on a target.

    Raises:
        ToolFailed: with one of the codes in ``docs/tools.md``; a parse error says where in ``sql`` it is.
    """
    began = clock.monotonic()
    where = targets.resolve(target)
    where.require("postgresql", tool="explain_query")
    statement, has_parameters = take_statement(sql)
    async with open_read_only(where, own_queries=False, statement_timeout_s=STATEMENT_TIMEOUT_S) as db:
        await _prepare(db, statement)
        generic = has_parameters and db.version_num >= _GENERIC_PLAN_SINCE
        body = await _explain(db, statement, generic=generic, parameters=has_parameters)
        try:
            plan = read_plan(body, await _fetch_table_rows(db, body))
        except ValueError as error:
            raise ToolFailed(f"target {where.name!r}: {error}", code="failed") from None
        version = db.version
    warnings: tuple[str, ...] = ()
    if has_parameters:
        warnings = ("the plan is the generic one, for values that are not known; for rare values it may differ",)
    return QueryPlan(
        target=where.name,
        engine="postgresql",
        engine_version=version,
        source="EXPLAIN (the statement was planned, not run)",
        sql=redact_sql(statement),
        plan_kind="generic" if has_parameters else "literal",
        rows=plan.lines,
        findings=plan.findings,
        total_cost=round(plan.total_cost, 2),
        estimated_rows=plan.estimated_rows,
        left_out=plan.left_out,
        warnings=warnings,
        took_ms=round((clock.monotonic() - began) * 1000, 1),
    )


async def _prepare(db: ReadOnly, statement: str) -> None:
    """Let the server parse the statement over the protocol that takes exactly one."""
    import psycopg

    connection = db.connection
    connection.prepare_threshold = 1  # None would make psycopg ignore prepare=True
    try:
        # A comment at the end must not swallow anything, hence the line break.
        await db.execute((_PREPARE + statement + "\n").encode(), prepare=True)
    except psycopg.Error as error:
        raise _explain_failure(error, db.target, statement, offset=len(_PREPARE)) from None
    finally:
        connection.prepare_threshold = None


async def _explain(db: ReadOnly, statement: str, *, generic: bool, parameters: bool) -> object:
    """Ask for the plan; with parameters for the one that the server would use without knowing their values."""
    import psycopg

    options = f"EXPLAIN {OWN_MARK} (FORMAT JSON, VERBOSE"
    try:
        if generic:
            # Parameters in the text need the simple protocol here; that there is one statement was made sure.
            head = f"{options}, GENERIC_PLAN) "
            cursor = await db.execute((head + statement + "\n").encode())
        else:
            head = f"{options}) EXECUTE {_PREPARED}"
            arguments = await _null_arguments(db) if parameters else ""
            # Without this, NULLs are planned for, and a comparison with NULL has a plan that reads nothing.
            await db.execute(b"set local plan_cache_mode = force_generic_plan")
            cursor = await db.execute((head + arguments).encode())
        row = await cursor.fetchone()
    except psycopg.Error as error:
        raise _explain_failure(error, db.target, statement, offset=len(f"{options}, GENERIC_PLAN) ")) from None
    body: object = None if row is None else next(iter(row.values()))
    return json.loads(body) if isinstance(body, str) else body


async def _null_arguments(db: ReadOnly) -> str:
    row = await db.fetch_one(
        f"select {OWN_MARK} coalesce(array_length(parameter_types, 1), 0) as count "
        f"from pg_catalog.pg_prepared_statements where name = '{_PREPARED}'"
    )
    count = 0 if row is None else row["count"]
    return f"({', '.join(['NULL'] * count)})" if isinstance(count, int) and count else ""


async def _fetch_table_rows(db: ReadOnly, body: object) -> dict[str, float]:
    """The tables' sizes as the planner knows them; needs no right on the tables."""
    relations = list_relations(body)
    rows = await db.fetch(
        f"select {OWN_MARK} c.relname::text as name, greatest(c.reltuples, 0)::float8 as count "
        "from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace "
        "where (n.nspname::text, c.relname::text) in (select * from unnest(%s::text[], %s::text[]))",
        ([schema for schema, _ in relations], [name for _, name in relations]),
    )
    return {str(row["name"]): count for row in rows if isinstance(count := row["count"], float)}


def _explain_failure(error: Error, target: Target, statement: str, *, offset: int) -> ToolFailed:
    state = error.sqlstate or ""
    said = redact_message(error.diag.message_primary or "", statement)
    if state == "42601" and "multiple commands" in (error.diag.message_primary or ""):
        return ToolFailed(
            "there is more than one statement in the text",
            code="multiple_statements",
            fix="explain one statement at a time",
        )
    if state == "42501":
        return _privilege_failure(error, target)
    if not state.startswith(_STATEMENT_CLASSES):
        return explain_error(error, target)
    place = _place(error.diag.statement_position, statement, offset)
    fixes = {
        "42P01": "check the table's name, and write its schema in front of it",
        "42703": "check the column's name",
        "42P18": "write the parameter's type behind it, for example $1::text",
        "42P02": "write $1, $2, ... for values that are not known",
    }
    return ToolFailed(
        f"target {target.name!r}: the statement cannot be planned: {said}{place}",
        code="parse_failed",
        fix=fixes.get(state, "correct the statement; texts from the statistics may need types behind $1"),
    )


def _privilege_failure(error: Error, target: Target) -> ToolFailed:
    match = _RELATION.search(error.diag.message_primary or "")
    table = match[1] if match else "the tables of the statement"
    role = quote_name(target.user) if target.user else "the role"
    return ToolFailed(
        f"target {target.name!r}: role {role} has no right on {table}, and a plan needs the statement's own rights",
        code="insufficient_privilege",
        fix=f"GRANT SELECT ON {table} TO {role}; (for the plan of an INSERT, UPDATE or DELETE pass its SELECT part)",
    )


def _place(position: str | None, statement: str, offset: int) -> str:
    if position is None or not position.isdigit():
        return ""
    at = int(position) - offset
    if not 1 <= at <= len(statement) + 1:
        return ""
    line = statement.count("\n", 0, at - 1) + 1
    column = at - (statement.rfind("\n", 0, at - 1) + 1)
    return f" (line {line}, column {column} of the statement)"
