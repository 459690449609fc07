"""Checks of objects of a Postgres database: sequences that run out, and what looks like a guarantee but is none."""

from __future__ import annotations

from collections.abc import Sequence

from bot.tools.database_health.answer import Check, Status
from bot.tools.database_health.checks import HealthBounds, unknown
from bot.tools.database_health.fields import Row, flag, maybe_number, number, text
from bot.tools.database_health.postgres_server import LOCKED, OURS_ONLY, PostgresServer
from bot.tools.database_health.wording import percent, say_count, say_number, say_some
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly

_MOST_ITEMS = 10
_MOST_SCHEMAS = 3

# A serial column may be smaller than its sequence: what runs out first counts. Owned (OWNED BY, identity) and merely
# used in a DEFAULT, both count.
_SEQUENCES = f"""
with used as materialized (
  select d.objid as sequence, d.refobjid as relation, d.refobjsubid as column_number from pg_depend d
  where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass and d.refobjsubid > 0
    and d.deptype in ('a', 'i') and d.objid in (select seqrelid from pg_sequence)
  union select d.refobjid, ad.adrelid, ad.adnum from pg_attrdef ad
    join pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = ad.oid and d.refclassid = 'pg_class'::regclass
  where d.refobjid in (select seqrelid from pg_sequence)),
columns as materialized (
  select distinct on (u.sequence) u.sequence, format_type(a.atttypid, null) as type,
    quote_ident(cn.nspname) || '.' || quote_ident(r.relname) || '.' || quote_ident(a.attname) as name
  from used u join pg_class r on r.oid = u.relation join pg_namespace cn on cn.oid = r.relnamespace
    join pg_attribute a on a.attrelid = u.relation and a.attnum = u.column_number
  order by u.sequence, a.attlen),
mine as materialized (
  select t.oid, n.nspname, t.relname, t.relpersistence, s.*, has_sequence_privilege(t.oid, 'SELECT, USAGE') as readable
  from pg_sequence s join pg_class t on t.oid = s.seqrelid join pg_namespace n on n.oid = t.relnamespace
  where {OURS_ONLY} and not s.seqcycle)
select {OWN_MARK} quote_ident(m.nspname) || '.' || quote_ident(m.relname) as sequence, quote_ident(m.nspname) as schema,
  m.readable, m.seqincrement::float8 as step, m.seqmin::float8 as low, m.seqmax::float8 as high,
  case when m.readable and not (m.relpersistence = 'u' and pg_is_in_recovery())
    then pg_sequence_last_value(m.oid)::float8 end as last,
  c.name as column_name, c.type as column_type
from mine m left join columns c on c.sequence = m.oid"""

_TYPE_HIGH = {"smallint": 32_767.0, "integer": 2_147_483_647.0}

# conenforced came with 18: NOT ENFORCED is meant that way.
_OBJECTS = f"""
with {LOCKED}
select {OWN_MARK} 'invalid index' as kind, quote_ident(n.nspname) || '.' || quote_ident(x.relname) as name,
  'on ' || quote_ident(t.relname) || ': no statement uses it (index_health)' as said
from pg_index i join pg_class x on x.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
  join pg_namespace n on n.oid = t.relnamespace
where {OURS_ONLY} and not i.indisvalid
  and not exists (select from pg_stat_progress_create_index p where p.index_relid = i.indexrelid)
  and not exists (select from pg_locks l where l.relation = i.indrelid and l.mode = 'ShareUpdateExclusiveLock'
    and l.granted and l.database = (select oid from pg_database where datname = current_database()))
union all
select 'unvalidated constraint',
  quote_ident(n.nspname) || '.' || quote_ident(t.relname) || ' ' || quote_ident(c.conname),
  'old rows may break it: ALTER TABLE ' || quote_ident(n.nspname) || '.' || quote_ident(t.relname)
    || ' VALIDATE CONSTRAINT ' || quote_ident(c.conname) || ';'
from pg_constraint c join pg_class t on t.oid = c.conrelid join pg_namespace n on n.oid = t.relnamespace
where {OURS_ONLY} and not c.convalidated and coalesce((to_jsonb(c) ->> 'conenforced')::boolean, true)
union all
select 'disabled trigger', quote_ident(n.nspname) || '.' || quote_ident(t.relname) || ' ' || quote_ident(g.tgname),
  case when g.tgisinternal then 'a foreign key is not checked' else 'it does not fire' end
from pg_trigger g join pg_class t on t.oid = g.tgrelid join pg_namespace n on n.oid = t.relnamespace
where {OURS_ONLY} and g.tgenabled = 'D'
union all
select 'unlogged table', quote_ident(n.nspname) || '.' || quote_ident(t.relname),
  pg_size_pretty(pg_relation_size(t.oid)) || ' that a crash empties; standbys do not have it'
from pg_class t join pg_namespace n on n.oid = t.relnamespace
where {OURS_ONLY} and t.relkind = 'r' and t.relpersistence = 'u'
  and t.oid not in (select relation from locked) and pg_relation_size(t.oid) >= %s
union all
select 'checksum failures', quote_ident(datname), checksum_failures || ' damaged pages were read'
from pg_stat_database where checksum_failures > 0
order by 1, 2"""


