"""The history of one thread in memory: append-only, each message counted once."""

from __future__ import annotations

from collections.abc import Iterable

from agent_core.llm.tokens import MESSAGE_OVERHEAD, TokenCounter
from agent_core.llm.types import ModelMessage


class Conversation:
    """Messages of a thread with their token counts.

    Nothing is ever changed or removed; what goes into a request is chosen by ``memory.budget``. One run uses a
    conversation at a time.

    Args:
        counter: counts the tokens of messages that come without a count.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._messages: list[ModelMessage] = []
        self._tokens: list[int] = []
        self._total = 0

    @property
    def messages(self) -> list[ModelMessage]:
        """The messages, oldest first. Not to be changed by the reader."""
        return self._messages

    @property
    def tokens(self) -> list[int]:
        """The token count of each message. Not to be changed by the reader."""
        return self._tokens

    @property
    def total_tokens(self) -> int:
        """Tokens of all messages together."""
        return self._total

    def count(self, message: ModelMessage) -> int:
        """Tokens that ``message`` takes in a request, its frame included."""
        counted = self._counter.count(message.content) if message.content else 0
        for call in message.tool_calls:
            counted += MESSAGE_OVERHEAD + self._counter.count(f"{call.name} {call.arguments}")
        if message.speaker:
            counted += self._counter.count(message.speaker) + 1
        return counted + MESSAGE_OVERHEAD

    def append(self, message: ModelMessage, tokens: int | None = None) -> None:
        """Add the newest message; ``tokens`` is its count when it is known already (from the store)."""
        counted = self.count(message) if tokens is None else tokens
        self._messages.append(message)
        self._tokens.append(counted)
        self._total += counted

    def extend(self, messages: Iterable[ModelMessage]) -> None:
        """Add several messages, oldest first."""
        for message in messages:
            self.append(message)

    def __len__(self) -> int:
        return len(self._messages)
