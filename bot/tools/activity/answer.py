"""What the tools of this folder answer. Durations in seconds, instants ISO 8601 UTC, 64-bit ids as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.tools.envelope import Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningQuery:
    """One session that executes a statement, or holds a transaction open and does nothing.

    Args:
        age_s: how long the statement has run; for ``idle in transaction`` how long the session has been idle.
        state: the server's word: ``active``, ``idle in transaction``, ``idle in transaction (aborted)``.
        pid: the server's number of the session (MySQL: connection id).
        user: the role.
        wait: what the server says that it waits for, ``Lock: transactionid``; null while it works.
        xact_age_s: how long its transaction has been open; null outside one.
        query: what it executes, or executed last, without literals and comments.
        workers: parallel workers that work for it; they have no rows of their own.
        leader_pid: null, but for a worker whose leader may not be seen.
        db: the database that it is connected to.
        app: what the client calls itself.
        kind: ``client backend``, ``autovacuum worker`` and so on.
        backend_start: when the session began; with ``pid`` and ``query_id`` it names the session for ending it.
            Null on MySQL, which does not tell it.
        query_id: of the statement's shape (MariaDB: of this very execution); null where the server has none.
    """

    age_s: float | None
    state: str
    pid: int
    user: str
    wait: str | None
    xact_age_s: float | None
    query: str
    workers: int
    leader_pid: int | None
    db: str
    app: str
    kind: str
    backend_start: str | None
    query_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningQueries(Envelope):
    """The answer of ``running_queries``: the longest first.

    Args:
        active: sessions among ``rows`` and those left out that execute a statement.
        idle_in_transaction: sessions among them that hold a transaction open and do nothing.
        hidden_sessions: sessions of which the role may not see what they do.
    """

    rows: tuple[RunningQuery, ...]
    active: int
    idle_in_transaction: int
    hidden_sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedSession:
    """One session of a lock tree. Everybody in ``children`` waits for it.

    Args:
        role: ``root`` waits for nobody, ``waiter`` for its parent in the tree.
        pid: the server's number of the session; 0 for a prepared transaction, which has none.
        wait_s: how long it has waited; null for a root, and where the server does not know yet.
        held_lock: what it holds (or stands in front in the queue for) and its children want.
        wanted_lock: what it waits for.
        relation: the table that the wanted lock is on, for a root the table that its children want, if known.
        state: the server's word, ``idle in transaction`` and so on; ``prepared`` for a prepared transaction.
        query: what it executes, or executed last, without literals and comments.
        xact_age_s: how long its transaction has been open.
        waiters: sessions that cannot go on before it does, directly or not, because of what it holds.
        note: what else a person should know of it.
        also_blocked_by: up to five further sessions that it waits for; it stands in the tree only once.
        user, db, app, backend_start, query_id: as in ``RunningQuery``.
    """

    role: Literal["root", "waiter"]
    pid: int
    wait_s: float | None
    held_lock: str | None
    wanted_lock: str | None
    relation: str | None
    state: str
    query: str
    xact_age_s: float | None
    waiters: int
    note: str | None
    also_blocked_by: tuple[int, ...]
    user: str
    db: str
    app: str
    backend_start: str | None
    query_id: str | None
    children: tuple[LockedSession, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingTree(Envelope):
    """The answer of ``blocking_tree``: one row a root, the one that holds up most sessions first.

    Args:
        rows: the roots, with those who wait for them nested in ``children``.
        summary: who is at the root and what it does, in a sentence.
        waiting_sessions: how many sessions of the trees wait.
        hidden_sessions: sessions of the trees of which the role may not see what they do.
    """

    rows: tuple[LockedSession, ...]
    summary: str
    waiting_sessions: int
    hidden_sessions: int


CheckStatus = Literal["ok", "warning", "missing", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Args:
        name: what: ``pg_stat_statements``, ``track_io_timing``, ``other sessions``.
        status: ``missing`` takes something away from the tools, ``warning`` is worth a thought.
        value: what was found.
        message: what follows from it.
    """

    name: str
    status: CheckStatus
    value: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight(Envelope):
    """The answer of ``preflight``.

    Args:
        rows: what was looked at, the missing first.
        account: whom Hermod is logged in as.
        server_role: ``primary``, ``standby``, or ``unknown`` where the account may not see that.
        pooler: a pooler or proxy stands between Hermod and the server; null: cannot be told.
        statements_since: since when the server's statement statistics count; null: not known.
        to_run: the exact lines that mend what is missing, each with the reason as an SQL comment.
    """

    rows: tuple[Check, ...]
    account: str
    server_role: Literal["primary", "standby", "unknown"]
    pooler: bool | None
    statements_since: str | None
    to_run: tuple[str, ...]
