"""What a run tells while it works. Events are values; whoever listens decides what to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent_core.agent import Agent
from agent_core.errors import ProviderError
from agent_core.llm.types import ModelMessage, ModelRequest, ModelResponse, ToolCall
from agent_core.memory.conversation import Summary
from agent_core.runtime.state import RunRecord, RunState, Step
from agent_core.tools.base import ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged:
    """The run moved to ``state``."""

    run_id: str
    state: RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the answer's text, in order. It is not redacted twice: the listener shows it as it is."""

    run_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRestarted:
    """Every ``TextDelta`` of this answer so far is void (its provider broke off); it begins anew."""

    run_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStarted:
    """A model is about to be asked; a model step's ``StepFinished`` follows. ``request`` is what it is asked."""

    run_id: str
    request: ModelRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarized:
    """The older part of the conversation is now a summary."""

    run_id: str
    summary: Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageInjected:
    """A message that came while the run worked was taken into it."""

    run_id: str
    message: ModelMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run begins; the first of its events."""

    run_id: str
    thread_id: str
    agent: Agent


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool call is about to run."""

    run_id: str
    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A tool call has its result."""

    run_id: str
    result: ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """A step was added to the record; ``outcome`` of a model step is the provider's answer, or why there is none."""

    run_id: str
    step: Step
    outcome: ModelResponse | ProviderError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The run is over; ``record`` is final."""

    run_id: str
    record: RunRecord


RunEvent = (
    RunStarted
    | StateChanged
    | ModelStarted
    | TextDelta
    | AnswerRestarted
    | ToolStarted
    | ToolFinished
    | StepFinished
    | Summarized
    | MessageInjected
    | RunEnded
)

EventSink = Callable[[RunEvent], None]
"""Receives every event of a run, in order, on the event loop. It must not block; what it raises breaks the run off."""


def ignore_events(event: RunEvent) -> None:
    """The sink of a run that nobody watches."""
