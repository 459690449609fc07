"""What workers and listeners must not do to the run that they belong to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_core.agent import Agent
from agent_core.context import Budget, MemoryJournal, StepState
from agent_core.llm.scripted import call
from agent_core.runtime.events import RunEnded
from agent_core.runtime.state import RunState
from agent_core.workers import register_call_worker
from tests.unit.engine.cast import USAGE, Cast, Stage, plan


class TornJournal(MemoryJournal):
    async def finish(self, key: str, state: StepState, result: str) -> None:
        raise ConnectionError("the disk is gone")


async def test_listeners_learn_of_the_end_of_a_supervised_run_whatever_ended_it() -> None:
    stage = Stage(Cast(plan=plan(("a1", "analyst"))), journal=TornJournal())
    with pytest.raises(ConnectionError):
        await stage.run()
    ended = stage.events[-1]
    assert isinstance(ended, RunEnded)
    assert ended.record.state is RunState.ERROR


async def test_what_a_worker_used_is_counted_once_when_its_task_is_given_again() -> None:
    boss = Agent(name="boss", instructions="You are boss.", tools=("call_worker",), stream=False)
    asks = replace(call(("call_worker", {"worker": "analyst", "task": "count"})), usage=USAGE)
    looks = replace(call(("calculator", {"expression": "1"})), usage=USAGE)
    stage, budget = Stage(Cast(boss=[asks, asks, "done"], analyst=[looks, "42"])), Budget()
    register_call_worker(stage.registry, stage.workers, loop=stage.loop, executor=stage.executor)
    record = await stage.loop.run(boss, replace(stage.ctx, budget=budget), stage.conversation, "why?")
    models = [step.purpose for step in record.steps if step.kind == "model"]
    assert models == ["answer", "analyst", "analyst", "answer", "answer"]
    assert record.usage.requests == budget.requests == 5
    assert record.usage.total_tokens == budget.tokens
    assert budget.tool_calls == 3
