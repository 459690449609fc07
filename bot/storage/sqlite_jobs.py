"""Jobs, their times, proposals, and what follows a report's headline.

The verbs, for ``SqliteStore``, and their functions inside a transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Literal

from bot.storage.base import Claim, OutboxState, StoreError
from bot.storage.jobs import FiringOutcome, JobRow, JobRunRow, NewFiring, Opening, Proposal
from bot.storage.rows import JOB_RUNS, build_micros, parse_job, parse_job_run, parse_proposal
from bot.storage.sqlite_claims import NO_LIMIT, accept, add_outbox, ensure_thread, finish_send
from bot.storage.sqlite_connection import Reader, Tx, Writer
from bot.storage.sqlite_memory import append_messages, save_output


class SqliteJobs:
    """The verbs of ``bot.storage.jobs.JobStore``; what they mean is said there."""

    _writer: Writer
    _reader: Reader

    async def save_job(self, job: JobRow, *, expected: int | None) -> bool:
        """Insert or replace a job."""
        return await self._writer.run(partial(save_job, job=job, expected=expected), durable=True)

    async def load_job(self, name: str) -> JobRow | None:
        """Return the job of that name."""
        return await self._reader.run(partial(load_job, name=name))

    async def list_jobs(self, *, place: str = "") -> tuple[JobRow, ...]:
        """Return jobs by name."""
        return await self._reader.run(partial(list_jobs, place=place))

    async def delete_job(self, job_id: str) -> bool:
        """Delete a job."""
        return await self._writer.run(partial(delete_job, job_id=job_id), durable=True)

    async def list_due_jobs(self, *, now: datetime, limit: int = 100) -> tuple[JobRow, ...]:
        """Return the jobs that are due."""
        return await self._reader.run(partial(list_due_jobs, now=now, limit=limit))

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
        return await self._writer.run(work, durable=True)

    async def list_job_runs(self, job_id: str, *, limit: int = 20) -> tuple[JobRunRow, ...]:
        """Return what became of a job's times."""
        return await self._reader.run(partial(list_job_runs, job_id=job_id, limit=limit))

    async def list_last_runs(self) -> tuple[JobRunRow, ...]:
        """Return what became of the last time of every job."""
        return await self._reader.run(list_last_runs)

    async def save_proposal(self, proposal: Proposal) -> None:
        """Keep a proposal."""
        await self._writer.run(partial(save_proposal, proposal=proposal))

    async def take_proposal(self, thread_key: str, author: str, *, after: datetime) -> Proposal | None:
        """Remove and return a proposal."""
        return await self._writer.run(partial(take_proposal, thread_key=thread_key, author=author, after=after))

    async def list_proposals(self, thread_key: str, *, after: datetime) -> tuple[Proposal, ...]:
        """Return what waits in a thread."""
        return await self._reader.run(partial(list_proposals, thread_key=thread_key, after=after))

    async def load_sequel(self, run_id: str) -> str | None:
        """Return what is to follow the first post of a run."""
        return await self._reader.run(partial(load_sequel, run_id=run_id))

    async def load_origin(self, thread_key: str) -> str | None:
        """Return where a thread was opened from."""
        return await self._reader.run(partial(load_origin, thread_key=thread_key))

    async def open_thread(
        self, claim: Claim, outbox_id: int, run_id: str, opening: Opening, *, remote_id: str, now: datetime
    ) -> None:
        """Record a post as delivered, and begin its thread."""
        await self._writer.run(
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


def save_job(tx: Tx, job: JobRow, expected: int | None) -> bool:
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
        return bool(
            tx.do(
                "INSERT INTO schedule (name, origin, place, owner, owner_name, spec, state, reason, next_at,"
                " thread_key, created_at, updated_at, id, revision)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1) ON CONFLICT DO NOTHING",
                *values,
                job.job_id,
            )
        )
    if tx.one("SELECT 1 FROM schedule WHERE name = ? AND id <> ?", values[0], job.job_id) is not None:
        return False
    return bool(
        tx.do(
            "UPDATE schedule SET name = ?, origin = ?, place = ?, owner = ?, owner_name = ?, spec = ?, state = ?,"
            " reason = ?, next_at = ?, thread_key = ?, created_at = ?, updated_at = ?, revision = revision + 1"
            " WHERE id = ? AND revision = ?",
            *values,
            job.job_id,
            expected,
        )
    )


def load_job(tx: Tx, name: str) -> JobRow | None:
    """Return the job of that name, however it is capitalised."""
    row = tx.one("SELECT * FROM schedule WHERE name = ?", name.lower())
    return None if row is None else parse_job(row)


def list_jobs(tx: Tx, place: str) -> tuple[JobRow, ...]:
    """Return all jobs by name, or those of one channel."""
    if place:
        rows = tx.all("SELECT * FROM schedule WHERE place = ? ORDER BY name", place)
    else:
        rows = tx.all("SELECT * FROM schedule ORDER BY name")
    return tuple(map(parse_job, rows))


def delete_job(tx: Tx, job_id: str) -> bool:
    """Delete a job and what is known of its times."""
    tx.do("DELETE FROM schedule_run WHERE schedule_id = ?", job_id)
    return bool(tx.do("DELETE FROM schedule WHERE id = ?", job_id))


def list_due_jobs(tx: Tx, now: datetime, limit: int) -> tuple[JobRow, ...]:
    """Return active jobs that are due, the longest due first."""
    rows = tx.all(
        "SELECT * FROM schedule INDEXED BY schedule_due WHERE state = 'active' AND next_at <= ?"
        " ORDER BY next_at, id LIMIT ?",
        build_micros(now),
        max(limit, 0),
    )
    return tuple(map(parse_job, rows))


def fire_job(
    tx: Tx,
    job: JobRow,
    firings: Sequence[NewFiring],
    next_at: datetime | None,
    now: datetime,
    overlap: Literal["skip", "queue"],
) -> tuple[FiringOutcome, ...] | None:
    """Decide about times of a job, and move it on; None when it is not the one that was looked at any more."""
    moved = tx.do(
        "UPDATE schedule SET next_at = ? WHERE id = ? AND revision = ? AND next_at IS ?",
        _build_optional(next_at),
        job.job_id,
        job.revision,
        _build_optional(job.next_at),
    )
    if not moved:
        return None
    return tuple(_fire(tx, job.job_id, firing, build_micros(now), overlap) for firing in firings)


def _fire(tx: Tx, job_id: str, firing: NewFiring, now: int, overlap: Literal["skip", "queue"]) -> FiringOutcome:
    known = tx.one("SELECT 1 FROM schedule_run WHERE schedule_id = ? AND run_key = ?", job_id, firing.run_key)
    if known is not None:
        return "duplicate"
    if overlap == "skip" and _is_under_way(tx, job_id):
        _add_run(tx, job_id, firing.run_key, now, thread_key="", inbox_id=None)
        return "skipped"
    accepted = accept(tx, firing.item, queue_limit=NO_LIMIT, refusal=None)
    if accepted.outcome != "new":
        return "duplicate"
    (row,) = tx.all(
        "UPDATE inbox SET job_id = ? WHERE event_key = ? RETURNING id, thread_key", job_id, firing.item.event_key
    )
    _add_run(tx, job_id, firing.run_key, now, thread_key=row["thread_key"], inbox_id=row["id"])
    return "fired"


def _is_under_way(tx: Tx, job_id: str) -> bool:
    """Tell whether a time of the job waits or runs."""
    row = tx.one(
        "SELECT 1 FROM inbox INDEXED BY inbox_job"
        " WHERE job_id = ? AND job_id <> '' AND state IN ('open', 'taken') LIMIT 1",
        job_id,
    )
    return row is not None


def _add_run(tx: Tx, job_id: str, run_key: str, fired_at: int, *, thread_key: str, inbox_id: int | None) -> None:
    tx.do(
        "INSERT INTO schedule_run (schedule_id, run_key, fired_at, thread_key, inbox_id) VALUES (?, ?, ?, ?, ?)",
        job_id,
        run_key,
        fired_at,
        thread_key,
        inbox_id,
    )


def list_job_runs(tx: Tx, job_id: str, limit: int) -> tuple[JobRunRow, ...]:
    """Return what became of a job's times, the newest decision first."""
    rows = tx.all(f"{JOB_RUNS} WHERE r.schedule_id = ? ORDER BY r.id DESC LIMIT ?", job_id, max(limit, 0))
    return tuple(map(parse_job_run, rows))


def list_last_runs(tx: Tx) -> tuple[JobRunRow, ...]:
    """Return what became of the last time of every job."""
    newest = "(SELECT max(l.id) FROM schedule_run l WHERE l.schedule_id = s.id)"
    rows = tx.all(f"{JOB_RUNS} JOIN schedule s ON s.id = r.schedule_id AND r.id = {newest} ORDER BY s.name")
    return tuple(map(parse_job_run, rows))


def _build_optional(instant: datetime | None) -> int | None:
    return None if instant is None else build_micros(instant)


# -- proposals -------------------------------------------------------------------------------------


def save_proposal(tx: Tx, proposal: Proposal) -> None:
    """Keep a proposal in place of the person's last one in that thread."""
    tx.do(
        "INSERT INTO proposal (thread_key, author, body, created_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (thread_key, author) DO UPDATE SET body = excluded.body, created_at = excluded.created_at",
        proposal.thread_key,
        proposal.author,
        proposal.body,
        build_micros(proposal.created_at),
    )


def take_proposal(tx: Tx, thread_key: str, author: str, after: datetime) -> Proposal | None:
    """Remove a proposal, and return it if it was made after an instant."""
    row = tx.one("DELETE FROM proposal WHERE thread_key = ? AND author = ? RETURNING *", thread_key, author)
    if row is None or row["created_at"] <= build_micros(after):
        return None
    return parse_proposal(row)


def list_proposals(tx: Tx, thread_key: str, after: datetime) -> tuple[Proposal, ...]:
    """Return what waits in a thread and was made after an instant, the oldest first."""
    rows = tx.all(
        "SELECT * FROM proposal WHERE thread_key = ? AND created_at > ? ORDER BY created_at, author",
        thread_key,
        build_micros(after),
    )
    return tuple(map(parse_proposal, rows))


# -- what follows a headline -----------------------------------------------------------------------


def load_sequel(tx: Tx, run_id: str) -> str | None:
    """Return what is to follow the first post of a run."""
    row = tx.one("SELECT body FROM sequel WHERE run_id = ?", run_id)
    return None if row is None else str(row["body"])


def load_origin(tx: Tx, thread_key: str) -> str | None:
    """Return where a thread was opened from."""
    row = tx.one("SELECT opened_from FROM thread WHERE thread_key = ?", thread_key)
    return None if row is None or row["opened_from"] is None else str(row["opened_from"])


def open_thread(
    tx: Tx, claim: Claim, outbox_id: int, run_id: str, opening: Opening, remote_id: str, now: datetime
) -> None:
    """Record a post as delivered, and begin its thread with what follows it."""
    finish_send(tx, claim, outbox_id, OutboxState.DELIVERED, remote_id=remote_id, reason="", next_at=now)
    if tx.one("SELECT 1 FROM run WHERE run_id = ? AND thread_key = ?", run_id, claim.thread_key) is None:
        raise StoreError(f"there is no run {run_id} in {claim.thread_key}; nothing was changed")
    at = build_micros(now)
    ensure_thread(tx, opening.thread_key, at)
    if opening.thread_key != claim.thread_key:
        tx.do(
            "UPDATE thread SET opened_from = ?, past_left = 0 WHERE thread_key = ?",
            claim.thread_key,
            opening.thread_key,
        )
    append_messages(tx, opening.thread_key, run_id, opening.messages, at)
    for output_id, text in opening.outputs:
        save_output(tx, opening.thread_key, output_id, text, now)
    for item in opening.outbox:
        add_outbox(tx, item)
    tx.do("DELETE FROM sequel WHERE run_id = ?", run_id)
