"""``index_health``: indexes that cost writes and space and give nothing for it."""

from __future__ import annotations

from collections.abc import Sequence

from agent_core.context import Clock
from bot.tools.database_health.answer import IndexFinding, IndexHealth
from bot.tools.database_health.fields import write_iso
from bot.tools.database_health.fitting import fit_rows
from bot.tools.database_health.mysql_indexes import MOST_PARTS, fetch_mysql_indexes, judge_mysql_indexes
from bot.tools.database_health.mysql_server import count_tables, fetch_mysql, find_hidden_tables
from bot.tools.database_health.postgres_index_findings import judge_indexes
from bot.tools.database_health.postgres_indexes import MOST_INDEXES, fetch_indexes, fetch_locked
from bot.tools.database_health.postgres_server import fetch_postgres
from bot.tools.database_health.wording import say_age, say_some, write_size
from bot.tools.envelope import WHOLE, Coverage, LeftOut
from bot.tools.mysql.connection import open_mysql
from bot.tools.slow_queries.connection import open_read_only
from bot.tools.targets import Target

ENOUGH_S = 7 * 86_400.0
"""How long counters have to have counted before an index without scans is called unused: a week, as many jobs are
weekly. Monthly and yearly ones are still missed, so a person decides."""

_ORDER = ("invalid", "duplicate", "prefix_redundant", "unused")
_MB = 1024 * 1024
_TIMEOUT_S = 20.0


async def read_index_health(
    target: Target, clock: Clock, *, min_size_mb: float = 1.0, enough_s: float = ENOUGH_S
) -> IndexHealth:
    """Look at all indexes of a database.

    Args:
        target: a Postgres, MySQL or MariaDB database.
        clock: for ``took_ms``.
        min_size_mb: smaller indexes are left out and counted, but for invalid ones.
        enough_s: see ``ENOUGH_S``.

    Raises:
        ToolFailed: the server cannot be reached or read, with code and remedy.
    """
    target.require("postgresql", "mysql", tool="index_health")
    if target.engine == "mysql":
        return await _read_mysql(target, clock, min_size_mb=min_size_mb, enough_s=enough_s)
    return await _read_postgres(target, clock, min_size_mb=min_size_mb, enough_s=enough_s)


async def _read_postgres(target: Target, clock: Clock, *, min_size_mb: float, enough_s: float) -> IndexHealth:
    started = clock.monotonic()
    async with open_read_only(target, statement_timeout_s=_TIMEOUT_S) as db:
        server = await fetch_postgres(db)
        entries, more = await fetch_indexes(db)
        locked = await fetch_locked(db)
        judged = judge_indexes(entries, server, enough_s=enough_s)
        rows, left_out, warnings = select_rows(judged.findings, min_size_mb)
    age_s = server.counters_age_s
    if age_s is not None and age_s < enough_s and any(row.kind == "unused" for row in rows):
        warnings.append(f"the counters began only {say_age(age_s)} ago: what is listed as unused may be needed weekly")
    reasons = []
    if locked:
        reasons.append(f"a session has {say_some(locked)} for itself, so that it could not be looked at")
    if more:
        reasons.append(f"only the {MOST_INDEXES} largest indexes were looked at")
    return IndexHealth(
        target=target.name,
        engine="postgresql",
        engine_version=db.version,
        source="pg_index, pg_stat_all_indexes",
        coverage=Coverage(complete=False, reasons=tuple(reasons), snapshots=0) if reasons else WHOLE,
        truncated=left_out,
        warnings=(*judged.warnings, *warnings),
        took_ms=round((clock.monotonic() - started) * 1000, 1),
        rows=rows,
        suggestions=tuple(row.suggestion for row in rows if row.suggestion is not None),
        counters_since=write_iso(server.counters_since),
        counters_age_s=age_s,
        examined=len(entries),
    )


async def _read_mysql(target: Target, clock: Clock, *, min_size_mb: float, enough_s: float) -> IndexHealth:
    started = clock.monotonic()
    async with open_mysql(target) as db:
        server = await fetch_mysql(db)
        found = await fetch_mysql_indexes(db, server)
        hidden = await find_hidden_tables(db, server, await count_tables(db, server))
    rows, left_out, warnings = select_rows(judge_mysql_indexes(found, server, enough_s=enough_s), min_size_mb)
    if server.uptime_s < enough_s and any(row.kind == "unused" for row in rows):
        warnings.append(
            f"the server counts since {say_age(server.uptime_s)} only: what is listed as unused may be needed weekly"
        )
    reasons = [reason for reason in (found.why, hidden) if reason]
    if found.more:
        reasons.append(f"only {MOST_PARTS} columns of indexes were looked at")
    return IndexHealth(
        target=target.name,
        engine=db.flavor,
        engine_version=db.version,
        source="information_schema.STATISTICS"
        + ("" if found.scans is None else ", performance_schema.table_io_waits_summary_by_index_usage"),
        coverage=Coverage(complete=False, reasons=tuple(reasons), snapshots=0) if reasons else WHOLE,
        truncated=left_out,
        warnings=tuple(warnings),
        took_ms=round((clock.monotonic() - started) * 1000, 1),
        rows=rows,
        suggestions=tuple(row.suggestion for row in rows if row.suggestion is not None),
        counters_since=None if found.scans is None else write_iso(server.started_at),
        counters_age_s=None if found.scans is None else server.uptime_s,
        examined=len(found.shapes),
    )


def select_rows(
    findings: Sequence[IndexFinding], min_size_mb: float
) -> tuple[tuple[IndexFinding, ...], LeftOut, list[str]]:
    """Order findings, worst kind first, then by size; small ones and those that do not fit are counted."""
    large = [row for row in findings if row.kind == "invalid" or row.size_bytes >= min_size_mb * _MB]
    ordered = sorted(large, key=lambda row: (_ORDER.index(row.kind), -row.size_bytes, row.index))
    warnings = []
    if small := len(findings) - len(large):
        warnings.append(f"{small} more below {write_size(min_size_mb * _MB)} left out; min_size_mb=0 lists them")
    rows, left_out = fit_rows(ordered)
    return rows, LeftOut(rows=left_out), warnings
