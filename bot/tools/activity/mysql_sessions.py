"""Sessions of a MySQL or MariaDB server.

MariaDB: information_schema.PROCESSLIST, which tells milliseconds and the id of each execution
(https://mariadb.com/kb/en/information-schema-processlist-table/). MySQL: performance_schema.threads, which does not
stop the server to be read (https://dev.mysql.com/doc/refman/8.4/en/performance-schema-threads-table.html; from
documentation, never run on MySQL). Open transactions: information_schema.INNODB_TRX, for which PROCESS is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from agent_core.errors import ToolFailed
from bot.tools.activity.sessions import Session
from bot.tools.mysql.connection import OWN_MARK, MySqlReadOnly, Row

OWN_PROGRAM = "hermod"
"""``program_name`` of our own connections (``bot.tools.mysql.driver.CONNECT_ATTRIBUTE``, which needs the driver)."""

_TEXT_CHARS = 8_000

# InnoDB writes its times in the system's time zone, whatever the session's is.
NOW = "CONVERT_TZ(NOW(6), @@session.time_zone, 'SYSTEM')"

SESSIONS_MARIADB = f"""SELECT {OWN_MARK} ID AS pid, USER AS username, DB AS db, COMMAND AS command, STATE AS state,
  LEFT(INFO_BINARY, {_TEXT_CHARS}) AS query, TIME_MS / 1000 AS since_s, QUERY_ID AS query_id
FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID()"""

SESSIONS_MYSQL = f"""SELECT {OWN_MARK} PROCESSLIST_ID AS pid, PROCESSLIST_USER AS username, PROCESSLIST_DB AS db,
  PROCESSLIST_COMMAND AS command, PROCESSLIST_STATE AS state, LEFT(PROCESSLIST_INFO, {_TEXT_CHARS}) AS query,
  PROCESSLIST_TIME AS since_s, NULL AS query_id
FROM performance_schema.threads WHERE PROCESSLIST_ID IS NOT NULL AND PROCESSLIST_ID <> CONNECTION_ID()"""

# The same view for an account without rights on performance_schema; it still shows the account's own sessions.
_OLD_MYSQL = f"""SELECT {OWN_MARK} ID AS pid, USER AS username, DB AS db, COMMAND AS command, STATE AS state,
  LEFT(INFO, {_TEXT_CHARS}) AS query, TIME AS since_s, NULL AS query_id
FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID()"""

_TRANSACTIONS = f"""SELECT {OWN_MARK} trx_mysql_thread_id AS pid, trx_state AS state, trx_is_read_only AS read_only,
  TIMESTAMPDIFF(MICROSECOND, trx_started, {NOW}) / 1000000 AS age_s FROM information_schema.INNODB_TRX"""

# What a session executed last is only kept here, and so is the digest, MySQL's name of a statement's shape.
_STATEMENTS = f"""SELECT {OWN_MARK} t.PROCESSLIST_ID AS pid, LEFT(s.SQL_TEXT, {_TEXT_CHARS}) AS query,
  s.DIGEST AS digest
FROM performance_schema.events_statements_current s JOIN performance_schema.threads t ON t.THREAD_ID = s.THREAD_ID
WHERE t.PROCESSLIST_ID IS NOT NULL AND s.NESTING_EVENT_ID IS NULL"""

_PROGRAMS = f"""SELECT {OWN_MARK} PROCESSLIST_ID AS pid, ATTR_VALUE AS app
FROM performance_schema.session_connect_attrs WHERE ATTR_NAME = 'program_name'"""

_CONNECTED = "SHOW GLOBAL STATUS LIKE 'Threads_connected'"

_BACKGROUND = frozenset(
    {"Daemon", "Connect", "Binlog Dump", "Binlog Dump GTID", "Slave_IO", "Slave_SQL", "Slave_worker"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Everybody who is connected, without ourselves.

    Args:
        sessions: as for Postgres, with its words for the states.
        hidden: sessions that the account may not see at all.
        lacks: what the account lacks, with the GRANT.
    """

    sessions: tuple[Session, ...]
    hidden: int
    lacks: tuple[str, ...]


async def fetch_activity(db: MySqlReadOnly) -> Activity:
    """Read the sessions, their transactions and what they execute or executed last."""
    account = await fetch_account(db)
    rows = await _fetch_processes(db)
    transactions = await _try(db, _TRANSACTIONS)
    statements = await _try(db, _STATEMENTS)
    programs = await _try(db, _PROGRAMS)
    open_now = {whole_number(row["pid"]): row for row in transactions or ()}
    last = {whole_number(row["pid"]): row for row in statements or ()}
    apps = {whole_number(row["pid"]): text_of(row["app"]) for row in programs or ()}
    sessions = []
    for row in rows:
        pid = whole_number(row["pid"])
        session = _read(row, open_now.get(pid), last.get(pid), apps.get(pid, ""), db.flavor == "mysql")
        if not _is_own(session, open_now.get(pid), account):
            sessions.append(session)
    lacks, hidden = [], 0
    if transactions is None:
        connected = await db.fetch_one(_CONNECTED)
        total = int(text_of(connected["Value"])) if connected is not None else 0
        hidden = max(0, total - 1 - sum(row["command"] not in _BACKGROUND for row in rows))
        lacks.append(
            "open transactions, and the sessions of other accounts, are hidden from this one; "
            f"GRANT PROCESS ON *.* TO {account}; shows them"
        )
    return Activity(sessions=tuple(sessions), hidden=hidden, lacks=tuple(lacks))


