"""Checks of a MySQL or MariaDB server."""

from __future__ import annotations

import re

from agent_core.errors import ToolFailed
from bot.tools.database_health.answer import Check, Status
from bot.tools.database_health.checks import HealthBounds, unknown, worst
from bot.tools.database_health.fields import Row, count, maybe_number, number, text
from bot.tools.database_health.mysql_server import (
    MySqlServer,
    count_tables,
    fetch_status,
    find_hidden_tables,
    quote_name,
)
from bot.tools.database_health.mysql_tables import fetch_auto_limits, used_share
from bot.tools.database_health.wording import percent, say_age, say_count, say_number, say_some, write_size
from bot.tools.mysql.connection import OWN_MARK, MySqlReadOnly
from bot.tools.slow_logs.mysql_text import redact_mysql
from bot.tools.slow_queries.redact_sql import shorten

_MOST_ITEMS = 10
_QUERY_WIDTH = 160

_MOST_CONNECTIONS = f"SELECT {OWN_MARK} @@max_connections AS most"
_SESSIONS = (
    f"SELECT {OWN_MARK} USER AS account, DB AS db, COMMAND AS command, COUNT(*) AS sessions "
    "FROM information_schema.PROCESSLIST WHERE COMMAND <> 'Daemon' GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT 1000"
)
_TRANSACTIONS = f"""
SELECT {OWN_MARK} t.trx_mysql_thread_id AS id, TIMESTAMPDIFF(MICROSECOND, t.trx_started, NOW(6)) / 1e6 AS age_s,
  p.TIME AS state_s, p.COMMAND AS command, p.USER AS account, p.DB AS db, t.trx_query AS query, t.trx_id AS trx,
  t.trx_rows_modified AS modified, t.trx_state AS state
FROM information_schema.INNODB_TRX t LEFT JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id
WHERE t.trx_mysql_thread_id <> CONNECTION_ID() ORDER BY t.trx_started LIMIT 50"""
_WAITS_MARIADB = f"""
SELECT {OWN_MARK} blocking_trx_id AS trx, COUNT(DISTINCT requesting_trx_id) AS waiting
FROM information_schema.INNODB_LOCK_WAITS GROUP BY blocking_trx_id"""
# From documentation, never run: https://dev.mysql.com/doc/refman/8.4/en/performance-schema-data-lock-waits-table.html
_WAITS_MYSQL = f"""
SELECT {OWN_MARK} BLOCKING_ENGINE_TRANSACTION_ID AS trx, COUNT(DISTINCT REQUESTING_ENGINE_TRANSACTION_ID) AS waiting
FROM performance_schema.data_lock_waits GROUP BY BLOCKING_ENGINE_TRANSACTION_ID"""
_NEXT_VALUES = (
    "SELECT {mark} TABLE_SCHEMA AS s, TABLE_NAME AS t, AUTO_INCREMENT AS next_value FROM information_schema.TABLES "
    "WHERE TABLE_TYPE = 'BASE TABLE' AND AUTO_INCREMENT IS NOT NULL AND {scope}"
)
_UNSAFE_TABLES = (
    "SELECT {mark} TABLE_SCHEMA AS s, TABLE_NAME AS t, ENGINE AS engine, DATA_LENGTH AS data_bytes "
    "FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE IN ('MyISAM', 'MEMORY') "
    "AND DATA_LENGTH >= {least} AND {scope} ORDER BY DATA_LENGTH DESC"
)
_REPLICA = f"SHOW {OWN_MARK} REPLICA STATUS"
_REPLICAS = (
    f"SELECT {OWN_MARK} COUNT(*) AS replicas FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'"
)
_HISTORY = (
    f"SELECT {OWN_MARK} COUNT AS length FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'"
)
_CLEAN = re.compile(r"[^\w.:@/ -]")


