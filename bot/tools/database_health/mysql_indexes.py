"""Indexes of MySQL and MariaDB: which are duplicate, prefix-redundant, or unused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_core.errors import ToolFailed
from bot.tools.database_health.answer import IndexFinding
from bot.tools.database_health.fields import Row, count, maybe_count, text
from bot.tools.database_health.mysql_server import MySqlServer, quote_name
from bot.tools.database_health.redundancy import IndexShape, KeyPart, Redundancy, find_redundant
from bot.tools.database_health.wording import say_age, say_count, write_size
from bot.tools.mysql.connection import OWN_MARK, MySqlReadOnly
from bot.tools.slow_logs.mysql_text import redact_mysql

MOST_PARTS = 50_000

# All columns: EXPRESSION and IS_VISIBLE are MySQL's (8.0.13), IGNORED is MariaDB's (10.6).
_PARTS = (
    "SELECT {mark} s.* FROM information_schema.STATISTICS s JOIN information_schema.TABLES t "
    "ON t.TABLE_SCHEMA = s.TABLE_SCHEMA AND t.TABLE_NAME = s.TABLE_NAME AND t.TABLE_TYPE = 'BASE TABLE' "
    "WHERE {scope} ORDER BY s.TABLE_SCHEMA, s.TABLE_NAME, s.INDEX_NAME, s.SEQ_IN_INDEX LIMIT {most}"
)
_SIZES = (
    "SELECT {mark} TABLE_SCHEMA AS s, TABLE_NAME AS t, INDEX_LENGTH AS size_bytes FROM information_schema.TABLES "
    "WHERE TABLE_TYPE = 'BASE TABLE' AND {scope}"
)
_INDEX_SIZES = (
    "SELECT {mark} database_name AS s, table_name AS t, index_name AS i, SUM(stat_value) * @@innodb_page_size AS "
    "size_bytes FROM mysql.innodb_index_stats WHERE stat_name = 'size' AND {scope} GROUP BY 1, 2, 3"
)
_FOREIGN_KEYS = (
    "SELECT {mark} TABLE_SCHEMA AS s, TABLE_NAME AS t, CONSTRAINT_NAME AS c, COLUMN_NAME AS col, "
    "REFERENCED_TABLE_SCHEMA AS rs, REFERENCED_TABLE_NAME AS rt, REFERENCED_COLUMN_NAME AS rcol "
    "FROM information_schema.KEY_COLUMN_USAGE WHERE REFERENCED_TABLE_NAME IS NOT NULL AND {scope} "
    "ORDER BY 1, 2, 3, ORDINAL_POSITION"
)
_SCANS = (
    "SELECT {mark} OBJECT_SCHEMA AS s, OBJECT_NAME AS t, INDEX_NAME AS i, COUNT_STAR AS scans "
    "FROM performance_schema.table_io_waits_summary_by_index_usage "
    "WHERE OBJECT_TYPE = 'TABLE' AND INDEX_NAME IS NOT NULL AND {scope}"
)
_COUNTING = (
    "SELECT {mark} @@performance_schema AS on_at_all, (SELECT COUNT(*) FROM performance_schema.setup_instruments "
    "WHERE NAME = 'wait/io/table/sql/handler' AND ENABLED = 'YES') AS instrument, "
    "(SELECT COUNT(*) FROM performance_schema.setup_consumers WHERE NAME = 'global_instrumentation' "
    "AND ENABLED = 'YES') AS consumer"
)

Name = tuple[str, str, str]
"""Schema, table, index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MySqlIndexes:
    """What was read.

    Args:
        shapes: all indexes, by name.
        scans: uses since the server started; None where they are not counted or not visible, ``why`` says so.
        exact_sizes: the sizes are of the single index, not of all indexes of its table.
        needed: indexes that a foreign key needs, as no other one begins with its columns.
        hidden: indexes that the optimizer leaves out (INVISIBLE, IGNORED).
        definitions: in SQL, without data.
    """

    shapes: Mapping[Name, IndexShape]
    scans: Mapping[Name, int] | None
    why: str
    exact_sizes: bool
    needed: frozenset[Name]
    hidden: frozenset[Name]
    definitions: Mapping[Name, str]
    tables: int
    more: bool


