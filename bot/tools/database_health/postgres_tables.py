"""All tables of a Postgres database, with what its counters and catalogs say about them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bot.tools.database_health.fields import Row, count, instant, maybe_number, number, text
from bot.tools.database_health.postgres_server import LOCKED, OURS_ONLY
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly

MOST_TABLES = 20_000
"""How many tables are measured, the largest first; the rest is told, not read."""

_TABLES = f"""
with {LOCKED}, ours as (
  select t.*, n.nspname from pg_class t join pg_namespace n on n.oid = t.relnamespace
  where {OURS_ONLY} and t.relkind in ('r', 'm') and t.oid not in (select relation from locked)
    and t.reltoastrelid not in (select relation from locked)
    and not exists (select from pg_index i join locked on locked.relation = i.indexrelid where i.indrelid = t.oid)
  order by t.relpages desc limit {MOST_TABLES + 1})
select {OWN_MARK} t.oid::text as oid, quote_ident(t.nspname) || '.' || quote_ident(t.relname) as table_name,
  (select quote_ident(rn.nspname) || '.' || quote_ident(r.relname) from pg_class r
    join pg_namespace rn on rn.oid = r.relnamespace where r.oid = pg_partition_root(t.oid)) as root_name,
  pg_total_relation_size(t.oid) as size_bytes, pg_relation_size(t.oid) as heap_bytes,
  pg_indexes_size(t.oid) as index_bytes,
  case when t.reltoastrelid = 0 then 0 else pg_total_relation_size(t.reltoastrelid) end as toast_bytes,
  t.reltuples::float8 as tuples, t.relpages as pages, a.amname as access_method, t.relkind = 'm' as is_matview,
  coalesce((select substring(o from 12)::int from unnest(t.reloptions) o where o like 'fillfactor=%'), 100)
    as fill_factor,
  coalesce((select lower(split_part(o, '=', 2)) from unnest(t.reloptions) o
    where o like 'autovacuum_enabled=%'), 'true')
    as autovacuum,
  s.n_live_tup as live, s.n_dead_tup as dead, s.n_mod_since_analyze as modified,
  s.seq_scan as seq_scans, s.seq_tup_read as seq_rows, coalesce(s.idx_scan, 0) as index_scans,
  greatest(s.last_vacuum, s.last_autovacuum) as vacuumed, greatest(s.last_analyze, s.last_autoanalyze) as analyzed,
  greatest(age(t.relfrozenxid), coalesce((select age(x.relfrozenxid) from pg_class x where x.oid = t.reltoastrelid), 0))
    as xid_age,
  greatest(mxid_age(t.relminmxid),
    coalesce((select mxid_age(x.relminmxid) from pg_class x where x.oid = t.reltoastrelid), 0)) as multixact_age
from ours t left join pg_am a on a.oid = t.relam left join pg_stat_all_tables s on s.relid = t.oid
order by size_bytes desc, table_name"""

_SETTINGS = f"""
select {OWN_MARK} current_setting('block_size')::int as block_size, current_setting('autovacuum') as autovacuum,
  current_setting('track_counts') as track_counts,
  current_setting('autovacuum_vacuum_threshold')::float8 as vacuum_base,
  current_setting('autovacuum_vacuum_scale_factor')::float8 as vacuum_scale,
  current_setting('autovacuum_freeze_max_age')::float8 as freeze_max_age"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """One table that holds rows: an ordinary one, a materialized view, or one partition (``root`` names its table)."""

    oid: str
    table: str
    root: str
    size_bytes: int
    heap_bytes: int
    index_bytes: int
    toast_bytes: int
    tuples: float
    pages: int
    heap: bool
    fill_factor: int
    autovacuum: bool
    live: int
    dead: int
    modified: int
    seq_scans: int
    seq_rows: int
    index_scans: int
    vacuumed: datetime | None
    analyzed: datetime | None
    xid_age: int
    multixact_age: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumSettings:
    """What the server's own settings say about vacuuming."""

    block_size: int
    autovacuum: bool
    counts: bool
    vacuum_base: float
    vacuum_scale: float
    freeze_max_age: float


async def fetch_tables(db: ReadOnly) -> tuple[tuple[TableEntry, ...], bool]:
    """Read all tables but those of the system, temporary ones and those that a session holds for itself.

    Returns:
        The tables, the largest first, and whether there are more than ``MOST_TABLES``.

    Raises:
        ToolFailed: see ``ReadOnly.fetch``.
    """
    rows = await db.fetch(_TABLES)
    return tuple(_entry(row) for row in rows[:MOST_TABLES]), len(rows) > MOST_TABLES


async def fetch_vacuum_settings(db: ReadOnly) -> VacuumSettings:
    """Read the settings."""
    row: Row = await db.fetch_one(_SETTINGS) or {}
    return VacuumSettings(
        block_size=count(row, "block_size") or 8192,
        autovacuum=text(row, "autovacuum") == "on",
        counts=text(row, "track_counts") == "on",
        vacuum_base=number(row, "vacuum_base"),
        vacuum_scale=number(row, "vacuum_scale"),
        freeze_max_age=number(row, "freeze_max_age"),
    )


def _entry(row: Row) -> TableEntry:
    tuples = maybe_number(row, "tuples")
    return TableEntry(
        oid=text(row, "oid"),
        table=text(row, "table_name"),
        root=text(row, "root_name"),
        size_bytes=count(row, "size_bytes"),
        heap_bytes=count(row, "heap_bytes"),
        index_bytes=count(row, "index_bytes"),
        toast_bytes=count(row, "toast_bytes"),
        tuples=-1.0 if tuples is None else tuples,
        pages=count(row, "pages"),
        heap=text(row, "access_method") == "heap",
        fill_factor=count(row, "fill_factor"),
        autovacuum=text(row, "autovacuum") in ("true", "on", "yes", "1"),
        live=count(row, "live"),
        dead=count(row, "dead"),
        modified=count(row, "modified"),
        seq_scans=count(row, "seq_scans"),
        seq_rows=count(row, "seq_rows"),
        index_scans=count(row, "index_scans"),
        vacuumed=instant(row, "vacuumed"),
        analyzed=instant(row, "analyzed"),
        xid_age=count(row, "xid_age"),
        multixact_age=count(row, "multixact_age"),
    )
