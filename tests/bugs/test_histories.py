"""Rows 1 to 9: a thread never gets into a state that a model refuses, whatever was trimmed, cancelled or killed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.context import Limits
from agent_core.errors import ModelFailed, Repetition, RunError, StepLimit, ToolCallLimit
from agent_core.llm.openai_wire import build_message
from agent_core.llm.types import ModelMessage, ModelRequest, ToolCall
from agent_core.memory.budget import select_window
from agent_core.memory.conversation import Conversation
from agent_core.memory.validity import INTERRUPTED, make_sendable
from agent_core.runtime.events import RunEvent
from agent_core.runtime.state import RunState
from tests.bugs.stage import Stage, as_bytes, pairs
from tests.servers.openai import OpenAIServer, Request, protocol_breach
from tests.unit.engine.histories import random_history


class Letters:
    """Counts characters."""

    exact = True

    def count(self, text: str) -> int:
        return len(text)


def breach(messages: tuple[ModelMessage, ...]) -> str | None:
    """What the strict model server says of a history."""
    return protocol_breach({"messages": [build_message(m) for m in messages]})


def converse(history: list[ModelMessage]) -> Conversation:
    conversation = Conversation(Letters())
    conversation.extend(history)
    return conversation


def a_thread(seed: int) -> list[ModelMessage]:
    """A valid history of several turns, and the next question."""
    history = random_history(random.Random(seed), turns=4)
    return list(make_sendable([*history, ModelMessage(role="user", content="now")]))


def two_parallel_rounds() -> list[ModelMessage]:
    """Two assistant messages with two parallel calls each, and an answer."""

    def round_of(n: int) -> list[ModelMessage]:
        calls = tuple(ToolCall(id=f"{n}{letter}", name="look", arguments="{}") for letter in "ab")
        results = [ModelMessage(role="tool", content=f"r{c.id}", tool_call_id=c.id) for c in calls]
        return [ModelMessage(role="assistant", tool_calls=calls), *results]

    question, answer = ModelMessage(role="user", content="q"), ModelMessage(role="assistant", content="a")
    return [question, *round_of(1), *round_of(2), answer]


# -- trimming ------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.floats(0, 1))
def test_bug_1_any_trim_of_any_valid_history_is_valid(seed: int, share: float) -> None:
    conversation = converse(a_thread(seed))
    window = select_window(conversation, int(conversation.total_tokens * share))
    assert breach(window) is None
    assert make_sendable(window) == window  # nothing had to be mended, so nothing was torn apart


async def test_bug_1_the_server_accepts_200_trimmed_histories_and_refuses_torn_ones(
    server: OpenAIServer, stage: Stage
) -> None:
    server.on().text("ok")
    rng = random.Random(10696)
    for seed in range(200):
        conversation = converse(a_thread(seed))
        window = select_window(conversation, rng.randrange(conversation.total_tokens))
        await stage.provider.complete(ModelRequest(messages=window))
    assert server.violations == []
    torn = tuple(m for m in two_parallel_rounds() if m.tool_call_id != "1b")  # what the bug sent
    assert "did not have response messages: 1b" in (breach(torn) or "")


@given(st.integers(0, 2**32), st.integers(0, 100))
def test_bug_2_under_the_budget_a_history_is_sent_as_it_is(seed: int, more: int) -> None:
    history = a_thread(seed)
    conversation = converse(history)
    window = make_sendable(select_window(conversation, conversation.total_tokens + more))
    assert as_bytes([build_message(m) for m in window]) == as_bytes([build_message(m) for m in history])


async def test_bug_2_a_later_request_repeats_an_earlier_one_byte_by_byte(server: OpenAIServer, stage: Stage) -> None:
    server.on(step=0, user="first").tools(("look", {"where": "here"}), ("look", {"where": "there"}))
    server.on().text("seen")
    await stage.ask("first", "run1")
    await stage.ask("second", "run2")
    first, second = stage.sent(1), stage.sent(2)
    assert [m["role"] for m in first] == ["system", "user", "assistant", "tool", "tool"]
    assert as_bytes(second[: len(first)]) == as_bytes(first)


@pytest.mark.parametrize("cut", range(7))
def test_bug_3_a_cut_between_parallel_calls_keeps_no_result_whose_call_is_gone(cut: int) -> None:
    history = two_parallel_rounds()
    kept = make_sendable([*history[cut:], ModelMessage(role="user", content="next")])
    assert breach(kept) is None
    whole = [call.id for message in history[cut:] for call in message.tool_calls]
    assert [m.content for m in kept if m.role == "tool"] == [f"r{call_id}" for call_id in whole]


@pytest.mark.parametrize("lost", range(7))
def test_bug_3_a_message_that_is_lost_takes_no_others_with_it(lost: int) -> None:
    history = two_parallel_rounds()
    gone = history[lost]
    kept = make_sendable([*history[:lost], *history[lost + 1 :], ModelMessage(role="user", content="next")])
    assert breach(kept) is None
    expected = {"r1a", "r1b", "r2a", "r2b"} - {gone.content} - {f"r{call.id}" for call in gone.tool_calls}
    assert {m.content for m in kept if m.role == "tool"} - {INTERRUPTED} == expected


# -- stopping ------------------------------------------------------------------------------------------


async def cancel_at(stage: Stage, n: int) -> RunEvent | None:
    """Run a turn and cancel it at its n-th event; returns that event, None when the run had fewer."""
    events: list[RunEvent] = []

    def emit(event: RunEvent) -> None:
        events.append(event)
        if len(events) == n:
            work.cancel()

    work = asyncio.create_task(stage.ask("first", f"run{n}", emit=emit))
    with contextlib.suppress(asyncio.CancelledError):
        await work
    return events[n - 1] if len(events) >= n else None


async def test_bug_5_a_run_cancelled_at_any_of_its_events_leaves_a_thread_that_goes_on(server: OpenAIServer) -> None:
    server.on(user="first", step=0).tools(("look", {}), ("restart", {}))
    server.on(user="first", step=1).tools(("look", {"where": "there"}))
    server.on().text("done")
    seen: set[str] = set()
    for n in itertools.count(1):
        async with Stage(server) as stage:
            event = await cancel_at(stage, n)
            if event is None:
                break
            seen.add(str(getattr(event, "state", type(event).__name__)))
            record = await stage.ask("are you there?", "next")
            assert record.answer == "done", (n, event)
            assert stage.ran["restart a"] <= 1
    assert {*RunState} - {RunState.INIT, RunState.ERROR} | {"ToolStarted", "ToolFinished"} <= seen
    assert server.violations == []


async def test_bug_5_a_run_cancelled_while_a_model_answers_leaves_a_thread_that_goes_on(
    server: OpenAIServer, stage: Stage
) -> None:
    asked = asyncio.Event()

    def note(request: Request) -> bool:
        asked.set()
        return True

    server.on(user="first", where=note).hang()
    server.on().text("done")
    work = asyncio.create_task(stage.ask("first"))
    await asyncio.wait_for(asked.wait(), 30)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (await stage.ask("are you there?", "next")).answer == "done"
    assert server.violations == []


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        (Limits(max_steps=2), StepLimit),
        (Limits(tool_calls=2), ToolCallLimit),
        (Limits(max_same_action=2), Repetition),
        (Limits(), ModelFailed),
    ],
)
async def test_bug_7_a_guard_that_ends_a_run_deletes_no_call_whose_effect_has_happened(
    server: OpenAIServer, limits: Limits, error: type[RunError]
) -> None:
    server.on(user="first", step=0).tools(("restart", {"host": "a"}), ("look", {}))
    second = server.on(user="first", step=1)
    if error is ModelFailed:
        second.text("", finish="content_filter")
    else:
        second.tools(("restart", {"host": "b"}), ("look", {}))
    server.on(user="first").text("done")
    server.on(user="next").text("ok")
    async with Stage(server, limits=limits) as stage:
        record = await stage.ask("first")
        assert isinstance(record.error, error)
        assert stage.ran["restart a"] == 1
        await stage.ask("next", "run2")
        results = {str(m["content"]) for m in stage.sent() if m["role"] == "tool"}
        assert any("a restarted" in content for content in results)
        assert server.violations == []


# -- mending ------------------------------------------------------------------------------------------


async def test_bug_8_a_history_that_breaks_in_the_middle_of_a_run_is_mended_before_each_request(
    server: OpenAIServer, stage: Stage
) -> None:
    orphan = ModelMessage(role="tool", content="{}", tool_call_id="never_called")
    unanswered = ModelMessage(role="assistant", tool_calls=(ToolCall(id="x", name="look", arguments="{}"),))

    async def disturb(n: int) -> str:
        """Break the history that the run works on."""
        stage.conversation.append(ModelMessage(role="user", content=f"message {n} that came meanwhile"))
        stage.conversation.append(orphan)
        stage.conversation.append(replace(unanswered, tool_calls=(ToolCall(id=f"x{n}", name="look", arguments="{}"),)))
        return f"disturbed {n}"

    stage.registry.register(disturb)
    server.on(where=lambda r: "disturbed 1" in str(r.messages)).text("done")
    server.on(where=lambda r: "disturbed 0" in str(r.messages)).tools(("disturb", {"n": 1}))
    server.on().tools(("disturb", {"n": 0}))
    record = await stage.ask("first")
    assert record.answer == "done"
    assert len(server.requests) == 3
    assert server.violations == []
    contents = [str(m["content"]) for m in stage.sent()]
    assert all(any(f"disturbed {n}" in content for content in contents) for n in (0, 1))
    assert contents.count(INTERRUPTED) == 2
    assert "never_called" not in str(stage.sent())


async def test_bug_9_a_thread_stored_by_a_process_that_died_in_a_tool_goes_on(
    server: OpenAIServer, stage: Stage
) -> None:
    server.on().text("ok")
    calls = tuple(ToolCall(id=i, name="look", arguments="{}") for i in ("a", "b"))
    stage.conversation.extend(
        [
            ModelMessage(role="user", content="first"),
            ModelMessage(role="assistant", tool_calls=calls),
            ModelMessage(role="tool", content="looked here", tool_call_id="a"),
        ]
    )
    for n in range(3):  # every retry, not only the first
        assert (await stage.ask("and now?", f"run{n}")).answer == "ok"
    assert server.violations == []
    results = [(m["tool_call_id"], m["content"]) for m in stage.sent() if m["role"] == "tool"]
    assert results == [("a", "looked here"), ("b", INTERRUPTED)]
    assert pairs(make_sendable(stage.conversation.messages)) == [("look", "looked here"), ("look", INTERRUPTED)]
