"""``/jobs`` and ``/report``: the same as by words, without a model; as mentions too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adapters.chat import Message, ThreadRef
from bot.commands import JOBS, REPORT, Question, list_slash_commands
from bot.jobs.job import load_spec
from bot.storage.jobs import JobState
from tests.unit.job_words.office import BOB, Office, open_office


async def test_jobs_alone_lists_them_or_says_how_one_is_made(office: Office) -> None:
    empty = await office.command("")
    assert "no jobs here yet" in empty.text
    assert "/jobs add every weekday at 9 in Berlin" in empty.text
    await office.make()
    told = await office.command("")
    assert (
        "`daily`: `0 9 * * MON-FRI` Europe/Berlin, active, next 2026-03-11 09:00 +01:00; owner alice; never ran"
        in told.text
    )
    assert told.private, "a slash command is answered to the one who gave it"


@pytest.mark.parametrize(
    "words",
    [
        "every weekday at 9 in Berlin: what got slower?",
        '"0 9 * * MON-FRI" Europe/Berlin what got slower?',
        "0 9 * * MON-FRI Europe/Berlin what got slower?",
        '0 9 * * MON-FRI timezone=Berlin task="what got slower?"',
    ],
)
async def test_add_shows_the_job_and_confirm_makes_it(office: Office, words: str) -> None:
    shown = await office.command(f"add {words} name=daily")
    assert shown.ok, shown.text
    for told in ("`daily`", "#c1 (slack:T1/C1)", "alice", "`0 9 * * MON-FRI` in Europe/Berlin", "what got slower?"):
        assert told in shown.text
    assert shown.text.count("+01:00") == 5
    assert "`/jobs confirm`" in shown.text
    assert await office.store.list_jobs() == ()
    made = await office.command("confirm")
    assert "is scheduled" in made.text
    assert "`/jobs pause daily`" in made.text
    spec = load_spec((await office.job("daily")).spec)
    assert (spec.cron, spec.zone, spec.task) == ("0 9 * * MON-FRI", "Europe/Berlin", "what got slower?")


async def test_a_slash_command_is_confirmed_by_the_same_person_in_the_same_channel(office: Office) -> None:
    await office.command("add every day at 9 in Berlin")
    assert "asked for it: alice (to make `daily`)" in (await office.command("confirm", author=BOB)).text
    assert "Nothing waits" in (await office.command("confirm", channel="C2")).text
    assert await office.say("confirm", thread="7.0") is None
    assert "is scheduled" in (await office.command("confirm")).text


async def test_the_prefix_of_slash_commands_is_told(tmp_path: Path) -> None:
    async with open_office(tmp_path, prefix="ops-") as office:
        shown = await office.command("add every day at 9 in Berlin", name="ops-jobs")
        assert "`/ops-jobs confirm`" in shown.text


async def test_a_mention_in_a_thread_is_the_twin(office: Office) -> None:
    await office.make()
    assert "`daily`" in (await office.command("", mention="3.0")).text
    assert "is paused" in (await office.command("pause daily", mention="3.0")).text
    assert (await office.job("daily")).state is JobState.PAUSED
    assert "goes on" in (await office.command("resume daily", mention="3.0")).text
    shown = await office.command("delete daily", mention="3.0")
    assert "Write `confirm`" in shown.text
    assert not shown.private
    assert "is deleted" in str(await office.say("confirm", thread="3.0"))


@pytest.mark.parametrize(
    "text",
    [
        "jobs are failing on shop since monday",
        "jobs pause",
        "jobs pause everything that is slow",
        "jobs show me all of them",
        "report daily",
        "report on the slow queries of shop",
    ],
)
async def test_a_sentence_that_begins_alike_stays_a_question(office: Office, text: str) -> None:
    message: Message = office.message(text)
    assert not office.commands.is_command(message)


async def test_show_tells_all_of_one_job(office: Office) -> None:
    await office.make()
    text = (await office.command("show daily")).text
    for told in (
        "`daily`",
        "slack:T1/C1",
        "alice",
        "what got slower?",
        "2026-03-11 09:00 +01:00",
        "never ran",
        "latest",
    ):
        assert told in text


@pytest.mark.parametrize("mention", ["", "1.0"])
async def test_the_command_stops_a_report(office: Office, mention: str) -> None:
    row = await office.make()
    refused = await office.command("stop daily", mention=mention)
    assert "No report of 'daily' is being made now" in refused.text
    await office.command("run daily")
    told = await office.command("stop daily", author=BOB, mention=mention)
    assert f"`{'' if mention else '/'}jobs pause daily`" in told.text
    (run,) = await office.store.list_job_runs(row.job_id)
    assert [item.kind for item in await office.store.load_open(run.thread_key)] == ["firing", "stop"]
    await office.end_report(error="cancelled", reason="by bob")
    assert "(stopped: by bob)" in (await office.command("", mention=mention)).text


async def test_a_report_that_failed_is_listed_as_failed_with_its_reason(office: Office) -> None:
    await office.make()
    await office.command("run daily")
    await office.end_report(error="deadline", reason="the run took longer than 600 s")
    line = "2026-03-10 13:00 +01:00 (failed: the run took longer than 600 s)"
    assert f"; last {line}" in (await office.command("")).text
    assert f"- last: {line}" in (await office.command("show daily")).text
    assert line in (await office.call("list_jobs", {})).content
    await office.command("run daily")
    await office.end_report()
    assert "(done)" in (await office.command("")).text


async def test_a_job_of_the_settings_with_an_underscore_is_found_by_its_name(office: Office) -> None:
    row = await office.make()
    assert await office.store.save_job(replace(row, name="daily_shop", origin="settings"), expected=row.revision)
    assert "**Job `daily_shop`**" in (await office.command("show daily_shop", mention="7.0")).text
    assert "is paused" in (await office.command("pause daily_shop")).text


async def test_at_the_terminal_jobs_points_to_the_command_line(office: Office) -> None:
    here = ThreadRef(platform="terminal", workspace="local", channel="chat", thread="1")
    given = replace(office.message("jobs"), thread=here)
    ctx = office.context(given)
    reading = office.commands.read(ctx, given)
    assert not isinstance(reading, Question)
    told = await office.commands.run(ctx, reading)
    assert not told.ok
    assert "`hermod jobs`" in told.text


async def test_report_runs_a_job_now_and_says_where(office: Office) -> None:
    await office.make()
    told = await office.command("daily", name="report", author=BOB)
    assert "is posted in this channel" in told.text
    assert office.waked == 1
    elsewhere = await office.command("daily", name="report", channel="C2")
    assert "being made already" in elsewhere.text, "it is Alice's own, so she may name it there"


async def test_an_edit_by_command_keeps_what_it_does_not_name(office: Office) -> None:
    await office.make()
    shown = await office.command("edit daily every day at 8:30")
    assert "`30 8 * * *` in Europe/Berlin" in shown.text
    await office.command("confirm")
    spec = load_spec((await office.job("daily")).spec)
    assert (spec.cron, spec.task) == ("30 8 * * *", "what got slower?")
    await office.command('edit daily task="locks only" name=nightly')
    await office.command("confirm nightly")
    spec = load_spec((await office.job("nightly")).spec)
    assert (spec.cron, spec.task) == ("30 8 * * *", "locks only")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pause", "say which job"),
        ("pause nothing-there", "there is no job 'nothing-there'"),
        ("frobnicate daily", "jobs knows no 'frobnicate'"),
        ("add", "no schedule"),
        ("add every day at 9", "in which time zone"),
        ("add at 9 in Berlin", "not on which days"),
        ("add every second tuesday at 9 in Berlin", "every second"),
        ("add 0 25 * * * Europe/Berlin x", "bad hour"),
    ],
)
async def test_what_cannot_be_done_is_told_with_how_it_is_written(office: Office, text: str, said: str) -> None:
    told = await office.command(text)
    assert (told.ok, told.private) == (False, True)
    assert said.casefold() in told.text.casefold()
    assert "`/jobs [show" in told.text
    assert await office.store.list_jobs() == ()


async def test_they_are_behind_hermod_too(office: Office) -> None:
    await office.make()
    assert "`daily`" in (await office.command("jobs", name="hermod")).text
    assert "is paused" in (await office.command("jobs pause daily", name="hermod")).text


def test_both_are_slash_commands() -> None:
    assert {JOBS.name, REPORT.name} <= {command.name for command in list_slash_commands(())}
