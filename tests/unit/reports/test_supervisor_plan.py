"""A supervisor that was given a plan for the case that no model divides the task."""

from __future__ import annotations

import pytest

from agent_core.errors import ConfigError
from agent_core.llm.offline import OfflineProvider
from agent_core.llm.provider import Provider
from agent_core.runtime.state import RunState
from agent_core.supervisor import Assignment
from tests.unit.engine.cast import Cast, Stage, plan

PLAN = (
    Assignment(id="a1", worker="sql_optimizer", task="get_slow_queries limit=3"),
    Assignment(id="a2", worker="analyst", task="get_slow_queries limit=7"),
)


def stage(provider: Provider, *assignments: Assignment) -> Stage:
    return Stage(provider, plan=assignments)


async def test_the_plan_is_carried_out_when_no_model_divides_the_task() -> None:
    done = await stage(OfflineProvider(), *PLAN).run("the report")
    assert done.record.state is RunState.FINISHED
    assert [f.assignment for f in done.findings] == list(PLAN)
    assert [s.arguments for s in done.record.steps if s.name == "get_slow_queries"] == ['{"limit": 3}', '{"limit": 7}']
    assert done.written == ""


async def test_a_model_that_divides_the_task_needs_no_such_plan() -> None:
    cast = Cast(plan=plan(("a1", "analyst")), analyst="42", synthesis="It is 42 [analyst:a1] [analyst:a7].")
    done = await stage(cast, *PLAN).run()
    assert [f.assignment.task for f in done.findings] == ["task of a1"]
    assert done.written == "It is 42 [analyst:a1]."
    assert done.dropped == ("analyst:a7",)


def test_a_plan_that_cannot_be_carried_out_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"the plan names \['poet'\]"):
        stage(OfflineProvider(), Assignment(id="a1", worker="poet", task="write"))
    with pytest.raises(ValueError, match="an id stands twice"):
        stage(OfflineProvider(), PLAN[0], PLAN[0])
