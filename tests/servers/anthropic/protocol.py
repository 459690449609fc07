"""What ``POST /v1/messages`` refuses, with the words of the API.

Sources, under https://platform.claude.com/docs/en/: api/messages/create (parameters, types, ranges), api/errors;
agents-and-tools/tool-use/handle-tool-calls (a result for each call, first in the next message),
build-with-claude/prompt-caching (at most four marks, none on empty text), build-with-claude/structured-outputs (closed
objects), about-claude/models/migration-guide (no sampling parameters on newer models).

It is stricter than the API in one thing: roles have to alternate (the API joins neighbours).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]  # wire data

KNOWN = {
    *("model", "max_tokens", "messages", "system", "tools", "tool_choice", "temperature", "top_p", "top_k", "stream"),
    *("stop_sequences", "metadata", "thinking", "output_config", "cache_control", "service_tier"),
}
BLOCKS = {"user": {"text", "tool_result"}, "assistant": {"text", "tool_use", "thinking"}}
FIELDS = {
    "text": {"type", "text", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
}
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
EXTRA = "Extra inputs are not permitted"


def refusal(body: Json, *, without_sampling: bool = False) -> str | None:
    """The reason the API would refuse this body, or None."""
    return next(_breaches(body, without_sampling), None)


def _breaches(body: Json, without_sampling: bool) -> Iterator[str]:
    yield from (f"{key}: {EXTRA}" for key in body if key not in KNOWN)
    yield from (f"{key}: Field required" for key in ("model", "max_tokens", "messages") if key not in body)
    if not isinstance(body["max_tokens"], int) or body["max_tokens"] < 1:
        yield "max_tokens: Input should be greater than or equal to 1"
    if (temperature := body.get("temperature")) is not None:
        if without_sampling:
            yield "`temperature` is deprecated for this model."
        if not 0 <= temperature <= 1:
            yield "temperature: range: 0..1"
    yield from _system(body.get("system", "x"))
    yield from _tools(body)
    yield from _messages(body["messages"])
    if not body.get("tools") and any(b["type"] == "tool_use" for m in body["messages"] for b in blocks_of(m)):
        yield "Requests which include `tool_use` or `tool_result` blocks must define tools"
    marks = len(re.findall(r"'cache_control': \{", str(body)))
    if marks > 4:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."
    yield from _output(body.get("output_config"))


def blocks_of(message: Json) -> list[Json]:
    """The content of a message as blocks."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _system(system: object) -> Iterator[str]:
    if isinstance(system, list):
        for n, block in enumerate(system):
            yield from _fields(block, {"text"}, f"system.{n}")
    elif not isinstance(system, str):
        yield "system: Input should be a valid list"


def _tools(body: Json) -> Iterator[str]:
    tools = body.get("tools") or []
    for n, tool in enumerate(tools):
        yield from (
            f"tools.{n}.custom.{key}: {EXTRA}"
            for key in tool
            if key not in ("name", "description", "input_schema", "cache_control", "strict", "type")
        )
        if not NAME.fullmatch(str(tool.get("name", ""))):
            yield f"tools.{n}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        if tool.get("input_schema", {}).get("type") != "object":
            yield f"tools.{n}.custom.input_schema.type: Field required"
    names = [tool["name"] for tool in tools]
    if len(set(names)) != len(names):
        yield "tools: Tool names must be unique."
    if (choice := body.get("tool_choice")) is not None:
        if choice.get("type") not in ("auto", "any", "tool", "none"):
            yield "tool_choice: Input tag found using 'type' does not match any of the expected tags"
        if choice["type"] == "none" and "disable_parallel_tool_use" in choice:
            yield f"tool_choice.none.disable_parallel_tool_use: {EXTRA}"
        if not tools:
            yield "tool_choice: may only be specified while providing tools"


def _messages(messages: object) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    seen: set[str] = set()
    open_ids: list[str] = []
    for n, message in enumerate(messages):
        role = message.get("role")
        if role not in BLOCKS:
            yield f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant".'
        if n == 0 and role != "user":
            yield 'messages: first message must use the "user" role'
        if n and role == messages[n - 1]["role"]:
            yield f'messages: roles must alternate between "user" and "assistant", but found multiple "{role}" roles'
        if not message.get("content"):
            yield f"messages.{n}: all messages must have non-empty content"
        blocks = blocks_of(message)
        for i, block in enumerate(blocks):
            yield from _fields(block, BLOCKS[role], f"messages.{n}.content.{i}")
        answered = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        if unknown := [i for i in answered if i not in open_ids]:
            yield (
                f"messages.{n}: unexpected `tool_use_id` found in `tool_result` blocks: {', '.join(unknown)}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        leading = sum(b["type"] == "tool_result" for b in blocks[: len(open_ids)])
        if set(open_ids) - set(answered) or leading < len(open_ids):
            yield (
                f"messages.{n - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{open_ids}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
            )
        if len(set(answered)) != len(answered):
            yield f"messages.{n}: each tool_use must have a single result"
        open_ids = [b["id"] for b in blocks if b["type"] == "tool_use"]
        if seen.intersection(open_ids) or len(set(open_ids)) != len(open_ids):
            yield f"messages.{n}: `tool_use` ids must be unique"
        seen.update(open_ids)
    if open_ids:
        yield f"messages.{n}: `tool_use` ids were found without `tool_result` blocks immediately after: {open_ids}."
    if role == "assistant":
        yield "This model does not support assistant message prefill. The conversation must end with a user message."


def _fields(block: Json, kinds: set[str], where: str) -> Iterator[str]:
    kind = block.get("type")
    if kind not in kinds:
        yield f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
        return
    yield from (f"{where}.{kind}.{key}: {EXTRA}" for key in block if key not in FIELDS[kind])
    if kind == "text" and not block["text"].strip():
        marked = "cache_control cannot be set for empty text blocks" if "cache_control" in block else ""
        yield marked or "messages: text content blocks must contain non-whitespace text"
    if kind == "tool_use":
        for key in ("id", "name"):
            if not NAME.fullmatch(block[key]):
                yield f"{where}.tool_use.{key}: String should match pattern '^[a-zA-Z0-9_-]+$'"
        if not isinstance(block["input"], dict):
            yield f"{where}.tool_use.input: Input should be an object"
    if block.get("cache_control", {"type": "ephemeral"}).get("type") != "ephemeral":
        yield f"{where}.cache_control: Input tag does not match any of the expected tags: 'ephemeral'"


def _output(config: Json | None) -> Iterator[str]:
    form = (config or {}).get("format")
    if form is None:
        return
    if form.get("type") != "json_schema":
        yield "output_config.format: Input tag does not match any of the expected tags: 'json_schema'"
    yield from _open_objects(form["schema"])


def _open_objects(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            yield "output_config.format.schema: For 'object' type, 'additionalProperties' must be set to false"
        for part in schema.values():
            yield from _open_objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _open_objects(part)
