"""``table_health``: how large tables are, and what is wrong with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from agent_core.context import Clock
from bot.tools.database_health.answer import TableFacts, TableHealth
from bot.tools.database_health.bloat import NO_BLOAT_KNOWN, Bloat, add_bloat
from bot.tools.database_health.fields import write_iso
from bot.tools.database_health.fitting import fit_rows
from bot.tools.database_health.mysql_server import count_tables, fetch_mysql, find_hidden_tables
from bot.tools.database_health.mysql_tables import read_mysql_tables
from bot.tools.database_health.postgres_bloat import read_bloat
from bot.tools.database_health.postgres_indexes import fetch_locked
from bot.tools.database_health.postgres_server import PostgresServer, fetch_postgres
from bot.tools.database_health.postgres_table_findings import XID_SPACE, judge_scans, judge_storage
from bot.tools.database_health.postgres_tables import (
    MOST_TABLES,
    TableEntry,
    VacuumSettings,
    fetch_tables,
    fetch_vacuum_settings,
)
from bot.tools.database_health.wording import say_some
from bot.tools.envelope import WHOLE, Coverage, LeftOut
from bot.tools.mysql.connection import open_mysql
from bot.tools.slow_queries.connection import open_read_only
from bot.tools.targets import Target

_MOST_PARTS_TOLD = 3
_TIMEOUT_S = 20.0


async def read_table_health(target: Target, clock: Clock, *, top: int = 20) -> TableHealth:
    """Look at the tables of a database.

    Args:
        target: a Postgres, MySQL or MariaDB database.
        clock: for ``took_ms`` and the time that measuring may take.
        top: how many of the largest tables are listed; as many smaller ones with findings come on top.

    Raises:
        ToolFailed: the server cannot be reached or read, with code and remedy.
    """
    target.require("postgresql", "mysql", tool="table_health")
    if target.engine == "mysql":
        return await _read_mysql(target, clock, top=top)
    return await _read_postgres(target, clock, top=top)


async def _read_postgres(target: Target, clock: Clock, *, top: int) -> TableHealth:
    started = clock.monotonic()
    async with open_read_only(target, statement_timeout_s=_TIMEOUT_S) as db:
        server = await fetch_postgres(db)
        settings = await fetch_vacuum_settings(db)
        entries, more = await fetch_tables(db)
        locked = await fetch_locked(db)
        groups = _group(entries)
        largest = groups[:top]
        measured = [part for group in largest for part in group]
        bloat = await read_bloat(db, clock, server, measured, settings)
    judged = [_facts(group, server, settings, bloat.by_oid) for group in groups]
    rows, left_out = choose_rows(judged, top)
    warnings = list(bloat.hints)
    if not settings.counts:
        warnings.append("track_counts is off: the server counts no rows and scans, and autovacuum cannot work")
    elif not settings.autovacuum:
        warnings.append("autovacuum is off on this server: dead rows and old transaction ids pile up")
    if server.standby:
        warnings.append("a standby: scans are its own, while rows, vacuum and analyze are counted on the primary only")
    reasons = []
    if locked:
        reasons.append(f"a session has {say_some(locked)} for itself, so that it could not be looked at")
    if more:
        reasons.append(f"only the {MOST_TABLES} largest tables were looked at")
    return TableHealth(
        target=target.name,
        engine="postgresql",
        engine_version=db.version,
        source=_sources(bloat.by_oid),
        coverage=Coverage(complete=False, reasons=tuple(reasons), snapshots=0) if reasons else WHOLE,
        truncated=left_out,
        warnings=tuple(warnings),
        took_ms=round((clock.monotonic() - started) * 1000, 1),
        rows=rows,
        counters_since=write_iso(server.counters_since),
        examined=len(entries),
    )


async def _read_mysql(target: Target, clock: Clock, *, top: int) -> TableHealth:
    started = clock.monotonic()
    async with open_mysql(target) as db:
        server = await fetch_mysql(db)
        found = await read_mysql_tables(db, server)
        hidden = await find_hidden_tables(db, server, await count_tables(db, server))
    rows, left_out = choose_rows(found.rows, top)
    reasons = [*found.reasons, *([hidden] if hidden else [])]
    if found.more:
        reasons.append(f"only the {MOST_TABLES} largest tables were looked at")
    return TableHealth(
        target=target.name,
        engine=db.flavor,
        engine_version=db.version,
        source="information_schema.TABLES, performance_schema.table_io_waits_summary_by_index_usage",
        coverage=Coverage(complete=False, reasons=tuple(reasons), snapshots=0) if reasons else WHOLE,
        truncated=left_out,
        took_ms=round((clock.monotonic() - started) * 1000, 1),
        rows=rows,
        counters_since=write_iso(server.started_at),
        examined=len(found.rows),
    )


def choose_rows(judged: Sequence[TableFacts], top: int) -> tuple[tuple[TableFacts, ...], LeftOut]:
    """Take the ``top`` largest, and up to as many smaller ones with findings; count those with findings left out."""
    ordered = sorted(judged, key=lambda row: (-row.size_bytes, row.table))
    suffering = [row for row in ordered[top:] if row.findings]
    rows, left_out = fit_rows([*ordered[:top], *suffering[:top]])
    return rows, LeftOut(rows=left_out + max(0, len(suffering) - top))


def _group(entries: Sequence[TableEntry]) -> list[list[TableEntry]]:
    """Put the partitions of one table together; the largest group first."""
    groups: defaultdict[str, list[TableEntry]] = defaultdict(list)
    for entry in entries:
        groups[entry.root or entry.table].append(entry)
    return sorted(groups.values(), key=lambda group: -sum(entry.size_bytes for entry in group))


def _sources(by_oid: Mapping[str, Bloat]) -> str:
    methods = sorted({found.method for found in by_oid.values()} - {"none"})
    used = ["pg_stats" if method == "statistics" else method for method in methods]
    return ", ".join(["pg_class", "pg_stat_all_tables", *used])


def _facts(
    group: Sequence[TableEntry], server: PostgresServer, settings: VacuumSettings, bloat: Mapping[str, Bloat]
) -> TableFacts:
    first = group[0]
    partitioned = bool(first.root)
    known = [entry for entry in group if bloat.get(entry.oid, NO_BLOAT_KNOWN).method != "none"]
    total = add_bloat([bloat[entry.oid] for entry in known], sum(entry.heap_bytes for entry in known))
    live = sum(_counted(bloat.get(entry.oid, NO_BLOAT_KNOWN).live_rows, entry.live) for entry in group)
    dead = sum(_counted(bloat.get(entry.oid, NO_BLOAT_KNOWN).dead_rows, entry.dead) for entry in group)
    rows = sum(max(entry.live, entry.tuples, 0) for entry in group)
    scans = judge_scans(
        scans=max(entry.seq_scans for entry in group),
        rows_read=sum(entry.seq_rows for entry in group),
        index_scans=max(entry.index_scans for entry in group),
        rows=rows,
        since=write_iso(server.counters_since) or "",
    )
    xid_age = max(entry.xid_age for entry in group)
    return TableFacts(
        table=first.root or first.table,
        size_bytes=sum(entry.size_bytes for entry in group),
        live_rows=live,
        dead_rows=dead,
        bloat_share=None if total.method == "none" else round(total.share, 3),
        findings="; ".join([*([scans] if scans else []), *_storage(group, server.now, settings, bloat)]),
        bloat_method=total.method,
        bloat_bytes=None if total.method == "none" else total.wasted_bytes,
        heap_bytes=sum(entry.heap_bytes for entry in group),
        index_bytes=sum(entry.index_bytes for entry in group),
        toast_bytes=sum(entry.toast_bytes for entry in group),
        seq_scans=sum(entry.seq_scans for entry in group),
        seq_rows_read=sum(entry.seq_rows for entry in group),
        index_scans=sum(entry.index_scans for entry in group),
        last_vacuum=_oldest(group, "vacuumed"),
        last_analyze=_oldest(group, "analyzed"),
        xid_age=xid_age,
        xid_share=round(xid_age / XID_SPACE, 4),
        multixact_age=max(entry.multixact_age for entry in group),
        partitions=len(group) if partitioned else 0,
    )


def _storage(
    group: Sequence[TableEntry], now: datetime, settings: VacuumSettings, bloat: Mapping[str, Bloat]
) -> list[str]:
    told: list[str] = []
    for entry in group:
        found = judge_storage(entry, settings, bloat.get(entry.oid, NO_BLOAT_KNOWN), now=now)
        told += [f"{entry.table}: {finding}" if entry.root else finding for finding in found]
    if len(told) > _MOST_PARTS_TOLD and group[0].root:
        return [*told[:_MOST_PARTS_TOLD], f"and {len(told) - _MOST_PARTS_TOLD} more findings of partitions"]
    return told


def _counted(measured: int | None, believed: int) -> int:
    return believed if measured is None else measured


def _oldest(group: Sequence[TableEntry], what: Literal["vacuumed", "analyzed"]) -> str | None:
    instants = [entry.vacuumed if what == "vacuumed" else entry.analyzed for entry in group]
    known = [instant for instant in instants if instant is not None]
    return write_iso(min(known)) if len(known) == len(instants) else None
