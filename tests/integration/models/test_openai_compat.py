"""The provider over the official SDK, against a strict local model server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

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


def question(text: str = "hi", *, timeout_s: float = 5.0, tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    return ModelRequest(messages=(ModelMessage(role="user", content=text),), tools=tools, timeout_s=timeout_s)


async def collect(provider: OpenAICompatible | Router, request: ModelRequest) -> tuple[str, ModelResponse]:
    text, last = "", None
    async for item in provider.stream(request):
        if isinstance(item, TextChunk):
            text += item.text
        else:
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


async def test_retry_after_is_handed_to_the_router(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on().fail(429, retry_after=7)
    with pytest.raises(RateLimited) as caught:
        await provider.complete(question())
    assert caught.value.retry_after_s == 7.0


async def test_a_history_that_is_too_long_is_told_apart(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on().context_overflow(10)
    with pytest.raises(ContextOverflow):
        await provider.complete(question())


async def test_a_server_that_hangs_is_given_up_in_time(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on().hang()
    for ask in (provider.complete, lambda r: collect(provider, r)):
        with pytest.raises(ProviderTimeout):
            await asyncio.wait_for(ask(question(timeout_s=0.2)), 2)


@pytest.mark.parametrize("quirk", ["cut", "garbage", "stall"])
async def test_a_stream_that_breaks_off_is_a_provider_failure(
    server: OpenAIServer, provider: OpenAICompatible, quirk: str
) -> None:
    server.on().text("one two three four five", quirk=quirk)
    with pytest.raises((ProviderUnavailable, ProviderTimeout)):
        await asyncio.wait_for(collect(provider, question(timeout_s=0.5)), 3)


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
