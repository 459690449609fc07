"""Real runs, traced: through the loop, across tasks, and to a real collector's port."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from agent_core.agent import Agent
from agent_core.context import RunContext
from agent_core.errors import RunCancelled
from agent_core.llm.scripted import call, say
from agent_core.llm.types import ModelMessage, ModelRequest, ModelResponse, TextChunk, Usage
from agent_core.prompts import load_prompts
from agent_core.runtime.events import RunEvent, TextDelta
from agent_core.supervisor import Supervisor
from agent_core.telemetry import Telemetry
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from agent_core.workers import build_workers
from tests.unit.engine.running import Bench
from tests.unit.engine.telemetry.bench import CANARY, Exported, Told


def registry() -> ToolRegistry:
    tools = ToolRegistry()

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def fail() -> str:
        """Fail in every case."""
        raise RuntimeError(CANARY)

    tools.register(add)
    tools.register(fail)
    return tools


def bench(*, agent: Agent | None = None) -> Bench:
    turns = [
        call(("add", {"a": 1, "b": 2}), ("fail", {}), text=CANARY),
        say(f"three, {CANARY}", usage=Usage(input_tokens=9, output_tokens=3, requests=1)),
    ]
    return Bench(list(turns), registry=registry(), agent=agent)


def under(exported: Exported) -> list[tuple[object, object]]:
    return sorted((span["parent"] or "", span["name"]) for span in exported.tree())


async def test_a_run_of_the_loop_is_a_tree_of_its_model_and_tool_calls() -> None:
    exported, thread = Exported(endpoints={}), bench()
    ctx = exported.telemetry.follow(thread.context())
    await thread.loop.run(thread.agent, ctx, thread.conversation, [ModelMessage(role="user", content=CANARY)])
    assert under(exported) == [
        ("", "invoke_agent agent"),
        ("invoke_agent agent", "chat scripted"),
        ("invoke_agent agent", "chat scripted"),
        ("invoke_agent agent", "execute_tool add"),
        ("invoke_agent agent", "execute_tool fail"),
    ]
    failed = exported.spans["execute_tool fail"]
    assert (failed.attributes or {})["error.type"] == "crashed"
    assert CANARY not in exported.everything()


async def test_a_run_that_is_resumed_is_marked_and_not_measured_again() -> None:
    exported, first = Exported(endpoints={}), bench()
    await first.ask("sums?")
    again = Bench([], registry=registry(), journal=first.journal)
    ctx = exported.telemetry.follow(again.context())
    await again.loop.run(again.agent, ctx, again.conversation, [ModelMessage(role="user", content="sums?")])
    below = [span for span in exported.tree() if span["parent"]]
    assert len(below) == 4
    assert all("agent_core.replayed" in str(span["attributes"]) for span in below)
    assert exported.measured() == {}


async def deltas(thread: Bench, ctx: RunContext) -> AsyncIterator[str]:
    """The text of a run as it comes, the way a program streams it to its own client."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    def listen(event: RunEvent) -> None:
        ctx.emit(event)
        if isinstance(event, TextDelta):
            heard.put_nowait(event.text)

    question = [ModelMessage(role="user", content="sums?")]
    run = asyncio.create_task(thread.loop.run(thread.agent, replace(ctx, emit=listen), thread.conversation, question))
    try:
        while True:
            yield await heard.get()
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


async def test_bug_36_a_stream_closed_by_another_task_ends_its_spans(caplog: pytest.LogCaptureFixture) -> None:
    exported = Exported(endpoints={})
    gate = asyncio.Event()

    class Stalling:
        """Streams one word and then nothing more."""

        name = model = "stalling"

        async def complete(self, request: ModelRequest) -> ModelResponse:
            raise NotImplementedError

        async def stream(self, request: ModelRequest) -> AsyncIterator[object]:
            yield TextChunk(text="one")
            await gate.wait()

        def prepare(self) -> None: ...

        async def aclose(self) -> None: ...

    thread = Bench(Stalling())  # type: ignore[arg-type]
    with caplog.at_level(logging.DEBUG), exported.telemetry.tracer.start_as_current_span("request"):
        stream = deltas(thread, exported.telemetry.follow(thread.context()))
        assert await asyncio.create_task(anext(stream)) == "one"  # type: ignore[arg-type]
        await asyncio.create_task(stream.aclose())  # type: ignore[attr-defined]
    assert "detach" not in caplog.text
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    ended = exported.spans
    assert set(ended) == {"request", "invoke_agent agent", "chat"}
    assert (ended["invoke_agent agent"].attributes or {})["error.type"] == "cancelled"
    assert (ended["chat"].attributes or {})["error.type"] == "cancelled"


async def test_bug_36_a_run_begun_in_one_task_and_ended_in_another_detaches_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exported = Exported()
    told = Told(exported.telemetry)

    async def stream() -> AsyncIterator[str]:
        told.start()
        told.ask(model="main")
        try:
            yield "one"
        finally:
            told.end(RunCancelled("closed"))

    words = stream()
    assert await asyncio.create_task(anext(words)) == "one"  # type: ignore[arg-type]
    await asyncio.create_task(words.aclose())  # type: ignore[attr-defined]
    assert "Failed to detach context" not in caplog.text
    assert set(exported.spans) == {"invoke_agent dba", "chat gpt-4o-mini"}


async def test_a_supervisors_run_is_a_workflow_with_its_plan_and_its_workers() -> None:
    def answer(request: ModelRequest) -> ModelResponse:
        if request.output is not None or any("assignments" in str(t.parameters) for t in request.tools):
            parts = [
                {"id": "a1", "worker": "analyst", "task": "look"},
                {"id": "a2", "worker": "analyst", "task": "see"},
            ]
            plan = {"assignments": parts}
            if request.output is None:
                return call((request.tools[0].name, plan))
            return say(json.dumps(plan))
        return say("found [analyst:a1]")

    exported, tools = Exported(endpoints={}), registry()
    thread = Bench([answer] * 4, registry=tools)
    executor, prompts = ToolExecutor(tools), load_prompts()
    workers = build_workers((), prompts, tools)
    supervisor = Supervisor(loop=thread.loop, executor=executor, workers=workers, prompts=prompts)
    ctx = exported.telemetry.follow(thread.context(), workflow="report")
    done = await supervisor.run(ctx, "what is wrong?", thread.conversation)
    assert done.record.error is None
    names = under(exported)
    assert ("", "invoke_workflow report") in names
    assert ("invoke_workflow report", "plan supervisor") in names
    assert ("plan supervisor", "chat scripted") in names
    assert names.count(("invoke_workflow report", "invoke_agent analyst")) == 2


class Collector(HTTPServer):
    """Keeps the names of the spans that are sent to it as OTLP over HTTP."""

    def __init__(self) -> None:
        self.names: list[str] = []
        super().__init__(("127.0.0.1", 0), Receive)


class Receive(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        scopes = [scope for resource in sent.resource_spans for scope in resource.scope_spans]
        self.server.names += [span.name for scope in scopes for span in scope.spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


async def test_spans_reach_a_collector_through_the_sdks_own_exporter(collector: Collector) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{collector.server_port}/v1/traces", timeout=5)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    thread = bench()
    ctx = Telemetry(tracer_provider=provider, content=True).follow(thread.context())
    await thread.loop.run(thread.agent, ctx, thread.conversation, [ModelMessage(role="user", content="sums?")])
    provider.shutdown()
    assert sorted(collector.names) == [
        "chat scripted",
        "chat scripted",
        "execute_tool add",
        "execute_tool fail",
        "invoke_agent agent",
    ]
