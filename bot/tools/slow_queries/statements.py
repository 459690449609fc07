"""Our own queries: pg_stat_statements and pg_stat_activity.

Columns are chosen by what the *extension* has, never by the server's version (a server that was upgraded keeps
the old extension until somebody says ALTER EXTENSION), and its schema is found by its oid, because any schema
on the search path can hold a table that is called pg_stat_statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from agent_core.errors import ToolFailed
from bot.tools.slow_queries.connection import OWN_APPLICATION, OWN_MARK, ReadOnly, Row
from bot.tools.slow_queries.counters import Counter, Counters, StatementKey
from bot.tools.slow_queries.failures import quote_name

if TYPE_CHECKING:
    from psycopg.sql import Composable, Composed

# Much more than is ever shown, and little enough to redact a hundred of them at once.
_TEXT_CHARS = 8_000

_EXTENSION = f"""select {OWN_MARK} n.nspname as schema, e.extversion as version,
  array(select a.attname::text from pg_depend d join pg_class c on c.oid = d.objid
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        where d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid and d.deptype = 'e'
          and d.classid = 'pg_class'::regclass and c.relname = 'pg_stat_statements') as columns,
  exists(select from pg_depend d join pg_class c on c.oid = d.objid
         where d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid and d.deptype = 'e'
           and d.classid = 'pg_class'::regclass and c.relname = 'pg_stat_statements_info') as has_info,
  current_setting('pg_stat_statements.track', true) is not null as loaded,
  has_schema_privilege(n.oid, 'usage') as usable, current_user::text as role
from (select 1) as always
  left join pg_extension e on e.extname = 'pg_stat_statements' left join pg_namespace n on n.oid = e.extnamespace"""

_SERVER = f"""select {OWN_MARK} extract(epoch from clock_timestamp())::float8 as now,
  extract(epoch from pg_postmaster_start_time())::float8 as started,
  (select oid::int8 from pg_database where datname = current_database()) as dbid,
  (select oid::int8 from pg_roles where rolname = current_user) as userid, current_user::text as role,
  current_database()::text as database"""

_SYSTEM = f"""select {OWN_MARK} case when has_function_privilege('pg_control_system()', 'execute')
  then (select system_identifier::text from pg_control_system()) else '' end as system_id"""

_RUNNING = f"""select {OWN_MARK} pid, datname::text as db, usename::text as username,
  left(query, {_TEXT_CHARS}) as query,
  extract(epoch from clock_timestamp() - query_start)::float8 as age_s
from pg_stat_activity
where state = 'active' and backend_type = 'client backend' and pid <> pg_backend_pid()
  and clock_timestamp() - query_start >= make_interval(secs => %s)
  and not (application_name = %s and usename = current_user)
  and case when %s::text is not null then datname = %s else %s or datname = current_database() end
  and (%s::text is null or usename = %s) and (%s::text is null or application_name = %s)
order by query_start limit %s"""

_OIDS = f"""select {OWN_MARK} (select oid::int8 from pg_database where datname = %s) as dbid,
  (select oid::int8 from pg_roles where rolname = %s) as userid"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Who we are on the server, and its clock."""

    now: datetime
    started_at: datetime
    dbid: int
    userid: int
    role: str
    database: str
    system_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Whose statements a question is about: those of a role, a database, an application; None: everybody's."""

    user: str | None = None
    database: str | None = None
    app: str | None = None


EVERYTHING = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The installed pg_stat_statements."""

    schema: str
    version: str
    columns: frozenset[str]
    has_info: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementText:
    """The text of an entry, with names instead of oids. ``own``: it is one of Hermod's statements."""

    sql: str
    db: str
    user: str
    own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStatement:
    """A statement that is being executed now, for ``age_s`` seconds so far."""

    pid: int
    db: str
    user: str
    sql: str
    age_s: float


async def fetch_server(db: ReadOnly) -> Server:
    """Read who and where we are."""
    row = await db.fetch_one(_SERVER)
    system = await db.fetch_one(_SYSTEM)
    if row is None:
        raise ToolFailed(f"target {db.target.name!r} gave no answer", code="failed", retryable=True)
    return Server(
        now=_instant(row["now"]),
        started_at=_instant(row["started"]),
        dbid=_int(row["dbid"]),
        userid=_int(row["userid"]),
        role=str(row["role"]),
        database=str(row["database"]),
        system_id="" if system is None else str(system["system_id"]),
    )


