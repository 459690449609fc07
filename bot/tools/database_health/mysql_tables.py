"""Tables of MySQL and MariaDB: sizes, free room, statistics, and how far AUTO_INCREMENT has come."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent_core.errors import ToolFailed
from bot.tools.database_health.answer import TableFacts
from bot.tools.database_health.fields import Row, count, instant, maybe_count, text, write_iso
from bot.tools.database_health.mysql_server import MySqlServer, quote_name
from bot.tools.database_health.postgres_table_findings import judge_scans
from bot.tools.database_health.wording import percent, say_count, write_size
from bot.tools.mysql.connection import OWN_MARK, MySqlReadOnly

MOST_TABLES = 20_000
_MiB = 1024 * 1024
# InnoDB adds whole extents to a file before they are needed, so that some free room is in every larger table.
_FREE_BYTES = 16 * _MiB
_FREE_SHARE = 0.4
_AUTO_INCREMENT_SHARE = 0.75

_TABLES = (
    "SELECT {mark} TABLE_SCHEMA AS s, TABLE_NAME AS t, ENGINE AS engine, TABLE_ROWS AS row_count, "
    "DATA_LENGTH AS data_bytes, INDEX_LENGTH AS index_bytes, DATA_FREE AS free_bytes, AUTO_INCREMENT AS next_value, "
    "UPDATE_TIME AS updated, CREATE_OPTIONS AS options FROM information_schema.TABLES "
    "WHERE TABLE_TYPE = 'BASE TABLE' AND {scope} ORDER BY DATA_LENGTH + INDEX_LENGTH DESC LIMIT {most}"
)
_AUTO_COLUMNS = (
    "SELECT {mark} TABLE_SCHEMA AS s, TABLE_NAME AS t, COLUMN_NAME AS col, COLUMN_TYPE AS type "
    "FROM information_schema.COLUMNS WHERE EXTRA LIKE '%%auto_increment%%' AND {scope}"
)
_SCANS = (
    "SELECT {mark} OBJECT_SCHEMA AS s, OBJECT_NAME AS t, SUM(IF(INDEX_NAME IS NULL, COUNT_FETCH, 0)) AS scanned, "
    "SUM(IF(INDEX_NAME IS NOT NULL, COUNT_FETCH, 0)) AS looked_up "
    "FROM performance_schema.table_io_waits_summary_by_index_usage "
    "WHERE OBJECT_TYPE = 'TABLE' AND {scope} GROUP BY 1, 2"
)
_STATISTICS = (
    "SELECT {mark} database_name AS s, table_name AS t, MIN(last_update) AS updated FROM mysql.innodb_table_stats "
    "WHERE {scope} GROUP BY 1, 2"
)
_SETTINGS = (
    "SELECT {mark} @@innodb_file_per_table AS own_files, @@innodb_stats_auto_recalc AS recalculated, "
    "@@time_zone AS zone, @@system_time_zone AS system_zone"
)

_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TYPE = re.compile(r"(\w+)(?:\(\d+\))?( unsigned)?")

Name = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MySqlTables:
    """What was read and judged; ``reasons`` say what could not be."""

    rows: tuple[TableFacts, ...]
    reasons: tuple[str, ...]
    more: bool


async def read_mysql_tables(db: MySqlReadOnly, server: MySqlServer) -> MySqlTables:
    """Read all tables that the account may see, and judge them.

    Raises:
        ToolFailed: see ``MySqlReadOnly.fetch``; a source that the account may not read is done without.
    """
    scope, values = server.scope("TABLE_SCHEMA")
    rows = await db.fetch(_TABLES.format(mark=OWN_MARK, scope=scope, most=MOST_TABLES + 1), values)
    settings: Row = await db.fetch_one(_SETTINGS.format(mark=OWN_MARK)) or {}
    limits = await fetch_auto_limits(db, server)
    scans, reasons = await _fetch_scans(db, server)
    updated = await _fetch_statistics(db, server)
    judged = []
    for row in rows[:MOST_TABLES]:
        name = (text(row, "s"), text(row, "t"))
        judged.append(_facts(row, server, settings, limits.get(name), scans.get(name), updated.get(name)))
    return MySqlTables(rows=tuple(judged), reasons=reasons, more=len(rows) > MOST_TABLES)


async def fetch_auto_limits(db: MySqlReadOnly, server: MySqlServer) -> dict[Name, tuple[str, str, int]]:
    """Read AUTO_INCREMENT columns: by table their name, type and largest value."""
    scope, values = server.scope("TABLE_SCHEMA")
    query = _AUTO_COLUMNS.format(mark=OWN_MARK, scope=scope)
    rows = await db.fetch(query if values else query.replace("%%", "%"), values)
    found: dict[Name, tuple[str, str, int]] = {}
    for row in rows:
        kind = text(row, "type").lower()
        if limit := largest_value(kind):
            found[text(row, "s"), text(row, "t")] = (text(row, "col"), kind, limit)
    return found


def largest_value(column_type: str) -> int:
    """The largest value of an integer type as ``COLUMN_TYPE`` has it; 0 for other types.

    https://dev.mysql.com/doc/refman/8.4/en/integer-types.html
    """
    match = _TYPE.match(column_type)
    bits = _BITS.get(match[1]) if match else None
    if match is None or bits is None:
        return 0
    return (1 << bits) - 1 if match[2] else (1 << (bits - 1)) - 1


def used_share(next_value: int | None, limit: int) -> float:
    """How much of an AUTO_INCREMENT column's range is used up, 0..1."""
    return min(1.0, max(0, (next_value or 1) - 1) / limit)


