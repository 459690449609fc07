"""What the handlers of one run pass on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agent_core.agent import Agent
from agent_core.context import RunContext
from agent_core.llm.types import ModelResponse
from agent_core.memory.conversation import Conversation
from agent_core.runtime.guards import RepetitionGuard
from agent_core.runtime.state import RunRecord
from agent_core.tools.base import ToolResult

if TYPE_CHECKING:
    from agent_core.llm.cache.policy import CacheQuestion


@dataclass(slots=True, kw_only=True)
class Work:
    """A run under way. The record inside is replaced, never changed.

    Args:
        asked_at: position of the run's question in the conversation.
        model_calls: answers that were asked for so far; numbers the journal's keys.
        memory_tokens: budget of the history; shrinks when a model says that it was too long.
        max_tokens: bound of one answer; grows once when an answer was cut off inside a tool call.
        fumbles: answers in a row that could not be used (empty, or not of the wanted form).
        question: what a kept answer is found by; None when none may be used.
        inside: ended runs that the tools began, whose steps the record does not have yet.
        steered: a message was taken in while the run worked, so its answer belongs to no single question.
    """

    agent: Agent
    ctx: RunContext
    conversation: Conversation
    record: RunRecord
    repetition: RepetitionGuard
    asked_at: int
    memory_tokens: int
    max_tokens: int | None
    response: ModelResponse | None = None
    results: tuple[ToolResult, ...] = ()
    model_calls: int = 0
    fumbles: int = 0
    question: CacheQuestion | None = None
    steered: bool = False
    inside: list[RunRecord] = field(default_factory=list)

    def take_inside(self) -> None:
        """Put the steps of the runs inside this one into the record, with their agent as the purpose."""
        for record in self.inside:
            n = len(self.record.steps) + 1
            steps = (replace(s, n=n + i, purpose=record.agent) for i, s in enumerate(record.steps))
            self.record = self.record.add_steps(*steps)
        self.inside.clear()
