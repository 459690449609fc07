"""Sessions of a Postgres server, from pg_stat_activity.

The view is the server's own, so its columns follow from the server's version: ``leader_pid`` came with 13, ``query_id``
with 14 (https://www.postgresql.org/docs/current/monitoring-stats.html#MONITORING-PG-STAT-ACTIVITY-VIEW).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.tools.slow_queries.connection import OWN_APPLICATION, OWN_MARK, ReadOnly, Row

HIDDEN = "<insufficient privilege>"
"""What stands in place of the statement where the role may not look."""

# Bytes, not characters: a session of a database with another encoding has texts that are no UTF-8.
_TEXT_BYTES = 16_000
_LEADER_SINCE, _QUERY_ID_SINCE = 130_000, 140_000

# Nothing but a person's or a program's work: no launchers, writers, walsenders.
_WORKING = "('client backend', 'parallel worker', 'autovacuum worker', 'background worker')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One row of pg_stat_activity; what the role may not see is None or empty.

    Args:
        query: as the server has it: with literals, perhaps cut off.
        query_s, xact_s, idle_s: since the beginning of the statement, of the transaction, of the present state.
        idle_since: when the present state began, ISO 8601.
        hidden: the role may not see what it does.
    """

    pid: int
    leader_pid: int | None
    kind: str
    db: str
    user: str
    app: str
    state: str
    wait: str | None
    query: str
    query_id: str | None
    query_s: float | None
    xact_s: float | None
    idle_s: float | None
    idle_since: str | None
    backend_start: str | None
    hidden: bool

    @property
    def is_idle_in_transaction(self) -> bool:
        """It holds a transaction open and does nothing."""
        return self.state.startswith("idle in transaction")


def columns(version_num: int, alias: str = "a") -> str:
    """The select list that ``read_session`` reads, for pg_stat_activity under ``alias``."""
    leader = f"{alias}.leader_pid" if version_num >= _LEADER_SINCE else "null::int"
    query_id = f"{alias}.query_id::text" if version_num >= _QUERY_ID_SINCE else "null::text"
    return f"""{alias}.pid, {leader} as leader_pid, {alias}.backend_type as kind,
  textsend({alias}.datname::text) as db, textsend({alias}.usename::text) as username,
  textsend({alias}.application_name) as app, {alias}.state, {alias}.wait_event_type, {alias}.wait_event,
  substring(textsend({alias}.query) from 1 for {_TEXT_BYTES}) as query, {query_id} as query_id,
  {_seconds(alias, "query_start")} as query_s, {_seconds(alias, "xact_start")} as xact_s,
  {_seconds(alias, "state_change")} as idle_s, {_iso(f"{alias}.state_change")} as idle_since,
  {_iso(f"{alias}.backend_start")} as backend_start,
  {alias}.state is null and {alias}.query = '{HIDDEN}' as hidden"""


def _seconds(alias: str, column: str) -> str:
    return f"extract(epoch from clock_timestamp() - {alias}.{column})::float8"


def _iso(expression: str) -> str:
    return f"""to_char({expression} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


def read_session(row: Row) -> Session:
    """Turn a row with ``columns`` into a session."""
    wait_type, wait_event = row["wait_event_type"], row["wait_event"]
    client_waits = wait_type in ("Client", "Activity")  # it is the server that waits for somebody, not the session
    return Session(
        pid=whole(row["pid"]),
        leader_pid=None if row["leader_pid"] is None else whole(row["leader_pid"]),
        kind=str(row["kind"] or ""),
        db=_text(row["db"]),
        user=_text(row["username"]),
        app=_text(row["app"]),
        state=str(row["state"] or ""),
        wait=None if wait_type is None or client_waits else f"{wait_type}: {wait_event}",
        query=_text(row["query"]),
        query_id=None if row["query_id"] is None else str(row["query_id"]),
        query_s=seconds(row["query_s"]),
        xact_s=seconds(row["xact_s"]),
        idle_s=seconds(row["idle_s"]),
        idle_since=None if row["idle_since"] is None else str(row["idle_since"]),
        backend_start=None if row["backend_start"] is None else str(row["backend_start"]),
        hidden=bool(row["hidden"]),
    )


async def fetch_sessions(db: ReadOnly) -> tuple[Session, ...]:
    """Read every session that works or holds a transaction open, parallel workers and hidden ones too, not our own."""
    rows = await db.fetch(
        f"select {OWN_MARK} {columns(db.version_num)} from pg_stat_activity a "
        f"where a.pid <> pg_backend_pid() and {_not_own('a')} "
        f"and (a.backend_type in {_WORKING} and a.state <> 'idle' "
        f"  or a.state is null and a.query = '{HIDDEN}' and a.datid is not null and a.usesysid is not null)"
    )
    return tuple(read_session(row) for row in rows)


async def fetch_session(db: ReadOnly, pid: int) -> Session | None:
    """Read one session, whatever it does; None when there is none with this number."""
    row = await db.fetch_one(
        f"select {OWN_MARK} {columns(db.version_num)} from pg_stat_activity a where a.pid = %s", (pid,)
    )
    return None if row is None else read_session(row)


async def fetch_role(db: ReadOnly) -> str:
    """The role that we are on the server."""
    row = await db.fetch_one(f"select {OWN_MARK} current_user::text as role")
    return "" if row is None else str(row["role"])


def _not_own(alias: str) -> str:
    marked = f"position(textsend('{OWN_MARK}') in textsend({alias}.query)) > 0"
    own = f"{alias}.application_name = '{OWN_APPLICATION}' or {marked}"
    # A session of ours without a right to see it, or without a user, is not ours.
    return f"({alias}.usename = current_user and ({own})) is not true"


def fold_workers(sessions: Sequence[Session]) -> list[tuple[Session, int]]:
    """Put parallel workers under their leaders: each leader once, with the number of its workers.

    A worker whose leader is not among ``sessions`` stands for itself.
    """
    pids = {session.pid for session in sessions}
    workers: dict[int, int] = {}
    for session in sessions:
        if session.leader_pid is not None and session.leader_pid != session.pid:
            workers[session.leader_pid] = workers.get(session.leader_pid, 0) + 1
    return [
        (session, workers.get(session.pid, 0))
        for session in sessions
        if session.leader_pid in (None, session.pid) or session.leader_pid not in pids
    ]


def whole(value: object) -> int:
    """A whole number of the server's.

    Raises:
        TypeError: it sent something else.
    """
    if not isinstance(value, int):
        raise TypeError(f"the server sent {type(value).__name__} where a whole number belongs")
    return value


def seconds(value: object) -> float | None:
    """Seconds since something; never below zero, because clocks of processes differ by microseconds."""
    if value is None:
        return None
    if not isinstance(value, (int, float)):
        raise TypeError(f"the server sent {type(value).__name__} where a number belongs")
    return round(max(0.0, float(value)), 3)


def _text(value: object) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else ""
