"""What OpenAI refuses, and the stand-ins for its tokenizer and embedding model."""

from __future__ import annotations

import hashlib
import itertools
import math
import re

from tests.servers.openai.script import Json


def protocol_breach(body: Json) -> str | None:
    """The reason OpenAI would refuse this conversation, or None."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "Invalid 'messages': empty array. Expected an array with minimum length 1."
    names = [str(t.get("function", {}).get("name", "")) for t in body.get("tools") or []]
    for name in names:
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
            return f"Invalid 'tools[].function.name': {name!r} does not match ^[a-zA-Z0-9_-]+$ (at most 64 characters)."
    if "tools" in body and not names:
        return "Invalid 'tools': empty array. Expected an array with minimum length 1."
    open_ids: set[str] = set()
    for i, m in enumerate(messages):
        role = m.get("role")
        if role not in ("system", "developer", "user", "assistant", "tool"):
            return f"Invalid value for 'messages[{i}].role': {role!r}."
        if role == "tool":
            if m.get("tool_call_id") not in open_ids:
                return (
                    f"Invalid parameter: messages[{i}] with role 'tool' must be a response to a preceding message "
                    "with 'tool_calls'."
                )
            open_ids.discard(m["tool_call_id"])
            continue
        if open_ids:
            return (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. Missing: {sorted(open_ids)}"
            )
        if role == "assistant":
            calls = m.get("tool_calls")
            if calls == []:
                return f"Invalid 'messages[{i}].tool_calls': empty array."
            if m.get("content") is None and not calls:
                return f"Invalid value for 'messages[{i}].content': expected a string, got null."
            for c in calls or []:
                if not isinstance(c.get("function", {}).get("arguments"), str):
                    return f"Invalid type for 'messages[{i}].tool_calls[].function.arguments': expected a string."
                open_ids.add(c["id"])
        elif m.get("content") is None:
            return f"Invalid value for 'messages[{i}].content': expected a string, got null."
    if open_ids:
        return (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. Missing: {sorted(open_ids)}"
        )
    return None


def embed(text: str, size: int) -> list[float]:
    """A unit vector from hashed words and word pairs: close texts are close, deterministically."""
    words = [w.lower() for w in re.findall(r"\w+", text)] or ["?"]
    vector = [0.0] * size
    for gram in [*words, *map(" ".join, itertools.pairwise(words))]:
        digest = hashlib.blake2b(gram.encode(), digest_size=8).digest()
        vector[int.from_bytes(digest[:4], "big") % size] += 1.0 if digest[4] & 1 else -1.0
    norm = math.sqrt(sum(v * v for v in vector)) or 1.0
    return [v / norm for v in vector]
