"""Supervisor and workers over the official SDK, against a local model server that checks the protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from agent_core.context import Limits
from agent_core.llm.openai_compat import OpenAICompatible
from agent_core.runtime.state import RunState
from tests.servers.openai import OpenAIServer, Request
from tests.unit.engine.cast import Stage, plan

DIVIDES, WRITES = "^You divide a task", "^You write the answer"


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as running:
        yield running
        assert running.violations == []


@pytest.fixture
async def provider(server: OpenAIServer) -> AsyncIterator[OpenAICompatible]:
    made = OpenAICompatible(name="main", model="fake-large", api_key="sk-test-key-123456", base_url=server.base_url)
    yield made
    await made.aclose()


def plan_call(*assignments: tuple[str, str] | tuple[str, str, list[str]]) -> tuple[str, object]:
    return "final_answer", json.loads(plan(*assignments))


async def test_a_task_is_divided_looked_into_and_answered(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on(system=DIVIDES).tools(plan_call(("a1", "sql_optimizer"), ("a2", "researcher"), ("a3", "analyst", ["a1"])))
    server.on(system="^You are sql_optimizer", step=0).tools(("get_slow_queries", {"limit": 3}))
    server.on(system="^You are sql_optimizer", result="select 1").text("one statement is slow")
    server.on(system="^You are researcher").fail(400, message="no such model")
    server.on(system="^You are analyst", user="one statement is slow").text("it takes 3 s")
    server.on(system=WRITES).text("It takes 3 s [analyst:a3], says [researcher:a2].")
    done = await Stage(provider).run()
    assert done.record.state is RunState.FINISHED
    assert done.record.answer.startswith("It takes 3 s [analyst:a3], says.")
    assert "- [researcher:a2] task of a2: " in done.record.answer
    assert "no such model" in done.record.answer
    assert done.record.usage.requests == sum(s.kind == "model" and s.ok for s in done.record.steps) == 5


async def test_a_plan_in_a_fence_is_taken_and_one_with_an_unknown_worker_goes_back(
    server: OpenAIServer, provider: OpenAICompatible
) -> None:
    server.on(system=DIVIDES, user="wizard").json(json.loads(plan(("a1", "analyst"))), fence=True)
    server.on(system=DIVIDES).tools(plan_call(("a1", "wizard")))
    server.on(system="^You are analyst").text("42")
    server.on(system=WRITES).text("42 [analyst:a1]")
    done = await Stage(provider).run()
    assert done.record.answer == "42 [analyst:a1]"
    assert len(server.requests) == 4


async def test_workers_are_asked_at_the_same_time(server: OpenAIServer, provider: OpenAICompatible) -> None:
    server.on(system=DIVIDES).tools(plan_call(*((f"a{n}", "analyst") for n in range(1, 5))))
    together = asyncio.Event()

    def watch(request: Request) -> bool:
        if server.in_flight == 4:
            together.set()
        return True

    hold = server.on(system="^You are analyst", where=watch).text("42")
    hold.wait = together  # one that waits for another one's answer would wait for ever
    server.on(system=WRITES).text("42 [analyst:a1]")
    async with asyncio.timeout(60):
        await Stage(provider).run()
    assert server.peak == 4


async def test_a_server_that_hangs_for_one_worker_takes_only_that_one(
    server: OpenAIServer, provider: OpenAICompatible
) -> None:
    server.on(system=DIVIDES).tools(plan_call(("a1", "analyst"), ("a2", "researcher")))
    server.on(system="^You are analyst").text("42")
    server.on(system="^You are researcher").hang()
    server.on(system=WRITES).text("42 [analyst:a1]")
    async with asyncio.timeout(60):
        done = await Stage(provider, limits=Limits(run_deadline_s=8)).run()
    assert done.record.answer.startswith("42 [analyst:a1]\n\nNot found out:\n- [researcher:a2]")
    assert server.in_flight == 0
