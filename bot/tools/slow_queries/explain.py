"""``explain_query``: the plan of a statement, which is never run.

The statement goes through PREPARE over the one-statement protocol first: the server then has said itself that it
is exactly one, and of a kind that has a plan. Only after that EXPLAIN sees it, without ANALYZE, in a READ ONLY
transaction that is rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.tools.envelope import Envelope, LeftOut
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly, open_read_only
from bot.tools.slow_queries.explain_find import find_statement
from bot.tools.slow_queries.explain_findings import TableFacts
from bot.tools.slow_queries.explain_prepare import (
    ParameterValue,
    Prepared,
    check_values,
    plan_prepared,
    prepare_statement,
)
from bot.tools.slow_queries.explain_reads import only_reads
from bot.tools.slow_queries.explain_tree import redact_tree
from bot.tools.slow_queries.plan import Plan, PlanLine, list_relations, read_plan
from bot.tools.slow_queries.redact_sql import fingerprint_sql, redact_sql
from bot.tools.slow_queries.statement_check import take_statement
from bot.tools.targets import Target, Targets

STATEMENT_TIMEOUT_S = 10.0
"""How long planning may take on the server, in seconds."""

Mode = Literal["generic", "params", "analyze"]
Form = Literal["summary", "json"]

_GENERIC = "the plan is the generic one, for values that are not known; for rare values it may differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan(Envelope):
    """The answer.

    Args:
        sql: what was planned, without literals.
        fingerprint: of its shape, as get_slow_queries has it.
        plan_kind: what the plan holds for: values that are not known (``generic``), those of the text
            (``literal``), or the given ones (``params``).
        findings: what stands out, in words.
        total_cost, estimated_rows: of the whole statement, by the planner; null where it tells none.
        rows: the plan's nodes from the top; ``truncated.rows`` counts those left out.
        plan: EXPLAIN's own tree without literals, where the form json was asked for.
    """

    sql: str
    fingerprint: str
    plan_kind: Literal["generic", "literal", "params"]
    findings: tuple[str, ...]
    total_cost: float | None
    estimated_rows: int | None
    rows: tuple[PlanLine, ...]
    plan: Mapping[str, object] | None = None


async def explain_statement(
    targets: Targets,
    clock: Clock,
    *,
    sql: str | None = None,
    fingerprint: str | None = None,
    params: Sequence[ParameterValue] | None = None,
    mode: Mode | None = None,
    form: Form = "summary",
    target: str | None = None,
) -> QueryPlan:
    """Plan a statement on a target.

    Args:
        targets: the configured databases.
        clock: time.
        sql: the statement; or
        fingerprint: of one in the live statistics of the target.
        params: values of ``$1``, ``$2``, ... in order.
        mode: ``generic`` for values that are not known, ``params`` for the given ones; None chooses.
        form: ``json`` adds EXPLAIN's whole tree.
        target: a name; None is the only one.

    Raises:
        ToolFailed: with one of the codes in ``docs/tools.md``; a parse error says where in ``sql`` it is.
    """
    began = clock.monotonic()
    where = targets.resolve(target)
    where.require("postgresql", tool="explain_query")
    _check_question(sql, fingerprint, params, mode)
    statement = None if sql is None else take_statement(sql)[0]
    if mode == "analyze":
        _refuse_analyze(where, statement)
    async with open_read_only(where, own_queries=False, statement_timeout_s=STATEMENT_TIMEOUT_S) as db:
        if statement is None:
            statement = take_statement(await find_statement(db, fingerprint or ""))[0]
        prepared = await prepare_statement(db, statement)
        values = _choose_values(prepared, params, mode)
        body = await plan_prepared(db, prepared, values)
        plan = _read(where, body, await fetch_table_facts(db, list_relations(body)))
        version = db.version
    return QueryPlan(
        target=where.name,
        engine="postgresql",
        engine_version=version,
        source="EXPLAIN (the statement was planned, not run)",
        truncated=LeftOut(rows=plan.left_out),
        warnings=_warn(prepared, values),
        sql=redact_sql(statement),
        fingerprint=fingerprint_sql(statement),
        plan_kind="literal" if not prepared.types else "generic" if values is None else "params",
        rows=plan.lines,
        findings=plan.findings,
        total_cost=round(plan.total_cost, 2),
        estimated_rows=plan.estimated_rows,
        plan=redact_tree(body) if form == "json" else None,
        took_ms=round((clock.monotonic() - began) * 1000, 1),
    )


def _read(where: Target, body: object, tables: Mapping[str, TableFacts]) -> Plan:
    try:
        return read_plan(body, tables)
    except ValueError as error:
        raise ToolFailed(f"target {where.name!r}: {error}", code="failed") from None


def _check_question(
    sql: str | None, fingerprint: str | None, params: Sequence[ParameterValue] | None, mode: Mode | None
) -> None:
    if (sql is None) == (fingerprint is None):
        raise ToolFailed(
            "neither sql nor fingerprint was given" if sql is None else "both sql and fingerprint were given",
            code="parse_failed",
            fix="pass sql, or the fingerprint of a statement from get_slow_queries",
        )
    if mode == "params" and params is None:
        raise ToolFailed(
            "mode params plans for given values, and none were given",
            code="bad_parameters",
            fix="pass params with one value for each $n, or leave mode out",
        )


def _refuse_analyze(where: Target, statement: str | None) -> None:
    """ANALYZE runs the statement. Nothing here can ask a person, so nothing runs."""
    if statement is not None and not only_reads(statement):
        raise ToolFailed(
            "mode analyze would run the statement, and it does more than read",
            code="not_read_only",
            fix="leave mode out: the plan of a write is shown without running it",
        )
    raise ToolFailed(
        f"target {where.name!r}: mode analyze runs the statement, which needs a person's approval, and approvals are "
        "not available in this release; nothing was run",
        code="approval_required",
        fix="leave mode out for the plan without running it, or pass params for the plan of certain values",
    )


def _choose_values(
    prepared: Prepared, params: Sequence[ParameterValue] | None, mode: Mode | None
) -> tuple[ParameterValue, ...] | None:
    """The values to plan for; None for those of the text, or unknown ones."""
    if params is None or mode == "generic":
        return None
    check_values(params, prepared.types)
    return tuple(params) if prepared.types else None


def _warn(prepared: Prepared, values: tuple[ParameterValue, ...] | None) -> tuple[str, ...]:
    generic = (_GENERIC,) if prepared.types and values is None else ()
    return (*generic, *(f"the text does not tell a type: {note}" for note in prepared.notes))


async def fetch_table_facts(db: ReadOnly, relations: Sequence[tuple[str, str]]) -> dict[str, TableFacts]:
    """What the server knows of tables, by name without schema; needs no right beyond those that a plan needs."""
    rows = await db.fetch(
        f"select {OWN_MARK} c.relname::text as name, greatest(c.reltuples, 0)::float8 as count, "
        # Statistics are shown to those who may read the columns; with row security to none.
        "case when c.relkind not in ('r', 'm') or pg_catalog.pg_relation_size(c.oid) = 0 then null "
        "when exists (select from pg_catalog.pg_stats s where s.schemaname = n.nspname and s.tablename = c.relname) "
        "then true when pg_catalog.has_table_privilege(c.oid, 'select') and not c.relrowsecurity then false end "
        "as analyzed, coalesce(t.n_mod_since_analyze, 0)::int8 as changed "
        "from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace "
        "left join pg_catalog.pg_stat_all_tables t on t.relid = c.oid "
        "where (n.nspname::text, c.relname::text) in (select * from unnest(%s::text[], %s::text[]))",
        ([schema for schema, _ in relations], [name for _, name in relations]),
    )
    return {
        str(row["name"]): TableFacts(
            rows=count if isinstance(count := row["count"], float) else 0.0,
            analyzed=analyzed if isinstance(analyzed := row["analyzed"], bool) else None,
            changed_rows=changed if isinstance(changed := row["changed"], int) else 0,
        )
        for row in rows
    }
