"""``confirm`` and ``cancel`` answer a proposal of the person who says them, and are ordinary words otherwise."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.chat import Author
from adapters.places import ChannelLook
from bot.jobs.desk import EXPIRED
from bot.jobs.job import JobSpec, load_spec
from bot.jobs.proposals import Decision, Wanted, dump_wanted, load_wanted, read_decision
from bot.storage.jobs import Proposal
from bot.words import is_word
from tests.unit.job_words.office import BOB, Office

WHEN = {"when": "every weekday at 9 in Berlin", "task": "what got slower?", "name": "daily"}


@pytest.mark.parametrize(
    "word", ["confirm", "Confirm.", "confirm daily", "confirm `daily`", "CONFIRM", "确认", "确认 daily"]
)
async def test_each_way_of_confirming_makes_the_job(office: Office, word: str) -> None:
    await office.call("schedule_report", WHEN)
    assert is_word(office.message(word)), "it shares a turn with no other message"
    assert "is scheduled" in str(await office.say(word))
    assert [row.name for row in await office.store.list_jobs()] == ["daily"]


@pytest.mark.parametrize("word", ["cancel", "cancel daily", "取消"])
async def test_each_way_of_cancelling_drops_it(office: Office, word: str) -> None:
    await office.call("schedule_report", WHEN)
    assert "nothing has changed" in str(await office.say(word))
    assert await office.say("confirm") is None
    assert await office.store.list_jobs() == ()
    assert [action for action, *_ in office.audited()] == ["job.proposed", "job.proposal_cancelled"]


@pytest.mark.parametrize(
    "text",
    [
        "confirm that shop is slow",
        "please confirm",
        "cancel the query 17",
        "ok",
        "yes",
        "confirmed",
        "确认一下慢查询",
        "",
    ],
)
async def test_anything_else_is_a_question(office: Office, text: str) -> None:
    await office.call("schedule_report", WHEN)
    assert read_decision(text) is None
    assert not is_word(office.message(text))
    assert await office.say(text) is None
    assert "is scheduled" in str(await office.say("confirm"))


async def test_without_a_proposal_the_word_is_a_question(office: Office) -> None:
    assert await office.say("confirm") is None
    assert await office.say("cancel") is None


async def test_only_the_one_who_asked_confirms_and_only_in_that_thread(office: Office) -> None:
    await office.call("schedule_report", WHEN)
    for word in ("confirm", "确认", "cancel", "confirm daily"):
        told = str(await office.say(word, author=BOB))
        assert "waits for the word of the person who asked for it: alice (to make `daily`)" in told
        assert "Nothing has changed" in told
    assert await office.say("confirm", thread="2.0") is None
    assert await office.say("confirm", channel="C2") is None
    assert await office.store.list_jobs() == ()
    assert "is scheduled" in str(await office.say("confirm"))


async def test_everybody_for_whose_word_something_waits_is_named(office: Office) -> None:
    await office.make("weekly")
    await office.call("schedule_report", WHEN)
    await office.call("change_job", {"name": "weekly", "action": "delete"}, author=BOB)
    told = str(await office.say("confirm", author=Author(id="U3", name="carol")))
    assert "alice (to make `daily`) and bob (to delete `weekly`)" in told
    assert "is scheduled" in str(await office.say("confirm")), "it still waits"
    assert "is deleted" in str(await office.say("confirm", author=BOB))
    assert await office.say("confirm", author=BOB) is None


async def test_a_proposal_of_an_earlier_version_names_who_asked_by_their_id(office: Office) -> None:
    for author, body in (("slack:U1", '{"action": "delete", "name": "daily"}'), ("slack:U2", "{}")):
        proposal = Proposal(
            thread_key=office.message("").thread.key, author=author, body=body, created_at=office.clock.now()
        )
        await office.store.save_proposal(proposal)
    told = str(await office.say("confirm", author=Author(id="U3", name="carol")))
    assert "U1 (to delete `daily`) and U2." in told


async def test_a_proposal_is_done_once(office: Office) -> None:
    await office.call("schedule_report", WHEN)
    assert "is scheduled" in str(await office.say("confirm"))
    assert await office.say("confirm") is None


async def test_another_name_leaves_the_proposal_waiting(office: Office) -> None:
    await office.call("schedule_report", WHEN)
    assert "`daily`, not `weekly`" in str(await office.say("confirm weekly"))
    office.clock.at += timedelta(minutes=14)
    assert "is scheduled" in str(await office.say("confirm daily"))


async def test_naming_another_job_does_not_make_a_proposal_wait_longer(office: Office) -> None:
    await office.call("schedule_report", WHEN)
    office.clock.at += timedelta(minutes=14)
    await office.say("confirm weekly")
    office.clock.at += timedelta(minutes=1)
    assert await office.say("confirm daily") == EXPIRED


async def test_a_new_proposal_takes_the_place_of_the_last_one(office: Office) -> None:
    await office.call("schedule_report", WHEN)
    await office.call("schedule_report", {**WHEN, "name": "other"})
    await office.say("confirm")
    assert [row.name for row in await office.store.list_jobs()] == ["other"]


async def test_a_name_that_was_taken_meanwhile_is_told(office: Office) -> None:
    await office.call("schedule_report", WHEN, author=BOB)
    await office.make("daily")
    said = str(await office.say("confirm", author=BOB))
    assert "nothing has changed" in said
    assert "there is a job 'daily' already" in said
    assert (await office.job("daily")).owner_name == "alice"


async def test_a_channel_that_went_meanwhile_is_told(office: Office) -> None:
    await office.call("schedule_report", WHEN)
    office.chat.looks["C1"] = ChannelLook(state="closed", name="#ops", what="I am not a member", fix="invite me")
    said = str(await office.say("confirm"))
    assert "I am not a member; invite me" in said
    assert await office.store.list_jobs() == ()


@pytest.mark.parametrize("action", ["edit", "delete"])
async def test_a_job_that_was_changed_meanwhile_is_left_alone(office: Office, action: str) -> None:
    await office.make()
    await office.call("change_job", {"name": "daily", "action": action, "when": "every day at 8 in Berlin"})
    await office.call("change_job", {"name": "daily", "action": "pause"}, author=BOB)
    assert "was changed since you were shown it" in str(await office.say("confirm"))
    assert load_spec((await office.job("daily")).spec).cron == "0 9 * * MON-FRI"


async def test_a_job_that_was_deleted_meanwhile_is_told(office: Office) -> None:
    row = await office.make()
    await office.call("change_job", {"name": "daily", "action": "delete"})
    await office.store.delete_job(row.job_id)
    assert "there is no job 'daily'" in str(await office.say("confirm"))


async def test_a_proposal_that_cannot_be_read_is_told(office: Office) -> None:
    await office.store.save_proposal(
        Proposal(thread_key="slack:T1/C1/1.0", author="slack:U1", body="{}", created_at=office.clock.now())
    )
    assert "ask me again" in str(await office.say("confirm"))


async def test_an_edit_in_a_paused_job_is_told_to_be_paused_still(office: Office) -> None:
    await office.make()
    await office.call("change_job", {"name": "daily", "action": "pause"})
    await office.call("change_job", {"name": "daily", "action": "edit", "task": "locks"})
    assert "still paused" in str(await office.say("confirm"))


NAMES = st.from_regex(r"[a-z0-9][a-z0-9-]{0,62}", fullmatch=True)


@given(st.text(max_size=40))
def test_no_text_breaks_the_reading_of_a_decision(text: str) -> None:
    found = read_decision(text)
    assert found is None or found.word in ("confirm", "cancel")


@given(NAMES)
def test_a_named_decision_is_read_back(name: str) -> None:
    assert read_decision(f"confirm {name}") == Decision(word="confirm", name=name)


@given(NAMES, st.text(max_size=50))
def test_what_waits_is_read_back_as_it_was_written(name: str, task: str) -> None:
    spec = JobSpec(cron="0 9 * * *", zone="UTC", task=task, targets=("a",))
    wanted = Wanted(action="change", name=name, spec=spec, place="slack:T/C", renamed="x", job_id="j", revision=3)
    assert load_wanted(dump_wanted(wanted)) == wanted
