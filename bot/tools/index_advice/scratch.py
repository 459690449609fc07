"""A throw-away server with a copy of some tables: where indexes may be built for real.

The rows are read through the READ ONLY connection (so the role needs SELECT), at most a bounded sample of each
table; the target itself is only ever read. The copy belongs to a role without rights outside of it, because
statements of people are run on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.demo.binaries import PostgresUnavailable, find_binaries
from bot.demo.postgres import EmbeddedPostgres
from bot.tools.index_advice.catalog import Table
from bot.tools.shown_sql import note_sql, record_sql
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly, open_read_only
from bot.tools.slow_queries.explain_find import quote_identifier as quote
from bot.tools.slow_queries.failures import explain_error
from bot.tools.targets import Target

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow

_ROLE = "advice"
_MiB = 1024 * 1024
_SETTINGS: Mapping[str, str] = {
    "autovacuum": "off",
    "temp_file_limit": "512MB",
    "max_connections": "10",
    "shared_buffers": "128MB",
    "maintenance_work_mem": "64MB",
}

_SHAPES = f"""select {OWN_MARK} a.attrelid::int8 as oid, a.attname::text as name, a.attnotnull as required,
  case when e.typtype = 'e' then pg_catalog.quote_ident(en.nspname) || '.' || pg_catalog.quote_ident(e.typname)
         || case when e.oid <> a.atttypid then '[]' else '' end
       when t.typtype = 'd' then pg_catalog.format_type(t.typbasetype, t.typtypmod)
       else pg_catalog.format_type(a.atttypid, a.atttypmod) end as type,
  case when e.typtype = 'e' then array(select v.enumlabel::text from pg_catalog.pg_enum v where v.enumtypid = e.oid
                                       order by v.enumsortorder) end as labels,
  case when e.typtype = 'e' then pg_catalog.quote_ident(en.nspname) || '.' || pg_catalog.quote_ident(e.typname) end
    as enum, en.nspname::text as enum_schema,
  x.extname::text as extension, xn.nspname::text as extension_schema
from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid
  left join pg_catalog.pg_type e on e.oid = case when t.typcategory = 'A' then t.typelem else t.oid end
  left join pg_catalog.pg_namespace en on en.oid = e.typnamespace
  left join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_type'::regclass and d.objid = e.oid and d.deptype = 'e'
  left join pg_catalog.pg_extension x on x.oid = d.refobjid
  left join pg_catalog.pg_namespace xn on xn.oid = x.extnamespace
where a.attrelid = any(%s::oid[]) and a.attnum > 0 and not a.attisdropped order by a.attrelid, a.attnum"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchLimits:
    """How much of a target may be copied.

    Args:
        most_rows, most_bytes: of one table; larger ones are sampled.
        most_tables: of one question.
        copy_timeout_s: for reading one table from the target, on the server.
        run_timeout_s: for one execution of a statement on the copy.
    """

    most_rows: int = 100_000
    most_bytes: int = 128 * _MiB
    most_tables: int = 12
    copy_timeout_s: float = 20.0
    run_timeout_s: float = 5.0


class NoScratch(Exception):
    """No copy can be made; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy that stands.

    Args:
        db: an open transaction on it, as the role that owns the tables.
        version: of its server.
        shares: of each table's rows, by (schema, name): 1.0 when all were copied.
        warnings: what could not be copied.
    """

    db: ReadOnly
    version: str
    shares: Mapping[tuple[str, str], float]
    warnings: tuple[str, ...]


@asynccontextmanager
async def open_copy(
    target: Target, tables: Sequence[Table], search_path: str, limits: ScratchLimits
) -> AsyncIterator[Copy]:
    """Start a server, copy a sample of ``tables`` into it, and remove it all at the end, also when cancelled.

    Raises:
        NoScratch: there are no server programs, or the tables cannot be copied.
        ToolFailed: the target cannot be read.
    """
    if len(tables) > limits.most_tables:
        raise NoScratch(f"the statements read {len(tables)} tables, and at most {limits.most_tables} are copied")
    try:
        binaries = await asyncio.to_thread(find_binaries)
        server = EmbeddedPostgres(binaries=binaries, preload=(), settings=_SETTINGS)
        await server.start()
    except PostgresUnavailable as error:
        raise NoScratch(f"no scratch server: {error}") from None
    try:
        await _create_owner(server)
        shares, warnings = await _fill(server, target, tables, limits)
        async with _open_owner(server, search_path, limits) as db:
            yield Copy(db=db, version=db.version, shares=shares, warnings=warnings)
    finally:
        await server.stop()


async def _create_owner(server: EmbeddedPostgres) -> None:
    import psycopg

    admin = await psycopg.AsyncConnection.connect(server.url(), autocommit=True)
    async with admin:
        await admin.execute(
            psycopg.sql.SQL("create role {} login password {}").format(
                psycopg.sql.Identifier(_ROLE), psycopg.sql.Literal(server.password)
            )
        )
        await admin.execute(f"create database scratch owner {_ROLE}".encode())


