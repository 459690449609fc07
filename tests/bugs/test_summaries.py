"""Rows 4, 34 and 35: a summary tears no call from its result, ends in any case, and never stands for what it lost."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent_core.agent import Agent
from agent_core.llm.tokens import load_counter
from agent_core.llm.types import ModelMessage, ToolCall
from agent_core.memory.conversation import Conversation, Summary
from agent_core.memory.summarize import Summarizer
from agent_core.runtime.events import RunEvent, Summarized
from agent_core.runtime.state import RunState
from tests.bugs.stage import Stage
from tests.servers.openai import Failure, OpenAIServer, Reply, Request

WORDS = "the orders table of the shop database has no index on created_at and is read whole by each report"
MEMORY_TOKENS = 1_000
AGENT = Agent(instructions="be brief", memory_tokens=MEMORY_TOKENS)


def long_thread(exchanges: int = 12) -> list[ModelMessage]:
    """A thread of about 100 tokens an exchange, each with a tool round, well over the memory budget."""
    thread: list[ModelMessage] = []
    for n in range(exchanges):
        calls = tuple(ToolCall(id=f"c{n}{letter}", name="look", arguments="{}") for letter in "ab")
        thread += [
            ModelMessage(role="user", content=f"question {n}: {WORDS}"),
            ModelMessage(role="assistant", tool_calls=calls),
            *(ModelMessage(role="tool", content=f"result {c.id}: {WORDS}", tool_call_id=c.id) for c in calls),
            ModelMessage(role="assistant", content=f"answer {n}: {WORDS}"),
        ]
    return thread


def is_summary(request: Request) -> bool:
    return "<conversation>" in request.last_user


@pytest.fixture
async def thread(server: OpenAIServer) -> AsyncIterator[Stage]:
    """A stage whose conversation is over its budget."""
    async with Stage(server, summarizer=Summarizer()) as stage:
        stage.conversation = Conversation(load_counter("gpt-4o"))
        stage.conversation.extend(long_thread())
        yield stage


def results_without_call(messages: list[dict[str, object]]) -> set[object]:
    ids = {c["id"] for m in messages for c in m.get("tool_calls") or []}  # type: ignore[attr-defined]
    return {m["tool_call_id"] for m in messages if m["role"] == "tool"} - ids


# -- row 4 ---------------------------------------------------------------------------------------------------------


async def test_bug_4_wherever_a_summary_ends_no_result_is_left_without_its_call(server: OpenAIServer) -> None:
    server.on().text("ok")
    for covers in range(len(long_thread(2)) + 1):
        async with Stage(server) as stage:
            stage.conversation.extend(long_thread(2))
            stage.conversation.summary = Summary(text="what was before", covers=covers, tokens_after=10)
            assert (await stage.ask("and now?", agent=AGENT)).answer == "ok"
            assert results_without_call(stage.sent()) == set()
            assert "what was before" in str(stage.sent())
    assert server.violations == []


async def test_bug_4_a_summary_by_the_model_ends_between_two_exchanges(server: OpenAIServer, thread: Stage) -> None:
    server.on(where=is_summary).text("they look for a missing index")
    server.on().text("ok")
    for n in range(6):
        await thread.ask(f"and now, for the {n}th time? {WORDS}", f"run{n}", agent=AGENT)
        covers = thread.conversation.covers
        assert covers > 0
        assert thread.conversation.messages[covers].role == "user"
        assert thread.conversation.messages[covers - 1].role != "user"
    assert server.violations == []


# -- row 34 --------------------------------------------------------------------------------------------------------


async def test_bug_34_a_summary_that_stays_too_long_is_tried_twice_and_then_the_history_is_cut(
    server: OpenAIServer, thread: Stage
) -> None:
    server.on(where=is_summary).context_overflow(100)
    server.on().text("ok")
    for n in range(3):
        before = list(thread.conversation.messages)
        asked = len(server.requests)
        record = await thread.ask("and now?", f"run{n}", agent=AGENT)
        turn = server.requests[asked:]
        assert (record.state, record.answer) == (RunState.FINISHED, "ok")
        assert [is_summary(r) for r in turn] == [True, True, False]
        assert len(turn[1].last_user) < len(turn[0].last_user)  # not the same request again
        assert thread.conversation.messages[: len(before)] == before
        assert len(thread.conversation) == len(before) + 2
    assert thread.conversation.summary is None
    assert "maximum context length" not in str([r.messages for r in server.requests])
    assert server.violations == []


async def test_bug_34_a_summary_that_is_no_shorter_is_not_asked_for_again_in_the_same_turn(
    server: OpenAIServer, thread: Stage
) -> None:
    server.on(where=is_summary).dynamic(lambda request: Reply(request.last_user))
    server.on().text("ok")
    record = await thread.ask("and now?", agent=AGENT)
    assert record.answer == "ok"
    assert [is_summary(r) for r in server.requests] == [True, False]
    assert thread.conversation.summary is None


@pytest.mark.parametrize("window", [3_000, 1_500, 1_000, 800])
async def test_bug_34_a_model_with_a_small_window_is_asked_at_most_three_times_in_a_turn(window: int) -> None:
    count = load_counter("gpt-4o").count
    async with OpenAIServer(max_context=window, count=count) as server, Stage(server, summarizer=Summarizer()) as stage:
        stage.conversation = Conversation(load_counter("gpt-4o"))
        stage.conversation.extend(long_thread())
        server.on(where=is_summary).text("they look for a missing index")
        server.on().text("ok")
        for n in range(6):
            asked = len(server.requests)
            record = await stage.ask(f"and now? {WORDS}", f"run{n}", agent=AGENT)
            turn = server.requests[asked:]
            assert len(turn) <= 3, [(is_summary(r), r.outcome) for r in turn]
            assert record.answer == "ok", (str(record.error), [(is_summary(r), r.outcome) for r in turn], n)
        assert server.violations == []


# -- row 35 --------------------------------------------------------------------------------------------------------

FAILURES = {
    "error": Failure(500, "server_error", "Error generating summary"),
    "no connection": Failure(500, "", "", drop=True),
    "empty": Reply(""),
    "cut off": Reply("they look for", finish="length"),
    "filtered": Reply("", finish="content_filter"),
    "broken stream": Reply("they look for a missing index", quirk="garbage"),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
async def test_bug_35_a_failed_summary_leaves_the_history_and_is_tried_again_in_the_next_turn(
    server: OpenAIServer, thread: Stage, failure: Failure | Reply
) -> None:
    server.on(where=is_summary).dynamic(lambda request: failure).once()
    server.on(where=is_summary).text("they look for a missing index")
    server.on().text("ok")
    before = list(thread.conversation.messages)
    events: list[RunEvent] = []
    record = await thread.ask("and now?", "run1", agent=AGENT, emit=events.append)
    assert (record.state, record.answer) == (RunState.FINISHED, "ok")
    assert thread.conversation.summary is None
    assert thread.conversation.messages[: len(before)] == before
    assert not any(isinstance(event, Summarized) for event in events)
    assert record.steps[0].purpose == "summary"  # the trace tells that it was tried
    assert "rror generating" not in str(thread.sent())
    assert "answer 11" in str(thread.sent())  # the newest part is there, cut and not summarised
    await thread.ask("and then?", "run2", agent=AGENT, emit=events.append)
    assert [event.summary.text for event in events if isinstance(event, Summarized)] == [
        "they look for a missing index"
    ]
    assert "they look for a missing index" in str(thread.sent())
    assert server.violations == []


async def test_bug_35_a_summary_is_written_from_the_beginning_on(server: OpenAIServer, thread: Stage) -> None:
    server.on(where=is_summary).text("they look for a missing index")
    server.on().text("ok")
    await thread.ask("and now?", agent=AGENT)
    told = server.requests[0].last_user
    covered = thread.conversation.messages[: thread.conversation.covers]
    assert "question 0" in told
    assert [m for m in covered if m.role == "user" and m.content[:12] in told][-1] == [
        m for m in covered if m.role == "user"
    ][-1]
