"""``explain_query`` for MySQL and MariaDB: the plan of a statement, which is not run.

EXPLAIN is not free of effects here: MariaDB evaluates a function of constant arguments and a derived table of one row
while it plans (measured: ``EXPLAIN SELECT * FROM (SELECT SLEEP(2)) x`` takes two seconds). The READ ONLY transaction
stops those that write, and the time-out those that wait.

A ``?`` cannot be planned for: the server takes none in EXPLAIN, NULL in its place has a plan that reads nothing, and
an invented value one for "Impossible WHERE". So a real execution of the same shape lends its values, where the server
keeps one; else values are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.tools.envelope import LeftOut
from bot.tools.mysql.connection import OWN_MARK, MySqlReadOnly, open_mysql
from bot.tools.mysql.examples import find_example
from bot.tools.mysql.failures import quote_name
from bot.tools.mysql.plan import parse_plan_text, read_mysql_plan, redact_tree
from bot.tools.mysql.statement import Plannable, bind, take_plannable
from bot.tools.slow_logs.mysql_text import fingerprint_mysql, redact_mysql
from bot.tools.slow_queries.explain import Form, Mode, QueryPlan
from bot.tools.slow_queries.explain_prepare import ParameterValue
from bot.tools.targets import Target

STATEMENT_TIMEOUT_S = 10.0
"""How long planning may take on the server, in seconds."""

_EXPLAIN = f"EXPLAIN {OWN_MARK} FORMAT=JSON "
_VERSIONED_SINCE = (8, 3, 0)
_BORROWED = (
    "the values are those of the slowest execution of this shape that the server still keeps; for others it may differ"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """What is planned: the text for the driver and its values, what it was asked as, and what is to be said."""

    plannable: Plannable
    values: tuple[object, ...]
    asked: str
    kind: Literal["literal", "params"]
    warnings: tuple[str, ...] = ()


async def explain_mysql(
    target: Target,
    clock: Clock,
    *,
    sql: str | None = None,
    fingerprint: str | None = None,
    params: Sequence[ParameterValue] | None = None,
    mode: Mode | None = None,
    form: Form = "summary",
) -> QueryPlan:
    """Plan a statement on a MySQL or MariaDB target.

    Args:
        target: where.
        clock: time.
        sql: the statement, of a write the part that reads is planned; or
        fingerprint: of one that ``get_slow_queries`` listed.
        params: values of the ``?``, in order.
        mode: None or ``params``; the others are refused by name.
        form: ``json`` adds EXPLAIN's tree without literals.

    Raises:
        ToolFailed: with one of the codes in ``docs/tools.md``.
    """
    began = clock.monotonic()
    target.require("mysql", tool="explain_query")
    _check_question(sql, fingerprint, params, mode)
    plannable = None if sql is None else take_plannable(sql)
    if mode == "analyze":
        raise _refuse_analyze(target, plannable)
    async with open_mysql(target, statement_timeout_s=STATEMENT_TIMEOUT_S) as db:
        subject = await _choose_subject(db, sql, plannable, fingerprint, params)
        body = await _explain(db, subject)
        flavor, version = db.flavor, db.version
    try:
        plan = read_mysql_plan(body)
    except ValueError as error:
        raise ToolFailed(f"target {target.name!r}: {error}", code="failed") from None
    return QueryPlan(
        target=target.name,
        engine=flavor,
        engine_version=version,
        source="EXPLAIN FORMAT=JSON (the statement was planned, not run)",
        truncated=LeftOut(rows=plan.left_out),
        warnings=(*subject.warnings, *_warn(subject.plannable, plan.total_cost)),
        sql=redact_mysql(subject.asked),
        fingerprint=fingerprint or fingerprint_mysql(subject.asked),
        plan_kind=subject.kind,
        rows=plan.lines,
        findings=plan.findings,
        total_cost=round(plan.total_cost, 2) if plan.total_cost else None,
        estimated_rows=plan.estimated_rows,
        plan=_tree(body) if form == "json" else None,
        took_ms=round((clock.monotonic() - began) * 1000, 1),
    )


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
            fix="pass params with one value for each ?, or leave mode out",
        )
    if mode == "generic":
        raise ToolFailed(
            "MySQL and MariaDB have no generic plan: they plan for values only",
            code="unsupported",
            fix="leave mode out, and put example values in place of ?",
        )


def _refuse_analyze(target: Target, plannable: Plannable | None) -> ToolFailed:
    """ANALYZE runs the statement. Nothing here can ask a person, so nothing runs."""
    if plannable is not None and plannable.write:
        return ToolFailed(
            "mode analyze would run the statement, and it does more than read",
            code="not_read_only",
            fix="leave mode out: the plan of a write is shown without running it",
        )
    return ToolFailed(
        f"target {target.name!r}: mode analyze runs the statement, which needs a person's approval, and approvals are "
        "not available in this release; nothing was run",
        code="approval_required",
        fix="leave mode out for the plan without running it",
    )


async def _choose_subject(
    db: MySqlReadOnly,
    sql: str | None,
    plannable: Plannable | None,
    fingerprint: str | None,
    params: Sequence[ParameterValue] | None,
) -> _Subject:
    if plannable is not None and sql is not None:
        if params is not None:
            return _Subject(plannable=plannable, values=_check_values(plannable, params), asked=sql, kind="params")
        if not plannable.placeholders and not plannable.shortened:
            return _Subject(plannable=plannable, values=(), asked=sql, kind="literal")
    example = await find_example(db, fingerprint or fingerprint_mysql(sql or ""))
    if example is None or example.cut:
        raise _no_values(db.target, fingerprint if sql is None else None, cut=example is not None)
    if example.schema and example.schema != db.target.database:
        await db.fetch(f"USE {quote_name(example.schema)}")
    return _Subject(
        plannable=take_plannable(example.sql),
        values=(),
        asked=example.sql if sql is None else sql,
        kind="literal",
        warnings=(_BORROWED,),
    )


def _no_values(target: Target, fingerprint: str | None, *, cut: bool) -> ToolFailed:
    why = "keeps only the beginning of" if cut else "keeps no execution of"
    what = "this statement" if fingerprint is None else f"the statement {fingerprint[:40]!r}"
    return ToolFailed(
        f"target {target.name!r}: the server {why} {what} to take values from, and it plans for values only",
        code="parse_failed",
        fix="pass the statement with example values in place of ?, or the values as params",
    )


def _check_values(plannable: Plannable, params: Sequence[ParameterValue]) -> tuple[object, ...]:
    if plannable.shortened:
        raise ToolFailed(
            "the text has ... in place of values, so nobody knows how many there are",
            code="bad_parameters",
            fix="write ? for each value, and pass as many params",
        )
    if len(params) != plannable.placeholders:
        raise ToolFailed(
            f"the statement has {plannable.placeholders} placeholders and {len(params)} params were given",
            code="bad_parameters",
            fix="pass params with one value for each ?, in order (of a write: those of its conditions only)",
        )
    if any(isinstance(value, list) for value in params):
        raise ToolFailed(
            "MySQL and MariaDB have no arrays", code="bad_parameters", fix="write (?, ?) and pass each value by itself"
        )
    return tuple(params)


async def _explain(db: MySqlReadOnly, subject: _Subject) -> object:
    if db.flavor == "mysql" and db.version_num >= _VERSIONED_SINCE:
        # Later versions have a second form, of another shape; from documentation, never run:
        # https://dev.mysql.com/doc/refman/8.4/en/server-system-variables.html#sysvar_explain_json_format_version
        await db.fetch("SET SESSION explain_json_format_version = 1")
    text = bind(subject.plannable) if subject.values else subject.plannable.sql
    row = await db.fetch_one(_EXPLAIN + text, subject.values, own=False)
    return None if row is None else parse_plan_text(str(next(iter(row.values()))), escaped=db.flavor == "mysql")


def _tree(body: object) -> Mapping[str, object] | None:
    tree = redact_tree(body)
    return tree if isinstance(tree, dict) else None


def _warn(plannable: Plannable, cost: float) -> tuple[str, ...]:
    warnings: tuple[str, ...] = ()
    if plannable.write:
        warnings += (
            f"this is the plan of finding the rows; what the {plannable.write.upper()} then writes is not in it",
        )
    if not cost:
        warnings += ("this server tells no costs in its plans (MariaDB does from version 11 on)",)
    return warnings
