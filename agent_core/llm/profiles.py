"""What single models accept: data, and how a refusal teaches more of it.

A body is built with a vendor's ordinary names; amendments then rename a parameter (a text), leave it out (None) or add
one (an object). Sources: OpenAI, "Reasoning models"; Anthropic, "Migration guide" (no sampling parameters since 4.7);
DeepSeek, "Thinking Mode".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent_core.llm.vendor_wire import Json

Amendments = Mapping[str, str | Json | None]

_REASONING: Amendments = {"max_tokens": "max_completion_tokens", "temperature": None}
PROFILES: tuple[tuple[re.Pattern[str], Amendments], ...] = (
    (re.compile(r"(^|[/.:@])(o[1-9]\d?|gpt-[5-9])(?![a-z0-9])"), _REASONING),
    (re.compile(r"(^|[/.:@])claude-[a-z]+-(4[-.][7-9]|[5-9])(?!\d)"), {"temperature": None}),
)
"""The first pattern that is found in a model's name counts. It may have a prefix (``azure/``) and a date behind it."""

_HEALABLE = re.compile(
    r"\b(max_tokens|max_completion_tokens|temperature|parallel_tool_calls|stream_options|tool_choice)\b"
)  # without these the same question can still be asked
_RENAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_NOT_TAKEN = re.compile(
    r"unsupported|not support|n't support|deprecat|unrecogni[sz]ed|unknown|unexpected|extra (inputs|fields)"
    r"|not permitted|not allowed|may not be|may only|only .{0,20}default|not compatible|cannot be used",
    re.IGNORECASE,
)
_REASONING_WANTED = re.compile(r"reasoning_content.*passed back|missing .?reasoning_content|expected .?thinking", re.I)


def find_profile(model: str) -> Amendments:
    """Return the amendments that ``model`` is known to need, empty for an ordinary one."""
    name = model.lower()
    return next((amendments for pattern, amendments in PROFILES if pattern.search(name)), {})


def amend(body: Json, amendments: Amendments) -> Json:
    """Change ``body`` in place as the amendments say, and return it."""
    for key, change in amendments.items():
        if isinstance(change, dict):
            body[key] = change
        elif key in body:
            value = body.pop(key)
            if change is not None:
                body.setdefault(change, value)
            elif key == "tool_choice" and value in ("none", {"type": "none"}):
                body.pop("tools", None)  # without the choice they would be open again
    return body


def find_amendment(body: Json, known: Amendments, said: str) -> Amendments:
    """Read from a refusal the one change with which the same question can be asked again; empty when there is none.

    ``body`` was sent, amended by ``known``; ``said`` is what the server names (code, parameter), then its message.
    """
    if "thinking" not in known and _REASONING_WANTED.search(said):
        return {"thinking": {"type": "disabled"}}  # the history keeps no reasoning, so the model has to do without it
    refused = next((m[1] for m in _HEALABLE.finditer(said) if m[1] in body), None)
    if refused is None or not _NOT_TAKEN.search(said):
        return {}
    other = _RENAMES.get(refused)
    return {refused: None if other in known else other}
