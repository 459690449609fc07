"""Turn the events of runs into spans.

A span's parent is named when it starts, and no span is ever the current one: nothing is attached while a run waits or
yields, so a stream may be closed by another task than the one that read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.util.types import AttributeValue

from agent_core.agent import Agent
from agent_core.context import RunContext
from agent_core.errors import AllProvidersFailed
from agent_core.llm.types import ModelRequest, ModelResponse, ToolSpec, Usage
from agent_core.runtime import events
from agent_core.telemetry import names
from agent_core.telemetry.content import request_content, response_content
from agent_core.telemetry.metrics import Attributes, Instruments
from agent_core.tools.base import ToolResult

_About = dict[str, AttributeValue | None]  # None and "" are left out

ABANDONED = "abandoned"
"""``error.type`` of what was still open when its run ended, or when nobody held the run any more."""

PLANNER = "decomposition"
"""Name of the agent whose run inside another one is that one's planning."""

_CHAT, _UNREPORTED = "#chat", Usage(exact=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """What a trace says of a configured provider: the conventions' word for its vendor, the model, the server."""

    vendor: str = "openai"
    model: str = ""
    address: str = ""
    port: int | None = None


class Telemetry:
    """Traces and measures runs. One instance serves a program; a run that is not followed costs nothing.

    Args:
        tracer_provider, meter_provider: default to the global ones (without an SDK these do nothing).
        semconv: the convention, see ``agent_core.telemetry.names``.
        content: also record messages, instructions, schemas, arguments, results and error texts, redacted.
        endpoints: what is known of each provider, by its configured name.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        semconv: names.Semconv = "v1.41",
        content: bool = False,
        endpoints: Mapping[str, Endpoint] | None = None,
    ) -> None:
        self.tracer = trace.get_tracer(names.SCOPE, tracer_provider=tracer_provider)
        self.instruments = Instruments(metrics.get_meter(names.SCOPE, meter_provider=meter_provider), semconv)
        self.semconv = semconv
        self.content = content
        self.endpoints = dict(endpoints or {})
        self.sole = next(iter(self.endpoints.values())) if len(self.endpoints) == 1 else None

    def follow(self, ctx: RunContext, *, parent: Context | None = None, workflow: str = "") -> RunContext:
        """Return ``ctx`` with events that are traced as well, also those of runs that get a copy of it.

        A run whose id begins with the id of one under way (``RUN-w1``) becomes its child.

        Args:
            ctx: the run's context, before the run starts.
            parent: holds the span above the run; by default the one that is current now.
            workflow: what to call it when a supervisor runs it.
        """
        return replace(ctx, emit=_Trace(self, ctx, otel_context.get_current() if parent is None else parent, workflow))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    span: trace.Span
    start_ns: int
    begun_s: float


@dataclass(slots=True, kw_only=True)
class _Run:
    """What is open of one run: its own span, its model call, and its tool calls by id."""

    root: _Open
    context: Context
    agent: Agent
    operation: str
    name: str
    open: dict[str, _Open] = field(default_factory=dict)
    tools: tuple[ToolSpec, ...] = ()
    compacted: bool = False
    chats: int = 0
    calls: int = 0
    vendor: str = ""


class _Trace:
    """The event sink of a followed run and of the runs below it."""

    def __init__(self, telemetry: Telemetry, ctx: RunContext, parent: Context, workflow: str) -> None:
        self._telemetry, self._ctx, self._parent, self._workflow = telemetry, ctx, parent, workflow
        self._runs: dict[str, _Run] = {}

    def __call__(self, event: events.RunEvent) -> None:
        if isinstance(event, events.RunStarted):
            self._run_started(event)
        elif not isinstance(event, events.TextDelta) and (run := self._runs.get(event.run_id)):
            self._note(run, event)
        self._ctx.emit(event)

    def __del__(self) -> None:
        for run in reversed(self._runs.values()):
            self._run_ended(run, {}, ABANDONED)

    def _note(self, run: _Run, event: events.RunEvent) -> None:
        match event:
            case events.ModelStarted():
                self._model_started(run, event.request)
            case events.StepFinished() if event.step.kind == "model":
                self._model_finished(run, event)
            case events.ToolStarted(call=call):
                run.open[call.id] = opened = self._start_tool(run, call.name, call.id)
                opened.span.set_attributes(self._said(names.CALL_ARGUMENTS, call.arguments))
            case events.ToolFinished():
                self._tool_finished(run, event.result)
            case events.AnswerRestarted() if _CHAT in run.open:
                run.open[_CHAT].span.add_event(names.ANSWER_RESTARTED, self._said(names.MESSAGE, event.reason))
            case events.Summarized():
                run.compacted = True
            case events.RunEnded(record=record):
                del self._runs[event.run_id]
                about = {**_tokens(record.usage), names.COST_USD: record.cost_usd}
                self._run_ended(run, about, record.error.kind if record.error else "", str(record.error))
            case _:
                pass

    def _start(self, name: str, context: Context, attributes: Attributes, kind: SpanKind = SpanKind.INTERNAL) -> _Open:
        start_ns = int(self._ctx.clock.now().timestamp() * 1e9)
        span = self._telemetry.tracer.start_span(name, context, kind, attributes, start_time=start_ns)
        return _Open(span=span, start_ns=start_ns, begun_s=self._ctx.clock.monotonic())

    def _end(self, opened: _Open, attributes: _About, error: str, said: str = "") -> float:
        seconds = self._ctx.clock.monotonic() - opened.begun_s
        opened.span.set_attributes(_known({**attributes, names.ERROR: error}))
        if error:
            opened.span.set_status(StatusCode.ERROR, said if said and self._telemetry.content else None)
        opened.span.end(opened.start_ns + int(seconds * 1e9))
        return seconds

    def _said(self, name: str, text: str) -> Attributes:
        return {name: self._ctx.redactor.redact(text)} if self._telemetry.content else {}

    # -- runs ----------------------------------------------------------------------------------------

    def _run_started(self, event: events.RunStarted) -> None:
        outer_id = event.run_id
        while outer_id and outer_id not in self._runs:
            outer_id = outer_id.rpartition("-")[0]
        outer = self._runs.get(outer_id)
        operation, kind, name = "invoke_agent", names.AGENT, event.agent.name
        if self._workflow and event.run_id == self._ctx.run_id:
            operation, kind, name = "invoke_workflow", names.WORKFLOW, self._workflow
        elif outer and name == PLANNER:
            operation, name = "plan", outer.agent.name
        about: Attributes = {names.OPERATION: operation, kind: name, names.RUN_ID: event.run_id}
        above = outer.context if outer else self._parent
        root = self._start(f"{operation} {name}", above, {**about, names.CONVERSATION: event.thread_id})
        context = trace.set_span_in_context(root.span, above)
        self._runs[event.run_id] = _Run(root=root, context=context, agent=event.agent, operation=operation, name=name)

    def _run_ended(self, run: _Run, about: _About, error: str, said: str = "") -> None:
        for opened in run.open.values():
            self._end(opened, {}, error or ABANDONED)
        if run.operation == "invoke_agent" and self._telemetry.semconv == "v1.41":
            about = {**about, names.PROVIDER: run.vendor}
        seconds, put = self._end(run.root, about, error, said), self._telemetry.instruments.put
        if run.operation == "invoke_workflow":
            put("workflow", seconds, _known({names.WORKFLOW: run.name, names.ERROR: error}))
        elif run.operation == "invoke_agent":
            put("agent", seconds, _known({names.AGENT: run.name, names.ERROR: error}))
            put("agent_chats", run.chats, {names.AGENT: run.name})
            put("agent_calls", run.calls, {names.AGENT: run.name})

    # -- model calls ---------------------------------------------------------------------------------

    def _model_started(self, run: _Run, request: ModelRequest) -> None:
        run.tools = request.tools
        end = self._telemetry.endpoints.get(request.model) or self._telemetry.sole or Endpoint(vendor="")
        compacted = run.compacted or any(m.role == "system" for m in request.messages[1:2])
        about: _About = {names.OPERATION: "chat", names.CONVERSATION: self._ctx.thread_id}
        about |= {names.COMPACTED: compacted or None, names.PROVIDER: end.vendor, names.REQUEST_MODEL: end.model}
        about |= {names.REQUEST_MAX_TOKENS: request.max_tokens, names.REQUEST_TEMPERATURE: request.temperature}
        about |= {names.OUTPUT_TYPE: "json" if request.output else None}
        run.open[_CHAT] = chat = self._start(f"chat {end.model}".strip(), run.context, _known(about), SpanKind.CLIENT)
        if self._telemetry.content and chat.span.is_recording():
            chat.span.set_attributes(request_content(request, self._ctx.redactor.redact))

    def _model_finished(self, run: _Run, event: events.StepFinished) -> None:
        step, outcome, chat = event.step, event.outcome, run.open.pop(_CHAT, None)
        if chat is None or step.purpose == "cache":  # nobody was asked: the span that began is never seen
            run.root.span.add_event(names.CACHE_HIT)
            return
        while isinstance(outcome, AllProvidersFailed) and outcome.failures:
            outcome = outcome.failures[-1]
        error = "" if step.ok else type(outcome).__name__ if outcome else "model_failed"
        who = outcome.provider if outcome and outcome.provider else step.provider
        end = self._telemetry.endpoints.get(who, Endpoint(vendor=who))
        called = {names.OPERATION: "chat", names.PROVIDER: end.vendor, names.REQUEST_MODEL: end.model or step.name}
        answered = {names.RESPONSE_MODEL: step.name if step.ok else None, names.ERROR: error}
        measured = _known({**called, **answered, names.ADDRESS: end.address, names.PORT: end.port})
        usage, answer = step.usage or _UNREPORTED, outcome if isinstance(outcome, ModelResponse) else None
        about: _About = {**measured, **_tokens(usage), names.FIRST_CHUNK: step.first_chunk_s}
        about |= {names.CACHE_READ: usage.cached_input_tokens or None, names.REASONING: usage.reasoning_tokens or None}
        about |= {names.CACHE_WRITE[self._telemetry.semconv]: usage.cache_write_tokens or None}
        about |= {names.COST_USD: step.cost_usd, names.PURPOSE: step.purpose, names.REPLAYED: step.replayed or None}
        about |= {names.ATTEMPTS: step.attempts if step.attempts != 1 else None}
        if step.purpose == "answer":
            template, _, version = run.agent.template.partition("@")
            about |= {names.PROMPT_NAME: template, names.PROMPT_VERSION: version}
            about |= {names.REQUEST_STREAM: run.agent.stream or None}
        if answer:
            about |= {names.RESPONSE_ID: answer.response_id, names.FINISH_REASONS: [answer.finish.value]}
        chat.span.update_name(f"chat {end.model or step.name}")
        if answer and self._telemetry.content and chat.span.is_recording():
            about.update(response_content(answer, self._ctx.redactor.redact))
        for line in step.failures:
            chat.span.add_event(names.ATTEMPT_FAILED, self._said(names.MESSAGE, line))
        seconds = self._end(chat, about, error, step.error)
        run.vendor = run.vendor or end.vendor
        if not step.replayed:  # the process that made the call measured it
            run.chats += 1
            self._telemetry.instruments.chat(seconds, step.first_chunk_s, usage if usage.exact else None, measured)

    # -- tool calls ----------------------------------------------------------------------------------

    def _start_tool(self, run: _Run, name: str, call_id: str) -> _Open:
        described = next((t.description for t in run.tools if t.name == name), None)
        about: _About = {names.OPERATION: "execute_tool", names.TOOL: name, names.TOOL_TYPE: "function"}
        about |= {names.TOOL_DESCRIPTION: described, names.CALL_ID: call_id}
        return self._start(f"execute_tool {name}", run.context, _known(about))

    def _tool_finished(self, run: _Run, result: ToolResult) -> None:
        name = "_unknown" if result.error_code == "unknown_tool" else result.name  # models invent any number of names
        opened = run.open.pop(result.call_id, None) or self._start_tool(run, name, result.call_id)
        about: _About = {names.ATTEMPTS: result.attempts if result.attempts != 1 else None}
        about |= {names.REPLAYED: result.replayed or None, **self._said(names.CALL_RESULT, result.content)}
        error = "" if result.ok else result.error_code or "failed"
        seconds = self._end(opened, about, error)
        if result.attempts and not result.replayed:
            run.calls += 1
            about = {names.TOOL: name, names.TOOL_TYPE: "function", names.AGENT: run.agent.name, names.ERROR: error}
            self._telemetry.instruments.put("tool", seconds, _known(about))


def _known(attributes: _About) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None and value != ""}


def _tokens(usage: Usage) -> Attributes:
    if not usage.exact or not usage.total_tokens:  # an estimate would pass for the provider's count
        return {}
    return {names.INPUT_TOKENS: usage.input_tokens, names.OUTPUT_TOKENS: usage.output_tokens}
