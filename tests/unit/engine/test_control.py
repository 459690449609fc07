"""What steers, bounds and ends a run from outside: messages, shared budgets, cancellation, circles."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent_core.agent import Agent
from agent_core.context import Budget, Limits, MemoryJournal, Steering
from agent_core.llm.scripted import call, say
from agent_core.llm.types import ModelMessage, ModelRequest, ModelResponse, Usage
from agent_core.memory.validity import is_sendable
from agent_core.runtime.events import MessageInjected, RunEnded, RunStarted
from agent_core.runtime.state import RunState
from agent_core.tools.registry import ToolRegistry
from tests.unit.engine.running import Bench


def adding() -> ToolRegistry:
    registry = ToolRegistry()

    @registry.register(trusted=True)
    def add(a: int, b: int = 0) -> int:
        """Add."""
        return a + b

    @registry.register
    def fail(reason: str) -> str:
        """Fail."""
        raise ValueError(reason)

    return registry


async def test_a_message_that_comes_while_a_tool_runs_is_in_the_next_request() -> None:
    steering, registry = Steering(), adding()

    @registry.register
    async def slow() -> str:
        """Take a while; meanwhile somebody writes."""
        steering.push(ModelMessage(role="user", content="only the last hour", speaker="bob"))
        return "rows"

    b = Bench([call(("slow", {})), say("done")], registry=registry)
    record = await b.ask("what is slow?", steering=steering)
    assert record.state is RunState.FINISHED
    sent = b.script.requests[1].messages
    assert [m.role for m in sent][-2:] == ["tool", "user"]
    assert (sent[-1].content, sent[-1].speaker) == ("only the last hour", "bob")
    assert [e.message.content for e in b.events if isinstance(e, MessageInjected)] == ["only the last hour"]


async def test_a_resumed_run_knows_the_messages_that_its_first_attempt_had_taken_in() -> None:
    steering, registry = Steering(), adding()
    steering.push(ModelMessage(role="user", content="only the last hour"))
    b = Bench([call(("add", {"a": 1})), say("done")], registry=registry)
    first = await b.ask("what is slow?", steering=steering)
    again = Bench([], registry=registry, journal=b.journal)
    second = await again.ask("what is slow?", steering=Steering())
    assert second.answer == first.answer
    assert [m.content for m in again.conversation.messages] == [m.content for m in b.conversation.messages]


async def test_a_message_taken_in_before_a_crash_in_the_model_call_is_not_lost() -> None:
    steering = Steering()
    steering.push(ModelMessage(role="user", content="only the last hour"))

    def crash(request: ModelRequest) -> ModelResponse:
        raise asyncio.CancelledError

    b = Bench([crash])
    with pytest.raises(asyncio.CancelledError):
        await b.ask("what is slow?", steering=steering)
    again = Bench([say("done")], journal=b.journal)
    await again.ask("what is slow?", steering=Steering())
    assert [m.content for m in again.script.requests[0].messages][-2:] == ["what is slow?", "only the last hour"]


async def test_runs_that_share_a_budget_share_its_limits() -> None:
    budget, limits = Budget(), Limits(requests=3, tool_calls=2)
    first = await Bench([say("a"), say("b")], limits=limits).ask("one", budget=budget)
    second = Bench([call(("add", {"a": 1})), call(("add", {"a": 2}))], registry=adding(), limits=limits)
    record = await second.ask("two", budget=budget)
    assert first.state is RunState.FINISHED
    assert record.error is not None
    assert record.error.kind == "request_limit"
    assert budget.requests == 3


async def test_tokens_and_cost_of_every_run_are_charged_to_the_shared_budget() -> None:
    budget = Budget()
    usage = Usage(input_tokens=70, output_tokens=30, requests=1)
    await Bench([say("a", usage=usage)]).ask("one", budget=budget)
    record = await Bench([call(("add", {"a": 1})), say("b")], registry=adding(), limits=Limits(tokens=100)).ask(
        "two", budget=budget
    )
    assert record.error is not None
    assert record.error.kind == "token_limit"
    assert budget.cost_usd == 0.0


async def test_a_cancelled_run_ends_with_a_record_and_a_history_that_can_be_sent() -> None:
    started, registry = asyncio.Event(), adding()

    @registry.register
    async def hang() -> str:
        """Never end."""
        started.set()
        await asyncio.Event().wait()
        return ""

    b = Bench([call(("hang", {}), ("add", {"a": 1})), say("fine again")], registry=registry)
    task = asyncio.create_task(b.ask("go"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ended = b.events[-1]
    assert isinstance(ended, RunEnded)
    assert ended.record.error is not None
    assert (ended.record.state, ended.record.error.kind) == (RunState.ERROR, "cancelled")
    b.journal = MemoryJournal()
    assert (await b.ask("and now?", run_id="run2")).answer == "fine again"
    assert is_sendable(b.script.requests[1].messages[1:])


async def test_a_run_tells_first_that_it_began() -> None:
    b = Bench([say("hi")])
    await b.ask("hi")
    assert b.events[0] == RunStarted(run_id="run1", thread_id="t1", agent=b.agent)


async def test_the_question_carries_the_time_at_which_it_was_asked() -> None:
    b = Bench([say("hi")])
    await b.ask("hi")
    assert b.script.requests[0].messages[-1].at == b.clock.now()


async def test_bug_45_two_calls_in_endless_alternation_end_the_run() -> None:
    turns = [call(("add", {"a": n % 2})) for n in range(20)]
    record = await Bench(turns, registry=adding(), limits=Limits(max_steps=50), agent=Agent(max_steps=50)).ask("go")
    assert record.error is not None
    assert record.error.kind == "repetition"
    assert sum(step.kind == "tool" for step in record.steps) == 10


async def test_bug_11_a_call_that_fails_again_and_again_ends_the_run_whatever_comes_in_between() -> None:
    turns = [call(("fail", {"reason": "x"}) if n % 2 == 0 else ("add", {"a": n})) for n in range(20)]
    record = await Bench(turns, registry=adding(), agent=Agent(max_steps=50), limits=Limits(max_steps=50)).ask("go")
    assert record.error is not None
    assert (record.error.kind, str(record.error)) == ("repetition", "the same call of fail failed 3 times")


async def test_bug_45_invented_tool_names_have_one_budget_together() -> None:
    turns = [call((f"invented_{n}", {})) for n in range(20)]
    record = await Bench(turns, registry=adding(), agent=Agent(max_steps=50), limits=Limits(max_steps=50)).ask("go")
    assert record.error is not None
    assert str(record.error) == "calls of tools that do not exist failed 6 times"


async def test_a_tool_that_fails_in_a_few_different_calls_may_still_be_tried() -> None:
    turns = [*(call(("fail", {"reason": str(n)})) for n in range(5)), say("it does not work")]
    record = await Bench(turns, registry=adding()).ask("go")
    assert record.state is RunState.FINISHED


async def test_the_model_that_an_agent_names_is_asked_for() -> None:
    b = Bench([say("hi")])
    b.agent = replace(b.agent, model="second")
    await b.ask("hi")
    assert b.script.requests[0].model == "second"


async def test_a_message_that_comes_while_a_run_is_repeated_waits_for_the_first_new_call() -> None:
    def crash(request: ModelRequest) -> ModelResponse:
        raise asyncio.CancelledError

    b = Bench([call(("add", {"a": 1})), call(("add", {"a": 2})), crash], registry=adding())
    with pytest.raises(asyncio.CancelledError):
        await b.ask("what is slow?")
    steering = Steering()
    steering.push(ModelMessage(role="user", content="only the last hour"))
    again = Bench([say("done")], registry=adding(), journal=b.journal)
    record = await again.ask("what is slow?", steering=steering)
    assert record.state is RunState.FINISHED, record.error
    assert [m.content for m in again.script.requests[0].messages][-2:] == ["2", "only the last hour"]
    assert steering.waiting == ()


async def test_what_comes_too_late_for_a_run_still_waits_after_it() -> None:
    steering = Steering()

    def write(request: ModelRequest) -> ModelResponse:
        steering.push(ModelMessage(role="user", content="wait"))
        return say("done")

    await Bench([write]).ask("go", steering=steering)
    assert [m.content for m in steering.waiting] == ["wait"]


async def test_a_resumed_run_has_used_what_its_first_attempt_used() -> None:
    def crash(request: ModelRequest) -> ModelResponse:
        raise asyncio.CancelledError

    limits = Limits(requests=3)
    b = Bench([call(("add", {"a": 1})), call(("add", {"a": 2})), crash], registry=adding(), limits=limits)
    with pytest.raises(asyncio.CancelledError):
        await b.ask("go")
    again = Bench([call(("add", {"a": 3}))], registry=adding(), journal=b.journal, limits=limits)
    record = await again.ask("go")
    assert record.error is not None
    assert record.error.kind == "request_limit"


async def test_a_new_message_is_not_taken_for_one_that_the_first_attempt_had_taken_in() -> None:
    def crash(request: ModelRequest) -> ModelResponse:
        raise asyncio.CancelledError

    first, second = Steering(), Steering()
    first.push(ModelMessage(role="user", content="only the last hour"))
    second.push(ModelMessage(role="user", content="and only orders"))
    b = Bench([call(("add", {"a": 1})), crash], registry=adding())
    with pytest.raises(asyncio.CancelledError):
        await b.ask("what is slow?", steering=first)
    again = Bench([say("done")], registry=adding(), journal=b.journal)
    await again.ask("what is slow?", steering=second)
    users = [m.content for m in again.script.requests[0].messages if m.role == "user"]
    assert users == ["what is slow?", "only the last hour", "and only orders"]
