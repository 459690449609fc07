"""What the server knows of the tables of a plan: columns with their statistics, indexes, and how much is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bot.tools.index_advice.shape import KeyPart
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly, Row
from bot.tools.slow_queries.explain_parse import ParseError, child, items, parse_tree, write_sql

_TABLES = f"""select {OWN_MARK} c.oid::int8 as oid, n.nspname::text as schema, c.relname::text as name,
  greatest(c.reltuples, 0)::float8 as rows, c.relpages::int8 as pages, c.relkind::text as kind,
  c.relispartition as partition, pg_catalog.pg_table_size(c.oid)::int8 as size,
  coalesce(t.n_tup_ins, 0)::int8 as inserted, coalesce(t.n_tup_upd, 0)::int8 as updated,
  coalesce(t.n_tup_hot_upd, 0)::int8 as hot, coalesce(t.n_tup_del, 0)::int8 as deleted
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  left join pg_catalog.pg_stat_all_tables t on t.relid = c.oid
where (n.nspname::text, c.relname::text) in (select * from unnest(%s::text[], %s::text[]))"""

_COLUMNS = f"""select {OWN_MARK} a.attrelid::int8 as oid, a.attname::text as name, a.attnotnull as required,
  coalesce(base.typname, t.typname)::text as type_name, t.typtype = 'd' as domain,
  pg_catalog.format_type(a.atttypid, a.atttypmod) as type,
  coalesce(co.collcollate in ('C', 'POSIX'), a.attcollation = 0 or d.datcollate in ('C', 'POSIX'), false)
    as plain_order,
  s.avg_width::int4 as width, s.n_distinct::float8 as n_distinct, s.null_frac::float8 as null_frac,
  s.most_common_vals::text::text[] as common, s.most_common_freqs::float8[] as freqs
from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace join pg_catalog.pg_type t on t.oid = a.atttypid
  left join pg_catalog.pg_type base on base.oid = t.typbasetype and t.typtype = 'd'
  left join pg_catalog.pg_collation co on co.oid = a.attcollation and co.collprovider = 'c' and co.collname <> 'default'
  left join pg_catalog.pg_database d on d.datname = pg_catalog.current_database()
  left join pg_catalog.pg_stats s on s.schemaname = n.nspname and s.tablename = c.relname and s.attname = a.attname
    and not s.inherited
where a.attrelid = any(%s::oid[]) and a.attnum > 0 and not a.attisdropped order by a.attrelid, a.attnum"""

_INDEXES = f"""select {OWN_MARK} i.indrelid::int8 as oid, c.relname::text as name, m.amname::text as method,
  i.indisunique as unique, i.indisvalid as valid, coalesce(u.idx_scan, 0)::int8 as scans,
  pg_catalog.pg_relation_size(c.oid)::int8 as size, pg_catalog.pg_get_indexdef(c.oid) as ddl,
  exists(select from pg_catalog.pg_constraint k where k.conindid = c.oid) or i.indisreplident as constraint,
  pg_catalog.pg_get_expr(i.indpred, i.indrelid) as predicate,
  array(select pg_catalog.pg_get_indexdef(c.oid, k, true) from generate_series(1, i.indnatts) k order by k) as columns,
  i.indnkeyatts::int4 as key_count, i.indoption::int2[] as options,
  array(select case when o.opcdefault then '' else o.opcname::text end
        from unnest(i.indclass::oid[]) with ordinality as x(opc, at) join pg_catalog.pg_opclass o on o.oid = x.opc
        order by x.at) as opclasses
from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indexrelid
  join pg_catalog.pg_am m on m.oid = c.relam
  left join pg_catalog.pg_stat_all_indexes u on u.indexrelid = c.oid