async def _fetch_scans(db: MySqlReadOnly, server: MySqlServer) -> tuple[dict[Name, tuple[int, int]], tuple[str, ...]]:
    scope, values = server.scope("OBJECT_SCHEMA")
    try:
        rows = await db.fetch(_SCANS.format(mark=OWN_MARK, scope=scope), values)
    except ToolFailed as failure:
        if failure.code != "insufficient_privilege":
            raise
        return {}, (f"full scans are not visible to this account: {server.counters_grant}",)
    return {(text(r, "s"), text(r, "t")): (count(r, "scanned"), count(r, "looked_up")) for r in rows}, ()


async def _fetch_statistics(db: MySqlReadOnly, server: MySqlServer) -> dict[Name, Row]:
    scope, values = server.scope("database_name")
    try:
        rows = await db.fetch(_STATISTICS.format(mark=OWN_MARK, scope=scope), values)
    except ToolFailed as failure:
        if failure.code == "connect_failed":
            raise
        return {}  # only who administers the server may read schema mysql; the other findings do without
    return {(text(r, "s"), text(r, "t").partition("#")[0]): r for r in rows}


def _facts(
    row: Row,
    server: MySqlServer,
    settings: Row,
    auto: tuple[str, str, int] | None,
    scans: tuple[int, int] | None,
    statistics: Row | None,
) -> TableFacts:
    data, index, free = count(row, "data_bytes"), count(row, "index_bytes"), count(row, "free_bytes")
    live, engine = count(row, "row_count"), text(row, "engine")
    # In a shared tablespace the free room is that of all its tables.
    own_file = bool(count(settings, "own_files")) or engine != "InnoDB"
    file_bytes = data + index + free
    share = free / file_bytes if own_file and file_bytes else None
    auto_share = None if auto is None else used_share(maybe_count(row, "next_value"), auto[2])
    scanned, looked_up = scans or (0, 0)
    name = f"{quote_name(text(row, 's'))}.{quote_name(text(row, 't'))}"
    findings = [
        _judge_scans(scanned, looked_up, live, server),
        _judge_free(free, share, file_bytes, name),
        _judge_auto(auto, auto_share, maybe_count(row, "next_value")),
        _judge_engine(engine, data),
        _judge_statistics(row, statistics, settings, name),
    ]
    return TableFacts(
        table=name,
        size_bytes=file_bytes,
        live_rows=live,
        bloat_share=None if share is None else round(share, 3),
        bloat_bytes=None if share is None else free,
        bloat_method="none" if share is None else "data_free",
        findings="; ".join(finding for finding in findings if finding),
        heap_bytes=data,
        index_bytes=index,
        seq_rows_read=None if scans is None else scanned,
        index_scans=None if scans is None else looked_up,
        last_analyze=None if statistics is None else write_iso(instant(statistics, "updated")),
        auto_increment_share=None if auto_share is None else round(auto_share, 4),
        storage_engine=engine,
    )


def _judge_scans(scanned: int, looked_up: int, live: int, server: MySqlServer) -> str:
    # The server counts rows, not scans: so many whole readings would be as many rows.
    scans = scanned // live if live else 0
    return judge_scans(
        scans=scans,
        rows_read=scanned,
        index_scans=looked_up // max(1, live),
        rows=live,
        since=write_iso(server.started_at) or "",
    )


def _judge_free(free: int, share: float | None, file_bytes: int, name: str) -> str:
    if share is None or free < _FREE_BYTES or share < _FREE_SHARE:
        return ""
    return (
        f"{write_size(free)} of {write_size(file_bytes)} ({percent(share)}) are free (DATA_FREE): the room is used "
        f"again for new rows; OPTIMIZE TABLE {name}; rebuilds the table and gives it back"
    )


def _judge_auto(auto: tuple[str, str, int] | None, share: float | None, next_value: int | None) -> str:
    if auto is None or share is None or share < _AUTO_INCREMENT_SHARE:
        return ""
    column, kind, limit = auto
    return (
        f"AUTO_INCREMENT of {quote_name(column)} ({kind}) is at {say_count(next_value or 0)} of {say_count(limit)} "
        f"({percent(share)}): make it bigint before inserts fail"
    )


def _judge_engine(engine: str, data_bytes: int) -> str:
    if engine != "MyISAM" or data_bytes < _MiB:
        return ""
    return "MyISAM knows no transactions, locks the whole table for a write, and may break in a crash: use InnoDB"


def _judge_statistics(row: Row, statistics: Row | None, settings: Row, name: str) -> str:
    by_itself = bool(count(settings, "recalculated")) and "stats_auto_recalc=0" not in text(row, "options").lower()
    written = instant(row, "updated")
    counted = None if statistics is None else instant(statistics, "updated")
    if by_itself or written is None or counted is None or written <= counted:
        return ""
    return (
        f"statistics are not renewed by themselves (STATS_AUTO_RECALC is off), and the table was written at "
        f"{write_iso(written)}, after they were made at {write_iso(counted)} (server time): ANALYZE TABLE {name}"
    )
