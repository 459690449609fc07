"""Choose what of a conversation goes into a request, by tokens and on whole exchanges.

An exchange begins with the user messages that opened a turn and ends before the next turn's. Older exchanges are left
out whole, so that no question stands without its answer and no tool result without its call.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_core.llm.types import ModelMessage
from agent_core.memory.conversation import Conversation


def select_window(conversation: Conversation, budget_tokens: int) -> tuple[ModelMessage, ...]:
    """Return the newest messages that fit into ``budget_tokens``, oldest first.

    The current exchange (the last one) is always there with its question; where it alone is too large, its
    oldest tool rounds are left out. Costs as much as the window is long, however long the thread is.
    """
    messages, tokens = conversation.messages, conversation.tokens
    if conversation.total_tokens <= budget_tokens:
        return tuple(messages)
    current = _start_of_exchange(messages, len(messages))
    used = sum(tokens[current:])
    if used > budget_tokens:
        return _shorten_exchange(messages[current:], tokens[current:], budget_tokens)
    start = current
    while start > 0:
        earlier = _start_of_exchange(messages, start)
        cost = sum(tokens[earlier:start])
        if used + cost > budget_tokens:
            break
        start, used = earlier, used + cost
    return tuple(messages[start:])


def _start_of_exchange(messages: Sequence[ModelMessage], end: int) -> int:
    """Index of the first user message of the exchange that ends before ``end``; 0 when there is none."""
    position = end - 1
    while position > 0 and messages[position].role != "user":
        position -= 1
    while position > 0 and messages[position - 1].role == "user":
        position -= 1
    return max(position, 0)


def _shorten_exchange(
    messages: Sequence[ModelMessage], tokens: Sequence[int], budget_tokens: int
) -> tuple[ModelMessage, ...]:
    """Keep the question and the newest tool rounds of one exchange; the newest round stays in any case."""
    head = 0
    while head < len(messages) and messages[head].role == "user":
        head += 1
    rounds = [n for n in range(head, len(messages)) if messages[n].role in ("assistant", "user")] or [head]
    used = sum(tokens[:head])
    end = len(messages)
    start = end
    for begin in reversed(rounds):
        cost = sum(tokens[begin:start])
        if start < end and used + cost > budget_tokens:
            break
        start, used = begin, used + cost
    return (*messages[:head], *messages[start:])
