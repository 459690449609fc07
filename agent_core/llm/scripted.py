"""A provider that plays a script: for tests of programs built on the engine, without any server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from agent_core.errors import ProviderError
from agent_core.llm.types import (
    Finish,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    StreamItem,
    TextChunk,
    ToolCall,
    Usage,
)

Turn = ModelResponse | ProviderError | Callable[[ModelRequest], ModelResponse]
"""One answer: a response, an error to raise, or a function of the request."""


def say(text: str, *, usage: Usage | None = None) -> ModelResponse:
    """Build a final answer."""
    return _response(ModelMessage(role="assistant", content=text), Finish.STOP, usage)


def call(*calls: tuple[str, Mapping[str, object] | str], text: str = "") -> ModelResponse:
    """Build a response that calls tools: pairs of a name and its arguments (text is sent as it is)."""
    made = tuple(
        ToolCall(id=f"call_{n}", name=name, arguments=args if isinstance(args, str) else json.dumps(args))
        for n, (name, args) in enumerate(calls)
    )
    return _response(ModelMessage(role="assistant", content=text, tool_calls=made), Finish.TOOL_CALLS, None)


def _response(message: ModelMessage, finish: Finish, usage: Usage | None) -> ModelResponse:
    return ModelResponse(message=message, finish=finish, model="scripted", provider="scripted", usage=usage)


class ScriptedProvider:
    """Answers with the turns of a script, one a request.

    Args:
        turns: the answers in order; a request past the end is an ``AssertionError``, since the script is wrong.

    Attributes:
        requests: every request that came, in order.
    """

    name = "scripted"
    model = "scripted"

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = list(turns)
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Play the next turn."""
        self.requests.append(request)
        if len(self.requests) > len(self._turns):
            raise AssertionError(f"the script has {len(self._turns)} turns; request {len(self.requests)} is too many")
        turn = self._turns[len(self.requests) - 1]
        if isinstance(turn, ProviderError):
            raise turn
        return turn if isinstance(turn, ModelResponse) else turn(request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        """Play the next turn, its text word by word."""
        response = await self.complete(request)
        for n, word in enumerate(response.message.content.split(" ")):
            if word or n:
                yield TextChunk(text=f" {word}" if n else word)
        yield response

    def prepare(self) -> None:
        """Nothing to prepare."""

    async def aclose(self) -> None:
        """Nothing to release."""
