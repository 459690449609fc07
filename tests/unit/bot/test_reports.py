"""A time of a job becomes a headline in the channel, and the thread below it begins with what follows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from adapters.chat import Attachment, Author, Delivery, InDoubt, Rejected, Reply, RetryLater, Stop, ThreadRef
from agent_core.context import RunContext
from agent_core.llm.scripted import ScriptedProvider, say
from agent_core.llm.types import ModelMessage
from bot.access import AccessPolicy, Caller
from bot.answer import Answer
from bot.jobs.calendar import Occurrence
from bot.jobs.job import SETTINGS_OWNER, Firing, JobSpec, build_firing
from bot.jobs.sequel import dump_sequel
from bot.messages import dump_inbound, event_key, kind_of
from bot.storage.base import NewInboxItem, OutboxState, Store
from tests.unit.bot.desk import Desk
from tests.unit.bot.recording import ALICE, message

AT = datetime(2026, 1, 5, 8, tzinfo=UTC)
NINE = Occurrence(at=AT, key="2026-01-05T09:00", local="2026-01-05 09:00 +01:00")
SPEC = JobSpec(cron="0 9 * * *", zone="Europe/Berlin", task="report on shop")
BODY = dump_sequel(
    "the body",
    files=[Attachment(name="slow.csv", content="a,b\n1,2\n")],
    history=[
        (ModelMessage(role="user", content="report on shop"), 3),
        (ModelMessage(role="assistant", content="row 3"), 2),
    ],
)


class WrittenReports:
    """Reports that were written beforehand; ``asked``: with whose rights they were made."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[tuple[Caller, ...]] = []
        self.declined: list[str] = []

    async def run(self, ctx: RunContext, firing: Firing) -> Answer:
        self.asked.append(ctx.deps.callers)  # type: ignore[attr-defined]
        return self.answer

    async def decline(self, firing: Firing, reason: str) -> Answer:
        self.declined.append(reason)
        return Answer(text=f"{firing.job} is paused", error="denied")


def fire(author: Author = ALICE) -> Firing:
    return build_firing("memory:W1/C1", author=author, job_id="j1", job="daily", spec=SPEC, occurrence=NINE)


async def put(store: Store, heard: Firing | Stop) -> None:
    item = NewInboxItem(
        event_key=event_key(heard),
        thread_key=heard.thread.key,
        kind=kind_of(heard),
        payload=dump_inbound(heard),
        received_at=heard.sent_at,
    )
    await store.accept(item, queue_limit=50)


def place(
    reports: WrittenReports, store: Store, *, policy: AccessPolicy | None = None
) -> tuple[Desk, ScriptedProvider]:
    provider = ScriptedProvider([say("row 3 is a sequential scan")])
    return Desk(store, provider, reports=reports, policy=policy), provider


async def test_the_body_goes_into_the_thread_below_the_headline(store: Store) -> None:
    made, _ = place(WrittenReports(Answer(text="3 slow queries", sequel=BODY)), store)
    await put(store, fire())
    await put(store, fire())  # the same time from another process
    await made.dispatcher.work_all()
    headline, body = made.chat.posts
    assert (headline.text, headline.thread, headline.files) == ("3 slow queries", fire().thread, ())
    assert (body.text, body.thread) == ("the body", replace(fire().thread, thread="m1"))
    assert [file.name for file in body.files] == ["slow.csv"]
    assert (headline.feedback, bool(body.feedback)) == ("", True)


async def test_the_thread_goes_on_from_what_was_found(store: Store) -> None:
    made, provider = place(WrittenReports(Answer(text="3 slow queries", sequel=BODY)), store)
    await put(store, fire())
    await made.dispatcher.work_all()
    await made.inbox.accept(message("explain row 3", number=7, thread="m1", mentioned=False))
    await made.dispatcher.work_all()
    assert made.texts[-1] == "row 3 is a sequential scan"
    assert [m.content for m in provider.requests[0].messages[1:]] == ["report on shop", "row 3", "explain row 3"]