where i.indrelid = any(%s::oid[]) order by c.relname"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column.

    Args:
        name: as the catalog has it.
        type_name: of its type, or of a domain's base.
        type: as SQL has it.
        domain: its type is a domain, so that plans cast it to the type beneath.
        plain_order: compared byte by byte, so that an ordinary index serves LIKE 'a%'.
        width: bytes, on average.
        n_distinct: as pg_stats has it: negative is a share of the rows; 0 unknown.
        null_frac: share of NULLs.
        common: values that many rows share, with their share.
    """

    name: str
    type_name: str
    type: str
    domain: bool
    plain_order: bool
    width: int
    n_distinct: float
    null_frac: float
    common: Mapping[str, float] = field(default_factory=dict, repr=False)

    def count_distinct(self, rows: float) -> float:
        """How many values it has, as estimated; 0 when nothing is known."""
        return -self.n_distinct * rows if self.n_distinct < 0 else self.n_distinct


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingIndex:
    """An index of the target. ``constraint``: something other than speed rests on it."""

    name: str
    method: str
    keys: tuple[KeyPart, ...]
    include: tuple[str, ...]
    where: str
    unique: bool
    valid: bool
    constraint: bool
    scans: int
    size_bytes: int
    ddl: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table. Counts of writes are since the statistics were last reset."""

    oid: int
    schema: str
    name: str
    rows: float
    pages: int
    size_bytes: int
    ordinary: bool
    inserted: int
    updated: int
    hot: int
    deleted: int
    columns: Mapping[str, Column] = field(repr=False)
    indexes: tuple[ExistingIndex, ...] = field(repr=False)


async def fetch_tables(db: ReadOnly, relations: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Table]:
    """Read tables by (schema, name)."""
    wanted = list(relations)
    tables = await db.fetch(_TABLES, ([schema for schema, _ in wanted], [name for _, name in wanted]))
    oids = [row["oid"] for row in tables]
    columns = await db.fetch(_COLUMNS, (oids,))
    indexes = await db.fetch(_INDEXES, (oids,))
    return {
        (str(row["schema"]), str(row["name"])): Table(
            oid=_int(row["oid"]),
            schema=str(row["schema"]),
            name=str(row["name"]),
            rows=_float(row["rows"]),
            pages=_int(row["pages"]),
            size_bytes=_int(row["size"]),
            ordinary=row["kind"] in ("r", "m") and not row["partition"],
            inserted=_int(row["inserted"]),
            updated=_int(row["updated"]),
            hot=_int(row["hot"]),
            deleted=_int(row["deleted"]),
            columns={str(c["name"]): _column(c) for c in columns if c["oid"] == row["oid"]},
            indexes=tuple(_index(i) for i in indexes if i["oid"] == row["oid"]),
        )
        for row in tables
    }


def _column(row: Row) -> Column:
    common, freqs = row["common"], row["freqs"]
    pairs = zip(common, freqs, strict=False) if isinstance(common, list) and isinstance(freqs, list) else ()
    return Column(
        name=str(row["name"]),
        type_name=str(row["type_name"]),
        type=str(row["type"]),
        domain=bool(row["domain"]),
        plain_order=bool(row["plain_order"]),
        width=_int(row["width"]) or 8,
        n_distinct=_float(row["n_distinct"]),
        null_frac=_float(row["null_frac"]),
        common={str(value): _float(share) for value, share in pairs if value is not None},
    )


def _index(row: Row) -> ExistingIndex:
    texts, options, opclasses = (_list(row[name]) for name in ("columns", "options", "opclasses"))
    count = _int(row["key_count"])
    keys: list[KeyPart] = []
    for at, text in enumerate(texts[:count]):
        bits = _int(options[at]) if at < len(options) else 0
        opclass = str(opclasses[at]) if at < len(opclasses) else ""
        keys.append(KeyPart(write_alike(str(text)), bool(bits & 1), bool(bits & 2), opclass))
    return ExistingIndex(
        name=str(row["name"]),
        method=str(row["method"]),
        keys=tuple(keys),
        include=tuple(str(text) for text in texts[count:]),
        where=write_alike(str(row["predicate"])) if row["predicate"] else "",
        unique=bool(row["unique"]),
        valid=bool(row["valid"]),
        constraint=bool(row["constraint"]),
        scans=_int(row["scans"]),
        size_bytes=_int(row["size"]),
        ddl=str(row["ddl"]),
    )


def write_alike(expression: str) -> str:
    """Write an expression in the one way in which all of them are compared."""
    try:
        trees = parse_tree(f"SELECT {expression}")
        values = items(child(trees[0], "select_stmt"), "target_list") if trees else ()
        return write_expression(child(values[0], "res_target", "val")) if values else expression
    except ParseError:
        return expression


def write_expression(node: Mapping[str, object]) -> str:
    """Write one expression's tree as SQL.

    Raises:
        ParseError: it is none.
    """
    whole = {
        "select_stmt": {
            "target_list": [{"res_target": {"val": node}}],
            "limit_option": "LIMIT_OPTION_DEFAULT",
            "op": "SETOP_NONE",
        }
    }
    return write_sql(whole).removeprefix("SELECT ").strip()


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _float(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
