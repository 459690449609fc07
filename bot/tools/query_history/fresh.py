"""The newest reading, with which a question about the past ends: one of now or, where that fails, a stored one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.storage.base import StoreError
from bot.storage.snapshots import HistoryStore, Statement
from bot.tools.query_history.recorders import RECORDERS
from bot.tools.slow_queries.counters import Counters, read_snapshot
from bot.tools.slow_queries.failures import quote_name
from bot.tools.slow_queries.history import iso_utc
from bot.tools.targets import Target

SQL_CHARS = 1_500
"""Of each statement; get_slow_queries and explain_query show it whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest reading of a target, and of what server.

    Args:
        database: the one that the target is connected to, by name.
        reasons: what of the database's statements no reading shows.
        warnings: why the reading is not of now.
    """

    counters: Counters
    engine: str
    version: str
    database: str
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


async def take_newest(target: Target, store: HistoryStore, clock: Clock) -> Newest:
    """Take a reading now; when the database cannot be reached, take the newest that is stored.

    Raises:
        ToolFailed: no reading can be had, or the storage cannot be used (``no_history``).
    """
    try:
        read = await RECORDERS[target.engine](target, store, clock)
    except ToolFailed as failure:
        stored = await load_newest(store, target.name, clock)
        if stored is None:
            raise
        said = f"{failure.message}, so the answer ends with the newest stored reading, of {iso_utc(stored.taken_at)}"
        return Newest(
            counters=stored,
            engine=target.engine,
            version="not known",
            database=target.database or target.user,
            reasons=_tell_hidden(target, stored),
            warnings=(said,),
        )
    except StoreError as error:
        raise explain_store(error) from error
    return Newest(
        counters=read.counters,
        engine=read.engine,
        version=read.version,
        database=read.database,
        reasons=_tell_hidden(target, read.counters),
    )


async def load_newest(store: HistoryStore, target: str, clock: Clock) -> Counters | None:
    """Load the newest stored reading; None when there is none that can be read."""
    try:
        snapshot = await store.find_snapshot(target, at=clock.now(), side="before")
    except StoreError as error:
        raise explain_store(error) from error
    return None if snapshot is None else read_snapshot(snapshot)


def _tell_hidden(target: Target, counters: Counters) -> tuple[str, ...]:
    if not counters.hidden:
        return ()
    role = quote_name(target.user) if target.user else "the role"
    return (f"{counters.hidden} statements of other roles are hidden from {role}; GRANT pg_monitor TO {role};",)


def tell_restart(oldest: Counters | None, newest: Counters) -> tuple[str, ...]:
    """Say that the server was restarted between two readings, where that left the counters as they were."""
    if oldest is None or newest.server_started_at <= oldest.server_started_at or newest.reset_at != oldest.reset_at:
        return ()
    return (
        f"the server was restarted at {iso_utc(newest.to_our_clock(newest.server_started_at))}; its counters were kept",
    )


def explain_store(error: StoreError) -> ToolFailed:
    """Say that the past is not known because the storage fails."""
    return ToolFailed(
        f"the stored readings cannot be used: {error}",
        code="no_history",
        fix="a person has to look at the storage; get_slow_queries answers without it",
    )


def choose_statements(statements: Sequence[Statement], database: str) -> tuple[list[Statement], int]:
    """Leave out Hermod's own statements and other databases'; return also how many those of other databases are.

    Args:
        statements: of one shape, or all.
        database: what the target is connected to; empty where it names none (MySQL), which means all.
    """
    ours = [one for one in statements if is_in(one, database)]
    return [one for one in ours if not one.own], len(statements) - len(ours)


def is_in(statement: Statement, database: str) -> bool:
    """True for a statement of the target's database."""
    return not database or statement.db == database


def cut_sql(sql: str) -> str:
    """Cut a statement's end off where it is very long."""
    return sql if len(sql) <= SQL_CHARS else f"{sql[:SQL_CHARS]} … ({len(sql):,} characters)"
