"""Jobs of the settings as rows: what a start keeps, changes and removes, also when several processes start at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from adapters.chat import AdapterError
from bot.jobs.configured import FREE_LOOKS, LEASE_S, RENEW_S, ConfiguredJobs
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


def configure(desk: Desk, reports: Mapping[str, ReportSettings], *, owner: str = "one") -> ConfiguredJobs:
    """A start of the process ``owner``."""
    return ConfiguredJobs(desk.store, desk.clock, reports, find_workspace=find_t1, owner=owner)


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
        starts = [
            ConfiguredJobs(one, desk.clock, wanted, find_workspace=find_t1, owner=f"process {n}")
            for n, one in enumerate(stores)
        ]
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
        desk.store,
        desk.clock,
        {"daily": report(), "new": report(channel="slack:C4")},
        find_workspace=find,
        owner="one",
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


# -- different settings on one database --------------------------------------------------------------


def told(capsys: pytest.CaptureFixture[str], event: str) -> list[str]:
    """The lines of the log about an event since the last look."""
    return [line for line in capsys.readouterr().out.splitlines() if event in line]


async def names(desk: Desk) -> list[str]:
    return [row.name for row in await desk.store.list_jobs()]


async def test_a_process_does_not_delete_the_jobs_that_another_living_one_has(
    desk: Desk, other: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    first = configure(desk, {"daily": report(), "shared": report()})
    await first.sync()
    before = await desk.load("daily")
    second = ConfiguredJobs(
        other, desk.clock, {"shared": report(), "weekly": report()}, find_workspace=find_t1, owner="two"
    )
    await second.sync()
    assert await names(desk) == ["daily", "shared", "weekly"]
    (line,) = told(capsys, "report_kept")
    assert "report=daily" in line
    assert "these settings have no [reports.daily], but another running process has" in line
    for _ in range(20):  # longer than the leases last without being renewed
        desk.clock.turn(seconds=RENEW_S)
        await first.look()
        await second.look()
    assert await desk.load("daily") == before
    assert told(capsys, "report_") == [], "it is said once"


async def test_a_job_goes_once_no_process_has_its_table_any_more_and_that_is_said(
    desk: Desk, other: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """An old process ends beside the new one, as in a rolling restart."""
    old = configure(desk, {"daily": report(), "shared": report()})
    await old.sync()
    new = ConfiguredJobs(other, desk.clock, {"shared": report()}, find_workspace=find_t1, owner="two")
    await new.sync()
    await old.release()
    desk.clock.turn(seconds=RENEW_S)
    await new.look()
    assert await names(desk) == ["daily", "shared"], "another process with its table may be about to take it over"
    capsys.readouterr()
    desk.clock.turn(seconds=RENEW_S)
    await new.look()
    assert await names(desk) == ["shared"]
    (line,) = told(capsys, "report_deleted")
    assert "no running process has [reports.daily] in its settings" in line
    await new.look()
    assert await names(desk) == ["shared"]


async def test_the_second_process_with_a_table_keeps_its_job_when_the_first_one_ends(desk: Desk, other: Store) -> None:
    first, twin = configure(desk, {"daily": report()}), configure(desk, {"daily": report()}, owner="twin")
    await first.sync()
    await twin.sync()
    before = await desk.load("daily")
    stranger = ConfiguredJobs(other, desk.clock, {}, find_workspace=find_t1, owner="stranger")
    await stranger.sync()
    await first.release()
    for _ in range(4):
        desk.clock.turn(seconds=RENEW_S)
        await stranger.look()
        await twin.look()
    assert await desk.load("daily") == before


async def test_the_jobs_of_a_process_that_was_killed_elsewhere_go_when_its_lease_is_over(desk: Desk) -> None:
    await configure(desk, {"daily": report()}, owner="killed").sync()
    new = configure(desk, {})
    await new.sync()
    desk.clock.turn(seconds=LEASE_S - 1)
    await new.look()
    assert await names(desk) == ["daily"]
    for _ in range(FREE_LOOKS):
        desk.clock.turn(seconds=RENEW_S)
        await new.look()
    assert await names(desk) == []


async def test_a_job_that_was_deleted_all_the_same_is_made_again_and_that_is_said(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = configure(desk, {"Daily": report()})
    await jobs.sync()
    await desk.store.delete_job("s-daily")
    capsys.readouterr()
    await jobs.look()
    assert await names(desk) == ["daily"]
    assert len(told(capsys, "report_made_again")) == 1


async def test_two_texts_of_one_table_are_told_by_both_processes_and_the_newest_start_counts(
    desk: Desk, other: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    first = configure(desk, {"daily": report()})
    await first.sync()
    second = ConfiguredJobs(other, desk.clock, {"daily": report(task="another")}, find_workspace=find_t1, owner="two")
    await second.sync()
    assert "another running process has another text of it" in told(capsys, "report_differs")[0]
    for _ in range(3):
        await first.look()
        await second.look()
    (line,) = told(capsys, "report_differs")
    assert "another process gave it another text" in line
    assert load_spec((await desk.load("daily")).spec).task == "another"
