"""Values to columns and back. Instants are stored as integer microseconds of UTC: exact, ordered, and small."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

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

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
LAST_CHARACTER = "\U0010ffff"
"""Sorts after every other: ``prefix + LAST_CHARACTER`` bounds what starts with ``prefix``."""


def build_micros(instant: datetime) -> int:
    """Return the microseconds since 1970 of an aware instant.

    Raises:
        ValueError: ``instant`` has no zone.
    """
    if instant.tzinfo is None:
        raise ValueError(f"an instant needs a zone: {instant!r}")
    return (instant - _EPOCH) // _MICROSECOND


def parse_micros(micros: int) -> datetime:
    """Return the aware UTC instant."""
    return _EPOCH + timedelta(microseconds=micros)


def build_key_filter(column: str, prefixes: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return a condition that holds where ``column`` is among ``prefixes`` as ``Store`` means them, and its values.

    There must be at least one prefix; an empty one holds for every row. The unary plus keeps SQLite from
    answering it with the column's own index, which would cost sorting.
    """
    terms: list[str] = []
    values: list[str] = []
    for prefix in prefixes:
        if prefix and prefix[-1] not in ":/":
            terms.append(f"+{column} = ?")
            values.append(prefix)
        else:
            terms.append(f"(+{column} >= ? AND +{column} < ?)")
            values += [prefix, prefix + LAST_CHARACTER]
    return f"({' OR '.join(terms)})", tuple(values)


def parse_inbox(row: sqlite3.Row) -> InboxItem:
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
        signed=bool(row["signed"]),
    )


def parse_outbox(row: sqlite3.Row) -> OutboxItem:
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


def parse_run(row: sqlite3.Row) -> RunRow:
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


def parse_entry(row: sqlite3.Row) -> JournalEntry:
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


def parse_step(row: sqlite3.Row) -> StepRow:
    """Read a row of ``step``."""
    return StepRow(
        run_id=row["run_id"],
        n=row["n"],
        entry=parse_entry(row),
        begun_at=parse_micros(row["begun_at"]),
        ended_at=None if row["ended_at"] is None else parse_micros(row["ended_at"]),
    )


def parse_message(row: sqlite3.Row) -> StoredMessage:
    """Read a row of ``message``."""
    return StoredMessage(
        seq=row["seq"],
        run_id=row["run_id"],
        role=row["role"],
        body=row["body"],
        tokens=row["tokens"],
        created_at=parse_micros(row["created_at"]),
    )


def parse_usage(row: sqlite3.Row) -> UsageRow:
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


def parse_feedback(row: sqlite3.Row) -> FeedbackRow:
    """Read a row of ``feedback``."""
    return FeedbackRow(
        run_id=row["run_id"],
        thread_key=row["thread_key"],
        author=row["author"],
        value=row["value"],
        at=parse_micros(row["at"]),
    )


def parse_summary(row: sqlite3.Row) -> SummaryRow:
    """Read a row of ``summary``."""
    values = {name: row[name] for name in row.keys()}  # noqa: SIM118 - a Row is not a mapping
    return SummaryRow(**{**values, "updated_at": parse_micros(row["updated_at"])})