async def fetch_account(db: MySqlReadOnly) -> str:
    """The account that we are, as it is written in a GRANT: ``'reader'@'%'``."""
    row = await db.fetch_one(f"SELECT {OWN_MARK} CURRENT_USER() AS account")
    user, _, host = text_of(row["account"] if row is not None else "").rpartition("@")
    return "@".join("'" + part.replace("\\", "\\\\").replace("'", "''") + "'" for part in (user, host))


async def _fetch_processes(db: MySqlReadOnly) -> list[Row]:
    if db.flavor == "mariadb":
        return await db.fetch(SESSIONS_MARIADB)
    rows = await _try(db, SESSIONS_MYSQL)
    return rows if rows else await db.fetch(_OLD_MYSQL)  # empty: performance_schema is switched off


async def _try(db: MySqlReadOnly, query: str) -> list[Row] | None:
    """Read what the account may not be allowed to read; None if so."""
    try:
        return await db.fetch(query)
    except ToolFailed as failure:
        if failure.code != "insufficient_privilege":
            raise
        return None


def _read(row: Row, transaction: Row | None, last: Row | None, app: str, has_digests: bool) -> Session:
    state, idle = _state_of(row, transaction), row["command"] == "Sleep"
    since_s = number_of_seconds(row["since_s"])
    query = text_of(row["query"])
    if idle and last is not None:
        query = text_of(last["query"])
    own_id = row["query_id"]
    if own_id is None and has_digests and last is not None:
        own_id = last["digest"]
    return Session(
        pid=whole_number(row["pid"]),
        leader_pid=None,
        kind="client connection",
        db=text_of(row["db"]),
        user=text_of(row["username"]),
        app=app,
        state=state,
        wait=_wait_of(text_of(row["state"]), transaction),
        query=query,
        query_id=None if own_id is None else text_of(own_id),
        query_s=None if idle else since_s,
        xact_s=None if transaction is None else number_of_seconds(transaction["age_s"]),
        idle_s=since_s if idle else None,
        idle_since=None,
        backend_start=None,
        hidden=False,
    )


def _state_of(row: Row, transaction: Row | None) -> str:
    if row["command"] in _BACKGROUND:
        return "background"
    if row["command"] != "Sleep":
        return "active"
    return "idle" if transaction is None else "idle in transaction"


def _wait_of(state: str, transaction: Row | None) -> str | None:
    """What a session waits for (https://dev.mysql.com/doc/refman/8.4/en/general-thread-states.html)."""
    if transaction is not None and transaction["state"] == "LOCK WAIT":
        return "Lock: row"
    if state == "User lock":
        return "Lock: user lock"
    if state == "User sleep":
        return "Timeout: sleep"
    if state.startswith("Waiting for ") and state.endswith(" lock"):
        return f"Lock: {state.removeprefix('Waiting for ').removesuffix(' lock')}"
    return state if state.startswith("Waiting") else None


def _is_own(session: Session, transaction: Row | None, account: str) -> bool:
    """One of Hermod's: of our account, and marked, or reading as only we do."""
    ours = account.startswith("'" + session.user.replace("'", "''") + "'@")
    reads = transaction is not None and bool(transaction["read_only"]) and session.state == "idle in transaction"
    return ours and (session.app == OWN_PROGRAM or OWN_MARK in session.query or (reads and not session.app))


def text_of(value: object) -> str:
    """A text of the server's, whatever its encoding; empty for NULL."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return "" if value is None else str(value)


def whole_number(value: object) -> int:
    """A whole number of the server's; NULL is 0.

    Raises:
        TypeError: it sent something else.
    """
    if value is None:
        return 0
    if isinstance(value, int | Decimal):
        return int(value)
    raise TypeError(f"the server sent {type(value).__name__} where a whole number belongs")


def number_of_seconds(value: object) -> float | None:
    """Seconds, never below zero; None for NULL."""
    if value is None:
        return None
    if isinstance(value, int | float | Decimal):
        return round(max(0.0, float(value)), 3)
    raise TypeError(f"the server sent {type(value).__name__} where a number belongs")


def by_pid(activity: Activity) -> Mapping[int, Session]:
    """The sessions by their numbers."""
    return {session.pid: session for session in activity.sessions}