async def check_mysql_connections(db: MySqlReadOnly, server: MySqlServer, bounds: HealthBounds) -> Check:
    """Compare the sessions with ``max_connections``."""
    status = await fetch_status(
        db, ["Threads_connected", "Threads_running", "Max_used_connections", "Aborted_connects", "Connections"]
    )
    row: Row = await db.fetch_one(_MOST_CONNECTIONS) or {}
    most, used = max(1, count(row, "most")), int(status.get("Threads_connected", 0))
    groups = await db.fetch(_SESSIONS)
    seen = sum(count(group, "sessions") for group in groups)
    grade = bounds.connections.grade(used / most)
    evidence = (
        f"{used} of {most} connections ({percent(used / most)}), {int(status.get('Threads_running', 0))} of them "
        f"running; at most {int(status.get('Max_used_connections', 0))} since the server started"
    )
    advice = ""
    # A storm leaves its mark in the peak, and in connections that are refused.
    if grade != "ok":
        evidence += f"; {say_count(status.get('Connections', 0))} were opened in {say_age(server.uptime_s)}"
        advice = (
            "put a pooler (ProxySQL, MaxScale) in front or make the applications' pools smaller; end what only sleeps"
        )
    return Check(
        check="connections",
        status=grade,
        value=round(used / most, 3),
        unit="share of max_connections",
        bound=bounds.connections.describe(percent),
        evidence=evidence,
        advice=advice,
        grant=server.process_grant if used - seen > max(1, used // 10) else None,
        items=tuple(_say_group(group) for group in groups[:5]),
    )


def _say_group(row: Row) -> str:
    where = f" in {quote_name(text(row, 'db'))}" if text(row, "db") else ""
    return f"{count(row, 'sessions')} of {_CLEAN.sub('', text(row, 'account'))}{where}: {text(row, 'command')}"


async def read_pool(db: MySqlReadOnly) -> tuple[float, float]:
    """Read the buffer pool's counters: requests, and those that had to go to the disk."""
    status = await fetch_status(db, ["Innodb_buffer_pool_read_requests", "Innodb_buffer_pool_reads"])
    return status.get("Innodb_buffer_pool_read_requests", 0.0), status.get("Innodb_buffer_pool_reads", 0.0)


def judge_pool(
    before: tuple[float, float], after: tuple[float, float], length_s: float, server: MySqlServer, bounds: HealthBounds
) -> Check:
    """Judge the share of requests that the buffer pool did not serve: between the readings, or since the start."""
    requests, reads = after[0] - before[0], after[1] - before[1]
    over = f"in the last {say_age(length_s)}"
    if min(requests, reads) < 0 or requests < bounds.miss_least:
        (requests, reads), over = after, f"in the {say_age(server.uptime_s)} since the server started"
    unit = "share of page requests"
    if requests < bounds.miss_least:
        evidence = f"only {say_count(requests)} page requests {over}: too few to judge"
        return Check(check="cache_hit", status="ok", value=None, unit=unit, bound="", evidence=evidence)
    ratio = max(0.0, 1 - reads / requests)
    status = bounds.miss.grade(1 - ratio)
    advice = "find what reads so much (get_slow_queries) before innodb_buffer_pool_size is raised"
    return Check(
        check="cache_hit",
        status=status,
        value=round(ratio, 4),
        unit=unit,
        bound=f"warn at {percent(1 - bounds.miss.warn)} or less",
        evidence=f"{percent(ratio)} of {say_count(requests)} page requests came from the buffer pool {over}",
        advice=advice if status != "ok" else "",
    )


async def check_mysql_transactions(db: MySqlReadOnly, server: MySqlServer, bounds: HealthBounds) -> Check:
    """Look for InnoDB transactions that have been open for long."""
    rows = await db.fetch(_TRANSACTIONS)
    oldest = max((number(row, "age_s") for row in rows), default=0.0)
    status = bounds.transaction_s.grade(oldest)
    late = [row for row in rows if number(row, "age_s") >= bounds.transaction_s.warn]
    return Check(
        check="long_transactions",
        status=status,
        value=round(oldest, 1),
        unit="seconds",
        bound=bounds.transaction_s.describe(say_age),
        evidence=f"{len(rows)} open, the oldest since {say_age(oldest)}" if rows else "no transaction is open",
        advice="let the application end them; purge cannot remove old row versions before" if status != "ok" else "",
        items=tuple(_say_transaction(row, f"{say_age(number(row, 'age_s'))} old") for row in late[:_MOST_ITEMS]),
    )


async def check_mysql_idle(db: MySqlReadOnly, server: MySqlServer, bounds: HealthBounds) -> Check:
    """Look for sessions that hold a transaction open and sleep, above all those that others wait for."""
    rows = [row for row in await db.fetch(_TRANSACTIONS) if text(row, "command") == "Sleep"]
    waits: dict[str, int] = {}
    grant = None
    try:
        for wait in await db.fetch(_WAITS_MARIADB if db.flavor == "mariadb" else _WAITS_MYSQL):
            waits[text(wait, "trx")] = count(wait, "waiting")
    except ToolFailed as failure:
        if failure.code != "insufficient_privilege":
            raise
        grant = server.process_grant if db.flavor == "mariadb" else server.counters_grant
    statuses: list[Status] = ["ok"]
    for row in rows:
        statuses.append(bounds.idle_s.grade(number(row, "state_s")))
        if waits.get(text(row, "trx")):
            statuses.append(bounds.idle_blocking_s.grade(number(row, "state_s")))
    status = worst(statuses)
    oldest = max((number(row, "state_s") for row in rows), default=0.0)
    waiting = sum(waits.get(text(row, "trx"), 0) for row in rows)
    evidence = "no session sleeps in a transaction"
    if rows:
        evidence = f"{say_number(len(rows), 'session')} sleeping in a transaction, for up to {say_age(oldest)}"
        evidence += f"; {say_number(waiting, 'transaction')} waiting for them" if waiting else "; nobody waits for them"
    advice = (
        "find out why the application neither commits nor rolls back; KILL ends a session" if status != "ok" else ""
    )
    return Check(
        check="idle_in_transaction",
        status=status,
        value=oldest,
        unit="seconds",
        bound=f"{bounds.idle_s.describe(say_age)}; warn at once where others wait",
        evidence=evidence,
        advice=advice,
        grant=grant,
        items=tuple(
            _say_transaction(
                row,
                f"asleep for {say_age(number(row, 'state_s'))}, open for {say_age(number(row, 'age_s'))}, "
                f"{say_number(count(row, 'modified'), 'row')} changed"
                + (f", {waits[text(row, 'trx')]} waiting for it" if text(row, "trx") in waits else ""),
            )
            for row in rows[:_MOST_ITEMS]
        ),
    )


def _say_transaction(row: Row, said: str) -> str:
    query = shorten(redact_mysql(text(row, "query")), _QUERY_WIDTH) if text(row, "query") else ""
    running = f"; runs: {query}" if query else ""
    account = _CLEAN.sub("", text(row, "account")) or "nobody (prepared or being recovered)"
    where = f" in {quote_name(text(row, 'db'))}" if text(row, "db") else ""
    return f"connection {count(row, 'id')} of {account}{where}: {said}{running}"


async def check_mysql_sequences(db: MySqlReadOnly, server: MySqlServer, bounds: HealthBounds) -> Check:
    """Look for AUTO_INCREMENT columns near the end of their type."""
    limits = await fetch_auto_limits(db, server)
    scope, values = server.scope("TABLE_SCHEMA")
    rows = await db.fetch(_NEXT_VALUES.format(mark=OWN_MARK, scope=scope), values)
    judged = []
    for row in rows:
        auto = limits.get((text(row, "s"), text(row, "t")))
        if auto is not None:
            judged.append((used_share(count(row, "next_value"), auto[2]), row, auto))
    judged.sort(key=lambda item: -item[0])
    highest = judged[0][0] if judged else 0.0
    status = bounds.sequence.grade(highest)
    hidden = await find_hidden_tables(db, server, await count_tables(db, server))
    if hidden and status == "ok":
        why, _, grant = hidden.partition("; ")
        return unknown("sequences", why, grant=grant)
    near = [item for item in judged if item[0] >= bounds.sequence.warn]
    evidence = "there are no AUTO_INCREMENT columns"
    if judged:
        evidence = (
            f"{say_number(len(judged), 'AUTO_INCREMENT column')}, the furthest at {percent(highest)} of its range"
        )
    if near:
        evidence += f": {say_some([quote_name(text(row, 't')) for _, row, _ in near], most=3)}"
    return Check(
        check="sequences",
        status=status,
        value=round(highest, 4),
        unit="share of the range used",
        bound=bounds.sequence.describe(percent),
        evidence=evidence,
        advice="make the column bigint (unsigned) before inserts fail; online where the engine can" if near else "",
        grant=hidden.partition("; ")[2] or None,
        items=tuple(
            f"{quote_name(text(row, 's'))}.{quote_name(text(row, 't'))}.{quote_name(column)} ({kind}) is at "
            f"{say_count(count(row, 'next_value'))} of {say_count(limit)} ({percent(share)})"
            for share, row, (column, kind, limit) in near[:_MOST_ITEMS]
        ),
    )


async def check_mysql_objects(db: MySqlReadOnly, server: MySqlServer, bounds: HealthBounds) -> Check:
    """Look for tables in engines that lose rows in a crash."""
    scope, values = server.scope("TABLE_SCHEMA")
    rows = await db.fetch(_UNSAFE_TABLES.format(mark=OWN_MARK, scope=scope, least=bounds.unlogged_bytes), values)
    return Check(
        check="objects",
        status="warn" if rows else "ok",
        value=float(len(rows)),
        unit="tables",
        bound="warn from 1",
        evidence=f"{say_number(len(rows), 'table')} in MyISAM or MEMORY" if rows else "no table in MyISAM or MEMORY",
        advice="ALTER TABLE ... ENGINE = InnoDB, unless losing their rows is meant" if rows else "",
        items=tuple(
            f"{quote_name(text(r, 's'))}.{quote_name(text(r, 't'))}: {text(r, 'engine')}, "
            f"{write_size(count(r, 'data_bytes'))}"
            for r in rows[:_MOST_ITEMS]
        ),
    )


async def check_mysql_replication(db: MySqlReadOnly, server: MySqlServer, bounds: HealthBounds) -> Check:
    """Look how far this server is behind its source, and how many replicas read from it."""
    try:
        row = await db.fetch_one(_REPLICA)
    except ToolFailed as failure:
        if failure.code != "insufficient_privilege":
            raise
        right = "SLAVE MONITOR" if db.flavor == "mariadb" else "REPLICATION CLIENT"
        grant = f"GRANT {right} ON *.* TO {server.account};"
        return unknown("replication", "the account may not see the state of replication", grant=grant)
    replicas = count(await db.fetch_one(_REPLICAS) or {}, "replicas")
    reading = f"; {say_number(replicas, 'replica')} reading from here" if replicas else ""
    return judge_replica(row, reading, bounds)


def judge_replica(row: Row | None, reading: str, bounds: HealthBounds) -> Check:
    """Judge a row of SHOW REPLICA STATUS; None for a server that is no replica.

    The columns have the old names (Slave, Master) on MariaDB and the new ones (Replica, Source) on MySQL from 8.0.22
    on; those are from documentation, never run: https://dev.mysql.com/doc/refman/8.4/en/show-replica-status.html
    """
    bound = f"time: {bounds.lag_s.describe(say_age)}; critical when it does not run"
    if row is None:
        return Check(
            check="replication",
            status="ok",
            value=None,
            unit="seconds behind",
            bound=bound,
            evidence=f"this server is no replica{reading}",
        )
    receives = text(row, "Replica_IO_Running") or text(row, "Slave_IO_Running")
    applies = text(row, "Replica_SQL_Running") or text(row, "Slave_SQL_Running")
    behind_s = maybe_number(row, "Seconds_Behind_Source")
    behind_s = maybe_number(row, "Seconds_Behind_Master") if behind_s is None else behind_s
    stopped = receives == "No" or applies != "Yes"
    if stopped:
        status: Status = "critical"
    elif behind_s is None:
        status = "warn"
    else:
        status = bounds.lag_s.grade(behind_s)
    late = "an unknown time" if behind_s is None else say_age(behind_s)
    errors = [int(number(row, name)) for name in ("Last_IO_Errno", "Last_SQL_Errno") if number(row, name)]
    failed = f", error {', '.join(map(str, errors))}" if errors else ""
    advice = ""
    if status != "ok":
        advice = "SHOW REPLICA STATUS has the error's text; mend it and START REPLICA, or look at load and network"
    return Check(
        check="replication",
        status=status,
        value=behind_s,
        unit="seconds behind",
        bound=bound,
        evidence=f"{late} behind; receiving: {receives or '-'}, applying: {applies or '-'}{failed}{reading}",
        advice=advice,
    )


async def check_mysql_history(db: MySqlReadOnly, server: MySqlServer, bounds: HealthBounds) -> Check:
    """Look how many old row versions wait for purge; MariaDB has it among its status counters, MySQL does not."""
    length = (await fetch_status(db, ["Innodb_history_list_length"])).get("Innodb_history_list_length")
    if length is None:
        length = number(await db.fetch_one(_HISTORY) or {}, "length")
    status = bounds.history.grade(length)
    return Check(
        check="history",
        status=status,
        value=length,
        unit="transactions in the history list",
        bound=bounds.history.describe(say_count),
        evidence=f"{say_count(length)} transactions wait for purge",
        advice="end old transactions (long_transactions); more innodb_purge_threads if there are none"
        if status != "ok"
        else "",
    )
