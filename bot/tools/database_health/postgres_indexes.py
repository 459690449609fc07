"""All indexes of a Postgres database, as its catalogs and counters have them."""

from __future__ import annotations

from dataclasses import dataclass

from bot.tools.database_health.fields import Row, count, flag, maybe_count, text, texts
from bot.tools.database_health.postgres_server import LOCKED, OURS_ONLY
from bot.tools.database_health.redundancy import KeyPart
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly

MOST_INDEXES = 10_000
"""How many indexes are looked at, the largest first; the rest is told, not read."""

# to_jsonb(i): a column that came with a later version is simply not there in an older one.
_INDEXES = f"""
with {LOCKED}, ours as (
  select i.*, c.relname, c.relkind, c.relam, c.reloptions, c.relpages, t.relname as tablename, n.nspname,
    t.relkind as tablekind
  from pg_index i join pg_class c on c.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
    join pg_namespace n on n.oid = t.relnamespace
  where {OURS_ONLY}
    and t.oid not in (select objid from pg_depend where classid = 'pg_class'::regclass and deptype = 'e')
    and i.indexrelid not in (select relation from locked) and i.indrelid not in (select relation from locked)
  order by c.relpages desc limit {MOST_INDEXES + 1})
select {OWN_MARK} i.indexrelid::text as oid, i.indrelid::text as table_oid,
  quote_ident(i.nspname) || '.' || quote_ident(i.tablename) as table_name,
  quote_ident(i.nspname) || '.' || quote_ident(i.relname) as index_name,
  pg_get_indexdef(i.indexrelid) as definition, pg_relation_size(i.indexrelid) as size_bytes,
  a.amname as method, i.relkind = 'I' as partitioned, i.indnkeyatts as keys,
  (select inhparent::text from pg_inherits where inhrelid = i.indexrelid) as parent,
  coalesce(pg_partition_root(i.indexrelid), i.indexrelid)::oid::text as root,
  array(select pg_get_indexdef(i.indexrelid, k, false) from generate_series(1, i.indnatts) k order by k) as parts,
  string_to_array(i.indclass::text, ' ') as classes, string_to_array(i.indcollation::text, ' ') as collations,
  string_to_array(i.indoption::text, ' ') as options,
  array(select coalesce(attoptions::text, '') from pg_attribute
    where attrelid = i.indexrelid and attnum > 0 order by attnum) as class_options,
  i.reloptions as parameters, pg_get_expr(i.indpred, i.indrelid) as predicate,
  i.indisunique as is_unique, i.indisprimary as is_primary, i.indisexclusion as is_exclusion,
  i.indimmediate as immediate,
  i.indisvalid and i.indisready and i.indislive as valid, i.indisreplident as replident, i.indisclustered as clustered,
  coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false) as nulls_not_distinct,
  (select quote_ident(conname) from pg_constraint
    where conindid = i.indexrelid and conrelid = i.indrelid and contype in ('p', 'u', 'x') limit 1) as constraint_name,
  i.indexrelid in (select conindid from pg_constraint where contype = 'f') as referenced,
  array(select quote_ident(f.conname) from pg_constraint f where f.conrelid = i.indrelid and f.contype = 'f'
    and f.conkey[1] = i.indkey[0]) as foreign_keys,
  coalesce(s.idx_scan, 0) as scans,
  coalesce(u.n_tup_ins + u.n_tup_upd + u.n_tup_del, 0) as writes,
  i.indexrelid in (select index_relid from pg_stat_progress_create_index where index_relid is not null) as building,
  i.indrelid in (select relation from pg_locks where locktype = 'relation' and granted
    and mode = 'ShareUpdateExclusiveLock'
    and database = (select oid from pg_database where datname = current_database())) as table_busy
from ours i join pg_am a on a.oid = i.relam
  left join pg_stat_all_indexes s on s.indexrelid = i.indexrelid
  left join pg_stat_all_tables u on u.relid = i.indrelid
order by i.nspname, i.tablename, i.relname"""

