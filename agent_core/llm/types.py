"""The one request and response that every model provider speaks, whatever its wire format.

All values are immutable. A ``ModelMessage`` is a turn of the conversation with a model; it is not the
``Message`` of a chat platform.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

Role = Literal["system", "user", "assistant", "tool"]
ToolChoice = Literal["auto", "none", "required"]


class Finish(StrEnum):
    """Why a model stopped. Only ``STOP`` and ``TOOL_CALLS`` are complete answers."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A model's wish to run a tool.

    ``arguments`` is the JSON text exactly as the model wrote it, so it may be malformed; the executor
    parses and validates it. ``id`` is unique inside its message.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMessage:
    """One entry of a history.

    ``speaker`` names the author of a user message where several people share a thread, ``at`` the instant at which
    it was said (aware; the model is told both).
    ``tool_calls`` only with role assistant; ``tool_call_id`` only with role tool.
    """

    role: Role
    content: str = ""
    speaker: str | None = None
    at: datetime | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExample:
    """A question, as a person would put it, and the arguments that answer it."""

    question: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What a model is told of a tool: its name, what it does, and the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, object]
    examples: tuple[ToolExample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one or more model calls. ``exact`` is false where they were counted here, not reported."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    requests: int = 0
    exact: bool = True

    @property
    def total_tokens(self) -> int:
        """Input and output together (cached, cache-write and reasoning tokens are parts of these)."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            requests=self.requests + other.requests,
            exact=self.exact and other.exact,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSchema:
    """The JSON schema that the final answer must fit, for providers that enforce one themselves.

    ``strict`` asks the provider to guarantee it; only a schema that meets its rules may say so
    (every property required, no additional ones).
    """

    name: str
    schema: Mapping[str, object]
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One call of a model.

    ``messages`` has passed the validity check (``agent_core.memory.validity``). ``timeout_s`` bounds
    the whole call, streaming and retries included. ``max_tokens`` bounds the answer; None leaves it to the provider.
    ``parallel_tool_calls`` is only sent beside tools; None leaves it to the provider. ``output`` asks for an answer
    in JSON. ``model`` names the provider to be asked first; empty: the router decides.
    """

    messages: tuple[ModelMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    temperature: float | None = None
    max_tokens: int | None = None
    timeout_s: float = 60.0
    parallel_tool_calls: bool | None = None
    output: OutputSchema | None = None
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResponse:
    """What a provider answered. ``usage`` is None when it reported none.

    ``response_id`` is the vendor's. ``first_chunk_s``: seconds until the first streamed piece, None without streaming.
    ``attempts``: requests that were sent for this answer, failed ones included; ``failures`` says in one line each what
    became of those.
    """

    message: ModelMessage
    finish: Finish
    model: str
    provider: str
    usage: Usage | None = None
    response_id: str = ""
    first_chunk_s: float | None = None
    attempts: int = 1
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChunk:
    """A piece of the answer's text, in order, while a provider streams."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRestarted:
    """What was streamed so far is void: its provider broke off, and the answer begins anew. ``reason`` says why."""

    reason: str


StreamItem = TextChunk | StreamRestarted | ModelResponse
"""What a stream yields: pieces of text, perhaps a restart, and at its end the whole response."""
