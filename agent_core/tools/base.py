"""What a tool is, and what comes back from a call of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import BaseModel

from agent_core.llm.types import ToolExample, ToolSpec

if TYPE_CHECKING:
    from agent_core.context import RunContext


class Effect(StrEnum):
    """What a call does to the world. READ runs freely; WRITE and EXEC ask first."""

    READ = "read"
    WRITE = "write"
    EXEC = "exec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A registered tool.

    Args:
        name: letters, digits, ``_`` and ``-``, at most 64.
        description: written for the model.
        arguments: the pydantic model that validates a call's arguments (unknown names refused).
        parameters: the JSON schema of ``arguments``, as the model sees it.
        invoke: runs the tool with validated arguments. It returns anything that pydantic can turn into
            JSON, or text, and raises ``ToolFailed`` or ``ModelRetry``.
        examples: questions with their arguments, shown to the model and used by the offline provider.
        effect: see ``Effect``.
        timeout_s: replaces the run's ``tool_timeout_s`` for this tool; None keeps it.
        exclusive: never runs at the same time as another tool of the run.
        cache_ttl_s: how long an answer that used this tool may be served again; None: never (live data).
        trusted: its results hold nothing that outsiders wrote, so they need no mark as data.
        private: its results are for the people who see the answer: they enter no summary, and no answer of a
            conversation that has one is kept to be served again.
    """

    name: str
    description: str
    arguments: type[BaseModel]
    parameters: Mapping[str, object]
    invoke: Callable[[RunContext, BaseModel], Awaitable[object]]
    examples: tuple[ToolExample, ...] = ()
    effect: Effect = Effect.READ
    timeout_s: float | None = None
    exclusive: bool = False
    cache_ttl_s: float | None = None
    trusted: bool = False
    private: bool = False

    @property
    def spec(self) -> ToolSpec:
        """The part of the tool that a model is told."""
        return ToolSpec(
            name=self.name, description=self.description, parameters=self.parameters, examples=self.examples
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The one result of one tool call; it always exists, whatever happened.

    Args:
        call_id, name: of the ``ToolCall`` that it answers.
        ok: false for every kind of failure, refusals included.
        content: the text that the model reads (JSON unless the tool returned text), capped and redacted.
        error_code: a stable word where ``ok`` is false, else None. The executor's own words are
            ``unknown_tool``, ``invalid_arguments``, ``timeout``, ``denied``, ``approval_required``,
            ``unknown_outcome``, ``cancelled`` and ``crashed``; tools add theirs (docs/tools.md).
        started_at: aware UTC.
        duration_s: wall seconds, all attempts together.
        attempts: how often the tool was run; 0 when it was not run at all.
        truncated: the content was cut to the output cap.
        replayed: taken from the journal of an earlier process instead of run again.
        trusted: see ``Tool.trusted``.
    """

    call_id: str
    name: str
    ok: bool
    content: str
    error_code: str | None = None
    started_at: datetime
    duration_s: float = 0.0
    attempts: int = 1
    truncated: bool = False
    replayed: bool = False
    trusted: bool = False