async def fetch_extension(db: ReadOnly) -> Extension:
    """Find the extension in this database.

    Raises:
        ToolFailed: ``extension_missing``, ``not_preloaded`` or ``extension_outdated``, each with the lines to run.
    """
    row = await db.fetch_one(_EXTENSION)
    if row is None or row["schema"] is None:
        raise _missing(db, loaded=bool(row and row["loaded"]))
    if not row["loaded"]:
        raise ToolFailed(
            f"target {db.target.name!r}: pg_stat_statements is installed but the server has not loaded it",
            code="not_preloaded",
            fix=_PRELOAD_FIX,
        )
    if not row["usable"]:
        schema, role = quote_name(str(row["schema"])), quote_name(str(row["role"]))
        raise ToolFailed(
            f"target {db.target.name!r}: role {role} may not use schema {schema}, in which pg_stat_statements is",
            code="insufficient_privilege",
            fix=f"GRANT USAGE ON SCHEMA {schema} TO {role};",
        )
    names = row["columns"]
    columns = frozenset(str(name) for name in names) if isinstance(names, list) else frozenset[str]()
    if "queryid" not in columns or not columns & {"stddev_exec_time", "stddev_time"}:
        raise ToolFailed(
            f"target {db.target.name!r}: pg_stat_statements {row['version']} is too old",
            code="extension_outdated",
            fix="ALTER EXTENSION pg_stat_statements UPDATE;",
        )
    return Extension(
        schema=str(row["schema"]), version=str(row["version"]), columns=columns, has_info=bool(row["has_info"])
    )


_PRELOAD_FIX = (
    "ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'; "
    "(keep the libraries that SHOW shared_preload_libraries lists already), then restart the server"
)


def _missing(db: ReadOnly, *, loaded: bool) -> ToolFailed:
    database = quote_name(db.connection.info.dbname)
    create = f"CREATE EXTENSION pg_stat_statements; (in database {database}, as a superuser)"
    return ToolFailed(
        f"target {db.target.name!r}: the extension pg_stat_statements is not installed in its database, "
        "so there is no record of which statements were slow",
        code="extension_missing",
        fix=create if loaded else f"{_PRELOAD_FIX}; then {create}",
    )


async def fetch_counters(db: ReadOnly, extension: Extension, server: Server, *, taken_at: datetime) -> Counters:
    """Read the numbers of all entries, without their texts (which cost about nine times as much to read)."""
    from psycopg import sql

    schema = sql.Identifier(extension.schema)
    rows = await db.fetch(
        sql.SQL("select {mark} {columns} from {schema}.pg_stat_statements(false)").format(
            mark=sql.SQL(OWN_MARK), columns=_number_columns(extension.columns), schema=schema
        )
    )
    info: Row | None = None
    if extension.has_info:
        info = await db.fetch_one(
            sql.SQL(
                "select {mark} dealloc, extract(epoch from stats_reset)::float8 as reset "
                "from {schema}.pg_stat_statements_info"
            ).format(mark=sql.SQL(OWN_MARK), schema=schema)
        )
    entries = {_key(row): _counter(row) for row in rows if row["queryid"] is not None}
    return Counters(
        taken_at=taken_at,
        server_now=server.now,
        server_started_at=server.started_at,
        reset_at=None if info is None else _instant(info["reset"]),
        evicted=None if info is None else _int(info["dealloc"]),
        system_id=server.system_id,
        entries=entries,
        hidden=sum(1 for row in rows if row["queryid"] is None),
    )


def _number_columns(have: frozenset[str]) -> Composed:
    """The select list under names of our own; what an older extension lacks becomes a constant."""
    from psycopg import sql

    suffix = "_exec_time" if "total_exec_time" in have else "_time"
    columns: list[Composable] = [
        sql.SQL("{} as {}").format(sql.Identifier(name + suffix), sql.Identifier(name))
        for name in ("total", "mean", "stddev", "max")
    ]
    columns += [sql.Identifier(name) for name in ("userid", "dbid", "queryid", "calls", "rows")]
    columns.append(sql.SQL("coalesce(temp_blks_written, 0) as temp"))
    columns.append(sql.SQL("coalesce(shared_blks_hit, 0) as hit, coalesce(shared_blks_read, 0) as read"))
    # Milliseconds; the name is another one since extension 1.11 (Postgres 17).
    timed = next((name for name in ("shared_blk_read_time", "blk_read_time") if name in have), None)
    read_ms = sql.SQL("0.0::float8") if timed is None else sql.Identifier(timed)
    columns.append(sql.SQL("coalesce({}, 0)::float8 as read_ms").format(read_ms))
    columns.append(sql.SQL("coalesce(wal_bytes, 0)::int8 as wal" if "wal_bytes" in have else "0::int8 as wal"))
    columns.append(sql.SQL("toplevel" if "toplevel" in have else "true as toplevel"))
    since = "extract(epoch from stats_since)::float8 as since" if "stats_since" in have else "null as since"
    return sql.SQL(", ").join([*columns, sql.SQL(since)])


