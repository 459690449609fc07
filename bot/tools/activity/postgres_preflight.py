"""What Hermod's role can see on a Postgres server, and what is missing: read, never assumed, and never a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from agent_core.errors import ToolFailed
from bot.tools.activity.answer import Preflight
from bot.tools.activity.checks import Finding, list_checks, list_lines
from bot.tools.activity.sessions import whole
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly, Row, open_read_only
from bot.tools.slow_queries.failures import quote_name
from bot.tools.slow_queries.statements import Extension, fetch_extension
from bot.tools.targets import Target

_RELOAD = "SELECT pg_reload_conf();"
_STATEMENTS = "pg_stat_statements"
_MANY_SCHEMAS = 5
_MOST_TABLES = 20_000

_BASICS = f"""select {OWN_MARK} current_user::text as role, current_database()::text as database,
  pg_backend_pid() as pid, pg_is_in_recovery() as standby, r.rolsuper as super,
  r.rolcreaterole as createrole, r.rolcreatedb as createdb, r.rolreplication as replication,
  pg_has_role('pg_read_all_stats', 'usage') as stats, pg_has_role('pg_read_all_settings', 'usage') as settings,
  array(select g.rolname::text from pg_roles g where g.rolname in ('pg_write_all_data', 'pg_execute_server_program',
        'pg_write_server_files', 'pg_read_server_files', 'pg_signal_backend') and pg_has_role(g.oid, 'member')
        order by 1) as dangerous
