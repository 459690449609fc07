"""Rows 11 and 45: a run that goes round in circles ends, however the model mixes its steps."""

from __future__ import annotations

import pytest

from agent_core.agent import Agent
from agent_core.context import Limits
from agent_core.errors import Repetition, ToolFailed
from agent_core.llm.scripted import Turn, call, say
from agent_core.runtime.state import RunRecord, RunState
from agent_core.tools.registry import ToolRegistry
from tests.unit.engine.running import Bench

PLENTY = 60


async def run(*turns: Turn) -> tuple[RunRecord, list[str]]:
    """Play turns (round and round) with room for many steps; returns the record and what ran."""
    ran: list[str] = []
    tools = ToolRegistry()

    async def fail(why: str = "always") -> str:
        """Fail."""
        ran.append(f"fail {why}")
        raise ToolFailed(f"failed: {why}")

    async def look(n: int = 0) -> str:
        """Look."""
        ran.append(f"look {n}")
        return "seen"

    tools.register(fail)
    tools.register(look)
    endless = [turns[n % len(turns)] for n in range(PLENTY)]
    bench = Bench(
        endless, registry=tools, limits=Limits(max_steps=PLENTY, max_same_action=3), agent=Agent(max_steps=PLENTY)
    )
    return await bench.ask("go"), ran


async def test_bug_11_a_tool_that_fails_again_after_another_tool_reaches_its_limit() -> None:
    record, ran = await run(call(("fail", {})), call(("look", {"n": 1})), call(("fail", {})), call(("look", {"n": 2})))
    assert isinstance(record.error, Repetition)
    assert ran.count("fail always") == 3


async def test_bug_11_a_tool_that_fails_with_ever_new_arguments_reaches_its_limit_too() -> None:
    record, ran = await run(*(call(("fail", {"why": str(n)}), ("look", {"n": n})) for n in range(20)))
    assert isinstance(record.error, Repetition)
    assert sum(what.startswith("fail") for what in ran) == 6


async def test_bug_45_an_endless_alternation_of_calls_that_succeed_ends() -> None:
    record, ran = await run(call(("look", {"n": 1})), call(("look", {"n": 2})))
    assert isinstance(record.error, Repetition)
    assert 3 <= ran.count("look 1") <= 6


async def test_bug_45_a_new_invented_name_has_no_budget_of_its_own() -> None:
    record, ran = await run(*(call((f"invented_{n}", {}), ("look", {"n": n})) for n in range(20)))
    assert isinstance(record.error, Repetition)
    assert len(ran) <= 6


@pytest.mark.parametrize("between", [[], [call(("look", {"n": 1}))]])
async def test_bug_45_the_order_of_keys_makes_no_new_action(between: list[Turn]) -> None:
    record, _ = await run(
        call(("fail", '{"why": "x"}')),
        *between,
        call(("fail", '{ "why":"x" }')),
        *between,
        call(("fail", {"why": "x"})),
    )
    assert isinstance(record.error, Repetition)


async def test_bug_45_a_run_that_makes_progress_is_left_alone() -> None:
    turns: list[Turn] = [call(("look", {"n": n})) for n in range(12)]
    turns[4] = call(("fail", {}))
    bench_turns = [*turns, say("done")]
    record, ran = await run(*bench_turns)
    assert (record.state, record.answer) == (RunState.FINISHED, "done")
    assert len(ran) == 12