async def fetch_mysql_indexes(db: MySqlReadOnly, server: MySqlServer) -> MySqlIndexes:
    """Read all indexes that the account may see.

    Raises:
        ToolFailed: see ``MySqlReadOnly.fetch``; a source that the account may not read is done without.
    """
    scope, values = server.scope("s.TABLE_SCHEMA")
    rows = await db.fetch(_PARTS.format(mark=OWN_MARK, scope=scope, most=MOST_PARTS + 1), values)
    parts: defaultdict[Name, list[Row]] = defaultdict(list)
    for row in rows[:MOST_PARTS]:
        parts[text(row, "TABLE_SCHEMA"), text(row, "TABLE_NAME"), text(row, "INDEX_NAME")].append(row)
    sizes, exact = await _fetch_sizes(db, server)
    scans, why = await _fetch_scans(db, server)
    scope, values = server.scope("TABLE_SCHEMA")
    keys = await db.fetch(_FOREIGN_KEYS.format(mark=OWN_MARK, scope=scope), values)
    columns = {name: tuple(text(row, "COLUMN_NAME") for row in found) for name, found in parts.items()}
    needed = _find_needed(columns, keys)
    shapes = {name: _shape(name, found, sizes, scans or {}, needed=name in needed) for name, found in parts.items()}
    return MySqlIndexes(
        shapes=shapes,
        scans=scans,
        why=why,
        exact_sizes=exact,
        needed=frozenset(needed),
        hidden=frozenset(name for name, found in parts.items() if _is_hidden(found[0])),
        definitions={name: _definition(name, found) for name, found in parts.items()},
        tables=len({name[:2] for name in parts}),
        more=len(rows) > MOST_PARTS,
    )


async def _fetch_sizes(db: MySqlReadOnly, server: MySqlServer) -> tuple[dict[Name, int], bool]:
    """Sizes by index where the account may read InnoDB's statistics; else by table, under an empty index name."""
    scope, values = server.scope("TABLE_SCHEMA")
    by_table = {
        (text(row, "s"), text(row, "t"), ""): count(row, "size_bytes")
        for row in await db.fetch(_SIZES.format(mark=OWN_MARK, scope=scope), values)
    }
    scope, values = server.scope("database_name")
    try:
        rows = await db.fetch(_INDEX_SIZES.format(mark=OWN_MARK, scope=scope), values)
    except ToolFailed as failure:
        if failure.code == "connect_failed":
            raise
        return by_table, False
    sizes = dict(by_table)
    for row in rows:
        table = text(row, "t").partition("#P#")[0].partition("#p#")[0]
        name = (text(row, "s"), table, text(row, "i"))
        sizes[name] = sizes.get(name, 0) + count(row, "size_bytes")
    return sizes, True


async def _fetch_scans(db: MySqlReadOnly, server: MySqlServer) -> tuple[dict[Name, int] | None, str]:
    scope, values = server.scope("OBJECT_SCHEMA")
    try:
        row: Row = await db.fetch_one(_COUNTING.format(mark=OWN_MARK)) or {}
        if not count(row, "on_at_all"):
            return None, "uses of indexes are not counted: set performance_schema = ON and restart the server"
        if not (count(row, "instrument") and count(row, "consumer")):
            return None, (
                "uses of indexes are not counted: UPDATE performance_schema.setup_instruments SET ENABLED = 'YES' "
                "WHERE NAME = 'wait/io/table/sql/handler';"
            )
        rows = await db.fetch(_SCANS.format(mark=OWN_MARK, scope=scope), values)
    except ToolFailed as failure:
        if failure.code != "insufficient_privilege":
            raise
        return None, f"the account may not read how often indexes are used: {server.counters_grant}"
    return {(text(r, "s"), text(r, "t"), text(r, "i")): count(r, "scans") for r in rows}, ""


def _shape(
    name: Name, rows: Sequence[Row], sizes: Mapping[Name, int], scans: Mapping[Name, int], *, needed: bool
) -> IndexShape:
    first = rows[0]
    unique, primary = count(first, "NON_UNIQUE") == 0, name[2] == "PRIMARY"
    expressions = any(text(row, "EXPRESSION") for row in rows)
    # Without a column's name there is no telling what an index is about (a functional part whose text is hidden).
    blind = any(not text(row, "COLUMN_NAME") and not text(row, "EXPRESSION") for row in rows)
    return IndexShape(
        key="\0".join(name),
        table="\0".join(name[:2]),
        method=text(first, "INDEX_TYPE"),
        parts=tuple(
            KeyPart(
                text=text(row, "COLUMN_NAME") or f"({text(row, 'EXPRESSION')})",
                traits=(str(maybe_count(row, "SUB_PART")), text(row, "COLLATION")),
            )
            for row in rows
        ),
        # An index that the optimizer leaves out stands in for none that it uses.
        predicate="hidden" if _is_hidden(first) else "",
        parameters=(name[2],) if blind else (),
        unique=unique,
        constraint=False,
        pinned=primary or blind,
        rank=(int(primary), int(unique), int(needed), scans.get(name, 0), int(not expressions)),
        size_bytes=sizes.get(name, sizes.get((name[0], name[1], ""), 0)),
    )


def _is_hidden(row: Row) -> bool:
    return text(row, "IS_VISIBLE") == "NO" or text(row, "IGNORED") == "YES"


def _definition(name: Name, rows: Sequence[Row]) -> str:
    columns = []
    for row in rows:
        length = maybe_count(row, "SUB_PART")
        column = quote_name(text(row, "COLUMN_NAME")) if text(row, "COLUMN_NAME") else f"({text(row, 'EXPRESSION')})"
        column += "" if length is None else f"({length})"
        columns.append(column + (" DESC" if text(row, "COLLATION") == "D" else ""))
    kind = text(rows[0], "INDEX_TYPE")
    begin = kind if kind in ("FULLTEXT", "SPATIAL") else "UNIQUE" if count(rows[0], "NON_UNIQUE") == 0 else ""
    # Expressions hold literals, the rest is names.
    text_of = ", ".join(redact_mysql(column) if column.startswith("(") else column for column in columns)
    return f"{begin} KEY {quote_name(name[2])} ({text_of})".strip()


