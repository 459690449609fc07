"""Thumbs: whose opinion of which run is kept, and what is not believed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from adapters.chat import Action, Author, ThreadRef
from agent_core.llm.scripted import say
from bot.feedback import THANKS_DOWN, THANKS_UP, UNKNOWN
from bot.storage.base import Store
from tests.unit.bot.desk import desk
from tests.unit.bot.recording import ALICE, BOB, message

PLACE = ThreadRef(platform="memory", workspace="W1", channel="C1", thread="t1")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def press(value: str, *, number: int = 1, author: Author = ALICE, thread: ThreadRef = PLACE) -> Action:
    return Action(
        thread=thread, id=f"a{number}", author=author, name="feedback", value=value, sent_at=datetime.now(UTC)
    )


async def test_every_answer_of_a_run_can_be_rated_and_nothing_else(store: Store) -> None:
    made, _ = desk(store, [say("one")])
    for number, text in enumerate(("question", "!providers", "memory"), 1):
        await made.inbox.accept(message(text, number=number))
    await made.dispatcher.work_all()
    runs = {run.run_id for run in await store.list_runs() if run.record}
    assert [p.feedback for p in made.chat.posts] == [*runs, "", ""]


async def test_a_long_answer_is_rated_at_its_end(store: Store) -> None:
    made, _ = desk(store, [say("word " * 2000)])
    await made.inbox.accept(message("question"))
    await made.dispatcher.work_all()
    (run,) = await store.list_runs()
    assert len(made.chat.posts) > 1
    assert [p.feedback for p in made.chat.posts] == [""] * (len(made.chat.posts) - 1) + [run.run_id]


async def test_the_newest_opinion_of_a_person_counts_and_is_acknowledged_to_that_person(store: Store) -> None:
    made, _ = desk(store, [say("one")])
    await made.inbox.accept(message("question"))
    await made.dispatcher.work_all()
    (run,) = await store.list_runs()
    for number, (word, author) in enumerate((("up", ALICE), ("down", ALICE), ("up", BOB)), 1):
        await made.inbox.accept(press(f"{run.run_id}/{word}", number=number, author=author))
        await made.dispatcher.work_all()
    rows = await store.load_feedback(since=LONG_AGO)
    assert {(r.author, r.value, r.run_id, r.thread_key) for r in rows} == {
        ("memory:U1", "down", run.run_id, PLACE.key),
        ("memory:U2", "up", run.run_id, PLACE.key),
    }
    thanks = made.chat.posts[1:]
    assert [(p.text, p.private_to) for p in thanks] == [(THANKS_UP, "U1"), (THANKS_DOWN, "U1"), (THANKS_UP, "U2")]
    assert made.feedback.counted == {"up": 2, "down": 1}


@pytest.mark.parametrize("value", ["", "/up", "r1", "r1/sideways", "nothing/up", "{run}/", "{half}/up"])
async def test_a_value_that_names_no_run_is_not_kept(store: Store, value: str) -> None:
    made, _ = desk(store, [say("one")])
    await made.inbox.accept(message("question"))
    await made.dispatcher.work_all()
    (run,) = await store.list_runs()
    value = value.format(run=run.run_id, half=run.run_id[:8])
    assert await made.feedback.take(press(value)) == UNKNOWN
    assert await store.load_feedback(since=LONG_AGO) == ()


@pytest.mark.parametrize("other", [{"channel": "C2"}, {"workspace": "W2"}, {"platform": "slack"}])
async def test_a_run_is_rated_in_its_own_channel_only(store: Store, other: dict[str, str]) -> None:
    made, _ = desk(store, [say("one")])
    await made.inbox.accept(message("question"))
    await made.dispatcher.work_all()
    (run,) = await store.list_runs()
    elsewhere = replace(PLACE, **other)
    assert await made.feedback.take(press(f"{run.run_id}/up", thread=elsewhere)) == UNKNOWN
    assert await store.load_feedback(since=LONG_AGO) == ()
    # the thread is not compared: under a command's answer it is the answer's own
    assert await made.feedback.take(press(f"{run.run_id}/up", thread=replace(PLACE, thread="t9"))) == THANKS_UP
