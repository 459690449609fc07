"""What was said, in the conventions' schema of messages made of parts. Used only where content is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

from agent_core.llm.types import ModelMessage, ModelRequest, ModelResponse
from agent_core.telemetry import names

Redact = Callable[[str], str]


def request_content(request: ModelRequest, redact: Redact) -> dict[str, str]:
    """Return the attributes that hold what a model is asked."""
    system = [{"type": "text", "content": redact(m.content)} for m in request.messages if m.role == "system"]
    tools = [
        {"type": "function", **{n: getattr(t, n) for n in ("name", "description", "parameters")}} for t in request.tools
    ]
    said = [_as_parts(m, redact) for m in request.messages if m.role != "system"]
    found = {names.INSTRUCTIONS: system, names.INPUT_MESSAGES: said, names.TOOL_DEFINITIONS: tools}
    return {name: json.dumps(value, ensure_ascii=False, default=dict) for name, value in found.items() if value}


def response_content(response: ModelResponse, redact: Redact) -> dict[str, str]:
    """Return the attribute that holds what a model answered."""
    said = {**_as_parts(response.message, redact), "finish_reason": response.finish.value}
    return {names.OUTPUT_MESSAGES: json.dumps([said], ensure_ascii=False)}


def _as_parts(message: ModelMessage, redact: Redact) -> dict[str, object]:
    text, parts = redact(message.content), list[dict[str, object]]()
    if message.role == "tool":
        parts.append({"type": "tool_call_response", "id": message.tool_call_id, "response": text})
    elif text:
        parts.append({"type": "text", "content": text})
    for call in message.tool_calls:
        arguments: object = redact(call.arguments)
        with suppress(ValueError, RecursionError):
            arguments = json.loads(redact(call.arguments))
        parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments})
    return {"role": message.role, "parts": parts}
