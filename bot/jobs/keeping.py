"""What people may do to a job: make, change, pause, resume and delete it, and have it run now.

Everything is checked before a row changes, and whatever is refused is refused with the right form of it. Who may do
what is decided by the callers; each change is a line of the audit chain.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from adapters.chat import Author, ChatAdapter, Stop, ThreadRef
from agent_core.context import Clock
from bot.audit import AuditLog
from bot.jobs.calendar import Occurrence
from bot.jobs.draft import BadJob, CheckedJob, DraftChecks, JobDraft, find_next, name_known
from bot.jobs.job import (
    SETTINGS_OWNER,
    Firing,
    JobSpec,
    build_firing,
    dump_spec,
    load_spec,
    parse_place,
)
from bot.messages import dump_inbound, event_key, kind_of
from bot.storage.base import NewInboxItem, Store
from bot.storage.jobs import JobRow, JobState, NewFiring

__all__ = [
    "HERMOD",
    "OPERATOR",
    "Asker",
    "BadJob",
    "CheckedJob",
    "JobDraft",
    "JobKeeper",
    "build_new_firing",
    "build_owner",
    "read_spec",
]

log = structlog.get_logger("hermod.jobs")

RUN_NOW = "now-"
"""Begins the ``run_key`` of a time that a person asked for."""

MOST_STOPPED = 100
"""Of a job's newest times, those that ``stop`` looks at."""

MOST_STOPS = 1000
"""That wait for a report that nobody makes at the moment."""

