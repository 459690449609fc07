"""The clock of the jobs: looks every few seconds which of them are due, and puts their times into the inbox.

Every process has one. A time is claimed by its row in the store, in one transaction with its inbox row, so it does not
matter how many processes look, or which of them is first. APScheduler is the timer and nothing more: when a job is due
is in its row, computed by ``bot.jobs.calendar``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol

import structlog

from agent_core.context import Clock
from bot.http import Metric
from bot.jobs.calendar import parse_schedule
from bot.jobs.draft import find_next
from bot.jobs.due import PUNCTUAL_S, Due, find_due
from bot.jobs.job import JobSpec, build_firing
from bot.jobs.keeping import HERMOD, BadJob, JobKeeper, build_new_firing, build_owner, read_spec
from bot.storage.base import Store, StoreError
from bot.storage.jobs import FiringOutcome, JobRow, JobState

log = structlog.get_logger("hermod.jobs")

INTERVAL_S = 5.0
PAGE = 100
STOP_S = 2.0
"""How long ``stop`` waits for a look that is under way."""

_TICK = "tick"


class _TimerJob(Protocol):
    next_run_time: datetime

    def modify(self, *, next_run_time: datetime) -> object: ...


class _Timer(Protocol):
    """What is used of APScheduler's, which has no types."""

    def get_job(self, job_id: str) -> _TimerJob | None: ...

    def remove_all_jobs(self) -> None: ...

    def shutdown(self, wait: bool) -> None: ...


