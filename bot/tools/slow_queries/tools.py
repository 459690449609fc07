"""The tools of this folder, as a model sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from agent_core.context import Clock
from agent_core.llm.types import ToolExample
from agent_core.tools.registry import ToolRegistry
from bot.tools.slow_queries.answer import SlowQueries
from bot.tools.slow_queries.engines import Order, read_any_slow_queries
from bot.tools.slow_queries.explain import Form, Mode, QueryPlan, explain_statement
from bot.tools.slow_queries.explain_prepare import ParameterValue
from bot.tools.slow_queries.history import SnapshotStore
from bot.tools.slow_queries.statement_check import LONGEST_SQL
from bot.tools.slow_queries.statements import Scope
from bot.tools.slow_queries.time_range import FORMS
from bot.tools.target_argument import TARGET, with_names
from bot.tools.targets import Targets

if TYPE_CHECKING:
    from bot.tools.slow_logs.answer import SlowLog

_NAME: JsonDict = {"format": "name"}

SLOW_QUERIES_DESCRIPTION = """\
List the slowest SQL statements of a database in a time range: from the statistics of a live Postgres, MySQL or
MariaDB server, or from its slow logs. Use it for
"what is slow", "why is the database slow", "which queries took long", "慢查询", and before explaining a query.

The answer says what it rests on. Read it before you conclude: `duration` (seconds) is the mean of a statement
shape in the window, or, with duration_kind "single", one execution that still runs. `window` is the range that the
numbers are of, `coverage.complete` false means that it is not exactly the asked one (`coverage.reasons` say why):
tell the person. `may_have_exceeded` lists shapes whose mean is below the threshold but single executions may not be.
`sql` has $1, $2 in place of values and can be passed to explain_query as it is.

Example: {"time_range": "last_30min", "threshold": 1.0}"""

EXPLAIN_DESCRIPTION = """\
Show how a live database (Postgres, MySQL, MariaDB, SQLite) would run one SQL statement: its plan, and what stands out
in it (a scan of a whole table and the columns it filters on, large sorts, loops, missing statistics). The statement is
planned, never run, so it is safe for slow statements and for writes. Use it to find out why a statement is slow
("explain", "query plan", "执行计划"). Statements from get_slow_queries can be passed as they are, with $1 in place of
values, or by their fingerprint. With params the plan is the one for those values.

All numbers are the planner's estimates: costs have no unit of time. mode "analyze" (really running it) needs an
approval that does not exist yet: leave mode out.

