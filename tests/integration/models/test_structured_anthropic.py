"""Answers of one form and prompted actions over Anthropic's official client, against a strict local Messages server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent_core.llm.anthropic import Anthropic
from agent_core.llm.prompted import PromptedActions
from agent_core.llm.structured import FINAL_ANSWER, OutputMode, ask_structured
from agent_core.tools.registry import ToolRegistry
from tests.integration.models.test_structured import ASKED, GOOD, Verdict
from tests.servers.anthropic import AnthropicServer, Reply
from tests.unit.engine.running import Bench

WRONG = {"suspects": [{"query": "SELECT 1", "share": 50}], "certain": False}


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as running:
        yield running
        assert running.violations == []


@pytest.fixture
async def provider(server: AnthropicServer) -> AsyncIterator[Anthropic]:
    made = Anthropic(name="main", model="claude-haiku-4-5", api_key="sk-ant-test", base_url=server.base_url)
    yield made
    await made.aclose()


def last_text(body: dict[str, Any]) -> str:
    return json.dumps(body["messages"][-1]["content"])


@pytest.mark.parametrize("mode", ["tool", "native", "prompted"])
async def test_every_mode_gets_a_mistake_mended(server: AnthropicServer, provider: Anthropic, mode: OutputMode) -> None:
    def script(body: dict[str, Any]) -> Reply:
        mended = "suspects.0.share: Input should be less" in last_text(body)
        said = GOOD if mended else WRONG
        if mode == "tool":
            return Reply(calls=[(FINAL_ANSWER, said)])
        return Reply(f"```json\n{json.dumps(said)}\n```" if mode == "prompted" else json.dumps(said))

    server.script = script
    got = await ask_structured(provider, ASKED, Verdict, mode=mode)
    assert got.value == Verdict.model_validate(GOOD)
    assert (got.usage.requests, got.usage.exact) == (2, True)
    for body in server.requests:
        assert ("output_config" in body) == (mode == "native")
        assert ("share" in json.dumps(body.get("system", ""))) == (mode == "prompted")
        assert body.get("tool_choice", {}).get("type") == ("any" if mode == "tool" else None)


async def test_bug_27_an_answer_cut_at_the_limit_is_asked_for_again(
    server: AnthropicServer, provider: Anthropic
) -> None:
    server.script = lambda body: (
        Reply(calls=[(FINAL_ANSWER, GOOD)])
        if "cut off" in last_text(body)
        else Reply(calls=[(FINAL_ANSWER, {**GOOD, "certain": True})], stop_reason="max_tokens")
    )
    got = await ask_structured(provider, ASKED, Verdict)
    assert got.value.certain is False
    assert len(server.requests) == 2


async def test_a_model_that_is_asked_for_actions_runs_a_tool(server: AnthropicServer, provider: Anthropic) -> None:
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
    server.script = lambda body: Reply(json.dumps(done if "Observation (add)" in last_text(body) else act))
    record = await Bench(PromptedActions(provider), registry=registry).ask("one and one?")
    assert (record.answer, record.error, ran) == ("It is 2.", None, [1])
    assert not any("tools" in body for body in server.requests)
