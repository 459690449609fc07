"""``db_health``: one look at everything that makes a database server fail in the night."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.tools.database_health.answer import Check, DatabaseHealth
from bot.tools.database_health.checks import (
    ALL_CHECKS,
    HEALTH_BOUNDS,
    MYSQL_ONLY,
    POSTGRES_ONLY,
    CheckName,
    HealthBounds,
    order_checks,
    unknown,
    worst,
)
from bot.tools.database_health.mysql_checks import (
    check_mysql_connections,
    check_mysql_history,
    check_mysql_idle,
    check_mysql_objects,
    check_mysql_replication,
    check_mysql_sequences,
    check_mysql_transactions,
    judge_pool,
    read_pool,
)
from bot.tools.database_health.mysql_server import MySqlServer, fetch_mysql
from bot.tools.database_health.postgres_objects import check_objects, check_sequences
from bot.tools.database_health.postgres_replication import check_replication, check_slots
from bot.tools.database_health.postgres_server import PostgresServer, fetch_postgres
from bot.tools.database_health.postgres_sessions import (
    check_connections,
    check_idle_in_transaction,
    check_long_transactions,
)
from bot.tools.database_health.postgres_workload import (
    check_archiving,
    check_checkpoints,
    check_wraparound,
    judge_cache,
    read_blocks,
)
from bot.tools.envelope import WHOLE, Coverage
from bot.tools.mysql.connection import MySqlReadOnly, open_mysql
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly, open_read_only
from bot.tools.targets import Target

READINGS_APART_S = 1.0
"""How far the two readings of the cache's counters are apart, at least."""

_POSTGRES: Mapping[CheckName, Callable[[ReadOnly, PostgresServer, HealthBounds], Awaitable[Check]]] = {
    "connections": check_connections,
    "checkpoints": check_checkpoints,
    "archiving": check_archiving,
    "replication": check_replication,
    "slots": check_slots,
    "long_transactions": check_long_transactions,
    "idle_in_transaction": check_idle_in_transaction,
    "sequences": check_sequences,
    "objects": check_objects,
    "wraparound": check_wraparound,
}

_MYSQL: Mapping[CheckName, Callable[[MySqlReadOnly, MySqlServer, HealthBounds], Awaitable[Check]]] = {
    "connections": check_mysql_connections,
    "replication": check_mysql_replication,
    "long_transactions": check_mysql_transactions,
    "idle_in_transaction": check_mysql_idle,
    "sequences": check_mysql_sequences,
    "objects": check_mysql_objects,
    "history": check_mysql_history,
}


async def read_db_health(
    target: Target, clock: Clock, *, checks: Sequence[CheckName] = (), bounds: HealthBounds = HEALTH_BOUNDS
) -> DatabaseHealth:
    """Run checks; one that lacks a right or fails is ``unknown``, the others answer.

    Args:
        target: a Postgres, MySQL or MariaDB database.
        clock: for ``took_ms`` and the pause between two readings.
        checks: which; none means all that the engine has.
        bounds: what numbers are compared with.

    Raises:
        ToolFailed: the server cannot be reached at all, with code and remedy.
    """
    target.require("postgresql", "mysql", tool="db_health")
    if target.engine == "mysql":
        return await _read_mysql(target, clock, checks=checks, bounds=bounds)
    return await _read_postgres(target, clock, checks=checks, bounds=bounds)


async def _read_postgres(
    target: Target, clock: Clock, *, checks: Sequence[CheckName], bounds: HealthBounds
) -> DatabaseHealth:
    started = clock.monotonic()
    wanted = [name for name in ALL_CHECKS if name in (checks or ALL_CHECKS)]
    async with open_read_only(target) as db:
        server = await fetch_postgres(db)
        before = await read_blocks(db) if "cache_hit" in wanted else None
        found = [await _run(db, server, name, bounds) for name in wanted if name in _POSTGRES]
        if before is not None:
            await clock.sleep(max(0.0, READINGS_APART_S - (clock.monotonic() - started)))
            found.append(judge_cache(before, await read_blocks(db), server, bounds))
    found += [
        unknown(name, "it is about MySQL and MariaDB; Postgres has nothing like it")
        for name in wanted
        if checks and name in MYSQL_ONLY
    ]
    return build_answer(
        found,
        target=target.name,
        engine="postgresql",
        version=db.version,
        source="statistics views and catalogs",
        took_ms=round((clock.monotonic() - started) * 1000, 1),
    )


async def _run(db: ReadOnly, server: PostgresServer, name: CheckName, bounds: HealthBounds) -> Check:
    """Run one check so that its failure costs the others nothing: an error would end the whole transaction."""
    await db.execute(f"savepoint {OWN_MARK} health".encode())
    try:
        return await _POSTGRES[name](db, server, bounds)
    except ToolFailed as failure:
        if failure.code == "connect_failed":
            raise
        await db.execute(f"rollback {OWN_MARK} to savepoint health".encode())
        lacks = failure.code == "insufficient_privilege"
        return unknown(name, f"it could not look: {failure.message}", grant=server.monitor_grant if lacks else None)


async def _read_mysql(
    target: Target, clock: Clock, *, checks: Sequence[CheckName], bounds: HealthBounds
) -> DatabaseHealth:
    started = clock.monotonic()
    wanted = [name for name in ALL_CHECKS if name in (checks or ALL_CHECKS)]
    async with open_mysql(target) as db:
        server = await fetch_mysql(db)
        first_s = clock.monotonic()
        before = await read_pool(db) if "cache_hit" in wanted else None
        found = [await _run_mysql(db, server, name, bounds) for name in wanted if name in _MYSQL]
        if before is not None:
            await clock.sleep(max(0.0, READINGS_APART_S - (clock.monotonic() - first_s)))
            after = await read_pool(db)
            found.append(judge_pool(before, after, clock.monotonic() - first_s, server, bounds))
    found += [
        unknown(name, "it is about Postgres; MySQL and MariaDB have nothing like it")
        for name in wanted
        if checks and name in POSTGRES_ONLY
    ]
    return build_answer(
        found,
        target=target.name,
        engine=db.flavor,
        version=db.version,
        source="status counters and information_schema",
        took_ms=round((clock.monotonic() - started) * 1000, 1),
    )


async def _run_mysql(db: MySqlReadOnly, server: MySqlServer, name: CheckName, bounds: HealthBounds) -> Check:
    try:
        return await _MYSQL[name](db, server, bounds)
    except ToolFailed as failure:
        if failure.code == "connect_failed":
            raise
        lacks = failure.code == "insufficient_privilege"
        why = "the account lacks a right" if lacks else f"it could not look: {failure.message}"
        return unknown(name, why, grant=server.process_grant if lacks else None)


def build_answer(
    found: Sequence[Check], *, target: str, engine: str, version: str, source: str, took_ms: float
) -> DatabaseHealth:
    """Put the checks into their envelope; coverage names those that could not look, or not at everything."""
    rows = order_checks(found)
    reasons = [f"{row.check}: {row.evidence}" for row in rows if row.status == "unknown"]
    reasons += [f"{row.check}: not all of it is visible" for row in rows if row.grant and row.status != "unknown"]
    grants = dict.fromkeys(row.grant for row in rows if row.grant)
    return DatabaseHealth(
        target=target,
        engine=engine,
        engine_version=version,
        source=source,
        coverage=Coverage(complete=False, reasons=tuple(reasons), snapshots=0) if reasons else WHOLE,
        warnings=tuple(f"to see more: {grant}" for grant in grants),
        took_ms=took_ms,
        status=worst(row.status for row in rows),
        rows=rows,
    )
