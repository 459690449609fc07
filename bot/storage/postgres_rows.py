"""Values to columns and back, for Postgres.

What the columns hold, for whoever writes SQL here:

* Instants are ``bigint`` microseconds of UTC, as in SQLite: ``build_micros`` and ``parse_micros``. Yes and no is
  ``boolean``.
* Text cannot hold U+0000; ``Tx`` writes U+FFFD for it, and for half a surrogate pair (``clean``), so text that is
  hashed is cleaned first. JSON is ``text`` and stays so: ``jsonb`` refuses ``\\u0000`` and lone surrogates, which a
  message may well hold as an escape, and would reorder keys. It is changed in Python.
* A literal ``%`` in SQL is written ``%%``. A parameter whose type nothing around it tells is cast (``%s::bigint``).
* A verb that changes anything of a thread locks the thread's row first (``postgres_claims.lock_thread``, or
  ``check_claim``, which does it, too), so no two verbs wait for each other in a circle. One that changes several
  threads locks them in the order of their keys, after that of its claim.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_core.context import JournalEntry, StepState
from bot.storage.base import (
    FeedbackRow,
    InboxItem,
    InboxState,
    OutboxItem,
    OutboxState,
    RunRow,
    StepRow,
    StoredMessage,
    SummaryRow,
    UsageRow,
)
from bot.storage.postgres_connection import Row
from bot.storage.sqlite_rows import LAST_CHARACTER, build_micros, parse_micros

__all__ = [
    "LAST_CHARACTER",
    "build_key_filter",
    "build_micros",
    "parse_entry",
    "parse_feedback",
    "parse_inbox",
    "parse_message",
    "parse_micros",
    "parse_outbox",
    "parse_run",
    "parse_step",
    "parse_summary",
    "parse_usage",
]


def build_key_filter(column: str, prefixes: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return a condition that holds where ``column`` is among ``prefixes`` as ``Store`` means them, and its values.

    There must be at least one prefix; an empty one holds for every row.
    """
    terms: list[str] = []
    values: list[str] = []
    for prefix in prefixes:
        if prefix and prefix[-1] not in ":/":
            terms.append(f"{column} = %s")
            values.append(prefix)
        else:
            terms.append(f"({column} >= %s AND {column} < %s)")
            values += [prefix, prefix + LAST_CHARACTER]
    return f"({' OR '.join(terms)})", tuple(values)


def parse_inbox(row: Row) -> InboxItem:
    """Read a row of ``inbox``."""
    return InboxItem(
        id=row["id"],
        event_key=row["event_key"],
        thread_key=row["thread_key"],
        seq=row["seq"],
        kind=row["kind"],
        payload=row["payload"],
        received_at=parse_micros(row["received_at"]),
        state=InboxState(row["state"]),
        run_id=row["run_id"],
        said_id=row["said_id"],
        signed=row["signed"],
    )


def parse_outbox(row: Row) -> OutboxItem:
    """Read a row of ``outbox``."""
    return OutboxItem(
        id=row["id"],
        key=row["key"],
        thread_key=row["thread_key"],
        run_id=row["run_id"],
        body=row["body"],
        created_at=parse_micros(row["created_at"]),
        state=OutboxState(row["state"]),
        attempts=row["attempts"],
        next_at=parse_micros(row["next_at"]),
        remote_id=row["remote_id"],
        reason=row["reason"],
    )


def parse_run(row: Row) -> RunRow:
    """Read a row of ``run``."""
    return RunRow(
        run_id=row["run_id"],
        thread_key=row["thread_key"],
        agent=row["agent"],
        state=row["state"],
        started_at=parse_micros(row["started_at"]),
        attempt=row["attempt"],
        ended_at=None if row["ended_at"] is None else parse_micros(row["ended_at"]),
        error=row["error"],
        record=row["record"],
    )


def parse_entry(row: Row) -> JournalEntry:
    """Read the journal's part of a row of ``step``."""
    return JournalEntry(
        key=row["key"],
        kind=row["kind"],
        name=row["name"],
        digest=row["digest"],
        state=StepState(row["state"]),
        result=row["result"],
        effect=row["effect"],
    )


def parse_step(row: Row) -> StepRow:
    """Read a row of ``step``."""
    return StepRow(
        run_id=row["run_id"],
        n=row["n"],
        entry=parse_entry(row),
        begun_at=parse_micros(row["begun_at"]),
        ended_at=None if row["ended_at"] is None else parse_micros(row["ended_at"]),
    )


def parse_message(row: Row) -> StoredMessage:
    """Read a row of ``message``."""
    return StoredMessage(
        seq=row["seq"],
        run_id=row["run_id"],
        role=row["role"],
        body=row["body"],
        tokens=row["tokens"],
        created_at=parse_micros(row["created_at"]),
    )


def parse_usage(row: Row) -> UsageRow:
    """Read a row of ``usage``."""
    return UsageRow(
        run_id=row["run_id"],
        thread_key=row["thread_key"],
        author=row["author"],
        provider=row["provider"],
        model=row["model"],
        requests=row["requests"],
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        cost_usd=row["cost_usd"],
        at=parse_micros(row["at"]),
        cached_input_tokens=row["cached_input_tokens"],
        cache_write_tokens=row["cache_write_tokens"],
    )


def parse_feedback(row: Row) -> FeedbackRow:
    """Read a row of ``feedback``."""
    return FeedbackRow(
        run_id=row["run_id"],
        thread_key=row["thread_key"],
        author=row["author"],
        value=row["value"],
        at=parse_micros(row["at"]),
    )


def parse_summary(row: Row) -> SummaryRow:
    """Read a row of ``summary``."""
    return SummaryRow(**{**row, "updated_at": parse_micros(row["updated_at"])})
