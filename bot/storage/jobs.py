"""The part of the Store protocol that keeps scheduled jobs and what became of their times. ``base.Store`` has it.

A job is a row with the next time at which it is due; a time that came is a row of its own, unique by ``run_key``, made
in the same transaction as the inbox row that has it carried out. So however many processes look at the clock, a time
is carried out once. What the texts ``spec``, ``payload`` and ``body`` mean is ``bot.jobs``' business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from bot.storage.base import Claim, NewInboxItem, NewMessage, NewOutboxItem


class JobState(StrEnum):
    """``active`` fires, ``paused`` waits for a person."""

    ACTIVE = "active"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A scheduled job.

    Args:
        job_id: never changes, and is never used again.
        name: what people call it: lower-case letters, digits, ``-``; unique. Capitals are stored as small letters.
        origin: ``settings`` (``[reports.NAME]``) or ``chat``.
        place: the channel that its reports are posted to, ``slack:T1/C1``.
        owner: whose rights it runs with, ``slack:U1``; empty for one of the settings.
        owner_name: for people.
        spec: what it does and when (``bot.jobs.job.JobSpec`` as JSON).
        state, reason: why it is paused; empty while it is active.
        next_at: the first time that nobody has decided about, aware UTC; None: it has no further one.
        thread_key: where it was asked for, and notices about it go; empty: nowhere.
        revision: rises by one with each change that is saved.
    """

    job_id: str
    name: str
    origin: Literal["settings", "chat"]
    place: str
    owner: str
    owner_name: str
    spec: str
    state: JobState
    reason: str
    next_at: datetime | None
    thread_key: str
    created_at: datetime
    updated_at: datetime
    revision: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFiring:
    """A time of a job that is to be carried out: the inbox row that has it done. ``run_key`` names it in the job."""

    run_key: str
    item: NewInboxItem


FiringOutcome = Literal["fired", "duplicate", "skipped"]
"""``duplicate``: it was decided about before; ``skipped``: an earlier one of the job was not over yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRunRow:
    """What became of a time of a job.

    Args:
        state: ``waiting`` in the inbox, ``running``, ``done``, ``failed`` (nothing came of it, not all, or it was not
            posted), ``stopped`` by a person, or ``skipped``.
        thread_key: where it is carried out; empty for one that was skipped.
        error, reason: of its run, see ``bot.storage.base.RunRow``; ``reason`` also why the platform refused its post.
    """

    job_id: str
    run_key: str
    fired_at: datetime
    state: Literal["waiting", "running", "done", "failed", "stopped", "skipped"]
    thread_key: str
    run_id: str | None
    error: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change of a job that a person was shown and has not confirmed yet. ``body`` is JSON."""

    thread_key: str
    author: str
    body: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What begins in the thread of a post once it is there: its history, its whole tool outputs, and further posts.

    ``outputs``: pairs of id and text, as ``save_output`` takes them.
    """

    thread_key: str
    messages: tuple[NewMessage, ...] = ()
    outbox: tuple[NewOutboxItem, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()


class JobStore(Protocol):
    """The verbs for jobs, and for what follows a report's headline."""

    async def save_job(self, job: JobRow, *, expected: int | None) -> bool:
        """Insert a job (``expected`` None) or replace it where it still has the revision ``expected``.

        The stored revision is 1 for a new job, else ``expected + 1``; that of ``job`` does not matter.

        Returns:
            False, and nothing is changed, when the name or id is taken, or the revision is another one.
        """
        ...

    async def load_job(self, name: str) -> JobRow | None:
        """The job of that name (capitals do not matter), or None."""
        ...

    async def list_jobs(self, *, place: str = "") -> tuple[JobRow, ...]:
        """All jobs by name (characters in the order of their numbers), or those of one channel."""
        ...

    async def delete_job(self, job_id: str) -> bool:
        """Delete a job and what is known of its times; what is in the inbox is still carried out.

        Returns:
            False when there is none.
        """
        ...

    async def list_due_jobs(self, *, now: datetime, limit: int = 100) -> tuple[JobRow, ...]:
        """Active jobs whose ``next_at`` is ``now`` or earlier, the longest due first.

        Costs the same however many wait for a later time.
        """
        ...

    async def fire_job(
        self,
        job: JobRow,
        firings: Sequence[NewFiring],
        *,
        next_at: datetime | None,
        now: datetime,
        overlap: Literal["skip", "queue"],
    ) -> tuple[FiringOutcome, ...] | None:
        """Decide about times of a job: make their inbox rows, and move the job on to ``next_at``, in one transaction.

        With ``overlap="skip"`` a time is skipped while an earlier one (also of the same call) waits or runs. The
        revision stays. A job that is paused fires all the same: the caller decides. The queue limit does not count.
        Durable against power loss when this returns.

        Returns:
            What became of each; None, and nothing is changed, when the job was deleted, or its revision or ``next_at``
            is not that of ``job`` any more.
        """
        ...

    async def list_job_runs(self, job_id: str, *, limit: int = 20) -> tuple[JobRunRow, ...]:
        """The newest first."""
        ...

    async def list_last_runs(self) -> tuple[JobRunRow, ...]:
        """The newest of every job that has one, by the names of the jobs."""
        ...

    async def save_proposal(self, proposal: Proposal) -> None:
        """Keep a proposal, in place of the person's last one in that thread."""
        ...

    async def take_proposal(self, thread_key: str, author: str, *, after: datetime) -> Proposal | None:
        """Remove a person's proposal in a thread and return it; one made at or before ``after`` counts as none.

        It is removed all the same. Of several who take it at once, one gets it.
        """
        ...

    async def list_proposals(self, thread_key: str, *, after: datetime) -> tuple[Proposal, ...]:
        """What waits in a thread, of anybody, and was made after an instant; the oldest first."""
        ...

    async def load_sequel(self, run_id: str) -> str | None:
        """What is to follow the first post of a run (``RunOutcome.sequel``), as long as that has not been opened."""
        ...

    async def load_origin(self, thread_key: str) -> str | None:
        """The thread whose post a thread was opened below (``open_thread``), or None."""
        ...

    async def open_thread(
        self, claim: Claim, outbox_id: int, run_id: str, opening: Opening, *, remote_id: str, now: datetime
    ) -> None:
        """Record a post of the claimed thread as delivered, and begin its thread with ``opening``, in one transaction.

        The run's sequel is gone then. The new thread is known (``knows_thread``), its past needs no reading, and
        ``forget_thread`` of it covers the run and the thread that it came from, too. When the thread exists already
        its history and posts are added to. The history's rows are of ``run_id``.

        Raises:
            Fenced: the claim is lost.
            StoreError: the post is settled already, or the run is not one of the claimed thread.
        """
        ...