_LOCKED_NAMES = f"""
with {LOCKED}
select {OWN_MARK} distinct quote_ident(n.nspname) || '.' || quote_ident(t.relname) as name
from locked join pg_class t on t.oid = locked.relation join pg_namespace n on n.oid = t.relnamespace
where {OURS_ONLY} order by 1 limit 20"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One index; see ``pg_index``.

    Args:
        oid, table_oid, parent, root: ids; ``parent`` is empty for an index that is no part of a partitioned one.
        table, index: quoted, with schema.
        valid: valid, ready and live.
        constraint: the constraint that stands on it, quoted, or empty.
        referenced: a foreign key of another table points at it.
        foreign_keys: constraints of this table whose first column is the index's first.
        scans, writes: since the counters began; writes are of the whole table.
        building: a session builds it just now, as far as the role may see that.
        table_busy: a session has the lock on the table that building without blocking takes (and so does VACUUM).
    """

    oid: str
    table_oid: str
    table: str
    index: str
    definition: str
    size_bytes: int
    method: str
    partitioned: bool
    parent: str
    root: str
    parts: tuple[KeyPart, ...]
    included: frozenset[str]
    predicate: str
    parameters: tuple[str, ...]
    unique: bool
    primary: bool
    exclusion: bool
    deferrable: bool
    valid: bool
    replident: bool
    clustered: bool
    nulls_not_distinct: bool
    constraint: str
    referenced: bool
    foreign_keys: tuple[str, ...]
    scans: int
    writes: int
    building: bool
    table_busy: bool


async def fetch_indexes(db: ReadOnly) -> tuple[tuple[IndexEntry, ...], bool]:
    """Read all indexes but those of the system, of temporary tables and of tables that a session holds for itself.

    Returns:
        The indexes, and whether there are more than ``MOST_INDEXES``.

    Raises:
        ToolFailed: see ``ReadOnly.fetch``.
    """
    rows = await db.fetch(_INDEXES)
    return tuple(_entry(row) for row in rows[:MOST_INDEXES]), len(rows) > MOST_INDEXES


async def fetch_locked(db: ReadOnly) -> tuple[str, ...]:
    """Name the relations that were left out because a session holds them for itself; at most 20."""
    return tuple(text(row, "name") for row in await db.fetch(_LOCKED_NAMES))


def _entry(row: Row) -> IndexEntry:
    keys = count(row, "keys")
    names, classes = texts(row, "parts"), texts(row, "classes")
    collations, options, class_options = texts(row, "collations"), texts(row, "options"), texts(row, "class_options")
    traits = zip(names, classes, collations, options, class_options, strict=False)
    return IndexEntry(
        oid=text(row, "oid"),
        table_oid=text(row, "table_oid"),
        table=text(row, "table_name"),
        index=text(row, "index_name"),
        definition=text(row, "definition"),
        size_bytes=count(row, "size_bytes"),
        method=text(row, "method"),
        partitioned=flag(row, "partitioned"),
        parent=text(row, "parent"),
        root=text(row, "root"),
        parts=tuple(KeyPart(text=name, traits=tuple(rest)) for name, *rest in list(traits)[:keys]),
        included=frozenset(names[keys:]),
        predicate=text(row, "predicate"),
        parameters=texts(row, "parameters"),
        unique=flag(row, "is_unique"),
        primary=flag(row, "is_primary"),
        exclusion=flag(row, "is_exclusion"),
        deferrable=not flag(row, "immediate"),
        valid=flag(row, "valid"),
        replident=flag(row, "replident"),
        clustered=flag(row, "clustered"),
        nulls_not_distinct=flag(row, "nulls_not_distinct"),
        constraint=text(row, "constraint_name"),
        referenced=flag(row, "referenced"),
        foreign_keys=texts(row, "foreign_keys"),
        scans=maybe_count(row, "scans") or 0,
        writes=count(row, "writes"),
        building=flag(row, "building"),
        table_busy=flag(row, "table_busy"),
    )