def _find_needed(columns: Mapping[Name, tuple[str, ...]], keys: Sequence[Row]) -> set[Name]:
    """Find the indexes that a foreign key cannot do without, on either side of it."""
    sides: defaultdict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for row in keys:
        own = (text(row, "s"), text(row, "t"), text(row, "c"), "own")
        other = (text(row, "rs"), text(row, "rt"), f"{text(row, 's')}.{text(row, 'c')}", "other")
        sides[own].append(text(row, "col"))
        sides[other].append(text(row, "rcol"))
    needed: set[Name] = set()
    for (schema, table, _, _), wanted in sides.items():
        serving = [
            name
            for name, found in columns.items()
            if name[:2] == (schema, table) and set(found[: len(wanted)]) == set(wanted)
        ]
        if len(serving) == 1:
            needed.add(serving[0])
    return needed


def judge_mysql_indexes(found: MySqlIndexes, server: MySqlServer, *, enough_s: float) -> tuple[IndexFinding, ...]:
    """Find duplicate, prefix-redundant and unused indexes; see ``judge_indexes`` for Postgres."""
    by_key = {shape.key: name for name, shape in found.shapes.items()}
    redundancies = find_redundant(found.shapes.values())
    covering: defaultdict[Name, list[str]] = defaultdict(list)
    for item in redundancies:
        covering[by_key[item.covered_by.key]].append(quote_name(by_key[item.index.key][2]))
    redundant = {by_key[item.index.key] for item in redundancies}
    rows = [_redundant(item, by_key, found) for item in redundancies]
    for name, shape in found.shapes.items():
        # Searches in a FULLTEXT index are not counted by the performance schema (seen on MariaDB 10.11).
        blind = shape.method == "FULLTEXT"
        spared = blind or shape.unique or shape.pinned or name in redundant or name in found.needed
        if found.scans is not None and not spared and found.scans.get(name, 0) == 0:
            rows.append(_unused(name, found, server, enough_s=enough_s, covers=covering.get(name, [])))
    return tuple(rows)


def _redundant(item: Redundancy, by_key: Mapping[str, Name], found: MySqlIndexes) -> IndexFinding:
    name, cover = by_key[item.index.key], by_key[item.covered_by.key]
    if item.kind == "duplicate":
        finding = f"{quote_name(cover[2])} has the same columns in the same way"
    else:
        finding = f"{quote_name(cover[2])} begins with the same columns"
    if found.scans is not None:
        here, there = (say_count(found.scans.get(one, 0)) for one in (name, cover))
        finding += f"; {here} rows read through it, {there} through the other one, since the server started"
    return IndexFinding(
        table=f"{quote_name(name[0])}.{quote_name(name[1])}",
        index=quote_name(name[2]),
        kind=item.kind,
        size_bytes=found.shapes[name].size_bytes,
        finding=finding,
        suggestion=_drop_line(name),
        covered_by=quote_name(cover[2]),
        scans=None if found.scans is None else found.scans.get(name, 0),
        notes=_notes(name, found),
        definition=found.definitions[name],
    )


def _unused(
    name: Name, found: MySqlIndexes, server: MySqlServer, *, enough_s: float, covers: Sequence[str]
) -> IndexFinding:
    young = server.uptime_s < enough_s
    age = say_age(server.uptime_s)
    finding = f"not used in the {age} since the server started"
    if young:
        finding += f"; too short to call it unused (at least {say_age(enough_s)})"
    notes = (*_notes(name, found), "an index that is unused here may be in use on a replica, which counts for itself")
    if covers:
        notes += (f"it stands in for {', '.join(covers)}: drop one of them, not both",)
    return IndexFinding(
        table=f"{quote_name(name[0])}.{quote_name(name[1])}",
        index=quote_name(name[2]),
        kind="unused",
        size_bytes=found.shapes[name].size_bytes,
        finding=finding,
        suggestion=None if young or covers else _drop_line(name),
        scans=0,
        notes=notes,
        definition=found.definitions[name],
    )


def _notes(name: Name, found: MySqlIndexes) -> tuple[str, ...]:
    notes: tuple[str, ...] = ()
    if not found.exact_sizes and found.shapes[name].size_bytes:
        size = write_size(found.shapes[name].size_bytes)
        notes += (f"the size is that of all secondary indexes of the table ({size})",)
    if name in found.hidden:
        notes += ("it is invisible to the optimizer already",)
    return notes


def _drop_line(name: Name) -> str:
    return f"ALTER TABLE {quote_name(name[0])}.{quote_name(name[1])} DROP INDEX {quote_name(name[2])};"
