"""One run: THINKING -> ACTING -> OBSERVING ... FINISHED, one small handler a state.

The loop owns nothing durable. Every model call and tool call goes through the context's journal; a run that is
started again with the same journal takes recorded results instead of asking and calling again, and goes on from
there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from agent_core.agent import Agent
from agent_core.context import JournalEntry, RunContext, StepState
from agent_core.errors import LimitReached, ModelFailed, ProviderError, ReplayMismatch, RunError
from agent_core.llm.pricing import PriceList
from agent_core.llm.provider import Provider
from agent_core.llm.types import (
    Finish,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    StreamRestarted,
    TextChunk,
    ToolCall,
    Usage,
)
from agent_core.llm.wire import clean_text, dump_response, escape_halves, load_response
from agent_core.memory.budget import select_window
from agent_core.memory.conversation import Conversation
from agent_core.memory.validity import make_sendable
from agent_core.runtime.events import AnswerRestarted, RunEnded, StateChanged, StepFinished, TextDelta
from agent_core.runtime.guards import (
    RepetitionGuard,
    check_before_model,
    check_before_tools,
    deadline_of,
    describe_progress,
)
from agent_core.runtime.state import RunRecord, RunState, Step
from agent_core.tools.base import ToolResult
from agent_core.tools.executor import ToolExecutor

CUT_OFF = (
    '{"ok":false,"error":{"code":"truncated_call","message":"Your tool call was cut off at the output limit and was '
    'not run. Send it again, shorter."}}'
)
OTHER_RUN = (
    "I was stopped in the middle of this and then started with other settings or as another version, and what I had "
    "begun does not fit any more; please ask again"
)
UNREAD_ARGUMENTS = "not_a_json_object"
UNREAD_CHARS = 500
CUT_NOTE = "\n\n(The answer was cut off at the model's output limit.)"


@dataclass(slots=True, kw_only=True)
class _Work:
    """What the handlers of one run pass on; the record inside is replaced, never changed."""

    agent: Agent
    ctx: RunContext
    conversation: Conversation
    record: RunRecord
    repetition: RepetitionGuard
    response: ModelResponse | None = None
    results: tuple[ToolResult, ...] = ()
    max_tokens: int | None = None
    model_calls: int = 0
    empty_answers: int = 0
    names: tuple[str, ...] | None = field(default=None)


class AgentLoop:
    """Runs agents over one provider and one tool executor. Safe for many runs at once.

    Args:
        provider: whom to ask (usually a ``Router``).
        executor: runs the tools.
        prices: for the cost of each call.
    """

    def __init__(self, *, provider: Provider, executor: ToolExecutor, prices: PriceList | None = None) -> None:
        self._provider = provider
        self._executor = executor
        self._prices = prices or PriceList()
        self._handlers: Mapping[RunState, Callable[[_Work], Awaitable[RunState]]] = MappingProxyType(
            {
                RunState.INIT: self._begin,
                RunState.THINKING: self._think,
                RunState.ACTING: self._act,
                RunState.OBSERVING: self._observe,
            }
        )

    async def run(
        self, agent: Agent, ctx: RunContext, conversation: Conversation, question: Sequence[ModelMessage]
    ) -> RunRecord:
        """Answer ``question`` and append it, and all that follows from it, to ``conversation``.

        A limit, the deadline or a failed model end the run with state ERROR and what is known so far; they are
        not raised.

        Args:
            agent: how to answer.
            ctx: ids, limits, deadline, journal.
            conversation: the thread's history; not used by another run at the same time.
            question: the user messages of this turn, at least one.

        Returns:
            The final record.

        Raises:
            asyncio.CancelledError: somebody cancelled the run; the conversation stays sendable.
        """
        question = [_redacted(m, ctx) for m in question]
        record = RunRecord(
            run_id=ctx.run_id,
            agent=agent.name,
            query="\n".join(m.content for m in question),
            started_at=ctx.clock.now(),
        )
        work = _Work(
            agent=agent,
            ctx=ctx,
            conversation=conversation,
            record=record,
            repetition=RepetitionGuard(ctx.limits.max_same_action),
            max_tokens=agent.max_tokens,
        )
        conversation.extend(question)
        try:
            async with asyncio.timeout(ctx.remaining_s()) as timer:
                while not work.record.state.final:
                    self._move(work, await self._handlers[work.record.state](work))
        except TimeoutError:
            if not timer.expired():
                raise
            self._end_early(work, deadline_of(ctx))
        except RunError as e:
            self._end_early(work, e)
        except ProviderError as e:
            self._end_early(work, ModelFailed(ctx.redactor.redact(str(e))))
        work.record = replace(work.record, ended_at=ctx.clock.now())
        ctx.emit(RunEnded(run_id=ctx.run_id, record=work.record))
        return work.record

    def _move(self, work: _Work, state: RunState) -> None:
        work.record = work.record.move(state)
        work.ctx.emit(StateChanged(run_id=work.ctx.run_id, state=state))

    def _end_early(self, work: _Work, error: RunError) -> None:
        answer = describe_progress(work.record, error) if isinstance(error, LimitReached) else ""
        if answer:
            work.conversation.append(ModelMessage(role="assistant", content=answer))
        work.record = replace(work.record, error=error, answer=answer)
        if work.record.state is not RunState.ERROR:
            self._move(work, RunState.ERROR)

    # -- one handler a state -------------------------------------------------------------------------

    async def _begin(self, work: _Work) -> RunState:
        return RunState.THINKING

    async def _think(self, work: _Work) -> RunState:
        """Ask the model; go on to its tools, or finish with its text."""
        if limit := check_before_model(work.record, work.agent, work.ctx):
            raise limit
        response = await self._ask(work)
        message = response.message
        if message.tool_calls:
            work.response = response
            return RunState.ACTING
        if response.finish is Finish.CONTENT_FILTER:
            raise ModelFailed("the model's content filter refused to answer")
        if not message.content.strip():
            work.empty_answers += 1
            if work.empty_answers > 1:
                raise ModelFailed("the model answered with nothing, twice")
            return await self._think(work)
        work.conversation.append(message)
        answer = message.content + (CUT_NOTE if response.finish is Finish.LENGTH else "")
        work.record = replace(work.record, answer=answer)
        return RunState.FINISHED

    async def _act(self, work: _Work) -> RunState:
        """Run the tool calls of the response."""
        response = work.response
        assert response is not None
        work.conversation.append(_as_history(response.message, work.ctx))
        calls = response.message.tool_calls
        if response.message.content:
            work.record = replace(work.record, plan=(*work.record.plan, response.message.content))
        if response.finish is Finish.LENGTH:
            # a cut call is never run; the model gets more room once
            work.max_tokens = work.max_tokens and (work.agent.max_tokens or 0) * 2
            work.results = tuple(self._cut_off(call, work) for call in calls)
            return RunState.OBSERVING
        if limit := work.repetition.check(calls) or check_before_tools(work.record, calls, work.ctx):
            raise limit
        work.results = await self._executor.run(work.ctx, calls, names=work.agent.tools)
        return RunState.OBSERVING

    async def _observe(self, work: _Work) -> RunState:
        """Put the results into the history and the record."""
        assert work.response is not None
        steps: list[Step] = []
        for call, result in zip(work.response.message.tool_calls, work.results, strict=True):
            work.conversation.append(ModelMessage(role="tool", content=result.content or "{}", tool_call_id=call.id))
            steps.append(self._tool_step(work, call, result, len(work.record.steps) + len(steps) + 1))
        work.record = work.record.add_steps(*steps)
        for step in steps:
            work.ctx.emit(StepFinished(run_id=work.ctx.run_id, step=step))
        return RunState.THINKING

    # -- the model -----------------------------------------------------------------------------------

    async def _ask(self, work: _Work) -> ModelResponse:
        """Get the next response, from the journal or from the model, and put the step into the record."""
        ctx, begun = work.ctx, work.ctx.clock.monotonic()
        work.model_calls += 1
        key, request = f"model:{work.model_calls}", self._build_request(work)
        step = Step(
            n=len(work.record.steps) + 1,
            kind="model",
            name=self._provider.model,
            provider=self._provider.name,
            started_at=ctx.clock.now(),
            duration_s=0.0,
        )
        response = await self._recall(ctx, key, request)
        replayed = response is not None
        if response is None:
            try:
                response = self._receive(await self._request(work, request), work)
            except ProviderError as e:
                await ctx.journal.finish(key, StepState.FAILED, "")
                failed = replace(step, ok=False, error=ctx.redactor.redact(str(e)))
                self._record(work, failed, begun)
                raise
            await ctx.journal.finish(key, StepState.DONE, dump_response(response))
        usage = response.usage or _estimate_usage(request, response, work.conversation)
        done = replace(
            step,
            name=response.model,
            provider=response.provider,
            detail=response.message.content,
            usage=usage,
            cost_usd=self._prices.cost_usd(response.model, usage, provider=response.provider),
            replayed=replayed,
        )
        self._record(work, done, begun)
        return response

    async def _recall(self, ctx: RunContext, key: str, request: ModelRequest) -> ModelResponse | None:
        """Record the intent of a request, or return what an earlier attempt at the run was answered.

        Raises:
            ReplayMismatch: that attempt asked something else, or its answer cannot be read.
        """
        digest = _digest(request)
        known = await ctx.journal.begin(
            JournalEntry(key=key, kind="model", name=self._provider.model, digest=digest, state=StepState.INTENT)
        )
        if known is None or known.state is not StepState.DONE:
            return None
        try:
            if known.digest == digest:
                return load_response(known.result)
        except ValueError as e:
            raise ReplayMismatch(OTHER_RUN) from e
        raise ReplayMismatch(OTHER_RUN)

    @staticmethod
    def _record(work: _Work, step: Step, begun: float) -> None:
        step = replace(step, duration_s=work.ctx.clock.monotonic() - begun)
        work.record = work.record.add_steps(step)
        work.ctx.emit(StepFinished(run_id=work.ctx.run_id, step=step))

    def _build_request(self, work: _Work) -> ModelRequest:
        agent, ctx = work.agent, work.ctx
        window = make_sendable(select_window(work.conversation, agent.memory_tokens))
        system = (ModelMessage(role="system", content=agent.instructions),) if agent.instructions else ()
        specs = self._executor.specs(ctx, agent.tools)
        first = work.model_calls == 1
        return ModelRequest(
            messages=(*system, *window),
            tools=() if agent.tool_choice == "none" else specs,
            tool_choice=agent.tool_choice if first or agent.tool_choice != "required" else "auto",
            temperature=agent.temperature,
            max_tokens=work.max_tokens,
            timeout_s=max(0.001, ctx.remaining_s()),
        )

    async def _request(self, work: _Work, request: ModelRequest) -> ModelResponse:
        if not work.agent.stream:
            return await self._provider.complete(request)
        async with aclosing(self._provider.stream(request)) as items:  # type: ignore[type-var]
            async for item in items:
                match item:
                    case TextChunk(text=text):
                        work.ctx.emit(TextDelta(run_id=work.ctx.run_id, text=text))
                    case StreamRestarted(reason=reason):
                        work.ctx.emit(AnswerRestarted(run_id=work.ctx.run_id, reason=reason))
                    case response:
                        return response
        raise ProviderError("the provider ended its stream without a response", provider=self._provider.name)

    @staticmethod
    def _receive(response: ModelResponse, work: _Work) -> ModelResponse:
        """Take a response in: without secrets in its text, and with ids of calls that are unique in the thread.

        Providers repeat or omit their ids. Arguments stay as they were written: a redacted call is another call.
        """
        message = response.message
        first = f"{work.ctx.run_id[-12:]}_{work.model_calls}"
        calls = tuple(
            ToolCall(id=f"{first}_{i}", name=clean_text(call.name), arguments=escape_halves(call.arguments))
            for i, call in enumerate(message.tool_calls, 1)
        )
        text = work.ctx.redactor.redact(clean_text(message.content))
        return replace(response, message=replace(message, content=text, tool_calls=calls))

    # -- values --------------------------------------------------------------------------------------

    @staticmethod
    def _cut_off(call: ToolCall, work: _Work) -> ToolResult:
        return ToolResult(
            call_id=call.id,
            name=call.name,
            ok=False,
            content=CUT_OFF,
            error_code="truncated_call",
            started_at=work.ctx.clock.now(),
            attempts=0,
        )

    @staticmethod
    def _tool_step(work: _Work, call: ToolCall, result: ToolResult, n: int) -> Step:
        return Step(
            n=n,
            kind="tool",
            name=call.name,
            started_at=result.started_at,
            duration_s=result.duration_s,
            ok=result.ok,
            detail=result.content,
            arguments=work.ctx.redactor.redact(call.arguments),
            error="" if result.ok else (result.error_code or "failed"),
            attempts=result.attempts,
            replayed=result.replayed,
        )


def _redacted(message: ModelMessage, ctx: RunContext) -> ModelMessage:
    content = ctx.redactor.redact(message.content)
    return message if content == message.content else replace(message, content=content)


def _as_history(message: ModelMessage, ctx: RunContext) -> ModelMessage:
    """Return a message that calls tools as it is kept: without secrets, its arguments JSON objects in any case.

    Some servers read the arguments of a whole history, and refuse all of it for the sake of one.
    """
    calls = tuple(replace(c, arguments=_as_object(ctx.redactor.redact(c.arguments))) for c in message.tool_calls)
    return replace(message, tool_calls=calls)


def _as_object(arguments: str) -> str:
    try:
        if isinstance(json.loads(arguments), dict):
            return arguments
    except (ValueError, RecursionError):
        pass
    return json.dumps({UNREAD_ARGUMENTS: arguments[:UNREAD_CHARS]})


def _digest(request: ModelRequest) -> str:
    """Name what is asked for by its history; instructions and tools may change between two starts."""
    hasher = hashlib.blake2b(digest_size=16)
    for message in request.messages:
        if message.role != "system":
            hasher.update(f"{message.role}\0{message.content}\0{len(message.tool_calls)}\0".encode())
    return hasher.hexdigest()


def _estimate_usage(request: ModelRequest, response: ModelResponse, conversation: Conversation) -> Usage:
    return Usage(
        input_tokens=sum(conversation.count(m) for m in request.messages),
        output_tokens=conversation.count(response.message),
        requests=1,
        exact=False,
    )
