"""Checks of sessions on Postgres: how many, how old their transactions are, which ones idle inside one."""

from __future__ import annotations

from bot.tools.database_health.answer import Check, Status
from bot.tools.database_health.checks import HealthBounds, unknown, worst
from bot.tools.database_health.fields import Row, count, number, text
from bot.tools.database_health.postgres_server import PostgresServer
from bot.tools.database_health.wording import percent, say_age, say_number
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly
from bot.tools.slow_queries.redact_sql import redact_sql, shorten

_QUERY_WIDTH = 160
_MOST_ITEMS = 10

# Of other roles' sessions a role without pg_read_all_stats sees pid, database and role only.
_CLIENTS = """pg_stat_activity a
  where (a.backend_type = 'client backend'
    or (a.backend_type is null and a.usesysid is not null and a.datid is not null))"""

_CONNECTIONS = f"""
select {OWN_MARK} count(*) as used, count(*) filter (where a.state = 'active') as active,
  count(*) filter (where a.state = 'idle') as idle,
  count(*) filter (where a.state like 'idle in transaction%%') as idle_in_transaction,
  count(*) filter (where a.state is null) as hidden,
  count(*) filter (where a.backend_start > clock_timestamp() - make_interval(secs => %s)) as begun,
  current_setting('max_connections')::int as most,
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    - coalesce(current_setting('reserved_connections', true)::int, 0) as usable
from {_CLIENTS}"""

_GROUPS = f"""
select {OWN_MARK} quote_ident(a.usename) as role, quote_ident(a.datname) as database, count(*) as sessions,
  coalesce(a.state, 'state not visible') as state
from {_CLIENTS} group by 1, 2, 4 order by 3 desc, 1, 2, 4 limit 5"""

_TRANSACTIONS = f"""
select {OWN_MARK} pid::text as pid, quote_ident(usename) as role, quote_ident(datname) as database, state,
  extract(epoch from clock_timestamp() - xact_start)::float8 as age_s, query
from pg_stat_activity where xact_start is not null and backend_type = 'client backend' and pid <> pg_backend_pid()
order by xact_start limit {_MOST_ITEMS}"""

_PREPARED = f"""
select {OWN_MARK} transaction::text as xid, quote_ident(owner) as role, quote_ident(database) as database,
  extract(epoch from clock_timestamp() - prepared)::float8 as age_s
from pg_prepared_xacts order by prepared limit {_MOST_ITEMS}"""

_IDLE = f"""
with waiting as (select distinct pid from pg_locks where not granted limit 100),
  blocking as (select b.pid, count(*) as blocked from waiting w, unnest(pg_blocking_pids(w.pid)) b(pid) group by b.pid)
select {OWN_MARK} a.pid::text as pid, quote_ident(a.usename) as role, quote_ident(a.datname) as database, a.state,
  extract(epoch from clock_timestamp() - a.state_change)::float8 as idle_s,
  extract(epoch from clock_timestamp() - a.xact_start)::float8 as age_s, a.query, coalesce(b.blocked, 0) as blocked
from pg_stat_activity a left join blocking b on b.pid = a.pid
where a.state like 'idle in transaction%' order by blocked desc, a.state_change limit {_MOST_ITEMS}"""


async def check_connections(db: ReadOnly, server: PostgresServer, bounds: HealthBounds) -> Check:
    """Compare the sessions with what ordinary roles may have, and look for a storm of new ones."""
    row: Row = await db.fetch_one(_CONNECTIONS, (bounds.storm_s,)) or {}
    groups = await db.fetch(_GROUPS)
    used, usable, begun = count(row, "used"), max(1, count(row, "usable")), count(row, "begun")
    share = used / usable
    status = bounds.connections.grade(share)
    evidence = (
        f"{used} of {usable} connections that ordinary roles may have ({percent(share)}; max_connections "
        f"{count(row, 'most')}): {count(row, 'active')} active, {count(row, 'idle')} idle, "
        f"{count(row, 'idle_in_transaction')} idle in transaction"
    )
    if hidden := count(row, "hidden"):
        evidence += f", {hidden} whose state this role may not see"
    advice = ""
    if begun >= max(bounds.storm_least, bounds.storm_share * usable):
        status = worst([status, "warn"])
        evidence += f"; a storm: {begun} of them began within the last {say_age(bounds.storm_s)}"
        advice = "look for clients that reconnect again and again; "
    if status != "ok":
        advice += (
            "put a pooler (pgbouncer) in front or make the applications' pools smaller; CONNECTION LIMIT bounds a role"
        )
    return Check(
        check="connections",
        status=status,
        value=round(share, 3),
        unit="share of usable connections",
        bound=bounds.connections.describe(percent),
        evidence=evidence,
        advice=advice,
        grant=None if server.sees_all else server.monitor_grant,
        items=tuple(
            f"{count(g, 'sessions')} of role {text(g, 'role')} in {text(g, 'database')}: {text(g, 'state')}"
            for g in groups
        ),
    )


