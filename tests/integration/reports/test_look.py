"""Before a report is made: a job whose owner or channel is gone is paused, and that is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapters.places import ChannelLook, PersonLook
from adapters.terminal import TerminalAdapter
from agent_core.context import RunContext
from agent_core.llm.offline import OfflineProvider
from bot.access import Caller
from bot.jobs.job import SETTINGS_OWNER
from bot.presenter import load_reply
from bot.storage.jobs import JobState
from bot.storage.sqlite import SqliteStore
from tests.integration.reports.stage import Asked, Stage, build, save_job

ELSEWHERE = "slack:T1/C9/1600000000.000100"
OTHER = "slack:T1/C8/1600000000.000200"


class Places(TerminalAdapter):
    """A platform that knows one channel and one person."""

    platform = "slack"

    def __init__(self, channel: ChannelLook, person: PersonLook) -> None:
        super().__init__(channel="none")
        self._seen, self._person = channel, person

    async def look_at_channel(self, workspace: str, channel: str) -> ChannelLook:
        assert (workspace, channel) == ("T1", "C1")
        return self._seen

    async def look_at_person(self, workspace: str, user: str) -> PersonLook:
        assert (workspace, user) == ("T1", "U1")
        return self._person


def stage(store: SqliteStore, channel: str = "open", person: str = "here") -> Stage:
    look = ChannelLook(state=channel, name="#ops")  # type: ignore[arg-type]
    places = Places(look, PersonLook(state=person))  # type: ignore[arg-type]
    return Stage(store, OfflineProvider(), adapters={"slack": places})


async def state(store: SqliteStore) -> tuple[JobState, str]:
    row = await store.load_job("morning")
    assert row is not None
    return row.state, row.reason


@pytest.mark.parametrize(("channel", "person"), [("open", "here"), ("unknown", "unknown")])
async def test_where_nobody_is_known_to_be_gone_the_report_is_made(
    store: SqliteStore, channel: str, person: str
) -> None:
    await save_job(store)
    answer = await stage(store, channel, person).run(targets=("shop",))
    assert "Daily database report" in answer.text
    assert await state(store) == (JobState.ACTIVE, "")


async def test_a_job_whose_owner_is_gone_is_paused_and_the_channel_is_told(store: SqliteStore) -> None:
    await save_job(store)
    made = stage(store, person="gone")
    answer = await made.run()
    assert answer.error == "paused"
    assert "ana, with whose rights it runs, is no longer here. I have paused the job." in answer.text
    assert answer.sequel == ""
    assert await state(store) == (JobState.PAUSED, "its owner ana is gone")
    assert answer.reason == "its owner ana is gone"
    assert made.desk.asked == []


@pytest.mark.parametrize(("thread_key", "asked_in", "told"), [(ELSEWHERE, "", ELSEWHERE), ("", OTHER, OTHER)])
async def test_a_job_whose_channel_is_gone_is_paused_and_that_is_said_where_it_was_asked_for(
    store: SqliteStore, thread_key: str, asked_in: str, told: str
) -> None:
    await save_job(store, thread_key=thread_key)
    for _ in range(2):  # a process that died in between does it again
        answer = await stage(store, channel="gone").run("每天的报告" if asked_in else "Report", asked_in=asked_in)
        assert (answer.text, answer.error) == ("", "paused")
    assert (await state(store))[0] is JobState.PAUSED
    (row,) = await store.load_outbox(told)
    text = load_reply(row.body).text
    assert "#ops" in text
    assert ("已暂停" if asked_in else "I have paused the job") in text


async def test_a_job_that_may_not_post_any_more_is_paused_with_what_to_do_before_anything_is_asked(
    store: SqliteStore,
) -> None:
    await save_job(store, thread_key=ELSEWHERE)
    look = ChannelLook(state="closed", name="#ops", what="Hermod is not in #ops", fix="invite it: /invite @hermod")
    made = Stage(store, OfflineProvider(), adapters={"slack": Places(look, PersonLook(state="here"))})
    answer = await made.run()
    assert (answer.text, answer.error, made.desk.asked) == ("", "paused", [])
    assert await state(store) == (
        JobState.PAUSED,
        "Hermod may not post in its channel #ops (Hermod is not in #ops); invite it: /invite @hermod",
    )
    (row,) = await store.load_outbox(ELSEWHERE)
    text = load_reply(row.body).text
    assert "I may not post in its channel #ops (Hermod is not in #ops). I have paused the job" in text
    assert "/invite @hermod" in text


async def test_a_channel_that_is_gone_is_not_told_that_it_is_gone(store: SqliteStore) -> None:
    same = "slack:T1/C1/1600000000.000100"
    await save_job(store, thread_key=same)
    await stage(store, channel="gone").run()
    assert await store.load_outbox(same) == ()


async def test_another_job_of_the_same_name_is_not_paused(store: SqliteStore) -> None:
    await save_job(store, job_id="j2")
    await stage(store, person="gone").run()
    assert await state(store) == (JobState.ACTIVE, "")


async def test_a_job_that_was_deleted_since_needs_no_pause(store: SqliteStore) -> None:
    answer = await stage(store, person="gone").run()
    assert answer.error == "paused"


async def test_a_job_of_the_settings_has_no_owner_who_could_be_gone(store: SqliteStore) -> None:
    made = stage(store, person="gone")
    firing = replace(build("Report"), author=SETTINGS_OWNER)
    ctx = RunContext.create(firing.thread.key, deps=Asked((Caller.of(firing.thread, firing.author),)))
    assert "Daily database report" in (await made.runner.run(ctx, firing)).text
