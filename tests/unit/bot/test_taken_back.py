"""Messages that people delete: they are not answered any more, and leave the history."""

from __future__ import annotations

import asyncio

from adapters.chat import Deleted
from agent_core.llm.scripted import call, say
from bot.storage.base import Store
from tests.unit.bot.desk import Desk, desk
from tests.unit.bot.gates import T0, THREAD, Gate, Hanging, deleted, no_open_items, until
from tests.unit.bot.recording import ALICE, message


async def test_a_message_that_is_deleted_while_it_waits_is_not_answered(store: Store) -> None:
    gate = Gate([say("one"), say("three")])
    made = Desk(store, gate)
    async with made.running():
        await made.inbox.accept(message("first", number=1))
        await gate.asked.wait()
        await made.inbox.accept(message("second", number=2))
        await made.inbox.accept(message("third", number=3))
        await made.inbox.accept(deleted(2))
        gate.open.set()
        await made.chat.wait_for_posts(2)
    assert made.texts == ["one", "three"]
    assert not any("second" in m.content for m in gate.requests[1].messages)


async def test_a_deleted_message_leaves_the_history(store: Store) -> None:
    made, provider = desk(store, [say("one"), say("two")])
    await made.inbox.accept(message("my password is hunter2", number=1))
    await made.dispatcher.work_all()
    await made.inbox.accept(deleted(1))
    await made.inbox.accept(message("next", number=2))
    await made.dispatcher.work_all()
    assert [m.content for m in provider.requests[1].messages[1:]] == ["[deleted]", "one", "next"]
    assert made.texts == ["one", "two"]


async def test_a_question_that_is_deleted_while_it_is_answered_ends_without_a_word(store: Store) -> None:
    tool = Hanging()
    made, provider = desk(store, [call(("hang", {})), say("next")], registry=tool.registry)
    async with made.running():
        await made.inbox.accept(message("secret question", number=1))
        await tool.begun.wait()
        await made.inbox.accept(deleted(1))
        await until(lambda: tool.cancelled)
        await made.inbox.accept(message("hello", number=2))
        await made.chat.wait_for_posts(1)
    assert made.texts == ["next"]
    assert not any("secret question" in m.content for m in provider.requests[1].messages)
    assert not any("secret question" in row.body for row in await store.load_messages(THREAD.key))


async def test_one_of_two_questions_that_is_deleted_does_not_end_the_run_and_is_not_kept(store: Store) -> None:
    gate = Gate([say("both")])
    made = Desk(store, gate)
    await made.inbox.accept(message("keep this", number=1))
    await made.inbox.accept(message("drop this", number=2))
    async with made.running():
        await gate.asked.wait()
        await made.inbox.accept(deleted(2))
        await asyncio.sleep(0.1)  # several looks
        gate.open.set()
        await made.chat.wait_for_posts(1)
        await until(lambda: no_open_items(store))
    assert made.texts == ["both"]
    kept = [row.body for row in await store.load_messages(THREAD.key)]
    assert any("keep this" in body for body in kept)
    assert not any("drop this" in body for body in kept)


async def test_a_deletion_that_arrives_before_its_message_keeps_it_out(store: Store) -> None:
    made, provider = desk(store, [say("one")])
    await made.inbox.accept(message("first", number=1))
    await made.dispatcher.work_all()
    await made.inbox.accept(deleted(2))
    await made.inbox.accept(message("second", number=2))
    await made.dispatcher.work_all()
    assert made.texts == ["one"]
    assert len(provider.requests) == 1


async def test_a_deletion_in_a_strange_thread_leaves_no_trace(store: Store) -> None:
    made, _ = desk(store, [say("one")])
    assert not await made.inbox.accept(deleted(1))
    await made.inbox.accept(message("hi", number=1))
    await made.dispatcher.work_all()
    assert made.texts == ["one"]


async def test_b088_a_thread_whose_bot_posts_were_all_deleted_goes_on(store: Store) -> None:
    made, provider = desk(store, [say("one"), say("two")])
    await made.inbox.accept(message("first", number=1))
    await made.dispatcher.work_all()
    await made.inbox.accept(Deleted(thread=THREAD, id="x", message_id="m1", author=ALICE, sent_at=T0))
    await made.inbox.accept(message("second", number=2, mentioned=False))
    await made.dispatcher.work_all()
    assert made.texts == ["one", "two"]
    assert [m.content for m in provider.requests[1].messages[1:]] == ["first", "one", "second"]
    await made.inbox.accept(message("x" * 200_000, number=3, mentioned=False))
    await made.dispatcher.work_all()
    assert "200,000 characters" in made.texts[2]
