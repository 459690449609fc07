"""Every answer goes to the place where its question was asked, whatever happens at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from agent_core.agent import Agent
from agent_core.context import RunContext
from agent_core.llm.scripted import ScriptedProvider, call, say
from agent_core.llm.types import ModelRequest, ModelResponse, StreamItem
from agent_core.tools.registry import ToolRegistry
from bot.presenter import build_notice
from bot.storage.base import Store
from bot.turn import Turn
from tests.unit.bot.desk import Desk, desk
from tests.unit.bot.gates import T0, Gate
from tests.unit.bot.recording import ALICE, BOB, message


class Meeting(ScriptedProvider):
    """Answers only when so many requests are under way at once."""

    def __init__(self, parties: int) -> None:
        super().__init__([])
        self._barrier = asyncio.Barrier(parties)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        yield await self.complete(request)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        await self._barrier.wait()
        return say(f"answer to {request.messages[-1].content}")


async def test_b032_two_threads_of_one_channel_are_answered_at_the_same_time(store: Store) -> None:
    made = Desk(store, Meeting(2))
    async with made.running():
        await made.inbox.accept(message("a", number=1, thread="t1"))
        await made.inbox.accept(message("b", number=2, thread="t2"))
        await made.chat.wait_for_posts(2)
    assert {(p.thread.thread, p.text) for p in made.chat.posts} == {("t1", "answer to a"), ("t2", "answer to b")}


async def test_b033_two_runs_at_once_keep_their_own_thread_also_inside_their_tools(store: Store) -> None:
    tools = ToolRegistry()
    meeting = asyncio.Barrier(2)

    async def say_here(ctx: RunContext, text: str) -> str:
        """Say something in the thread."""
        await meeting.wait()
        assert isinstance(ctx.deps, Turn)
        await store.add_outbox(build_notice(ctx.deps.thread, text, key=f"note/{text}", now=T0))
        await meeting.wait()
        return "said"

    tools.register(say_here)

    def decide(request: ModelRequest) -> ModelResponse:
        asked = next(m.content for m in request.messages if m.role == "user")
        done = request.messages[-1].role == "tool"
        return say(f"done {asked}") if done else call(("say_here", {"text": asked}))

    made, _ = desk(store, [decide] * 4, registry=tools)
    async with made.running():
        await made.inbox.accept(message("a", number=1, thread="t1"))
        await made.inbox.accept(message("b", number=2, thread="t2"))
        await made.chat.wait_for_posts(4)
    assert {(p.thread.thread, p.text) for p in made.chat.posts} == {
        ("t1", "a"), ("t1", "done a"), ("t2", "b"), ("t2", "done b"),
    }  # fmt: skip


async def test_b034_messages_that_wait_keep_their_own_address(store: Store) -> None:
    gate = Gate([], at=0)

    class Echo(ScriptedProvider):
        async def complete(self, request: ModelRequest) -> ModelResponse:
            await gate.open.wait()
            return say(f"answer to {request.messages[-1].content}")

        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
            yield await self.complete(request)

    made = Desk(store, Echo([]))
    made.dispatcher._max_threads = 1
    async with made.running():
        for number, thread in enumerate(["a", "b", "a"], 1):
            await made.inbox.accept(message(f"{thread}{number}", number=number, thread=thread))
        gate.open.set()
        await made.chat.wait_for_posts(2)
    assert all(post.text.startswith(f"answer to {post.thread.thread}") for post in made.chat.posts)


async def test_b020_b024_what_was_asked_in_a_thread_is_answered_there_after_a_restart(store: Store) -> None:
    first, _ = desk(store, [])
    await first.inbox.accept(message("remind us", number=1, thread="t9", author=BOB))
    second, _ = desk(store, [say("reminded")])
    await second.dispatcher.work_all()
    (post,) = second.chat.posts
    assert post.thread == message("", thread="t9").thread


async def test_b087_a_follow_up_on_a_very_long_answer_knows_it(store: Store) -> None:
    long = "\n\n".join(f"paragraph {n} " + "word " * 40 for n in range(60))
    assert len(long) > 12_000
    made, provider = desk(store, [say(long), say("yes")], agent=Agent(memory_tokens=50_000))
    await made.inbox.accept(message("tell me everything", number=1))
    await made.dispatcher.work_all()
    await made.inbox.accept(message("sure?", number=2))
    await made.dispatcher.work_all()
    assert provider.requests[1].messages[2].content == long


async def test_b086_every_turn_of_a_thread_says_who_spoke(store: Store) -> None:
    made, provider = desk(store, [say("hello alice"), say("I do not know, bob")])
    await made.inbox.accept(message("my name is Alice", number=1, author=ALICE))
    await made.dispatcher.work_all()
    await made.inbox.accept(message("what is my name?", number=2, author=BOB))
    await made.dispatcher.work_all()
    assert [m.speaker for m in provider.requests[1].messages if m.role == "user"] == ["alice", "bob"]


async def test_b089_a_summary_stays_in_its_session_over_a_restart(store: Store) -> None:
    long = "word " * 60
    turns = [*(say(f"answer {n} {long}") for n in range(4)), say("turn 1 was about indexes"), say("ok")]
    first, _ = desk(store, turns, agent=Agent(memory_tokens=600, stream=False))
    for number in range(5):
        await first.inbox.accept(message(f"question {number} {long}", number=number))
        await first.dispatcher.work_all()
    second, provider = desk(store, [say("indexes")], agent=Agent(memory_tokens=5_000))
    await second.inbox.accept(message("what was turn 1 about?", number=9))
    await second.dispatcher.work_all()
    assert any("turn 1 was about indexes" in m.content for m in provider.requests[0].messages)
    assert len(await store.list_sessions()) == 1
