"""``run_readonly_sql`` as a model sees it, and which engine runs it."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, cast

from pydantic import BaseModel, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from agent_core.llm.types import ToolExample
from agent_core.tools.registry import ToolRegistry
from bot.tools.readonly_sql.answer import LONGEST_TIMEOUT_S, MOST_ROWS, TOOL, SqlRequest, SqlRows
from bot.tools.slow_queries.statement_check import LONGEST_SQL
from bot.tools.target_argument import with_names
from bot.tools.targets import Engine, Target, Targets

Run = Callable[[Target, Clock, SqlRequest], Awaitable[SqlRows]]

_RUNNERS: Mapping[Engine, tuple[str, str]] = {
    "postgresql": ("bot.tools.readonly_sql.postgres", "run_on_postgres"),
    "mysql": ("bot.tools.readonly_sql.mysql", "run_on_mysql"),
    "sqlite": ("bot.tools.readonly_sql.sqlite", "run_on_sqlite"),
}
"""Module and function for each engine; imported when first used, as each needs its own driver and parser."""

# What the server still needs for the way there and back when the statement takes as long as it may.
_TOOL_TIMEOUT_S = LONGEST_TIMEOUT_S + 15.0

_TARGET = "Name of the database to query. Leave it out when only one is configured."

DESCRIPTION = """\
Run one SQL query that only reads on a configured database (Postgres, MySQL, MariaDB, SQLite) and return its rows:
SELECT, WITH, VALUES, TABLE, SHOW. Use it when a person asks for data or counts from their own tables, or gives you
the SQL to run ("run this query", "how many rows", "select ...", "执行SQL", "查询数据"), and for catalog
questions that no other tool answers.

Everything that changes, locks, waits or reaches out of the database is refused by name, also inside functions.
`more_rows` true: the statement has more rows than are returned. Pass values as `params`, not inside the text.
Instants are UTC. For the reason why a statement is slow use explain_query instead.

Example: {"sql": "select status, count(*) from orders group by status", "max_rows": 20}"""

_Value = StrictStr | StrictInt | StrictFloat | StrictBool | None


class ReadonlySqlArguments(BaseModel):
    """Arguments of ``run_readonly_sql``."""

    sql: Annotated[
        str,
        Field(
            min_length=1,
            max_length=LONGEST_SQL,
            description="One statement that only reads.",
            json_schema_extra={"format": "sql"},
        ),
    ]
    params: Annotated[
        list[_Value] | None,
        Field(max_length=100, description="Values for $1, $2 (Postgres) or ? (MySQL, SQLite), in order."),
    ] = None
    max_rows: Annotated[int, Field(ge=1, le=MOST_ROWS, description="Most rows to return.")] = 100
    timeout_s: Annotated[
        float,
        Field(ge=0.1, le=LONGEST_TIMEOUT_S, allow_inf_nan=False, description="Seconds until the server ends it."),
    ] = 10.0
    target: Annotated[str | None, Field(description=_TARGET)] = None


async def run_readonly_sql(targets: Targets, clock: Clock, request: SqlRequest, *, target: str | None) -> SqlRows:
    """Run a request on a target, where the operator lets people do that.

    Raises:
        ToolFailed: ``unknown_target``, ``not_allowed``, ``unsupported``, and what the engine's own part raises.
    """
    where = targets.resolve(target)
    where.require(*_RUNNERS, tool=TOOL)
    if not where.allow_sql:
        raise ToolFailed(
            f"people's own SQL is not switched on for target {where.name!r}",
            code="not_allowed",
            fix=f"the operator sets allow_sql = true in [targets.{where.name}], best with the role that "
            f"'hermod targets grant {where.name}' makes",
        )
    return await _find_runner(where)(where, clock, request)


def _find_runner(target: Target) -> Run:
    module, function = _RUNNERS[target.engine]
    try:
        return cast("Run", getattr(importlib.import_module(module), function))
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ToolFailed(
            f"{TOOL} cannot read {target.describe()} in this release", code="unsupported", fix="ask for another target"
        ) from None


def register_readonly_sql_tools(registry: ToolRegistry, targets: Targets, clock: Clock) -> None:
    """Register ``run_readonly_sql``.

    Args:
        registry: where it goes.
        targets: what it may query; those without ``allow_sql`` answer ``not_allowed``.
        clock: for the time that a call took.

    Raises:
        ConfigError: the name is taken.
    """

    async def run_readonly(arguments: ReadonlySqlArguments) -> SqlRows:
        request = SqlRequest(
            sql=arguments.sql,
            parameters=tuple(arguments.params or ()),
            max_rows=arguments.max_rows,
            timeout_s=arguments.timeout_s,
        )
        return await run_readonly_sql(targets, clock, request, target=arguments.target)

    names = sorted(targets)
    registry.register(
        run_readonly,
        name=TOOL,
        description=DESCRIPTION,
        arguments=with_names(ReadonlySqlArguments, names, description=_TARGET),
        examples=_examples(),
        timeout_s=_TOOL_TIMEOUT_S,
        private=True,  # live data of people: for those who asked, and kept nowhere else
    )


def _examples() -> tuple[ToolExample, ...]:
    by_status = "select status, count(*) from orders group by status"
    count = "select count(*) from customers"
    return (
        ToolExample(question=f"run this SQL: {by_status}", arguments={"sql": by_status}),
        ToolExample(question=f"execute {count} and show me the result rows", arguments={"sql": count}),
        ToolExample(
            question="give me the output of the query select id, note from orders order by id, at most 5 rows",
            arguments={"sql": "select id, note from orders order by id", "max_rows": 5},
        ),
        ToolExample(question=f"执行这条SQL并返回结果：{count}", arguments={"sql": count}),
    )