async def fetch_texts(
    db: ReadOnly, extension: Extension, server: Server, keys: Sequence[StatementKey]
) -> dict[StatementKey, StatementText]:
    """Read the texts of some entries, and of all of Hermod's own.

    Returns:
        The texts by key. An entry that the server has thrown out meanwhile is missing.
    """
    from psycopg import sql

    rows = await db.fetch(
        sql.SQL(
            "select {mark} s.userid, s.dbid, {toplevel} as toplevel, s.queryid, left(s.query, %s) as query, "
            "s.userid = %s and position(%s in s.query) > 0 as own, d.datname::text as db, r.rolname::text as username "
            "from {schema}.pg_stat_statements(true) s left join pg_database d on d.oid = s.dbid "
            "left join pg_roles r on r.oid = s.userid "
            "where s.queryid = any(%s) or (s.userid = %s and position(%s in s.query) > 0)"
        ).format(
            mark=sql.SQL(OWN_MARK),
            toplevel=sql.SQL("s.toplevel" if "toplevel" in extension.columns else "true"),
            schema=sql.Identifier(extension.schema),
        ),
        (_TEXT_CHARS, server.userid, OWN_MARK, [key.queryid for key in keys], server.userid, OWN_MARK),
    )
    return {
        _key(row): StatementText(
            sql=str(row["query"] or ""),
            db=str(row["db"] or row["dbid"]),
            user=str(row["username"] or row["userid"]),
            own=bool(row["own"]),
        )
        for row in rows
        if row["queryid"] is not None
    }


async def fetch_scope(db: ReadOnly, scope: Scope) -> tuple[int | None, int | None]:
    """Read the oids of a scope's database and user; None where it names none.

    Raises:
        ToolFailed: ``unknown_name``, when the server has no such database or role.
    """
    row = await db.fetch_one(_OIDS, (scope.database, scope.user))
    dbid, userid = (None, None) if row is None else (row["dbid"], row["userid"])
    for what, name, oid in (("database", scope.database, dbid), ("role", scope.user, userid)):
        if name is not None and oid is None:
            raise ToolFailed(
                f"target {db.target.name!r}: the server has no {what} {name[:63]!r}",
                code="unknown_name",
                fix=f"check the {what}'s name, or leave it out",
            )
    return None if dbid is None else _int(dbid), None if userid is None else _int(userid)


async def fetch_running(
    db: ReadOnly, *, threshold_s: float, every_database: bool, limit: int, scope: Scope
) -> tuple[RunningStatement, ...]:
    """Read the statements that have run for at least ``threshold_s`` seconds, the longest first.

    Parallel workers are not listed beside their leader. Sessions that this role may not look into are missing.
    """
    names = (scope.database, scope.database, every_database, scope.user, scope.user, scope.app, scope.app)
    rows = await db.fetch(_RUNNING, (threshold_s, OWN_APPLICATION, *names, limit))
    return tuple(
        RunningStatement(
            pid=_int(row["pid"]),
            db=str(row["db"]),
            user=str(row["username"]),
            sql=str(row["query"]),
            age_s=_float(row["age_s"]),
        )
        for row in rows
    )


def _key(row: Row) -> StatementKey:
    return StatementKey(_int(row["userid"]), _int(row["dbid"]), bool(row["toplevel"]), _int(row["queryid"]))


def _counter(row: Row) -> Counter:
    since = row["since"]
    return Counter(
        calls=_int(row["calls"]),
        total_s=_float(row["total"]) / 1000,
        mean_s=_float(row["mean"]) / 1000,
        stddev_s=_float(row["stddev"]) / 1000,
        max_s=_float(row["max"]) / 1000,
        rows=_int(row["rows"]),
        temp_blocks=_int(row["temp"]),
        hit_blocks=_int(row["hit"]),
        read_blocks=_int(row["read"]),
        read_s=_float(row["read_ms"]) / 1000,
        wal_bytes=_int(row["wal"]),
        since=None if since is None else _float(since),
    )


def _instant(value: object) -> datetime:
    return datetime.fromtimestamp(_float(value), UTC)


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"the server sent {type(value).__name__} where a whole number belongs")
    return value


def _float(value: object) -> float:
    if not isinstance(value, (int, float)):
        raise TypeError(f"the server sent {type(value).__name__} where a number belongs")
    return float(value)
