"""``blocking_tree`` on MySQL and MariaDB."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent_core.errors import ToolFailed
from bot.tools.activity.answer import BlockingTree
from bot.tools.activity.blocking import build_answer, describe_doing
from bot.tools.activity.knots import Knot, lay_out
from bot.tools.activity.locks import Lock
from bot.tools.activity.mysql_locks import Wait, fetch_metadata_waits, fetch_row_waits
from bot.tools.activity.mysql_sessions import by_pid, fetch_account, fetch_activity
from bot.tools.activity.sessions import Session
from bot.tools.activity.wording import say_count
from bot.tools.mysql.connection import open_mysql
from bot.tools.slow_logs.mysql_text import redact_mysql
from bot.tools.targets import Target

MDL_LINE = "UPDATE performance_schema.setup_instruments SET ENABLED = 'YES' WHERE NAME = 'wait/lock/metadata/sql/mdl';"
"""Switches on that the server tells who holds metadata locks, for locks taken from then on."""

_METADATA_WAIT_S = "for metadata locks wait_s is how long the statement has run, which is at least as long as it waits"
_METADATA_STATES = ("metadata", "user lock", "backup")


async def read_mysql_blocking(where: Target, *, min_wait_s: float) -> BlockingTree:
    """Read who waits for whose lock at this moment; see ``blocking.read_blocking_tree``."""
    async with open_mysql(where) as db:
        reasons: list[str] = []
        waits: list[Wait] = []
        try:
            waits += await fetch_row_waits(db)
        except ToolFailed as failure:
            if failure.code != "insufficient_privilege":
                raise
            account = await fetch_account(db)
            more = f" GRANT SELECT ON performance_schema.* TO {account};" if db.flavor == "mysql" else ""
            reasons.append(f"who waits for rows is hidden from this account; GRANT PROCESS ON *.* TO {account};{more}")
        metadata = await fetch_metadata_waits(db)
        waits += metadata or ()
        activity = await fetch_activity(db)
        account = await fetch_account(db)
        flavor, version = db.flavor, db.version
    sessions = by_pid(activity)
    if not activity.lacks:
        waits = drop_past_waits(waits, sessions)
    knots = build_mysql_knots(waits, sessions)
    reasons += _unexplained(sessions, knots, account, readable=metadata is not None)
    trees = await asyncio.to_thread(lay_out, knots, min_wait_s=min_wait_s, redact=redact_mysql)
    warnings = [_METADATA_WAIT_S] if any(wait.wanted.kind == "metadata" for wait in waits) else []
    source = "information_schema.INNODB_LOCK_WAITS" if flavor == "mariadb" else "performance_schema.data_lock_waits"
    return build_answer(
        where, trees, engine=flavor, version=version, source=f"{source}, performance_schema.metadata_locks",
        reasons=reasons, warnings=warnings, hidden=sum(knot.state == "hidden" for knot in knots.values()),
    )  # fmt: skip


def drop_past_waits(waits: Sequence[Wait], sessions: Mapping[int, Session]) -> list[Wait]:
    """Leave out waits that are over.

    InnoDB answers from a copy that is up to 0.1 s old, and for longer where somebody asks all the time
    (https://dev.mysql.com/doc/refman/8.4/en/innodb-information-schema-internal-data.html).
    """
    return [
        wait
        for wait in waits
        if wait.waiting in sessions
        and sessions[wait.waiting].state == "active"
        and (wait.blocking == 0 or wait.blocking in sessions)
    ]


def _unexplained(
    sessions: Mapping[int, Session], knots: Mapping[int, Knot], account: str, *, readable: bool
) -> list[str]:
    """Sessions say that they wait for a metadata lock, and the server does not say for whom."""
    lost = [
        session
        for session in sessions.values()
        if session.wait is not None
        and session.wait.startswith("Lock: ")
        and any(word in session.wait for word in _METADATA_STATES)
        and not (session.pid in knots and knots[session.pid].blockers)
    ]
    if not lost:
        return []
    line = MDL_LINE if readable else f"GRANT SELECT ON performance_schema.* TO {account};"
    pids = ", ".join(str(session.pid) for session in lost[:10])
    return [
        f"{say_count(len(lost), 'session')} ({pids}) {'waits' if len(lost) == 1 else 'wait'} for a metadata or user "
        f"lock, and the server does not tell for whom; {line}"
    ]


def build_mysql_knots(waits: Sequence[Wait], sessions: Mapping[int, Session]) -> dict[int, Knot]:
    """Turn waits into knots; transactions without a session, all of them number 0, get keys below it."""
    lost = sorted({wait.blocking_trx for wait in waits if wait.blocking == 0})
    keys = {trx: -n for n, trx in enumerate(lost, 1)}
    knots: dict[int, Knot] = {}
    for wait in waits:
        blocking = wait.blocking or keys[wait.blocking_trx]
        if blocking == wait.waiting:
            continue
        for key in (wait.waiting, blocking):
            if key not in knots:
                knots[key] = _knot(key, sessions.get(key), wait)
        waiter, blocker = knots[wait.waiting], knots[blocking]
        knots[wait.waiting] = replace(
            waiter, blockers=waiter.blockers | {blocking}, locks=_with(waiter.locks, wait.wanted)
        )
        knots[blocking] = replace(blocker, locks=_with(blocker.locks, wait.held))
    return {key: _with_wait(knot, sessions.get(key)) for key, knot in knots.items()}


def _with(locks: tuple[Lock, ...], lock: Lock) -> tuple[Lock, ...]:
    return locks if lock in locks else (*locks, lock)


def _with_wait(knot: Knot, session: Session | None) -> Knot:
    """A row lock's wait is known; for others the age of the statement has to do."""
    if not knot.blockers:
        return knot
    known = [lock.wait_s for lock in knot.locks if not lock.granted and lock.wait_s is not None]
    return replace(knot, wait_s=max(known) if known else None if session is None else session.query_s)


def _knot(key: int, session: Session | None, wait: Wait) -> Knot:
    if key < 0:
        return Knot(
            pid=0,
            state="prepared",
            name="a prepared XA transaction",
            doing="belongs to no session",
            xact_s=wait.blocking_s,
            note="prepared XA transaction: XA RECOVER lists it, only XA COMMIT or XA ROLLBACK ends it",
        )
    if session is None:
        return Knot(pid=key, state="hidden", doing="does what this account may not see, or has ended in the meantime")
    return Knot(
        pid=key,
        state=session.state,
        doing=describe_doing(session),
        query=session.query,
        xact_s=session.xact_s,
        user=session.user,
        db=session.db,
        app=session.app,
        query_id=session.query_id,
    )
