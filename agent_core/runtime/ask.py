"""One model call of a run: through the journal, within the budget, and into the record and the events."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from agent_core.context import JournalEntry, RunContext, Steering, StepState
from agent_core.errors import ContextOverflow, ProviderError, ReplayMismatch, is_overflow
from agent_core.llm.pricing import PriceList
from agent_core.llm.provider import Provider
from agent_core.llm.structured import FINAL_ANSWER
from agent_core.llm.types import (
    ModelRequest,
    ModelResponse,
    StreamRestarted,
    TextChunk,
    ToolCall,
    Usage,
)
from agent_core.llm.wire import clean_text, dump_message, dump_response, escape_halves, load_message, load_response
from agent_core.memory.conversation import Conversation
from agent_core.runtime.events import AnswerRestarted, MessageInjected, ModelStarted, StepFinished, TextDelta
from agent_core.runtime.state import Step
from agent_core.runtime.work import Work
from agent_core.tools.results import Unmarking, unmark

ABREAST = 2
"""Runs that may go on in one turn of the event loop. Hundreds whose answers arrive together would else build their next
requests in one go, and whatever else the loop has to do, such as acknowledging a message, would wait for them."""

OTHER_RUN = (
    "I was stopped in the middle of this and then started with other settings or as another version, and what I had "
    "begun does not fit any more; please ask again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """One call to be made.

    Args:
        key: names the call inside its run, for the journal.
        build: builds the request; called again when messages were taken in meanwhile.
        purpose: see ``Step.purpose``.
        stream: emit ``TextDelta`` events.
        recall: looks for a kept answer before the provider is asked, or None.
    """

    key: str
    build: Callable[[], ModelRequest]
    purpose: str = "answer"
    stream: bool = False
    recall: Callable[[ModelRequest], Awaitable[ModelResponse | None]] | None = None


class ModelCalls:
    """Asks a provider on behalf of runs.

    Args:
        provider: whom to ask.
        prices: for the cost of each call.
    """

    def __init__(self, provider: Provider, prices: PriceList) -> None:
        self.provider = provider
        self._prices = prices
        self._turnstile: tuple[object, asyncio.Semaphore] = (None, asyncio.Semaphore(ABREAST))

    async def ask(self, work: Work, asking: Asking) -> ModelResponse:
        """Get the response, from the journal, from the answers that are kept, or from the model; record the step.

        Raises:
            ProviderError: nobody answered; the failed step is recorded.
            ReplayMismatch: an earlier attempt at the run asked something else.
        """
        ctx = work.ctx
        loop = asyncio.get_running_loop()
        if self._turnstile[0] is not loop:  # a semaphore serves one event loop only
            self._turnstile = (loop, asyncio.Semaphore(ABREAST))
        async with self._turnstile[1]:
            await asyncio.sleep(0)
        request, known = await _begin(work, asking, self.provider.model)
        ctx.emit(ModelStarted(run_id=ctx.run_id, request=request))
        begun = ctx.clock.monotonic()
        step = Step(
            n=len(work.record.steps) + 1,
            kind="model",
            name=self.provider.model,
            provider=self.provider.name,
            purpose=asking.purpose,
            started_at=ctx.clock.now(),
            duration_s=0.0,
            replayed=known is not None,
        )
        try:
            if isinstance(known, ProviderError):
                ctx.budget.charge(requests=1, name=f"{ctx.run_id} {asking.key}", repeated=True)
                raise known
            response = known or await self._obtain(work, asking, request)
        except ProviderError as e:
            if known is None:
                await ctx.journal.finish(asking.key, StepState.FAILED, _dump_failure(e, asking, ctx))
            _record(work, replace(step, ok=False, error=ctx.redactor.redact(str(e))), begun, e)
            raise
        usage = response.usage or _estimate_usage(request, response, work.conversation)
        cost = self._prices.cost_usd(response.model, usage, provider=response.provider) if response.attempts else 0.0
        ctx.budget.charge(
            requests=min(response.attempts, 1) if known else 0,
            tokens=usage.total_tokens,
            cost_usd=cost,
            name=f"{ctx.run_id} {asking.key}",
            repeated=known is not None,
        )
        done = replace(
            step,
            name=response.model,
            provider=response.provider,
            purpose=asking.purpose if response.attempts else "cache",
            detail=response.message.content,
            usage=usage,
            cost_usd=cost,
            attempts=response.attempts,
            failures=response.failures,
            first_chunk_s=response.first_chunk_s,
        )
        _record(work, done, begun, response)
        return response

    async def _obtain(self, work: Work, asking: Asking, request: ModelRequest) -> ModelResponse:
        """Get a new response and put it into the journal."""
        ctx = work.ctx
        response = None if asking.recall is None else await asking.recall(request)
        if response is None:
            # before it is sent, so that workers side by side see each other's
            ctx.budget.charge(requests=1, name=f"{ctx.run_id} {asking.key}")
            response = _receive(await self._request(ctx, request, stream=asking.stream), asking.key, work)
        await ctx.journal.finish(asking.key, StepState.DONE, dump_response(response))
        return response

    async def _request(self, ctx: RunContext, request: ModelRequest, *, stream: bool) -> ModelResponse:
        if not stream:
            return await self.provider.complete(request)
        shown = Unmarking()
        async with aclosing(self.provider.stream(request)) as items:  # type: ignore[type-var]
            async for item in items:
                match item:
                    case TextChunk(text=text):
                        if text := shown.feed(text):
                            ctx.emit(TextDelta(run_id=ctx.run_id, text=text))
                    case StreamRestarted(reason=reason):
                        shown = Unmarking()
                        ctx.emit(AnswerRestarted(run_id=ctx.run_id, reason=ctx.redactor.redact(reason)))
                    case response:
                        if text := shown.end():
                            ctx.emit(TextDelta(run_id=ctx.run_id, text=text))
                        return response
        raise ProviderError("the provider ended its stream without a response", provider=self.provider.name)


# -- the journal, and the messages that come while a run works ------------------------------------------


async def _begin(work: Work, asking: Asking, model: str) -> tuple[ModelRequest, ModelResponse | ProviderError | None]:
    """Record the intent of a call, or find what an earlier attempt at the run came to, with the messages it took in."""
    ctx, request = work.ctx, asking.build()
    entry = JournalEntry(key=asking.key, kind="model", name=model, digest=_digest(request), state=StepState.INTENT)
    known = await ctx.journal.begin(entry)
    outcome = None if known is None else _load_outcome(known)
    if await _take_in(work, asking, again=known is not None, answered=outcome is not None):
        request = asking.build()
    if known is not None and outcome is not None and known.digest != entry.digest:
        raise ReplayMismatch(OTHER_RUN)
    return request, outcome


async def _take_in(work: Work, asking: Asking, *, again: bool, answered: bool) -> bool:
    """Take what waits for the run into its conversation, or what an earlier attempt had taken in before this call."""
    ctx, steering = work.ctx, work.ctx.steering or Steering()
    waiting = tuple(replace(m, content=ctx.redactor.redact(m.content)) for m in steering.waiting)
    if asking.purpose != "answer" or not (again or waiting):
        return False
    key = f"message:{asking.key}"
    known = await ctx.journal.begin(
        JournalEntry(key=key, kind="message", name="message", digest="", state=StepState.INTENT)
    )
    if known is not None and known.state is StepState.DONE:
        messages = tuple(load_message(text) for text in json.loads(known.result))
    elif answered or not waiting:
        return False
    else:
        messages = waiting
        await ctx.journal.finish(key, StepState.DONE, json.dumps([dump_message(m) for m in messages]))
    if waiting[: len(messages)] == messages:  # only now, so that a run that is stopped before has lost none
        steering.take(len(messages))
    work.steered = True
    work.conversation.extend(messages)
    for message in messages:
        ctx.emit(MessageInjected(run_id=ctx.run_id, message=message))
    return True


def _dump_failure(error: ProviderError, asking: Asking, ctx: RunContext) -> str:
    """Write a failure that the run goes on after; one that ends it is nothing to be repeated."""
    if not is_overflow(error) and asking.purpose == "answer":
        return ""
    return json.dumps({"overflow": is_overflow(error), "error": ctx.redactor.redact(str(error))})


def _load_outcome(known: JournalEntry) -> ModelResponse | ProviderError | None:
    """Read what a call came to; None when that is not known, or worth another try."""
    if known.state not in (StepState.DONE, StepState.FAILED) or not known.result:
        return None
    try:
        if known.state is StepState.DONE:
            return load_response(known.result)
        failed = json.loads(known.result)
        return (ContextOverflow if failed["overflow"] else ProviderError)(failed["error"])
    except (ValueError, KeyError, TypeError) as e:
        raise ReplayMismatch(OTHER_RUN) from e


# -- values ------------------------------------------------------------------------------------------


def _record(work: Work, step: Step, begun: float, outcome: ModelResponse | ProviderError) -> None:
    step = replace(step, duration_s=work.ctx.clock.monotonic() - begun)
    work.record = work.record.add_steps(step)
    work.ctx.emit(StepFinished(run_id=work.ctx.run_id, step=step, outcome=outcome))


def _receive(response: ModelResponse, key: str, work: Work) -> ModelResponse:
    """Take a response in: without secrets in its text, and with ids of calls that are unique in the thread.

    Providers repeat or omit their ids. Arguments stay as they were written, since a redacted call is another call; but
    a final answer in the form of a call is an answer.
    """
    message, redact = response.message, work.ctx.redactor.redact
    first = f"{work.ctx.run_id[-16:]}_{key.rpartition(':')[2]}"
    answer = None if work.agent.output is None else FINAL_ANSWER
    calls = tuple(
        ToolCall(
            id=f"{first}_{i}",
            name=clean_text(call.name),
            arguments=escape_halves(redact(call.arguments) if call.name == answer else call.arguments),
        )
        for i, call in enumerate(message.tool_calls, 1)
    )
    text = redact(unmark(clean_text(message.content)))
    failures = tuple(map(redact, response.failures))
    return replace(response, message=replace(message, content=text, tool_calls=calls), failures=failures)


def _digest(request: ModelRequest) -> str:
    """Name what is asked for by its history; instructions and tools may change between two starts."""
    hasher = hashlib.blake2b(digest_size=16)
    for message in request.messages:
        if message.role != "system":
            hasher.update(f"{message.role}\0{message.content}\0{len(message.tool_calls)}\0".encode())
    return hasher.hexdigest()


def _estimate_usage(request: ModelRequest, response: ModelResponse, conversation: Conversation) -> Usage:
    return Usage(
        input_tokens=conversation.count_request(request.messages, request.tools),
        output_tokens=conversation.count(response.message),
        requests=1,
        exact=False,
    )