@pytest.mark.parametrize("lost", [True, False])
async def test_a_headline_in_doubt_is_looked_for_before_its_thread_is_opened(store: Store, *, lost: bool) -> None:
    made, _ = place(WrittenReports(Answer(text="3 slow queries", sequel=BODY)), store)

    def arrive(reply: Reply) -> Delivery:
        made.chat.take(reply)
        return InDoubt(reason="cut")

    made.chat.outcomes = [InDoubt(reason="cut") if lost else arrive]
    await put(store, fire())
    async with made.running():
        await made.chat.wait_for_posts(2)
    assert made.texts == ["3 slow queries", "the body"]
    assert made.chat.posts[1].thread.thread == ("m1" if lost else "found")


async def test_a_headline_that_has_to_wait_opens_its_thread_later(store: Store) -> None:
    made, _ = place(WrittenReports(Answer(text="3 slow queries", sequel=BODY)), store)
    made.chat.outcomes = [RetryLater(after_s=0.01, reason="too fast")]
    await put(store, fire())
    async with made.running():
        await made.chat.wait_for_posts(2)
    assert made.texts == ["3 slow queries", "the body"]


async def test_a_refused_headline_opens_no_thread(store: Store) -> None:
    made, _ = place(WrittenReports(Answer(text="3 slow queries", sequel=BODY)), store)
    made.chat.outcomes = [Rejected(reason="the channel is archived", gone=True)]
    await put(store, fire())
    await made.dispatcher.work_all()
    assert made.chat.posts == []
    (row,) = await store.load_outbox(fire().thread.key)
    assert row.state is OutboxState.FAILED
    assert not await store.knows_thread(replace(fire().thread, thread="m1").key)


async def test_a_report_without_a_body_is_its_headline(store: Store) -> None:
    made, _ = place(WrittenReports(Answer(text="nothing to report", sequel=dump_sequel(""))), store)
    await put(store, fire())
    await made.dispatcher.work_all()
    assert made.texts == ["nothing to report"]
    assert await store.knows_thread(ThreadRef.parse_key("memory:W1/C1/m1").key)


async def test_a_job_of_the_settings_asks_as_the_operator(store: Store) -> None:
    """Rules for people do not apply to it; those for places do."""
    reports = WrittenReports(Answer(text="3 slow queries"))
    made, _ = place(reports, store, policy=AccessPolicy(users=("U1",)))
    await put(store, fire(SETTINGS_OWNER))
    await made.dispatcher.work_all()
    ((caller,),) = reports.asked
    assert (caller.operator, caller.channel, made.texts) == (True, "C1", ["3 slow queries"])
    closed, _ = place(reports, store, policy=AccessPolicy(channels=("C2",)))
    await put(store, replace(fire(SETTINGS_OWNER), run_key="another", job_id="j2"))
    await closed.dispatcher.work_all()
    assert (len(reports.asked), len(reports.declined)) == (1, 1)


async def test_a_person_who_may_not_speak_any_more_has_no_reports(store: Store) -> None:
    reports = WrittenReports(Answer(text="3 slow queries"))
    made, _ = place(reports, store, policy=AccessPolicy(users=("U2",)))
    await put(store, fire(ALICE))
    await put(store, replace(fire(replace(ALICE, id="settings")), run_key="another", job_id="j2"))  # no operator
    await made.dispatcher.work_all()
    assert made.texts == ["daily is paused", "daily is paused"]
    assert reports.asked == []


# -- stopping one --------------------------------------------------------------------------------------


class HangingReports(WrittenReports):
    """Reports that are never ready; ``begun`` once one is being made, ``ended`` once it was told to end."""

    def __init__(self) -> None:
        super().__init__(Answer(text="3 slow queries", sequel=BODY))
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def run(self, ctx: RunContext, firing: Firing) -> Answer:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        raise AssertionError("nothing lets it go on")