_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who does something to a job, and with whose rights it runs if this makes them its owner.

    Args:
        owner: as ``JobRow.owner`` has it, ``slack:U1``; empty for the operator.
        name: for people.
        actor: for the audit chain, ``slack:T1/U1``.
    """

    owner: str
    name: str
    actor: str

    @classmethod
    def of(cls, thread: ThreadRef, author: Author) -> Asker:
        """Return the author of something that came in from ``thread``."""
        return cls(
            owner=f"{thread.platform}:{author.id}",
            name=author.name,
            actor=f"{thread.platform}:{thread.workspace}/{author.id}",
        )


OPERATOR = Asker(owner="", name=SETTINGS_OWNER.name, actor="operator")
"""Whoever sits at this machine: the command line, and the settings."""

HERMOD = Asker(owner="", name="Hermod", actor="hermod")
"""Hermod itself, where it pauses a job that cannot run."""


class JobKeeper:
    """Makes and changes jobs. Safe to use concurrently, also from several processes.

    Args:
        store: keeps the rows.
        clock: time.
        adapters: the configured platforms by name; those with ``HasPlaces`` are asked about a channel.
        targets, workers, templates: the names that a job may use.
        wake: called after something was put into the inbox.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        adapters: Mapping[str, ChatAdapter],
        targets: Collection[str],
        workers: Collection[str],
        templates: Collection[str],
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._audit = AuditLog(store, clock)
        self._checks = DraftChecks(
            adapters=adapters, targets=targets, workers=workers, templates=templates, is_taken=self._is_taken
        )
        self._wake = wake

    # -- looking -------------------------------------------------------------------------------------

    async def check(self, draft: JobDraft, *, now: datetime, of: str = "") -> CheckedJob:
        """Look at everything that a job needs, and change nothing.

        Args:
            draft: the wish. To change a job, its spec as it is to be.
            now: aware UTC.
            of: the name of the job that is to be changed; empty for a new one.

        Raises:
            BadJob: it cannot be made.
            StoreError: the storage cannot be used.
        """
        return await self._checks.check(draft, now=now, of=of)

    async def find(self, name: str) -> JobRow:
        """The job of that name.

        Raises:
            BadJob: there is none.
            StoreError: the storage cannot be used.
        """
        if (row := await self._store.load_job(name.strip())) is not None:
            return row
        known = [job.name for job in await self._store.list_jobs()]
        raise BadJob(f"there is no job {name.strip()[:63]!r}; {name_known(name.strip().lower(), known, 'jobs')}")

    # -- changing ------------------------------------------------------------------------------------

    async def make(self, checked: CheckedJob, *, by: Asker, thread_key: str = "") -> JobRow:
        """Insert a job that fires from now on.

        Args:
            checked: what ``check`` returned.
            by: becomes the owner.
            thread_key: where it was asked for, and notices about it go; empty: nowhere.

        Raises:
            BadJob: its name was taken in the meantime, or its last time has passed.
            StoreError: the storage cannot be used.
        """
        _check_owner(by, checked.place)
        now = self._clock.now()
        row = JobRow(
            job_id=f"j-{secrets.token_hex(8)}",
            name=checked.name,
            origin="chat",
            place=checked.place,
            owner=by.owner,
            owner_name=by.name,
            spec=dump_spec(checked.spec),
            state=JobState.ACTIVE,
            reason="",
            next_at=find_next(checked.spec, now),
            thread_key=thread_key,
            created_at=now,
            updated_at=now,
        )
        if not await self._store.save_job(row, expected=None):
            raise BadJob(f"there is a job {checked.name!r} already; choose another name")
        await self._record("job.made", row, by, thread_key)
        return await self._load_saved(row)

    async def change(self, name: str, checked: CheckedJob, *, by: Asker, thread_key: str = "") -> JobRow:
        """Make a job what ``checked`` says. Whoever changes a job becomes its owner; a paused one stays paused.

        Raises:
            BadJob: there is none, the settings have it, or its new name was taken in the meantime.
            StoreError: the storage cannot be used.
        """
        _check_owner(by, checked.place)
        now = self._clock.now()

        def edit(row: JobRow) -> JobRow:
            _check_chat(row, "change it")
            return replace(
                row,
                name=checked.name,
                place=checked.place,
                owner=by.owner,
                owner_name=by.name,
                spec=dump_spec(checked.spec),
                next_at=row.next_at if _same_times(row, checked.spec) else find_next(checked.spec, now),
                thread_key=thread_key or row.thread_key,
            )

        return await self._update(name, edit, "job.changed", by, thread_key, renamed=checked.name)

    async def pause(self, name: str, reason: str, *, by: Asker, thread_key: str = "") -> JobRow:
        """Let a job fire no more until it is resumed; one that is paused gets the new reason.

        Raises:
            BadJob: there is none.
            StoreError: the storage cannot be used.
        """
        said = " ".join(reason.split())[:500] or f"paused by {by.name}"
        return await self._update(
            name, lambda row: replace(row, state=JobState.PAUSED, reason=said), "job.paused", by, thread_key
        )

    async def resume(self, name: str, *, by: Asker, thread_key: str = "") -> JobRow:
        """Let a job fire again, from now on: what its pause left out is not made up for.

        Raises:
            BadJob: there is none, or what it says cannot be read.
            StoreError: the storage cannot be used.
        """
        now = self._clock.now()

        def edit(row: JobRow) -> JobRow:
            if row.state is JobState.ACTIVE:
                return row
            next_at = find_next(read_spec(row), now)
            return replace(row, state=JobState.ACTIVE, reason="", next_at=next_at)

        return await self._update(name, edit, "job.resumed", by, thread_key)

    async def delete(self, name: str, *, by: Asker, thread_key: str = "") -> JobRow:
        """Delete a job and return what it was; a report that is being made is still posted.

        Raises:
            BadJob: there is none, or the settings have it.
            StoreError: the storage cannot be used.
        """
        row = await self.find(name)
        _check_chat(row, "remove it", "pausing it works")
        await self._record("job.deleted", row, by, thread_key)
        if not await self._store.delete_job(row.job_id):
            raise BadJob(f"the job {row.name!r} was deleted in this moment")
        return row

    async def run_now(self, name: str, *, author: Author, asked_in: str = "", by: Asker = OPERATOR) -> Firing:
        """Put a report of a job into the inbox, also of a paused one; it waits for an earlier one that is not over.

        Args:
            name: of the job.
            author: with whose rights the report is made.
            asked_in: the key of the thread where it was asked for; empty for nowhere.
            by: for the audit chain.

        Raises:
            BadJob: there is no such job, or what it says cannot be read.
            StoreError: the storage cannot be used.
        """
        run_key = f"{RUN_NOW}{secrets.token_hex(6)}"
        for _ in range(_TRIES):
            row, now = await self.find(name), self._clock.now()
            firing = build_firing(
                row.place,
                author=author,
                job_id=row.job_id,
                job=row.name,
                spec=read_spec(row),
                occurrence=Occurrence(at=now, key=run_key, local=""),
                asked_in=asked_in,
            )
            new = build_new_firing(firing, now)
            if await self._store.fire_job(row, [new], next_at=row.next_at, now=now, overlap="queue") is not None:
                await self._record("job.run", row, by, asked_in)
                self._wake()
                return firing
        raise BadJob(f"the job {name!r} is being changed by others all the time; try again")

    async def stop(self, name: str, *, author: Author, by: Asker = OPERATOR, thread_key: str = "") -> JobRow:
        """End the reports of a job that wait or are being made, in whichever process; its next times stay.

        Whoever makes a report hears of it within a second, posts who stopped it, and nothing else. One that is written
        already is posted all the same.

        Args:
            name: of the job.
            author: who stops it; may have to speak in the job's channel.
            by: for the audit chain.
            thread_key: where it was asked for; empty: nowhere.

        Raises:
            BadJob: there is no such job, or no report of it is being made.
            StoreError: the storage cannot be used.
        """
        row, now = await self.find(name), self._clock.now()
        runs = await self._store.list_job_runs(row.job_id, limit=MOST_STOPPED)
        under_way = [ThreadRef.parse_key(run.thread_key) for run in runs if run.state in ("waiting", "running")]
        if not under_way:
            raise BadJob(f"no report of {row.name!r} is being made now; pausing the job keeps the next ones away")
        await self._record("job.stopped", row, by, thread_key)
        for thread in under_way:
            stop = Stop(thread=thread, id=f"stop-{secrets.token_hex(6)}", author=author, sent_at=now)
            item = NewInboxItem(
                event_key=event_key(stop),
                thread_key=thread.key,
                kind=kind_of(stop),
                payload=dump_inbound(stop),
                received_at=now,
            )
            await self._store.accept(item, queue_limit=MOST_STOPS)
        self._wake()
        return row

    async def _update(
        self,
        name: str,
        edit: Callable[[JobRow], JobRow],
        action: str,
        by: Asker,
        thread_key: str,
        *,
        renamed: str = "",
    ) -> JobRow:
        for _ in range(_TRIES):
            row = await self.find(name)
            edited = edit(row)
            if edited == row:
                return row
            new = replace(edited, updated_at=self._clock.now())
            if await self._store.save_job(new, expected=row.revision):
                await self._record(action, new, by, thread_key)
                return await self._load_saved(new)
            if renamed and renamed != row.name and await self._store.load_job(renamed) is not None:
                raise BadJob(f"there is a job {renamed!r} already; choose another name")
        raise BadJob(f"the job {name!r} is being changed by others all the time; try again")

    async def _is_taken(self, name: str) -> bool:
        return await self._store.load_job(name) is not None

    async def _load_saved(self, row: JobRow) -> JobRow:
        return await self._store.load_job(row.name) or row

    async def _record(self, action: str, row: JobRow, by: Asker, thread_key: str) -> None:
        detail: dict[str, str | int] = {"job": row.name, "job_id": row.job_id, "place": row.place}
        await self._audit.record(action, actor=by.actor, thread_key=thread_key, detail=detail)
        log.info(action.replace(".", "_"), job=row.name, place=row.place, by=by.actor)


