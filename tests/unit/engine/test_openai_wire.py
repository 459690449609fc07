"""Streams of servers that keep to the protocol less strictly are put together all the same."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import ConfigError
from agent_core.llm.openai_wire import (
    StreamAssembler,
    build_message,
    build_request,
    parse_embeddings,
    parse_response,
)
from agent_core.llm.types import Finish, ModelMessage, ModelRequest, OutputSchema, ToolCall, ToolSpec, Usage
from agent_core.llm.vendor_wire import WireError
from agent_core.tools.registry import ToolRegistry

Json = dict[str, object]


def assemble(*chunks: Json) -> StreamAssembler:
    assembler = StreamAssembler(provider="p", model="m")
    for chunk in chunks:
        assembler.add(chunk)
    return assembler


def delta(finish: str | None = None, **fields: object) -> Json:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def piece(arguments: str, *, index: int | None = None, call_id: str | None = None, name: str | None = None) -> Json:
    function: Json = {"arguments": arguments}
    if name:
        function["name"] = name
    call: Json = {"function": function}
    if index is not None:
        call["index"] = index
    if call_id is not None:
        call["id"] = call_id
    return delta(tool_calls=[call])


def calls(assembler: StreamAssembler) -> list[tuple[str, str]]:
    assembler.add(delta("tool_calls"))
    return [(c.name, c.arguments) for c in assembler.finish().message.tool_calls]


def test_bug_20_two_calls_under_one_index_stay_two() -> None:
    stream = assemble(
        piece('{"a":1}', index=0, call_id="x", name="f"), piece('{"b":2}', index=0, call_id="y", name="g")
    )
    assert calls(stream) == [("f", '{"a":1}'), ("g", '{"b":2}')]


def test_bug_21_pieces_without_an_index_belong_to_the_last_call() -> None:
    stream = assemble(
        piece("", call_id="x", name="f"), piece('{"a"'), piece(":1}"), piece('{"b":2}', call_id="y", name="g")
    )
    assert calls(stream) == [("f", '{"a":1}'), ("g", '{"b":2}')]


def test_bug_22_interleaved_pieces_go_to_their_own_call() -> None:
    stream = assemble(
        piece("", index=0, call_id="x", name="f"),
        piece("", index=1, call_id="y", name="g"),
        piece('{"a"', index=0),
        piece('{"b"', index=1),
        piece(":1}", index=0),
        piece(":2}", index=1),
    )
    assert calls(stream) == [("f", '{"a":1}'), ("g", '{"b":2}')]


def test_bug_23_a_placeholder_id_is_no_new_call() -> None:
    stream = assemble(
        piece('{"a"', index=0, call_id="x", name="f"),
        piece(":1", index=0, call_id="null"),
        piece("}", index=0, call_id=""),
    )
    assert calls(stream) == [("f", '{"a":1}')]


def test_an_id_that_comes_late_joins_its_call() -> None:
    stream = assemble(piece("", index=0, name="f"), piece('{"a":1}', index=0, call_id="x"))
    assert calls(stream) == [("f", '{"a":1}')]


def test_bug_24_cumulative_usage_is_not_summed() -> None:
    stream = assemble(
        {**delta(content="a"), "usage": {"prompt_tokens": 5, "completion_tokens": 1}},
        {**delta("stop", content="b"), "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
    )
    usage = stream.finish().usage
    assert usage is not None
    assert usage.total_tokens == 7


def test_bug_25_and_26_usage_is_read_wherever_it_is() -> None:
    details: Json = {"cached_tokens": 3}
    last: Json = {
        "choices": [],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": details},
    }
    usage = assemble(delta("stop", content="a"), last).finish().usage
    assert usage is not None
    assert usage.cached_input_tokens == 3
    beside: Json = {**delta("stop", content="a"), "usage": {"prompt_tokens": 2, "completion_tokens": 1}}
    assert assemble(beside).finish().usage is not None


def test_a_stream_without_an_end_is_an_error() -> None:
    with pytest.raises(WireError, match="broke off"):
        assemble(delta(content="half")).finish()


@pytest.mark.parametrize("chunk", [{"error": "x"}, [], "text", {"id": 1}])
def test_what_is_no_chunk_is_an_error(chunk: object) -> None:
    with pytest.raises(WireError):
        StreamAssembler(provider="p", model="m").add(chunk)


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [{}]}, [], None])
def test_what_is_no_completion_is_an_error(body: object) -> None:
    with pytest.raises(WireError):
        parse_response(body, provider="p", model="m")


def test_stop_beside_tool_calls_counts_as_tool_calls() -> None:
    call: Json = {"id": "x", "function": {"name": "f", "arguments": "{}"}}
    body = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "stop"}]}
    assert parse_response(body, provider="p", model="m").finish is Finish.TOOL_CALLS


def test_bug_20_two_calls_without_id_under_one_index_stay_two() -> None:
    stream = assemble(piece('{"a":1}', index=0, name="f"), piece('{"b":2}', index=0, name="f"))
    assert calls(stream) == [("f", '{"a":1}'), ("f", '{"b":2}')]


def test_a_name_on_every_piece_begins_no_new_call() -> None:
    stream = assemble(*(piece(part, index=0, name="f") for part in ('{"a"', ":1", "}")))
    assert calls(stream) == [("f", '{"a":1}')]


def test_bug_21_an_index_that_comes_late_finds_its_call() -> None:
    stream = assemble(piece("", call_id="x", name="f"), piece('{"a":1}', index=0))
    assert calls(stream) == [("f", '{"a":1}')]


def test_bug_24_usage_of_nothing_does_not_replace_a_real_one() -> None:
    stream = assemble(
        {**delta("stop", content="a"), "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
        {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": None}},
    )
    usage = stream.finish().usage
    assert usage is not None
    assert usage.total_tokens == 7


def test_bug_27_a_cut_off_call_says_that_it_is_cut_off() -> None:
    stream = assemble(piece('{"sql":"DELETE FROM orders WHERE created_at < now() - inter', call_id="x", name="run"))
    stream.add(delta("length"))
    assert stream.finish().finish is Finish.LENGTH


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource"])
def test_bug_33_a_server_that_says_it_broke_off_gave_no_answer(reason: str) -> None:
    with pytest.raises(WireError, match="broke off"):
        assemble(delta(reason, content="half")).finish()


def test_bug_33_an_error_in_the_place_of_a_chunk_is_told() -> None:
    with pytest.raises(WireError, match="over capacity"):
        assemble({"error": {"message": "over capacity"}, "choices": []})
    with pytest.raises(WireError, match="upstream"):
        assemble({"choices": [{"index": 0, "delta": {}, "error": {"code": 502, "message": "upstream"}}]})


def ask(**fields: Any) -> Json:
    message = ModelMessage(role="user", content="q")
    return build_request("m", ModelRequest(messages=(message,), **fields), stream=False)


SPEC = ToolSpec(name="f", description="d", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})


def test_bug_41_nothing_about_tools_is_sent_without_tools() -> None:
    body = ask(parallel_tool_calls=True, tool_choice="required")
    assert set(body) == {"model", "messages"}


def test_bug_41_parallel_calls_are_spoken_of_only_when_somebody_decided() -> None:
    assert "parallel_tool_calls" not in ask(tools=(SPEC,))
    assert ask(tools=(SPEC,), parallel_tool_calls=False)["parallel_tool_calls"] is False


def test_bug_42_no_tool_is_said_to_be_strict() -> None:
    assert "strict" not in json.dumps(ask(tools=(SPEC,)))


def test_bug_42_a_function_with_star_arguments_is_refused_at_registration() -> None:
    def f(*numbers: int) -> int:
        """Add."""
        return sum(numbers)

    with pytest.raises(ConfigError, match=r"\*numbers"):
        ToolRegistry().register(f)


@pytest.mark.parametrize("strict", [True, False])
def test_a_schema_for_the_answer_is_passed_on_and_strict_only_when_it_says_so(strict: bool) -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    body = ask(output=OutputSchema(name="report", schema=schema, strict=strict))
    wanted: Json = {"name": "report", "schema": schema} | ({"strict": True} if strict else {})
    assert body["response_format"] == {"type": "json_schema", "json_schema": wanted}


def test_an_invented_tool_name_does_not_make_the_history_unsendable() -> None:
    call = ToolCall(id="x", name="functions.get slow:0", arguments="{}")
    message = build_message(ModelMessage(role="assistant", tool_calls=(call,)))
    assert message["tool_calls"] == [
        {"id": "x", "type": "function", "function": {"name": "functions_get_slow_0", "arguments": "{}"}}
    ]


def test_the_same_tools_are_converted_once() -> None:
    specs = (SPEC,)
    assert ask(tools=specs)["tools"] is ask(tools=specs)["tools"]


RECORDED: dict[str, tuple[Json, ModelMessage, Usage | None]] = {
    "openai": (
        {
            "id": "chatcmpl-B1",
            "object": "chat.completion",
            "model": "gpt-4o-mini-2024-07-18",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
                        ],
                        "refusal": None,
                        "annotations": [],
                    },
                    "logprobs": None,
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": {
                "prompt_tokens": 2006,
                "completion_tokens": 300,
                "total_tokens": 2306,
                "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 256, "accepted_prediction_tokens": 0},
            },
        },
        ModelMessage(role="assistant", tool_calls=(ToolCall(id="call_a", name="f", arguments='{"a":1}'),)),
        Usage(input_tokens=2006, output_tokens=300, cached_input_tokens=1920, reasoning_tokens=256, requests=1),
    ),
    "deepseek": (
        {
            "id": "930c60df",
            "model": "deepseek-reasoner",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "9.8", "reasoning_content": "compare the fractions"},
                    "finish_reason": "stop",
                }
            ],
            "usage": {
                "prompt_tokens": 20,
                "completion_tokens": 40,
                "prompt_cache_hit_tokens": 16,
                "prompt_cache_miss_tokens": 4,
                "completion_tokens_details": {"reasoning_tokens": 30},
            },
        },
        ModelMessage(role="assistant", content="9.8"),
        Usage(input_tokens=20, output_tokens=40, cached_input_tokens=16, reasoning_tokens=30, requests=1),
    ),
    "qwen": (
        {
            "id": "chatcmpl-q",
            "model": "qwen-plus",
            "choices": [
                {
                    "finish_reason": "tool_calls",
                    "message": {
                        "content": "",
                        "reasoning_content": "",
                        "tool_calls": [{"index": 0, "id": "", "function": {"name": "f", "arguments": "{}"}}],
                    },
                }
            ],
            "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}},
        },
        ModelMessage(role="assistant", tool_calls=(ToolCall(id="call_0", name="f", arguments="{}"),)),
        Usage(input_tokens=9, output_tokens=2, requests=1),
    ),
    "vllm": (
        {
            "id": "chatcmpl-v",
            "model": "Qwen/Qwen3-8B",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "reasoning": None, "content": "hello", "tool_calls": []},
                    "finish_reason": "stop",
                    "stop_reason": 151645,
                }
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": None},
            "kv_transfer_params": None,
        },
        ModelMessage(role="assistant", content="hello"),
        Usage(input_tokens=3, output_tokens=1, requests=1),
    ),
    "ollama": (
        {
            "id": "chatcmpl-77",
            "model": "llama3.2",
            "system_fingerprint": "fp_ollama",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": "",
                        "tool_calls": [
                            {
                                "id": "call_9",
                                "index": 0,
                                "type": "function",
                                "function": {"name": "f", "arguments": {"a": 1}},
                            },
                            {
                                "id": "call_8",
                                "index": 0,
                                "type": "function",
                                "function": {"name": "g", "arguments": ""},
                            },
                        ],
                    },
                    "finish_reason": "stop",
                }
            ],
        },
        ModelMessage(
            role="assistant",
            tool_calls=(
                ToolCall(id="call_9", name="f", arguments='{"a": 1}'),
                ToolCall(id="call_8", name="g", arguments=""),
            ),
        ),
        None,
    ),
}


@pytest.mark.parametrize("server", RECORDED)
def test_the_answers_of_each_server_are_read(server: str) -> None:
    body, message, usage = RECORDED[server]
    response = parse_response(body, provider="p", model="m")
    assert (response.message, response.usage) == (message, usage)
    assert (response.response_id, response.model) == (body["id"], body["model"])


def test_moonshots_usage_is_found_in_the_choice() -> None:
    last: Json = {"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 7, "cached_tokens": 5}}
    usage = assemble(delta(content="a"), {"id": "x", "choices": [last]}).finish().usage
    assert usage == Usage(input_tokens=7, cached_input_tokens=5, requests=1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "message",
                    "content",
                    "tool_calls",
                    "function",
                    "arguments",
                    "index",
                    "id",
                    "usage",
                    "finish_reason",
                    "prompt_tokens",
                    "completion_tokens",
                    "prompt_tokens_details",
                    "error",
                    "name",
                    "data",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=4))
def test_whatever_json_comes_the_only_error_is_a_wire_error(chunks: list[object]) -> None:
    assembler = StreamAssembler(provider="p", model="m")
    with contextlib.suppress(WireError):
        for chunk in chunks:
            assembler.add(chunk)
        assembler.finish()
    for chunk in chunks:
        with contextlib.suppress(WireError):
            parse_response(chunk, provider="p", model="m")
        with contextlib.suppress(ValueError):
            parse_embeddings(chunk, 1)


@given(st.data(), st.integers(1, 4), st.sampled_from(["index", "id", "both"]))
def test_calls_cut_and_mixed_in_any_way_come_out_whole(data: st.DataObject, count: int, marks: str) -> None:
    whole = [(f"f{n}", json.dumps({"text": data.draw(st.text(max_size=12))})) for n in range(count)]
    queues = []
    for n, (name, arguments) in enumerate(whole):
        index = n if marks != "id" else None
        call_id = f"id{n}" if marks != "index" else None
        cuts = sorted(data.draw(st.lists(st.integers(0, len(arguments)), max_size=3)))
        parts = [arguments[i:j] for i, j in itertools.pairwise([0, *cuts, len(arguments)])]
        queues.append(
            [piece("", index=index, call_id=call_id, name=name)]
            + [piece(part, index=index, call_id=call_id if marks == "id" else None) for part in parts]
        )
    stream = assemble(*(queue.pop(0) for queue in queues))
    while waiting := [queue for queue in queues if queue]:
        stream.add(data.draw(st.sampled_from(waiting)).pop(0))
    assert calls(stream) == whole


def test_vectors_come_back_in_the_order_of_their_texts() -> None:
    body = {"data": [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1.5, 0]}]}
    assert parse_embeddings(body, 2) == ((1.5, 0.0), (0.0, 1.0))


@pytest.mark.parametrize(
    "body",
    [
        {"data": []},
        {"data": [{"index": 0, "embedding": "AAAA"}]},
        {"data": [{"index": 4, "embedding": [1.0]}]},
        {"error": {"message": "no such model"}},
        [],
    ],
)
def test_vectors_that_are_none_are_an_error(body: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # pydantic's and our own
        parse_embeddings(body, 1)
