"""Run the tool calls of a model: check, ask, journal, run within bounds, and answer every single one."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import logging
import traceback
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, ValidationError

from agent_core.context import JournalEntry, RunContext, StepState
from agent_core.errors import AgentError, ModelRetry, ReplayMismatch, ToolFailed
from agent_core.llm.types import ToolCall, ToolSpec
from agent_core.runtime.events import ToolFinished, ToolStarted
from agent_core.tools.approval import Approver, Authorizer
from agent_core.tools.arguments import (
    MalformedArguments,
    describe_fields,
    describe_mistakes,
    list_arguments,
    parse_arguments,
)
from agent_core.tools.base import Effect, Tool, ToolResult
from agent_core.tools.bounded import CancelledItself, TimedOut, run_bounded
from agent_core.tools.registry import ToolRegistry
from agent_core.tools.results import cap_text, dump_result, find_failure, load_result, render_failure, render_value

__all__ = ["ToolExecutor", "dump_result", "load_result"]

logger = logging.getLogger("agent_core.tools")

BACKOFF_S = (0.25, 1.0)
"""Waits before the second and the third attempt of a READ tool; there is no fourth."""

READ_OUTPUT = "read_output"
"""The tool that reads what was left out of a result (``agent_core.tools.builtin``)."""

MAX_KEPT_CHARS = 4_000_000
_IN_DOUBT = "whether it took effect is unknown"
_CHECK_FIRST = "do not repeat it; a person has to check"
_MESSAGE_CHARS = 2_000
_NAMES_SHOWN = 50


class _Refused(AgentError):
    """A call is not going to run; it becomes the call's result."""

    def __init__(self, code: str, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.fix = fix


@dataclass(frozen=True, slots=True, kw_only=True)
class _Admitted:
    """A call that may run."""

    tool: Tool
    args: BaseModel
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """How the run of a call ended; ``code`` is None where it went well."""

    text: str
    code: str | None
    attempts: int
    in_doubt: bool = False


class ToolExecutor:
    """Runs tool calls. One instance serves many runs at once; it keeps nothing between calls.

    Args:
        registry: the tools.
        authorizer: who may use what; None means that every tool is open to every run.
        approver: asks a person before WRITE and EXEC tools; without one they are refused.
    """

    def __init__(
        self, registry: ToolRegistry, *, authorizer: Authorizer | None = None, approver: Approver | None = None
    ) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._approver = approver

    def specs(self, ctx: RunContext, names: Collection[str] | None = None) -> tuple[ToolSpec, ...]:
        """Return what the model of this run may be told; the same object while nothing changes.

        Args:
            ctx: the run.
            names: only these; None means all registered tools.

        Raises:
            ConfigError: ``names`` has one that is not registered.
        """
        return self._registry.specs(names, None if self._authorizer is None else lambda tool: self._sees(ctx, tool))

    async def run(
        self, ctx: RunContext, calls: Sequence[ToolCall], *, names: Collection[str] | None = None
    ) -> tuple[ToolResult, ...]:
        """Run ``calls`` in parallel (exclusive tools alone) and return one result for each, in their order.

        Whatever a call does, its siblings go on, and it has a result: a failure is a result with ``ok`` false.
        Unhandled errors of tools are logged with their trace; the model only reads their type and message.
        ``ToolStarted`` is emitted for a call that really runs, ``ToolFinished`` for every call.

        Args:
            ctx: the run; its deadline and limits bound every call.
            calls: with ids that are unique in the run.
            names: the tools that the agent has; a call of another one is an unknown tool. None means all.

        Raises:
            ReplayMismatch: the journal of an earlier attempt at this run holds something else.
            asyncio.CancelledError: passes through; the calls under way are stopped, and stay in the journal as
                intents.
            Exception: whatever ``ctx.journal`` raises; without a journal nothing may go on.
        """
        if len(calls) == 1:
            return (await self._answer(ctx, calls[0], names),)
        results: list[ToolResult] = []
        for batch in self._batches(calls):
            if len(batch) == 1:
                results.append(await self._answer(ctx, batch[0], names))
                continue
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._answer(ctx, call, names)) for call in batch]
            except BaseExceptionGroup as failed:  # only the journal's errors; callers know them by their own type
                mismatch = [error for error in failed.exceptions if isinstance(error, ReplayMismatch)]
                raise (mismatch or failed.exceptions)[0] from failed
            results.extend(task.result() for task in tasks)
        return tuple(results)

    def cache_ttl_s(self, name: str) -> float | None:
        """Seconds for which an answer that used this tool may be served again; None: never."""
        tool = self._registry.get(name)
        return None if tool is None else tool.cache_ttl_s

    def is_private(self, name: str) -> bool:
        """Tell whether what this tool returns is kept out of summaries and of answers that are served again."""
        tool = self._registry.get(name)
        return tool is not None and tool.private

    async def run_one(self, ctx: RunContext, call: ToolCall) -> ToolResult:
        """Run a single call, for a slash command or the command line; see ``run``."""
        return await self._answer(ctx, call, None)

    def _batches(self, calls: Sequence[ToolCall]) -> Iterator[list[ToolCall]]:
        batch: list[ToolCall] = []
        for call in calls:
            tool = self._registry.get(call.name)
            if tool is not None and tool.exclusive:
                if batch:
                    yield batch
                yield [call]
                batch = []
            else:
                batch.append(call)
        if batch:
            yield batch

    # -- one call --------------------------------------------------------------------------------------

    async def _answer(self, ctx: RunContext, call: ToolCall, names: Collection[str] | None) -> ToolResult:
        started_at, begun = ctx.clock.now(), ctx.clock.monotonic()
        try:
            admitted = await self._admit(ctx, call, names)
        except Exception as error:  # noqa: BLE001  # the tool executor's place: a failed check is a result
            ended = _explain(ctx, call, error, attempts=0)
            result = await self._build_result(ctx, call, ended, started_at, begun)
            ctx.emit(ToolFinished(run_id=ctx.run_id, result=result))
            return result
        tool = admitted.tool
        key = f"tool:{call.id}"
        known = await ctx.journal.begin(
            JournalEntry(
                key=key,
                kind="tool",
                name=tool.name,
                digest=admitted.digest,
                state=StepState.INTENT,
                effect=tool.effect.value,
            )
        )
        if known is not None:
            result_known = await self._recall(ctx, call, admitted, known, started_at)
            if result_known is not None:
                ctx.emit(ToolFinished(run_id=ctx.run_id, result=result_known))
                return result_known
        ctx.emit(ToolStarted(run_id=ctx.run_id, call=call))
        ended = await _execute(ctx, call, admitted)
        result = await self._build_result(ctx, call, ended, started_at, begun)
        state = StepState.DONE if result.ok else StepState.UNKNOWN if ended.in_doubt else StepState.FAILED
        await ctx.journal.finish(key, state, dump_result(result))
        ctx.emit(ToolFinished(run_id=ctx.run_id, result=result))
        return result

    async def _admit(self, ctx: RunContext, call: ToolCall, names: Collection[str] | None) -> _Admitted:
        """Check everything that can be checked before the call leaves a trace.

        Raises:
            _Refused: it may not run.
        """
        tool = self._find(ctx, call, names)
        try:
            _, canonical = parse_arguments(call.arguments)
            args = tool.arguments.model_validate_json(call.arguments, extra="forbid")
        except MalformedArguments as error:
            raise _Refused("invalid_arguments", str(error), fix=describe_fields(tool)) from error
        except ValidationError as error:
            message = describe_mistakes(error, tool)
            raise _Refused("invalid_arguments", message, fix=describe_fields(tool)) from error
        if ctx.remaining_s() <= 0:
            raise _Refused("timeout", f"the run's time is over; {tool.name} was not run")
        if self._authorizer is not None:
            await self._authorize(self._authorizer, ctx, tool, args)
        if tool.effect is not Effect.READ:
            await self._approve(ctx, tool, call)
        digest = hashlib.sha256(f"{tool.name}\0{canonical}".encode()).hexdigest()
        return _Admitted(tool=tool, args=args, digest=digest)

    def _find(self, ctx: RunContext, call: ToolCall, names: Collection[str] | None) -> Tool:
        tool = self._registry.get(call.name)
        if tool is not None and (names is None or call.name in names):
            if self._sees(ctx, tool):
                return tool
            raise _Refused("denied", f"{tool.name} may not be used here", fix="a person with the right to it may")
        asked = call.name[:64]
        known = [t.name for t in self._registry.tools() if (names is None or t.name in names) and self._sees(ctx, t)]
        near = difflib.get_close_matches(asked, known, n=3, cutoff=0.5)
        guess = f"; did you mean {' or '.join(near)}?" if near else ""
        shown = ", ".join(known[:_NAMES_SHOWN]) or "none"
        raise _Refused("unknown_tool", f"there is no tool {asked!r}{guess}", fix=f"available tools: {shown}")

    def _sees(self, ctx: RunContext, tool: Tool) -> bool:
        return self._authorizer is None or self._authorizer.visible(ctx, tool)

    @staticmethod
    async def _authorize(authorizer: Authorizer, ctx: RunContext, tool: Tool, args: BaseModel) -> None:
        try:
            async with asyncio.timeout(ctx.remaining_s()) as timer:
                denial = await authorizer.authorize(ctx, tool, list_arguments(args))
        except TimeoutError as error:
            if not timer.expired():
                raise
            raise _Refused("timeout", f"the rights to {tool.name} were not known in time; it was not run") from error
        if denial is not None:
            raise _Refused("denied", denial.reason)

    async def _approve(self, ctx: RunContext, tool: Tool, call: ToolCall) -> None:
        if self._approver is None:
            raise _Refused(
                "approval_required",
                f"{tool.name} has the effect {tool.effect.value} and needs a person's approval, which cannot be "
                "asked for here; nothing was run",
                fix="a person has to do it, or approvals have to be set up",
            )
        try:
            async with asyncio.timeout(ctx.remaining_s()) as timer:
                decision = await self._approver.approve(ctx, tool, call)
        except TimeoutError as error:
            if not timer.expired():
                raise
            raise _Refused("approval_required", f"nobody approved {tool.name} in time; nothing was run") from error
        if not decision.approved:
            who = f" by {decision.by}" if decision.by else ""
            why = f": {decision.reason}" if decision.reason else ""
            raise _Refused("denied", f"{tool.name} was refused{who}{why}; nothing was run")

    async def _recall(
        self, ctx: RunContext, call: ToolCall, admitted: _Admitted, known: JournalEntry, started_at: datetime
    ) -> ToolResult | None:
        """Return what an earlier attempt at the run knows of the call, or None when it has to run again."""
        if known.digest != admitted.digest or known.name != admitted.tool.name:
            raise ReplayMismatch(f"step {known.key} of run {ctx.run_id} was recorded for another call of {known.name}")
        if known.state is not StepState.INTENT and known.result:
            try:
                return load_result(known.result)
            except ValueError as error:
                raise ReplayMismatch(f"step {known.key} of run {ctx.run_id} cannot be read back: {error}") from error
        if admitted.tool.effect is Effect.READ:
            return None
        text = render_failure(
            "unknown_outcome",
            f"{call.name} was started before a restart, and whether it took effect is unknown; it was not repeated",
            fix="a person has to check, and to decide whether it is done again",
        )
        ended = _Ended(text=text, code="unknown_outcome", attempts=0)
        result = await self._build_result(ctx, call, ended, started_at, ctx.clock.monotonic())
        await ctx.journal.finish(known.key, StepState.UNKNOWN, dump_result(result))
        return result

    # -- the result ----------------------------------------------------------------------------------

    async def _build_result(
        self, ctx: RunContext, call: ToolCall, ended: _Ended, started_at: datetime, begun: float
    ) -> ToolResult:
        """Make the text fit for the model: without secrets, and capped, with the whole kept for ``read_output``."""
        tool, limit = self._registry.get(call.name), ctx.limits.tool_output_chars
        content = ctx.redactor.redact(ended.text)
        if not content.isascii():  # half a surrogate pair can be neither sent nor stored
            content = content.encode(errors="replace").decode()
        truncated = len(content) > limit
        if truncated:
            where = ""
            if self._registry.get(READ_OUTPUT) is not None:
                await ctx.outputs.put(ctx.thread_id, call.id, content[:MAX_KEPT_CHARS])
                where = f'; {READ_OUTPUT}(output_id="{call.id}", start=..., end=...) reads them'
            content, _ = cap_text(content, limit, where=where)
        return ToolResult(
            call_id=call.id,
            name=call.name,
            ok=ended.code is None,
            content=content,
            error_code=ended.code,
            started_at=started_at,
            duration_s=ctx.clock.monotonic() - begun,
            attempts=ended.attempts,
            truncated=truncated,
            trusted=tool is not None and tool.trusted and ended.code is None,
        )


