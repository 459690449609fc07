"""``get_slow_queries`` on whatever a target is: the statistics of a live server, or its slow logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.tools.slow_queries.answer import SlowQueries
from bot.tools.slow_queries.history import SnapshotStore
from bot.tools.slow_queries.report import OrderBy, WideOrder
from bot.tools.slow_queries.slow_queries import read_slow_queries
from bot.tools.slow_queries.statements import EVERYTHING, Scope
from bot.tools.slow_queries.time_range import parse_time_range
from bot.tools.targets import Target, Targets

if TYPE_CHECKING:
    from bot.tools.slow_logs.answer import OrderBy as LogOrder
    from bot.tools.slow_logs.answer import SlowLog

Order = Literal["total", "mean", "max", "p95", "calls", "io", "temp", "wal"]

_POSTGRES: Sequence[Order] = ("total", "mean", "max", "calls", "io", "temp", "wal")
_MYSQL: Sequence[Order] = ("total", "mean", "max", "calls")
_LOGS: Sequence[Order] = ("total", "mean", "max", "p95", "calls")


async def read_any_slow_queries(
    targets: Targets,
    store: SnapshotStore,
    clock: Clock,
    *,
    time_range: str,
    threshold_s: float,
    target: str | None,
    order_by: Order,
    limit: int,
    include_system: bool,
    scope: Scope,
) -> SlowQueries | SlowLog:
    """Answer from what the target has.

    Raises:
        ToolFailed: ``unsupported``, when the target cannot sort or filter as asked, and as the tool of its engine.
    """
    where = targets.resolve(target)
    if where.engine == "mysql":
        from bot.tools.mysql.slow_queries import read_mysql_slow_queries

        _refuse_scope(where, scope)
        return await read_mysql_slow_queries(
            where,
            store,
            clock,
            time_range=time_range,
            threshold_s=threshold_s,
            order_by=cast("OrderBy", _take(where, order_by, _MYSQL)),
            limit=limit,
            include_system=include_system,
        )
    if where.engine == "slowlog":
        from bot.tools.slow_logs.target import read_target_log

        _refuse_scope(where, scope)
        return await read_target_log(
            where,
            asked=parse_time_range(time_range, now=clock.now()),
            threshold_s=threshold_s,
            order_by=cast("LogOrder", _take(where, order_by, _LOGS)),
            limit=limit,
        )
    return await read_slow_queries(
        targets,
        store,
        clock,
        time_range=time_range,
        threshold_s=threshold_s,
        target=target,
        order_by=cast("WideOrder", _take(where, order_by, _POSTGRES)),
        limit=limit,
        include_system=include_system,
        scope=scope,
    )


def _take(target: Target, order_by: Order, known: Sequence[Order]) -> Order:
    if order_by not in known:
        raise ToolFailed(
            f"{target.describe()} does not tell what order_by={order_by} needs",
            code="unsupported",
            fix=f"pass order_by as one of: {', '.join(known)}",
        )
    return order_by


def _refuse_scope(target: Target, scope: Scope) -> None:
    if scope != EVERYTHING:
        raise ToolFailed(
            f"statements of {target.describe()} cannot be told apart by user, database or app here",
            code="unsupported",
            fix="leave user, database and app out; the rows name what is known of them",
        )
