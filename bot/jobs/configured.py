"""The jobs of the settings: each ``[reports.NAME]`` is a row, so that it fires, pauses and is shown as any other.

A row is left as it is while its text in the settings is the same: it keeps its next time, so what a downtime left out
is made up for as its policy says. All of this may happen in several processes at once, also with different settings:
each holds a lease on the jobs of its tables, and deletes none that another living process holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import structlog

from adapters.chat import AdapterError, ChatAdapter
from adapters.places import HasPlaces
from agent_core.context import Clock
from bot.audit import AuditLog
from bot.jobs.calendar import parse_schedule
from bot.jobs.draft import find_free_name, find_next
from bot.jobs.job import SETTINGS_OWNER, JobSpec, dump_spec, load_spec, parse_place
from bot.owners import is_dead_owner
from bot.settings_tree import ReportSettings
from bot.storage.base import Store, StoreError
from bot.storage.jobs import JobRow, JobState

log = structlog.get_logger("hermod.jobs")

FindWorkspace = Callable[[str], Awaitable[str]]
"""Names the one workspace of a platform (``bot.jobs.workspaces.find_workspace``)."""

RETRY_S = 30.0
"""Between attempts while a platform cannot be asked for its workspace, or the storage fails."""

LEASE_S = 60.0
"""How long a process that was killed on another machine still counts as having its tables."""

RENEW_S = 15.0

FREE_LOOKS = 2
"""How often in a row nobody may hold a job that another process had: of two with one table, the second takes over."""

_DIFFERS = "processes on one database have different [reports]; give them the same"
_ACTOR = "settings"
_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    job_id: str
    name: str
    place: str
    spec: JobSpec


class ConfiguredJobs:
    """Makes the rows what the settings say.

    Args:
        store: keeps the rows.
        clock: time.
        reports: ``[reports]`` of the settings.
        find_workspace: for channels without a workspace.
        owner: names this process in leases (``bot.owners.name_owner``).
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        reports: Mapping[str, ReportSettings],
        *,
        find_workspace: FindWorkspace,
        owner: str,
    ) -> None:
        self._store = store
        self._clock = clock
        self._audit = AuditLog(store, clock)
        self._reports = reports
        self._find_workspace = find_workspace
        self._owner = owner
        self._wanted: dict[str, _Wanted] = {}
        self._kept: dict[str, tuple[JobRow, int]] = {}  # of others, with how often nobody was found to have it
        self._told: set[tuple[str, int]] = set()

    async def run(self, adapters: Mapping[str, ChatAdapter]) -> None:
        """Make the rows what the settings say, trying again while that cannot be; then look at their channels.

        Raises:
            ConfigError: a channel names no workspace, and several may be meant.
        """
        while True:
            try:
                if await self.sync():
                    break
            except StoreError as error:
                log.error("reports_not_configured", error=str(error), retry_s=RETRY_S)
            await self._clock.sleep(RETRY_S)
        await self._look_at_channels(adapters)

    async def sync(self, *, quick: bool = False) -> bool:
        """Insert, change and delete rows until they are what the settings say.

        Args:
            quick: for a look from beside: take a channel's workspace as it was found before, and delete nothing.

        Returns:
            False when a channel's workspace could not be asked for, so that a row is missing; try again.

        Raises:
            ConfigError: a channel names no workspace, and several may be meant.
            StoreError: the storage cannot be used.
        """
        # Before the rows are looked at: who finds one of them superfluous then knows that it is not.
        holders = {} if quick else {name_job(name): await self._hold(name_job(name)) for name in self._reports}
        rows = {row.job_id: row for row in await self._store.list_jobs() if row.origin == "settings"}
        complete = True
        for name, report in self._reports.items():
            job_id = name_job(name)
            place = await self._find_place(name, report.channel, rows.get(job_id), quick=quick)
            if place is None:
                complete = False
            else:
                spec = build_spec(report, self._clock.now())
                wanted = self._wanted[job_id] = _Wanted(job_id=job_id, name=name.lower(), place=place, spec=spec)
                if await self._settle(wanted) == "changed" and holders.get(job_id, self._owner) != self._owner:
                    why = f"another running process has another text of it, and the newest start counts: {_DIFFERS}"
                    log.warning("report_differs", report=name, process=holders[job_id], reason=why)
        named = {name_job(name) for name in self._reports}
        for row in rows.values():
            if not quick and row.job_id not in named:
                await self._drop(row, looks=1)
        return complete

    async def keep(self) -> None:
        """Hold what the settings have, until this is cancelled; what others had is deleted once nobody has it."""
        while True:
            await self._clock.sleep(RENEW_S)
            try:
                await self.look()
            except StoreError as error:
                log.error("reports_not_held", error=str(error), retry_s=RENEW_S)

    async def look(self) -> None:
        """Look once at what other processes made of the jobs: one that was deleted is made again, and that is said.

        Raises:
            StoreError: the storage cannot be used.
        """
        for wanted in self._wanted.values():
            await self._hold(wanted.job_id)
            row = await self._store.load_job(wanted.name)
            if row is None or row.origin == "chat":
                log.warning("report_made_again", report=wanted.name, reason=f"another process deleted it: {_DIFFERS}")
                await self._settle(wanted)
            elif self._change_row(row, wanted) is not None and (row.job_id, row.revision) not in self._told:
                self._told.add((row.job_id, row.revision))
                why = f"another process gave it another text, and the newest start counts: {_DIFFERS}"
                log.warning("report_differs", report=wanted.name, reason=why)
        for row, _ in tuple(self._kept.values()):
            await self._drop(row, looks=FREE_LOOKS)

    async def release(self) -> None:
        """Hold nothing any more: the next process need not wait until the leases are over.

        Raises:
            StoreError: the storage cannot be used; the leases end by themselves.
        """
        for name in self._reports:
            await self._store.end_lease(_name_lease(name_job(name)), self._owner)

    async def _hold(self, job_id: str) -> str:
        """Hold a job, unless another living process does; return who does."""
        lease, holder = _name_lease(job_id), ""
        for _ in range(2):
            holder = await self._store.hold_lease(lease, self._owner, lease_s=LEASE_S, now=self._clock.now())
            if holder == self._owner or not is_dead_owner(holder):
                break
            await self._store.end_lease(lease, holder)
        return holder

    async def _drop(self, row: JobRow, *, looks: int) -> None:
        """Delete a job that these settings do not have, unless another living process has it.

        Args:
            row: of the job.
            looks: how often in a row nobody has to be found to have it.
        """
        holder = await self._hold(row.job_id)
        if holder != self._owner:
            if row.job_id not in self._kept:
                why = f"these settings have no [reports.{row.name}], but another running process has: {_DIFFERS}"
                log.warning("report_kept", report=row.name, process=holder, reason=why)
            self._kept[row.job_id] = (row, 0)
            return
        free = self._kept.get(row.job_id, (row, 0))[1] + 1
        if free >= looks:
            self._kept.pop(row.job_id, None)
            if await self._store.delete_job(row.job_id):
                why = f"no running process has [reports.{row.name}] in its settings"
                log.warning("report_deleted", report=row.name, place=row.place, reason=why)
                await self._record("job.deleted", row)
        else:
            self._kept[row.job_id] = (row, free)
        await self._store.end_lease(_name_lease(row.job_id), self._owner)

    async def _find_place(self, name: str, channel: str, row: JobRow | None, *, quick: bool) -> str | None:
        platform, _, rest = channel.partition(":")
        if "/" in rest:
            return channel
        known = None if row is None else row.place
        if known is not None and not (known.startswith(f"{platform}:") and known.rpartition("/")[2] == rest):
            known = None
        if known is not None and quick:
            return known
        try:
            return f"{platform}:{await self._find_workspace(platform)}/{rest}"
        except AdapterError as error:
            if known is None:
                log.warning("report_waits", report=name, channel=channel, reason=str(error))
            return known

    async def _settle(self, wanted: _Wanted) -> Literal["made", "changed", "as it was"]:
        """Make one row what it is to be, against whoever changes it at the same moment; return what was done."""
        for _ in range(_TRIES):
            row = await self._store.load_job(wanted.name)
            if row is not None and row.origin == "chat":
                await self._rename(row)
            elif row is None:
                new = self._build_row(wanted)
                if await self._store.save_job(new, expected=None):
                    await self._record("job.made", new)
                    return "made"
            else:
                changed = self._change_row(row, wanted)
                if changed is None:
                    return "as it was"
                if await self._store.save_job(changed, expected=row.revision):
                    await self._record("job.changed", changed)
                    return "changed"
        raise StoreError(f"the job {wanted.name!r} is being changed by others all the time; start again")

    async def _rename(self, row: JobRow) -> None:
        async def is_taken(name: str) -> bool:
            return await self._store.load_job(name) is not None

        free = await find_free_name(f"{row.name[:50]}-chat", is_taken)
        renamed = replace(row, name=free, updated_at=self._clock.now())
        if await self._store.save_job(renamed, expected=row.revision):
            log.warning(
                "job_renamed", job=row.name, to=free, reason=f"the settings have [reports.{row.name}]", owner=row.owner
            )
            await self._record("job.renamed", renamed)

    def _build_row(self, wanted: _Wanted) -> JobRow:
        now = self._clock.now()
        return JobRow(
            job_id=wanted.job_id,
            name=wanted.name,
            origin="settings",
            place=wanted.place,
            owner="",
            owner_name=SETTINGS_OWNER.name,
            spec=dump_spec(wanted.spec),
            state=JobState.ACTIVE,
            reason="",
            next_at=find_next(wanted.spec, now),
            thread_key="",
            created_at=now,
            updated_at=now,
        )

    def _change_row(self, row: JobRow, wanted: _Wanted) -> JobRow | None:
        """The row as it is to be; None where it is that already. A text that changed ends a pause."""
        spec = dump_spec(wanted.spec)
        if row.place == wanted.place and row.spec == spec:
            return None
        now = self._clock.now()
        keeps_time = row.state is JobState.ACTIVE and row.next_at is not None and _has_times(row, wanted.spec)
        return replace(
            row,
            place=wanted.place,
            spec=spec,
            state=JobState.ACTIVE,
            reason="",
            next_at=row.next_at if keeps_time else find_next(wanted.spec, now),
            updated_at=now,
        )

    async def _look_at_channels(self, adapters: Mapping[str, ChatAdapter]) -> None:
        """Say at the start what a report will stumble over."""
        for row in await self._store.list_jobs():
            platform, workspace, channel = parse_place(row.place)
            adapter = adapters.get(platform)
            if adapter is None or row.origin != "settings" or not isinstance(adapter, HasPlaces):
                continue
            look = await adapter.look_at_channel(workspace, channel)
            if look.state in ("closed", "gone"):
                log.warning("report_channel_closed", job=row.name, channel=row.place, error=look.what, fix=look.fix)

    async def _record(self, action: str, row: JobRow) -> None:
        detail: dict[str, str | int] = {"job": row.name, "job_id": row.job_id, "place": row.place}
        await self._audit.record(action, actor=_ACTOR, detail=detail)
        log.info(action.replace(".", "_"), job=row.name, place=row.place, by=_ACTOR)


def name_job(report: str) -> str:
    """The id of the job of ``[reports.NAME]``."""
    return f"s-{report.lower()}"


def _name_lease(job_id: str) -> str:
    return f"report/{job_id}"


def build_spec(report: ReportSettings, now: datetime) -> JobSpec:
    """Read a table of the settings as what a job does.

    Raises:
        BadSchedule: its times cannot be read; the settings are checked for that when they are loaded.
    """
    schedule = parse_schedule(report.cron, report.timezone, now=now)
    return JobSpec(
        cron=schedule.cron,
        zone=schedule.zone,
        task=report.task.strip(),
        template=report.template or "",
        workers=report.workers,
        targets=report.targets,
        catch_up=report.catch_up,
        grace_s=report.grace_s,
        overlap=report.overlap,
        deadline_s=report.deadline_s,
    )


def _has_times(row: JobRow, spec: JobSpec) -> bool:
    try:
        old = load_spec(row.spec)
    except ValueError:
        return False
    return (old.cron, old.zone) == (spec.cron, spec.zone)
