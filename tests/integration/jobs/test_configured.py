"""Jobs of the settings as rows: what a start keeps, changes and removes, also when several processes start at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from adapters.chat import AdapterError
from bot.jobs.configured import ConfiguredJobs
from bot.jobs.job import load_spec
from bot.settings_tree import ReportSettings
from bot.storage import open_store
from bot.storage.base import Store
from bot.storage.jobs import JobState
from tests.integration.jobs.desk import BY_ANNA, NOW, PLACE, SPEC, Desk


def report(**changes: object) -> ReportSettings:
    right = {"cron": "0 9 * * *", "timezone": "europe/berlin", "channel": "slack:C1", "task": " what got slower? "}
    return ReportSettings.model_validate(right | changes)


async def find_t1(platform: str) -> str:
    return "T1"


def configure(desk: Desk, reports: Mapping[str, ReportSettings]) -> ConfiguredJobs:
    return ConfiguredJobs(desk.store, desk.clock, reports, find_workspace=find_t1)


async def sync(desk: Desk, **reports: ReportSettings) -> None:
    assert await configure(desk, reports).sync()


async def test_a_table_of_the_settings_becomes_a_job_of_the_operator(desk: Desk) -> None:
    await sync(desk, Daily=report(targets=["Shop"], deadline_s=90))
    row = await desk.load("daily")
    assert (row.job_id, row.origin, row.place, row.owner) == ("s-daily", "settings", "slack:T1/C1", "")
    assert row.next_at == datetime(2026, 3, 29, 7, tzinfo=UTC)
    spec = load_spec(row.spec)
    assert (spec.cron, spec.zone, spec.task) == ("0 9 * * *", "Europe/Berlin", "what got slower?")
    assert (spec.targets, spec.deadline_s) == (("Shop",), 90)
    desk.clock.at = row.next_at
    await desk.scheduler.tick()
    (firing,) = await desk.fired()
    assert (firing.author.id, firing.job) == ("settings", "daily")


async def test_an_unchanged_one_keeps_its_time_so_that_downtime_is_made_up_for(desk: Desk) -> None:
    await sync(desk, daily=report(grace_s=86_400))
    before = await desk.load("daily")
    desk.clock.turn(hours=30)
    await sync(desk, daily=report(grace_s=86_400))
    assert await desk.load("daily") == before
    await desk.scheduler.tick()
    (firing,) = await desk.fired()
    assert firing.local == "2026-03-29 09:00 +02:00"


async def test_another_time_begins_from_now_on_and_another_task_keeps_the_time(desk: Desk) -> None:
    await sync(desk, daily=report())
    desk.clock.turn(hours=30)
    await sync(desk, daily=report(task="another"))
    row = await desk.load("daily")
    assert row.next_at == datetime(2026, 3, 29, 7, tzinfo=UTC)
    assert load_spec(row.spec).task == "another"
    await sync(desk, daily=report(task="another", timezone="UTC"))
    assert (await desk.load("daily")).next_at == datetime(2026, 3, 30, 9, tzinfo=UTC)


async def test_one_that_is_gone_from_the_settings_is_deleted_and_jobs_of_people_stay(desk: Desk) -> None:
    await desk.make("mine")
    await sync(desk, daily=report(), weekly=report())
    await sync(desk, weekly=report())
    assert [row.name for row in await desk.store.list_jobs()] == ["mine", "weekly"]
    await configure(desk, {}).sync(quick=True)
    assert [row.name for row in await desk.store.list_jobs()] == ["mine", "weekly"]


async def test_a_pause_lasts_until_the_text_changes_and_leaves_nothing_to_make_up_for(desk: Desk) -> None:
    await sync(desk, daily=report())
    await desk.keeper.pause("daily", "too loud", by=BY_ANNA)
    desk.clock.turn(hours=30)
    await sync(desk, daily=report())
    row = await desk.load("daily")
    assert (row.state, row.reason) == (JobState.PAUSED, "too loud")
    await sync(desk, daily=report(task="quieter"))
    row = await desk.load("daily")
    assert (row.state, row.reason) == (JobState.ACTIVE, "")
    assert row.next_at == datetime(2026, 3, 30, 7, tzinfo=UTC)


async def test_a_job_of_the_same_name_that_people_made_gets_another_name_and_goes_on(desk: Desk) -> None:
    mine = await desk.make("daily")
    await sync(desk, daily=report())
    assert (await desk.load("daily")).origin == "settings"
    renamed = await desk.load("daily-chat")
    assert (renamed.job_id, renamed.next_at, renamed.owner) == (mine.job_id, mine.next_at, "slack:U1")


async def test_processes_that_start_at_once_make_one_row_and_fail_in_nothing(desk: Desk, url: str) -> None:
    stores = [open_store(url) for _ in range(4)]
    for one in stores:
        await one.open()
    try:
        await desk.make("daily")
        wanted = {"daily": report(), "weekly": report(cron="0 8 * * MON")}
        starts = [ConfiguredJobs(one, desk.clock, wanted, find_workspace=find_t1) for one in stores]
        assert await asyncio.gather(*(start.sync() for start in starts)) == [True] * 4
    finally:
        for one in stores:
            await one.close()
    assert sorted(row.name for row in await desk.store.list_jobs()) == ["daily", "daily-chat", "weekly"]


async def test_while_slack_does_not_answer_a_known_channel_keeps_its_place_and_a_new_one_waits(desk: Desk) -> None:
    await sync(desk, daily=report())
    answers = False

    async def find(platform: str) -> str:
        if answers:
            return "T1"
        raise AdapterError("slack cannot be reached")

    jobs = ConfiguredJobs(
        desk.store, desk.clock, {"daily": report(), "new": report(channel="slack:C4")}, find_workspace=find
    )
    assert not await jobs.sync()
    assert [row.name for row in await desk.store.list_jobs()] == ["daily"]
    running = asyncio.create_task(jobs.run(desk.adapters))
    await desk.clock.slept.wait()
    answers = True
    await running
    assert (await desk.load("new")).place == "slack:T1/C4"


async def test_a_channel_that_is_closed_is_told_at_the_start(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    await configure(desk, {"daily": report(channel="slack:C2"), "fine": report()}).run(desk.adapters)
    told = [line for line in capsys.readouterr().out.splitlines() if "report_channel_closed" in line]
    assert len(told) == 1
    assert "write /invite @hermod there" in told[0]


async def test_a_settings_job_is_changed_and_deleted_in_the_settings_only(desk: Desk, store: Store) -> None:
    from bot.jobs.keeping import BadJob, JobDraft

    await sync(desk, daily=report())
    checked = await desk.keeper.check(JobDraft(place=PLACE, spec=SPEC), now=NOW, of="daily")
    for refused in (desk.keeper.delete("daily", by=BY_ANNA), desk.keeper.change("daily", checked, by=BY_ANNA)):
        with pytest.raises(BadJob, match=r"\[reports.daily\] of hermod.toml"):
            await refused
    assert (await store.list_jobs())[0].revision == 1
    assert (await desk.load("daily")).created_at - NOW < timedelta(seconds=1)
