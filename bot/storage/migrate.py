"""Bring a SQLite file to the newest schema: numbered files, each applied once, whoever starts at the same time."""

from __future__ import annotations

import sqlite3
import time
from importlib import resources
from pathlib import Path

from bot.storage.base import StoreError

_VERSION_TABLE = "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT"
_RETRY_S = 0.02


def load_migrations() -> tuple[tuple[int, str], ...]:
    """Return (number, SQL text) of every shipped migration, in order."""
    folder = resources.files("bot.storage") / "migrations" / "sqlite"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return tuple((int(f.name.partition("_")[0]), f.read_text(encoding="utf-8")) for f in files)


def split_statements(sql: str) -> tuple[str, ...]:
    """Split SQL text into statements (a statement ends where a line ends with its semicolon).

    ``executescript`` would do it, but it commits the transaction that the migration must be part of.
    """
    statements: list[str] = []
    pending = ""
    for line in sql.splitlines(keepends=True):
        pending += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(pending):
            statements.append(pending.strip())
            pending = ""
    if any(line.strip() and not line.lstrip().startswith("--") for line in pending.splitlines()):
        raise ValueError(f"the last statement has no end: {pending.strip()[:60]!r}")
    return tuple(statements)


def migrate(connection: sqlite3.Connection, path: Path, *, patience_s: float) -> int:
    """Switch the file to WAL and apply what it lacks, all of it in one transaction.

    Args:
        connection: in autocommit mode (``isolation_level=None``).
        path: for messages.
        patience_s: how long to wait for other processes that do the same.

    Returns:
        The schema's version afterwards.

    Raises:
        StoreError: made by a newer Hermod, or not Hermod's at all.
        sqlite3.Error: the file cannot be used.
    """
    migrations = load_migrations()
    newest = migrations[-1][0]
    deadline = time.monotonic() + patience_s
    while True:
        try:
            version = _read_version(connection, path, newest)  # first: another program's file stays as it is
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            if version < newest:
                _apply(connection, path, migrations)
            return newest
        except sqlite3.OperationalError as error:
            # Switching a fresh file to WAL does not honour the busy timeout, so it is asked again.
            if not _is_contention(error) or time.monotonic() >= deadline:
                raise
        time.sleep(_RETRY_S)


def _apply(connection: sqlite3.Connection, path: Path, migrations: tuple[tuple[int, str], ...]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Asked again under the lock: another process may have been faster.
        version = _read_version(connection, path, migrations[-1][0])
        if version < 0:
            connection.execute(_VERSION_TABLE)
        for number, sql in migrations:
            if number <= version:
                continue
            for statement in split_statements(sql):
                connection.execute(statement)
            connection.execute("INSERT INTO schema_version VALUES (?, ?)", (number, time.time_ns() // 1000))
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _read_version(connection: sqlite3.Connection, path: Path, newest: int) -> int:
    """Return the schema's version, -1 for an empty file."""
    rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    tables = {row[0] for row in rows}
    if not tables:
        return -1
    if "schema_version" not in tables:
        raise StoreError(f"the database file {path} belongs to another program; point [storage] url at another file")
    version: int = connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchall()[0][0]
    if version > newest:
        raise StoreError(
            f"the database file {path} was made by a newer Hermod (schema {version}, this one knows {newest});"
            " install that version, or point [storage] url at another file"
        )
    return version


def _is_contention(error: sqlite3.OperationalError) -> bool:
    name = getattr(error, "sqlite_errorname", "") or ""
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL"))
