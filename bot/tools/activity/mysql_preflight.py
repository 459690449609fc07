"""What Hermod's account can see on MySQL and MariaDB, and what is missing; tried out where a right decides."""

from __future__ import annotations

from collections.abc import Mapping

from agent_core.errors import ToolFailed
from bot.tools.activity.answer import Preflight
from bot.tools.activity.checks import Finding, list_checks, list_lines
from bot.tools.activity.mysql_blocking import MDL_LINE
from bot.tools.activity.mysql_sessions import fetch_account, text_of
from bot.tools.mysql.connection import OWN_MARK, MySqlReadOnly, open_mysql
from bot.tools.mysql.privileges import find_risks
from bot.tools.targets import Target

_VARIABLES = (
    "performance_schema",
    "slow_query_log",
    "long_query_time",
    "log_output",
    "log_slow_verbosity",
    "max_statement_time",
    "max_execution_time",
    "innodb_lock_wait_timeout",
    "innodb_print_all_deadlocks",
    "performance_schema_max_digest_length",
    "performance_schema_digests_size",
    "read_only",
)
_SHOW = "SHOW GLOBAL VARIABLES WHERE Variable_name IN (" + ", ".join(f"'{name}'" for name in _VARIABLES) + ")"
_CONSUMERS = f"SELECT {OWN_MARK} NAME AS name, ENABLED AS enabled FROM performance_schema.setup_consumers"
_MDL = f"""SELECT {OWN_MARK} ENABLED AS enabled FROM performance_schema.setup_instruments
WHERE NAME = 'wait/lock/metadata/sql/mdl'"""
_SINCE = f"""SELECT {OWN_MARK} DATE_FORMAT(MIN(FIRST_SEEN), '%Y-%m-%dT%H:%i:%sZ') AS since, COUNT(*) AS shapes
FROM performance_schema.events_statements_summary_by_digest"""
_REPLICA = f"SELECT {OWN_MARK} COUNT(*) AS sources FROM performance_schema.replication_connection_configuration"

# (what to try, name, what it is for, what to grant)
_TRIES: tuple[tuple[str, str, str, str], ...] = (
    (
        "SELECT 1 FROM information_schema.INNODB_TRX LIMIT 1",
        "other sessions",
        "statements of other accounts, open transactions and waits for rows are hidden",
        "GRANT PROCESS ON *.*",
    ),
    (
        "SELECT 1 FROM performance_schema.events_statements_summary_by_digest LIMIT 1",
        "statement statistics",
        "what was slow cannot be read",
        "GRANT SELECT ON performance_schema.*",
    ),
)
_CONSUMER_NEEDS: Mapping[str, str] = {
    "global_instrumentation": "nothing is measured at all",
    "thread_instrumentation": "nothing is measured for single sessions",
    "statements_digest": "statements are not counted by shape, so there are no slow queries to list",
    "events_statements_current": "what an idle session executed last is not known",
}
_CONSUMER_WISHES: Mapping[str, str] = {
    "events_statements_history_long": "single executions are not kept, so a threshold meets window means only",
}


async def read_mysql_preflight(where: Target) -> Preflight:
    """Look at everything that the tools build on.

    Raises:
        ToolFailed: only where no connection can be made, or the account is refused for its dangerous rights.
    """
    async with open_mysql(where) as db:
        account = await fetch_account(db)
        variables = {text_of(row["Variable_name"]): text_of(row["Value"]) for row in await db.fetch(_SHOW)}
        findings = await _find_rights(db, account)
        statistics = next(f for f in findings if f.name == "statement statistics").status == "ok"
        findings += _find_variables(variables)
        since, sources = None, None
        if statistics and variables.get("performance_schema") == "ON":
            findings += await _find_consumers(db)
            since, shapes = await _read_since(db)
            message = f"since {since}" if since else ""
            findings.append(Finding(name="recorded statements", status="ok", value=f"{shapes} shapes", message=message))
            sources = await _try(db, _REPLICA)
        flavor, version = db.flavor, db.version
    standby = bool(sources and int(text_of(sources[0]["sources"]))) or variables.get("read_only") in ("ON", "1")
    return Preflight(
        target=where.name,
        engine=flavor,
        engine_version=version,
        source="SHOW GRANTS, SHOW GLOBAL VARIABLES, performance_schema and what the account may read",
        rows=list_checks(findings),
        account=account,
        server_role="standby" if standby else "unknown" if sources is None else "primary",
        pooler=None,
        statements_since=since,
        to_run=list_lines(findings),
        took_ms=0.0,
    )


