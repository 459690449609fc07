"""The tables on Postgres are those on SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.integration.storage.conftest import Home, opened

Column = tuple[str, str, bool]
"""Name, kind, and whether it may be empty."""

KINDS = {
    "INTEGER": "number", "TEXT": "text", "REAL": "real",
    "bigint": "number", "boolean": "number", "text": "text", "double precision": "real",
}  # fmt: skip

NUMBERED_BY_SQLITE = {"run": ("rowid", "number", False)}
"""SQLite numbers the rows of every table by itself."""


async def read_sqlite(folder: Path) -> tuple[dict[str, list[Column]], set[tuple[str, tuple[str, ...]]]]:
    """Return the columns of each table, and what is unique."""
    async with opened(f"sqlite:///{folder}/hermod.db"):
        pass
    tables: dict[str, list[Column]] = {}
    unique: set[tuple[str, tuple[str, ...]]] = set()
    with closing(sqlite3.connect(folder / "hermod.db")) as db:
        names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        for (table,) in names.fetchall():
            rows = db.execute('SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (table,)).fetchall()
            tables[table] = [(name, KINDS[kind], not (notnull or pk)) for name, kind, notnull, pk in rows]
            unique.add((table, tuple(sorted(name for name, _, _, pk in rows if pk))))
            for (index,) in db.execute('SELECT name FROM pragma_index_list(?) WHERE "unique"', (table,)).fetchall():
                columns = db.execute("SELECT name FROM pragma_index_info(?)", (index,)).fetchall()
                unique.add((table, tuple(sorted(name for (name,) in columns))))
    return tables, unique


async def read_postgres(home: Home) -> tuple[dict[str, list[Column]], set[tuple[str, tuple[str, ...]]]]:
    async with opened(home.url):
        pass
    tables: dict[str, list[Column]] = {}
    for table, name, kind, empty in await home.run_sql(
        "SELECT table_name::text, column_name::text, data_type::text, is_nullable = 'YES'"
        " FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, ordinal_position"
    ):
        tables.setdefault(str(table), []).append((str(name), KINDS[str(kind)], bool(empty)))
    unique = set()
    for table, columns in await home.run_sql(
        "SELECT i.indrelid::regclass::text, array_agg(a.attname::text ORDER BY a.attname) FROM pg_index i"
        " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)"
        " JOIN pg_class c ON c.oid = i.indrelid"
        " WHERE i.indisunique AND c.relnamespace = 'public'::regnamespace GROUP BY i.indexrelid, i.indrelid"
    ):
        assert isinstance(columns, list)
        unique.add((str(table), tuple(columns)))
    return tables, unique


async def test_both_databases_have_the_same_tables_columns_and_unique_keys(home: Home, tmp_path: Path) -> None:
    (here, keys), (there, other_keys) = await read_sqlite(tmp_path), await read_postgres(home)
    for table, column in NUMBERED_BY_SQLITE.items():
        here[table].append(column)
        keys.add((table, (column[0],)))
    assert sorted(here) == sorted(there)
    for table in here:
        assert sorted(here[table]) == sorted(there[table]), table
    assert keys == other_keys


async def test_both_databases_look_for_work_along_the_same_indexes(home: Home, tmp_path: Path) -> None:
    await read_sqlite(tmp_path)
    await read_postgres(home)
    with closing(sqlite3.connect(tmp_path / "hermod.db")) as db:
        here = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql <> ''")}
    there = {
        name for (name,) in await home.run_sql("SELECT indexname::text FROM pg_indexes WHERE schemaname = 'public'")
    }
    assert here <= there
