"""Memory counts each message once and leaves whole exchanges out."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.agent import Agent
from agent_core.llm.scripted import call, say
from agent_core.llm.types import ModelMessage, ToolCall
from agent_core.memory.budget import select_window
from agent_core.memory.conversation import Conversation
from agent_core.memory.validity import is_sendable, make_sendable
from agent_core.tools.registry import ToolRegistry
from tests.unit.engine.histories import random_history
from tests.unit.engine.running import Bench, WordCounter


class CountingCounter:
    """Counts characters, and how often it was asked."""

    exact = True

    def __init__(self) -> None:
        self.asked = 0

    def count(self, text: str) -> int:
        self.asked += 1
        return len(text)


def converse(history: list[ModelMessage]) -> Conversation:
    conversation = Conversation(CountingCounter())
    conversation.extend(history)
    return conversation


def test_under_the_budget_the_history_is_sent_as_it_is() -> None:
    history = random_history(random.Random(1))
    assert select_window(converse(history), 10**9) == tuple(history)


@given(st.integers(min_value=0, max_value=2**32), st.integers(min_value=1, max_value=2000))
def test_a_window_is_within_the_budget_or_the_current_exchange_alone(seed: int, budget: int) -> None:
    rng = random.Random(seed)
    history = [*random_history(rng), ModelMessage(role="user", content="now")]
    conversation = converse(history)
    window = select_window(conversation, budget)
    assert window[-1] == history[-1]
    rest = iter(history)
    assert all(any(message is kept for message in rest) for kept in window)  # in order, nothing twice
    assert sum(conversation.count(m) for m in window) <= budget or window == (history[-1],)


@given(st.integers(min_value=0, max_value=2**32), st.integers(min_value=1, max_value=3000))
def test_a_window_of_a_valid_history_needs_no_repair_of_pairs(seed: int, budget: int) -> None:
    rng = random.Random(seed)
    history = make_sendable([*random_history(rng), ModelMessage(role="user", content="now")])
    assert is_sendable(select_window(converse(list(history)), budget))


def test_a_current_exchange_that_is_too_large_keeps_its_question_and_its_newest_round() -> None:
    def tool_round(n: int) -> list[ModelMessage]:
        call = ToolCall(id=f"c{n}", name="t", arguments="{}")
        return [
            ModelMessage(role="assistant", tool_calls=(call,)),
            ModelMessage(role="tool", content=str(n) * 100, tool_call_id=call.id),
        ]

    history = [ModelMessage(role="user", content="the question"), *tool_round(1), *tool_round(2), *tool_round(3)]
    window = select_window(converse(history), 180)
    assert window[0].content == "the question"
    assert window[1:] == tuple(history[-2:])


def test_each_message_is_counted_once_however_often_it_is_sent() -> None:
    counter = CountingCounter()
    conversation = Conversation(counter)
    for n in range(50):
        conversation.append(ModelMessage(role="user", content=f"message {n}"))
        select_window(conversation, 100)
    assert counter.asked == 50


def tool_round(n: int, *sizes: int) -> list[ModelMessage]:
    calls = tuple(ToolCall(id=f"c{n}_{i}", name="t", arguments="{}") for i in range(len(sizes)))
    results = [
        ModelMessage(role="tool", content=f"[{n}{'x' * (size - 4)}{n}]", tool_call_id=call.id)
        for call, size in zip(calls, sizes, strict=True)
    ]
    return [ModelMessage(role="assistant", tool_calls=calls), *results]


def user(text: str) -> ModelMessage:
    return ModelMessage(role="user", content=text)


def answer(text: str) -> ModelMessage:
    return ModelMessage(role="assistant", content=text)


def cost(window: tuple[ModelMessage, ...]) -> int:
    return converse(list(window)).total_tokens


def test_a_large_tool_result_does_not_make_the_thread_forget_what_was_asked_and_answered() -> None:
    history = [
        user("which were slow?"),
        *tool_round(1, 24_000),
        answer("the orders query"),
        user("explain it"),
        *tool_round(2, 200),
        answer("an index is missing"),
        user("which one?"),
    ]
    window = select_window(converse(history), 8_000)
    assert [m.content for m in window if not m.tool_calls and m.role != "tool"] == [
        "which were slow?",
        "the orders query",
        "explain it",
        "an index is missing",
        "which one?",
    ]
    assert any(m.content.startswith("[2") for m in window)  # the newer exchange fits, and is whole
    assert cost(window) <= 8_000
    assert is_sendable(window)


def test_a_large_first_result_is_still_there_shortened_when_the_next_one_has_come() -> None:
    history = [user("which were slow, and why?"), *tool_round(1, 24_000), *tool_round(2, 1_000)]
    window = select_window(converse(history), 8_000)
    results = [m.content for m in window if m.role == "tool"]
    assert [text[:2] + text[-2:] for text in results] == ["[11]", "[22]"]
    assert "characters left out" in results[0]
    assert results[1] == history[-1].content
    assert 7_000 < cost(window) <= 8_000
    assert is_sendable(window)
    assert select_window(converse(history), 8_000) == window


def test_many_large_results_of_one_round_share_the_budget() -> None:
    history = [user("compare all"), *tool_round(1, *[24_000] * 12, 300)]
    window = select_window(converse(history), 8_000)
    results = [m.content for m in window if m.role == "tool"]
    assert len(results) == 13
    assert results[-1] == history[-1].content
    assert cost(window) <= 8_000


def test_a_run_that_fills_its_budget_keeps_what_the_thread_had_said_before() -> None:
    earlier = [user("is shop slow?"), answer("yes, the orders query")]
    history = [*earlier, user("explain it"), *(m for n in range(6) for m in tool_round(n, 7_000))]
    window = select_window(converse(history), 8_000)
    assert list(window[:3]) == [*earlier, history[2]]
    assert cost(window) <= 8_000


@given(
    st.lists(st.lists(st.lists(st.integers(4, 30_000), min_size=1, max_size=4), max_size=4), min_size=1, max_size=4),
    st.integers(min_value=1_500, max_value=20_000),
)
def test_whatever_the_tools_returned_a_window_can_be_sent_and_keeps_the_newest_round(
    turns: list[list[list[int]]], budget: int
) -> None:
    history: list[ModelMessage] = []
    for n, rounds in enumerate(turns):
        history.append(user(f"question {n}"))
        for sizes in rounds:
            history += tool_round(n, *sizes)
        history.append(answer(f"answer {n}"))
    newest = [user("now"), *tool_round(9, 5_000)]
    window = select_window(converse([*history, *newest]), budget)
    assert is_sendable(window)
    assert [m.role for m in window[-3:]] == ["user", "assistant", "tool"]
    assert cost(window) <= budget


@pytest.mark.parametrize("length", [10, 5_000])
def test_a_new_message_costs_one_call_of_the_tokenizer_however_long_the_thread_is(length: int) -> None:
    calls: list[str] = []

    class Counting(WordCounter):
        def count(self, text: str) -> int:
            calls.append(text)
            return super().count(text)

    conversation = Conversation(Counting())
    for n in range(length):
        conversation.append(ModelMessage(role="user", content=f"message {n}", speaker="ada"), 5)
    made = tuple(ToolCall(id=f"c{n}", name="look", arguments="{}") for n in range(3))
    conversation.append(ModelMessage(role="assistant", content="I look", tool_calls=made))
    select_window(conversation, 200)
    assert len(calls) == 1


async def test_a_run_whose_server_reports_no_usage_asks_the_tokenizer_once_a_message_and_once_a_tool() -> None:
    registry, counter = ToolRegistry(), CountingCounter()

    @registry.register
    def double(a: int) -> int:
        """Double a number."""
        return 2 * a

    rounds = [call(("double", {"a": n}), ("double", {"a": -n}), text=f"round {n}") for n in range(1, 4)]
    silent = [replace(turn, usage=None) for turn in (*rounds, say("done"))]
    bench = Bench(silent, agent=Agent(instructions="be brief", stream=False), registry=registry)
    bench.conversation = Conversation(counter)
    record = await bench.ask("six sums?")
    assert (record.answer, record.usage.exact) == ("done", False)
    assert counter.asked == len(bench.conversation) + 1 + 1  # and the instructions
