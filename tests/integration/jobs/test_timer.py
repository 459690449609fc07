"""The timer of one process, and several processes on one database. Reports of other schedulers are named."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apscheduler.schedulers.base as apscheduler_base  # type: ignore[import-untyped]
import pytest

from bot.jobs.scheduler import JobScheduler
from bot.storage.base import Store
from tests.integration.jobs.desk import NOW, SPEC, Desk

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60.0
NINE = datetime(2026, 3, 29, 7, tzinfo=UTC)


class TimedDesk(Desk):
    """With a scheduler that looks often, and an event for the first firing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.fired_once = asyncio.Event()
        self.scheduler = JobScheduler(
            self.store, self.clock, keeper=self.keeper, wake=self.fired_once.set, interval_s=0.05
        )

    async def wait(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.fired_once.wait()
        self.fired_once.clear()


@pytest.fixture
async def timed(store: Store) -> AsyncIterator[TimedDesk]:
    desk = TimedDesk(store)
    yield desk
    await desk.scheduler.stop()


async def test_the_timer_looks_at_once_and_again_and_ends_within_a_moment(timed: TimedDesk) -> None:
    await timed.make(spec=replace(SPEC, cron="* * * * *", overlap="queue"))
    timed.clock.turn(minutes=1)
    before = asyncio.all_tasks()
    timed.scheduler.start()
    await timed.wait()
    timed.clock.turn(minutes=1)
    await timed.wait()
    await timed.scheduler.stop()
    await timed.scheduler.stop()
    timed.clock.turn(minutes=1)
    assert len(await timed.fired()) == 2
    left = {task.get_name() for task in asyncio.all_tasks() - before}
    assert not any("timer" in name or "tick" in name.lower() for name in left)


async def test_b084_a_loop_that_is_blocked_at_the_fire_time_delays_a_job_and_skips_none(
    timed: TimedDesk, capsys: pytest.CaptureFixture[str]
) -> None:
    """https://github.com/agronholm/apscheduler/issues/182: skipped, since it began 1.2 s late."""
    await timed.make(spec=replace(SPEC, overlap="queue"))
    timed.scheduler.start()
    timed.clock.at = NINE
    time.sleep(1.5)  # noqa: ASYNC251 - this is the fault: APScheduler's own grace is one second
    await timed.wait()
    timed.clock.at = NINE + timedelta(days=1, seconds=90)  # so late that people should know
    await timed.wait()
    first, second = sorted(await timed.fired(), key=lambda firing: firing.sent_at)
    assert (first.sent_at, second.sent_at) == (NINE, NINE + timedelta(days=1))
    told = [line for line in capsys.readouterr().out.splitlines() if "job_fired" in line]
    assert ["warning" in line for line in told] == [False, True]
    assert "late_s=90.0" in told[1]


@pytest.mark.parametrize("month", [1, 7])
async def test_b085_six_oclock_is_six_oclock_in_the_jobs_own_zone(store: Store, month: int) -> None:
    """https://github.com/greeves89/AI-Employee/issues/268: six o'clock fired at six UTC."""
    desk = Desk(store)
    desk.clock.at = datetime(2026, month, 10, tzinfo=UTC)
    row = await desk.make(spec=replace(SPEC, cron="0 6 * * *"))
    due = datetime(2026, month, 10, 5 if month == 1 else 4, tzinfo=UTC)
    assert row.next_at == due
    desk.clock.at = due - timedelta(seconds=1)
    await desk.scheduler.tick()
    assert await desk.fired() == []
    desk.clock.at = due
    await desk.scheduler.tick()
    (firing,) = await desk.fired()
    assert firing.local == f"2026-{month:02}-10 06:00 {'+01:00' if month == 1 else '+02:00'}"


async def test_a_machines_clock_that_is_set_back_does_not_put_the_timer_to_sleep(
    timed: TimedDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://github.com/quartznet/quartznet/issues/1440: nothing fired for as long as the clock had been set back."""

    class Ahead(datetime):
        """The machine's clock, three hours ahead of what it will be."""

        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + timedelta(hours=3)

    with monkeypatch.context() as patch:
        patch.setattr(apscheduler_base, "datetime", Ahead)
        timed.scheduler.start()
        await timed.make(spec=replace(SPEC, cron="* * * * *", overlap="queue"))
        timed.clock.turn(minutes=1)
        await timed.wait()  # the timer has planned its next look by the clock that is ahead
    timed.clock.turn(minutes=1)
    await timed.wait()
    timed.clock.turn(minutes=1)
    await timed.wait()


async def test_jobs_are_not_silent_for_ten_years_after_a_clock_that_was_ten_years_ahead(timed: TimedDesk) -> None:
    await timed.make()
    timed.clock.at = NOW + timedelta(days=3653)
    await timed.scheduler.tick()
    silent_until = (await timed.load()).next_at
    assert silent_until is not None
    assert silent_until.year == 2036
    timed.clock.at = NOW
    timed.fired_once.clear()
    timed.scheduler.start()
    async with asyncio.timeout(PATIENCE_S):
        while (await timed.load()).next_at != NINE:  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0.01)
    timed.clock.at = NINE
    await timed.wait()
    assert [firing.sent_at for firing in await timed.fired()] == [NINE]


async def test_three_processes_fire_each_time_once(store: Store, url: str) -> None:
    """https://github.com/agronholm/apscheduler/issues/129 and 231: with a shared store each of them fired."""
    desk, jobs, days = Desk(store), 10, 12
    for n in range(jobs):
        await desk.make(f"job-{n}", spec=replace(SPEC, catch_up="all", overlap="queue", grace_s=7 * 86_400.0))
    processes = [await _start(url, days) for _ in range(3)]
    try:
        async with asyncio.timeout(PATIENCE_S):
            for process in processes:
                assert process.stdout is not None
                assert await process.stdout.readline() == b"ready\n"
            said = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
    fired = [int(out.split()[-1]) for out, _ in said]
    assert sum(fired) == jobs * days
    assert (await store.count_rows()).inbox_open == jobs * days
    for row in await store.list_jobs():
        runs = await store.list_job_runs(row.job_id, limit=100)
        assert [run.run_key for run in reversed(runs)] == [
            f"{NOW + timedelta(days=n + 1):%Y-%m-%d}T09:00" for n in range(days)
        ]


async def _start(url: str, days: int) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.jobs.worker", url, str(days), stdin=PIPE, stdout=PIPE, cwd=ROOT
    )
