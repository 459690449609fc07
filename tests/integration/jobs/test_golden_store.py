"""The golden calendar through the scheduler and a real store: twenty zones, four hundred days, jumps and downtime.

What is expected comes from the zones' own rules (``tests/unit/jobs/test_golden_calendar.py``), without a cron library.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import pytest
import structlog

from bot.jobs.job import JobSpec, dump_spec
from bot.storage.base import Store
from bot.storage.jobs import JobRow, JobState
from bot.storage.sqlite import SqliteStore
from tests.integration.jobs.desk import PLACE, Desk
from tests.unit.jobs.test_golden_calendar import BEGIN, END, JOBS, ZONES, expect, make

QUARTERS = ("Europe/Berlin", "Australia/Lord_Howe")
EVERYWHERE = ("at half past two", "weekday", "monthly")
PLAN = [(job, zone) for zone in ZONES for job in EVERYWHERE] + [("daily", zone) for zone in ZONES[::7]]
GRACE = timedelta(hours=6)
MEMORY = Path("/dev/shm")
HAS_MEMORY = MEMORY.is_dir()


def live(rng: random.Random, longest: timedelta) -> Iterator[datetime]:
    """What the clock shows at each look: hours and days apart, and now and then set back."""
    now = BEGIN
    while now < END:
        yield now
        now += longest * rng.random()
        if rng.random() < 0.1:
            now -= timedelta(hours=30) * rng.random()
    yield END


async def save(store: Store, name: str, spec: JobSpec) -> JobRow:
    first = make(name.partition(" in ")[0], spec.zone).next(BEGIN)
    assert first is not None
    row = JobRow(
        job_id=name,
        name=name,
        origin="chat",
        place=PLACE,
        owner="slack:U1",
        owner_name="Anna",
        spec=dump_spec(spec),
        state=JobState.ACTIVE,
        reason="",
        next_at=first.at,
        thread_key="",
        created_at=BEGIN,
        updated_at=BEGIN,
    )
    assert await store.save_job(row, expected=None)
    return row


async def keys_of(store: Store, name: str) -> list[str]:
    runs = await store.list_job_runs(name, limit=100_000)
    assert {run.state for run in runs} <= {"waiting"}
    return [run.run_key for run in reversed(runs)]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Twenty thousand lines of the log are not what is looked at here."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """On a file whose flushes cost nothing, where the system has such: a crash of the machine is not tried here."""
    with TemporaryDirectory(dir=MEMORY if HAS_MEMORY else tmp_path) as folder:
        store = SqliteStore(f"{folder}/hermod.db")
        await store.open()
        yield Desk(store)
        await store.close()


async def test_every_local_occurrence_of_twenty_zones_is_fired_once(desk: Desk) -> None:
    spec = JobSpec(cron="", zone="", task="t", catch_up="all", grace_s=7 * 86_400, overlap="queue")
    for job, zone in PLAN:
        await save(desk.store, f"{job} in {zone}", replace(spec, cron=JOBS[job], zone=zone))
    for now in live(random.Random(8), timedelta(days=6.9)):
        desk.clock.at = now
        await desk.scheduler.tick()
    total = 0
    for job, zone in PLAN:
        wanted = [f"{at.astimezone(ZoneInfo(zone)):%Y-%m-%dT%H:%M}" for at in expect(job, zone)]
        assert await keys_of(desk.store, f"{job} in {zone}") == wanted
        total += len(wanted)
    assert (await desk.store.count_rows()).inbox_open == total > 14_000


async def test_jobs_of_every_quarter_run_as_their_policy_says_of_what_was_missed(desk: Desk) -> None:
    spec = JobSpec(cron=JOBS["every quarter"], zone="", task="t", grace_s=GRACE.total_seconds(), overlap="queue")
    wanted: dict[str, list[str]] = {}
    decided: dict[str, int] = {}
    for zone in QUARTERS:
        for policy in ("none", "latest"):
            name = f"every quarter in {zone} {policy}"
            await save(desk.store, name, replace(spec, zone=zone, catch_up=policy))
            wanted[name], decided[name] = [], 0
    for now in live(random.Random(9), timedelta(hours=40)):
        desk.clock.at = now
        await desk.scheduler.tick()
        for name in wanted:
            expected = expect("every quarter", name.split()[3])
            until = max(decided[name], bisect_right(expected, now))
            late = timedelta(minutes=1) if name.endswith("none") else GRACE
            fresh = [at for at in expected[max(decided[name], until - 30) : until] if now - at <= late]
            wanted[name] += [f"{at:%Y-%m-%dT%H:%MZ}" for at in fresh[-1:]]
            decided[name] = until
    for name, keys in wanted.items():
        assert await keys_of(desk.store, name) == keys
        assert len(keys) > (1 if name.endswith("none") else 200)