# -- values ----------------------------------------------------------------------------------------


def build_owner(row: JobRow) -> Author:
    """Return the person with whose rights a job runs."""
    user = row.owner.partition(":")[2]
    return Author(id=user, name=row.owner_name or user) if user else SETTINGS_OWNER


def build_new_firing(firing: Firing, now: datetime) -> NewFiring:
    """Build the inbox row that has a firing carried out."""
    item = NewInboxItem(
        event_key=event_key(firing),
        thread_key=firing.thread.key,
        kind=kind_of(firing),
        payload=dump_inbound(firing),
        received_at=now,
    )
    return NewFiring(run_key=firing.run_key, item=item)


def read_spec(row: JobRow) -> JobSpec:
    """Read what a job does.

    Raises:
        BadJob: it cannot be read.
    """
    try:
        return load_spec(row.spec)
    except ValueError:
        raise BadJob(f"what the job {row.name!r} does cannot be read; change or delete it") from None


def _check_owner(by: Asker, place: str) -> None:
    platform = by.owner.partition(":")[0]
    if platform and platform != parse_place(place)[0]:
        raise BadJob(
            f"a job runs with your rights, and those count on {platform}: it cannot post to {place}; "
            f"name a channel of {platform}, or ask there"
        )


def _check_chat(row: JobRow, what: str, else_: str = "") -> None:
    if row.origin == "settings":
        more = f" ({else_})" if else_ else ""
        raise BadJob(
            f"the job {row.name!r} is one of the settings; {what} in [reports.{row.name}] of hermod.toml{more}"
        )


def _same_times(row: JobRow, spec: JobSpec) -> bool:
    try:
        old = load_spec(row.spec)
    except ValueError:
        return False
    return row.next_at is not None and (old.cron, old.zone) == (spec.cron, spec.zone)