# -- running ---------------------------------------------------------------------------------------


async def _execute(ctx: RunContext, call: ToolCall, admitted: _Admitted) -> _Ended:
    """Run the tool, a READ tool up to three times, all of it inside one timeout."""
    tool = admitted.tool
    timeout_s = min(tool.timeout_s or ctx.limits.tool_timeout_s, ctx.remaining_s())
    end = ctx.clock.monotonic() + timeout_s
    attempts = 0
    last: ToolFailed | None = None
    while True:
        attempts += 1
        try:
            remaining_s = max(0.0, end - ctx.clock.monotonic())
            value = await run_bounded(tool.invoke(ctx, admitted.args), timeout_s=remaining_s, label=tool.name)
            return _Ended(text=render_value(value), code=find_failure(value), attempts=attempts)
        except TimedOut:
            return _timed_out(tool, timeout_s, attempts, last)
        except ToolFailed as error:
            last = error
            again = error.retryable and tool.effect is Effect.READ and attempts <= len(BACKOFF_S)
            if not again or ctx.clock.monotonic() + BACKOFF_S[attempts - 1] >= end:
                return _explain(ctx, call, error, attempts=attempts)
        except Exception as error:  # noqa: BLE001  # the tool executor's place: a crash is a result
            return _explain(ctx, call, error, attempts=attempts, in_doubt=tool.effect is not Effect.READ)
        await ctx.clock.sleep(BACKOFF_S[attempts - 1])