async def say_stop(store: Store, author: Author, *, number: int = 1) -> None:
    """Stop the report, as the jobs' keeper does in whichever process."""
    stop = Stop(thread=fire().thread, id=f"stop-{number}", author=author, sent_at=datetime.now(UTC))
    await put(store, stop)


BOB = Author(id="U2", name="bob")
GUEST = Author(id="U9", name="guest", guest=True)
STOPPED_BY_BOB = "The report daily was stopped by bob; nothing of it is posted. Its next time stays as it was."


async def test_a_report_that_is_stopped_says_by_whom_and_posts_nothing_else(store: Store) -> None:
    reports = HangingReports()
    made, _ = place(reports, store)
    await put(store, fire())
    async with made.running():
        await reports.begun.wait()
        await say_stop(store, BOB)
        await made.chat.wait_for_posts(1)
        assert reports.ended.is_set()
    (post,) = made.chat.posts
    assert (post.text, post.thread) == (STOPPED_BY_BOB, fire().thread)
    (run,) = await store.list_runs()
    assert (run.state, run.error, run.reason) == ("error", "cancelled", "by bob")
    assert await store.load_sequel(run.run_id) is None
    assert await store.load_open(fire().thread.key) == ()


async def test_a_report_is_stopped_in_the_language_of_its_task(store: Store) -> None:
    made, _ = place(HangingReports(), store)
    await put(store, replace(fire(), spec=replace(SPEC, task="昨天以来什么变慢了？")))
    await say_stop(store, BOB)
    await made.dispatcher.work_all()
    assert made.texts == ["报告 daily 已被bob停止，不会发布任何内容；下次时间不变。"]


async def test_a_report_that_waits_is_stopped_before_it_is_begun(store: Store) -> None:
    reports = HangingReports()
    made, _ = place(reports, store)
    await put(store, fire())
    await say_stop(store, BOB)
    await say_stop(store, ALICE, number=2)
    await made.dispatcher.work_all()
    assert made.texts == [STOPPED_BY_BOB.replace("bob", "alice")]
    assert not reports.begun.is_set()
    assert [run.error for run in await store.list_runs()] == ["cancelled"]


async def test_a_report_whose_process_died_is_stopped_when_it_is_taken_up_again(store: Store) -> None:
    reports = HangingReports()
    dead, _ = place(reports, store)
    await put(store, fire())
    task = asyncio.create_task(dead.dispatcher.run())
    await reports.begun.wait()
    task.cancel()
    await dead.dispatcher.drain(0)
    await say_stop(store, BOB)
    next_one, _ = place(HangingReports(), store)
    await next_one.dispatcher.work_all()
    assert next_one.texts == [STOPPED_BY_BOB]


async def test_a_stop_that_comes_when_the_report_is_over_is_no_answer_in_its_channel(store: Store) -> None:
    made, _ = place(WrittenReports(Answer(text="3 slow queries")), store)
    await put(store, fire())
    await made.dispatcher.work_all()
    await say_stop(store, BOB)
    await say_stop(store, ALICE, number=2)
    await made.dispatcher.work_all()
    assert made.texts == ["3 slow queries"]
    assert await store.load_open(fire().thread.key) == ()


async def test_the_operator_stops_a_report_where_only_some_people_may_speak(store: Store) -> None:
    reports = HangingReports()
    made, _ = place(reports, store, policy=AccessPolicy(users=("U1",)))
    await put(store, fire())
    async with made.running():
        await reports.begun.wait()
        await say_stop(store, BOB)  # may not speak here
        await say_stop(store, GUEST, number=2)
        await say_stop(store, replace(SETTINGS_OWNER, name="not the operator"), number=3)
        await say_stop(store, SETTINGS_OWNER, number=4)
        await made.chat.wait_for_posts(1)
    assert made.texts == [STOPPED_BY_BOB.replace("bob", "the operator")]
    assert [run.reason for run in await store.list_runs()] == ["by the operator"]
