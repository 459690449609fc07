"""Talk to the offline provider as a loop would: questions in, tool results from a table, answers out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent_core.llm.offline import OfflineProvider
from agent_core.llm.types import ModelMessage, ModelRequest, ModelResponse, ToolExample, ToolSpec
from tests.evals.scoring import FixedClock


def make_spec(
    name: str,
    description: str,
    properties: Mapping[str, Any] | None = None,
    *,
    required: Sequence[str] = (),
    examples: Sequence[tuple[str, dict[str, Any]]] = (),
) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=description,
        parameters={"type": "object", "properties": dict(properties or {}), "required": list(required)},
        examples=tuple(ToolExample(question=q, arguments=a) for q, a in examples),
    )


class Thread:
    """A thread with the offline provider. ``results`` maps a tool's name to what it returns."""

    def __init__(self, tools: Sequence[ToolSpec], results: Mapping[str, object] | None = None) -> None:
        self.tools = tuple(tools)
        self.results = dict(results or {})
        self.provider = OfflineProvider(FixedClock())
        self.history: list[ModelMessage] = []
        self.made: list[tuple[str, dict[str, Any]]] = []

    async def request(self, **changes: Any) -> ModelResponse:
        return await self.provider.complete(ModelRequest(messages=tuple(self.history), tools=self.tools, **changes))

    async def calls(self, question: str) -> list[tuple[str, dict[str, Any]]]:
        """Ask, and return the calls of the first response without running them."""
        self.history.append(ModelMessage(role="user", content=question))
        response = await self.request()
        self.history.pop()
        return [(c.name, json.loads(c.arguments)) for c in response.message.tool_calls]

    async def ask(self, question: str) -> str:
        """Ask, run all calls, and return the answer. ``made`` has the calls of this question afterwards."""
        self.history.append(ModelMessage(role="user", content=question))
        self.made = []
        for _ in range(4):
            message = (await self.request()).message
            self.history.append(message)
            if not message.tool_calls:
                return message.content
            for call in message.tool_calls:
                self.made.append((call.name, json.loads(call.arguments)))
                result = self.results.get(call.name, {"ok": True, "result": 42})
                content = result if isinstance(result, str) else json.dumps(result)
                self.history.append(ModelMessage(role="tool", content=content, tool_call_id=call.id))
        raise AssertionError(f"still calling tools after four requests: {self.made}")
