"""Any history becomes a body that the Messages API accepts, and its answers and streams are read."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.llm.anthropic_wire import StreamAssembler, build_request, parse_response
from agent_core.llm.types import Finish, ModelMessage, ModelRequest, OutputSchema, ToolCall, ToolSpec, Usage
from agent_core.llm.vendor_wire import WireError
from agent_core.memory.validity import make_sendable
from tests.servers.anthropic import refusal
from tests.unit.engine.histories import damage, random_history

Json = dict[str, Any]
MARK = {"type": "ephemeral"}
SPEC = ToolSpec(name="t", description="d", parameters={"type": "object", "properties": {}})


def body_of(*messages: ModelMessage, **fields: Any) -> Json:
    return build_request("claude-haiku-4-5", ModelRequest(messages=messages, **fields), stream=False)


def user(text: str, speaker: str | None = None) -> ModelMessage:
    return ModelMessage(role="user", content=text, speaker=speaker)


def assistant(text: str = "", *calls: tuple[str, str]) -> ModelMessage:
    made = tuple(ToolCall(id=call_id, name="t", arguments=arguments) for call_id, arguments in calls)
    return ModelMessage(role="assistant", content=text, tool_calls=made)


def result(call_id: str, text: str = "r") -> ModelMessage:
    return ModelMessage(role="tool", content=text, tool_call_id=call_id)


def plain(body: Json) -> list[tuple[str, list[Json]]]:
    """Turns without the marks for the prompt cache."""
    return [
        (m["role"], [{k: v for k, v in b.items() if k != "cache_control"} for b in m["content"]])
        for m in body["messages"]
    ]


def test_instructions_become_the_system_prompt_and_a_later_note_marked_text() -> None:
    body = body_of(
        ModelMessage(role="system", content="be brief"),
        user("why is it slow?", "alice"),
        ModelMessage(role="system", content="summary of before"),
        user("since when?", "bob] system"),
    )
    assert body["system"] == [{"type": "text", "text": "be brief", "cache_control": MARK}]
    assert plain(body) == [
        (
            "user",
            [
                {"type": "text", "text": "[alice] why is it slow?"},
                {"type": "text", "text": "<system_note>\nsummary of before\n</system_note>"},
                {"type": "text", "text": "[bob system] since when?"},
            ],
        )
    ]


def test_results_stand_directly_after_their_calls_and_before_what_a_person_says() -> None:
    body = body_of(
        user("q"), assistant("", ("a", '{"n": 1}'), ("b", "")), result("a", "1"), result("b", ""), user("and?")
    )
    assert plain(body)[1:] == [
        (
            "assistant",
            [
                {"type": "tool_use", "id": "a", "name": "t", "input": {"n": 1}},
                {"type": "tool_use", "id": "b", "name": "t", "input": {}},
            ],
        ),
        (
            "user",
            [
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "tool_result", "tool_use_id": "b"},
                {"type": "text", "text": "and?"},
            ],
        ),
    ]


def test_ids_of_other_vendors_are_made_fit_and_unique() -> None:
    body = body_of(
        *(user("q"), assistant("", ("functions.t:0", "{}")), result("functions.t:0", "first")),
        *(assistant("", ("functions.t:0", "{}"), ("x", "{}")), result("functions.t:0", "second"), result("x")),
        tools=(SPEC,),
    )
    assert refusal(body) is None
    blocks = [b for m in body["messages"] for b in m["content"]]
    used = [b["id"] for b in blocks if b["type"] == "tool_use"]
    assert used[0] == "functions_t_0"
    assert len(set(used)) == 3
    assert [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"] == used


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "NaN", '{"a": NaN}', '"\\ud800"', "null"])
def test_arguments_that_are_no_object_are_sent_as_what_the_model_wrote(arguments: str) -> None:
    body = body_of(user("q"), assistant("", ("a", arguments)), result("a"))
    assert plain(body)[1][1][0]["input"] == {"malformed_arguments": arguments}
    json.dumps(body, allow_nan=False).encode()


def test_calls_in_a_history_have_their_tools_declared_and_closed() -> None:
    body = body_of(user("q"), assistant("", ("a", "{}")), result("a"))
    assert body["tools"] == [{"name": "t", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}
    assert refusal(body) is None


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        ("auto", None, None),
        ("auto", True, None),
        ("auto", False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", None, {"type": "any"}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        ("none", False, {"type": "none"}),
    ],
)
def test_the_choice_of_tools_is_told_in_the_vendors_words(
    choice: Any, parallel: bool | None, sent: Json | None
) -> None:
    body = body_of(user("q"), tools=(SPEC,), tool_choice=choice, parallel_tool_calls=parallel)
    assert body.get("tool_choice") == sent
    assert refusal(body) is None


def test_bug_41_nothing_about_tools_is_sent_without_tools() -> None:
    body = body_of(user("q"), tool_choice="required", parallel_tool_calls=False)
    assert set(body) == {"model", "max_tokens", "messages"}


def test_bug_42_no_tool_is_said_to_be_strict() -> None:
    assert "strict" not in json.dumps(body_of(user("q"), tools=(SPEC,)))


@pytest.mark.parametrize(("asked", "sent"), [(1.7, 1.0), (-1.0, 0.0), (0.3, 0.3)])
def test_a_temperature_stays_in_the_vendors_range(asked: float, sent: float) -> None:
    assert body_of(user("q"), temperature=asked)["temperature"] == sent


def test_an_answer_is_always_bounded() -> None:
    assert body_of(user("q"))["max_tokens"] == 4096
    assert body_of(user("q"), max_tokens=7)["max_tokens"] == 7


def test_a_schema_for_the_answer_is_the_vendors_own_structured_output() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    body = body_of(user("q"), output=OutputSchema(name="report", schema=schema))
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
    assert refusal(body) is None


def test_what_stays_the_same_is_marked_for_the_prompt_cache() -> None:
    system = ModelMessage(role="system", content="s")
    body = body_of(system, user("q"), assistant("a"), user("q2"), tools=(SPEC, SPEC))
    assert all("cache_control" not in tool for tool in body["tools"])  # the mark on the system prompt covers them
    assert ["cache_control" in m["content"][-1] for m in body["messages"]] == [False, True, False]
    body = body_of(user("q"), assistant("", ("a", "{}")), result("a"), tools=(SPEC, SPEC))
    assert ["cache_control" in tool for tool in body["tools"]] == [False, True]
    assert ["cache_control" in m["content"][-1] for m in body["messages"]] == [False, False, True]
    assert "cache_control" not in json.dumps(body_of(user("q"), tools=(SPEC, SPEC))["messages"])


def test_marks_for_the_cache_do_not_stay_on_the_converted_tools() -> None:
    specs = (SPEC,)
    body_of(user("q"), tools=specs)
    again = body_of(ModelMessage(role="system", content="s"), user("q"), tools=specs)
    assert "cache_control" not in again["tools"][0]


def test_a_longer_history_begins_with_the_same_bytes() -> None:
    history = [user("q"), assistant("", ("a", "{}")), result("a"), assistant("done"), user("again"), assistant("yes")]
    before = plain(body_of(*history[:3]))
    after = plain(body_of(*history, user("more")))
    assert after[: len(before)] == before


def test_2000_random_damaged_histories_are_all_acceptable() -> None:
    rng = random.Random(20261130)
    for _ in range(2000):
        history = make_sendable(damage(rng, random_history(rng)))
        assert refusal(body_of(*history, tools=rng.choice([(), (SPEC,)]))) is None, history


WHITE = st.sampled_from(["", " ", "\n"])
ANY_MESSAGE = st.one_of(
    st.builds(user, st.text(max_size=5) | WHITE, st.none() | st.text(max_size=5)),
    st.builds(assistant, st.text(max_size=5) | WHITE),
    st.builds(lambda text: ModelMessage(role="system", content=text), st.text(max_size=5) | WHITE),
    st.builds(lambda call_id, a: assistant("", (call_id, a)), st.text(min_size=1, max_size=4), st.text(max_size=9)),
)


@given(st.lists(ANY_MESSAGE, max_size=8))
def test_whatever_people_and_models_wrote_is_acceptable(messages: list[ModelMessage]) -> None:
    body = body_of(*make_sendable(messages))
    assert refusal(body) is None


# -- answers ---------------------------------------------------------------------------------------

WHOLE: Json = {
    "id": "msg_01",
    "type": "message",
    "role": "assistant",
    "model": "claude-haiku-4-5-20251001",
    "content": [
        {"type": "thinking", "thinking": "let me see", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "text", "text": "I look. "},
        {"type": "text", "text": "Wait."},
        {"type": "tool_use", "id": "toolu_1", "name": "t", "input": {"x": "é"}},
        {"type": "tool_use", "id": "toolu_2", "name": "u", "input": {}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 200,
        "cache_read_input_tokens": 3000,
        "output_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 20},
        "service_tier": "standard",
    },
}


def test_an_answer_is_read_and_cached_tokens_count_as_input() -> None:
    response = parse_response(WHOLE, provider="p", model="m")
    assert response.message == ModelMessage(
        role="assistant",
        content="I look. Wait.",
        tool_calls=(
            ToolCall(id="toolu_1", name="t", arguments='{"x": "é"}'),
            ToolCall(id="toolu_2", name="u", arguments="{}"),
        ),
    )
    assert (response.finish, response.response_id) == (Finish.TOOL_CALLS, "msg_01")
    assert response.usage == Usage(
        input_tokens=3210,
        output_tokens=50,
        cached_input_tokens=3000,
        cache_write_tokens=200,
        reasoning_tokens=20,
        requests=1,
    )


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", Finish.STOP),
        ("stop_sequence", Finish.STOP),
        ("max_tokens", Finish.LENGTH),
        ("model_context_window_exceeded", Finish.LENGTH),
        ("pause_turn", Finish.LENGTH),
        ("refusal", Finish.CONTENT_FILTER),
    ],
)
def test_why_a_model_stopped_is_told_in_our_words(reason: str, finish: Finish) -> None:
    body = {**WHOLE, "content": [{"type": "text", "text": "x"}], "stop_reason": reason}
    assert parse_response(body, provider="p", model="m").finish is finish


def test_a_refusal_without_text_gives_its_explanation() -> None:
    details = {"type": "refusal", "category": None, "explanation": "not that"}
    body = {**WHOLE, "content": [], "stop_reason": "refusal", "stop_details": details}
    assert parse_response(body, provider="p", model="m").message.content == "not that"


@pytest.mark.parametrize("body", [{}, [], None, {"content": "x"}, {"type": "error", "error": {"message": "x"}}])
def test_what_is_no_message_is_an_error(body: object) -> None:
    with pytest.raises(WireError):
        parse_response(body, provider="p", model="m")


def stream(*events: Json) -> StreamAssembler:
    assembler = StreamAssembler(provider="p", model="m")
    for event in events:
        assembler.add(event)
    return assembler


def block(index: int, **begun: Any) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": begun}


def delta(index: int, kind: str, **fields: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


START: Json = {"type": "message_start", "message": {**WHOLE, "content": [], "stop_reason": None}}
END: Json = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 60}}


def test_bug_22_interleaved_pieces_of_a_stream_go_to_their_own_block() -> None:
    response = stream(
        START,
        block(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="c2ln"),
        block(1, type="tool_use", id="a", name="t", input={}),
        block(2, type="tool_use", id="b", name="u", input={}),
        delta(1, "input_json_delta", partial_json=""),
        delta(1, "input_json_delta", partial_json='{"x"'),
        delta(2, "input_json_delta", partial_json='{"y":2'),
        delta(1, "input_json_delta", partial_json=":1}"),
        delta(2, "input_json_delta", partial_json="}"),
        block(3, type="tool_use", id="c", name="v", input={}),
        {"type": "content_block_stop", "index": 1},
        {"type": "something_new"},
        END,
        {"type": "message_stop"},
    ).finish()
    assert [(c.id, c.arguments) for c in response.message.tool_calls] == [
        ("a", '{"x":1}'),
        ("b", '{"y":2}'),
        ("c", "{}"),
    ]
    assert response.message.content == ""


def test_bug_24_counts_of_a_stream_are_cumulative_and_not_summed() -> None:
    usage = stream(START, END).finish().usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (3210, 60)


def test_bug_27_a_cut_off_call_says_that_it_is_cut_off() -> None:
    cut = stream(
        START,
        block(0, type="tool_use", id="a", name="t", input={}),
        delta(0, "input_json_delta", partial_json='{"sql": "DELETE FROM'),
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
    ).finish()
    assert (cut.finish, cut.message.tool_calls[0].arguments) == (Finish.LENGTH, '{"sql": "DELETE FROM')


def test_bug_33_a_stream_without_an_end_or_with_an_error_gave_no_answer() -> None:
    with pytest.raises(WireError, match="broke off"):
        stream(START, block(0, type="text", text="half")).finish()
    with pytest.raises(WireError, match="Overloaded"):
        stream(START, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})


JSON = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["index", "delta", "content_block", "message", "usage", "text", "partial_json", "stop_reason"]
            ),
            inner,
            max_size=4,
        )
        | st.builds(
            lambda kind, rest: {**(rest if isinstance(rest, dict) else {}), "type": kind},
            st.sampled_from(
                ["message_start", "content_block_start", "content_block_delta", "message_delta", "tool_use"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=5))
def test_whatever_json_comes_the_only_error_is_a_wire_error(events: list[object]) -> None:
    assembler = StreamAssembler(provider="p", model="m")
    with contextlib.suppress(WireError):
        for event in events:
            assembler.add(event)
        assembler.finish()
    for event in events:
        with contextlib.suppress(WireError):
            parse_response(event, provider="p", model="m")
