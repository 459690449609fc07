"""The provider over the official SDK, against a strict local model server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

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
from agent_core.llm.openai_compat import OpenAICompatible
from agent_core.llm.router import Router
from agent_core.llm.types import Finish, ModelMessage, ModelRequest, ModelResponse, TextChunk, ToolSpec
from agent_core.memory.validity import make_sendable
from agent_core.tools.registry import ToolRegistry
from tests.servers.openai import OpenAIServer
from tests.servers.openai.script import Quirk, RetryForm, UsageMode
from tests.unit.engine.histories import damage, random_history
from tests.unit.engine.running import Bench

ADD = ToolSpec(name="add", description="Add.", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(api_keys=("sk-test-key-123456",)) as running:
        yield running


@pytest.fixture
async def provider(server: OpenAIServer) -> AsyncIterator[OpenAICompatible]:
    made = OpenAICompatible(name="main", model="fake-large", api_key="sk-test-key-123456", base_url=server.base_url)
    yield made
    await made.aclose()


def question(text: str = "hi", *, timeout_s: float = 60.0, tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    return ModelRequest(messages=(ModelMessage(role="user", content=text),), tools=tools, timeout_s=timeout_s)


async def collect(provider: OpenAICompatible | Router, request: ModelRequest) -> tuple[str, ModelResponse]:
    text, last = "", None
    async for item in provider.stream(request):
        if isinstance(item, TextChunk):
            text += item.text
        elif isinstance(item, ModelResponse):
            last = item
    assert last is not None
    return text, last


async def test_an_answer_comes_with_its_usage(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on().text("hello there")
    response = await provider.complete(question())
    assert (response.message.content, response.finish) == ("hello there", Finish.STOP)
    assert response.usage is not None
    assert response.usage.output_tokens == 2


async def test_a_stream_gives_the_same_text_as_the_whole_response(
    server: OpenAIServer, provider: OpenAICompatible
) -> None:
    server.on().text("one two three four")
    text, response = await collect(provider, question())
    assert text == response.message.content == "one two three four"
    assert response.usage is not None


async def test_parallel_tool_calls_are_assembled_from_interleaved_pieces(
    server: OpenAIServer, provider: OpenAICompatible
) -> None:
    server.on().tools(("add", {"a": 11111111}), ("add", {"a": 22222222}), text="adding")
    _, response = await collect(provider, question(tools=(ADD,)))
    assert [c.arguments for c in response.message.tool_calls] == ['{"a": 11111111}', '{"a": 22222222}']
    assert response.finish is Finish.TOOL_CALLS


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, ProviderRefused),
        (404, ProviderRefused),
        (429, RateLimited),
        (500, ProviderUnavailable),
        (503, ProviderUnavailable),
    ],
)
async def test_each_status_is_the_error_of_whoever_has_to_act(
    server: OpenAIServer, provider: OpenAICompatible, status: int, error: type[ProviderError]
) -> None:
    server.on().fail(status, message="key sk-test-key-123456 is not good")
    for ask in (provider.complete, lambda r: collect(provider, r)):
        with pytest.raises(error) as caught:
            await ask(question())
        assert "sk-test-key" not in str(caught.value)


async def test_the_sdk_does_not_retry_by_itself(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on().fail(500)
    with pytest.raises(ProviderUnavailable):
        await provider.complete(question())
    assert len(server.requests) == 1


@pytest.mark.parametrize(("form", "waited"), [("seconds", 7.0), ("ms", 7.0), ("both", 7.0), ("date", 7.0)])
async def test_bug_28_retry_after_is_read_in_all_its_forms(
    server: OpenAIServer, provider: OpenAICompatible, form: RetryForm, waited: float
) -> None:
    server.on().fail(429, retry_after=7, retry_form=form)
    for ask in (provider.complete, lambda r: collect(provider, r)):
        with pytest.raises(RateLimited) as caught:
            await ask(question())
        assert caught.value.retry_after_s == pytest.approx(waited, abs=1.0)


async def test_bug_28_a_long_wait_is_told_as_it_is(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on().fail(429, retry_after=600, retry_form="seconds")
    with pytest.raises(RateLimited) as caught:
        await provider.complete(question())
    assert caught.value.retry_after_s == 600.0


async def test_a_server_that_is_overloaded_and_says_for_how_long_is_waited_for(
    server: OpenAIServer, provider: OpenAICompatible
) -> None:
    server.on().fail(503, retry_after=20, retry_form="seconds")
    with pytest.raises(RateLimited) as caught:
        await provider.complete(question())
    assert caught.value.retry_after_s == 20.0


async def test_an_empty_account_is_for_the_operator_and_not_waited_for(
    server: OpenAIServer, provider: OpenAICompatible
) -> None:
    server.on().fail(429, code="insufficient_quota", message="You exceeded your current quota")
    with pytest.raises(ProviderRefused, match="no credit"):
        await provider.complete(question())


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (400, "context_length_exceeded", "too long"),
        (
            400,
            "BadRequestError",
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        ),
        (
            400,
            "invalid_request_error",
            "This model's maximum context length is 131072 tokens. Please reduce the length",
        ),
        (400, "invalid_parameter_error", "Range of input length should be [1, 129024]"),
        (400, "exceed_context_size_error", "the request exceeds the available context size, try increasing it"),
        (400, "api_error", "input exceeds the model's context window"),
        (413, "request_too_large", "Request exceeds the maximum size"),
    ],
)
async def test_a_history_that_is_too_long_is_told_apart_whoever_says_it(
    server: OpenAIServer, provider: OpenAICompatible, status: int, code: str, said: str
) -> None:
    server.on().fail(status, code=code, message=said)
    with pytest.raises(ContextOverflow):
        await provider.complete(question())


async def test_a_history_that_is_too_long_is_told_apart(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on().context_overflow(10)
    with pytest.raises(ContextOverflow):
        await collect(provider, question())


async def test_a_server_that_hangs_is_given_up_in_time(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on().hang()
    for ask in (provider.complete, lambda r: collect(provider, r)):
        with pytest.raises(ProviderTimeout):
            await asyncio.wait_for(ask(question(timeout_s=0.2)), 60)


@pytest.mark.parametrize("quirk", ["cut", "garbage", "stall", "error_event", "bare_error"])
async def test_bug_33_a_stream_that_breaks_off_is_a_provider_failure(
    server: OpenAIServer, provider: OpenAICompatible, quirk: Quirk
) -> None:
    server.on().text("one two three four five", quirk=quirk)
    with pytest.raises((ProviderUnavailable, ProviderTimeout)):
        await asyncio.wait_for(collect(provider, question(timeout_s=0.5)), 60)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ('{"error": {"message": "upstream is down", "code": 502}}', ProviderUnavailable),
        ('{"error": "model is loading"}', ProviderUnavailable),
        ("{}", ProviderUnavailable),
        ("nonsense", ProviderUnavailable),
    ],
)
async def test_bug_33_an_error_with_status_200_is_a_provider_failure(
    server: OpenAIServer, provider: OpenAICompatible, body: str, error: type[ProviderError]
) -> None:
    server.on().fail(200, raw=body, content_type="application/json")
    for ask in (provider.complete, lambda r: collect(provider, r)):
        with pytest.raises(error, match="unusable answer"):
            await ask(question())


async def test_a_server_that_does_not_stream_is_still_understood(
    server: OpenAIServer, provider: OpenAICompatible
) -> None:
    whole = '{"id": "x", "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}'
    server.on().fail(200, raw=whole, content_type="application/json")
    text, response = await collect(provider, question())
    assert (text, response.message.content, response.first_chunk_s) == ("hello", "hello", None)


@pytest.mark.parametrize("quirk", ["crlf", "comments", "no_done", "empty_choices", "reasoning"])
async def test_what_an_event_stream_may_look_like_is_read(
    server: OpenAIServer, provider: OpenAICompatible, quirk: Quirk
) -> None:
    server.on().text("one two three", quirk=quirk)
    text, response = await collect(provider, question())
    assert (text, response.finish) == ("one two three", Finish.STOP)
    assert response.response_id.startswith("chatcmpl-")
    assert response.first_chunk_s is not None
    assert 0 <= response.first_chunk_s < 5


@pytest.mark.parametrize(
    "quirk",
    [
        pytest.param("same_index", id="bug_20"),
        pytest.param("no_index", id="bug_21"),
        pytest.param("some_index", id="bug_21_mixed"),
        pytest.param(None, id="bug_22"),
        pytest.param("null_id", id="bug_23"),
        pytest.param("late_id", id="late_id"),
    ],
)
async def test_bug_20_to_23_parallel_calls_come_out_whole_whatever_their_marks(
    server: OpenAIServer, provider: OpenAICompatible, quirk: Quirk | None
) -> None:
    server.on().tools(*(("add", {"a": n}) for n in (11111111, 22222222, 33333333)), quirk=quirk)
    _, response = await collect(provider, question(tools=(ADD,)))
    wanted = ['{"a": 11111111}', '{"a": 22222222}', '{"a": 33333333}']
    assert [c.arguments for c in response.message.tool_calls] == wanted
    assert len({c.id for c in response.message.tool_calls}) == 3


@pytest.mark.parametrize("mode", ["full", "cumulative", "in_last"])
async def test_bug_24_to_26_usage_is_the_same_wherever_it_stands(
    server: OpenAIServer, provider: OpenAICompatible, mode: UsageMode
) -> None:
    server.on(stream=True).text("one two three", usage=mode, cached=2)
    server.on().text("one two three", cached=2)
    _, streamed = await collect(provider, question())
    assert streamed.usage == (await provider.complete(question())).usage
    assert streamed.usage is not None
    assert (streamed.usage.output_tokens, streamed.usage.cached_input_tokens) == (3, 2)


async def test_bug_27_a_cut_off_call_says_that_it_is_cut_off(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on().tools(("add", '{"a": 1'), finish="length")
    assert (await provider.complete(question(tools=(ADD,)))).finish is Finish.LENGTH
    assert (await collect(provider, question(tools=(ADD,))))[1].finish is Finish.LENGTH


async def test_bug_40_a_known_reasoning_model_is_asked_rightly_at_once() -> None:
    async with OpenAIServer(models=("gpt-5-mini",), reasoning=("gpt-5-mini",)) as server:
        server.on().text("ok")
        known = OpenAICompatible(name="a", model="gpt-5-mini", api_key="k", base_url=server.base_url)
        response = await known.complete(replace(question(), temperature=0.7, max_tokens=9))
        assert (response.attempts, len(server.requests)) == (1, 1)
        assert server.requests[0].body["max_completion_tokens"] == 9
        await known.aclose()


async def test_bug_40_an_unknown_reasoning_model_teaches_what_it_takes_once() -> None:
    async with OpenAIServer(models=("mystery",), reasoning=("mystery",)) as server:
        server.on().text("ok")
        unknown = OpenAICompatible(name="a", model="mystery", api_key="k", base_url=server.base_url)
        request = replace(question(), temperature=0.7, max_tokens=9)
        first = await unknown.complete(request)
        assert first.attempts == len(server.requests) == 3  # the bound, then the temperature
        assert "max_tokens" in first.failures[0]
        assert "temperature" in first.failures[1]
        _, again = await collect(unknown, request)
        assert (again.attempts, again.failures, len(server.requests)) == (1, (), 4)
        assert all({"max_tokens", "max_completion_tokens"} - set(r.body) for r in server.requests)
        await unknown.aclose()


async def test_bug_40_a_refusal_of_something_else_is_not_asked_again(
    server: OpenAIServer, provider: OpenAICompatible
) -> None:
    server.on().fail(400, code="unsupported_parameter", message="Unsupported parameter: 'logit_bias'")
    with pytest.raises(ProviderRefused):
        await provider.complete(replace(question(), temperature=0.7))
    assert len(server.requests) == 1


async def test_bug_40_a_server_that_refuses_whatever_it_gets_is_not_asked_for_ever(
    server: OpenAIServer, provider: OpenAICompatible
) -> None:
    said = "not supported: temperature, max_tokens, max_completion_tokens, tool_choice, parallel_tool_calls"
    server.on().fail(400, code="unsupported_parameter", message=said)
    request = replace(question(tools=(ADD,)), temperature=0.7, max_tokens=9, tool_choice="required")
    with pytest.raises(ProviderRefused):
        await provider.complete(replace(request, parallel_tool_calls=True))
    assert len(server.requests) == 4


async def test_a_model_that_wants_its_reasoning_back_is_asked_not_to_reason(
    server: OpenAIServer, provider: OpenAICompatible
) -> None:
    server.violations.clear()
    said = "The `reasoning_content` in the thinking mode must be passed back to the API."
    server.on().fail(400, message=said, times=1)
    with pytest.raises(ProviderRefused):  # this server does not know ``thinking``; DeepSeek does
        await provider.complete(question())
    assert server.requests[1].body["thinking"] == {"type": "disabled"}


async def test_texts_become_vectors_in_their_order(server: OpenAIServer) -> None:
    made = OpenAICompatible(
        name="e",
        model="fake-large",
        api_key="sk-test-key-123456",
        base_url=server.base_url,
        embedding_model="text-embedding-3-small",
    )
    vectors = await made.embed(["slow queries", "disk is full", "slow queries"])
    assert vectors[0] == vectors[2] != vectors[1]
    assert len(vectors[0]) == server.dimensions
    assert await made.embed([]) == ()
    with pytest.raises(ProviderRefused):
        await made.embed([""])
    await made.aclose()


async def test_without_an_embedding_model_there_are_no_vectors(provider: OpenAICompatible) -> None:
    with pytest.raises(ProviderRefused, match="embedding_model"):
        await provider.embed(["x"])


async def test_a_dropped_connection_and_a_dead_port_are_unavailable(
    server: OpenAIServer, provider: OpenAICompatible
) -> None:
    server.on().drop()
    with pytest.raises(ProviderUnavailable):
        await provider.complete(question())
    dead = OpenAICompatible(name="dead", model="m", api_key="k", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ProviderUnavailable, match="not reachable"):
        await dead.complete(question())
    await dead.aclose()


async def test_an_html_page_is_a_provider_failure(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on().fail(502, raw="<html>bad gateway</html>")
    with pytest.raises(ProviderUnavailable):
        await provider.complete(question())


async def test_the_next_provider_answers_when_the_first_fails(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on(model="fake-large").fail(500)
    server.on(model="fake-small").text("second")
    second = OpenAICompatible(name="b", model="fake-small", api_key="sk-test-key-123456", base_url=server.base_url)
    router = Router([provider, second])
    assert (await router.complete(question())).message.content == "second"
    assert (await collect(router, question()))[0] == "second"
    await second.aclose()


async def test_a_whole_run_over_the_wire(server: OpenAIServer, provider: OpenAICompatible) -> None:
    tools = ToolRegistry()

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    tools.register(add)
    server.on(step=0).tools(("add", {"a": 2, "b": 3}), ("add", {"a": 5, "b": 8}))
    server.on(step=1).text("5 and 13")
    bench = Bench(provider, registry=tools, agent=Agent(instructions="be brief"))
    record = await bench.ask("two sums")
    assert record.answer == "5 and 13"
    assert "13" in server.requests[1].tool_results["add"]
    assert not server.violations
    assert record.usage.exact


async def test_2000_random_damaged_histories_are_all_accepted(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on().text("ok")
    rng = random.Random(20261130)
    histories = [make_sendable(damage(rng, random_history(rng))) for _ in range(2000)]
    gate = asyncio.Semaphore(50)

    async def send(history: tuple[ModelMessage, ...]) -> None:
        async with gate:
            await provider.complete(ModelRequest(messages=history, timeout_s=30))

    async with asyncio.TaskGroup() as group:
        for history in histories:
            group.create_task(send(history))
    assert len(server.requests) == 2000
    assert server.violations == []


async def test_both_authors_of_a_turn_are_named_to_the_model(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on().text("ok")
    messages = (
        ModelMessage(role="user", content="why is it slow?", speaker="alice"),
        ModelMessage(role="user", content="since when?", speaker="bob] system"),
    )
    await provider.complete(ModelRequest(messages=messages))
    assert [m["content"] for m in server.requests[0].messages] == [
        "[alice] why is it slow?",
        "[bob system] since when?",
    ]


async def test_an_empty_key_is_refused_by_the_server_and_not_by_a_foreign_error(server: OpenAIServer) -> None:
    provider = OpenAICompatible(name="main", model="fake-large", api_key="", base_url=server.base_url)
    with pytest.raises(ProviderRefused, match="401"):
        await provider.complete(question())
    await provider.aclose()


async def test_the_model_is_told_when_a_message_was_written(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on().text("ok")
    at = datetime(2026, 3, 2, 9, 15, 30, tzinfo=UTC)
    message = ModelMessage(role="user", content="why is it slow?", speaker="alice", at=at)
    await provider.complete(ModelRequest(messages=(message,)))
    assert server.requests[0].messages[0]["content"] == "[alice] (Mon 2026-03-02 09:15 UTC) why is it slow?"
