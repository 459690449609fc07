"""Rows to values and back, the same for every database.

Instants are stored as integer microseconds of UTC: exact, ordered, and small.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

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
from bot.storage.installations import InstallationRow
from bot.storage.jobs import JobRow, JobRunRow, JobState, Proposal

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# The headline that was refused, where there is one: it is the only post of its thread. Looked up for each row: joined,
# Postgres reads all posts there are.
_REFUSED = "FROM outbox o WHERE o.thread_key = r.thread_key AND o.run_id = i.run_id AND o.state = 'failed'"
JOB_RUNS = (
    "SELECT r.schedule_id, r.run_key, r.fired_at, r.thread_key, i.run_id, coalesce(n.error, '') AS error,"
    f" coalesce(nullif(n.reason, ''), (SELECT o.reason {_REFUSED} ORDER BY o.id LIMIT 1), '') AS reason,"
    " CASE WHEN r.inbox_id IS NULL THEN 'skipped' WHEN i.state = 'open' THEN 'waiting' WHEN i.state = 'taken' THEN"
    " 'running' WHEN n.error = 'cancelled' THEN 'stopped'"
    f" WHEN n.error <> '' OR (SELECT min(o.id) {_REFUSED}) IS NOT NULL THEN 'failed' ELSE 'done' END AS state"
    " FROM schedule_run r LEFT JOIN inbox i ON i.id = r.inbox_id LEFT JOIN run n ON n.run_id = i.run_id"
)
"""Selects what became of times of jobs, for ``parse_job_run``; conditions on ``r`` may follow."""

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


class Row(Protocol):
    """A row of a result, as both drivers give it: its values by the names of their columns."""

    def __getitem__(self, name: str, /) -> Any:
        """Return a column's value."""
        ...

    def keys(self) -> Iterable[str]:
        """Return the names of the columns."""
        ...


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
        signed=bool(row["signed"]),
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
        reason=row["reason"],
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
    values = {name: row[name] for name in row.keys()}  # noqa: SIM118 - SQLite's rows are no mappings
    return SummaryRow(**{**values, "updated_at": parse_micros(row["updated_at"])})


def parse_job(row: Row) -> JobRow:
    """Read a row of ``schedule``."""
    return JobRow(
        job_id=row["id"],
        name=row["name"],
        origin=row["origin"],
        place=row["place"],
        owner=row["owner"],
        owner_name=row["owner_name"],
        spec=row["spec"],
        state=JobState(row["state"]),
        reason=row["reason"],
        next_at=None if row["next_at"] is None else parse_micros(row["next_at"]),
        thread_key=row["thread_key"],
        created_at=parse_micros(row["created_at"]),
        updated_at=parse_micros(row["updated_at"]),
        revision=row["revision"],
    )


def parse_job_run(row: Row) -> JobRunRow:
    """Read what became of a time of a job."""
    return JobRunRow(
        job_id=row["schedule_id"],
        run_key=row["run_key"],
        fired_at=parse_micros(row["fired_at"]),
        state=row["state"],
        thread_key=row["thread_key"],
        run_id=row["run_id"],
        error=row["error"],
        reason=row["reason"],
    )


def parse_proposal(row: Row) -> Proposal:
    """Read a row of ``proposal``."""
    return Proposal(
        thread_key=row["thread_key"],
        author=row["author"],
        body=row["body"],
        created_at=parse_micros(row["created_at"]),
    )


def parse_installation(row: Row) -> InstallationRow:
    """Read a row of ``installation``."""
    return InstallationRow(
        platform=row["platform"],
        workspace=row["workspace"],
        name=row["name"],
        enterprise=row["enterprise"],
        org_wide=bool(row["org_wide"]),
        app=row["app"],
        bot_user=row["bot_user"],
        bot=row["bot"],
        scopes=frozenset(scope for scope in row["scopes"].split(",") if scope),
        installer=row["installer"],
        token=row["token"],
        installed_at=parse_micros(row["installed_at"]),
        revision=row["revision"],
        removed_at=None if row["removed_at"] is None else parse_micros(row["removed_at"]),
        removed_because=row["removed_because"],
    )
