"""The history of one thread in memory: append-only, each message counted once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent_core.llm.tokens import MESSAGE_OVERHEAD, EstimatingCounter, TokenCounter
from agent_core.llm.types import ModelMessage, ToolSpec

STAMP_TOKENS = 18
"""Of the instant before a message: ``(Mon 2026-03-02 09:15 UTC)`` has 16 with the encodings known here."""

RECENT_TEXTS = 64
"""Of so many texts that are not in the history (instructions, tools, the newest answer) the count is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What stands for the first ``covers`` messages of a conversation in every later request.

    Args:
        text: the summary, as the model wrote it or a person corrected it.
        covers: number of messages, counted from the conversation's first, that it stands for.
        tokens_before, tokens_after: tokens of these messages, and of the summary's message.
    """

    text: str
    covers: int
    tokens_before: int = 0
    tokens_after: int = 0


class Conversation:
    """Messages of a thread with their token counts, and perhaps a summary of the oldest ones.

    No message is ever changed or removed; what goes into a request is chosen by ``memory.budget``. One run uses a
    conversation at a time.

    Args:
        counter: counts the tokens of messages that come without a count; by default an estimate (``load_counter`` is
            exact).
    """

    def __init__(self, counter: TokenCounter | None = None) -> None:
        self._counter = counter or EstimatingCounter()
        self._messages: list[ModelMessage] = []
        self._tokens: list[int] = []
        self._total = 0
        self._summary: Summary | None = None
        self._covered = 0
        self._known: dict[str, int] = {}

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

    @property
    def summary(self) -> Summary | None:
        """What stands for the oldest messages, or None. Replaced whole: by a longer one, a corrected one, or None."""
        return self._summary

    @summary.setter
    def summary(self, summary: Summary | None) -> None:
        self._summary = summary
        self._covered = 0 if summary is None else sum(self._tokens[: summary.covers])

    @property
    def covers(self) -> int:
        """Number of messages that the summary stands for."""
        return 0 if self._summary is None else self._summary.covers

    @property
    def live_tokens(self) -> int:
        """Tokens of what a request would hold without any trimming: the summary and the messages after it."""
        return self._total - self._covered + (0 if self._summary is None else self._summary.tokens_after)

    def count(self, message: ModelMessage) -> int:
        """Tokens that ``message`` takes in a request, its frame included; at most one call of the tokenizer."""
        frames, text = _measure(message)
        return frames + self._count_text(text)

    def count_request(self, messages: Sequence[ModelMessage], tools: Sequence[ToolSpec] = ()) -> int:
        """Tokens of a request; messages of this conversation are not counted again, tools only about.

        Vendors render tools in a way of their own, so only the answer's usage is exact.
        """
        own = {id(m): tokens for m, tokens in zip(self._messages, self._tokens, strict=True)}
        described = [f"{t.name} {t.description} {json.dumps(dict(t.parameters))}" for t in tools]
        return sum(own.get(id(m)) or self.count(m) for m in messages) + sum(map(self._count_text, described))

    def _count_text(self, text: str) -> int:
        """Count a text and remember it: it may be asked for again, or join the history."""
        if (tokens := self._known.get(text)) is None:
            while len(self._known) >= RECENT_TEXTS:
                del self._known[next(iter(self._known))]
            tokens = self._known[text] = self._counter.count(text) if text else 0
        return tokens

    def append(self, message: ModelMessage, tokens: int | None = None) -> None:
        """Add the newest message; ``tokens`` is its count when it is known already (from the store)."""
        counted = tokens
        if counted is None:
            frames, text = _measure(message)
            known = self._known.pop(text, None)
            counted = frames + (self._counter.count(text) if text and known is None else known or 0)
        self._messages.append(message)
        self._tokens.append(counted)
        self._total += counted

    def extend(self, messages: Iterable[ModelMessage]) -> None:
        """Add several messages, oldest first."""
        for message in messages:
            self.append(message)

    def __len__(self) -> int:
        return len(self._messages)


def _measure(message: ModelMessage) -> tuple[int, str]:
    """Return the tokens of a message's frames, and the text that is to be counted."""
    parts = [message.content] if message.content else []
    parts += [f"{call.name} {call.arguments}" for call in message.tool_calls]
    frames = MESSAGE_OVERHEAD * (1 + len(message.tool_calls))
    if message.speaker:
        parts.append(f"[{message.speaker}]")
    if message.at is not None:
        frames += STAMP_TOKENS
    return frames, "\n".join(parts)