# -- results ---------------------------------------------------------------------------------------


def _timed_out(tool: Tool, timeout_s: float, attempts: int, last: ToolFailed | None) -> _Ended:
    message = f"{tool.name} did not end within {timeout_s:.3g} s and was stopped"
    if tool.effect is Effect.READ:
        fix = "ask for less, or try again later"
        if last is not None:  # what the attempts before it came to tells more than that the last one was cut off
            message, fix = (
                f"{message}; before that: {last.message}"[:_MESSAGE_CHARS],
                (last.fix or fix)[:_MESSAGE_CHARS],
            )
        text = render_failure("timeout", message, fix=fix)
        return _Ended(text=text, code="timeout", attempts=attempts)
    text = render_failure("timeout", f"{message}; {_IN_DOUBT}", fix=_CHECK_FIRST)
    return _Ended(text=text, code="timeout", attempts=attempts, in_doubt=True)


def _explain(ctx: RunContext, call: ToolCall, error: Exception, *, attempts: int, in_doubt: bool = False) -> _Ended:
    """Turn an error into what the model reads."""
    match error:
        case _Refused():
            code, message, fix, retryable = error.code, str(error), error.fix, False
        case ToolFailed():
            code, message, fix, retryable = error.code, error.message, error.fix, error.retryable
            in_doubt = False
        case ModelRetry():
            code, message, fix, retryable = "invalid_arguments", str(error), "call the tool again, corrected", False
            in_doubt = False
        case CancelledItself():
            code, message, fix, retryable = "cancelled", str(error), "", False
        case _:
            logger.error(
                "tool %s crashed\n%s", call.name, ctx.redactor.redact("".join(traceback.format_exception(error)))
            )
            said = traceback.format_exception_only(error)[-1].strip()  # safe also where str(error) itself raises
            code, message, fix, retryable = "crashed", f"{call.name} failed with {said}", "", False
    if in_doubt:
        message, fix = f"{message}; {_IN_DOUBT}", _CHECK_FIRST
    text = render_failure(code, message[:_MESSAGE_CHARS], fix=fix[:_MESSAGE_CHARS], retryable=retryable)
    return _Ended(text=text, code=code, attempts=attempts, in_doubt=in_doubt)
