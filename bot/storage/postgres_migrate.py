"""Bring a Postgres database to the newest schema: numbered files, each applied once, whoever starts at the same time.

The tables are made in the connection's own schema, the first of its ``search_path``. Everything happens in one
transaction under an advisory lock, so that a process sees all of it or nothing.
"""

from __future__ import annotations

import re
import time
from importlib import resources
from typing import TYPE_CHECKING

from bot.storage.base import StoreError
from bot.storage.postgres_connection import Row, Tx
from bot.storage.postgres_failures import describe, explain

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow

OLDEST_SERVER = 12
"""The oldest major version of Postgres whose SQL is spoken here; older ones get no security fixes any more."""

_LOCK = 0x4865_726D  # the first half of the advisory lock's key; the second is the schema's name
_WAIT_S = 60
_LONGEST_S = 600
_VERSION_TABLE = "CREATE TABLE schema_version (version bigint PRIMARY KEY, applied_at bigint NOT NULL)"
_OWN_COLUMNS = ["applied_at", "version"]
_ELSEWHERE = "point [storage] url at a database of Hermod's own, or give it a schema by its role's search_path"

_LOOK = """SELECT current_schema() AS schema, current_user AS role, current_database() AS database,
  current_setting('server_encoding') AS encoding, pg_is_in_recovery() AS standby,
  current_setting('transaction_read_only') = 'on' AS read_only,
  has_schema_privilege(current_schema(), 'CREATE') AS may_create"""
_TABLES = """SELECT n.nspname AS schema, c.relname AS name,
  has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
  AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE') AS usable,
  ARRAY(SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1) AS columns
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = ANY(current_schemas(false)) AND c.relname = ANY(%s::text[]) AND c.relkind NOT IN ('i', 'I', 'c')"""


def load_migrations() -> tuple[tuple[int, str], ...]:
    """Return (number, SQL text) of every shipped migration, in order."""
    folder = resources.files("bot.storage") / "migrations" / "postgres"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return tuple((int(f.name.partition("_")[0]), f.read_text(encoding="utf-8")) for f in files)


async def migrate(connection: AsyncConnection[DictRow], url: str) -> int:
    """Apply what the database lacks, all of it in one transaction.

    Args:
        connection: in autocommit.
        url: for messages.

    Returns:
        The schema's version afterwards.

    Raises:
        StoreError: the database cannot be used; the message says why and what to do.
    """
    import psycopg

    _check_version(connection.info.server_version, url)
    try:
        await connection.execute(
            f"BEGIN; SET LOCAL lock_timeout = '{_WAIT_S}s'; SET LOCAL statement_timeout = '{_LONGEST_S}s'".encode()
        )
        try:
            newest = await _migrate(connection, url)
            await connection.execute(b"COMMIT")
        finally:
            if not connection.closed:
                await connection.rollback()
    except psycopg.Error as error:
        raise explain(error, url) from error
    return newest


async def _migrate(connection: AsyncConnection[DictRow], url: str) -> int:
    tx, migrations = Tx(connection), load_migrations()
    newest = migrations[-1][0]
    state = await _look(tx, url)
    await tx.all("SELECT pg_advisory_xact_lock(%s::int, hashtext(%s))", _LOCK, state["schema"])
    version = await _read_version(tx, url, str(state["schema"]), migrations)
    if version == newest:
        return newest
    if not state["may_create"]:
        raise StoreError(
            f"the role {state['role']} may not make tables in the schema {state['schema']} of {describe(url)};"
            f' as its owner: GRANT CREATE ON SCHEMA "{state["schema"]}" TO "{state["role"]}"'
        )
    if version < 0:
        await tx.do(_VERSION_TABLE)
    for number, sql in migrations:
        if number > version:
            await connection.execute(sql.encode())  # without parameters: several statements at once
            await tx.do("INSERT INTO schema_version VALUES (%s, %s)", number, time.time_ns() // 1000)
    return newest


def _check_version(version: int, url: str) -> None:
    if version < OLDEST_SERVER * 10_000:
        raise StoreError(
            f"{describe(url)} is served by Postgres {version // 10_000}; Hermod needs {OLDEST_SERVER} or newer"
        )


async def _look(tx: Tx, url: str) -> Row:
    (state,) = await tx.all(_LOOK)
    where = describe(url)
    if state["standby"]:
        raise StoreError(f"{where} is a standby, which takes no writes; point [storage] url at the primary")
    if state["read_only"]:
        raise StoreError(
            f"{where} takes no writes from the role {state['role']}; turn default_transaction_read_only off for it"
        )
    if state["encoding"] != "UTF8":
        raise StoreError(
            f"{where} has the encoding {state['encoding']}, which cannot hold every text;"
            " make another one: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )
    if state["schema"] is None:
        raise StoreError(
            f"the role {state['role']} has no schema in {where} (search_path names none that exists);"
            f' CREATE SCHEMA "{state["role"]}" AUTHORIZATION "{state["role"]}"'
        )
    return state


async def _read_version(tx: Tx, url: str, schema: str, migrations: tuple[tuple[int, str], ...]) -> int:
    """Return the schema's version, -1 where there is nothing of Hermod's."""
    ours = {name for _, sql in migrations for name in re.findall(r"^CREATE TABLE (\w+)", sql, re.MULTILINE)}
    rows = await tx.all(_TABLES, ["schema_version", *sorted(ours)])
    own = [row for row in rows if row["schema"] == schema]
    versions = {row["schema"]: row["columns"] == _OWN_COLUMNS for row in rows if row["name"] == "schema_version"}
    where = f"the schema {schema} of {describe(url)}"
    if schema not in versions:
        if own:
            raise StoreError(f"{where} has a table {own[0]['name']} of another program; {_ELSEWHERE}")
        other = next((name for name, fits in versions.items() if fits and _is_complete(rows, name)), None)
        if other is not None:
            raise StoreError(
                f"{where} is empty, and Hermod's tables are in the schema {other}, later in search_path;"
                " correct search_path of Hermod's role, or move the tables (ALTER TABLE ... SET SCHEMA)"
            )
        return -1
    if not versions[schema] or not _is_complete(rows, schema):
        raise StoreError(f"{where} has a schema_version of another program; {_ELSEWHERE}")
    unusable = [row["name"] for row in own if not row["usable"]]
    if unusable:
        raise StoreError(
            f"Hermod's role may not read and write the table {unusable[0]} in {where}; let it own Hermod's tables"
        )
    (row,) = await tx.all("SELECT coalesce(max(version), 0) AS version FROM schema_version")
    version, newest = int(row["version"]), migrations[-1][0]
    if version > newest:
        raise StoreError(
            f"{where} was made by a newer Hermod (schema {version}, this one knows {newest});"
            " install that version, or point [storage] url at another database"
        )
    return version


def _is_complete(rows: list[Row], schema: str) -> bool:
    """Tell whether a schema has the tables that Hermod has had from the first version on."""
    return {"thread", "run", "inbox", "outbox"} <= {row["name"] for row in rows if row["schema"] == schema}
