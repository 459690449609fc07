"""The one function that makes any history fit to send.

Chat models refuse a history in which a tool call has no result, a result has no call, or something stands
between them. Whatever trimmed, summarised, cancelled or killed a run, ``make_sendable`` is applied before every
request, so that no thread can be left in a state that a model will never accept again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent_core.llm.types import ModelMessage, ToolCall

INTERRUPTED = (
    '{"ok":false,"error":{"code":"interrupted","message":"The call was interrupted; no result was recorded."}}'
)
"""What stands in for the result of a call that has none."""

EMPTY_USER = "(empty message)"


def is_sendable(messages: Sequence[ModelMessage]) -> bool:
    """Tell whether ``messages`` can be sent as they are. Linear, without copying."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            if not waiting or message.tool_call_id != waiting[0]:
                return False
            waiting.pop(0)
            continue
        if waiting or (not message.content and not message.tool_calls):
            return False
        if message.tool_calls:
            waiting = [call.id for call in message.tool_calls]
            if message.role != "assistant" or len(set(waiting)) != len(waiting) or not all(waiting):
                return False
    return bool(messages) and not waiting


def make_sendable(messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Return a history in which each tool call has exactly one result, directly after it and in its order.

    A valid history comes back unchanged. Otherwise results move up to their calls, calls without a result get
    ``INTERRUPTED``, results without a call and second results are left out, a repeated id inside one message is
    renamed, empty assistant messages are left out and empty user messages say so. A call with its result is never
    left out.
    """
    if is_sendable(messages):
        return tuple(messages)
    unique = [_with_unique_ids(m) if m.tool_calls else m for m in messages]
    results = _match_results(messages, unique)
    sendable: list[ModelMessage] = []
    for position, message in enumerate(unique):
        if message.role == "tool":
            continue
        if message.tool_calls and message.role == "assistant":
            sendable.append(message)
            sendable.extend(
                results.get((position, call.id), ModelMessage(role="tool", content=INTERRUPTED, tool_call_id=call.id))
                for call in message.tool_calls
            )
        elif message.content:
            sendable.append(replace(message, tool_calls=()) if message.tool_calls else message)
        elif message.role == "user":
            sendable.append(replace(message, content=EMPTY_USER))
    return tuple(sendable)


def _with_unique_ids(message: ModelMessage) -> ModelMessage:
    seen: set[str] = set()
    calls: list[ToolCall] = []
    for n, call in enumerate(message.tool_calls):
        name = call.id or f"call_{n}"
        while name in seen:
            name = f"{name}_{n}"
        seen.add(name)
        calls.append(call if name == call.id else replace(call, id=name))
    return replace(message, tool_calls=tuple(calls))


def _match_results(
    messages: Sequence[ModelMessage], unique: Sequence[ModelMessage]
) -> dict[tuple[int, str], ModelMessage]:
    """Find each call's result: the first one with its id that follows it, the nearest message's calls first.

    ``messages`` has the ids as they were written, ``unique`` as they will be sent; keys are position and sent id.
    """
    found: dict[tuple[int, str], ModelMessage] = {}
    unanswered: dict[str, list[tuple[int, str]]] = {}
    for position, message in enumerate(messages):
        if message.role == "assistant":
            # reversed, because the last entry is taken first: inside one message the results come in order
            for call, sent in reversed(list(zip(message.tool_calls, unique[position].tool_calls, strict=True))):
                unanswered.setdefault(call.id, []).append((position, sent.id))
        elif message.role == "tool" and (waiting := unanswered.get(message.tool_call_id or "")):
            at, sent_id = waiting.pop()
            found[at, sent_id] = replace(message, content=message.content or "{}", tool_call_id=sent_id)
    return found
