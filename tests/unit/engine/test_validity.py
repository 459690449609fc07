"""Whatever happened to a history, what is sent is accepted."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.llm.openai_wire import build_message
from agent_core.llm.types import ModelMessage, ToolCall
from agent_core.memory.validity import INTERRUPTED, is_sendable, make_sendable
from tests.servers.openai import protocol_breach
from tests.unit.engine.histories import damage, random_history


def breach(messages: tuple[ModelMessage, ...]) -> str | None:
    """What the strict model server says of a history."""
    return protocol_breach({"messages": [build_message(m) for m in messages]})


@given(st.integers(min_value=0, max_value=2**32))
def test_any_damaged_history_becomes_acceptable_to_the_strict_server(seed: int) -> None:
    rng = random.Random(seed)
    history = damage(rng, random_history(rng))
    assert breach(make_sendable(history)) is None


@given(st.integers(min_value=0, max_value=2**32))
def test_a_repaired_history_is_valid_and_repairing_it_again_changes_nothing(seed: int) -> None:
    rng = random.Random(seed)
    once = make_sendable(damage(rng, random_history(rng)))
    assert is_sendable(once)
    assert make_sendable(once) == once


@given(st.integers(min_value=0, max_value=2**32))
def test_a_valid_history_comes_back_unchanged(seed: int) -> None:
    rng = random.Random(seed)
    history = [m for m in random_history(rng) if m.content or m.tool_calls]
    clean = make_sendable(history)
    assert make_sendable(list(clean)) == clean


@given(st.integers(min_value=0, max_value=2**32))
def test_a_call_with_its_result_is_never_left_out(seed: int) -> None:
    rng = random.Random(seed)
    history = random_history(rng)
    kept = make_sendable([*history, ModelMessage(role="user", content="next")])
    found = [m.content for m in history if m.role == "tool"]
    assert [m.content.replace("{}", "") for m in kept if m.role == "tool"] == found


def _call(call_id: str) -> ToolCall:
    return ToolCall(id=call_id, name="t", arguments="{}")


def test_a_call_without_a_result_gets_one_that_says_interrupted() -> None:
    history = [
        ModelMessage(role="user", content="q"),
        ModelMessage(role="assistant", tool_calls=(_call("a"), _call("b"))),
        ModelMessage(role="tool", content="ra", tool_call_id="a"),
        ModelMessage(role="user", content="next"),
    ]
    sent = make_sendable(history)
    assert [(m.role, m.tool_call_id, m.content) for m in sent[2:4]] == [
        ("tool", "a", "ra"),
        ("tool", "b", INTERRUPTED),
    ]


def test_a_result_behind_an_injected_message_moves_up_to_its_call() -> None:
    history = [
        ModelMessage(role="user", content="q"),
        ModelMessage(role="assistant", tool_calls=(_call("a"),)),
        ModelMessage(role="user", content="wait"),
        ModelMessage(role="tool", content="ra", tool_call_id="a"),
    ]
    assert [m.role for m in make_sendable(history)] == ["user", "assistant", "tool", "user"]
    assert make_sendable(history)[2].content == "ra"


def test_an_id_that_comes_back_in_a_later_turn_keeps_both_results() -> None:
    history = [
        ModelMessage(role="user", content="q"),
        ModelMessage(role="assistant", tool_calls=(_call("1"),)),
        ModelMessage(role="tool", content="first", tool_call_id="1"),
        ModelMessage(role="assistant", tool_calls=(_call("1"),)),
        ModelMessage(role="tool", content="second", tool_call_id="1"),
    ]
    assert make_sendable(history) == tuple(history)


def test_two_calls_with_one_id_in_one_message_are_told_apart() -> None:
    history = [
        ModelMessage(role="user", content="q"),
        ModelMessage(role="assistant", tool_calls=(_call("1"), _call("1"))),
        ModelMessage(role="tool", content="first", tool_call_id="1"),
        ModelMessage(role="tool", content="second", tool_call_id="1"),
    ]
    sent = make_sendable(history)
    assert breach(sent) is None
    assert len({c.id for c in sent[1].tool_calls}) == 2


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_an_empty_message_never_goes_out_empty(role: str) -> None:
    history = [ModelMessage(role="user", content="q"), ModelMessage(role=role)]  # type: ignore[arg-type]
    assert all(m.content for m in make_sendable(history))
