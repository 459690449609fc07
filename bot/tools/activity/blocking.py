"""``blocking_tree``: who holds up whom, the root first, and in a sentence what the root does."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from agent_core.context import Clock
from bot.tools.activity.answer import BlockingTree
from bot.tools.activity.knots import Knot, Trees, lay_out
from bot.tools.activity.locks import (
    MOST_WAITING,
    PREPARED,
    Lock,
    Participant,
    PreparedTransaction,
    fetch_participants,
    fetch_prepared,
)
from bot.tools.activity.sessions import Session, fetch_role
from bot.tools.activity.wording import say_count, say_instant, say_seconds
from bot.tools.envelope import WHOLE, Coverage
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly, open_read_only
from bot.tools.slow_queries.failures import quote_name
from bot.tools.slow_queries.redact_sql import redact_sql
from bot.tools.targets import Target, Targets

TOOL = "blocking_tree"

_REPLAY = f"""select {OWN_MARK} wait_event_type || ': ' || wait_event as wait from pg_stat_activity
where backend_type = 'startup' and (wait_event_type = 'Lock' or wait_event like 'RecoveryConflict%') and
  pg_is_in_recovery()"""

_NO_WAITSTART = (
    "before version 14 the server does not tell since when a lock is waited for: wait_s is how long the statement has "
    "run, which is at least as long"
)


async def read_blocking_tree(
    targets: Targets, clock: Clock, *, target: str | None = None, min_wait_s: float = 0.0
) -> BlockingTree:
    """Read who waits for whose lock at this moment.

    Args:
        targets: the configured ones.
        clock: for ``took_ms``.
        target: which one; None for the only one.
        min_wait_s: leave out those who have waited for less, and behind whom nobody has waited longer.

    Raises:
        ToolFailed: with a code of ``docs/tools.md``; nothing in it is secret.
    """
    began = clock.monotonic()
    where = targets.resolve(target)
    where.require("postgresql", "mysql", tool=TOOL)
    if where.engine == "mysql":
        from bot.tools.activity.mysql_blocking import read_mysql_blocking

        answer = await read_mysql_blocking(where, min_wait_s=min_wait_s)
    else:
        answer = await _read_postgres(where, min_wait_s=min_wait_s)
    return replace(answer, took_ms=round((clock.monotonic() - began) * 1000, 1))


async def _read_postgres(where: Target, *, min_wait_s: float) -> BlockingTree:
    async with open_read_only(where) as db:
        found = await fetch_participants(db)
        blockers = {pid for participant in found.values() for pid in participant.blockers}
        prepared = await fetch_prepared(db) if PREPARED in blockers else ()
        warnings = await _replay_warnings(db)
        hidden = sum(p.session is not None and p.session.hidden for p in found.values())
        role = quote_name(await fetch_role(db)) if hidden else ""
        version, knows_start = db.version, db.version_num >= 140_000
    knots = build_knots(found, prepared)
    trees = await asyncio.to_thread(lay_out, knots, min_wait_s=min_wait_s, redact=redact_sql)
    reasons = []
    if hidden:
        reasons.append(
            f"what {say_count(hidden, 'session')} of the tree {'does' if hidden == 1 else 'do'} is hidden from role "
            f"{role}; GRANT pg_monitor TO {role}; shows it"
        )
    if sum(bool(p.blockers) for p in found.values()) >= MOST_WAITING:
        reasons.append(f"only the {MOST_WAITING} sessions that have waited longest were looked at")
    if trees.rows and not knows_start:
        warnings.append(_NO_WAITSTART)
    return build_answer(
        where, trees, engine="postgresql", version=version, source="pg_blocking_pids, pg_locks, pg_stat_activity",
        reasons=reasons, warnings=warnings, hidden=hidden,
    )  # fmt: skip


def build_answer(
    where: Target, trees: Trees, *, engine: str, version: str, source: str,
    reasons: list[str], warnings: list[str], hidden: int,
) -> BlockingTree:  # fmt: skip
    """Put the trees into the envelope; what limits the coverage is a warning too."""
    return BlockingTree(
        target=where.name,
        engine=engine,
        engine_version=version,
        source=source,
        coverage=Coverage(complete=False, reasons=tuple(reasons), snapshots=0) if reasons else WHOLE,
        truncated=trees.left_out,
        rows=trees.rows,
        summary=trees.summary,
        waiting_sessions=trees.waiting,
        hidden_sessions=hidden,
        warnings=tuple(warnings),
        took_ms=0.0,
    )


async def _replay_warnings(db: ReadOnly) -> list[str]:
    """On a standby the replay can wait for a query; it is no session, so it stands in no tree."""
    row = await db.fetch_one(_REPLAY)
    if row is None:
        return []
    return [
        f"this standby's replay of the primary's changes waits for a query here ({row['wait']}); "
        "the server cancels the query after max_standby_streaming_delay"
    ]


def build_knots(found: dict[int, Participant], prepared: tuple[PreparedTransaction, ...]) -> dict[int, Knot]:
    """Turn what the server said into knots of a tree; prepared transactions, all number 0, get keys below that."""
    holders = {-n: transaction for n, transaction in enumerate(prepared, 1)}
    knots: dict[int, Knot] = {}
    for pid, participant in found.items():
        blockers = set(participant.blockers)
        if PREPARED in blockers:
            wanted = {lock.target for lock in participant.locks if not lock.granted}
            real = {
                key for key, holder in holders.items() if any(k.granted and k.target in wanted for k in holder.locks)
            }
            blockers = (blockers - {PREPARED}) | (real or {PREPARED})
        knots[pid] = _session_knot(participant, frozenset(blockers - {pid}))
    needed = {blocker for knot in knots.values() for blocker in knot.blockers}
    for key in needed - set(knots):
        knots[key] = _prepared_knot(holders[key]) if key in holders else _lost_knot(key)
    return knots


def _session_knot(participant: Participant, blockers: frozenset[int]) -> Knot:
    session, waits = participant.session, bool(blockers)
    if session is None:
        return replace(_lost_knot(participant.pid), locks=participant.locks, blockers=blockers)
    known = [lock.wait_s for lock in participant.locks if not lock.granted and lock.wait_s is not None]
    return Knot(
        pid=participant.pid,
        blockers=blockers,
        wait_s=(max(known) if known else session.query_s) if waits else None,
        locks=participant.locks,
        row_of=_row_table(participant.locks),
        state=_state_of(session),
        doing=describe_doing(session),
        query=session.query,
        xact_s=session.xact_s,
        note=_note_on(session),
        user=session.user,
        db=session.db,
        app=session.app,
        backend_start=session.backend_start,
        query_id=session.query_id,
    )


def _row_table(locks: tuple[Lock, ...]) -> str | None:
    """The table of the row that is waited for: who waits for another's transaction has the row's own lock already."""
    return next((lock.relation for lock in locks if lock.granted and lock.kind == "tuple"), None)


def _state_of(session: Session) -> str:
    if session.hidden:
        return "hidden"
    return session.state or session.kind or "unknown"


def describe_doing(session: Session) -> str:
    """What a session does, as the rest of a sentence that begins with its number."""
    if session.hidden:
        return "does what this role may not see"
    if session.is_idle_in_transaction:
        since = f"since {say_instant(session.idle_since)} ({say_seconds(session.idle_s)})"
        return f"is {session.state} {since if session.idle_since else f'for {say_seconds(session.idle_s)}'}"
    if session.kind == "startup":
        return "replays what the primary has changed"
    if session.state == "active":
        return f"has executed its statement for {say_seconds(session.query_s)}"
    return f"is {session.state or session.kind}"


def _note_on(session: Session) -> str | None:
    match session.kind:
        case "autovacuum worker":
            return "autovacuum: it gives way to who waits for it, unless it prevents a wraparound"
        case "startup":
            return "the standby's replay of the primary's changes"
        case _:
            return None


def _prepared_knot(transaction: PreparedTransaction) -> Knot:
    gid = "'" + transaction.gid.replace("'", "''") + "'"
    return Knot(
        pid=PREPARED,
        locks=transaction.locks,
        state="prepared",
        doing=f"has been prepared since {say_instant(transaction.prepared)} and belongs to no session",
        name=f"the prepared transaction {gid}",
        xact_s=transaction.age_s,
        note=f"prepared transaction {gid}: only COMMIT PREPARED or ROLLBACK PREPARED ends it, in database "
        f"{quote_name(transaction.db)}",
        user=transaction.owner,
        db=transaction.db,
    )


def _lost_knot(pid: int) -> Knot:
    if pid == PREPARED:
        return Knot(
            pid=pid,
            state="prepared",
            doing="belongs to no session; pg_prepared_xacts lists it",
            name="a prepared transaction",
        )
    return Knot(pid=pid, state="ended", doing="has ended in the meantime")