async def check_sequences(db: ReadOnly, server: PostgresServer, bounds: HealthBounds) -> Check:
    """Look for sequences near the end of their range, or of their column's type."""
    rows = await db.fetch(_SEQUENCES)
    hidden = [row for row in rows if not flag(row, "readable")]
    judged = sorted(
        ((used_share(row), row) for row in rows if flag(row, "readable")), key=lambda item: item[0], reverse=True
    )
    highest = judged[0][0] if judged else 0.0
    status: Status = bounds.sequence.grade(highest)
    grant = _sequence_grant(server, hidden) if hidden else None
    if hidden and status == "ok":
        return unknown(
            "sequences", f"the role may not read {len(hidden)} of {say_number(len(rows), 'sequence')}", grant=grant
        )
    near = [(share, row) for share, row in judged if share >= bounds.sequence.warn]
    evidence = "there are no sequences"
    if judged:
        evidence = f"{say_number(len(judged), 'sequence')}, the furthest at {percent(highest)} of its range"
    if near:
        evidence += f": {say_some([text(row, 'sequence') for _, row in near], most=3)}"
    if hidden:
        evidence += f"; {len(hidden)} more may not be read"
    advice = ""
    if near:
        advice = (
            "make column and sequence bigint before the end (ALTER TABLE ... TYPE bigint rewrites the table and locks "
            "it; a new column filled in the background does not)"
        )
    return Check(
        check="sequences",
        status=status,
        value=round(highest, 4),
        unit="share of the range used",
        bound=bounds.sequence.describe(percent),
        evidence=evidence,
        advice=advice,
        grant=grant,
        items=tuple(_say_sequence(share, row) for share, row in near[:_MOST_ITEMS]),
    )


def used_share(row: Row) -> float:
    """Return how much of a sequence's range is used up, 0..1, in the direction of its steps; 0 before its first use."""
    last = maybe_number(row, "last")
    if last is None:
        return 0.0
    low, high = _range(row)
    used = last - low if number(row, "step") > 0 else high - last
    return min(1.0, max(0.0, used / (high - low))) if high > low else 1.0


def _range(row: Row) -> tuple[float, float]:
    low, high = number(row, "low"), number(row, "high")
    type_high = _TYPE_HIGH.get(text(row, "column_type"))
    return (low, high) if type_high is None else (max(low, -type_high - 1), min(high, type_high))


def _say_sequence(share: float, row: Row) -> str:
    low, high = _range(row)
    last, step = number(row, "last"), number(row, "step") or 1.0
    left = (high - last) / step if step > 0 else (last - low) / -step
    column = f"; column {text(row, 'column_name')} is {text(row, 'column_type')}" if text(row, "column_name") else ""
    end = high if step > 0 else low
    return (
        f"sequence {text(row, 'sequence')} is at {say_count(last)} of {say_count(end)} ({percent(share)}), "
        f"{say_count(max(0.0, left))} values left{column}"
    )


def _sequence_grant(server: PostgresServer, hidden: Sequence[Row]) -> str:
    schemas = sorted({text(row, "schema") for row in hidden})
    lines = [
        f"GRANT SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {server.role};" for schema in schemas[:_MOST_SCHEMAS]
    ]
    if len(schemas) > _MOST_SCHEMAS:
        lines.append(f"-- and {len(schemas) - _MOST_SCHEMAS} more schemas")
    return " ".join(lines)


async def check_objects(db: ReadOnly, server: PostgresServer, bounds: HealthBounds) -> Check:
    """Look for invalid indexes, unvalidated constraints, disabled triggers, unlogged tables, damaged pages."""
    rows = await db.fetch(_OBJECTS, (bounds.unlogged_bytes,))
    damaged = any(text(row, "kind") == "checksum failures" for row in rows)
    status: Status = "critical" if damaged else "warn" if rows else "ok"
    kinds = sorted({text(row, "kind") for row in rows})
    counts = [f"{sum(text(row, 'kind') == kind for row in rows)} x {kind}" for kind in kinds]
    return Check(
        check="objects",
        status=status,
        value=float(len(rows)),
        unit="objects",
        bound="warn from 1; damaged pages are critical",
        evidence=", ".join(counts) or "no invalid, disabled or unlogged object",
        advice="look at each of them; damaged pages: check disks and restore from a backup" if rows else "",
        items=tuple(f"{text(row, 'kind')} {text(row, 'name')}: {text(row, 'said')}" for row in rows[:_MOST_ITEMS]),
    )
