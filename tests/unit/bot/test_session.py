"""From an accepted message to exactly one answer: dedupe, order, access, failures, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from adapters.chat import Author, Delivered, InDoubt, Rejected, Reply, RetryLater
from agent_core.errors import ProviderUnavailable
from agent_core.llm.scripted import ScriptedProvider, call, say
from agent_core.llm.types import ModelRequest, ModelResponse
from agent_core.prompts import load_prompts
from agent_core.tools.base import Effect
from agent_core.tools.registry import ToolRegistry
from bot.sender import UNKNOWN_DELIVERY
from bot.storage.base import OutboxState, RunRow, Store
from tests.unit.bot.desk import Desk, desk
from tests.unit.bot.recording import ALICE, BOB, message


async def test_a_mention_gets_one_answer_in_its_thread(store: Store) -> None:
    made, _ = desk(store, [say("hello")])
    assert await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    assert made.texts == ["hello"]
    assert made.chat.posts[0].thread == message("hi").thread
    assert "is thinking…" in made.chat.statuses


async def test_twins_and_redeliveries_are_answered_once(store: Store) -> None:
    made, _ = desk(store, [say("hello")])
    for _ in range(4):
        assert await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    assert made.texts == ["hello"]


async def test_a_follow_up_without_mention_is_answered_only_where_hermod_takes_part(store: Store) -> None:
    made, provider = desk(store, [say("one"), say("two")])
    assert not await made.inbox.accept(message("just talking", number=1, thread="t1", mentioned=False))
    await made.inbox.accept(message("hi", number=2, thread="t1"))
    await made.dispatcher.work_all()
    assert await made.inbox.accept(message("and now?", number=3, thread="t1", mentioned=False))
    await made.dispatcher.work_all()
    assert made.texts == ["one", "two"]
    assert [m.content for m in provider.requests[1].messages[1:]] == ["hi", "one", "and now?"]


async def test_something_turned_away_leaves_no_trace_so_that_its_mention_twin_counts(store: Store) -> None:
    made, _ = desk(store, [say("hello")])
    assert not await made.inbox.accept(message("hi", mentioned=False))
    assert await made.inbox.accept(message("hi", mentioned=True))
    await made.dispatcher.work_all()
    assert made.texts == ["hello"]


async def test_two_messages_within_50_ms_are_one_turn_with_both_authors_named(store: Store) -> None:
    made, provider = desk(store, [say("both")])
    await made.inbox.accept(message("first", number=1, author=ALICE))
    await made.inbox.accept(message("second", number=2, author=BOB))
    await made.dispatcher.work_all()
    assert [(m.speaker, m.content) for m in provider.requests[0].messages[1:]] == [
        ("alice", "first"),
        ("bob", "second"),
    ]
    assert made.texts == ["both"]


async def test_a_message_during_a_run_waits_for_its_turn(store: Store) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    running = 0

    class Slow:
        name = model = "scripted"

        async def complete(self, request: ModelRequest) -> ModelResponse:
            nonlocal running
            running += 1
            assert running == 1
            begun.set()
            await go_on.wait()
            running -= 1
            return say(f"answer to {request.messages[-1].content}")

        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
            yield await self.complete(request)

        def prepare(self) -> None: ...

        async def aclose(self) -> None: ...

    made = Desk(store, Slow())
    async with made.running():
        await made.inbox.accept(message("first", number=1))
        await begun.wait()
        await made.inbox.accept(message("second", number=2, author=BOB))
        await made.inbox.accept(message("elsewhere", number=3, thread="t1", channel="C1"))
        go_on.set()
        await made.chat.wait_for_posts(2)
    assert made.texts == ["answer to first", "answer to elsewhere"]


async def test_a_full_queue_is_said_once_and_the_others_are_answered(store: Store) -> None:
    made, provider = desk(store, [say("ok")], queue_limit=2)
    for number in range(4):
        await made.inbox.accept(message(f"m{number}", number=number))
    await made.dispatcher.work_all()
    assert [m.content for m in provider.requests[0].messages[1:]] == ["m0", "m1"]
    assert sum("waiting already" in text for text in made.texts) == 2
    assert "ok" in made.texts


@pytest.mark.parametrize(
    ("text", "said"), [("", "without a question"), ("  \n", "without a question"), ("x" * 60_000, "60,000 characters")]
)
async def test_bad_messages_get_a_clear_answer_without_a_model(store: Store, text: str, said: str) -> None:
    made, provider = desk(store, [])
    await made.inbox.accept(message(text))
    await made.dispatcher.work_all()
    assert len(made.texts) == 1
    assert said in made.texts[0]
    assert provider.requests == []


async def test_a_failed_model_is_said_in_the_thread_and_the_thread_goes_on(store: Store) -> None:
    made, _ = desk(store, [ProviderUnavailable("HTTP 500", provider="main"), say("better now")])
    await made.inbox.accept(message("hi", number=1))
    await made.dispatcher.work_all()
    await made.inbox.accept(message("again", number=2))
    await made.dispatcher.work_all()
    assert "I could not answer" in made.texts[0]
    assert made.texts[1] == "better now"


async def test_a_defect_becomes_a_visible_failure_and_does_not_end_the_dispatcher(store: Store) -> None:
    made, _ = desk(store, [])  # the script is empty: the provider raises an AssertionError
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    assert len(made.texts) == 1
    assert "Something in me broke" in made.texts[0]
    assert "Traceback" not in made.texts[0]


async def test_external_people_and_guests_are_refused_politely_and_reach_no_model(store: Store) -> None:
    made, provider = desk(store, [])
    await made.inbox.accept(message("hi", number=1, author=Author(id="X", name="x", external=True)))
    await made.inbox.accept(message("hi", number=2, thread="t2", author=Author(id="G", name="g", guest=True)))
    await made.dispatcher.work_all()
    assert provider.requests == []
    assert sorted("organisation" in t or "guest" in t for t in made.texts) == [True, True]


async def test_a_guest_in_a_shared_turn_does_not_take_the_others_rights_away(store: Store) -> None:
    made, provider = desk(store, [say("for alice")])
    await made.inbox.accept(message("mine", number=1, author=ALICE))
    await made.inbox.accept(message("and mine", number=2, author=Author(id="G", name="g", guest=True)))
    await made.dispatcher.work_all()
    assert made.texts[0] == "for alice"
    assert [m.content for m in provider.requests[0].messages[1:]] == ["mine"]
    assert "guest" in made.texts[1]


async def test_write_tools_are_not_offered_and_refused_when_called(store: Store) -> None:
    ran: list[str] = []
    tools = ToolRegistry()

    async def drop_table(name: str) -> str:
        """Drop a table."""
        ran.append(name)
        return "dropped"

    tools.register(drop_table, effect=Effect.WRITE)
    made, provider = desk(store, [call(("drop_table", {"name": "orders"})), say("I may not")], registry=tools)
    await made.inbox.accept(message("drop it"))
    await made.dispatcher.work_all()
    assert provider.requests[0].tools == ()
    assert ran == []
    assert made.texts == ["I may not"]


# -- delivery --------------------------------------------------------------------------------------


async def test_a_reply_that_the_platform_puts_off_is_posted_later_and_once(store: Store) -> None:
    made, _ = desk(store, [say("hello")])
    made.chat.outcomes = [RetryLater(after_s=0.05, reason="rate limited")]
    async with made.running():
        await made.inbox.accept(message("hi"))
        await made.chat.wait_for_posts(1)
    assert made.texts == ["hello"]


async def test_a_post_in_doubt_that_arrived_is_not_posted_again(store: Store) -> None:
    made, _ = desk(store, [say("hello")])

    def arrives(reply: Reply) -> InDoubt:
        made.chat.take(reply)
        return InDoubt(reason="connection reset")

    made.chat.outcomes = [arrives]
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    assert made.texts == ["hello"]
    rows = await store.load_outbox(message("hi").thread.key)
    assert [(r.state, r.remote_id) for r in rows] == [(OutboxState.DELIVERED, "found")]


async def test_a_post_in_doubt_that_did_not_arrive_is_posted_again(store: Store) -> None:
    made, _ = desk(store, [say("hello")])
    made.chat.outcomes = [InDoubt(reason="connection reset")]
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    assert made.texts == ["hello"]


async def test_a_post_whose_outcome_cannot_be_read_is_said_to_be_unknown(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.sender.IN_DOUBT_WAITS_S", (0.0,))
    made, _ = desk(store, [say("hello")])
    made.chat.outcomes = [InDoubt(reason="reset")]
    made.chat.lookups = [InDoubt(reason="no scope"), InDoubt(reason="no scope")]
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    assert made.texts == [UNKNOWN_DELIVERY]


async def test_a_rejected_reply_does_not_block_the_thread(store: Store) -> None:
    made, _ = desk(store, [say("one"), say("two")])
    made.chat.outcomes = [Rejected(reason="not_in_channel: invite the bot")]
    await made.inbox.accept(message("hi", number=1))
    await made.dispatcher.work_all()
    await made.inbox.accept(message("again", number=2))
    await made.dispatcher.work_all()
    assert made.texts == ["two"]
    rows = await store.load_outbox(message("hi").thread.key)
    assert rows[0].reason.startswith("not_in_channel")


# -- restarts --------------------------------------------------------------------------------------


async def test_a_run_cut_off_by_a_shutdown_is_resumed_and_its_tools_are_not_run_again(store: Store) -> None:
    ran: list[int] = []
    tools = ToolRegistry()

    async def look(n: int) -> int:
        """Look at something."""
        ran.append(n)
        return n * 10

    tools.register(look)
    asked = asyncio.Event()

    class Stuck(ScriptedProvider):
        async def complete(self, request: ModelRequest) -> ModelResponse:
            response = await super().complete(request)
            if len(self.requests) == 2:
                asked.set()
                await asyncio.Event().wait()
            return response

    first = Desk(store, Stuck([call(("look", {"n": 4})), say("never said")]), registry=tools)
    task = asyncio.create_task(first.dispatcher.run())
    await first.inbox.accept(message("look at 4"))
    await asked.wait()
    await first.dispatcher.drain(0.01)
    await task
    assert first.texts == []

    second, provider = desk(store, [say("it is 40")], registry=tools)
    await second.dispatcher.work_all()
    assert second.texts == ["it is 40"]
    assert ran == [4]
    assert len(provider.requests) == 1
    run = (await store.list_runs(limit=1))[0]
    assert (run.state, run.attempt) == ("finished", 2)


async def test_an_answer_that_was_not_posted_before_a_crash_is_posted_after_it(store: Store) -> None:
    first, _ = desk(store, [say("hello")])
    first.chat.outcomes = [RetryLater(after_s=0.0, reason="later")] * 1
    await first.inbox.accept(message("hi"))
    claim = await store.claim_thread(
        "dead", prefixes=["memory:"], lease_s=60, now=datetime.now(UTC) - timedelta(seconds=120)
    )
    assert claim is not None
    second, _ = desk(store, [say("hello")], chat=first.chat)
    second.chat.outcomes = []
    await second.dispatcher.work_all()
    assert second.texts == ["hello"]


async def test_a_process_that_comes_back_late_posts_nothing(store: Store) -> None:
    made, _ = desk(store, [say("late"), say("new")])
    await made.inbox.accept(message("hi"))
    long_ago = datetime.now(UTC) - timedelta(seconds=120)
    stale = await store.claim_thread("late", prefixes=["memory:"], lease_s=60, now=long_ago)
    assert stale is not None
    fresh, _ = desk(store, [say("fresh")], chat=made.chat)
    await fresh.dispatcher.work_all()
    from bot.storage.base import Fenced

    with pytest.raises(Fenced):
        await made.session.work(stale)
    assert made.texts == ["fresh"]


async def test_a_run_that_kills_its_process_again_and_again_is_given_up_visibly(store: Store) -> None:
    made, _ = desk(store, [])
    await made.inbox.accept(message("poison"))
    when = datetime.now(UTC) - timedelta(days=1)
    claim = await store.claim_thread("p0", prefixes=["memory:"], lease_s=1, now=when)
    assert claim is not None
    run = RunRow(run_id="r0", thread_key=claim.thread_key, agent="a", state="init", started_at=when)
    await store.begin_run(claim, run, [item.id for item in claim.items])
    for n in range(1, 6):
        await store.claim_thread(f"p{n}", prefixes=["memory:"], lease_s=1, now=when + timedelta(minutes=n))
    await made.dispatcher.work_all()
    assert len(made.texts) == 1
    assert "I could not finish this" in made.texts[0]


async def test_delivered_counts_and_metrics_follow(store: Store) -> None:
    made, _ = desk(store, [say("hello")])
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    assert made.sender.delivered == 1
    assert made.session.ended["finished"] == 1
    assert isinstance(await made.chat.find_posted(made.chat.posts[0].thread, made.chat.posts[0].key), Delivered)


async def test_messages_that_arrive_in_the_wrong_order_are_asked_in_the_order_they_were_said(store: Store) -> None:
    made, provider = desk(store, [say("ok")])
    first, second = message("first", number=1), message("second", number=2, author=BOB)
    await made.inbox.accept(replace(second, sent_at=second.sent_at + timedelta(milliseconds=20)))
    await made.inbox.accept(first)
    await made.dispatcher.work_all()
    assert [m.content for m in provider.requests[0].messages[1:]] == ["first", "second"]


async def test_a_prompt_of_ones_own_may_name_the_tools(store: Store, tmp_path: Path) -> None:
    registry = ToolRegistry()

    @registry.register
    def look() -> str:
        """Look at a disk. Slowly."""
        return "fine"

    (tmp_path / "operations.md").write_text("You are {name}. You have:\n{tools}", encoding="utf-8")
    prompt = load_prompts({"operations": tmp_path / "operations.md"})["operations"]
    made, provider = desk(store, [say("ok")], registry=registry, prompt=prompt)
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    assert "Look at a disk." in provider.requests[0].messages[0].content


async def test_an_answer_lists_the_pages_that_its_run_found(store: Store) -> None:
    registry = ToolRegistry()

    async def web_search(query: str) -> dict[str, object]:
        """Search."""
        return {"ok": True, "rows": [{"title": "Timing", "url": "https://docs.example/timing", "snippet": query}]}

    registry.register(web_search)
    made, _ = desk(store, [call(("web_search", {"query": "timing"})), say("little"), say("again")], registry=registry)
    await made.inbox.accept(message("what does it cost?", number=1))
    await made.dispatcher.work_all()
    await made.inbox.accept(message("and now?", number=2))
    await made.dispatcher.work_all()
    assert made.texts == ["little\n\n**Sources**\n\n1. [Timing](https://docs.example/timing)", "again"]
