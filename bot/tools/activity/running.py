"""``running_queries``: what executes now, and who holds a transaction open and does nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from agent_core.context import Clock
from bot.tools.activity.answer import RunningQueries, RunningQuery
from bot.tools.activity.sessions import Session, fetch_role, fetch_sessions, fold_workers
from bot.tools.activity.wording import MOST_ROWS, fit_name, fit_queries, say_count
from bot.tools.envelope import WHOLE, Coverage
from bot.tools.slow_queries.connection import open_read_only
from bot.tools.slow_queries.failures import quote_name
from bot.tools.slow_queries.redact_sql import redact_sql
from bot.tools.targets import Target, Targets

TOOL = "running_queries"


async def read_running_queries(
    targets: Targets,
    clock: Clock,
    *,
    min_seconds: float = 0.0,
    include_idle_in_tx: bool = True,
    target: str | None = None,
) -> RunningQueries:
    """Read what runs at this moment, the longest first.

    Args:
        targets: the configured ones.
        clock: for ``took_ms``.
        min_seconds: least age of the statement; of the transaction where nothing is executed in it.
        include_idle_in_tx: also list sessions that are idle in a transaction.
        target: which one; None for the only one.

    Raises:
        ToolFailed: with a code of ``docs/tools.md``; nothing in it is secret.
    """
    began = clock.monotonic()
    where = targets.resolve(target)
    where.require("postgresql", "mysql", tool=TOOL)
    if where.engine == "mysql":
        from bot.tools.activity.mysql_running import read_mysql_running

        answer = await read_mysql_running(where, min_seconds=min_seconds, include_idle_in_tx=include_idle_in_tx)
    else:
        answer = await _read_postgres(where, min_seconds=min_seconds, include_idle_in_tx=include_idle_in_tx)
    return replace(answer, took_ms=round((clock.monotonic() - began) * 1000, 1))


async def _read_postgres(where: Target, *, min_seconds: float, include_idle_in_tx: bool) -> RunningQueries:
    async with open_read_only(where) as db:
        sessions = await fetch_sessions(db)
        hidden = sum(session.hidden for session in sessions)
        role = await fetch_role(db) if hidden else ""
        version = db.version
    blind = sum(session.state == "disabled" for session in sessions)
    reasons = []
    if hidden:
        reasons.append(
            f"what {say_count(hidden, 'session')} of other roles {'does' if hidden == 1 else 'do'} is hidden from role "
            f"{quote_name(role)}; GRANT pg_monitor TO {quote_name(role)}; shows it"
        )
    if blind:
        reasons.append(
            f"{say_count(blind, 'session')} cannot be looked into, because track_activities is off there; "
            "ALTER SYSTEM SET track_activities = on; SELECT pg_reload_conf();"
        )
    seen = [session for session in sessions if not session.hidden and session.state != "disabled"]
    found = select_running(fold_workers(seen), min_seconds=min_seconds, include_idle_in_tx=include_idle_in_tx)
    return await build_running(
        where, found, engine="postgresql", version=version, source="pg_stat_activity",
        reasons=reasons, hidden=hidden, redact=redact_sql,
    )  # fmt: skip


def select_running(
    sessions: Iterable[tuple[Session, int]], *, min_seconds: float, include_idle_in_tx: bool
) -> list[tuple[Session, int]]:
    """Keep the sessions that were asked for, with their numbers of workers; the longest first."""
    found = [
        (session, workers)
        for session, workers in sessions
        if (include_idle_in_tx or not session.is_idle_in_transaction) and _bound_age(session) >= min_seconds
    ]
    return sorted(found, key=lambda item: (-_bound_age(item[0]), item[0].pid))


async def build_running(
    where: Target, found: Sequence[tuple[Session, int]], *, engine: str, version: str, source: str,
    reasons: Sequence[str], hidden: int, redact: Callable[[str], str],
) -> RunningQueries:  # fmt: skip
    """Put sessions into the envelope: redacted, and as many as an answer has room for."""
    shown = found[:MOST_ROWS]
    queries, left_out = await asyncio.to_thread(
        fit_queries, [s.query for s, _ in shown], redact, rows_left_out=len(found) - len(shown)
    )
    idle = sum(session.is_idle_in_transaction for session, _ in found)
    return RunningQueries(
        target=where.name,
        engine=engine,
        engine_version=version,
        source=source,
        coverage=Coverage(complete=False, reasons=tuple(reasons), snapshots=0) if reasons else WHOLE,
        truncated=left_out,
        rows=tuple(_row(s, workers, query) for (s, workers), query in zip(shown, queries, strict=True)),
        active=len(found) - idle,
        idle_in_transaction=idle,
        hidden_sessions=hidden,
        took_ms=0.0,
    )


def _bound_age(session: Session) -> float:
    """What the bound is compared with: the statement's age, of an idle transaction its own."""
    return (session.xact_s if session.is_idle_in_transaction else session.query_s) or 0.0


def _age(session: Session) -> float:
    """The statement's age; of a session that is idle in a transaction, how long it has been idle."""
    return (session.idle_s if session.is_idle_in_transaction else session.query_s) or 0.0


def _row(session: Session, workers: int, query: str) -> RunningQuery:
    return RunningQuery(
        age_s=_age(session),
        state=session.state,
        pid=session.pid,
        user=fit_name(session.user),
        wait=session.wait,
        xact_age_s=session.xact_s,
        query=query,
        workers=workers,
        leader_pid=session.leader_pid if session.leader_pid != session.pid else None,
        db=fit_name(session.db),
        app=fit_name(session.app),
        kind=session.kind,
        backend_start=session.backend_start,
        query_id=session.query_id,
    )
