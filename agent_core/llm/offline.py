"""A provider without any language model: it matches the words of a question to the registered tools.

It serves when no model is configured, and as the last link of a chain when every model is down. It knows nothing of
any tool but its spec (name, description, examples, JSON schema), asks for what it cannot read, lays results out as
Markdown, and says in every answer that no language model was used. There is no randomness: the same request gets the
same answer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC

from agent_core.context import Clock, SystemClock
from agent_core.llm.provider import OFFLINE
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
from reading.reply import Reader


class OfflineProvider:
    """Answers without a language model.

    Tokens and cost are zero, and exactly so. Safe to call concurrently; never fails and never waits.

    Args:
        clock: anchors "this week", "since 9:00" and the like; the machine's time by default.
        name: the configured name.
    """

    model = OFFLINE

    def __init__(self, clock: Clock | None = None, *, name: str = OFFLINE) -> None:
        clock = clock or SystemClock()
        self.name = name
        self._reader = Reader(lambda: clock.now().astimezone(UTC))

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Call the tools that the newest message asks for, or answer with their results."""
        reply = self._reader.reply(request.messages, request.tools, may_call=request.tool_choice != "none")
        calls = tuple(
            ToolCall(id=f"call_{n}", name=c.name, arguments=json.dumps(dict(c.arguments), ensure_ascii=False))
            for n, c in enumerate(reply.calls, 1)
        )
        return ModelResponse(
            message=ModelMessage(role="assistant", content=reply.text, tool_calls=calls),
            finish=Finish.TOOL_CALLS if calls else Finish.STOP,
            model=self.model,
            provider=self.name,
            usage=Usage(requests=1, exact=True),
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        """Yield the answer line by line, then the whole response."""
        response = await self.complete(request)
        for line in response.message.content.splitlines(keepends=True):
            yield TextChunk(text=line)
        yield response

    def prepare(self) -> None:
        """Nothing to prepare."""

    async def aclose(self) -> None:
        """Nothing to release."""