Example: {"sql": "select * from orders where customer_id = $1"}"""


class SlowQueryArguments(BaseModel):
    """Arguments of ``get_slow_queries``."""

    time_range: Annotated[
        str, Field(max_length=200, description=f"One of: {FORMS}", json_schema_extra={"format": "time-range"})
    ] = "last_30min"
    threshold: Annotated[
        float,
        Field(
            ge=0,
            le=86_400,
            allow_inf_nan=False,
            description="Least duration in seconds.",
            json_schema_extra={"format": "duration-s"},
        ),
    ] = 1.0
    target: Annotated[str | None, Field(description=TARGET)] = None
    order_by: Annotated[
        Order,
        Field(
            description="total: time of all executions together; io: bytes read; temp: of temporary files; wal: of "
            "write-ahead log; p95: where percentiles are known (slow logs)."
        ),
    ] = "total"
    limit: Annotated[int, Field(ge=1, le=100, description="Most rows to return.")] = 20
    user: Annotated[
        str | None,
        Field(max_length=128, description="Only statements of this database role.", json_schema_extra=_NAME),
    ] = None
    database: Annotated[
        str | None,
        Field(max_length=128, description="Only of this database of the server.", json_schema_extra=_NAME),
    ] = None
    app: Annotated[
        str | None, Field(max_length=128, description="Only of this application_name.", json_schema_extra=_NAME)
    ] = None
    include_system: Annotated[
        bool, Field(description="Also list other databases of the server and Hermod's own statements.")
    ] = False


class ExplainArguments(BaseModel):
    """Arguments of ``explain_query``."""

    sql: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=LONGEST_SQL,
            description="One statement; $1, $2 where values are not known. This or fingerprint.",
            json_schema_extra={"format": "sql", "x-needed-unless": "fingerprint"},
        ),
    ] = None
    fingerprint: Annotated[
        str | None,
        Field(
            max_length=100,
            description="Of a statement, as get_slow_queries gives it; instead of sql.",
            json_schema_extra={"format": "fingerprint"},
        ),
    ] = None
    params: Annotated[
        list[ParameterValue] | None, Field(max_length=200, description="Values of $1, $2, ... in order.")
    ] = None
    mode: Annotated[
        Mode | None,
        Field(
            description="generic: unknown values; params: the given ones. Leave it out to have it chosen.",
            json_schema_extra=_NAME,
        ),
    ] = None
    format: Annotated[Form, Field(description="json adds the whole plan tree.")] = "summary"
    target: Annotated[str | None, Field(description=TARGET)] = None


def register_slow_query_tools(registry: ToolRegistry, targets: Targets, store: SnapshotStore, clock: Clock) -> None:
    """Register ``get_slow_queries`` and ``explain_query``.

    Args:
        registry: where they go.
        targets: what they may look at; the names become an enum in the schema, other names an error that lists them.
        store: keeps the readings of the counters (``bot.storage.base.Store``).
        clock: the time that ranges are relative to.

    Raises:
        ConfigError: the names are taken.
    """

    async def get_slow_queries(arguments: SlowQueryArguments) -> SlowQueries | SlowLog:
        return await read_any_slow_queries(
            targets,
            store,
            clock,
            time_range=arguments.time_range,
            threshold_s=arguments.threshold,
            target=arguments.target,
            order_by=arguments.order_by,
            limit=arguments.limit,
            include_system=arguments.include_system,
            scope=Scope(user=arguments.user, database=arguments.database, app=arguments.app),
        )

    async def explain_query(arguments: ExplainArguments) -> QueryPlan:
        if (where := targets.resolve(arguments.target)).engine == "sqlite":
            from bot.tools.sqlite.explain import explain_sqlite

            return await explain_sqlite(where, clock, sql=arguments.sql, mode=arguments.mode)
        if where.engine == "mysql":
            from bot.tools.mysql.explain import explain_mysql

            return await explain_mysql(
                where,
                clock,
                sql=arguments.sql,
                fingerprint=arguments.fingerprint,
                params=arguments.params,
                mode=arguments.mode,
                form=arguments.format,
            )
        return await explain_statement(
            targets,
            clock,
            sql=arguments.sql,
            fingerprint=arguments.fingerprint,
            params=arguments.params,
            mode=arguments.mode,
            form=arguments.format,
            target=arguments.target,
        )

    names = sorted(targets)
    registry.register(
        get_slow_queries,
        description=SLOW_QUERIES_DESCRIPTION,
        arguments=with_names(SlowQueryArguments, names),
        examples=_slow_query_examples(names),
    )
    registry.register(
        explain_query,
        description=EXPLAIN_DESCRIPTION,
        arguments=with_names(ExplainArguments, names),
        examples=_explain_examples(),
    )


def _slow_query_examples(names: Sequence[str]) -> tuple[ToolExample, ...]:
    first = names[0] if names else "shop"
    return (
        ToolExample(question="which queries were slow in the last 30 minutes?", arguments={"time_range": "last_30min"}),
        ToolExample(
            question=f"show yesterday's statements on {first} that were slower than 500 ms",
            arguments={"time_range": "yesterday", "threshold": 0.5, "target": first},
        ),
        ToolExample(
            question="top 5 queries by number of calls in the past 2 hours, whatever their duration",
            arguments={"time_range": "last_2h", "threshold": 0, "order_by": "calls", "limit": 5},
        ),
        ToolExample(question="why is the database slow?", arguments={}),
        ToolExample(
            question="最近30分钟有哪些执行时间超过2秒的慢查询？",
            arguments={"time_range": "last_30min", "threshold": 2.0},
        ),
    )


def _explain_examples() -> tuple[ToolExample, ...]:
    scan = "select * from orders where customer_id = $1"
    join = "select c.name, sum(o.total) from customers c join orders o on o.customer_id = c.id group by c.name"
    return (
        ToolExample(question=f"explain {scan}", arguments={"sql": scan}),
        ToolExample(question=f"why is this query slow: {join}", arguments={"sql": join}),
        ToolExample(question=f"which index does it need? {scan}", arguments={"sql": scan}),
        ToolExample(question=f"查看执行计划：{scan}", arguments={"sql": scan}),
    )
