"""What waits in a thread becomes turns; nothing in one turn harms another, and a stop ends only what it meant."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from adapters.chat import Action, Author, Command, Delivery, Reply
from agent_core.agent import Agent
from agent_core.context import RunContext
from agent_core.llm.scripted import ScriptedProvider, call, say
from agent_core.llm.types import ModelRequest, ModelResponse, ToolCall
from agent_core.tools.approval import Decision
from agent_core.tools.base import Effect, Tool
from agent_core.tools.registry import ToolRegistry
from bot.access import AccessPolicy
from bot.answer import STOPPED
from bot.storage.base import NewInboxItem, NewMessage, RunOutcome, RunRow, Store
from tests.unit.bot.desk import Desk, desk
from tests.unit.bot.recording import ALICE, BOB, message

THREAD = message("").thread
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def accept_unreadable(store: Store) -> None:
    item = NewInboxItem(
        event_key="memory:W1/C1/old/job", thread_key=THREAD.key, kind="job", payload="{}", received_at=NOW
    )
    await store.accept(item, queue_limit=9)


async def test_an_item_that_cannot_be_read_fails_alone(store: Store) -> None:
    made, provider = desk(store, [say("hello")])
    await accept_unreadable(store)
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    assert len(made.texts) == 2
    assert "cannot read" in made.texts[0]
    assert made.texts[1] == "hello"
    assert [m.content for m in provider.requests[0].messages[1:]] == ["hi"]


async def test_a_message_that_is_too_long_does_not_take_the_others_of_its_turn_with_it(store: Store) -> None:
    made, provider = desk(store, [say("for bob")])
    await made.inbox.accept(message("x" * 60_000, number=1, author=ALICE))
    await made.inbox.accept(message("mine is short", number=2, author=BOB))
    await made.dispatcher.work_all()
    text = "\n".join(made.texts)
    assert "for bob" in text
    assert "60,000 characters" in text
    assert [m.content for m in provider.requests[0].messages[1:]] == ["mine is short"]


async def test_many_long_messages_are_several_turns(store: Store) -> None:
    made, provider = desk(store, [say(f"part {n}") for n in range(5)], agent=Agent(memory_tokens=100_000))
    for number in range(10):
        await made.inbox.accept(message(f"{number} " * 5_000, number=number))
    await made.dispatcher.work_all()
    assert made.texts == [f"part {n}" for n in range(len(made.texts))]
    assert len(made.texts) > 1
    asked = [m.content[0] for request in provider.requests for m in request.messages if m.role == "user"]
    assert set(asked) == set("0123456789")
    assert max(sum(len(m.content) for m in request.messages[1:][-3:]) for request in provider.requests) < 50_000


async def test_stopping_a_thread_without_a_run_does_not_stop_its_next_question(store: Store) -> None:
    made, _ = desk(store, [say("hello")])
    with made.session.stopping(THREAD.key):
        await made.dispatcher.work_all()
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    assert made.texts == ["hello"]


async def test_stopping_ends_a_run_that_was_interrupted(store: Store) -> None:
    asked = asyncio.Event()

    class Stuck(ScriptedProvider):
        async def complete(self, request: ModelRequest) -> ModelResponse:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    made = Desk(store, Stuck([]))
    await made.inbox.accept(message("hi"))
    working = asyncio.create_task(made.dispatcher.work_all())
    await asked.wait()
    working.cancel()
    await asyncio.wait({working})
    with made.session.stopping(THREAD.key):
        await made.dispatcher.work_all()
    assert made.texts == [STOPPED]
    assert (await store.count_rows()).runs_active == 0


async def test_somebody_who_is_not_addressed_and_not_allowed_sees_no_sign_of_work(store: Store) -> None:
    made, provider = desk(store, [say("hello")])
    await made.inbox.accept(message("hi", number=1))
    await made.dispatcher.work_all()
    made.chat.statuses.clear()
    guest = Author(id="G", name="g", guest=True)
    await made.inbox.accept(message("just talking", number=2, mentioned=False, author=guest))
    await made.dispatcher.work_all()
    assert (made.texts, made.chat.statuses) == (["hello"], [])
    assert len(provider.requests) == 1


async def test_no_status_is_shown_any_more_once_the_answer_is_there(store: Store) -> None:
    made, _ = desk(store, [say("hello")])
    order: list[str] = []
    posted = asyncio.Event()
    post = made.chat.post

    async def post_and_wait(reply: Reply) -> Delivery:
        outcome = await post(reply)
        order.append("answer")
        posted.set()
        for _ in range(5):
            await asyncio.sleep(0)
        return outcome

    async def slow_status(thread: object, text: str) -> None:
        await posted.wait()
        order.append("status")

    made.chat.post = post_and_wait  # type: ignore[method-assign]
    made.chat.set_status = slow_status  # type: ignore[method-assign]
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    assert order == ["answer"]


async def test_a_history_row_that_cannot_be_read_does_not_silence_its_thread(store: Store) -> None:
    made, provider = desk(store, [say("hello")])
    await made.inbox.accept(message("before", number=1))
    claim = await store.claim_thread("old", prefixes=["memory:"], lease_s=5, now=NOW)
    assert claim is not None
    run = RunRow(run_id="old", thread_key=THREAD.key, agent="a", state="init", started_at=NOW)
    await store.begin_run(claim, run, [item.id for item in claim.items])
    rows = tuple(
        NewMessage(role="user", body=body, tokens=1, created_at=NOW)
        for body in ('{"role": "prophet"}', '{"role": "user", "content": "before"}')
    )
    outcome = RunOutcome(state="finished", error="", record="", ended_at=NOW, messages=rows)
    await store.finish_run(claim, "old", outcome)
    await store.release_claim(claim)
    await made.inbox.accept(message("hi", number=2))
    await made.dispatcher.work_all()
    assert made.texts == ["hello"]
    assert [m.content for m in provider.requests[0].messages[1:]] == ["before", "hi"]


async def test_half_an_emoji_in_a_message_or_an_answer_breaks_nothing(store: Store) -> None:
    tools = ToolRegistry()

    async def look(thing: str) -> str:
        """Look at a thing."""
        return thing

    tools.register(look)
    made, provider = desk(
        store, [call(("look", '{"thing": "\ud83d"}'), text="let me \ud83d"), say("look \ud83d here")], registry=tools
    )
    await made.inbox.accept(message("what is \ud83d?", author=Author(id="U9", name="\udc00")))
    await made.dispatcher.work_all()
    assert made.texts == ["look \ufffd here"]
    assert provider.requests[0].messages[-1].content == "what is \ufffd?"


async def test_a_button_without_a_meaning_is_not_taken_for_an_empty_question(store: Store) -> None:
    made, _ = desk(store, [])
    pressed = Action(thread=THREAD, id="a1", author=ALICE, name="approve", value="x", sent_at=NOW)
    await made.inbox.accept(pressed)
    await made.dispatcher.work_all()
    assert len(made.texts) == 1
    assert "button" in made.texts[0]


async def test_a_command_between_messages_is_a_turn_of_its_own(store: Store) -> None:
    tools = ToolRegistry()

    async def look() -> str:
        """Look."""
        return "looked"

    tools.register(look)
    made, _ = desk(store, [say("one"), say("two")], registry=tools)
    await made.inbox.accept(message("first", number=1))
    await made.inbox.accept(Command(thread=THREAD, id="c1", author=ALICE, name="/hermod", text="look", sent_at=NOW))
    await made.inbox.accept(message("second", number=2))
    await made.dispatcher.work_all()
    assert made.texts == ["one", "looked", "two"]


async def test_a_run_that_does_not_fit_its_journal_any_more_asks_to_be_asked_again(store: Store) -> None:
    asked = asyncio.Event()
    tools = ToolRegistry()

    async def look() -> str:
        """Look."""
        return "looked"

    tools.register(look)

    class Stuck(ScriptedProvider):
        async def complete(self, request: ModelRequest) -> ModelResponse:
            response = await super().complete(request)
            if len(self.requests) == 2:
                asked.set()
                await asyncio.Event().wait()
            return response

    class Hides:
        def redact(self, text: str) -> str:
            return text.replace("hunter2", "[redacted]")

    first = Desk(store, Stuck([call(("look", {})), say("never said")]), registry=tools)
    await first.inbox.accept(message("is it hunter2?", number=1))
    working = asyncio.create_task(first.dispatcher.work_all())
    await asked.wait()
    working.cancel()
    await asyncio.wait({working})

    # the word became a secret of the settings in between, so the recorded request cannot be built again
    second, _ = desk(store, [say("hello")], registry=tools, redactor=Hides())
    await second.dispatcher.work_all()
    assert len(second.texts) == 1
    assert "ask" in second.texts[0]
    assert "model:1" not in second.texts[0]
    await second.inbox.accept(message("hi", number=2))
    await second.dispatcher.work_all()
    assert second.texts[1] == "hello"


class Yes:
    async def approve(self, ctx: RunContext, tool: Tool, call: ToolCall) -> Decision:
        return Decision(approved=True, by="ann")


async def test_a_command_that_changes_something_is_made_once_however_often_its_process_ends(store: Store) -> None:
    tools = ToolRegistry()
    ran: list[str] = []
    begun = asyncio.Event()

    async def drop(name: str) -> str:
        """Drop something."""
        ran.append(name)
        begun.set()
        await asyncio.Event().wait()
        return "dropped"

    tools.register(drop, effect=Effect.WRITE)
    policy = AccessPolicy(tools=("drop",))
    first, _ = desk(store, [], registry=tools, policy=policy, approver=Yes())
    await first.inbox.accept(
        Command(thread=THREAD, id="c1", author=ALICE, name="/hermod", text="drop orders", sent_at=NOW)
    )
    working = asyncio.create_task(first.dispatcher.work_all())
    await asyncio.wait_for(begun.wait(), 30)
    working.cancel()
    await asyncio.wait({working})
    second, _ = desk(store, [], registry=tools, policy=policy, approver=Yes())
    await second.dispatcher.work_all()
    assert ran == ["orders"]
    assert len(second.texts) == 1
    assert "unknown" in second.texts[0]
