"""Jobs, their times, proposals, and what follows a report's headline, on Postgres.

The verbs, for ``PostgresStore``, and their functions inside a transaction. Who decides about the times of a job locks
its row first and then the threads of what is carried out; nobody who has a thread's row asks for a job's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Literal

from bot.storage.base import Claim, OutboxState, StoreError
from bot.storage.jobs import FiringOutcome, JobRow, JobRunRow, NewFiring, Opening, Proposal
from bot.storage.postgres_claims import LOCKED, add_inbox, add_outbox, ensure_thread, finish_send
from bot.storage.postgres_connection import Connections, Tx
from bot.storage.postgres_memory import append_messages, lock_threads, save_output
from bot.storage.rows import JOB_RUNS, build_micros, parse_job, parse_job_run, parse_proposal


class PostgresJobs:
    """The verbs of ``bot.storage.jobs.JobStore``; what they mean is said there."""

    _db: Connections

    async def save_job(self, job: JobRow, *, expected: int | None) -> bool:
        """Insert or replace a job."""
        return await self._db.run(partial(save_job, job=job, expected=expected), durable=True)

    async def load_job(self, name: str) -> JobRow | None:
        """Return the job of that name."""
        return await self._db.read(partial(load_job, name=name))

    async def list_jobs(self, *, place: str = "") -> tuple[JobRow, ...]:
        """Return jobs by name."""
        return await self._db.read(partial(list_jobs, place=place))

    async def delete_job(self, job_id: str) -> bool:
        """Delete a job."""
        return await self._db.run(partial(delete_job, job_id=job_id), durable=True)

    async def list_due_jobs(self, *, now: datetime, limit: int = 100) -> tuple[JobRow, ...]:
        """Return the jobs that are due."""
        return await self._db.read(partial(list_due_jobs, now=now, limit=limit))

    async def fire_job(
        self,
        job: JobRow,
        firings: Sequence[NewFiring],
        *,
        next_at: datetime | None,
        now: datetime,
        overlap: Literal["skip", "queue"],
    ) -> tuple[FiringOutcome, ...] | None:
        """Decide about times of a job; flushed to the disk when this returns."""
        work = partial(fire_job, job=job, firings=tuple(firings), next_at=next_at, now=now, overlap=overlap)
        return await self._db.run(work, durable=True)

    async def list_job_runs(self, job_id: str, *, limit: int = 20) -> tuple[JobRunRow, ...]:
        """Return what became of a job's times."""
        return await self._db.read(partial(list_job_runs, job_id=job_id, limit=limit))

    async def list_last_runs(self) -> tuple[JobRunRow, ...]:
        """Return what became of the last time of every job."""
        return await self._db.read(list_last_runs)

    async def save_proposal(self, proposal: Proposal) -> None:
        """Keep a proposal."""
        await self._db.run(partial(save_proposal, proposal=proposal))

    async def take_proposal(self, thread_key: str, author: str, *, after: datetime) -> Proposal | None:
        """Remove and return a proposal."""
        return await self._db.run(partial(take_proposal, thread_key=thread_key, author=author, after=after))

    async def list_proposals(self, thread_key: str, *, after: datetime) -> tuple[Proposal, ...]:
        """Return what waits in a thread."""
        return await self._db.read(partial(list_proposals, thread_key=thread_key, after=after))

    async def load_sequel(self, run_id: str) -> str | None:
        """Return what is to follow the first post of a run."""
        return await self._db.read(partial(load_sequel, run_id=run_id))

    async def load_origin(self, thread_key: str) -> str | None:
        """Return where a thread was opened from."""
        return await self._db.read(partial(load_origin, thread_key=thread_key))

    async def open_thread(
        self, claim: Claim, outbox_id: int, run_id: str, opening: Opening, *, remote_id: str, now: datetime
    ) -> None:
        """Record a post as delivered, and begin its thread."""
        await self._db.run(
            partial(
                open_thread,
                claim=claim,
                outbox_id=outbox_id,
                run_id=run_id,
                opening=opening,
                remote_id=remote_id,
                now=now,
            )
        )


# -- jobs ------------------------------------------------------------------------------------------


