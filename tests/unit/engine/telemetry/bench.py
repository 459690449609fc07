"""A followed run, told by hand, and what the SDK's own in-memory exporters saw of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agent_core.agent import Agent
from agent_core.context import RunContext
from agent_core.errors import AllProvidersFailed, ModelFailed, RateLimited, RunError
from agent_core.llm.types import Finish, ModelMessage, ModelRequest, ModelResponse, ToolCall, ToolSpec, Usage
from agent_core.memory.conversation import Summary
from agent_core.runtime.events import (
    AnswerRestarted,
    ModelStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    StepFinished,
    Summarized,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from agent_core.runtime.state import RunRecord, RunState, Step
from agent_core.telemetry import Endpoint, Telemetry
from agent_core.tools.base import ToolResult
from tests.unit.engine.running import HandClock

CANARY = "cormorant"
SECRET = "hunter2"

ENDPOINTS = {
    "main": Endpoint(vendor="openai", model="gpt-4o-mini", address="models.example", port=8443),
    "spare": Endpoint(vendor="anthropic", model="claude-haiku"),
}


class HideSecret:
    def redact(self, text: str) -> str:
        return text.replace(SECRET, "[secret]")


class Exported:
    """A telemetry, with exporters that keep everything."""

    def __init__(self, **options: Any) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        options = {"endpoints": ENDPOINTS, **options}
        self.telemetry = Telemetry(tracer_provider=tracers, meter_provider=meters, **options)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """The ended spans by name (the last of a name)."""
        return {span.name: span for span in self._spans.get_finished_spans()}

    def tree(self) -> list[dict[str, object]]:
        """The ended spans in the order of their ends, without ids and times."""
        ended = self._spans.get_finished_spans()
        named = {span.context.span_id: span.name for span in ended if span.context}
        return [
            {
                "name": span.name,
                "parent": named.get(span.parent.span_id, "?") if span.parent else None,
                "kind": span.kind.name,
                "status": span.status.status_code.name,
                **({"description": span.status.description} if span.status.description else {}),
                "attributes": _plain(span.attributes),
                "events": [[event.name, _plain(event.attributes)] for event in span.events],
            }
            for span in ended
        ]

    def measured(self) -> dict[str, list[dict[str, object]]]:
        """Every metric with its points; of durations only how many there were."""
        data = self._reader.get_metrics_data()
        found: dict[str, list[dict[str, object]]] = {}
        for resource in data.resource_metrics if data else []:
            for metric in (m for scope in resource.scope_metrics for m in scope.metrics):
                for point in metric.data.data_points:
                    shown: dict[str, object] = {"unit": metric.unit, "attributes": _plain(point.attributes)}
                    if isinstance(point, HistogramDataPoint):
                        shown |= {"count": point.count, "bounds": len(point.explicit_bounds)}
                        shown |= {} if metric.unit == "s" else {"sum": point.sum}
                    elif isinstance(point, NumberDataPoint):
                        shown |= {"value": point.value}
                    found.setdefault(metric.name, []).append(shown)
        return found

    def everything(self) -> str:
        """All of the export as one text, to look for what must not be in it."""
        spans = "".join(span.to_json() for span in self._spans.get_finished_spans())
        data = self._reader.get_metrics_data()
        return spans + (data.to_json() if data else "")


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, object]:
    found = {name: list(v) if isinstance(v, tuple) else v for name, v in (attributes or {}).items()}
    return dict(sorted(found.items()))


class Told:
    """Tells the events of a run to a followed context, time passing in between."""

    def __init__(self, telemetry: Telemetry, *, workflow: str = "", agent: Agent | None = None) -> None:
        self.clock, self.events, self.agent = HandClock(), list[RunEvent](), agent or Agent(name="dba")
        ctx = RunContext(
            run_id="run1",
            thread_id="t1",
            deadline=120.0,
            clock=self.clock,
            redactor=HideSecret(),
            emit=self.events.append,
        )
        self.ctx = telemetry.follow(ctx, workflow=workflow)
        self.run_id = "run1"

    def below(self, run_id: str, agent: Agent) -> Told:
        """Another run that is given a copy of the context."""
        told = object.__new__(Told)
        told.clock, told.events, told.agent, told.run_id = self.clock, self.events, agent, run_id
        told.ctx = replace(self.ctx, run_id=run_id)
        return told

    def tell(self, event: RunEvent) -> None:
        self.clock.seconds += 0.25
        self.ctx.emit(event)

    def start(self) -> None:
        self.tell(RunStarted(run_id=self.run_id, thread_id="t1", agent=self.agent))

    def ask(self, **request: Any) -> None:
        system = ModelMessage(role="system", content=f"you know of {CANARY} and {SECRET}")
        asked = ModelMessage(role="user", content=f"what of {CANARY}?")
        call = ToolCall(id="old", name="add", arguments=f'{{"a": "{CANARY} {SECRET}"}}')
        history = (
            asked,
            ModelMessage(role="assistant", tool_calls=(call,)),
            ModelMessage(role="tool", content=f"{CANARY}!", tool_call_id="old"),
        )
        tools = (ToolSpec(name="add", description="Add two numbers.", parameters={"type": "object"}),)
        options = {"messages": (system, *history), "tools": tools, "temperature": 0.7, "max_tokens": 100, **request}
        self.tell(ModelStarted(run_id=self.run_id, request=ModelRequest(**options)))

    def answer(self, *, finish: Finish = Finish.STOP, **step: Any) -> None:
        usage = Usage(input_tokens=100, output_tokens=20, cached_input_tokens=40, cache_write_tokens=8, requests=1)
        made = {"name": "gpt-4o-mini-2024", "provider": "main", "usage": usage, "purpose": "answer", **step}
        response = ModelResponse(
            message=ModelMessage(role="assistant", content=f"{CANARY}, {SECRET}"),
            finish=finish,
            model=made["name"],
            provider=made["provider"],
            response_id="resp_1",
        )
        told = Step(n=1, kind="model", started_at=self.clock.now(), duration_s=1.0, detail=CANARY, **made)
        self.tell(StepFinished(run_id=self.run_id, step=told, outcome=response))

    def call(self, call_id: str, name: str = "add") -> None:
        call = ToolCall(id=call_id, name=name, arguments=f'{{"a": "{CANARY} {SECRET}"}}')
        self.tell(ToolStarted(run_id=self.run_id, call=call))

    def result(self, call_id: str, name: str = "add", **result: Any) -> None:
        made = {"ok": "error_code" not in result, "content": CANARY, "started_at": self.clock.now(), **result}
        self.tell(ToolFinished(run_id=self.run_id, result=ToolResult(call_id=call_id, name=name, **made)))

    def end(self, error: RunError | None = None, *, usage: Usage | None = None) -> None:
        record = RunRecord(
            run_id=self.run_id,
            agent=self.agent.name,
            query=CANARY,
            started_at=self.clock.now(),
            state=RunState.ERROR if error else RunState.FINISHED,
            answer=CANARY,
            error=error,
            usage=usage or Usage(input_tokens=200, output_tokens=40, requests=2),
            cost_usd=0.001,
        )
        self.tell(RunEnded(run_id=self.run_id, record=record))


def tell_everything(telemetry: Telemetry) -> Told:
    """A supervisor's run: a plan, two workers side by side, and all that may happen to a model or a tool."""
    told = Told(telemetry, workflow="incident report", agent=Agent(name="supervisor"))
    told.start()
    planner = told.below("run1-decomposition", Agent(name="decomposition", stream=False))
    planner.start()
    planner.ask(model="main")
    planner.answer()
    planner.end()
    first = told.below("run1-w1", Agent(name="analyst", template="react@9f2c"))
    second = told.below("run1-w2", Agent(name="researcher", stream=False))
    first.start()
    second.start()
    first.ask(model="main")
    first.tell(TextDelta(run_id="run1-w1", text=CANARY))
    first.tell(AnswerRestarted(run_id="run1-w1", reason=f"{CANARY} {SECRET} broke off"))
    second.ask()
    first.answer(
        finish=Finish.TOOL_CALLS,
        provider="spare",
        name="claude-haiku-1",
        attempts=2,
        failures=(f"main: 429 {CANARY} {SECRET}",),
        first_chunk_s=0.5,
    )
    refused = AllProvidersFailed((RateLimited(CANARY, provider="main"),))
    failed = Step(
        n=1,
        kind="model",
        name="gpt-4o-mini",
        provider="main,spare",
        started_at=told.clock.now(),
        duration_s=1.0,
        ok=False,
        error=str(refused),
        purpose="answer",
    )
    second.tell(StepFinished(run_id="run1-w2", step=failed, outcome=refused))
    second.end(ModelFailed(CANARY), usage=Usage())
    first.call("c1")
    first.call("c2")
    first.result("c2", error_code="timeout", attempts=2)
    first.result("c1")
    first.result("c3", f"{CANARY}_tool", error_code="unknown_tool", attempts=0)
    first.result("c4", replayed=True)
    summary = Summary(text=CANARY, covers=4)
    first.tell(Summarized(run_id="run1-w1", summary=summary))
    first.ask(model="main")
    first.answer(replayed=True, usage=Usage(input_tokens=7, exact=False))
    first.end()
    writer = told.below("run1-synthesis", Agent(name="synthesis", stream=False))
    writer.start()
    writer.ask(model="main", temperature=None, max_tokens=None)
    writer.answer()
    writer.end()
    told.end()
    return told
