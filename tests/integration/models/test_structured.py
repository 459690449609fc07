"""Answers of one form and prompted actions over the official client, against a strict local model server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from pydantic import BaseModel, Field

from agent_core.llm.openai_compat import OpenAICompatible
from agent_core.llm.prompted import PromptedActions
from agent_core.llm.structured import FINAL_ANSWER, OutputMode, ask_structured
from agent_core.llm.types import ModelMessage, ModelRequest, TextChunk, ToolSpec
from agent_core.tools.registry import ToolRegistry
from tests.servers.openai import OpenAIServer
from tests.unit.engine.running import Bench


class Suspect(BaseModel):
    """A query that may be the cause."""

    query: str
    share: float = Field(ge=0, le=1)


class Verdict(BaseModel):
    suspects: list[Suspect]
    certain: bool


class Note(BaseModel):
    text: str = Field(default="", max_length=200)
    labels: dict[str, str] = Field(default_factory=dict)


GOOD = {"suspects": [{"query": "SELECT 1", "share": 0.5}], "certain": False}
ASKED = ModelRequest(messages=(ModelMessage(role="user", content="who is it?"),), timeout_s=10, max_tokens=500)
ADD = ToolSpec(name="add", description="Add.", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as running:
        yield running
        assert running.violations == []


@pytest.fixture
async def provider(server: OpenAIServer) -> AsyncIterator[OpenAICompatible]:
    made = OpenAICompatible(name="main", model="fake-large", api_key="sk-test", base_url=server.base_url)
    yield made
    await made.aclose()


@pytest.mark.parametrize("mode", ["tool", "native", "prompted"])
async def test_every_mode_gets_a_mistake_mended(
    server: OpenAIServer, provider: OpenAICompatible, mode: OutputMode
) -> None:
    wrong = {"suspects": [{"query": "SELECT 1", "share": 50}], "certain": False}
    if mode == "tool":
        server.on(tool=FINAL_ANSWER, user="who is it").tools((FINAL_ANSWER, wrong))
        server.on(tool=FINAL_ANSWER, user=r"suspects\.0\.share: Input should be less").tools((FINAL_ANSWER, GOOD))
    else:
        server.on(user="who is it").json(wrong, fence=mode == "prompted")
        server.on(user=r"suspects\.0\.share: Input should be less").json(GOOD, fence=mode == "prompted")
    got = await ask_structured(provider, ASKED, Verdict, mode=mode)
    assert got.value == Verdict.model_validate(GOOD)
    assert got.usage.requests == 2
    assert got.usage.exact
    assert got.usage.output_tokens > 0
    for request in server.requests:
        assert ("response_format" in request.body) == (mode == "native")
        assert ("share" in request.system) == (mode == "prompted")
        assert request.body.get("tool_choice") == ("required" if mode == "tool" else None)


@pytest.mark.parametrize("output", [Verdict, Note])
async def test_bug_42_a_native_schema_says_strict_only_where_the_server_takes_it(
    server: OpenAIServer, provider: OpenAICompatible, output: type[BaseModel]
) -> None:
    server.on().json(GOOD if output is Verdict else {"text": "x"})
    await ask_structured(provider, ASKED, output, mode="native")
    sent = server.requests[0].body["response_format"]["json_schema"]
    assert sent.get("strict", False) is (output is Verdict)


async def test_bug_27_an_answer_cut_at_the_limit_is_asked_for_again(
    server: OpenAIServer, provider: OpenAICompatible
) -> None:
    server.on(user="who is it").tools((FINAL_ANSWER, json.dumps(GOOD)[:-9]), finish="length")
    server.on(user="cut off").tools((FINAL_ANSWER, GOOD))
    got = await ask_structured(provider, ASKED, Verdict)
    assert got.value.certain is False


async def test_a_model_without_function_calling_runs_a_tool(server: OpenAIServer, provider: OpenAICompatible) -> None:
    registry, ran = ToolRegistry(), list[int]()

    @registry.register
    def add(a: int) -> int:
        """Add one.

        Args:
            a: a number.
        """
        ran.append(a)
        return a + 1

    act = {"thought": "sum", "tool_name": "add", "tool_input": {"a": 1}, "confidence": 0.9}
    done = {"thought": "known", "tool_name": "finished", "answer": "It is 2.", "confidence": 0.9}
    server.on(user="one and one").text("I would call add.")
    server.on(user="No action").json(act, fence=True)
    server.on(user=r"Observation \(add\)").json(done)
    record = await Bench(PromptedActions(provider), registry=registry).ask("one and one?")
    assert (record.answer, record.error, ran) == ("It is 2.", None, [1])
    assert record.usage.requests == len(server.requests) == 3
    for request in server.requests:
        assert "tools" not in request.body
        assert "one of: add, finished." in request.system
    roles = [message["role"] for message in server.requests[-1].messages]
    assert roles == ["system", "user", "assistant", "user"]


async def test_only_the_answer_is_streamed_to_the_person(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on().json({"thought": "known", "tool_name": "finished", "answer": "It is 2.", "confidence": 0.9})
    request = ModelRequest(messages=ASKED.messages, tools=(ADD,), timeout_s=10)
    items = [item async for item in PromptedActions(provider).stream(request)]
    assert [item.text for item in items if isinstance(item, TextChunk)] == ["It is 2."]