async def _fill(
    server: EmbeddedPostgres, target: Target, tables: Sequence[Table], limits: ScratchLimits
) -> tuple[dict[tuple[str, str], float], tuple[str, ...]]:
    import psycopg

    shares: dict[tuple[str, str], float] = {}
    warnings: list[str] = []
    admin = await psycopg.AsyncConnection.connect(server.url("scratch"), autocommit=True, prepare_threshold=None)
    async with admin, open_read_only(target, statement_timeout_s=limits.copy_timeout_s) as source:
        shapes = await source.fetch(_SHAPES, ([table.oid for table in tables],))
        try:
            await admin.execute(f"alter schema public owner to {_ROLE}".encode())
            for statement in _build_types([dict(shape) for shape in shapes]):
                await admin.execute(statement.encode())
            for table in tables:
                columns = [s for s in shapes if s["oid"] == table.oid]
                await admin.execute(f"create schema if not exists {quote(table.schema)}".encode())
                await admin.execute(f"grant all on schema {quote(table.schema)} to {_ROLE}".encode())
                listed = ", ".join(
                    f"{quote(str(s['name']))} {s['type']}{' not null' if s['required'] else ''}" for s in columns
                )
                await admin.execute(f"create table {_name(table)} ({listed})".encode())
        except psycopg.Error as error:
            raise NoScratch(f"the tables cannot be made on the copy (SQLSTATE {error.sqlstate})") from None
        for table in tables:
            names = [str(s["name"]) for s in shapes if s["oid"] == table.oid]
            shares[table.schema, table.name] = await _copy_rows(source, admin, table, names, limits)
            warnings += await _finish(admin, table)
    return shares, tuple(warnings)


def _build_types(shapes: Sequence[Mapping[str, object]]) -> list[str]:
    """The statements for enumerations and extensions that the columns need."""
    made: dict[str, None] = {}
    for shape in shapes:
        if isinstance(extension := shape["extension"], str):
            schema = quote(str(shape["extension_schema"]))
            made[f"create schema if not exists {schema}"] = None
            made[f"create extension if not exists {quote(extension)} schema {schema}"] = None
        elif isinstance(labels := shape["labels"], list):
            values = ", ".join("'" + str(label).replace("'", "''") + "'" for label in labels)
            made[f"create schema if not exists {quote(str(shape['enum_schema']))}"] = None
            made[f"create type {shape['enum']} as enum ({values})"] = None
    return list(made)


async def _copy_rows(
    source: ReadOnly,
    admin: AsyncConnection[tuple[object, ...]],
    table: Table,
    names: Sequence[str],
    limits: ScratchLimits,
) -> float:
    """Copy rows, whole blocks of them where not all are taken; returns the share that was taken."""
    import psycopg

    share = min(
        1.0,
        limits.most_rows / max(1.0, table.rows),
        limits.most_bytes / max(1, table.size_bytes),
    )
    listed = ", ".join(quote(name) for name in names)
    # REPEATABLE: the same question gets the same sample.
    sample = "" if share >= 1.0 else f" tablesample system ({share * 100:.6f}) repeatable (1)"
    read = f"copy (select {listed} from only {_name(table)}{sample} limit {2 * limits.most_rows}) to stdout"
    written = 0
    note_sql(lambda: read)
    try:
        async with (
            asyncio.timeout(limits.copy_timeout_s * 1.5),
            source.connection.cursor() as reader,
            admin.cursor() as writer,
            reader.copy(read.encode()) as rows,
            writer.copy(f"copy {_name(table)} ({listed}) from stdin".encode()) as filled,
        ):
            async for data in rows:
                written += len(data)
                if written > 4 * limits.most_bytes:
                    raise NoScratch(f"the rows of {table.name} are larger than expected")
                await filled.write(data)
    except TimeoutError:
        raise NoScratch(f"reading {table.name} took too long") from None
    except psycopg.Error as error:
        raise _explain_copy(error, source.target, table) from None
    return share


def _explain_copy(error: Exception, target: Target, table: Table) -> Exception:
    state = getattr(error, "sqlstate", None)
    if state == "42501":
        role = quote(target.user) if target.user else "the role"
        return NoScratch(f"the rows of {table.name} may not be read: GRANT SELECT ON {_name(table)} TO {role};")
    if isinstance(state, str) and not state.startswith(("08", "57P")):
        return NoScratch(f"the rows of {table.name} cannot be copied (SQLSTATE {state})")
    return explain_error(error, target)


async def _finish(admin: AsyncConnection[tuple[object, ...]], table: Table) -> list[str]:
    """Make the indexes that exist on the target, and the statistics."""
    import psycopg

    warnings: list[str] = []
    for index in table.indexes:
        if not index.valid:
            continue
        try:
            await admin.execute(index.ddl.encode())
        except psycopg.Error:
            # A sample of rows breaks no unique index, but a function or an access method may be missing.
            warnings.append(f"index {index.name} of {table.name} could not be made on the copy")
    await admin.execute(f"vacuum analyze {_name(table)}".encode())
    await admin.execute(f"alter table {_name(table)} owner to {_ROLE}".encode())
    return warnings


@asynccontextmanager
async def _open_owner(server: EmbeddedPostgres, search_path: str, limits: ScratchLimits) -> AsyncIterator[ReadOnly]:
    """A transaction of the tables' owner; nothing in it is ever committed."""
    import psycopg
    from psycopg.rows import dict_row

    connection: AsyncConnection[DictRow] = await psycopg.AsyncConnection.connect(
        server.url("scratch", user=_ROLE), autocommit=True, prepare_threshold=None, row_factory=dict_row
    )
    try:
        db = ReadOnly(connection, Target(name="scratch copy", engine="postgresql"), patience_s=6 * limits.run_timeout_s)
        with record_sql():  # of the copy, so none of what the target was asked
            await db.execute(b"begin")
            await db.fetch(
                "select pg_catalog.set_config('search_path', %s, false), "
                "pg_catalog.set_config('statement_timeout', %s, false), "
                "pg_catalog.set_config('client_min_messages', 'error', false)",
                (search_path, f"{limits.run_timeout_s * 1000:.0f}"),
            )
        yield db
    finally:
        await connection.close()


def _name(table: Table) -> str:
    return f"{quote(table.schema)}.{quote(table.name)}"
