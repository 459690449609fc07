"""What is wrong with a Postgres table, in words with evidence. No database here: values in, values out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from bot.tools.database_health.bloat import Bloat
from bot.tools.database_health.postgres_tables import TableEntry, VacuumSettings
from bot.tools.database_health.wording import percent, say_age, say_count, write_size

XID_SPACE = 2**31
"""Transactions until rows without freezing would seem to lie in the future."""

_MiB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBounds:
    """From where on something is told.

    Args:
        dead_rows, dead_share: both; and more than what autovacuum waits for.
        bloat_bytes, bloat_share: both; the estimate needs ``estimate_share``, as it may be off.
        seq_scans: so many sequential scans,
        seq_rows: that read so many rows each on average,
        seq_share: and are so many of all scans of the table.
        unanalyzed_rows: changed rows without any ANALYZE.
        xid_share: of ``XID_SPACE``; and twice ``autovacuum_freeze_max_age`` is told too.
    """

    dead_rows: int = 10_000
    dead_share: float = 0.2
    bloat_bytes: int = 4 * _MiB
    bloat_share: float = 0.4
    estimate_share: float = 0.5
    seq_scans: int = 10
    seq_rows: int = 10_000
    seq_share: float = 0.05
    unanalyzed_rows: int = 10_000
    xid_share: float = 0.5


TABLE_BOUNDS = TableBounds()


def judge_storage(
    table: TableEntry, settings: VacuumSettings, bloat: Bloat, *, now: datetime, bounds: TableBounds = TABLE_BOUNDS
) -> list[str]:
    """Find dead rows, bloat, missing statistics and old transaction ids of a table that holds rows.

    Rows that were counted while bloat was measured win over the server's counters, which lag behind.
    """
    if bloat.live_rows is not None and bloat.dead_rows is not None:
        table = replace(table, live=bloat.live_rows, dead=bloat.dead_rows)
    found = [
        _judge_dead(table, settings, bounds, now),
        _judge_bloat(table, bloat, bounds),
        _judge_analyze(table, bounds),
        _judge_age(table, settings, bounds),
    ]
    return [finding for finding in found if finding]


def judge_scans(
    *, scans: int, rows_read: int, index_scans: int, rows: float, since: str, bounds: TableBounds = TABLE_BOUNDS
) -> str:
    """Find many sequential scans of a large table; empty when there are none.

    Args:
        scans, rows_read, index_scans: since the counters began, of all partitions.
        rows: how many the table has.
        since: the beginning of the counters in words, empty when not known.
    """
    each = rows_read / scans if scans else 0.0
    share = scans / (scans + index_scans) if scans else 0.0
    if scans < bounds.seq_scans or min(each, rows) < bounds.seq_rows or share < bounds.seq_share:
        return ""
    begun = f" since {since}" if since else ""
    return (
        f"{say_count(scans)} sequential scans{begun} read {say_count(rows_read)} rows, {say_count(each)} each of "
        f"{say_count(rows)}, beside {say_count(index_scans)} index scans: an index may be missing; get_slow_queries "
        "and recommend_indexes tell for which statements"
    )


def _judge_dead(table: TableEntry, settings: VacuumSettings, bounds: TableBounds, now: datetime) -> str:
    all_rows = table.live + table.dead
    due = settings.vacuum_base + settings.vacuum_scale * max(0.0, table.tuples)
    if table.dead < bounds.dead_rows or table.dead <= due or table.dead < bounds.dead_share * all_rows:
        return ""
    if table.vacuumed is None:
        last = "never vacuumed since the counters began"
    else:
        last = f"last vacuumed {say_age(max(0.0, (now - table.vacuumed).total_seconds()))} ago"
    if not settings.autovacuum:
        cause = "autovacuum is switched off on this server: ALTER SYSTEM SET autovacuum = on"
    elif not table.autovacuum:
        cause = f"autovacuum is switched off for it: ALTER TABLE {table.table} RESET (autovacuum_enabled)"
    else:
        cause = (
            f"autovacuum is due from {say_count(due)} on; if it does not come, look for long transactions and "
            "replication slots that keep old rows (db_health)"
        )
    return f"{say_count(table.dead)} dead rows, {percent(table.dead / all_rows)} of all; {last}; {cause}"


def _judge_bloat(table: TableEntry, bloat: Bloat, bounds: TableBounds) -> str:
    least = bounds.estimate_share if bloat.method == "statistics" else bounds.bloat_share
    if bloat.method == "none" or bloat.wasted_bytes < bounds.bloat_bytes or bloat.share < least:
        return ""
    how = "measured with pgstattuple_approx" if bloat.method == "pgstattuple_approx" else "estimated from statistics"
    return (
        f"{write_size(bloat.wasted_bytes)} of {write_size(table.heap_bytes)} ({percent(bloat.share)}) hold no live "
        f"rows ({how}): VACUUM makes the room usable again, VACUUM FULL (locks the table) or pg_repack gives it back"
    )


def _judge_analyze(table: TableEntry, bounds: TableBounds) -> str:
    if table.modified < bounds.unanalyzed_rows or table.modified < table.live / 2:
        return ""
    changed = f"{say_count(table.modified)} rows changed"
    if table.analyzed is None:
        return f"not analyzed since the counters began, while {changed}: the planner guesses; ANALYZE {table.table}"
    if table.modified < max(table.live, 5 * bounds.unanalyzed_rows):
        return ""
    return f"{changed} since the last ANALYZE, of {say_count(table.live)}: plans may be off; ANALYZE {table.table}"


def _judge_age(table: TableEntry, settings: VacuumSettings, bounds: TableBounds) -> str:
    share = table.xid_age / XID_SPACE
    multi = table.multixact_age / XID_SPACE
    late = settings.freeze_max_age > 0 and table.xid_age > 2 * settings.freeze_max_age
    if share >= bounds.xid_share or late:
        return (
            f"its oldest rows are {say_count(table.xid_age)} transactions old, {percent(share)} of the way to "
            f"wraparound (autovacuum_freeze_max_age {say_count(settings.freeze_max_age)}): "
            f"VACUUM (FREEZE) {table.table}"
        )
    if multi >= bounds.xid_share:
        return f"its oldest multixact is {percent(multi)} of the way to wraparound: VACUUM (FREEZE) {table.table}"
    return ""
