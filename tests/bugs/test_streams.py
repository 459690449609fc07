"""Rows 20 to 26, over the wire: whatever a server does to the pieces of a stream, calls and usage come out right."""

from __future__ import annotations

import itertools

import pytest

from agent_core.llm.types import Finish, ModelMessage, ModelRequest, ModelResponse, TextChunk, ToolSpec
from agent_core.runtime.state import RunState
from tests.bugs.stage import Stage
from tests.servers.openai import OpenAIServer

ADD = ToolSpec(
    name="add",
    description="Add.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
)
PARALLEL = ({"a": 11111111, "b": 1}, {"a": 22222222, "b": 2}, {"a": 33333333, "b": 3})
WANTED = ['{"a": 11111111, "b": 1}', '{"a": 22222222, "b": 2}', '{"a": 33333333, "b": 3}']


async def stream(stage: Stage) -> tuple[str, ModelResponse]:
    """Ask and read the stream; returns the text as it was shown, and the response."""
    text, response = "", None
    request = ModelRequest(messages=(ModelMessage(role="user", content="hi"),), tools=(ADD,), timeout_s=10)
    async for item in stage.provider.stream(request):
        if isinstance(item, TextChunk):
            text += item.text
        elif isinstance(item, ModelResponse):
            response = item
    assert response is not None
    return text, response


async def assembled(server: OpenAIServer, stage: Stage, quirk: str | None, calls: int = 3) -> list[str]:
    server.on().tools(*(("add", arguments) for arguments in PARALLEL[:calls]), quirk=quirk).once()
    _, response = await stream(stage)
    made = response.message.tool_calls
    assert response.finish is Finish.TOOL_CALLS
    assert {call.name for call in made} == {"add"}
    assert len({call.id for call in made}) == calls
    return [call.arguments for call in made]


async def test_bug_20_calls_that_all_stream_under_one_index_are_told_apart_by_their_ids(
    server: OpenAIServer, stage: Stage
) -> None:
    assert await assembled(server, stage, "same_index") == WANTED


@pytest.mark.parametrize(("quirk", "calls"), [("no_index", 1), ("no_index", 3), ("some_index", 3)])
async def test_bug_21_a_missing_index_loses_no_call(server: OpenAIServer, stage: Stage, quirk: str, calls: int) -> None:
    assert await assembled(server, stage, quirk, calls) == WANTED[:calls]


async def test_bug_22_interleaved_fragments_go_to_the_call_of_their_index(server: OpenAIServer, stage: Stage) -> None:
    assert await assembled(server, stage, None) == WANTED
    assert await assembled(server, stage, "late_id") == WANTED


async def test_bug_23_a_placeholder_id_on_a_continuation_begins_no_new_call(server: OpenAIServer, stage: Stage) -> None:
    assert await assembled(server, stage, "null_id") == WANTED


async def test_bug_24_cumulative_usage_is_not_added_up(server: OpenAIServer, stage: Stage) -> None:
    told = []
    for usage in ("full", "cumulative"):
        server.on().text("one two three four five six", usage=usage).once()
        told.append((await stream(stage))[1].usage)
    assert told[0] == told[1]
    assert told[0] is not None
    assert told[0].output_tokens == 6


async def test_bug_25_usage_on_the_last_chunk_with_a_choice_is_kept_with_its_cached_tokens(
    server: OpenAIServer, stage: Stage
) -> None:
    server.on().text("one two three", usage="in_last", cached=5)
    usage = (await stream(stage))[1].usage
    assert usage is not None
    assert (usage.output_tokens, usage.cached_input_tokens) == (3, 5)


async def test_bug_26_chunks_without_choices_break_nothing_and_keep_the_usage(
    server: OpenAIServer, stage: Stage
) -> None:
    server.on().text("one two three", quirk="empty_choices")
    text, response = await stream(stage)
    assert text == response.message.content == "one two three"
    assert response.usage is not None


@pytest.mark.parametrize(
    ("usage", "quirk"),
    list(itertools.product(("full", "null", "missing", "cumulative", "in_last"), ("crlf", "comments", "no_done"))),
)
async def test_bug_26_a_run_ends_well_wherever_the_usage_is_and_however_its_lines_end(
    server: OpenAIServer, stage: Stage, usage: str, quirk: str
) -> None:
    server.on().text("one two three", usage=usage, quirk=quirk)
    record = await stage.ask("hi")
    assert (record.state, record.answer) == (RunState.FINISHED, "one two three")
    assert record.usage.exact is (usage not in ("null", "missing"))
    assert record.usage.output_tokens > 0