async def save_job(tx: Tx, job: JobRow, expected: int | None) -> bool:
    """Insert a job, or replace it where it has the revision ``expected``; False when that cannot be."""
    values = (
        job.name.lower(),
        job.origin,
        job.place,
        job.owner,
        job.owner_name,
        job.spec,
        job.state.value,
        job.reason,
        _build_optional(job.next_at),
        job.thread_key,
        build_micros(job.created_at),
        build_micros(job.updated_at),
    )
    if expected is None:
        added = await tx.do(
            "INSERT INTO schedule (name, origin, place, owner, owner_name, spec, state, reason, next_at, thread_key,"
            " created_at, updated_at, id, revision)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 1) ON CONFLICT DO NOTHING",
            *values,
            job.job_id,
        )
        return added > 0
    if await tx.one("SELECT 1 FROM schedule WHERE name = %s AND id <> %s", values[0], job.job_id) is not None:
        return False
    replaced = await tx.do(
        "UPDATE schedule SET name = %s, origin = %s, place = %s, owner = %s, owner_name = %s, spec = %s, state = %s,"
        " reason = %s, next_at = %s, thread_key = %s, created_at = %s, updated_at = %s, revision = revision + 1"
        " WHERE id = %s AND revision = %s",
        *values,
        job.job_id,
        expected,
    )
    return replaced > 0


async def load_job(tx: Tx, name: str) -> JobRow | None:
    """Return the job of that name, however it is capitalised."""
    row = await tx.one("SELECT * FROM schedule WHERE name = %s", name.lower())
    return None if row is None else parse_job(row)


async def list_jobs(tx: Tx, place: str) -> tuple[JobRow, ...]:
    """Return all jobs by name, or those of one channel."""
    if place:
        rows = await tx.all("SELECT * FROM schedule WHERE place = %s ORDER BY name", place)
    else:
        rows = await tx.all("SELECT * FROM schedule ORDER BY name")
    return tuple(map(parse_job, rows))


async def delete_job(tx: Tx, job_id: str) -> bool:
    """Delete a job and what is known of its times."""
    if await tx.one("SELECT 1 FROM schedule WHERE id = %s FOR UPDATE", job_id) is None:
        return False
    await tx.do("DELETE FROM schedule_run WHERE schedule_id = %s", job_id)
    return await tx.do("DELETE FROM schedule WHERE id = %s", job_id) > 0


async def list_due_jobs(tx: Tx, now: datetime, limit: int) -> tuple[JobRow, ...]:
    """Return active jobs that are due, the longest due first."""
    rows = await tx.all(
        "SELECT * FROM schedule WHERE state = 'active' AND next_at <= %s ORDER BY next_at, id LIMIT %s",
        build_micros(now),
        max(limit, 0),
    )
    return tuple(map(parse_job, rows))


async def fire_job(
    tx: Tx,
    job: JobRow,
    firings: Sequence[NewFiring],
    next_at: datetime | None,
    now: datetime,
    overlap: Literal["skip", "queue"],
) -> tuple[FiringOutcome, ...] | None:
    """Decide about times of a job, and move it on; None when it is not the one that was looked at any more."""
    # Whoever comes second waits for the row here, and then finds another next_at in it.
    moved = await tx.do(
        "UPDATE schedule SET next_at = %s::bigint"
        " WHERE id = %s AND revision = %s AND next_at IS NOT DISTINCT FROM %s::bigint",
        _build_optional(next_at),
        job.job_id,
        job.revision,
        _build_optional(job.next_at),
    )
    if not moved:
        return None
    if len(firings) > 1:
        await lock_threads(tx, *(firing.item.thread_key for firing in firings))
    return tuple([await _fire(tx, job.job_id, firing, build_micros(now), overlap) for firing in firings])


async def _fire(tx: Tx, job_id: str, firing: NewFiring, now: int, overlap: Literal["skip", "queue"]) -> FiringOutcome:
    item = firing.item
    (look,) = await tx.all(
        f"WITH {LOCKED} SELECT EXISTS (SELECT FROM locked) AS locked,"
        " EXISTS (SELECT FROM schedule_run WHERE schedule_id = %s AND run_key = %s) AS known,"
        " EXISTS (SELECT FROM inbox WHERE job_id = %s AND job_id <> '' AND state IN ('open', 'taken')) AS under_way,"
        " EXISTS (SELECT FROM inbox WHERE event_key = %s) AS stored",
        item.thread_key,
        job_id,
        firing.run_key,
        job_id,
        item.event_key,
    )
    if look["known"]:
        return "duplicate"
    thread_key, added = "", None
    if overlap != "skip" or not look["under_way"]:
        added = None if look["stored"] else await add_inbox(tx, item, locked=look["locked"], job_id=job_id)
        if added is None:
            return "duplicate"
        thread_key = item.thread_key
    await tx.do(
        "INSERT INTO schedule_run (schedule_id, run_key, fired_at, thread_key, inbox_id) VALUES (%s, %s, %s, %s, %s)",
        job_id,
        firing.run_key,
        now,
        thread_key,
        None if added is None else added["id"],
    )
    return "skipped" if added is None else "fired"


