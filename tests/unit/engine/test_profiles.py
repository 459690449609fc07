"""What models are known to refuse is not sent, and what a refusal teaches is remembered."""

from __future__ import annotations

import pytest

from agent_core.llm.openai_wire import build_request
from agent_core.llm.profiles import amend, find_amendment, find_profile
from agent_core.llm.types import ModelMessage, ModelRequest, ToolSpec

REQUEST = ModelRequest(messages=(ModelMessage(role="user", content="q"),), temperature=0.7, max_tokens=100)


def body_for(model: str) -> dict[str, object]:
    return amend(build_request(model, REQUEST, stream=False), find_profile(model))


@pytest.mark.parametrize(
    "model",
    [
        "o1",
        "o3-mini-2025-01-31",
        "o4-mini",
        "gpt-5",
        "gpt-5.2",
        "gpt-5-mini-2025-08-07",
        "openai/gpt-5-nano",
        "azure/o3",
        "OpenAI/O1-preview",
        "eu.openai.gpt-6",
    ],
)
def test_bug_40_reasoning_models_get_their_own_bound_and_no_temperature(model: str) -> None:
    body = body_for(model)
    assert body["max_completion_tokens"] == 100
    assert "max_tokens" not in body
    assert "temperature" not in body


@pytest.mark.parametrize(
    "model",
    [
        "gpt-4o-mini",
        "gpt-4.1",
        "gpt-oss-120b",
        "deepseek-chat",
        "qwen-plus",
        "llama3.2:3b",
        "foo1",
        "openai/gpt-4o",
        "o1x",
        "meta/llama-o3x",
        "claude-opus-4-6",
        "gpt-50x",
    ],
)
def test_ordinary_models_get_the_ordinary_bound(model: str) -> None:
    body = body_for(model)
    assert (body["max_tokens"], body["temperature"]) == (100, 0.7)
    assert "max_completion_tokens" not in body


@pytest.mark.parametrize(
    "model", ["claude-opus-4-7", "claude-sonnet-5", "claude-haiku-5-5", "anthropic/claude-opus-4.8"]
)
def test_newer_claude_models_get_no_temperature(model: str) -> None:
    assert "temperature" not in body_for(model)
    assert "temperature" in body_for("claude-haiku-4-5-20251001")


SENT: dict[str, object] = {
    "max_tokens": 9,
    "temperature": 0.7,
    "tools": [1],
    "tool_choice": "required",
    "parallel_tool_calls": True,
    "stream_options": {"include_usage": True},
}


@pytest.mark.parametrize(
    ("said", "parameter", "learnt"),
    [
        (
            "unsupported_parameter Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            "max_tokens",
            {"max_tokens": "max_completion_tokens"},
        ),
        (
            "unsupported_value Unsupported value: 'temperature' does not support 0.7 with this model. "
            "Only the default (1) value is supported.",
            "temperature",
            {"temperature": None},
        ),
        ("invalid_request_error `temperature` is deprecated for this model.", None, {"temperature": None}),
        ("Unrecognized request argument supplied: parallel_tool_calls", None, {"parallel_tool_calls": None}),
        (
            "[{'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not permitted'}]",
            None,
            {"stream_options": None},
        ),
        ("deepseek-reasoner does not support this tool_choice", None, {"tool_choice": None}),
        (
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
            None,
            {"thinking": {"type": "disabled"}},
        ),
    ],
)
def test_bug_40_a_refusal_teaches_exactly_what_it_names(said: str, parameter: str | None, learnt: object) -> None:
    assert find_amendment(SENT, {}, f"{parameter or ''} {said}") == learnt


@pytest.mark.parametrize(
    "said",
    [
        "invalid_value 'max_tokens' is too large: 90000. This model supports at most 16384 completion tokens.",
        "Unsupported parameter: 'logit_bias' is not supported with this model.",
        "Unsupported parameter: 'max_completion_tokens' is not supported.",  # which was not sent
        "The model `gpt-9` does not exist",
        "Unknown value for temperatures",
    ],
)
def test_a_refusal_of_something_else_teaches_nothing(said: str) -> None:
    assert find_amendment(SENT, {}, said) == {}


def test_bug_40_a_bound_that_is_refused_under_both_names_is_left_out() -> None:
    known = {"max_tokens": "max_completion_tokens"}
    body = amend({"max_tokens": 9}, known)
    learnt = find_amendment(body, known, "Unsupported parameter: 'max_completion_tokens'")
    assert amend(body, learnt) == {}
    assert amend({"max_tokens": 9}, {**known, **learnt}) == {}


def test_tools_that_must_not_be_used_are_left_out_with_the_choice_that_says_so() -> None:
    assert amend({"tools": [1], "tool_choice": "none"}, {"tool_choice": None}) == {}
    assert amend({"tools": [1], "tool_choice": "required"}, {"tool_choice": None}) == {"tools": [1]}


def test_a_request_is_never_changed_in_its_tools() -> None:
    specs = (ToolSpec(name="f", description="d", parameters={"type": "object"}),)
    body = build_request("m", ModelRequest(messages=REQUEST.messages, tools=specs), stream=False)
    amend(body, {"tools": None})
    assert "tools" in build_request("m", ModelRequest(messages=REQUEST.messages, tools=specs), stream=False)
