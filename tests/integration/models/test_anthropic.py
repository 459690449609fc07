"""The Anthropic provider over the official SDK, against a strict local Messages server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anthropic
import pytest

from agent_core.agent import Agent
from agent_core.errors import (
    ContextOverflow,
    ProviderError,
    ProviderRefused,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
)
from agent_core.llm.anthropic import Anthropic
from agent_core.llm.types import Finish, ModelMessage, ModelRequest, ModelResponse, TextChunk, ToolSpec
from agent_core.memory.validity import make_sendable
from agent_core.tools.registry import ToolRegistry
from tests.servers.anthropic import AnthropicServer, Failure, Reply
from tests.unit.engine.histories import damage, random_history
from tests.unit.engine.running import Bench, HandClock

KEY = "sk-ant-test"
ADD = ToolSpec(name="add", description="Add.", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as running:
        yield running


@pytest.fixture
async def provider(server: AnthropicServer) -> AsyncIterator[Anthropic]:
    clock = HandClock()
    made = Anthropic(name="main", model="claude-haiku-4-5", api_key=KEY, base_url=server.base_url, clock=clock)
    yield made
    await made.aclose()


def question(text: str = "hi", *, timeout_s: float = 60.0, tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    return ModelRequest(messages=(ModelMessage(role="user", content=text),), tools=tools, timeout_s=timeout_s)


async def collect(provider: Anthropic, request: ModelRequest) -> tuple[str, ModelResponse]:
    text, last = "", None
    async for item in provider.stream(request):
        if isinstance(item, TextChunk):
            text += item.text
        elif isinstance(item, ModelResponse):
            last = item
    assert last is not None
    return text, last


async def test_a_stream_gives_the_same_answer_as_the_whole_response(
    server: AnthropicServer, provider: Anthropic
) -> None:
    server.script = Reply("one two three", [("add", {"a": 1}), ("add", {"a": 22222222})], thinking="hm hm")
    whole = await provider.complete(question(tools=(ADD,)))
    text, streamed = await collect(provider, question(tools=(ADD,)))
    assert text == streamed.message.content == whole.message.content == "one two three"
    assert [(c.name, c.arguments) for c in streamed.message.tool_calls] == [
        ("add", '{"a": 1}'),
        ("add", '{"a": 22222222}'),
    ]
    assert streamed.finish is Finish.TOOL_CALLS
    assert streamed.usage is not None
    assert whole.usage is not None
    assert (streamed.usage.total_tokens, streamed.usage.reasoning_tokens) == (whole.usage.total_tokens, 2)
    assert streamed.response_id.startswith("msg_")
    assert streamed.first_chunk_s is not None
    assert whole.first_chunk_s is None


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Failure(400, "invalid_request_error", "max_tokens: too much"), ProviderRefused),
        (Failure(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), ContextOverflow),
        (
            Failure(400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 1 + 2 > 2"),
            ContextOverflow,
        ),
        (Failure(402, "billing_error", "no credit"), ProviderRefused),
        (Failure(403, "permission_error", "no"), ProviderRefused),
        (Failure(404, "not_found_error", "model: x"), ProviderRefused),
        (Failure(413, "request_too_large", "Request exceeds the maximum size"), ContextOverflow),
        (Failure(429, "rate_limit_error", "slow down"), RateLimited),
        (Failure(500, "api_error", "oops"), ProviderUnavailable),
        (Failure(504, "timeout_error", "too slow"), ProviderUnavailable),
        (Failure(529, "overloaded_error", "Overloaded"), ProviderUnavailable),
        (Failure(529, "overloaded_error", "Overloaded", {"retry-after": "3"}), RateLimited),
        (Failure(drop=True), ProviderUnavailable),
        (Failure(hang=True), ProviderTimeout),
    ],
    ids=str,
)
async def test_each_failure_is_the_error_of_whoever_has_to_act(
    server: AnthropicServer, provider: Anthropic, failure: Failure, error: type[ProviderError]
) -> None:
    server.script = replace(failure, message=f"{failure.message} for {KEY}")
    for ask in (provider.complete, lambda r: collect(provider, r)):
        server.requests.clear()
        with pytest.raises(error) as caught:
            await asyncio.wait_for(ask(question(timeout_s=3.0 if failure.hang else 60.0)), 90)
        assert type(caught.value) is error
        assert KEY not in str(caught.value)
        assert len(server.requests) == 1  # the SDK does not retry by itself


async def test_a_wrong_key_names_the_setting(server: AnthropicServer) -> None:
    wrong = Anthropic(name="w", model="claude-haiku-4-5", api_key="sk-ant-other", base_url=server.base_url)
    with pytest.raises(ProviderRefused, match="api_key"):
        await wrong.complete(question())
    await wrong.aclose()


@pytest.mark.parametrize(
    ("headers", "waited"),
    [
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "600"}, 600.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Fri, 99 Jan 2026 00:00:00 GMT"}, None),
        ({}, None),
    ],
)
async def test_bug_28_retry_after_is_read_in_all_its_forms(
    server: AnthropicServer, provider: Anthropic, headers: dict[str, str], waited: float | None
) -> None:
    server.script = Failure(429, "rate_limit_error", "slow down", headers)
    with pytest.raises(RateLimited) as caught:
        await provider.complete(question())
    assert caught.value.retry_after_s == waited


async def test_bug_28_a_date_counts_from_the_servers_own_clock(server: AnthropicServer, provider: Anthropic) -> None:
    theirs = datetime(2031, 5, 5, tzinfo=UTC)
    until = {"retry-after": format_datetime(theirs + timedelta(seconds=40), usegmt=True)}
    server.script = Failure(
        429, "rate_limit_error", "slow down", {**until, "date": format_datetime(theirs, usegmt=True)}
    )
    with pytest.raises(RateLimited) as caught:
        await provider.complete(question())
    assert caught.value.retry_after_s == 40.0
    ours = HandClock().now()
    server.script = Failure(
        429,
        "rate_limit_error",
        "slow down",
        {"retry-after": format_datetime(ours + timedelta(seconds=9), usegmt=True), "date": "?"},
    )
    with pytest.raises(RateLimited) as caught:
        await provider.complete(question())
    assert caught.value.retry_after_s == 9.0


@pytest.mark.parametrize("quirk", ["cut", "stall", "error", "bare_json"])
async def test_bug_33_a_stream_that_breaks_off_is_a_provider_failure(
    server: AnthropicServer, provider: Anthropic, quirk: Any
) -> None:
    server.script = Reply("one two three four", quirk=quirk)
    with pytest.raises((ProviderUnavailable, ProviderTimeout)):
        await asyncio.wait_for(collect(provider, question(timeout_s=0.5)), 60)


async def test_a_rate_limit_inside_a_stream_is_one(server: AnthropicServer, provider: Anthropic) -> None:
    server.script = Reply("one two three four", quirk="error", error_type="rate_limit_error")
    with pytest.raises(RateLimited):
        await collect(provider, question())


async def test_a_stream_that_gave_its_reason_to_stop_is_whole(server: AnthropicServer, provider: Anthropic) -> None:
    server.script = Reply("one two", quirk="no_stop")
    assert (await collect(provider, question()))[0] == "one two"


async def test_a_dead_port_is_unavailable() -> None:
    dead = Anthropic(name="dead", model="m", api_key=KEY, base_url="http://127.0.0.1:9")
    with pytest.raises(ProviderUnavailable, match="not reachable"):
        await dead.complete(question())
    await dead.aclose()


async def test_a_cancelled_question_ends_at_the_vendor_too(server: AnthropicServer, provider: Anthropic) -> None:
    asked = asyncio.Event()

    def script(_: object) -> Failure:
        asked.set()
        return Failure(hang=True)

    server.script = script
    task = asyncio.create_task(provider.complete(question()))
    await asyncio.wait_for(asked.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(server.left.wait(), 60)


async def test_a_stream_that_nobody_reads_on_ends_at_the_vendor_too(
    server: AnthropicServer, provider: Anthropic
) -> None:
    server.script = Reply("one two three", quirk="stall")
    stream = provider.stream(question())
    assert await anext(stream) == TextChunk(text="one")
    await stream.aclose()  # type: ignore[attr-defined]  # an async generator
    await asyncio.wait_for(server.left.wait(), 60)


async def test_the_base_url_may_have_its_version(server: AnthropicServer) -> None:
    made = Anthropic(name="a", model="claude-haiku-4-5", api_key=KEY, base_url=server.base_url + "/v1/")
    assert (await made.complete(question())).message.content == "ok"
    await made.aclose()


async def test_bug_40_a_model_without_sampling_teaches_it_once(provider: Anthropic) -> None:
    async with AnthropicServer(without_sampling=("claude-next", "claude-opus-4-7")) as server:
        unknown = Anthropic(name="a", model="claude-next", api_key=KEY, base_url=server.base_url)
        first = await unknown.complete(replace(question(), temperature=0.7))
        _, again = await collect(unknown, replace(question(), temperature=0.7))
        assert (first.attempts, again.attempts, len(server.requests)) == (2, 1, 3)
        known = Anthropic(name="b", model="claude-opus-4-7", api_key=KEY, base_url=server.base_url)
        assert (await known.complete(replace(question(), temperature=0.7))).attempts == 1
        await unknown.aclose()
        await known.aclose()


async def test_the_second_turn_reads_the_first_ones_prefix_from_the_cache(
    server: AnthropicServer, provider: Anthropic
) -> None:
    system = ModelMessage(role="system", content="be brief " * 50)
    history: tuple[ModelMessage, ...] = (system, ModelMessage(role="user", content="first"))
    first = (await provider.complete(ModelRequest(messages=history, tools=(ADD,)))).usage
    history += (ModelMessage(role="assistant", content="one"), ModelMessage(role="user", content="second"))
    second = (await provider.complete(ModelRequest(messages=history, tools=(ADD,)))).usage
    history += (ModelMessage(role="assistant", content="two"), ModelMessage(role="user", content="third"))
    third = (await provider.complete(ModelRequest(messages=history, tools=(ADD,)))).usage
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.cached_input_tokens, first.cache_write_tokens > 100) == (0, True)
    assert second.cached_input_tokens == first.cache_write_tokens
    assert third.cached_input_tokens == second.cached_input_tokens + second.cache_write_tokens
    assert third.input_tokens > third.cached_input_tokens


async def test_a_whole_run_over_the_wire(server: AnthropicServer, provider: Anthropic) -> None:
    tools = ToolRegistry()

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    tools.register(add)

    def script(body: dict[str, Any]) -> Reply:
        if len(body["messages"]) == 1:
            return Reply("I add.", [("add", {"a": 2, "b": 3}), ("add", {"a": 5, "b": 8})])
        assert ["5" in str(b) or "13" in str(b) for b in body["messages"][-1]["content"]] == [True, True]
        return Reply("5 and 13")

    server.script = script
    record = await Bench(provider, registry=tools, agent=Agent(instructions="be brief")).ask("two sums")
    assert record.answer == "5 and 13"
    assert server.violations == []
    assert record.usage.exact


async def test_500_random_damaged_histories_are_all_accepted(server: AnthropicServer, provider: Anthropic) -> None:
    rng = random.Random(20261130)
    gate = asyncio.Semaphore(50)

    async def send(history: tuple[ModelMessage, ...]) -> None:
        async with gate:
            await provider.complete(ModelRequest(messages=history, timeout_s=30))

    async with asyncio.TaskGroup() as group:
        for _ in range(500):
            group.create_task(send(make_sendable(damage(rng, random_history(rng)))))
    assert (len(server.requests), server.violations) == (500, [])


# -- the server itself, asked by the official client -----------------------------------------------

USER = {"role": "user", "content": "q"}
TOOL = {"name": "t", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "a", "name": "t", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a"}
TEXT = {"type": "text", "text": "x"}


def turns(*contents: list[dict[str, Any]]) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"tools": [TOOL], "messages": [{"role": roles[n % 2], "content": c} for n, c in enumerate(contents)]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"frequency_penalty": 1}, "Extra inputs are not permitted"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 0.5}, "deprecated"),
        ({"messages": []}, "at least one message"),
        ({"messages": [USER, USER]}, "roles must alternate"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 'first message must use the "user" role'),
        ({"messages": [{"role": "system", "content": "x"}]}, "Unexpected role"),
        ({"messages": [{"role": "user", "content": ""}]}, "non-empty content"),
        ({"messages": [{"role": "user", "content": " "}]}, "non-whitespace"),
        ({"messages": [{"role": "user", "content": [{**TEXT, "name": "x"}]}]}, "Extra inputs are not permitted"),
        ({"messages": [USER, {"role": "assistant", "content": "x"}]}, "prefill"),
        (turns([TEXT], [CALL], [TEXT]), "without `tool_result` blocks immediately after"),
        (turns([TEXT], [CALL], [TEXT, RESULT]), "without `tool_result` blocks immediately after"),
        (turns([TEXT], [CALL]), "without `tool_result` blocks immediately after"),
        (turns([RESULT]), "unexpected `tool_use_id`"),
        (turns([TEXT], [CALL], [RESULT, RESULT]), "single result"),
        (turns([TEXT], [CALL], [RESULT], [CALL], [RESULT]), "must be unique"),
        (turns([TEXT], [{**CALL, "id": "a.b"}], [{**RESULT, "tool_use_id": "a.b"}]), "should match pattern"),
        (turns([TEXT], [{**CALL, "input": "{}"}], [RESULT]), "Input should be an object"),
        (turns([TEXT], [CALL], [RESULT]) | {"tools": []}, "must define tools"),
        ({"tools": [TOOL, TOOL]}, "unique"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "should match pattern"),
        ({"tools": [{"name": "t"}]}, "input_schema"),
        ({"tools": [{**TOOL, "parameters": {}}]}, "Extra inputs are not permitted"),
        ({"tool_choice": {"type": "any"}}, "while providing tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "required"}}, "expected tags"),
        ({"system": [{"type": "text", "text": ""}]}, "non-whitespace"),
        ({"system": [{**TEXT, "cache_control": {"type": "ephemeral"}}] * 5}, "maximum of 4 blocks"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            "additionalProperties",
        ),
    ],
)
async def test_the_local_server_refuses_what_the_api_refuses(
    server: AnthropicServer, change: dict[str, Any], said: str
) -> None:
    body = {"model": "claude-haiku-4-5", "max_tokens": 9, "messages": [USER], **change}
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=server.base_url, max_retries=0) as client:
        with pytest.raises(anthropic.BadRequestError) as caught:
            await client.post("/v1/messages", cast_to=object, body=body)
    assert said in str(caught.value)


async def test_the_official_client_reads_the_local_servers_answers_and_streams(server: AnthropicServer) -> None:
    server.script = Reply("one two", [("t", {"a": [1, 2]})], thinking="hm")
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=server.base_url, max_retries=0) as client:
        asked: Any = {
            "model": "claude-haiku-4-5",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": "q"}],
            "tools": [TOOL],
        }
        whole = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            streamed = await stream.get_final_message()
    assert [b.type for b in whole.content] == [b.type for b in streamed.content] == ["thinking", "text", "tool_use"]
    assert whole.stop_reason == streamed.stop_reason == "tool_use"
    assert streamed.usage.output_tokens == whole.usage.output_tokens