async def check_long_transactions(db: ReadOnly, server: PostgresServer, bounds: HealthBounds) -> Check:
    """Look for transactions that have been open for long, prepared ones too: they keep dead rows from VACUUM."""
    rows = await db.fetch(_TRANSACTIONS)
    prepared = await db.fetch(_PREPARED)
    ages = [number(row, "age_s") for row in (*rows, *prepared)]
    oldest = max(ages, default=0.0)
    status: Status = bounds.transaction_s.grade(oldest)
    if not server.sees_all and status == "ok":
        return unknown(
            "long_transactions", "the role sees the transactions of its own sessions only", grant=server.monitor_grant
        )
    late = [row for row in rows if number(row, "age_s") >= bounds.transaction_s.warn]
    late_prepared = [row for row in prepared if number(row, "age_s") >= bounds.transaction_s.warn]
    items = [
        f"prepared transaction {text(row, 'xid')} of role {text(row, 'role')} in {text(row, 'database')}, "
        f"{say_age(number(row, 'age_s'))} old"
        for row in late_prepared
    ]
    items += [_say_session(row, f"{say_age(number(row, 'age_s'))} old, {text(row, 'state')}") for row in late]
    advice = ""
    if status != "ok":
        advice = "let the application end them, or ask for terminate_session; they keep VACUUM from removing dead rows"
        if late_prepared:
            advice += (
                "; a prepared one is ended with ROLLBACK PREPARED or COMMIT PREPARED and its gid of pg_prepared_xacts"
            )
    evidence = f"{len(ages)} open, the oldest since {say_age(oldest)}" if ages else "no transaction is open"
    return Check(
        check="long_transactions",
        status=status,
        value=round(oldest, 1),
        unit="seconds",
        bound=bounds.transaction_s.describe(say_age),
        evidence=evidence,
        advice=advice,
        grant=None if server.sees_all else server.monitor_grant,
        items=tuple(items[:_MOST_ITEMS]),
    )


async def check_idle_in_transaction(db: ReadOnly, server: PostgresServer, bounds: HealthBounds) -> Check:
    """Look for sessions that hold a transaction open and do nothing, above all those that others wait for."""
    rows = await db.fetch(_IDLE)
    statuses: list[Status] = ["ok"]
    for row in rows:
        idle_s = number(row, "idle_s")
        statuses.append(bounds.idle_s.grade(idle_s))
        if count(row, "blocked"):
            statuses.append(bounds.idle_blocking_s.grade(idle_s))
    status = worst(statuses)
    if not server.sees_all and status == "ok":
        return unknown(
            "idle_in_transaction", "the role sees the state of its own sessions only", grant=server.monitor_grant
        )
    blocked = sum(count(row, "blocked") for row in rows)
    oldest = max((number(row, "idle_s") for row in rows), default=0.0)
    if rows:
        evidence = f"{say_number(len(rows), 'session')} idle in a transaction, for up to {say_age(oldest)}"
        evidence += f"; {say_number(blocked, 'session')} waiting for them" if blocked else "; nobody waits for them"
    else:
        evidence = "no session idles in a transaction"
    advice = ""
    if status != "ok":
        advice = (
            "find out why the application neither commits nor rolls back (terminate_session ends a session); "
            "idle_in_transaction_session_timeout ends such sessions by itself"
        )
    return Check(
        check="idle_in_transaction",
        status=status,
        value=round(oldest, 1),
        unit="seconds",
        bound=f"{bounds.idle_s.describe(say_age)}; warn at once where others wait",
        evidence=evidence,
        advice=advice,
        grant=None if server.sees_all else server.monitor_grant,
        items=tuple(_say_idle(row) for row in rows),
    )


def _say_idle(row: Row) -> str:
    state = "aborted, " if "aborted" in text(row, "state") else ""
    blocked = f", {say_number(count(row, 'blocked'), 'session')} waiting for it" if count(row, "blocked") else ""
    said = f"{state}idle for {say_age(number(row, 'idle_s'))}, open for {say_age(number(row, 'age_s'))}{blocked}"
    return _say_session(row, said)


def _say_session(row: Row, said: str) -> str:
    query = shorten(redact_sql(text(row, "query")), _QUERY_WIDTH)
    last = f"; last statement: {query}" if query else ""
    return f"pid {text(row, 'pid')} of role {text(row, 'role')} in {text(row, 'database')}: {said}{last}"
