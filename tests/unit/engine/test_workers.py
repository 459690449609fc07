"""Workers are data; an agent asks one through a tool, and no worker asks another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent_core.agent import Agent
from agent_core.context import Budget, Limits, MemoryJournal, RunContext
from agent_core.errors import ConfigError, ProviderUnavailable
from agent_core.llm.scripted import call
from agent_core.llm.types import ModelMessage, ModelRequest, ModelResponse
from agent_core.observe import trace_as_data, trace_as_text
from agent_core.prompts import ANSWERING, load_prompt, load_prompts
from agent_core.runtime.events import RunEnded, RunEvent, TextDelta, ToolFinished
from agent_core.runtime.state import RunRecord, RunState
from agent_core.tools.approval import Denial
from agent_core.tools.base import Effect, Tool
from agent_core.workers import Worker, build_workers, register_call_worker, run_worker
from tests.unit.engine.cast import Cast, Stage, registry

BOSS = Agent(name="boss", instructions="You are boss.", stream=False)


def own(name: str = "dba", **agent: object) -> Worker:
    return Worker(agent=Agent(name=name, **agent), description="knows it all")  # type: ignore[arg-type]


class Office(Stage):
    """A boss whose agent has ``call_worker``."""

    def __init__(self, cast: Cast, **options: object) -> None:
        super().__init__(cast, **options)  # type: ignore[arg-type]
        register_call_worker(self.registry, self.workers, loop=self.loop, executor=self.executor)

    async def ask(self, **context: object) -> RunRecord:
        ctx = replace(self.ctx, **context)  # type: ignore[arg-type]
        return await self.loop.run(BOSS, ctx, self.conversation, [ModelMessage(role="user", content="why?")])


def hand(*tasks: tuple[str, str]) -> ModelResponse:
    return call(*(("call_worker", {"worker": worker, "task": task}) for worker, task in tasks))


# -- as data -----------------------------------------------------------------------------------------


def test_the_built_in_workers_have_those_of_their_tools_that_exist_and_their_bounds() -> None:
    workers = build_workers([], load_prompts(), registry())
    assert list(workers) == ["sql_optimizer", "report_generator", "researcher", "analyst"]
    assert workers["sql_optimizer"].agent.tools == ("get_slow_queries",)
    assert workers["analyst"].agent.tools == ("get_slow_queries", "calculator")
    assert workers["researcher"].agent.tools == ()
    bounds = {name: (w.agent.max_steps, w.agent.memory_tokens) for name, w in workers.items()}
    assert bounds == {n: (5, 8_000) for n in workers} | {"researcher": (8, 12_000)}
    assert all(w.agent.template.partition("@")[2] for w in workers.values())


def test_a_configured_worker_joins_them_or_replaces_one_and_has_every_reading_tool_unless_it_names_some() -> None:
    tools = registry()
    tools.register(lambda: None, name="wipe", effect=Effect.WRITE)
    workers = build_workers([own(), own("analyst", tools=("reboot",), max_steps=2)], load_prompts(), tools)
    assert list(workers) == ["sql_optimizer", "report_generator", "researcher", "analyst", "dba"]
    assert workers["dba"].agent.tools == ("get_slow_queries", "calculator", "reboot")
    assert (workers["analyst"].agent.tools, workers["analyst"].agent.max_steps) == (("reboot",), 2)


@pytest.mark.parametrize(
    ("worker", "said"),
    [
        (own(tools=("run_python",)), r"cannot have the tools \['run_python'\]; known are .*'reboot'"),
        (own(tools=("call_worker",)), r"cannot have the tools \['call_worker'\]"),
        (own("d b a"), "a name of letters"),
        (Worker(agent=Agent(name="dba"), description=" "), "needs a description"),
        (Worker(agent=Agent(name="dba"), description="x", template="rect"), "'rect'; known are .*'react'"),
        (Worker(agent=Agent(name="dba"), description="x", template="summary"), "cannot use the template 'summary'"),
    ],
)
def test_a_mistake_in_a_configured_worker_stops_the_start(worker: Worker, said: str) -> None:
    office = Office(Cast())  # so that call_worker is registered
    with pytest.raises(ConfigError, match=said):
        build_workers([worker], load_prompts(), office.registry)


async def test_a_worker_that_was_never_completed_is_a_mistake() -> None:
    stage = Stage(Cast())
    with pytest.raises(ConfigError, match="build_workers"):
        await run_worker(own(tools=()), "x", stage.ctx, loop=stage.loop, executor=stage.executor)


async def test_a_worker_has_its_template_filled_with_its_name_the_time_and_its_tools(tmp_path: Path) -> None:
    path = tmp_path / "dba.md"
    path.write_text("You are {name}. It is {now}. Tools:\n{tools}", encoding="utf-8")
    template = load_prompt("dba", allowed=ANSWERING, path=path)
    worker = Worker(agent=Agent(name="dba", tools=("get_slow_queries",)), description="x", template=template)
    cast = Cast(boss=[hand(("dba", "look")), "done"], dba="found")
    await Office(cast, configured=[worker]).ask()
    system = cast.requests("dba")[0].messages[0].content
    assert system == (
        "You are dba. It is Thursday 2026-01-01 00:00 UTC. Tools:\n- get_slow_queries: List the slowest statements."
    )


class OnlyCalculator:
    def visible(self, ctx: RunContext, tool: Tool) -> bool:
        return tool.name in ("calculator", "call_worker")

    async def authorize(self, ctx: RunContext, tool: Tool, arguments: Mapping[str, object]) -> Denial | None:
        return None


async def test_a_worker_is_told_only_of_tools_that_the_person_behind_the_run_may_use() -> None:
    cast = Cast(boss=[hand(("analyst", "look")), "done"], analyst="found")
    await Office(cast, authorizer=OnlyCalculator()).ask()
    (request,) = cast.requests("analyst")
    assert [tool.name for tool in request.tools] == ["calculator"]
    assert "get_slow_queries" not in request.messages[0].content


# -- call_worker -------------------------------------------------------------------------------------


async def test_an_agent_hands_tasks_to_several_workers_at_once_and_reads_their_findings() -> None:
    both = asyncio.Barrier(2)

    async def meet(request: ModelRequest) -> str:
        await both.wait()
        return f"found: {request.messages[-1].content}"

    cast = Cast(boss=[hand(("analyst", "count"), ("researcher", "read")), "all known"], analyst=meet, researcher=meet)
    office = Office(cast)
    async with asyncio.timeout(30):
        record = await office.ask()
    results = [json.loads(s.detail) for s in record.steps if s.kind == "tool"]
    assert results == [
        {"ok": True, "worker": "analyst", "finding": "found: count"},
        {"ok": True, "worker": "researcher", "finding": "found: read"},
    ]
    assert not any(isinstance(e, TextDelta) for e in office.events)  # a worker's words are not the answer's
    offered = next(t for t in cast.requests("boss")[0].tools if t.name == "call_worker")
    assert "- researcher: looks things up" in offered.description


async def test_what_workers_did_stands_in_the_record_of_the_run_that_asked_them() -> None:
    cast = Cast(
        boss=[hand(("dba", "look"), ("analyst", "count")), "done"],
        dba=[call(("get_slow_queries", {})), "slow"],
        analyst=["seven"],
    )
    office, budget = Office(cast, configured=[own()]), Budget()
    record = await office.ask(budget=budget)
    assert [(s.n, s.kind, s.name, s.purpose) for s in record.steps] == [
        (1, "model", "scripted", "answer"),
        (2, "tool", "call_worker", ""),
        (3, "tool", "call_worker", ""),
        (4, "model", "scripted", "analyst"),
        (5, "model", "scripted", "dba"),
        (6, "tool", "get_slow_queries", "dba"),
        (7, "model", "scripted", "dba"),
        (8, "model", "scripted", "answer"),
    ]
    assert record.usage.requests == len(cast.asked) == 5
    assert record.usage.total_tokens == budget.tokens
    assert "scripted for dba" in trace_as_text(trace_as_data(record))


async def test_what_a_worker_did_until_the_run_was_stopped_stands_in_its_record() -> None:
    hung, ended = asyncio.Event(), list[RunRecord]()

    async def hang(request: ModelRequest) -> str:
        hung.set()
        await asyncio.Event().wait()
        return ""

    office = Office(Cast(boss=[hand(("dba", "look"))], dba=[call(("get_slow_queries", {})), hang]), configured=[own()])

    def note(event: RunEvent) -> None:
        if isinstance(event, RunEnded):
            ended.append(event.record)

    run = asyncio.create_task(office.ask(emit=note))
    await hung.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert [(s.name, s.purpose) for s in ended[-1].steps] == [
        ("scripted", "answer"),
        ("scripted", "dba"),
        ("get_slow_queries", "dba"),
    ]


async def test_a_worker_cannot_call_workers() -> None:
    cast = Cast(boss=[hand(("dba", "look")), "done"], dba=[hand(("dba", "you look")), "I looked myself"])
    office = Office(cast, configured=[own()])
    await office.ask()
    request = cast.requests("dba")[1]
    assert "call_worker" not in [tool.name for tool in request.tools]
    assert "unknown_tool" in request.messages[-1].content


@pytest.mark.parametrize(
    ("tasks", "line", "code", "said"),
    [
        ([("analyst", "count")], ProviderUnavailable("the line is cut"), "model_failed", "analyst did not finish: the"),
        ([("wizard", "count")], "", "invalid_arguments", "take one of ['sql_optimizer', "),
        ([("analyst", "")], "", "invalid_arguments", "task"),
    ],
)
async def test_a_worker_that_fails_is_a_failed_tool(
    tasks: list[tuple[str, str]], line: str | ProviderUnavailable, code: str, said: str
) -> None:
    record = await Office(Cast(boss=[hand(*tasks), "done"], analyst=line)).ask()
    (step,) = (s for s in record.steps if s.kind == "tool")
    assert (record.state, step.error) == (RunState.FINISHED, code)
    assert said in step.detail


async def test_a_worker_that_hangs_ends_in_time_for_the_agent_to_go_on() -> None:
    async def hang(request: ModelRequest) -> str:
        await asyncio.Event().wait()
        return "never"

    cast = Cast(boss=[hand(("analyst", "count")), "nothing is known"], analyst=hang)
    async with asyncio.timeout(30):
        record = await Office(cast, limits=Limits(run_deadline_s=5, tool_timeout_s=0.01)).ask()
    assert (record.answer, record.steps[1].error) == ("nothing is known", "deadline")


async def test_the_same_task_is_done_once_at_once_and_later() -> None:
    refused = asyncio.Event()

    async def work(request: ModelRequest) -> str:
        await refused.wait()  # until the call beside this one has its result
        return "42"

    count = ("analyst", "count")
    cast = Cast(boss=[hand(count, count), hand(count), "done"], analyst=work)
    async with asyncio.timeout(30):
        record = await Office(cast, limits=Limits(max_same_action=9)).ask(
            emit=lambda e: refused.set() if isinstance(e, ToolFinished) else None
        )
    results = [json.loads(s.detail) for s in record.steps if s.kind == "tool"]
    assert [r["error"]["code"] if "error" in r else r["finding"] for r in results] == ["42", "busy", "42"]
    assert len(cast.requests("analyst")) == 1


async def test_a_resumed_run_replays_what_its_worker_had_done() -> None:
    journal, reached = MemoryJournal(), asyncio.Event()

    async def die(request: ModelRequest) -> str:
        reached.set()
        await asyncio.Event().wait()
        return "never"

    first = Cast(boss=hand(("analyst", "count")), analyst=[call(("get_slow_queries", {})), die])
    task = asyncio.create_task(Office(first, journal=journal).ask())
    await reached.wait()
    task.cancel()
    await asyncio.wait([task])
    second = Cast(boss="done", analyst="42")
    later = Office(second, journal=journal)
    later.clock.seconds = 3_600  # the process was away for an hour
    record = await later.ask()
    assert record.answer == "done"
    assert [part for part, _ in second.asked] == ["analyst", "boss"]
    assert second.requests("analyst")[0].messages[-1].role == "tool"  # goes on after the call that was done
