"""The guards of a run: each returns the limit that was reached, or None."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from agent_core.agent import Agent
from agent_core.context import RunContext
from agent_core.errors import (
    CostLimit,
    Deadline,
    LimitReached,
    Repetition,
    RequestLimit,
    StepLimit,
    TokenLimit,
    ToolCallLimit,
)
from agent_core.llm.types import ToolCall
from agent_core.runtime.state import RunRecord
from agent_core.tools.base import ToolResult

KNOWN_LINES = 6
KNOWN_CHARS = 400


def check_before_model(record: RunRecord, agent: Agent, ctx: RunContext) -> LimitReached | None:
    """Tell whether another model call is allowed."""
    limits = ctx.limits
    budget = ctx.budget
    asked = sum(1 for step in record.steps if step.ok and step.kind == "model" and step.purpose == "answer")
    max_steps = min(agent.max_steps, limits.max_steps)
    if asked >= max_steps:
        return StepLimit(f"the limit of {max_steps} steps was reached")
    if limits.requests is not None and budget.requests >= limits.requests:
        return RequestLimit(f"the limit of {limits.requests} model requests was reached")
    if limits.tokens is not None and budget.tokens >= limits.tokens:
        return TokenLimit(f"the limit of {limits.tokens} tokens was reached")
    if limits.cost_usd is not None and budget.cost_usd is not None and budget.cost_usd >= limits.cost_usd:
        return CostLimit(f"the limit of {limits.cost_usd:.2f} US dollars was reached")
    return check_deadline(ctx)


def check_before_tools(calls: Sequence[ToolCall], ctx: RunContext) -> LimitReached | None:
    """Tell whether ``calls`` may run."""
    allowed = ctx.limits.tool_calls
    if allowed is not None and ctx.budget.tool_calls + len(calls) > allowed:
        return ToolCallLimit(f"the limit of {allowed} tool calls was reached")
    return check_deadline(ctx)


def check_deadline(ctx: RunContext) -> Deadline | None:
    """Tell whether the run's time is over."""
    if ctx.remaining_s() > 0:
        return None
    return deadline_of(ctx)


def deadline_of(ctx: RunContext) -> Deadline:
    """Build the error of a run whose time is over."""
    return Deadline(f"the deadline of {ctx.limits.run_deadline_s:g} s for one run passed")


def canonical_action(call: ToolCall) -> str:
    """Name a call by tool and arguments, whatever the order of keys or the white space."""
    try:
        arguments = json.dumps(json.loads(call.arguments or "{}"), sort_keys=True)
    except ValueError:
        arguments = call.arguments
    return f"{call.name} {arguments}"


class RepetitionGuard:
    """Notices when a run goes round in circles.

    An action is a tool with its arguments. It is repeated when it stands in each of the last ``limit`` batches of
    calls, or that often in a row inside one; when it was asked for twice as often in the whole run; and when it failed
    ``limit`` times, whatever came in between. A tool (an invented one as well) that failed in twice as many calls ends
    the run too, with whichever arguments. No success in between sets these counts back.

    Args:
        limit: ``Limits.max_same_action``.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._streaks: dict[str, int] = {}
        self._asked: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    def check(self, calls: Sequence[ToolCall]) -> Repetition | None:
        """Count a batch of calls, before it runs."""
        streaks: dict[str, int] = {}
        for call in calls:
            action = canonical_action(call)
            streaks[action] = streaks.get(action, self._streaks.get(action, 0)) + 1
            self._asked[action] += 1
            if streaks[action] >= self._limit:
                return Repetition(f"the same call of {call.name} was asked for {self._limit} times in a row")
            if self._asked[action] >= 2 * self._limit:
                return Repetition(f"the same call of {call.name} was asked for {2 * self._limit} times")
        self._streaks = streaks
        return None

    def note(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> Repetition | None:
        """Count what failed in a batch, after it ran."""
        for call, result in zip(calls, results, strict=True):
            if result.ok:
                continue
            action, tool = canonical_action(call), call.name[:64]
            if result.error_code == "unknown_tool":
                tool = "tools that do not exist"
            self._failed.update((action, tool))
            if self._failed[action] >= self._limit:
                return Repetition(f"the same call of {call.name[:64]} failed {self._limit} times")
            if self._failed[tool] >= 2 * self._limit:
                return Repetition(f"calls of {tool} failed {2 * self._limit} times")
        return None


def describe_progress(record: RunRecord, limit: LimitReached) -> str:
    """Write the answer of a run that a limit ended: which limit, and what is known so far."""
    lines = [f"I stopped before I was finished: {limit}."]
    said = [step.detail for step in record.steps if step.purpose == "answer" and step.detail]
    found = [step for step in record.steps if step.kind == "tool" and step.ok]
    if said:
        lines.append(f"So far: {_shorten(said[-1])}")
    if found:
        lines.append("What the tools returned until then:")
        lines += [f"- {step.name}: `{_shorten(step.detail).replace('`', chr(39))}`" for step in found[-KNOWN_LINES:]]
    elif not said:
        lines.append("Nothing is known yet.")
    return "\n".join(lines)


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= KNOWN_CHARS else f"{text[:KNOWN_CHARS]}…"
