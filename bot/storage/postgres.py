"""The Store on Postgres, through psycopg: several processes, also on several machines, share one database.

Every verb is one function handed to the pool, which runs it whole in one transaction (see ``postgres_connection``). The
functions are in the ``postgres_`` modules, one for each kind of row; what the verbs mean is said in ``base.Store``, and
where that leaves room they do what ``sqlite`` does.

How long ``accept`` takes decides how soon a platform is acknowledged, so it is the one verb with an eye on the disk: on
for it whatever ``synchronous_commit`` is, and so for the few others whose loss nobody would notice in time. The rest is
at the server's default.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Literal

from agent_core.context import JournalEntry, StepState
from bot.storage import postgres_claims as claims
from bot.storage import postgres_runs as runs
from bot.storage.base import (
    Accepted,
    Claim,
    InboxItem,
    NewInboxItem,
    NewMessage,
    NewOutboxItem,
    OutboxItem,
    OutboxState,
    RunOutcome,
    RunRow,
    SessionRow,
    StepRow,
    StoreError,
)
from bot.storage.postgres_connection import Connections, Tx
from bot.storage.postgres_failures import EXTRA
from bot.storage.postgres_installations import PostgresInstallations
from bot.storage.postgres_jobs import PostgresJobs
from bot.storage.postgres_ledger import PostgresLedger
from bot.storage.postgres_memory import PostgresMemory
from bot.storage.postgres_migrate import migrate
from bot.storage.postgres_snapshots import PostgresSnapshots
from bot.storage.rows import build_micros


class PostgresStore(PostgresMemory, PostgresLedger, PostgresInstallations, PostgresSnapshots, PostgresJobs):
    """A ``Store`` in one Postgres database.

    Args:
        url: ``postgresql://...``, as libpq reads it; ``postgres://`` is the same.

    Raises:
        StoreError: psycopg is not installed, or libpq cannot read the address. It is not repeated: it may hold a
            password.
    """

    def __init__(self, url: str) -> None:
        try:
            import psycopg_pool  # noqa: F401 - is it there?
            from psycopg import ProgrammingError
            from psycopg.conninfo import conninfo_to_dict
        except ImportError:
            raise StoreError(EXTRA) from None
        try:
            conninfo_to_dict(url)
        except ProgrammingError:
            raise StoreError(
                "[storage] url: this is not an address that libpq can read; write"
                " postgresql://USER:PASSWORD@HOST:5432/DATABASE, and %40 for an @ in the password (%2F for a /)"
            ) from None
        self._url = url
        self._db = Connections(url)
        self._opened = False

    async def open(self) -> None:
        """Connect and bring the schema up to date; quietly does nothing when open.

        Raises:
            StoreError: the database cannot be used; the message says why and what to do.
        """
        if self._opened:
            return
        connection = await self._db.connect()
        try:
            await migrate(connection, self._url)
        finally:
            await connection.close()
        await self._db.open()
        self._opened = True

    async def close(self) -> None:
        """Finish what is being written and disconnect."""
        self._opened = False
        await self._db.close()

    async def ping(self) -> None:
        """Read one row; raises ``StoreError`` when that fails."""
        await self._db.read(_read_version)

    # inbox and claims

    async def accept(self, item: NewInboxItem, *, queue_limit: int, refusal: NewOutboxItem | None = None) -> Accepted:
        """Store what came in; on the server's disk when this returns."""
        work = partial(claims.accept, item=item, queue_limit=queue_limit, refusal=refusal)
        return await self._db.run(work, durable=True, lane=item.thread_key)

    async def erase_message(self, item: NewInboxItem, *, now: datetime) -> Literal["dropped", "under way", "erased"]:
        """Take a message back, wherever it is."""
        return await self._db.run(partial(runs.erase_message, item=item, now=now), durable=True, lane=item.thread_key)

    async def load_open(self, thread_key: str, *, after_seq: int = 0) -> tuple[InboxItem, ...]:
        """Return the open items after one of them."""
        return await self._db.read(partial(claims.load_open, thread_key=thread_key, after_seq=after_seq))

    async def mark_signed(self, claim: Claim, item_id: int) -> None:
        """Record that an item's message carries a sign."""
        await self._db.run(partial(claims.mark_signed, claim=claim, item_id=item_id))

    async def knows_thread(self, thread_key: str) -> bool:
        """Tell whether something of this thread was ever accepted."""
        return await self._db.read(partial(claims.knows_thread, thread_key=thread_key))

    async def claim_thread(self, owner: str, *, prefixes: Sequence[str], lease_s: float, now: datetime) -> Claim | None:
        """Claim the thread that has waited longest. Asking in vain writes nothing and waits for nobody.

        When everything that waits is locked, be it only by somebody who is just putting a message in, the look is
        repeated, then the first one is waited for.
        """
        for wait in (False, False, True, False):
            work = partial(
                claims.claim_thread, owner=owner, prefixes=tuple(prefixes), lease_s=lease_s, now=now, wait=wait
            )
            with suppress(claims.Busy):
                return await self._db.run(work)
        return None

    async def renew_claim(self, claim: Claim, *, lease_s: float, now: datetime) -> None:
        """Extend the lease."""
        await self._db.run(partial(claims.renew_claim, claim=claim, lease_s=lease_s, now=now))

    async def release_claim(self, claim: Claim) -> None:
        """Give the thread back."""
        await self._db.run(partial(claims.release_claim, claim=claim))

    async def list_owners(self) -> tuple[str, ...]:
        """Return the owners of all leases."""
        return await self._db.read(claims.list_owners)

    async def free_owner(self, owner: str) -> None:
        """End every lease of an owner."""
        await self._db.run(partial(claims.free_owner, owner=owner))

    async def next_wake(self, *, prefixes: Sequence[str], now: datetime) -> datetime | None:
        """Return when to look again."""
        return await self._db.read(partial(claims.find_next_wake, prefixes=tuple(prefixes), now=build_micros(now)))

    # runs and their journal

    async def begin_run(self, claim: Claim, run: RunRow, item_ids: Sequence[int]) -> None:
        """Create a run; ``StoreError`` when the thread has an unfinished one or an item is not open."""
        await self._db.run(partial(runs.begin_run, claim=claim, run=run, item_ids=tuple(item_ids)))

    async def begin_step(self, claim: Claim, run_id: str, entry: JournalEntry, now: datetime) -> JournalEntry | None:
        """Record a step's intent, or return what is known of it."""
        return await self._db.run(partial(runs.begin_step, claim=claim, run_id=run_id, entry=entry, now=now))

    async def finish_step(
        self, claim: Claim, run_id: str, key: str, state: StepState, result: str, now: datetime
    ) -> None:
        """Record how a step ended; ``StoreError`` when it never began or is already done differently."""
        await self._db.run(
            partial(runs.finish_step, claim=claim, run_id=run_id, key=key, state=state, result=result, now=now)
        )

    async def finish_run(self, claim: Claim, run_id: str, outcome: RunOutcome) -> None:
        """End the run; ``StoreError`` when it is already over."""
        await self._db.run(partial(runs.finish_run, claim=claim, run_id=run_id, outcome=outcome))

    async def load_run(self, run_id: str) -> tuple[RunRow, tuple[StepRow, ...]] | None:
        """Return a run and its steps; ``StoreError`` when more than one id starts like this."""
        return await self._db.read(partial(runs.load_run, prefix=run_id))

    async def list_runs(self, *, thread_key: str | None = None, limit: int = 20) -> tuple[RunRow, ...]:
        """Return the newest runs first."""
        return await self._db.read(partial(runs.list_runs, thread_key=thread_key, limit=limit))

    # what people see of a run while it works

    async def save_draft(self, claim: Claim, run_id: str, remote_id: str, now: datetime) -> None:
        """Record what became visible of a run's answer."""
        await self._db.run(partial(runs.save_draft, claim=claim, run_id=run_id, remote_id=remote_id, now=now))

    async def load_draft(self, run_id: str) -> str | None:
        """Return the platform's id of it."""
        return await self._db.read(partial(runs.load_draft, run_id=run_id))

    async def drop_draft(self, claim: Claim, run_id: str) -> None:
        """Record that nothing is visible any more."""
        await self._db.run(partial(runs.drop_draft, claim=claim, run_id=run_id))

    # history

    async def save_past(self, claim: Claim, run_id: str, message: NewMessage | None) -> None:
        """Put a thread's past into its history; ``StoreError`` when that is settled already."""
        await self._db.run(partial(runs.save_past, claim=claim, run_id=run_id, message=message))

    async def list_sessions(self, *, limit: int = 50, author: str = "") -> tuple[SessionRow, ...]:
        """Return threads, the most recently active first; ``tokens`` are those of the history."""
        return await self._db.read(partial(runs.list_sessions, limit=limit, author=author))

    # outbox

    async def add_outbox(self, item: NewOutboxItem) -> None:
        """Queue a post that belongs to no run."""
        await self._db.run(partial(claims.add_outbox, item=item), lane=item.thread_key)

    async def begin_send(self, claim: Claim, outbox_id: int, *, now: datetime) -> float:
        """Mark a post as sending; ``StoreError`` when it is already delivered or failed."""
        return await self._db.run(partial(claims.begin_send, claim=claim, outbox_id=outbox_id, now=now))

    async def finish_send(
        self, claim: Claim, outbox_id: int, state: OutboxState, *, remote_id: str | None, reason: str, next_at: datetime
    ) -> None:
        """Record what became of a post; ``StoreError`` when it is already delivered or failed."""
        await self._db.run(
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
        await self._db.run(partial(claims.split_outbox, claim=claim, outbox_id=outbox_id, parts=tuple(parts)))

    async def load_due(self, thread_key: str, *, now: datetime) -> tuple[OutboxItem, ...]:
        """Return the posts of a thread that are due."""
        return await self._db.read(partial(claims.load_due, thread_key=thread_key, now=build_micros(now)))

    async def load_outbox(self, thread_key: str) -> tuple[OutboxItem, ...]:
        """Return all posts of a thread, in order."""
        return await self._db.read(partial(claims.load_outbox, thread_key=thread_key))


async def _read_version(tx: Tx) -> None:
    await tx.all("SELECT max(version) FROM schema_version")
