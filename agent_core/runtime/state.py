"""The states of a run, the transitions between them, and the immutable record that grows through them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from pydantic import BaseModel

from agent_core.errors import RunError
from agent_core.llm.types import Usage


class RunState(StrEnum):
    """Where a run is. FINISHED and ERROR are final."""

    INIT = "init"
    THINKING = "thinking"
    ACTING = "acting"
    OBSERVING = "observing"
    FINISHED = "finished"
    ERROR = "error"

    @property
    def final(self) -> bool:
        """True when nothing follows."""
        return self in (RunState.FINISHED, RunState.ERROR)


TRANSITIONS: Mapping[RunState, frozenset[RunState]] = MappingProxyType(
    {
        RunState.INIT: frozenset({RunState.THINKING, RunState.ERROR}),
        RunState.THINKING: frozenset({RunState.ACTING, RunState.FINISHED, RunState.ERROR}),
        RunState.ACTING: frozenset({RunState.OBSERVING, RunState.ERROR}),
        RunState.OBSERVING: frozenset({RunState.THINKING, RunState.ERROR}),
        RunState.FINISHED: frozenset(),
        RunState.ERROR: frozenset(),
    }
)
"""Which state may follow which. Whatever is not here is a defect of the loop, not of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One model call or one tool call of a run, finished.

    Args:
        n: 1-based position in the run; tool calls of one batch follow each other in the batch's order.
        kind: ``model`` or ``tool``.
        name: the model's or the tool's name.
        started_at: aware UTC.
        duration_s: wall seconds.
        ok: false when it failed.
        detail: for a model step its text (what it said beside its calls, or the answer); for a tool
            step the result the model read. Redacted.
        arguments: for a tool step the arguments as JSON text; else empty. Redacted.
        error: what failed, empty when ok.
        usage: tokens of a model step, None for a tool.
        cost_usd: price of a model step; None when no price is known (never 0 for that).
        provider: who answered a model step; empty for a tool.
        attempts: how often a tool was run for this step (0: refused), or how many requests a model step took.
        failures: what became of each earlier request of a model step, one line each.
        first_chunk_s: seconds until a streamed answer began; None for everything else.
        purpose: why a model was asked: ``answer``, ``summary``, or ``cache`` when none was; empty for a tool. In a run
            that began others, the agent whose run the step belongs to.
        replayed: taken from the journal of an earlier process instead of run again.
    """

    n: int
    kind: Literal["model", "tool"]
    name: str
    started_at: datetime
    duration_s: float
    ok: bool = True
    detail: str = ""
    arguments: str = ""
    error: str = ""
    usage: Usage | None = None
    cost_usd: float | None = None
    provider: str = ""
    attempts: int = 1
    failures: tuple[str, ...] = ()
    first_chunk_s: float | None = None
    purpose: str = ""
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """All that is known of a run; each step makes a new value, none is ever changed.

    Args:
        run_id: its id.
        agent: the agent's name.
        template: name and version of the agent's prompt template, empty where there is none.
        output: the validated answer of an agent with an ``output`` model, else None.
        query: what was asked (the user messages of this turn, joined).
        plan: what the model said it would do, in order, if it said so beside its tool calls.
        state: see ``RunState``.
        steps: finished steps, in order.
        answer: the final text; also set when a limit ended the run (what is known so far).
        error: why the run ended early, None while running or when finished.
        usage: all model calls together.
        cost_usd: all model calls together; None as soon as one price is unknown.
        started_at, ended_at: aware UTC; ``ended_at`` is None while running.
    """

    run_id: str
    agent: str
    query: str
    started_at: datetime
    state: RunState = RunState.INIT
    plan: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    answer: str = ""
    template: str = ""
    output: BaseModel | None = None
    error: RunError | None = None
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    ended_at: datetime | None = None

    def move(self, state: RunState) -> RunRecord:
        """Return the record in ``state``.

        Raises:
            ValueError: the transition table does not allow it.
        """
        if state not in TRANSITIONS[self.state]:
            raise ValueError(f"a run may not go from {self.state} to {state}")
        return replace(self, state=state)

    def add_steps(self, *steps: Step) -> RunRecord:
        """Return the record with ``steps`` appended and their usage and cost added."""
        usage, cost = self.usage, self.cost_usd
        for step in steps:
            if step.usage is not None:
                usage = usage + step.usage
                cost = None if cost is None or step.cost_usd is None else cost + step.cost_usd
        return replace(self, steps=self.steps + steps, usage=usage, cost_usd=cost)
