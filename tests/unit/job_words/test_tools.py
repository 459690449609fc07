"""The tools propose, list and change jobs; a new job, an edit and a deletion wait for a person's word."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.chat import Author, Stop, ThreadRef
from adapters.places import ChannelLook
from agent_core.llm.tokens import load_counter
from bot.access import AccessPolicy
from bot.jobs.calendar import Occurrence
from bot.jobs.desk import EXPIRED
from bot.jobs.job import JobSpec, build_firing, load_spec
from bot.messages import load_inbound
from bot.storage.jobs import JobState
from reading.layout import render_result
from tests.unit.job_words.office import ALICE, BOB, START, Office, open_office

MOST_TOKENS = 450
WHEN = {"when": "every weekday at 9 in Berlin", "task": "what got slower?"}


async def test_a_proposal_shows_the_whole_job_and_schedules_nothing(office: Office) -> None:
    shown = json.loads((await office.call("schedule_report", {**WHEN, "name": "daily", "targets": ["shop"]})).content)
    assert shown["next_times"].split("; ") == [
        "2026-03-11 09:00 +01:00",
        "2026-03-12 09:00 +01:00",
        "2026-03-13 09:00 +01:00",
        "2026-03-16 09:00 +01:00",
        "2026-03-17 09:00 +01:00",
    ]
    assert (shown["job"], shown["owner"], shown["channel"]) == ("daily", "alice", "#c1")
    assert (shown["cron"], shown["timezone"], shown["task"]) == ("0 9 * * MON-FRI", "Europe/Berlin", "what got slower?")
    assert shown["targets"] == "shop"
    assert "latest" in shown["policy"]
    assert "`confirm`" in shown["status"]
    assert await office.store.list_jobs() == ()


async def test_a_proposal_is_laid_out_with_its_state_name_channel_and_times_first(office: Office) -> None:
    result = await office.call("schedule_report", {**WHEN, "name": "daily", "targets": ["shop"]})
    lines = render_result(result.content, {}).splitlines()
    assert [line.partition(":")[0] for line in lines[:4]] == ["- status", "- job", "- channel", "- next times"]
    assert lines[3].count("09:00 +01:00") == 5


async def test_the_confirmed_job_runs_where_and_for_whom_it_was_shown(office: Office) -> None:
    await office.call("schedule_report", {**WHEN, "name": "daily"})
    said = await office.say("confirm")
    row = await office.job("daily")
    assert (row.place, row.owner, row.owner_name, row.thread_key) == (
        "slack:T1/C1",
        "slack:U1",
        "alice",
        "slack:T1/C1/1.0",
    )
    assert load_spec(row.spec) == JobSpec(cron="0 9 * * MON-FRI", zone="Europe/Berlin", task="what got slower?")
    assert said is not None
    for told in ("`daily`", "2026-03-11 09:00 +01:00", "`jobs pause daily`", "`jobs delete daily`"):
        assert told in said
    assert office.audited() == [("job.proposed", "slack:T1/U1", "daily"), ("job.made", "slack:T1/U1", "daily")]


async def test_what_stands_behind_the_time_is_the_task(office: Office) -> None:
    said = "every weekday at 9 in Berlin post the database report here"
    shown = json.loads((await office.call("schedule_report", {"when": said}, said=said)).content)
    assert (shown["cron"], shown["timezone"], shown["task"]) == (
        "0 9 * * MON-FRI",
        "Europe/Berlin",
        "the database report",
    )


async def test_a_word_of_the_time_that_got_lost_is_found_in_the_message(office: Office) -> None:
    said = "post the database report every day at 9 in Berlin"
    shown = json.loads((await office.call("schedule_report", {"when": "day at 9 in Berlin"}, said=said)).content)
    assert (shown["cron"], shown["task"]) == ("0 9 * * *", "the database report")


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("tuesday at 9 in Berlin", "post the report every second tuesday at 9 in Berlin please"),
        ("every day at 9 in Berlin", "post the report every day at 9 in Berlin except on sundays"),
    ],
)
async def test_words_that_were_left_out_of_the_time_are_not_lost(office: Office, when: str, said: str) -> None:
    result = await office.call("schedule_report", {"when": when, "task": "a report"}, said=said)
    assert (result.ok, result.error_code) == (False, "bad_job")


async def test_other_times_in_the_message_do_not_keep_a_job_from_being_made(office: Office) -> None:
    said = "compare monday with tuesday, and post it every day at 9 in Berlin"
    arguments = {"when": "every day at 9 in Berlin", "task": "compare monday with tuesday"}
    assert (await office.call("schedule_report", arguments, said=said)).ok


async def test_a_zone_that_stands_beside_the_time_in_the_message_counts(office: Office) -> None:
    result = await office.call(
        "schedule_report", {"when": "每个工作日9点半"}, said="定时报告：每个工作日9点半，伦敦时间"
    )
    assert json.loads(result.content)["timezone"] == "Europe/London"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"when": "every weekday at 9"}, "in which time zone"),
        ({"when": "at 9 in Berlin"}, "not on which days"),
        ({"when": "every 7 minutes"}, "divide the hour"),
        ({**WHEN, "timezone": "Asia/Tokyo"}, "Europe/Berlin in the words and Asia/Tokyo"),
        ({**WHEN, "timezone": "CST"}, "America/Chicago"),
        ({**WHEN, "when": "every weekday at 9 in Berlin at full moon"}, "'at full moon'"),
        ({**WHEN, "targets": ["shopp"]}, "shop"),
        ({**WHEN, "template": "weekly"}, "weekly-regression"),
        ({**WHEN, "name": "Ünsinn"}, "lower-case"),
        ({**WHEN, "channel": "#ops"}, "by their address"),
        ({**WHEN, "channel": "discord:1/2"}, "elsewhere"),
        ({**WHEN, "channel": "slack:T2/C2"}, "elsewhere"),
        ({**WHEN, "channel": "CGONE"}, "archived"),
        *(({**WHEN, "channel": odd}, "by their address") for odd in ("slack:T1/C1/x", "::C1", "T1/", ".", "C 1", "é")),
    ],
)
async def test_a_job_that_cannot_be_made_is_refused_with_the_right_form(
    office: Office, arguments: dict[str, object], said: str
) -> None:
    office.chat.looks["CGONE"] = ChannelLook(state="gone", name="#gone", what="it is archived", fix="unarchive it")
    result = await office.call("schedule_report", arguments)
    assert (result.ok, result.error_code) == (False, "bad_job")
    assert said in result.content
    assert await office.say("confirm") is None


async def test_another_channel_is_named_by_its_address_and_the_person_is_warned(office: Office) -> None:
    for channel in ("C2", "slack:C2", "slack:T1/C2", "<#C2|ops>"):
        shown = json.loads((await office.call("schedule_report", {**WHEN, "channel": channel})).content)
        assert shown["channel"] == "#c2"
        assert "whether you are in #c2" in " ".join(shown["warnings"])
    await office.say("confirm")
    assert [row.place for row in await office.store.list_jobs()] == ["slack:T1/C2"]


@pytest.mark.parametrize(
    ("when", "targets", "name"),
    [
        ("every day at 9 in Berlin", [], "daily"),
        ("every weekday at 9 in Berlin", ["shop"], "weekday-shop"),
        ("every monday at 9 in Berlin", [], "weekly"),
        ("on the 1st of every month at 9 in Berlin", [], "monthly"),
        ("the last friday of every month at 9 in Berlin", [], "monthly"),
        ("every 15 minutes", [], "hourly"),
    ],
)
async def test_a_job_without_a_name_gets_a_telling_one_that_is_free(
    office: Office, when: str, targets: list[str], name: str
) -> None:
    for expected in (name, f"{name}-2"):
        shown = json.loads((await office.call("schedule_report", {"when": when, "targets": targets})).content)
        assert shown["job"] == expected
        await office.say("confirm")


async def test_steps_of_minutes_need_no_zone(office: Office) -> None:
    shown = json.loads((await office.call("schedule_report", {"when": "every 15 minutes"})).content)
    assert (shown["cron"], shown["timezone"]) == ("*/15 * * * *", "UTC")


async def test_what_no_database_takes_is_left_out(office: Office) -> None:
    shown = json.loads((await office.call("schedule_report", {**WHEN, "task": "a\0b"})).content)
    assert "\0" not in shown["task"]
    assert "there is no job" in (await office.call("change_job", {"name": "a\0", "action": "pause"})).content


# -- access ----------------------------------------------------------------------------------------


async def test_a_channel_where_one_may_not_speak_gets_no_job(tmp_path: Path) -> None:
    async with open_office(tmp_path, policy=AccessPolicy(channels=("C1",))) as office:
        result = await office.call("schedule_report", {**WHEN, "channel": "C2"})
        assert "not open to this channel" in result.content
        assert (await office.call("schedule_report", WHEN)).ok


async def test_a_target_that_is_closed_to_the_channel_gets_no_job_there(tmp_path: Path) -> None:
    policy = AccessPolicy(channel_targets={"C1": ("shop",), "C2": ("billing",)}, targets=("shop", "billing"))
    async with open_office(tmp_path, policy=policy) as office:
        assert (await office.call("schedule_report", {**WHEN, "targets": ["shop"]})).ok
        refused = await office.call("schedule_report", {**WHEN, "targets": ["shop"], "channel": "C2"})
        assert "the target shop is not open" in refused.content


async def test_the_tool_has_to_be_open_by_name_for_commands_too(tmp_path: Path) -> None:
    async with open_office(tmp_path, policy=AccessPolicy(tools=("list_jobs",))) as office:
        assert (await office.call("list_jobs", {})).ok
        assert (await office.call("schedule_report", WHEN)).error_code == "denied"
        told = await office.command("add every weekday at 9 in Berlin: what got slower?")
        assert not told.ok
        assert "tool schedule_report is not open to you" in told.text
        assert "tool change_job is not open to you" in (await office.command("pause daily")).text


async def test_rights_that_were_taken_back_meanwhile_stop_the_confirmation(tmp_path: Path) -> None:
    async with open_office(tmp_path) as office:
        await office.call("schedule_report", {**WHEN, "name": "daily"})
    async with open_office(tmp_path, policy=AccessPolicy(tools=("list_jobs",))) as office:
        said = await office.say("confirm")
        assert said is not None
        assert "nothing has changed" in said
        assert await office.store.list_jobs() == ()


async def test_several_people_who_asked_at_once_get_no_job(office: Office) -> None:
    heard = [office.message("post a report"), office.message("every day at 9 in Berlin", author=BOB)]
    result = await office.call("schedule_report", WHEN, *heard)
    assert (result.ok, result.error_code) == (False, "bad_job")
    assert "several people" in result.content


async def test_a_report_makes_and_changes_no_jobs(office: Office) -> None:
    await office.make()
    firing = build_firing(
        "slack:T1/C1",
        author=ALICE,
        job_id="j1",
        job="daily",
        spec=JobSpec(cron="* * * * *", zone="UTC", task="t"),
        occurrence=Occurrence(at=START, key="k", local=""),
    )
    for tool, arguments in (
        ("schedule_report", WHEN),
        ("change_job", {"name": "daily", "action": "pause"}),
        ("change_job", {"name": "daily", "action": "run"}),
    ):
        result = await office.call(tool, arguments, firing)
        assert (result.ok, result.error_code) == (False, "bad_job")
    assert (await office.job("daily")).state is JobState.ACTIVE


async def test_at_the_terminal_no_job_is_made(office: Office) -> None:
    here = replace(office.message("x"), thread=ThreadRef(platform="terminal", workspace="a", channel="b", thread="c"))
    result = await office.call("schedule_report", WHEN, here)
    assert "hermod jobs" in result.content


# -- the list --------------------------------------------------------------------------------------


async def test_the_list_has_the_jobs_of_the_channel_and_the_persons_own(office: Office) -> None:
    await office.make("here", author=BOB)
    await office.make("mine-there", channel="C2")
    await office.make("theirs-there", author=BOB, channel="C2")
    rows = json.loads((await office.call("list_jobs", {})).content)["rows"]
    assert [row["name"] for row in rows] == ["here", "mine-there"]
    assert rows[0] == {
        "name": "here",
        "when": "0 9 * * MON-FRI Europe/Berlin",
        "next": "2026-03-11 09:00 +01:00",
        "state": "active",
        "owner": "bob",
        "channel": "slack:T1/C1",
        "last_run": None,
    }


async def test_the_own_jobs_of_another_workspace_are_not_listed(office: Office) -> None:
    row = await office.make("here")
    moved = replace(row, place="slack:T2/C9")
    assert await office.store.save_job(moved, expected=row.revision)
    assert json.loads((await office.call("list_jobs", {})).content)["rows"] == []


# -- changes ---------------------------------------------------------------------------------------


async def test_pausing_and_resuming_are_done_at_once_by_anybody_of_the_channel(office: Office) -> None:
    await office.make()
    paused = await office.call("change_job", {"name": "daily", "action": "pause"}, author=BOB)
    assert "is paused" in paused.content
    row = await office.job("daily")
    assert (row.state, row.reason) == (JobState.PAUSED, "paused by bob")
    rows = json.loads((await office.call("list_jobs", {})).content)["rows"]
    assert (rows[0]["state"], rows[0]["next"]) == ("paused (paused by bob)", None)
    resumed = await office.call("change_job", {"name": "daily", "action": "resume"})
    assert "2026-03-11 09:00 +01:00" in resumed.content
    assert office.audited()[-2:] == [("job.paused", "slack:T1/U2", "daily"), ("job.resumed", "slack:T1/U1", "daily")]


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ("when does the job daily run next?", "run"),
        ("<@U0BOT> when did the job daily run last?", "run"),
        ("does the job daily run today?", "run"),
        ("why is the job daily paused?", "pause"),
        ("should I delete the job daily?", "delete"),
        ("don't run the job daily", "run"),
        ("don't stop the report daily", "stop"),
        ("was the report daily stopped?", "stop"),
        ("任务 daily 下次什么时候运行？", "run"),
        ("任务 daily 暂停了吗？", "pause"),
        ("不要运行任务 daily", "run"),
    ],
)
async def test_a_question_about_a_job_is_no_order_to_change_it(office: Office, said: str, action: str) -> None:
    row = await office.make()
    result = await office.call("change_job", {"name": "daily", "action": action}, said=said)
    assert not result.ok
    assert "`jobs show daily`" in result.content
    assert office.waked == 0
    assert await office.job("daily") == row
    assert await office.say("confirm") is None, "nothing was proposed"


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ("run the job daily now", "run"),
        ("can you run the job daily?", "run"),
        ("why don't you run the job daily now?", "run"),
        ("is the job daily fine? run it again", "run"),
        ("what about running daily now?", "run"),
        ("don't run the job daily any more", "pause"),
        ("能运行任务 daily 吗？", "run"),
        ("别再发 daily 了", "pause"),
    ],
)
async def test_an_order_in_other_words_is_one(office: Office, said: str, action: str) -> None:
    await office.make()
    assert (await office.call("change_job", {"name": "daily", "action": action}, said=said)).ok


async def test_a_job_of_another_channel_is_nobody_elses(office: Office) -> None:
    await office.make("secret", author=BOB, channel="C2")
    for action in ("pause", "resume", "run", "delete", "edit"):
        result = await office.call("change_job", {"name": "secret", "action": action, "task": "x"})
        assert "there is no job 'secret' in this channel" in result.content
    assert "secret" not in (await office.call("change_job", {"name": "x", "action": "pause"})).content


async def test_running_now_is_for_the_one_who_asks_and_once_at_a_time(office: Office) -> None:
    await office.make()
    result = await office.call("change_job", {"name": "daily", "action": "run"}, author=BOB)
    assert "slack:T1/C1" in result.content
    (run,) = await office.store.list_job_runs((await office.job("daily")).job_id)
    assert run.state == "waiting"
    assert office.waked == 1
    again = await office.call("change_job", {"name": "daily", "action": "run"})
    assert "is being made already, since 12:00 UTC" in again.content
    assert len(await office.store.list_job_runs((await office.job("daily")).job_id)) == 1


async def test_a_report_that_is_being_made_is_stopped_by_anybody_of_the_channel(office: Office) -> None:
    row = await office.make()
    nothing = await office.call("change_job", {"name": "daily", "action": "stop"}, author=BOB)
    assert "no report of 'daily' is being made now" in nothing.content
    await office.call("change_job", {"name": "daily", "action": "run"})
    (run,) = await office.store.list_job_runs(row.job_id)
    told = await office.call("change_job", {"name": "daily", "action": "stop"}, author=BOB)
    assert "The report of `daily` is being stopped; its channel is told" in told.content
    _, item = await office.store.load_open(run.thread_key)
    stop = load_inbound(item.kind, item.payload)
    assert isinstance(stop, Stop)
    assert (stop.thread.key, stop.author) == (run.thread_key, BOB)
    assert office.waked == 2
    assert await office.job("daily") == row, "its next time and its state stay"
    assert office.audited()[-1] == ("job.stopped", "slack:T1/U2", "daily")


async def test_a_guest_and_people_of_other_channels_stop_no_report(office: Office) -> None:
    row = await office.make()
    await office.call("change_job", {"name": "daily", "action": "run"})
    guest = Author(id="U9", name="guest", guest=True)
    for author, channel in ((guest, "C1"), (BOB, "C2")):
        arguments = {"name": "daily", "action": "stop"}
        assert not (await office.call("change_job", arguments, author=author, channel=channel)).ok
    (run,) = await office.store.list_job_runs(row.job_id)
    assert len(await office.store.load_open(run.thread_key)) == 1


async def test_an_edit_waits_and_makes_the_editor_the_owner(office: Office) -> None:
    await office.make()
    shown = json.loads(
        (
            await office.call("change_job", {"name": "daily", "action": "edit", "when": "every day at 8"}, author=BOB)
        ).content
    )
    assert (shown["cron"], shown["timezone"], shown["task"]) == ("0 8 * * *", "Europe/Berlin", "what got slower?")
    assert load_spec((await office.job("daily")).spec).cron == "0 9 * * MON-FRI"
    assert "asked for it: bob (to change `daily`)" in str(await office.say("confirm")), "it is Bob's"
    said = await office.say("confirm", author=BOB)
    row = await office.job("daily")
    assert (load_spec(row.spec).cron, row.owner, row.owner_name) == ("0 8 * * *", "slack:U2", "bob")
    assert said is not None
    assert "bob now" in said


async def test_an_edit_that_changes_nothing_is_refused(office: Office) -> None:
    await office.make()
    result = await office.call("change_job", {"name": "daily", "action": "edit"})
    assert "changes nothing" in result.content


async def test_a_deletion_waits_for_the_word(office: Office) -> None:
    await office.make()
    result = await office.call("change_job", {"name": "daily", "action": "delete"})
    assert "not deleted yet" in result.content
    assert (await office.job("daily")).state is JobState.ACTIVE
    assert "is deleted" in str(await office.say("确认"))
    assert await office.store.list_jobs() == ()


async def test_a_job_of_the_settings_can_be_paused_but_not_edited_or_deleted(office: Office) -> None:
    row = await office.make()
    assert await office.store.save_job(replace(row, origin="settings", owner=""), expected=row.revision)
    for action in ("delete", "edit"):
        result = await office.call("change_job", {"name": "daily", "action": action, "task": "x"})
        assert "[reports.daily]" in result.content
    assert (await office.call("change_job", {"name": "daily", "action": "pause"})).ok


async def test_a_guest_who_may_not_speak_changes_nothing(office: Office) -> None:
    await office.make()
    guest = Author(id="U9", name="guest", guest=True)
    assert not (await office.call("change_job", {"name": "daily", "action": "pause"}, author=guest)).ok
    assert (await office.job("daily")).state is JobState.ACTIVE


async def test_the_schemas_stay_small(office: Office) -> None:
    """They go along with each request to a model."""
    sent = [{"name": s.name, "description": s.description, "parameters": s.parameters} for s in office.registry.specs()]
    assert load_counter("gpt-4o-mini").count(json.dumps(sent, ensure_ascii=False)) <= MOST_TOKENS


async def test_a_proposal_ends_after_a_quarter_of_an_hour(office: Office) -> None:
    await office.call("schedule_report", WHEN)
    office.clock.at += timedelta(minutes=15)
    assert await office.say("confirm", author=BOB) is None, "what waited for somebody else stays untouched"
    assert await office.say("confirm") == EXPIRED
    assert await office.say("confirm") is None
    assert await office.store.list_jobs() == ()
