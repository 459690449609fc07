"""What OpenAI refuses, with its words, and the stand-in for its embedding model.

Rules and texts are those of the API reference, "Create chat completion"
(https://platform.openai.com/docs/api-reference/chat/create), and of the answers that public bug reports quote. A test
of each with the official client is in tests/integration/models/test_model_server.py.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.servers.openai.script import Json, text_of

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: "
)
ORPHAN = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
OVERFLOW = (
    "This model's maximum context length is {limit} tokens. However, your messages resulted in {used} tokens. "
    "Please reduce the length of the messages."
)
KNOWN_PARAMETERS = frozenset(
    (
        *("messages", "model", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"),
        *("temperature", "top_p", "n", "stop", "seed", "logprobs", "top_logprobs", "logit_bias", "presence_penalty"),
        *("frequency_penalty", "max_tokens", "max_completion_tokens", "response_format", "stream", "stream_options"),
        *("user", "metadata", "store", "service_tier", "reasoning_effort", "verbosity", "modalities", "audio"),
        *("prediction", "prompt_cache_key", "safety_identifier", "web_search_options"),
    )
)


@dataclass(frozen=True)
class Refusal:
    """A 400: ``message``, ``param`` and ``code`` of its error object."""

    message: str
    param: str | None = None
    code: str | None = None


def protocol_breach(body: Json) -> str | None:
    """The reason OpenAI would refuse this conversation, or None."""
    refusal = find_refusal(body)
    return None if refusal is None else refusal.message


def find_refusal(body: Json, *, reasoning: bool = False) -> Refusal | None:
    """What OpenAI would answer instead of a completion; ``reasoning``: the model is of the o-series or GPT-5 kind."""
    checks = (*CHECKS, _check_reasoning_model) if reasoning else CHECKS
    return next((refusal for check in checks for refusal in check(body)), None)


# -- the parameters --------------------------------------------------------------------------------


def _check_parameters(body: Json) -> Iterator[Refusal]:
    for name in body.keys() - KNOWN_PARAMETERS:
        yield Refusal(f"Unrecognized request argument supplied: {name}")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield Refusal("Invalid 'messages': empty array. Expected an array with minimum length 1.", "messages")
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) is not None and "tools" not in body:
            yield Refusal(f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.", name)
    if body.get("stream_options") is not None and not body.get("stream"):
        yield Refusal("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        yield Refusal(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            "max_tokens",
            "invalid_parameter_combination",
        )
    if (heat := body.get("temperature")) is not None and not 0 <= heat <= 2:
        yield Refusal(f"Invalid 'temperature': {heat} is outside of [0, 2].", "temperature", "decimal_outside_range")


def _check_reasoning_model(body: Json) -> Iterator[Refusal]:
    """https://platform.openai.com/docs/guides/reasoning, "Limitations"."""
    if body.get("max_tokens") is not None:
        yield Refusal(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            "max_tokens",
            "unsupported_parameter",
        )
    for name, default in (("temperature", 1), ("top_p", 1), ("presence_penalty", 0), ("frequency_penalty", 0)):
        if (value := body.get(name)) is not None and value != default:
            yield Refusal(
                f"Unsupported value: '{name}' does not support {value} with this model. "
                f"Only the default ({default}) value is supported.",
                name,
                "unsupported_value",
            )


# -- the history -----------------------------------------------------------------------------------


def _check_history(body: Json) -> Iterator[Refusal]:
    open_ids: list[str] = []
    for i, m in enumerate(body["messages"]):
        role, where = m.get("role"), f"messages.[{i}]"
        if role not in ("system", "developer", "user", "assistant", "tool"):
            yield Refusal(f"Invalid value: {role!r}.", f"{where}.role", "invalid_value")
        if role == "tool":
            if m.get("tool_call_id") not in open_ids:
                yield Refusal(ORPHAN, f"{where}.role")
                return
            open_ids.remove(m["tool_call_id"])
            continue
        if open_ids:
            yield Refusal(f"{UNANSWERED}{', '.join(open_ids)}", f"{where}.role")
        calls = m.get("tool_calls")
        if calls == []:
            yield Refusal(
                f"Invalid 'messages[{i}].tool_calls': empty array. Expected an array with minimum length 1, "
                "but got an empty array instead.",
                f"messages[{i}].tool_calls",
                "empty_array",
            )
        if m.get("content") is None and not (role == "assistant" and (calls or m.get("refusal"))):
            yield Refusal(f"Invalid value for 'content': expected a string, got null. ({where})", f"{where}.content")
        yield from _check_calls(calls or [], i)
        open_ids = [c["id"] for c in calls or []]
    if open_ids:
        yield Refusal(f"{UNANSWERED}{', '.join(open_ids)}", "messages")


def _check_calls(calls: list[Json], i: int) -> Iterator[Refusal]:
    seen: set[str] = set()
    for n, call in enumerate(calls):
        where = f"messages[{i}].tool_calls[{n}]"
        if not isinstance(call.get("id"), str) or not call["id"]:
            yield Refusal(f"Missing required parameter: '{where}.id'.", f"{where}.id", "missing_required_parameter")
        if call["id"] in seen:
            yield Refusal(f"Duplicate value for 'tool_call_id' of {call['id']} in message[{i}]", f"{where}.id")
        seen.add(call["id"])
        function = call.get("function", {})
        if not isinstance(function.get("arguments"), str):
            yield Refusal(f"Invalid type for '{where}.function.arguments': expected a string.", where, "invalid_type")
        if not NAME.fullmatch(str(function.get("name", ""))):
            yield _bad_name(f"{where}.function.name")


