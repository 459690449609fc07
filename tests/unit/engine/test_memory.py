"""Memory counts each message once and leaves whole exchanges out."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from agent_core.llm.types import ModelMessage, ToolCall
from agent_core.memory.budget import select_window
from agent_core.memory.conversation import Conversation
from agent_core.memory.validity import is_sendable, make_sendable
from tests.unit.engine.histories import random_history


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
    assert window == tuple(history[len(history) - len(window) :])
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
