"""Choose what of a conversation goes into a request, by tokens and on whole exchanges.

An exchange begins with the user messages that opened a turn and ends before the next turn's. What the tools returned
is the bulk of it and ages fastest, so it gives way first: earlier exchanges that do not fit whole are kept as what was
said in them, and results of the current one are shortened before any of them is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent_core.llm.tokens import MESSAGE_OVERHEAD
from agent_core.llm.types import ModelMessage
from agent_core.memory.conversation import Conversation
from agent_core.tools.results import cap_text

SAID_SHARE = 4
"""At most the fourth part of the budget is kept free of tool results for what was said earlier."""

RESULT_FLOOR_TOKENS = 400
"""No result is shortened below this; where even that is too much, the oldest tool rounds are left out."""


def select_window(
    conversation: Conversation, budget_tokens: int, asked_at: int | None = None
) -> tuple[ModelMessage, ...]:
    """Return what fits into ``budget_tokens``, oldest first: the same for the same conversation and budget.

    The current exchange (that of the question at ``asked_at``; by default the last one) is always there with its
    question, its newest tool round and what was said since; where it alone is too large, its results are shortened, and
    then its oldest rounds left out. The newest earlier exchanges are whole; the others, as far as they fit, without
    their tool rounds. Costs as much as the window is long, however long the thread is. Messages that a summary stands
    for are not there; the summary is the caller's to send.
    """
    messages, tokens, first = conversation.messages, conversation.tokens, conversation.covers
    if conversation.live_tokens <= budget_tokens:
        return tuple(messages[first:])
    if conversation.summary is not None:
        budget_tokens -= conversation.summary.tokens_after
    current = max(start_of_exchange(messages, len(messages) if asked_at is None else asked_at + 1), first)
    room = budget_tokens - _cost_of_said(messages, tokens, (first, current), budget_tokens // SAID_SHARE)
    used = sum(tokens[current:])
    newest: Sequence[ModelMessage] = messages[current:]
    if used > room:
        newest, used = _shorten_exchange(newest, tokens[current:], room)
    earlier: list[int] = []
    start, whole = current, True
    while start > first:
        begin = max(start_of_exchange(messages, start), first)
        kept: Iterable[int] = range(begin, start)
        whole = whole and used + sum(tokens[begin:start]) <= budget_tokens
        if not whole:
            kept = _said(messages, begin, start)
        cost = sum(tokens[n] for n in kept)
        if used + cost > budget_tokens:
            break
        earlier[:0] = kept
        start, used = begin, used + cost
    return (*(messages[n] for n in earlier), *newest)


def start_of_exchange(messages: Sequence[ModelMessage], end: int) -> int:
    """Index of the first user message of the exchange that ends before ``end``; 0 when there is none."""
    position = end - 1
    while position > 0 and messages[position].role != "user":
        position -= 1
    while position > 0 and messages[position - 1].role == "user":
        position -= 1
    return max(position, 0)


def _said(messages: Sequence[ModelMessage], begin: int, end: int) -> list[int]:
    """Positions of the questions and answers of an exchange, its tool rounds left out."""
    return [n for n in range(begin, end) if messages[n].role != "tool" and not messages[n].tool_calls]


def _cost_of_said(messages: Sequence[ModelMessage], tokens: Sequence[int], span: tuple[int, int], most: int) -> int:
    """Tokens of what was said in ``span``, the newest exchanges first, as far as it is at most ``most``."""
    total, (first, end) = 0, span
    while end > first:
        begin = max(start_of_exchange(messages, end), first)
        cost = sum(tokens[n] for n in _said(messages, begin, end))
        if total + cost > most:
            break
        end, total = begin, total + cost
    return total


def _shorten_exchange(
    messages: Sequence[ModelMessage], tokens: Sequence[int], room: int
) -> tuple[tuple[ModelMessage, ...], int]:
    """Keep the question and the newest tool rounds of one exchange, with results shortened to fit ``room``.

    Returns:
        The messages, and their tokens (of a shortened result about).
    """
    end = len(messages)
    head = next((n for n, m in enumerate(messages) if m.role != "user"), end)
    least = [min(t, RESULT_FLOOR_TOKENS) if m.role == "tool" else t for m, t in zip(messages, tokens, strict=True)]
    used, start, answered = sum(tokens[:head]), end, False
    for begin in (n for n in reversed(range(head, end)) if messages[n].role != "tool" or n == head):
        cost = sum(least[begin:start])
        if answered and used + cost > room:
            break
        start, used, answered = begin, used + cost, answered or bool(messages[begin].tool_calls)
    kept = [*range(head), *range(start, end)]
    results = [n for n in kept if messages[n].role == "tool"]
    cap = _share(room - sum(tokens[n] for n in kept if messages[n].role != "tool"), [tokens[n] for n in results])
    costs = {n: min(tokens[n], cap) if messages[n].role == "tool" else tokens[n] for n in kept}
    return tuple(_cut(messages[n], costs[n], tokens[n]) for n in kept), sum(costs.values())


def _share(room: int, sizes: Sequence[int]) -> int:
    """The largest size at which all ``sizes``, each cut to it, fit into ``room``; never under the floor."""
    for n, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - n)
        if size > share:
            return max(share, RESULT_FLOOR_TOKENS)
        room -= size
    return max(sizes, default=0)


def _cut(message: ModelMessage, cost: int, tokens: int) -> ModelMessage:
    if cost >= tokens:
        return message
    share = (cost - MESSAGE_OVERHEAD) / (tokens - MESSAGE_OVERHEAD)
    content, _ = cap_text(message.content, int(len(message.content) * share))
    return replace(message, content=content)
