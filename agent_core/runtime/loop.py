"""One run: THINKING -> ACTING -> OBSERVING ... FINISHED, one small handler a state.

The loop owns nothing durable. Every model call and tool call goes through the context's journal; a run that is
started again with the same journal takes recorded results instead of asking and calling again, and goes on from
there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import BaseModel

from agent_core.agent import Agent
from agent_core.context import RunContext
from agent_core.errors import (
    LimitReached,
    ModelFailed,
    ModelRetry,
    ProviderError,
    RunCancelled,
    RunError,
    is_overflow,
)
from agent_core.llm.pricing import PriceList
from agent_core.llm.provider import Provider
from agent_core.llm.structured import OutputContract
from agent_core.llm.types import Finish, ModelMessage, ModelRequest, ModelResponse, ToolCall, ToolSpec
from agent_core.memory.budget import select_window
from agent_core.memory.conversation import Conversation
from agent_core.memory.summarize import Summarizer, summary_message
from agent_core.memory.validity import make_sendable
from agent_core.runtime.ask import Asking, ModelCalls
from agent_core.runtime.compact import make_room
from agent_core.runtime.events import RunEnded, RunEvent, RunStarted, StateChanged, StepFinished
from agent_core.runtime.guards import (
    RepetitionGuard,
    check_before_model,
    check_before_tools,
    deadline_of,
    describe_progress,
)
from agent_core.runtime.keeping import keep_answer, recall_answer
from agent_core.runtime.state import RunRecord, RunState, Step
from agent_core.runtime.work import Work
from agent_core.tools.base import ToolResult
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.results import mark_untrusted

if TYPE_CHECKING:
    from agent_core.llm.cache.policy import AnswerCache

CUT_OFF = (
    '{"ok":false,"error":{"code":"truncated_call","message":"Your tool call was cut off at the output limit and was '
    'not run. Send it again, shorter."}}'
)
UNREAD_ARGUMENTS = "not_a_json_object"
UNREAD_CHARS = 500
CUT_NOTE = "\n\n(The answer was cut off at the model's output limit.)"
MAX_FUMBLES = 2
"""Answers in a row that could not be used, after which a run fails."""

LEAST_MEMORY_TOKENS = 200
"""A history that a model finds too long is halved again and again, but not below this."""


class AgentLoop:
    """Runs agents over one provider and one tool executor. Safe for many runs at once.

    Args:
        provider: whom to ask (usually a ``Router``).
        executor: runs the tools.
        prices: for the cost of each call.
        summarizer: writes summaries of long conversations; None leaves old messages out without one.
        cache: keeps answers; used by runs with a ``cache_scope``.
    """

    def __init__(
        self,
        *,
        provider: Provider,
        executor: ToolExecutor,
        prices: PriceList | None = None,
        summarizer: Summarizer | None = None,
        cache: AnswerCache | None = None,
    ) -> None:
        self._calls = ModelCalls(provider, prices or PriceList())
        self._executor = executor
        self._summarizer = summarizer
        self._cache = cache
        self._handlers: Mapping[RunState, Callable[[Work], Awaitable[RunState]]] = MappingProxyType(
            {
                RunState.INIT: self._begin,
                RunState.THINKING: self._think,
                RunState.ACTING: self._act,
                RunState.OBSERVING: self._observe,
            }
        )

    def list_specs(self, ctx: RunContext, names: Collection[str] | None) -> tuple[ToolSpec, ...]:
        """Return what a model would be told of these tools in this run; None means all."""
        return self._executor.specs(ctx, names)

    async def run(
        self, agent: Agent, ctx: RunContext, conversation: Conversation, question: Sequence[ModelMessage] | str
    ) -> RunRecord:
        """Answer ``question`` and append it, and all that follows from it, to ``conversation``.

        A limit, the deadline or a failed model end the run with state ERROR and what is known so far; they are
        not raised.

        Args:
            agent: how to answer.
            ctx: ids, limits, deadline, journal.
            conversation: the thread's history; not used by another run at the same time.
            question: the user messages of this turn, at least one; or the text of the only one.

        Returns:
            The final record.

        Raises:
            asyncio.CancelledError: somebody cancelled the run; the conversation stays sendable.
        """
        inside = list[RunRecord]()
        ctx = _listen(ctx, inside)
        asked = [ModelMessage(role="user", content=question)] if isinstance(question, str) else question
        question = [_received(m, ctx) for m in asked]
        record = RunRecord(
            run_id=ctx.run_id,
            agent=agent.name,
            template=agent.template,
            query="\n".join(m.content for m in question),
            started_at=ctx.clock.now(),
        )
        work = Work(
            agent=agent,
            ctx=ctx,
            conversation=conversation,
            record=record,
            repetition=RepetitionGuard(ctx.limits.max_same_action),
            asked_at=len(conversation),
            memory_tokens=agent.memory_tokens,
            max_tokens=agent.max_tokens,
            inside=inside,
        )
        ctx.emit(RunStarted(run_id=ctx.run_id, thread_id=ctx.thread_id, agent=agent))
        conversation.extend(question)
        try:
            await self._run_states(work)
            if self._cache is not None and work.record.state is RunState.FINISHED:
                await keep_answer(self._cache, self._executor, work)
        except asyncio.CancelledError:
            self._end_early(work, RunCancelled("the run was stopped"))
            raise
        finally:
            self._end_early(work, RunError("the run broke off"))
            work.take_inside()
            work.record = replace(work.record, ended_at=ctx.clock.now())
            ctx.emit(RunEnded(run_id=ctx.run_id, record=work.record))
        return work.record

    async def _run_states(self, work: Work) -> None:
        """Go from state to state until a final one; whatever ends a run early is in its record."""
        try:
            async with asyncio.timeout(work.ctx.remaining_s()) as timer:
                while not work.record.state.final:
                    self._move(work, await self._handlers[work.record.state](work))
        except TimeoutError:
            if not timer.expired():
                raise
            self._end_early(work, deadline_of(work.ctx))
        except RunError as e:
            self._end_early(work, e)
        except ProviderError as e:
            self._end_early(work, ModelFailed(work.ctx.redactor.redact(str(e))))

    def _move(self, work: Work, state: RunState) -> None:
        work.record = work.record.move(state)
        work.ctx.emit(StateChanged(run_id=work.ctx.run_id, state=state))

    def _end_early(self, work: Work, error: RunError) -> None:
        """End a run that has not ended yet."""
        if work.record.state.final:
            return
        answer = describe_progress(work.record, error) if isinstance(error, LimitReached) else ""
        if answer:
            work.conversation.append(ModelMessage(role="assistant", content=answer))
        work.record = replace(work.record, error=error, answer=answer)
        self._move(work, RunState.ERROR)

    # -- one handler a state -------------------------------------------------------------------------

    async def _begin(self, work: Work) -> RunState:
        """Make room: where the history is over its budget, its older part becomes a summary."""
        if self._summarizer is not None:
            await make_room(self._calls, self._summarizer, self._executor, work)
        return RunState.THINKING

    async def _think(self, work: Work) -> RunState:
        """Ask the model; go on to its tools, or finish with its text."""
        response = await self._ask(work)
        text = response.message.content
        if response.finish is Finish.CONTENT_FILTER:
            raise ModelFailed("the model's content filter refused to answer")
        if work.agent.output is not None:
            return await self._read_output(work, work.agent.output, response)
        if response.message.tool_calls:
            work.response = response
            return RunState.ACTING
        if not text.strip():
            return await self._think_again(work, "the model answered with nothing, twice")
        if response.finish is not Finish.STOP:
            work.question = None  # half an answer is not kept
        work.conversation.append(response.message)
        work.record = replace(work.record, answer=text + (CUT_NOTE if response.finish is Finish.LENGTH else ""))
        return RunState.FINISHED

    async def _think_again(self, work: Work, problem: str) -> RunState:
        work.fumbles += 1
        if work.fumbles >= MAX_FUMBLES:
            raise ModelFailed(problem)
        return await self._think(work)

    async def _read_output(self, work: Work, output: type[BaseModel], response: ModelResponse) -> RunState:
        """Finish with an answer of the wanted form; a wrong one goes back to the model with what is wrong."""
        try:
            value = await OutputContract(output).read(response)
        except ModelRetry as e:
            # as text also where it was a call: servers refuse a history in which arguments are no JSON
            said = response.message.content or " ".join(c.arguments for c in response.message.tool_calls)
            said = work.ctx.redactor.redact(said).strip() or "(nothing)"
            work.conversation.append(ModelMessage(role="assistant", content=said))
            work.conversation.append(ModelMessage(role="user", content=str(e)))
            return await self._think_again(work, f"the model's answer has not the form that was asked for: {e}")
        if value is None:
            work.response = response
            return RunState.ACTING
        answer = value.model_dump_json()
        work.conversation.append(ModelMessage(role="assistant", content=answer))
        work.record = replace(work.record, answer=answer, output=value)
        return RunState.FINISHED

    async def _act(self, work: Work) -> RunState:
        """Run the tool calls of the response."""
        response = work.response
        assert response is not None
        work.fumbles = 0
        work.conversation.append(_as_history(response.message, work.ctx))
        calls = response.message.tool_calls
        if response.message.content:
            work.record = replace(work.record, plan=(*work.record.plan, response.message.content))
        if response.finish is Finish.LENGTH:
            # a cut call is never run; the model gets more room once
            work.max_tokens = work.max_tokens and (work.agent.max_tokens or 0) * 2
            work.results = tuple(self._cut_off(call, work) for call in calls)
            return RunState.OBSERVING
        if limit := work.repetition.check(calls) or check_before_tools(calls, work.ctx):
            raise limit
        again = work.record.steps[-1].replayed
        name = f"{work.ctx.run_id} tools:{work.model_calls}"
        work.ctx.budget.charge(tool_calls=len(calls), name=name, repeated=again)
        work.results = await self._executor.run(work.ctx, calls, names=work.agent.tools)
        return RunState.OBSERVING

    async def _observe(self, work: Work) -> RunState:
        """Put the results into the history and the record."""
        assert work.response is not None
        calls, steps = work.response.message.tool_calls, list[Step]()
        for call, result in zip(calls, work.results, strict=True):
            content = result.content if result.trusted else mark_untrusted(result.content)
            work.conversation.append(ModelMessage(role="tool", content=content or "{}", tool_call_id=call.id))
            steps.append(self._tool_step(work, call, result, len(work.record.steps) + len(steps) + 1))
        work.record = work.record.add_steps(*steps)
        for step in steps:
            work.ctx.emit(StepFinished(run_id=work.ctx.run_id, step=step))
        work.take_inside()
        if limit := work.repetition.note(calls, work.results):
            raise limit
        return RunState.THINKING

    # -- the model -----------------------------------------------------------------------------------

    async def _ask(self, work: Work) -> ModelResponse:
        """Ask with as much history as fits; where the model says that it was too much, with half of it, twice.

        In a run that already asked for a summary, at once with a quarter: three calls, then it is an error.
        """
        while True:
            if limit := check_before_model(work.record, work.agent, work.ctx):
                raise limit
            work.model_calls += 1
            asking = Asking(
                key=f"model:{work.model_calls}",
                build=lambda: self._build_request(work),
                stream=work.agent.stream and work.agent.output is None,
                recall=self._recall(work),
            )
            try:
                return await self._calls.ask(work, asking)
            except ProviderError as e:
                summarised = any(step.purpose == "summary" for step in work.record.steps)
                least = max(LEAST_MEMORY_TOKENS, work.agent.memory_tokens // 4)
                if not is_overflow(e) or work.memory_tokens <= least:
                    raise
                work.memory_tokens = least if summarised else max(least, work.memory_tokens // 2)

    def _recall(self, work: Work) -> Callable[[ModelRequest], Awaitable[ModelResponse | None]] | None:
        if self._cache is None or work.model_calls > 1 or work.agent.output is not None:
            return None
        cache = self._cache
        return lambda request: recall_answer(cache, self._executor, work, request, models=self._calls.provider.name)

    def _build_request(self, work: Work) -> ModelRequest:
        agent, ctx = work.agent, work.ctx
        window = make_sendable(select_window(work.conversation, work.memory_tokens, work.asked_at))
        system = (ModelMessage(role="system", content=agent.instructions),) if agent.instructions else ()
        summary = () if work.conversation.summary is None else (summary_message(work.conversation.summary),)
        specs = self._executor.specs(ctx, agent.tools)
        first = work.response is None
        request = ModelRequest(
            messages=(*system, *summary, *window),
            tools=() if agent.tool_choice == "none" else specs,
            tool_choice=agent.tool_choice if first or agent.tool_choice != "required" else "auto",
            temperature=agent.temperature,
            max_tokens=work.max_tokens,
            timeout_s=max(0.001, ctx.remaining_s()),
            model=agent.model,
        )
        return request if agent.output is None else OutputContract(agent.output).prepare(request)

    # -- values --------------------------------------------------------------------------------------

    @staticmethod
    def _cut_off(call: ToolCall, work: Work) -> ToolResult:
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
    def _tool_step(work: Work, call: ToolCall, result: ToolResult, n: int) -> Step:
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


def _listen(ctx: RunContext, inside: list[RunRecord]) -> RunContext:
    """Return ``ctx`` with events that also put the record of each run directly inside this one into ``inside``."""
    known = set[str]()

    def emit(event: RunEvent) -> None:
        part = event.run_id.removeprefix(f"{ctx.run_id}-")
        if isinstance(event, RunEnded) and part != event.run_id and "-" not in part and part not in known:
            known.add(part)  # a run inside that is repeated from the journal has the same steps again
            inside.append(event.record)
        ctx.emit(event)

    return replace(ctx, emit=emit)


def _received(message: ModelMessage, ctx: RunContext) -> ModelMessage:
    """Take a question in: without secrets, and with the time at which it was asked."""
    content = ctx.redactor.redact(message.content)
    return replace(message, content=content, at=message.at or ctx.clock.now())


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
