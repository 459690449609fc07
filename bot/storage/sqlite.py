"""The Store on one SQLite file, through aiosqlite.

Every verb is one function handed to the writer (``BEGIN IMMEDIATE``, see ``sqlite_connection``) or to the reader. The
functions are in the ``sqlite_`` modules, one for each kind of row; what the verbs mean is said in ``base.Store``. Where
that leaves room:

* A finished run is refused with ``StoreError`` (not ``Fenced``) by every verb that would change it.
* A post whose ``next_at`` lies ahead is not due, ``sending`` or not; ``begin_send`` leaves ``next_at`` alone,
  so a post that a crash left in ``sending`` is due at once.
* ``release_claim`` and ``free_owner`` end a claim for good: later verbs with it raise ``Fenced``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal, cast

from agent_core.context import JournalEntry, StepState
from bot.storage import sqlite_claims as claims
from bot.storage import sqlite_ledger as ledger
from bot.storage import sqlite_memory as memory
from bot.storage import sqlite_runs as runs
from bot.storage.base import (
    Accepted,
    AuditRow,
    Claim,
    Counts,
    FeedbackRow,
    InboxItem,
    Kept,
    NewInboxItem,
    NewMessage,
    NewOutboxItem,
    OutboxItem,
    OutboxState,
    RunOutcome,
    RunRow,
    SessionRow,
    StepRow,
    StoredMessage,
    SummaryRow,
    UsageRow,
)
from bot.storage.rows import build_micros
from bot.storage.sqlite_connection import Reader, Tx, Writer
from bot.storage.sqlite_installations import SqliteInstallations
from bot.storage.sqlite_jobs import SqliteJobs
from bot.storage.sqlite_snapshots import SqliteSnapshots

_AUDIT_PAGE = 1000
_BEFORE_ALL = -(2**63)


class SqliteStore(SqliteInstallations, SqliteSnapshots, SqliteJobs):
    """A ``Store`` in one SQLite file; several processes may use the file at once.

    Args:
        path: the file; created (readable by its owner only) when missing, its folder must exist.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path).expanduser().absolute()
        self._writer = Writer(self._path)
        self._reader = Reader(self._path)
        self._opened = False

    async def open(self) -> None:
        """Connect and bring the schema up to date; quietly does nothing when open.

        Raises:
            StoreError: the file cannot be used; the message says why and what to do.
        """
        if self._opened:
            return
        await self._writer.open()
        try:
            await self._reader.open()
            self._opened = True
        finally:
            if not self._opened:
                await self._writer.close()

    async def close(self) -> None:
        """Finish what is being written and disconnect."""
        self._opened = False
        await self._reader.close()
        await self._writer.close()

    async def ping(self) -> None:
        """Read one row; raises ``StoreError`` when that fails."""
        await self._reader.run(_read_version)

    # inbox and claims

    async def accept(self, item: NewInboxItem, *, queue_limit: int, refusal: NewOutboxItem | None = None) -> Accepted:
        """Store what came in; flushed to the disk when this returns, concurrent calls in one flush."""
        work = partial(claims.accept, item=item, queue_limit=queue_limit, refusal=refusal)
        return await self._writer.run(work, durable=True)

    async def erase_message(self, item: NewInboxItem, *, now: datetime) -> Literal["dropped", "under way", "erased"]:
        """Take a message back, wherever it is."""
        return await self._writer.run(partial(runs.erase_message, item=item, now=now), durable=True)

    async def load_open(self, thread_key: str, *, after_seq: int = 0) -> tuple[InboxItem, ...]:
        """Return the open items after one of them."""
        return await self._reader.run(partial(claims.load_open, thread_key=thread_key, after_seq=after_seq))

    async def mark_signed(self, claim: Claim, item_id: int) -> None:
        """Record that an item's message carries a sign."""
        await self._writer.run(partial(claims.mark_signed, claim=claim, item_id=item_id))

    async def knows_thread(self, thread_key: str) -> bool:
        """Tell whether something of this thread was ever accepted."""
        return await self._reader.run(partial(claims.knows_thread, thread_key=thread_key))

    async def claim_thread(self, owner: str, *, prefixes: Sequence[str], lease_s: float, now: datetime) -> Claim | None:
        """Claim the thread that has waited longest. Asking in vain takes no lock, so polling is cheap."""
        look = partial(claims.find_waiting, prefixes=tuple(prefixes), now=build_micros(now))
        if await self._reader.run(look) is None:
            return None
        work = partial(claims.claim_thread, owner=owner, prefixes=tuple(prefixes), lease_s=lease_s, now=now)
        return await self._writer.run(work)

    async def renew_claim(self, claim: Claim, *, lease_s: float, now: datetime) -> None:
        """Extend the lease."""
        await self._writer.run(partial(claims.renew_claim, claim=claim, lease_s=lease_s, now=now))

    async def release_claim(self, claim: Claim) -> None:
        """Give the thread back."""
        await self._writer.run(partial(claims.release_claim, claim=claim))

    async def list_owners(self) -> tuple[str, ...]:
        """Return the owners of all leases."""
        return await self._reader.run(claims.list_owners)

    async def free_owner(self, owner: str) -> None:
        """End every lease of an owner."""
        await self._writer.run(partial(claims.free_owner, owner=owner))

    async def next_wake(self, *, prefixes: Sequence[str], now: datetime) -> datetime | None:
        """Return when to look again."""
        return await self._reader.run(partial(claims.find_next_wake, prefixes=tuple(prefixes), now=build_micros(now)))

    # runs and their journal

    async def begin_run(self, claim: Claim, run: RunRow, item_ids: Sequence[int]) -> None:
        """Create a run; ``StoreError`` when the thread has an unfinished one or an item is not open."""
        await self._writer.run(partial(runs.begin_run, claim=claim, run=run, item_ids=tuple(item_ids)))

    async def begin_step(self, claim: Claim, run_id: str, entry: JournalEntry, now: datetime) -> JournalEntry | None:
        """Record a step's intent, or return what is known of it."""
        return await self._writer.run(partial(runs.begin_step, claim=claim, run_id=run_id, entry=entry, now=now))

    async def finish_step(
        self, claim: Claim, run_id: str, key: str, state: StepState, result: str, now: datetime
    ) -> None:
        """Record how a step ended; ``StoreError`` when it never began or is already done differently."""
        await self._writer.run(
            partial(runs.finish_step, claim=claim, run_id=run_id, key=key, state=state, result=result, now=now)
        )

    async def finish_run(self, claim: Claim, run_id: str, outcome: RunOutcome) -> None:
        """End the run; ``StoreError`` when it is already over."""
        await self._writer.run(partial(runs.finish_run, claim=claim, run_id=run_id, outcome=outcome))

    async def load_run(self, run_id: str) -> tuple[RunRow, tuple[StepRow, ...]] | None:
        """Return a run and its steps; ``StoreError`` when more than one id starts like this."""
        return await self._reader.run(partial(runs.load_run, prefix=run_id))

    async def list_runs(self, *, thread_key: str | None = None, limit: int = 20) -> tuple[RunRow, ...]:
        """Return the newest runs first."""
        return await self._reader.run(partial(runs.list_runs, thread_key=thread_key, limit=limit))

    # what people see of a run while it works

    async def save_draft(self, claim: Claim, run_id: str, remote_id: str, now: datetime) -> None:
        """Record what became visible of a run's answer."""
        await self._writer.run(partial(runs.save_draft, claim=claim, run_id=run_id, remote_id=remote_id, now=now))

    async def load_draft(self, run_id: str) -> str | None:
        """Return the platform's id of it."""
        return await self._reader.run(partial(runs.load_draft, run_id=run_id))

    async def drop_draft(self, claim: Claim, run_id: str) -> None:
        """Record that nothing is visible any more."""
        await self._writer.run(partial(runs.drop_draft, claim=claim, run_id=run_id))

    # history

    async def save_past(self, claim: Claim, run_id: str, message: NewMessage | None) -> None:
        """Put a thread's past into its history; ``StoreError`` when that is settled already."""
        await self._writer.run(partial(runs.save_past, claim=claim, run_id=run_id, message=message))

    async def load_messages(
        self, thread_key: str, *, limit: int | None = None, after_seq: int = 0
    ) -> tuple[StoredMessage, ...]:
        """Return the thread's history in order."""
        work = partial(memory.load_messages, thread_key=thread_key, limit=limit, after_seq=after_seq)
        return await self._reader.run(work)

    async def load_summary(self, thread_key: str) -> SummaryRow | None:
        """Return the thread's summary."""
        return await self._reader.run(partial(memory.load_summary, thread_key=thread_key))

    async def save_summary(self, summary: SummaryRow) -> None:
        """Replace a thread's summary."""
        await self._writer.run(partial(memory.save_summary, summary=summary))

    async def save_output(self, thread_key: str, output_id: str, text: str, now: datetime) -> None:
        """Keep a whole tool output."""
        await self._writer.run(
            partial(memory.save_output, thread_key=thread_key, output_id=output_id, text=text, now=now)
        )

    async def load_output(self, thread_key: str, output_id: str) -> str | None:
        """Return a kept output."""
        return await self._reader.run(partial(memory.load_output, thread_key=thread_key, output_id=output_id))

    async def count_kept(self, thread_key: str) -> Kept:
        """Count what is kept of a thread."""
        return await self._reader.run(partial(memory.count_kept, thread_key=thread_key))

    async def forget_thread(self, thread_key: str) -> Kept:
        """Drop what was said and found in a thread."""
        kept = await self._writer.run(partial(memory.forget_thread, thread_key=thread_key))
        await self._writer.empty_log()
        return kept

    async def list_sessions(self, *, limit: int = 50, author: str = "") -> tuple[SessionRow, ...]:
        """Return threads, the most recently active first; ``tokens`` are those of the history."""
        return await self._reader.run(partial(runs.list_sessions, limit=limit, author=author))

    # outbox

    async def add_outbox(self, item: NewOutboxItem) -> None:
        """Queue a post that belongs to no run."""
        await self._writer.run(partial(claims.add_outbox, item=item))

    async def begin_send(self, claim: Claim, outbox_id: int, *, now: datetime) -> float:
        """Mark a post as sending; ``StoreError`` when it is already delivered or failed."""
        return await self._writer.run(partial(claims.begin_send, claim=claim, outbox_id=outbox_id, now=now))

    async def finish_send(
        self, claim: Claim, outbox_id: int, state: OutboxState, *, remote_id: str | None, reason: str, next_at: datetime
    ) -> None:
        """Record what became of a post; ``StoreError`` when it is already delivered or failed."""
        await self._writer.run(
            partial(
                claims.finish_send,
                claim=claim,
                outbox_id=outbox_id,
                state=state,
                remote_id=remote_id,
                reason=reason,
                next_at=next_at,
            )
        )

    async def split_outbox(self, claim: Claim, outbox_id: int, parts: Sequence[NewOutboxItem]) -> None:
        """Post something in parts."""
        await self._writer.run(partial(claims.split_outbox, claim=claim, outbox_id=outbox_id, parts=tuple(parts)))

    async def load_due(self, thread_key: str, *, now: datetime) -> tuple[OutboxItem, ...]:
        """Return the posts of a thread that are due."""
        return await self._reader.run(partial(claims.load_due, thread_key=thread_key, now=build_micros(now)))

    async def load_outbox(self, thread_key: str) -> tuple[OutboxItem, ...]:
        """Return all posts of a thread, in order."""
        return await self._reader.run(partial(claims.load_outbox, thread_key=thread_key))

    # usage, audit, gauges

    async def load_usage(self, *, since: datetime, author: str = "") -> tuple[UsageRow, ...]:
        """Return usage rows since an instant."""
        return await self._reader.run(partial(ledger.load_usage, since=since, author=author))

    async def save_feedback(self, row: FeedbackRow) -> None:
        """Record what somebody thought of an answer."""
        await self._writer.run(partial(ledger.save_feedback, row=row))

    async def load_feedback(self, *, since: datetime, limit: int = 1000) -> tuple[FeedbackRow, ...]:
        """Return what people thought since an instant."""
        return await self._reader.run(partial(ledger.load_feedback, since=since, limit=limit))

    async def add_audit(
        self, *, at: datetime, actor: str, action: str, thread_key: str, run_id: str, detail: str
    ) -> AuditRow:
        """Append to the audit chain."""
        work = partial(
            ledger.add_audit, at=at, actor=actor, action=action, thread_key=thread_key, run_id=run_id, detail=detail
        )
        return await self._writer.run(work)

    async def verify_audit(self) -> tuple[int, int | None]:
        """Check the chain page by page, so that a long one keeps no other reader waiting."""
        lines = 0
        misfit: int | None = None
        last: dict[str, object] | None = None
        while page := await self._load_audit_page(last):
            if misfit is None:
                misfit = ledger.find_misfit(page, last)
            last = page[-1]
            lines += len(page)
        return lines, misfit

    async def _load_audit_page(self, last: dict[str, object] | None) -> list[dict[str, object]]:
        after_seq = _BEFORE_ALL if last is None else cast(int, last["seq"])
        return await self._reader.run(partial(ledger.load_audit, after_seq=after_seq, limit=_AUDIT_PAGE))

    async def count_rows(self) -> Counts:
        """Return the gauges."""
        return await self._reader.run(ledger.count_rows)


def _read_version(tx: Tx) -> None:
    tx.all("SELECT max(version) FROM schema_version")
