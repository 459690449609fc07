"""The scheduler over a real store: what is due is fired once, whoever looks, and nothing holds up the rest."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.jobs.due import CatchUp
from bot.storage import open_store
from bot.storage.base import Store, StoreError
from bot.storage.jobs import JobRow, JobState
from tests.integration.jobs.desk import NOW, SPEC, Desk

NINE = datetime(2026, 3, 29, 7, tzinfo=UTC)  # in Berlin, where the clocks went forward that night


def count(desk: Desk, name: str, **labels: str) -> float:
    return sum(
        m.value for m in desk.scheduler.metrics() if m.name == f"hermod_jobs_{name}_total" and dict(m.labels) == labels
    )


async def test_a_job_fires_at_its_time_with_its_owners_rights_in_a_thread_of_its_own(desk: Desk) -> None:
    row = await desk.make()
    await desk.scheduler.tick()
    assert desk.woken == 0
    desk.clock.at = NINE
    desk.clock.turn(seconds=3)
    await desk.scheduler.tick()
    assert desk.woken == 1
    (firing,) = await desk.fired()
    assert (firing.author.id, firing.author.name) == ("U1", "Anna")
    assert (firing.job_id, firing.job, firing.local) == (row.job_id, "report", "2026-03-29 09:00 +02:00")
    assert firing.sent_at == NINE
    assert firing.thread.key.startswith("slack:T1/C1/command-report-")
    assert (await desk.load()).next_at == datetime(2026, 3, 30, 7, tzinfo=UTC)
    await desk.scheduler.tick()
    assert await desk.fired() == []
    assert (count(desk, "times", outcome="fired"), count(desk, "late")) == (1, 0)


async def test_more_due_jobs_than_one_page_are_all_fired_in_one_look(desk: Desk) -> None:
    for n in range(130):
        await desk.make(f"job-{n}")
    desk.clock.at = NINE
    await desk.scheduler.tick()
    assert len(await desk.fired()) == 130
    assert await desk.store.list_due_jobs(now=desk.clock.now()) == ()


async def test_a_job_that_cannot_be_read_is_paused_with_the_reason_and_blocks_no_other(desk: Desk) -> None:
    broken: list[JobRow] = []
    for name, spec, place in (
        ("bad-json", "{", "slack:T1/C1"),
        ("bad-cron", '{"cron": "x", "zone": "UTC", "task": "t"}', "slack:T1/C1"),
        ("bad-zone", '{"cron": "0 9 * * *", "zone": "Mars/Base", "task": "t"}', "slack:T1/C1"),
        ("bad-place", '{"cron": "0 9 * * *", "zone": "Europe/Berlin", "task": "t"}', "slack:C1"),
    ):
        row = replace(await desk.make(name), spec=spec, place=place, next_at=NOW)
        assert await desk.store.save_job(row, expected=1)
        broken.append(row)
    await desk.make("good")
    desk.clock.at = NINE
    await desk.scheduler.tick()
    (firing,) = await desk.fired()
    assert firing.job == "good"
    for row in broken:
        found = await desk.load(row.name)
        assert found.state is JobState.PAUSED
        assert found.reason
    assert count(desk, "paused") == 4
    await desk.scheduler.tick()
    assert count(desk, "paused") == 4


@pytest.mark.parametrize(
    ("catch_up", "expected", "missed"),
    [
        ("none", [], 1),
        ("latest", ["2026-03-29 09:15"], 2),
        ("all", ["2026-03-29 08:45", "2026-03-29 09:00", "2026-03-29 09:15"], 0),
    ],
)
async def test_what_was_missed_runs_as_the_policy_says_and_the_rest_is_counted(
    desk: Desk, catch_up: CatchUp, expected: list[str], missed: int
) -> None:
    spec = replace(SPEC, cron="45,0,15 8-9 * * *", catch_up=catch_up, grace_s=7200.0, overlap="queue")
    desk.clock.at = NINE.replace(hour=6, minute=40)
    await desk.make(spec=spec)
    desk.clock.at = NINE.replace(hour=7, minute=20)
    await desk.scheduler.tick()
    assert sorted(f.local[:16] for f in await desk.fired()) == expected
    # with "none" what is older than a minute is not counted, only told
    assert (count(desk, "missed"), count(desk, "late")) == (missed, len(expected))


async def test_a_time_is_skipped_while_an_earlier_one_is_not_over_and_queued_where_that_is_the_policy(
    desk: Desk,
) -> None:
    await desk.make("skips", spec=replace(SPEC, cron="0 * * * *"))
    await desk.make("queues", spec=replace(SPEC, cron="0 * * * *", overlap="queue"))
    for _ in range(2):
        desk.clock.turn(hours=1)
        await desk.scheduler.tick()
    assert sorted(f.job for f in await desk.fired()) == ["queues", "queues", "skips"]
    assert count(desk, "times", outcome="skipped") == 1
    desk.clock.turn(hours=1)
    await desk.scheduler.tick()
    assert len(await desk.fired()) == 2


async def test_three_processes_that_look_at_once_fire_each_time_once(desk: Desk, url: str) -> None:
    for n in range(20):
        await desk.make(f"job-{n}")
    stores = [open_store(url) for _ in range(3)]
    for store in stores:
        await store.open()
    desks = [Desk(store, desk.clock) for store in stores]
    try:
        for n in range(4):
            desk.clock.at = NINE + timedelta(days=n)
            await asyncio.gather(*(one.scheduler.tick() for one in desks))
            fired = await desk.fired()
            assert len({(f.job, f.run_key) for f in fired}) == len(fired) == 20
    finally:
        for store in stores:
            await store.close()
    assert sum(count(one, "times", outcome="fired") for one in desks) == 80


async def test_a_clock_that_is_set_back_fires_nothing_twice(desk: Desk) -> None:
    await desk.make(spec=replace(SPEC, cron="*/15 * * * *"))
    fired: list[str] = []
    for minutes in (15, 15, -40, 15, 15, 15, 15, 15):
        desk.clock.turn(minutes=minutes)
        await desk.scheduler.tick()
        fired += [f.run_key for f in await desk.fired()]
    assert len(fired) == len(set(fired)) == 4


class FailingStore:
    """A store whose look-up of due jobs fails as long as it is told to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fails = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def list_due_jobs(self, *, now: datetime, limit: int = 100) -> tuple[JobRow, ...]:
        if self.fails:
            raise StoreError("the disk is full")
        return await self._store.list_due_jobs(now=now, limit=limit)


async def test_a_storage_that_fails_is_told_once_and_asked_again(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = FailingStore(store)
    desk = Desk(failing)  # type: ignore[arg-type]
    await desk.make()
    desk.clock.at = NINE
    failing.fails = True
    for _ in range(3):
        await desk.scheduler.tick()
    failing.fails = False
    await desk.scheduler.tick()
    assert len(await desk.fired()) == 1
    told = capsys.readouterr().out
    assert (told.count("jobs_not_looked_at"), told.count("jobs_looked_at_again")) == (1, 1)
    assert count(desk, "looks_failed") == 3
