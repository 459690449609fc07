"""What people may do to a job, over a real store: everything is checked first, and each change is kept and recorded."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.jobs.job import JobSpec, load_spec
from bot.jobs.keeping import HERMOD, OPERATOR, Asker, BadJob, JobDraft, build_owner
from bot.storage import open_store
from bot.storage.base import Store
from bot.storage.jobs import JobState
from tests.integration.jobs.desk import ANNA, BO, BY_ANNA, BY_BO, NOW, PLACE, SPEC, THREAD, Desk


async def test_a_checked_job_is_shown_with_its_next_five_times_and_written_as_it_will_be_kept(desk: Desk) -> None:
    wish = replace(SPEC, cron=" 0 9  * * mon-fri", zone="berlin time", task="  slow? ")
    with pytest.raises(BadJob, match="Europe/Berlin"):
        await desk.keeper.check(JobDraft(place=PLACE, spec=wish), now=NOW)
    wish = replace(wish, zone="europe/berlin", targets=("shop", "SHOP"), workers=("Analyst",), template="Daily")
    checked = await desk.keeper.check(JobDraft(place=PLACE, spec=wish), now=NOW)
    assert [time.local for time in checked.next_five] == [
        "2026-03-30 09:00 +02:00",
        "2026-03-31 09:00 +02:00",
        "2026-04-01 09:00 +02:00",
        "2026-04-02 09:00 +02:00",
        "2026-04-03 09:00 +02:00",
    ]
    assert (checked.name, checked.channel, checked.warnings) == ("daily-shop", "#ops", ())
    spec = checked.spec
    assert (spec.cron, spec.zone, spec.task) == ("0 9 * * MON-FRI", "Europe/Berlin", "slow?")
    assert (spec.targets, spec.workers, spec.template) == (("Shop",), ("analyst",), "daily")
    assert await desk.store.list_jobs() == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cron": "0 9 * *"}, "5 cron fields, not 4; for example '0 9 * * MON-FRI'"),
        ({"zone": "Mars/Base"}, "there is no time zone 'Mars/Base'"),
        ({"task": " "}, "the task is empty; say what the report is to find out"),
        ({"task": "x" * 4001}, "4001 characters; say it in at most 4000"),
        ({"targets": ("shp",)}, "there is no target 'shp'; did you mean 'Shop'? there are: Shop, billing"),
        ({"workers": ("sql_optimiser",)}, "there is no worker 'sql_optimiser'; did you mean 'sql_optimizer'?"),
        ({"template": "monthly"}, "there is no template 'monthly'; there are: daily, weekly"),
        ({"deadline_s": 5.0}, "deadline_s is 5; it has to be from 30 to 3600 seconds"),
        ({"grace_s": float("nan")}, "grace_s is nan; it has to be from 0"),
    ],
)
async def test_what_cannot_run_is_refused_with_the_right_form(
    desk: Desk, changes: dict[str, object], said: str
) -> None:
    spec = JobSpec(**{"cron": SPEC.cron, "zone": SPEC.zone, "task": SPEC.task, **changes})  # type: ignore[arg-type]
    with pytest.raises(BadJob) as refused:
        await desk.keeper.check(JobDraft(place=PLACE, spec=spec), now=NOW)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("#ops", "'#ops' is not the address of a channel; write slack:TEAM/CHANNEL"),
        ("slack:T1/C 1", "is not the address of a channel"),
        ("discord:1/2", "discord is not configured; there are: slack"),
        ("slack:T1/C2", "nothing can be posted to #secret: I am not a member; write /invite @hermod there"),
        ("slack:T1/C9", "nothing can be posted to slack:T1/C9: there is no such channel; name one that I am"),
    ],
)
async def test_a_channel_that_cannot_be_posted_to_is_refused_with_its_remedy(desk: Desk, place: str, said: str) -> None:
    with pytest.raises(BadJob) as refused:
        await desk.keeper.check(JobDraft(place=place, spec=SPEC), now=NOW)
    assert said in str(refused.value)


async def test_a_channel_that_could_not_be_looked_at_is_taken_with_a_warning(desk: Desk) -> None:
    checked = await desk.keeper.check(JobDraft(place="slack:T1/C3", spec=SPEC), now=NOW)
    (warning,) = checked.warnings
    assert "could not be looked up (slack did not answer)" in warning


async def test_names_are_well_formed_and_free_or_made_up(desk: Desk) -> None:
    await desk.make("report")
    assert (await desk.keeper.check(JobDraft(place=PLACE, spec=SPEC), now=NOW)).name == "report-2"
    with pytest.raises(BadJob, match="such as 'report-2'"):
        await desk.keeper.check(JobDraft(place=PLACE, spec=SPEC, name="Report"), now=NOW)
    with pytest.raises(BadJob, match="lower-case letters, digits"):
        await desk.keeper.check(JobDraft(place=PLACE, spec=SPEC, name="über nacht"), now=NOW)
    same = await desk.keeper.check(JobDraft(place=PLACE, spec=SPEC), now=NOW, of="Report")
    assert same.name == "report"


async def test_two_people_who_take_one_name_at_once_get_one_job_and_one_clear_word(desk: Desk) -> None:
    checked = await desk.keeper.check(JobDraft(place=PLACE, spec=SPEC, name="same"), now=NOW)
    made = await asyncio.gather(*(desk.keeper.make(checked, by=by) for by in (BY_ANNA, BY_BO)), return_exceptions=True)
    (error,) = (one for one in made if isinstance(one, BaseException))
    assert isinstance(error, BadJob)
    assert "there is a job 'same' already" in str(error)
    assert len(await desk.store.list_jobs()) == 1


async def test_whoever_changes_a_job_becomes_its_owner_and_only_other_times_move_it(desk: Desk) -> None:
    before = await desk.make()
    desk.clock.turn(minutes=5)
    draft = JobDraft(place="slack:T1/C4", spec=replace(SPEC, task="other"), name="renamed")
    checked = await desk.keeper.check(draft, now=desk.clock.now(), of="report")
    row = await desk.keeper.change("report", checked, by=BY_BO)
    assert (row.job_id, row.name, row.place, row.owner, row.owner_name) == (
        before.job_id, "renamed", "slack:T1/C4", "slack:U2", "Bo",
    )  # fmt: skip
    assert (row.next_at, row.thread_key, row.revision) == (before.next_at, THREAD.key, 2)
    assert build_owner(row) == replace(BO)
    later = replace(SPEC, cron="30 10 * * *")
    checked = await desk.keeper.check(JobDraft(place=PLACE, spec=later), now=desk.clock.now(), of="renamed")
    row = await desk.keeper.change("renamed", checked, by=BY_BO)
    assert row.next_at == datetime(2026, 3, 29, 8, 30, tzinfo=UTC)
    assert load_spec(row.spec).cron == "30 10 * * *"


async def test_a_job_is_paused_with_its_reason_and_resumed_from_now_on(desk: Desk) -> None:
    await desk.make()
    row = await desk.keeper.pause("report", "the channel\nis gone", by=HERMOD)
    assert (row.state, row.reason) == (JobState.PAUSED, "the channel is gone")
    desk.clock.turn(days=3)
    await desk.scheduler.tick()
    assert await desk.fired() == []
    row = await desk.keeper.resume("report", by=BY_ANNA)
    assert (row.state, row.reason) == (JobState.ACTIVE, "")
    assert row.next_at == datetime(2026, 4, 1, 7, tzinfo=UTC)
    assert await desk.keeper.resume("report", by=BY_ANNA) == row
    await desk.scheduler.tick()
    assert await desk.fired() == []


async def test_a_deleted_job_is_gone_and_an_unknown_one_is_named_with_what_there_is(desk: Desk) -> None:
    await desk.make()
    assert (await desk.keeper.delete("Report", by=BY_ANNA)).name == "report"
    assert await desk.store.list_jobs() == ()
    await desk.make("daily")
    with pytest.raises(BadJob, match=r"no job 'dayly'; did you mean 'daily'\? there are: daily"):
        await desk.keeper.pause("dayly", "", by=BY_ANNA)


async def test_running_now_puts_a_report_into_the_inbox_also_of_a_paused_job_and_beside_another(desk: Desk) -> None:
    before = await desk.make()
    await desk.keeper.pause("report", "holidays", by=BY_ANNA)
    first = await desk.keeper.run_now("report", author=BO, asked_in=THREAD.key, by=BY_BO)
    second = await desk.keeper.run_now("report", author=ANNA)
    assert desk.woken == 2
    assert (first.author, first.asked_in, first.local, first.sent_at) == (BO, THREAD.key, "", NOW)
    assert first.run_key.startswith("now-")
    found = await desk.fired()
    assert sorted(found, key=lambda f: f.run_key) == sorted([first, second], key=lambda f: f.run_key)
    assert (await desk.load()).next_at == before.next_at


async def test_changes_that_meet_are_all_made(desk: Desk, url: str) -> None:
    await desk.make()
    desks = []
    for _ in range(3):
        store = open_store(url)
        await store.open()
        desks.append(Desk(store, desk.clock))
    try:
        async with asyncio.TaskGroup() as group:
            for n, one in enumerate(desks):
                group.create_task(one.keeper.pause("report", f"reason {n}", by=BY_ANNA))
                group.create_task(one.keeper.run_now("report", author=ANNA))
    finally:
        for one in desks:
            await one.store.close()
    row = await desk.load()
    assert (row.state, row.revision) == (JobState.PAUSED, 4)
    assert len(await desk.fired()) == 3


async def test_each_change_is_a_line_of_the_audit_chain(desk: Desk, store: Store) -> None:
    await desk.make()
    await desk.keeper.pause("report", "", by=BY_BO)
    await desk.keeper.resume("report", by=OPERATOR)
    await desk.keeper.run_now("report", author=ANNA, by=BY_ANNA)
    await desk.keeper.delete("report", by=BY_ANNA)
    assert await store.verify_audit() == (5, None)


async def test_a_job_posts_only_where_its_owners_rights_count(desk: Desk) -> None:
    checked = await desk.keeper.check(JobDraft(place=PLACE, spec=SPEC), now=NOW)
    stranger = Asker(owner="discord:9", name="Di", actor="discord:1/9")
    with pytest.raises(BadJob, match="those count on discord"):
        await desk.keeper.make(checked, by=stranger)
    row = await desk.keeper.make(checked, by=OPERATOR)
    assert (row.owner, row.next_at) == ("", NOW + timedelta(hours=19))
