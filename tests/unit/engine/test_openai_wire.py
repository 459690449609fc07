"""Streams of servers that keep to the protocol less strictly are put together all the same."""

from __future__ import annotations

import pytest

from agent_core.llm.openai_wire import StreamAssembler, build_request, parse_response
from agent_core.llm.types import Finish, ModelMessage, ModelRequest, ToolSpec
from agent_core.llm.vendor_wire import WireError

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


def test_bug_41_nothing_about_tools_is_sent_without_tools() -> None:
    body = build_request("m", ModelRequest(messages=(ModelMessage(role="user", content="q"),)), stream=False)
    assert set(body) == {"model", "messages"}


def test_the_same_tools_are_converted_once() -> None:
    specs = (ToolSpec(name="f", description="d", parameters={"type": "object"}),)
    message = (ModelMessage(role="user", content="q"),)
    first = build_request("m", ModelRequest(messages=message, tools=specs), stream=False)
    again = build_request("m", ModelRequest(messages=message, tools=specs), stream=False)
    assert first["tools"] is again["tools"]