class JobScheduler:
    """Fires what is due, until ``stop``. Start it once.

    Args:
        store: keeps the jobs.
        clock: time.
        keeper: pauses a job that cannot be read.
        wake: called after something was put into the inbox.
        interval_s: between two looks.
    """

    def __init__(
        self, store: Store, clock: Clock, *, keeper: JobKeeper, wake: Callable[[], None], interval_s: float = INTERVAL_S
    ) -> None:
        self._store = store
        self._clock = clock
        self._keeper = keeper
        self._wake = wake
        self._interval_s = interval_s
        self._ticking = asyncio.Lock()
        self._timer: _Timer | None = None
        self._watch: asyncio.Task[None] | None = None
        self._failing = False
        self._counts: Counter[str] = Counter()

    def start(self) -> None:
        """Begin to look, at once and then at each interval; returns at once."""
        from apscheduler.schedulers.asyncio import AsyncIOScheduler  # type: ignore[import-untyped]
        from apscheduler.triggers.interval import IntervalTrigger  # type: ignore[import-untyped]

        timer = AsyncIOScheduler(timezone=UTC)
        timer.start()
        timer.add_job(
            self.tick,
            IntervalTrigger(seconds=self._interval_s, timezone=UTC),
            id=_TICK,
            next_run_time=datetime.now(UTC),
            # A look that is late is as good as one in time: what was due is in the rows, not in the timer.
            misfire_grace_time=None,
            coalesce=True,
            max_instances=1,
        )
        self._timer = timer
        self._watch = asyncio.create_task(self._keep_timer_awake(timer), name="watch over the jobs' timer")
        log.info("scheduler_started", interval_s=self._interval_s)

    async def stop(self) -> None:
        """End within ``STOP_S``; what is not decided about by then is left to the next start. Safe to call twice."""
        timer, watch = self._timer, self._watch
        self._timer = self._watch = None
        if timer is None or watch is None:
            return
        watch.cancel()
        timer.remove_all_jobs()
        try:
            async with asyncio.timeout(STOP_S), self._ticking:
                pass
        except TimeoutError:
            log.warning("scheduler_stopped_late")
        timer.shutdown(False)
        await asyncio.wait({watch})  # and lets the timer end, which it does in the loop's next round

    async def _keep_timer_awake(self, timer: _Timer) -> None:
        """The timer goes by the machine's clock, and would sleep for as long as that is set back."""
        ahead = True  # it may have been when the jobs' next times were computed, before this start
        while True:
            if ahead:
                ahead = not await self._bring_back()
            await asyncio.sleep(self._interval_s)
            job, now = timer.get_job(_TICK), datetime.now(UTC)
            if job is not None and job.next_run_time > now + timedelta(seconds=2 * self._interval_s):
                log.warning("clock_set_back", by_s=round((job.next_run_time - now).total_seconds()))
                job.modify(next_run_time=now)
                ahead = True

    async def _bring_back(self) -> bool:
        """Take back next times that were computed by a clock that was ahead: those jobs would be silent until then.

        What was fired by that clock is not fired again: its times are known.

        Returns:
            False when the storage failed.
        """
        now = self._clock.now()
        try:
            for n, row in enumerate(await self._store.list_jobs()):
                if n % 50 == 0:
                    await asyncio.sleep(0)  # ten thousand of them take a second
                expected = _find_next(row, now)
                if expected is None or (row.next_at is not None and row.next_at <= expected):
                    continue
                if await self._store.fire_job(row, (), next_at=expected, now=now, overlap="skip") is not None:
                    log.warning("job_brought_back", job=row.name, to=expected.isoformat())
        except StoreError as error:
            log.error("jobs_not_brought_back", error=str(error))
            return False
        return True

    # -- looking -------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Decide about everything that is due now. A storage that fails is told once, and tried again the next time."""
        async with self._ticking:
            try:
                await self._tick()
            except StoreError as error:
                self._counts["failed"] += 1
                if not self._failing:
                    log.error("jobs_not_looked_at", error=str(error))
                self._failing = True
            else:
                if self._failing:
                    log.info("jobs_looked_at_again")
                self._failing = False

    async def _tick(self) -> None:
        seen: set[tuple[str, int, datetime | None]] = set()
        while rows := await self._store.list_due_jobs(now=self._clock.now(), limit=PAGE):
            fresh = [row for row in rows if (row.job_id, row.revision, row.next_at) not in seen]
            seen.update((row.job_id, row.revision, row.next_at) for row in fresh)
            for row in fresh:
                await self._decide(row)
            if not fresh or len(rows) < PAGE:
                return

    async def _decide(self, row: JobRow) -> None:
        now = self._clock.now()
        try:
            spec = read_spec(row)
            due = look_at(row, spec, now)
            firings = [
                build_firing(
                    row.place,
                    author=build_owner(row),
                    job_id=row.job_id,
                    job=row.name,
                    spec=spec,
                    occurrence=occurrence,
                )
                for occurrence in due.run
            ]
        except ValueError as error:
            await self._give_up(row, str(error))
            return
        new = [build_new_firing(firing, now) for firing in firings]
        outcomes = await self._store.fire_job(row, new, next_at=due.next_at, now=now, overlap=spec.overlap)
        if outcomes is None:
            return  # another process was faster, or the job was changed: it is due again if it still is
        if "fired" in outcomes:
            self._wake()
        self._tell(row, due, outcomes, now)

    async def _give_up(self, row: JobRow, reason: str) -> None:
        """Pause a job that nobody can carry out, so that it is not looked at again and again."""
        self._counts["paused"] += 1
        log.error("job_unreadable", job=row.name, reason=reason)
        try:
            await self._keeper.pause(row.name, reason, by=HERMOD)
        except BadJob as error:  # it was deleted, or changed by somebody at the same moment
            log.info("job_not_paused", job=row.name, reason=str(error))

    def _tell(self, row: JobRow, due: Due, outcomes: tuple[FiringOutcome, ...], now: datetime) -> None:
        for occurrence, outcome in zip(due.run, outcomes, strict=True):
            self._counts[outcome] += 1
            late_s = (now - occurrence.at).total_seconds()
            late = outcome == "fired" and late_s > PUNCTUAL_S
            self._counts["late"] += late
            write = log.warning if late or outcome == "skipped" else log.info
            write(f"job_{outcome}", job=row.name, local=occurrence.local, late_s=round(late_s, 1))
        if due.missed_since is not None:
            self._counts["missed"] += max(due.missed, 1)
            log.warning("job_times_missed", job=row.name, since=due.missed_since.isoformat(), counted=due.missed)

    # -- telling -------------------------------------------------------------------------------------

    def metrics(self) -> Iterator[Metric]:
        """Counters of this process."""
        for outcome in ("fired", "skipped", "duplicate"):
            yield Metric(
                name="hermod_jobs_times_total",
                help="Times of jobs that this process decided about, by what became of them.",
                kind="counter",
                value=self._counts[outcome],
                labels={"outcome": outcome},
            )
        for name, count, text in (
            ("late", "late", "Times of jobs that were fired more than a minute late."),
            ("missed", "missed", "Times of jobs that were given up, as far as they were counted."),
            ("paused", "paused", "Jobs that this process paused because they could not be read."),
            ("looks_failed", "failed", "Looks at the jobs that the storage failed."),
        ):
            yield Metric(name=f"hermod_jobs_{name}_total", help=text, kind="counter", value=self._counts[count])


def _find_next(row: JobRow, now: datetime) -> datetime | None:
    try:
        return find_next(read_spec(row), now) if row.state is JobState.ACTIVE else None
    except BadJob:
        return None  # it is paused when it is due


def look_at(row: JobRow, spec: JobSpec, now: datetime) -> Due:
    """Decide about a job's times up to ``now``.

    Raises:
        ValueError: it has no readable time.
    """
    if row.next_at is None:
        return Due(run=(), missed=0, missed_since=None, next_at=None)
    schedule = parse_schedule(spec.cron, spec.zone, now=row.next_at - timedelta(minutes=1))
    return find_due(schedule, next_at=row.next_at, now=now, catch_up=spec.catch_up, grace_s=spec.grace_s)