from pg_roles r where r.rolname = current_user"""

# Not the present value: this very session has time-outs of its own.
_SETTINGS = f"""select {OWN_MARK} name, reset_val as setting, unit from pg_settings where name = any(%s)"""

_EXTENSIONS = f"""select {OWN_MARK} name::text, default_version, installed_version
from pg_available_extensions where name in ('pg_stat_statements', 'hypopg')"""

_TABLES = f"""select {OWN_MARK} n.nspname::text as schema, count(*) as tables, count(*) filter (where not
    (has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select'))) as closed
from (select * from pg_class where relkind in ('r', 'p', 'm') limit {_MOST_TABLES}) c
  join pg_namespace n on n.oid = c.relnamespace
where n.nspname not like 'pg\\_%%' and n.nspname <> 'information_schema' group by 1 order by 3 desc, 1"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """What a setting should be. ``bad`` looks at the value; ``to`` is what ALTER SYSTEM sets, empty for a hint only."""

    name: str
    bad: Callable[[str], bool]
    status: str
    message: str
    to: str = ""


def _is(*values: str) -> Callable[[str], bool]:
    return lambda value: value in values


_RULES: tuple[_Rule, ...] = (
    _Rule(
        name="track_activities",
        bad=_is("off"),
        status="missing",
        message="nobody can tell what sessions execute or since when",
        to="on",
    ),
    _Rule(
        name="compute_query_id",
        bad=_is("off"),
        status="missing",
        message="statements have no id, so pg_stat_statements records nothing and sessions cannot be told apart by it",
        to="auto",
    ),
    _Rule(
        name="pg_stat_statements.track",
        bad=_is("none"),
        status="missing",
        message="no statement is recorded",
        to="top",
    ),
    _Rule(
        name="track_io_timing",
        bad=_is("off"),
        status="warning",
        message="how long reading and writing takes is not measured (pg_test_timing tells what measuring costs)",
        to="on",
    ),
    _Rule(
        name="log_lock_waits",
        bad=_is("off"),
        status="warning",
        message="long waits for locks leave no trace in the log",
        to="on",
    ),
    _Rule(
        name="log_min_duration_statement",
        bad=_is("-1"),
        status="warning",
        message="slow statements do not get into the log, so there is no record of single executions",
        to="'1s'",
    ),
    _Rule(
        name="idle_in_transaction_session_timeout",
        bad=_is("0"),
        status="info",
        message="the server never ends sessions that are idle in a transaction",
    ),
    _Rule(
        name="track_activity_query_size",
        bad=lambda value: int(value) <= 1024,
        status="info",
        message="running statements are shown up to this length only; raising it takes a restart",
    ),
    _Rule(name="pg_stat_statements.max", bad=lambda _: False, status="info", message=""),
    _Rule(name="statement_timeout", bad=lambda _: False, status="info", message=""),
    _Rule(name="deadlock_timeout", bad=lambda _: False, status="info", message=""),
    _Rule(name="auto_explain.log_min_duration", bad=lambda _: False, status="info", message=""),
)
_LOADED_BY = {"pg_stat_statements.track", "pg_stat_statements.max", "auto_explain.log_min_duration"}


async def read_postgres_preflight(where: Target) -> Preflight:
    """Look at everything that the tools build on.

    Raises:
        ToolFailed: only where no connection can be made.
    """
    async with open_read_only(where) as db:
        basics = await db.fetch_one(_BASICS)
        if basics is None:
            raise ToolFailed(f"target {where.name!r} gave no answer", code="failed", retryable=True)
        standby, role = bool(basics["standby"]), quote_name(str(basics["role"]))
        pooler = db.connection.info.backend_pid != whole(basics["pid"])
        findings = [
            *_find_rights(basics, role),
            *_find_tables(await db.fetch(_TABLES), role),
            *_find_settings(db, await db.fetch(_SETTINGS, ([rule.name for rule in _RULES],)), basics),
        ]
        available = {str(row["name"]): row for row in await db.fetch(_EXTENSIONS)}
        findings += _find_hypopg(available)
        since, statements = await _find_statements(db, available, role)  # last: it may end the transaction
        findings += [*statements, _find_pooler(pooler=pooler)]
        version = db.version
    if standby:
        findings = [_for_standby(finding) for finding in findings]
        message = "rights and extensions are changed on the primary; settings here, for this server alone"
        findings.append(Finding(name="server", status="info", value="standby", message=message))
    return Preflight(
        target=where.name,
        engine="postgresql",
        engine_version=version,
        source="pg_settings, pg_roles, pg_extension and what the role may read",
        rows=list_checks(findings),
        account=str(basics["role"]),
        server_role="standby" if standby else "primary",
        pooler=pooler,
        statements_since=since,
        to_run=list_lines(findings),
        took_ms=0.0,
    )


def _find_rights(basics: Row, role: str) -> list[Finding]:
    found = []
    if basics["stats"]:
        found.append(Finding(name="other sessions", status="ok", value="visible"))
    else:
        message = "statements of other roles are hidden, in running ones and in the statistics"
        grant = (f"GRANT pg_monitor TO {role};",)
        found.append(Finding(name="other sessions", status="missing", value="hidden", message=message, lines=grant))
    if basics["super"]:
        message = "this role can do anything; a role with pg_monitor alone is safer (hermod targets grant prints one)"
        return [*found, Finding(name="role", status="warning", value="superuser", message=message)]
    flags = [(name, bool(basics[name])) for name in ("createrole", "createdb", "replication")]
    lines = [f"ALTER ROLE {role} NO{name.upper()};" for name, on in flags if on]
    dangerous = basics["dangerous"]
    roles = [str(name) for name in dangerous] if isinstance(dangerous, list) else []
    lines += [f"REVOKE {name} FROM {role};" for name in roles]
    if lines:
        value = ", ".join([name for name, on in flags if on] + roles)
        message = "more than reading takes; what is not there cannot be misused"
        return [*found, Finding(name="role", status="warning", value=value, message=message, lines=tuple(lines))]
    return [*found, Finding(name="role", status="ok", value="no dangerous rights")]


def _find_tables(rows: list[Row], role: str) -> list[Finding]:
    total = sum(whole(row["tables"]) for row in rows)
    closed = [row for row in rows if whole(row["closed"])]
    count = sum(whole(row["closed"]) for row in closed)
    if not count:
        return [Finding(name="tables", status="ok", value=f"{total} of {total} readable")]
    lines = []
    for row in closed[:_MANY_SCHEMAS]:
        schema = quote_name(str(row["schema"]))
        lines.append(
            f"GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role};"
        )
    return [
        Finding(
            name="tables",
            status="warning",
            value=f"{total - count} of {total} readable",
            message="explain_query needs SELECT on the tables of a statement; everything else works without it",
            lines=tuple(lines),
        )
    ]


def _find_settings(db: ReadOnly, rows: list[Row], basics: Row) -> list[Finding]:
    settings = {str(row["name"]): row for row in rows}
    found = []
    for rule in _RULES:
        row = settings.get(rule.name)
        if row is None:
            if rule.name == "auto_explain.log_min_duration":
                message = "not loaded: the log has no plans of slow statements"
                found.append(Finding(name="auto_explain", status="info", value="off", message=message))
            continue
        value = f"{row['setting']}{' ' + str(row['unit']) if row['unit'] else ''}"
        if not rule.bad(str(row["setting"])):
            status = "info" if rule.status == "info" else "ok"
            found.append(Finding(name=rule.name, status="ok" if status == "ok" else "info", value=value))
            continue
        lines = (f"ALTER SYSTEM SET {rule.name} = {rule.to}; {_RELOAD}",) if rule.to else ()
        finding = Finding(name=rule.name, status="info", value=value, message=rule.message, lines=lines)
        match rule.status:
            case "missing":
                found.append(replace(finding, status="missing"))
            case "warning":
                found.append(replace(finding, status="warning"))
            case _:
                found.append(finding)
    unknown = [rule.name for rule in _RULES if rule.name not in settings and rule.name not in _LOADED_BY]
    if unknown and not basics["settings"]:
        message = f"{', '.join(unknown)}: the role may not read them, or version {db.version} has none of the name"
        found.append(Finding(name="settings", status="info", value="not all readable", message=message))
    return found


def _find_hypopg(available: Mapping[str, Row]) -> list[Finding]:
    row = available.get("hypopg")
    if row is None:
        message = "index advice cannot be tried out with hypothetical indexes; the server has no package of it"
        return [Finding(name="hypopg", status="info", value="not available", message=message)]
    if row["installed_version"] is None:
        message = "with it index advice is tried out with hypothetical indexes"
        lines = ("CREATE EXTENSION hypopg;",)
        return [Finding(name="hypopg", status="info", value="not installed", message=message, lines=lines)]
    return [Finding(name="hypopg", status="ok", value=str(row["installed_version"]))]


def _find_pooler(*, pooler: bool) -> Finding:
    """Behind a pooler the number that the connection was given is not that of the server's session."""
    if not pooler:
        return Finding(name="pooler", status="ok", value="none between here and the server")
    message = "sessions are shared: one pid serves many clients in turn, and application_name is the pooler's choice"
    return Finding(name="pooler", status="info", value="yes", message=message)


async def _find_statements(db: ReadOnly, available: Mapping[str, Row], role: str) -> tuple[str | None, list[Finding]]:
    """The extension, whether it can be read, and since when it counts."""
    try:
        extension = await fetch_extension(db)
    except ToolFailed as failure:
        message = failure.message.partition(": ")[2] or failure.message
        finding = Finding(
            name=_STATEMENTS, status="missing", value=failure.code, message=message, lines=_as_lines(failure.fix)
        )
        return None, [finding]
    known = available.get(_STATEMENTS)
    newest = None if known is None else known["default_version"]
    finding = Finding(name=_STATEMENTS, status="ok", value=extension.version)
    if newest is not None and newest != extension.version:
        finding = replace(
            finding,
            status="warning",
            message=f"the server has {newest}, with more columns",
            lines=("ALTER EXTENSION pg_stat_statements UPDATE;",),
        )
    try:
        since, contents = await _read_statements(db, extension)
    except ToolFailed:
        name = f"{quote_name(extension.schema)}.pg_stat_statements"
        lines = (f"GRANT SELECT ON {name} TO {role}; GRANT EXECUTE ON FUNCTION {name}(boolean) TO {role};",)
        message = "the role may not read it"
        return None, [replace(finding, status="missing", value=extension.version, message=message, lines=lines)]
    return since, [finding, contents]


async def _read_statements(db: ReadOnly, extension: Extension) -> tuple[str | None, Finding]:
    from psycopg import sql

    schema = sql.Identifier(extension.schema)
    mark = sql.SQL(OWN_MARK)
    counted = await db.fetch_one(
        sql.SQL(
            "select {mark} count(*) as entries, count(*) filter (where queryid is null) as hidden "
            "from {schema}.pg_stat_statements(false)"
        ).format(mark=mark, schema=schema)
    )
    entries, hidden = (0, 0) if counted is None else (whole(counted["entries"]), whole(counted["hidden"]))
    since, evicted = None, 0
    if extension.has_info:
        info = await db.fetch_one(
            sql.SQL(
                "select {mark} dealloc, "
                "to_char(stats_reset at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') as since "
                "from {schema}.pg_stat_statements_info"
            ).format(mark=mark, schema=schema)
        )
        if info is not None:
            since, evicted = str(info["since"]), whole(info["dealloc"])
    parts = [f"since {since}"] if since else []
    parts += [f"{hidden} of other roles hidden"] if hidden else []
    parts += [f"evicted entries {evicted} times; raise pg_stat_statements.max"] if evicted else []
    status = "warning" if hidden or evicted else "ok"
    finding = Finding(name="recorded statements", status="ok", value=f"{entries} shapes", message="; ".join(parts))
    return since, replace(finding, status="warning") if status == "warning" else finding


def _as_lines(fix: str) -> tuple[str, ...]:
    """The remedies of a failure, as they are: lines to run with what has to be known beside them."""
    return tuple(part.strip() for part in fix.split("; then ") if part.strip())


def _for_standby(finding: Finding) -> Finding:
    """On a standby rights and extensions cannot be changed; they come from the primary."""
    lines = tuple(line if line.startswith("ALTER SYSTEM") else f"{line} (on the primary)" for line in finding.lines)
    return replace(finding, lines=lines)