async def list_job_runs(tx: Tx, job_id: str, limit: int) -> tuple[JobRunRow, ...]:
    """Return what became of a job's times, the newest decision first."""
    rows = await tx.all(f"{JOB_RUNS} WHERE r.schedule_id = %s ORDER BY r.id DESC LIMIT %s", job_id, max(limit, 0))
    return tuple(map(parse_job_run, rows))


async def list_last_runs(tx: Tx) -> tuple[JobRunRow, ...]:
    """Return what became of the last time of every job."""
    newest = "(SELECT max(l.id) FROM schedule_run l WHERE l.schedule_id = s.id)"
    rows = await tx.all(f"{JOB_RUNS} JOIN schedule s ON s.id = r.schedule_id AND r.id = {newest} ORDER BY s.name")
    return tuple(map(parse_job_run, rows))


def _build_optional(instant: datetime | None) -> int | None:
    return None if instant is None else build_micros(instant)


# -- proposals -------------------------------------------------------------------------------------


async def save_proposal(tx: Tx, proposal: Proposal) -> None:
    """Keep a proposal in place of the person's last one in that thread."""
    await tx.do(
        "INSERT INTO proposal (thread_key, author, body, created_at) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (thread_key, author) DO UPDATE SET body = excluded.body, created_at = excluded.created_at",
        proposal.thread_key,
        proposal.author,
        proposal.body,
        build_micros(proposal.created_at),
    )


async def take_proposal(tx: Tx, thread_key: str, author: str, after: datetime) -> Proposal | None:
    """Remove a proposal, and return it if it was made after an instant."""
    row = await tx.one("DELETE FROM proposal WHERE thread_key = %s AND author = %s RETURNING *", thread_key, author)
    if row is None or row["created_at"] <= build_micros(after):
        return None
    return parse_proposal(row)


async def list_proposals(tx: Tx, thread_key: str, after: datetime) -> tuple[Proposal, ...]:
    """Return what waits in a thread and was made after an instant, the oldest first."""
    rows = await tx.all(
        "SELECT * FROM proposal WHERE thread_key = %s AND created_at > %s ORDER BY created_at, author",
        thread_key,
        build_micros(after),
    )
    return tuple(map(parse_proposal, rows))


# -- what follows a headline -----------------------------------------------------------------------


async def load_sequel(tx: Tx, run_id: str) -> str | None:
    """Return what is to follow the first post of a run."""
    row = await tx.one("SELECT body FROM sequel WHERE run_id = %s", run_id)
    return None if row is None else str(row["body"])


async def load_origin(tx: Tx, thread_key: str) -> str | None:
    """Return where a thread was opened from."""
    row = await tx.one("SELECT opened_from FROM thread WHERE thread_key = %s", thread_key)
    return None if row is None or row["opened_from"] is None else str(row["opened_from"])


async def open_thread(
    tx: Tx, claim: Claim, outbox_id: int, run_id: str, opening: Opening, remote_id: str, now: datetime
) -> None:
    """Record a post as delivered, and begin its thread with what follows it."""
    await lock_threads(tx, claim.thread_key, opening.thread_key)
    await finish_send(tx, claim, outbox_id, OutboxState.DELIVERED, remote_id=remote_id, reason="", next_at=now)
    if await tx.one("SELECT 1 FROM run WHERE run_id = %s AND thread_key = %s", run_id, claim.thread_key) is None:
        raise StoreError(f"there is no run {run_id} in {claim.thread_key}; nothing was changed")
    at = build_micros(now)
    await ensure_thread(tx, opening.thread_key, at)
    if opening.thread_key != claim.thread_key:
        await tx.do(
            "UPDATE thread SET opened_from = %s, past_left = 0 WHERE thread_key = %s",
            claim.thread_key,
            opening.thread_key,
        )
    await append_messages(tx, opening.thread_key, run_id, opening.messages, at)
    for output_id, text in opening.outputs:
        await save_output(tx, opening.thread_key, output_id, text, now)
    for item in opening.outbox:
        await add_outbox(tx, item)
    await tx.do("DELETE FROM sequel WHERE run_id = %s", run_id)