async def _find_rights(db: MySqlReadOnly, account: str) -> list[Finding]:
    findings = []
    for query, name, message, grant in _TRIES:
        if await _try(db, f"{query.replace('SELECT 1', f'SELECT {OWN_MARK} 1 AS one', 1)}") is not None:
            findings.append(Finding(name=name, status="ok", value="readable"))
            continue
        lines = (f"{grant} TO {account};",)
        findings.append(Finding(name=name, status="missing", value="hidden", message=message, lines=lines))
    grants = [text_of(next(iter(row.values()))) for row in await db.fetch("SHOW GRANTS")]
    risks = sorted(find_risks(grants))
    if risks:
        message = "more than reading takes; accepted by accept_risks in the target's settings"
        findings.append(Finding(name="account", status="warning", value=", ".join(risks), message=message))
    else:
        findings.append(Finding(name="account", status="ok", value="no dangerous rights"))
    return findings


def _find_variables(variables: Mapping[str, str]) -> list[Finding]:
    findings = []
    if variables.get("performance_schema") != "ON":
        findings.append(
            Finding(
                name="performance_schema",
                status="missing",
                value=variables.get("performance_schema") or "unknown",
                message="the server keeps no statistics of statements; set performance_schema = ON in its option file "
                "under [mysqld] and restart it",
            )
        )
    else:
        findings.append(Finding(name="performance_schema", status="ok", value="ON"))
    if variables.get("slow_query_log") == "ON":
        findings.append(Finding(name="slow_query_log", status="ok", value="ON"))
    else:
        message = "slow statements leave no record of single executions"
        lines = ("SET GLOBAL slow_query_log = ON;",)
        finding = Finding(name="slow_query_log", status="warning", value="OFF", message=message, lines=lines)
        findings.append(finding)
    shown = [name for name in _VARIABLES[2:] if name in variables and name != "read_only"]
    return findings + [Finding(name=name, status="info", value=variables[name] or "not set") for name in shown]


async def _find_consumers(db: MySqlReadOnly) -> list[Finding]:
    rows = {text_of(row["name"]): text_of(row["enabled"]) for row in await _try(db, _CONSUMERS) or ()}
    findings = []
    for name, message in {**_CONSUMER_NEEDS, **_CONSUMER_WISHES}.items():
        if rows.get(name) == "YES":
            findings.append(Finding(name=name, status="ok", value="on"))
            continue
        findings.append(
            Finding(
                name=name,
                status="missing" if name in _CONSUMER_NEEDS else "warning",
                value="off",
                message=message,
                lines=(f"UPDATE performance_schema.setup_consumers SET ENABLED = 'YES' WHERE NAME = '{name}';",),
            )
        )
    mdl = await _try(db, _MDL)
    if mdl and text_of(mdl[0]["enabled"]) == "YES":
        findings.append(Finding(name="metadata locks", status="ok", value="on"))
    else:
        message = "who holds up a statement that waits for a table's definition is not known"
        findings.append(
            Finding(name="metadata locks", status="warning", value="off", message=message, lines=(MDL_LINE,))
        )
    return findings


async def _read_since(db: MySqlReadOnly) -> tuple[str | None, int]:
    rows = await _try(db, _SINCE)
    if not rows:
        return None, 0
    since = text_of(rows[0]["since"])
    return since or None, int(text_of(rows[0]["shapes"]))


async def _try(db: MySqlReadOnly, query: str) -> list[Mapping[str, object]] | None:
    """Read what may be out of reach, or not be there in this version; None if so."""
    try:
        return await db.fetch(query)
    except ToolFailed as failure:
        if failure.code not in ("insufficient_privilege", "parse_failed", "failed"):
            raise
        return None
