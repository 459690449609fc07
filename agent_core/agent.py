"""Agents as data: an agent is what the loop is told, and nothing runs inside it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from agent_core.llm.types import ToolChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """How to answer: instructions, tools and the bounds of a run.

    Args:
        name: for traces and usage.
        instructions: the system prompt, already filled in.
        tools: names of registered tools it may use; None means all of them.
        temperature, max_tokens: handed to the model; None leaves them to the provider.
        max_steps: model calls in one run.
        memory_tokens: budget of the history that goes with a request.
        tool_choice: ``auto``, ``none`` or ``required`` (required only for the first request).
        stream: ask the provider to stream, and emit ``TextDelta`` events.
        model: name of the provider to ask first; empty: the router decides.
        template: name and version of the prompt template that ``instructions`` come from, for traces.
        output: the pydantic model that the final answer must fit; None means text. See ``llm.structured``.
    """

    name: str = "agent"
    instructions: str = ""
    tools: tuple[str, ...] | None = None
    temperature: float | None = 0.7
    max_tokens: int | None = 4096
    max_steps: int = 10
    memory_tokens: int = 8_000
    tool_choice: ToolChoice = "auto"
    stream: bool = True
    model: str = ""
    template: str = ""
    output: type[BaseModel] | None = None