def _bad_name(where: str) -> Refusal:
    return Refusal(
        f"Invalid '{where}': string does not match pattern. Expected a string that matches the pattern "
        "'^[a-zA-Z0-9_-]+$' (at most 64 characters).",
        where,
        "invalid_value",
    )


# -- the schemas -----------------------------------------------------------------------------------


def _check_tools(body: Json) -> Iterator[Refusal]:
    tools = body.get("tools")
    if tools is None:
        return
    if not tools:
        yield Refusal("Invalid 'tools': empty array. Expected an array with minimum length 1.", "tools", "empty_array")
    for i, tool in enumerate(tools):
        function = tool.get("function") or {}
        name = str(function.get("name", ""))
        if not NAME.fullmatch(name):
            yield _bad_name(f"tools[{i}].function.name")
        schema = function.get("parameters")
        if schema is not None:
            for problem in _schema_problems(schema, strict=function.get("strict") is True):
                yield Refusal(
                    f"Invalid schema for function '{name}': {problem}",
                    f"tools[{i}].function.parameters",
                    "invalid_function_parameters",
                )


def _check_response_format(body: Json) -> Iterator[Refusal]:
    """https://platform.openai.com/docs/guides/structured-outputs, "Supported schemas" and "JSON mode"."""
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_object" and not any("json" in text_of(m).lower() for m in body["messages"]):
        yield Refusal(
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
            "messages",
        )
    if wanted.get("type") == "json_schema":
        asked = wanted.get("json_schema") or {}
        name = str(asked.get("name", ""))
        if not NAME.fullmatch(name):
            yield _bad_name("response_format.json_schema.name")
        for problem in _schema_problems(asked.get("schema"), strict=asked.get("strict") is True):
            yield Refusal(f"Invalid schema for response_format '{name}': {problem}", "response_format")


UNSUPPORTED_IN_STRICT = frozenset(("allOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else"))


def _schema_problems(schema: object, *, strict: bool) -> Iterator[str]:
    if not isinstance(schema, dict) or schema.get("type") != "object":
        kind = schema.get("type") if isinstance(schema, dict) else schema
        yield f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
        return
    yield from _part_problems(schema, (), strict=strict)


def _part_problems(schema: Json, context: tuple[str, ...], *, strict: bool) -> Iterator[str]:
    """Walk where schemas stand. ``strict`` asks for closed objects and every property required."""
    properties = schema.get("properties")
    if schema.get("type") == "array" and "items" not in schema:
        yield f"In context={context}, array schema missing items."
    if strict and (schema.get("type") == "object" or properties is not None):
        if schema.get("additionalProperties") is not False:
            yield f"In context={context}, 'additionalProperties' is required to be supplied and to be false."
        required = schema.get("required")
        missing = [key for key in properties or {} if not isinstance(required, list) or key not in required]
        if missing:
            yield (
                f"In context={context}, 'required' is required to be supplied and to be an array including every key "
                f"in properties. Missing '{missing[0]}'."
            )
    for word in schema.keys() & UNSUPPORTED_IN_STRICT if strict else ():
        yield f"In context={context}, '{word}' is not permitted."
    if strict and "default" in schema:
        yield f"In context={context}, 'default' is not permitted."
    for key in ("properties", "$defs", "definitions"):
        for name, part in (schema.get(key) or {}).items():
            yield from _part_problems(part, (*context, key, name), strict=strict)
    for key in ("anyOf", "oneOf", "allOf"):
        for n, part in enumerate(schema.get(key) or []):
            yield from _part_problems(part, (*context, key, str(n)), strict=strict)
    if isinstance(items := schema.get("items"), dict):
        yield from _part_problems(items, (*context, "items"), strict=strict)


CHECKS: tuple[Callable[[Json], Iterator[Refusal]], ...] = (
    _check_parameters,
    _check_tools,
    _check_history,
    _check_response_format,
)


# -- counting and embedding ------------------------------------------------------------------------


def count_prompt(body: Json, count: Callable[[str], int]) -> int:
    """Tokens of a request by OpenAI's own recipe (cookbook, "How to count tokens with tiktoken").

    Three for the frame of each message, three to start the answer; the tools as the JSON that they are.
    """
    total = 3
    for m in body.get("messages", []):
        total += 3 + count(str(m.get("role", ""))) + count(text_of(m))
        for call in m.get("tool_calls") or []:
            total += 3 + count(f"{call['function']['name']} {call['function']['arguments']}")
    for tool in body.get("tools") or []:
        total += count(str(tool.get("function")))
    return total


def embed(text: str, size: int) -> list[float]:
    """A unit vector from hashed words and word pairs: close texts are close, deterministically."""
    words = [w.lower() for w in re.findall(r"\w+", text)] or ["?"]
    vector = [0.0] * size
    for gram in [*words, *map(" ".join, itertools.pairwise(words))]:
        digest = hashlib.blake2b(gram.encode(), digest_size=8).digest()
        vector[int.from_bytes(digest[:4], "big") % size] += 1.0 if digest[4] & 1 else -1.0
    norm = math.sqrt(sum(v * v for v in vector)) or 1.0
    return [v / norm for v in vector]
