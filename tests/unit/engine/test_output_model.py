"""Agents whose final answer has a form."""

from __future__ import annotations

from pydantic import BaseModel

from agent_core.agent import Agent
from agent_core.llm.scripted import call, say
from agent_core.runtime.state import RunState
from agent_core.tools.registry import ToolRegistry
from tests.unit.engine.running import Bench


class Verdict(BaseModel):
    """What is wrong."""

    table: str
    rows: int


AGENT = Agent(instructions="judge", output=Verdict)


def registry() -> ToolRegistry:
    made = ToolRegistry()

    @made.register
    def look(table: str) -> str:
        """Look."""
        return f"{table} has 3 rows"

    return made


async def test_the_answer_is_the_validated_model_after_the_tools_have_run() -> None:
    turns = [call(("look", {"table": "orders"})), call(("final_answer", {"table": "orders", "rows": 3}))]
    b = Bench(turns, agent=AGENT, registry=registry())
    record = await b.ask("how is it?")
    assert record.output == Verdict(table="orders", rows=3)
    assert record.answer == '{"table":"orders","rows":3}'
    assert [s.name for s in record.steps if s.kind == "tool"] == ["look"], "final_answer is no tool that runs"
    assert b.conversation.messages[-1].content == record.answer


async def test_a_wrong_answer_goes_back_once_with_what_is_wrong() -> None:
    turns = [
        call(("final_answer", {"table": "orders", "rows": "many"})),
        call(("final_answer", {"table": "o", "rows": 3})),
    ]
    b = Bench(turns, agent=AGENT, registry=registry())
    record = await b.ask("how is it?")
    assert record.output == Verdict(table="o", rows=3)
    assert "rows" in b.script.requests[1].messages[-1].content


async def test_an_answer_that_stays_wrong_is_an_error_and_no_guess() -> None:
    turns = [say("orders has some rows"), say("many")]
    record = await Bench(turns, agent=AGENT, registry=registry()).ask("how is it?")
    assert record.state is RunState.ERROR
    assert record.output is None
    assert record.error is not None
    assert record.error.kind == "model_failed"
