"""Read what is needed to judge bloat on Postgres, by the best method that extension and rights allow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.tools.database_health.bloat import NO_BLOAT_KNOWN, Bloat, ColumnWidth, estimate_bloat, measure_bloat
from bot.tools.database_health.fields import Row, count, flag, number, text
from bot.tools.database_health.postgres_server import PostgresServer
from bot.tools.database_health.postgres_tables import TableEntry, VacuumSettings
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly

LEAST_BYTES = 1024 * 1024
"""Smaller tables are not measured: nobody would rewrite them."""

MOST_BYTES = 1024**3
"""Larger tables are not read through for an answer; the estimate serves them."""

BUDGET_S = 5.0
_EACH_MS = 3_000

# The function that belongs to the extension: another one of the same name may be anybody's.
_EXTENSION = f"""
select {OWN_MARK} n.nspname as schema, quote_ident(n.nspname) as quoted,
  has_function_privilege(p.oid, 'execute') as may_run, has_schema_privilege(n.oid, 'usage') as may_look
from pg_extension e join pg_depend d on d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid
    and d.classid = 'pg_proc'::regclass and d.deptype = 'e'
  join pg_proc p on p.oid = d.objid and p.proname = 'pgstattuple_approx' join pg_namespace n on n.oid = p.pronamespace
where e.extname = 'pgstattuple'"""

# attgenerated = 'v' (18): computed when it is read, so nothing of it is stored.
_COLUMNS = f"""
select {OWN_MARK} a.attrelid::text as oid, a.attlen > 0 as fixed, a.attalign::text as align,
  s.null_frac::float8 as null_share, s.avg_width::float8 as width
from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
  left join pg_stats s on s.schemaname = n.nspname and s.tablename = c.relname and s.attname = a.attname
    and not s.inherited
where a.attrelid::bigint = any(%s::bigint[]) and a.attnum > 0 and not a.attisdropped and a.attgenerated <> 'v'
order by a.attrelid, a.attnum"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BloatReading:
    """Bloat by table oid, and what a person can do for a better method; ``hints`` hold exact lines."""

    by_oid: Mapping[str, Bloat]
    hints: tuple[str, ...]


async def read_bloat(
    db: ReadOnly, clock: Clock, server: PostgresServer, tables: Iterable[TableEntry], settings: VacuumSettings
) -> BloatReading:
    """Judge tables of at least ``LEAST_BYTES``; the largest first, as long as ``BUDGET_S`` lasts.

    Raises:
        ToolFailed: the connection broke. A table that cannot be measured in time is estimated instead.
    """
    wanted = [t for t in tables if t.heap and t.heap_bytes >= LEAST_BYTES]
    row = await db.fetch_one(_EXTENSION)
    usable = row is not None and flag(row, "may_run") and flag(row, "may_look")
    found: dict[str, Bloat] = {}
    if row is not None and usable:
        found = await _measure(db, clock, text(row, "schema"), wanted)
    rest = [table for table in wanted if table.oid not in found]
    found |= await _estimate(db, rest, settings)
    hints: list[str] = []
    if any(found.get(table.oid, NO_BLOAT_KNOWN).method == "none" for table in wanted):
        hints.append(_how_to_see_more(server, row))
    return BloatReading(by_oid=found, hints=tuple(hints))


async def _measure(db: ReadOnly, clock: Clock, schema: str, tables: Sequence[TableEntry]) -> dict[str, Bloat]:
    from psycopg import sql

    query = sql.SQL("select {} * from {}.pgstattuple_approx(%s::bigint::oid::regclass)").format(
        sql.SQL(OWN_MARK), sql.Identifier(schema)
    )
    until = clock.monotonic() + BUDGET_S
    found: dict[str, Bloat] = {}
    for table in sorted(tables, key=lambda t: -t.heap_bytes):
        if table.heap_bytes > MOST_BYTES:
            continue
        if clock.monotonic() >= until:
            break
        await db.execute(f"savepoint {OWN_MARK} measure".encode())
        try:
            await db.fetch(f"select {OWN_MARK} set_config('statement_timeout', '{_EACH_MS}', true)")
            row = await db.fetch_one(query, (table.oid,))
        except ToolFailed as failure:
            if failure.code == "connect_failed":
                raise
            row = None  # dropped or locked meanwhile, or too slow: the estimate has to do
        await db.execute(f"rollback {OWN_MARK} to savepoint measure".encode())
        if row is not None:
            found[table.oid] = measure_bloat(
                table_bytes=count(row, "table_len"),
                free_bytes=number(row, "approx_free_space"),
                dead_bytes=number(row, "dead_tuple_len"),
                live_rows=count(row, "approx_tuple_count"),
                dead_rows=count(row, "dead_tuple_count"),
                fill_factor=table.fill_factor,
            )
    return found


async def _estimate(db: ReadOnly, tables: Sequence[TableEntry], settings: VacuumSettings) -> dict[str, Bloat]:
    if not tables:
        return {}
    columns: defaultdict[str, list[ColumnWidth]] = defaultdict(list)
    unseen: set[str] = set()
    for row in await db.fetch(_COLUMNS, ([int(table.oid) for table in tables],)):
        if row["width"] is None:
            unseen.add(text(row, "oid"))
        columns[text(row, "oid")].append(
            ColumnWidth(
                width=number(row, "width"),
                null_share=number(row, "null_share"),
                align=text(row, "align"),
                fixed=flag(row, "fixed"),
            )
        )
    found: dict[str, Bloat] = {}
    for table in tables:
        pages = table.heap_bytes / settings.block_size
        # A count of rows that was made while the file had another size says nothing about this one.
        stale = table.tuples < 0 or abs(table.pages - pages) > max(16, pages / 10)
        if stale or table.oid in unseen or not columns[table.oid]:
            found[table.oid] = NO_BLOAT_KNOWN
            continue
        found[table.oid] = estimate_bloat(
            table_bytes=table.heap_bytes,
            rows=table.tuples,
            columns=columns[table.oid],
            fill_factor=table.fill_factor,
            block_size=settings.block_size,
        )
    return found


def _how_to_see_more(server: PostgresServer, extension: Row | None) -> str:
    begin = "the bloat of some tables is not known"
    if extension is None:
        install = f"CREATE EXTENSION pgstattuple; GRANT pg_stat_scan_tables TO {server.role};"
        return f"{begin}; in database {server.database}: {install}"
    lines: list[str] = []
    if not flag(extension, "may_look"):
        lines.append(f"GRANT USAGE ON SCHEMA {text(extension, 'quoted')} TO {server.role};")
    if not flag(extension, "may_run"):
        lines.append(f"GRANT pg_stat_scan_tables TO {server.role};")
    if lines:
        return f"{begin}: {' '.join(lines)}"
    return (
        f"{begin}: they are too large to be read for an answer, or the time was up, and there are no fresh statistics "
        f"that this role may read; ANALYZE them, and GRANT SELECT ON the tables TO {server.role};"
    )
