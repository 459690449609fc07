"""A run that is interrupted at any await, and resumed with the same journal, ends as one that never was.

The journal, the model and the tools of these tests give way before and after each effect, and the run is cancelled
after every possible number of turns of the event loop, again and again, so that every await of the run is the last one
of some attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

import pytest
from pydantic import BaseModel

from agent_core.agent import Agent
from agent_core.context import JournalEntry, MemoryJournal, RunContext, Steering, StepState
from agent_core.errors import ContextOverflow, ProviderUnavailable
from agent_core.llm.scripted import call, say
from agent_core.llm.types import ModelMessage, ModelRequest, ModelResponse, StreamItem, TextChunk, ToolCall
from agent_core.memory.conversation import Conversation
from agent_core.memory.summarize import Summarizer
from agent_core.prompts import load_prompts
from agent_core.runtime.events import RunEnded
from agent_core.runtime.loop import AgentLoop
from agent_core.runtime.state import RunRecord, RunState
from agent_core.supervisor import Supervisor
from agent_core.tools.approval import Decision
from agent_core.tools.base import Effect, Tool
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from agent_core.workers import Worker, build_workers
from tests.unit.engine.cast import plan
from tests.unit.engine.running import Bench

LONG = "word " * 100
WRITTEN = '{"ok":false,"error":{"code":"unknown_outcome"'


class Verdict(BaseModel):
    """What was found."""

    table: str
    rows: int


class SlowJournal(MemoryJournal):
    """Gives way before and after each record, as one on a disk does."""

    async def begin(self, entry: JournalEntry) -> JournalEntry | None:
        await asyncio.sleep(0)
        known = await super().begin(entry)
        await asyncio.sleep(0)
        return known

    async def finish(self, key: str, state: StepState, result: str) -> None:
        await asyncio.sleep(0)
        assert self.entries[key].state is not StepState.DONE or self.entries[key].result == result, key
        await super().finish(key, state, result)
        await asyncio.sleep(0)


class Yes:
    async def approve(self, ctx: RunContext, tool: Tool, call: ToolCall) -> Decision:
        await asyncio.sleep(0)
        return Decision(approved=True)


@dataclass
class World:
    """What outlives a crash: the journal, what the tools changed, what a model says to which history."""

    answer: Callable[[World, ModelRequest], ModelResponse]
    journal: SlowJournal = field(default_factory=SlowJournal)
    steering: Steering = field(default_factory=Steering)
    booked: list[str] = field(default_factory=list)
    asked: list[ModelRequest] = field(default_factory=list)
    outage: bool = True
    written_to: bool = False
    name = model = "scripted"

    async def complete(self, request: ModelRequest) -> ModelResponse:
        await asyncio.sleep(0)
        self.asked.append(request)
        response = self.answer(self, request)
        await asyncio.sleep(0)
        return response

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        response = await self.complete(request)
        yield TextChunk(text=response.message.content)
        await asyncio.sleep(0)
        yield response

    def prepare(self) -> None: ...

    async def aclose(self) -> None: ...

    def tools(self) -> ToolRegistry:
        registry = ToolRegistry()

        @registry.register
        async def look(table: str) -> str:
            """Look; meanwhile somebody writes."""
            await asyncio.sleep(0)
            if not self.written_to:
                self.written_to = True
                self.steering.push(ModelMessage(role="user", content="only the last hour"))
            return f"{table} has 3 rows"

        @registry.register(effect=Effect.WRITE)
        async def book(what: str) -> str:
            """Change something."""
            await asyncio.sleep(0)
            self.booked.append(what)
            await asyncio.sleep(0)
            return f"booked {what}"

        return registry

    def bench(self, agent: Agent) -> Bench:
        made = Bench(self, agent=agent, registry=self.tools(), journal=self.journal, summarizer=Summarizer())
        executor = ToolExecutor(made.registry, approver=Yes())
        made.loop = AgentLoop(provider=self, executor=executor, summarizer=Summarizer())
        for n in range(8):
            made.conversation.append(ModelMessage(role="user", content=f"question {n} {LONG}"))
            made.conversation.append(ModelMessage(role="assistant", content=f"answer {n} {LONG}"))
        return made


async def attempt(world: World, agent: Agent, turns: int) -> tuple[RunRecord, Bench] | None:
    """Run until it ends, or cancel it after so many turns of the event loop."""
    bench = world.bench(agent)
    task = asyncio.create_task(bench.ask("how is it?", steering=world.steering))
    for _ in range(turns + 1):
        if task.done():
            break
        await asyncio.sleep(0)
    if not task.done():
        task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        return task.result(), bench
    ended = bench.events[-1]
    assert isinstance(ended, RunEnded)
    assert ended.record.state is RunState.ERROR
    return None


def said(request: ModelRequest) -> list[str]:
    return [m.content for m in request.messages]


def work_through(world: World, request: ModelRequest) -> ModelResponse:
    """A summary, a tool with a message meanwhile, two more of which one writes, a wrong answer, the answer."""
    if request.max_tokens == 800:
        return say("they spoke of an index")
    rounds = sum(bool(m.tool_calls) for m in request.messages)
    if rounds == 0:
        return call(("look", {"table": "orders"}), text="I look")
    if rounds == 1:
        return call(("look", {"table": "items"}), ("book", {"what": "a maintenance"}))
    if any("does not fit" in text for text in said(request)):
        return call(("final_answer", {"table": "orders", "rows": 3}))
    return call(("final_answer", {"table": "orders", "rows": "many"}))


def in_plain_words(world: World, request: ModelRequest) -> ModelResponse:
    """The same in text, from a model without summary and with a window that is too small at first."""
    if request.max_tokens == 800:
        if world.outage:
            world.outage = False
            raise ProviderUnavailable("HTTP 500")
        return say("they spoke of an index")
    if sum(len(text) for text in said(request)) > 3_000:
        raise ContextOverflow("maximum context length")
    rounds = sum(bool(m.tool_calls) for m in request.messages)
    return say("3 rows") if rounds else call(("look", {"table": "orders"}), ("book", {"what": "a maintenance"}))


def in_a_few_words(world: World, request: ModelRequest) -> ModelResponse:
    """A window that is found too small for the summary, and at another time would not be."""
    if world.outage:
        world.outage = False
        raise ContextOverflow("maximum context length")
    return in_plain_words(world, request)


AGENT = Agent(instructions="be brief", memory_tokens=1_200)
CASES = {
    "structured": (work_through, replace(AGENT, output=Verdict)),
    "plain": (in_plain_words, AGENT),
    "not streamed": (in_a_few_words, replace(AGENT, stream=False)),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_run_that_is_interrupted_at_any_await_and_resumed_ends_as_if_it_had_not_been(case: str) -> None:
    answer, agent = CASES[case]
    whole = World(answer)
    ended = await attempt(whole, agent, 10_000)
    assert ended is not None
    assert ended[0].state is RunState.FINISHED, ended[0].error
    history = [(m.role, m.content) for m in ended[1].conversation.messages]
    for turns in range(10_000):
        world = World(answer)
        first = await attempt(world, agent, turns)
        if first is not None:
            break
        resumed = await attempt(world, agent, 10_000)
        assert resumed is not None
        record, bench = resumed
        assert (record.state, record.answer, record.output) == (RunState.FINISHED, ended[0].answer, ended[0].output), (
            turns,
            record.error,
        )
        assert world.booked.count("a maintenance") <= 1
        again = [(m.role, m.content) for m in bench.conversation.messages]
        if not any("unknown_outcome" in content for _, content in again):
            assert again == history, turns
            assert world.booked.count("a maintenance") == 1
    assert turns > 40


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("step", [1, 2, 3, 5, 8, 13, 21, 34])
async def test_a_run_that_is_interrupted_again_and_again_ends_as_if_it_had_not_been(case: str, step: int) -> None:
    answer, agent = CASES[case]
    world, turns = World(answer), 0
    while (ended := await attempt(world, agent, turns)) is None:
        turns += step
    assert ended[0].state is RunState.FINISHED, ended[0].error
    assert world.booked.count("a maintenance") <= 1
    assert ended[0].answer in ('{"table":"orders","rows":3}', "3 rows")


def divide(world: World, request: ModelRequest) -> ModelResponse:
    """A plan of three assignments, the last of which needs the first; one worker writes."""
    first, text = request.messages[0].content, request.messages[-1].content
    if first.startswith("You divide"):
        return say(plan(("a1", "reader"), ("a2", "writer"), ("a3", "reader", ["a1"])))
    if first.startswith("You write the answer"):
        return say(f"{text.count('<finding')} findings [reader:a1]")
    if any(m.tool_calls for m in request.messages):
        return say(f"found for {request.messages[1].content.split()[2]}")
    return call(("book", {"what": "a maintenance"}) if "writer" in first else ("look", {"table": "orders"}))


async def supervise(world: World, turns: int) -> RunRecord | None:
    registry = world.tools()
    executor = ToolExecutor(registry, approver=Yes())
    loop = AgentLoop(provider=world, executor=executor)
    configured = [
        Worker(agent=Agent(name="reader", tools=("look",)), description="reads"),
        Worker(agent=Agent(name="writer", tools=("book",)), description="writes"),
    ]
    workers = build_workers(configured, load_prompts(), registry)
    supervisor = Supervisor(loop=loop, executor=executor, workers=workers, prompts=load_prompts())
    ctx = replace(RunContext.create("t1", journal=world.journal), run_id="run1")
    task = asyncio.create_task(supervisor.run(ctx, "why is it slow?", Conversation()))
    for _ in range(turns + 1):
        if task.done():
            break
        await asyncio.sleep(0)
    if not task.done():
        task.cancel()
    await asyncio.wait({task})
    assert len(asyncio.all_tasks()) == 1, "no worker goes on"
    return None if task.cancelled() else task.result().record


async def test_a_supervised_run_that_is_interrupted_at_any_await_and_resumed_ends_as_if_it_had_not_been() -> None:
    whole = await supervise(World(divide), 10_000)
    assert whole is not None
    assert whole.state is RunState.FINISHED
    assert whole.answer == "3 findings [reader:a1]"
    for turns in range(10_000):
        world = World(divide)
        if await supervise(world, turns) is not None:
            break
        resumed = await supervise(world, 10_000)
        assert resumed is not None
        assert (resumed.state, resumed.answer) == (RunState.FINISHED, whole.answer), (turns, resumed.error)
        assert world.booked.count("a maintenance") <= 1
    assert turns > 40
