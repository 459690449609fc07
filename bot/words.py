"""Words that a person gives Hermod about the thread itself: answered without any model.

They begin with ``!``, such as ``!summary``; ``confirm`` and ``cancel`` answer what waits for a person's word there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from adapters.chat import Message
from agent_core.context import Clock
from agent_core.llm.router import ProviderState
from agent_core.llm.tokens import TokenCounter
from bot.forget import ThreadMemory
from bot.jobs.desk import Asking
from bot.jobs.proposals import Decision, read_decision
from bot.memory import MODEL, correct_summary
from bot.models import describe_state
from bot.storage.base import Store

HELP = """Words about this thread:
- `!summary` shows what I keep of its older messages
- `!summary TEXT` corrects that, `!summary forget` drops it
- `!memory` shows what I keep of all that was said and found here, `!forget` drops it
- `!providers` shows how the models are doing
- `!stop` ends what I am doing here, and what waits
- `!steer TEXT` tells me something about what I am doing, while I do it
- `confirm` or `cancel` answers what I proposed to you about a scheduled job"""
NO_SUMMARY = "This thread has no summary: it is short enough to be read whole."
DROPPED = (
    "This thread has no summary: it was dropped, and the first {through} messages are not sent to the model any more."
)


WORDS = frozenset({"!summary", "!memory", "!forget", "!providers", "!help"})


def is_word(message: Message) -> bool:
    """Tell whether a message is such a word: it is answered alone, and no model ever reads it."""
    return message.text.strip().partition(" ")[0].lower() in WORDS or read_decision(message.text) is not None


class Decides(Protocol):
    """Who does what waits to be confirmed (``bot.jobs.desk.JobDesk``)."""

    async def decide(self, asking: Asking, decision: Decision) -> str | None:
        """Do it, or drop it, and say so; None when nothing waits for this person there."""
        ...


class ThreadWords:
    """Answers such words.

    Args:
        store: where the thread's memory is.
        counter: counts the tokens of a corrected summary.
        states: how the providers are doing.
        clock: time.
        memory: shows and drops all that is kept of a thread.
        jobs: has what waits to be confirmed; None where there are no jobs.
    """

    def __init__(
        self,
        store: Store,
        counter: Callable[[], Awaitable[TokenCounter]],
        states: Callable[[], Sequence[ProviderState]],
        clock: Clock,
        *,
        memory: ThreadMemory,
        jobs: Decides | None = None,
    ) -> None:
        self._store = store
        self._memory = memory
        self._jobs = jobs
        self._counter = counter
        self._states = states
        self._clock = clock

    async def answer(self, message: Message) -> str | None:
        """Return the answer to a message that is such a word, else None: anything else is a question.

        ``confirm`` is one only where something waits, for that person or for another one, who is named then.
        """
        word, _, rest = message.text.strip().partition(" ")
        key, rest = message.thread.key, rest.strip()
        match word.lower():
            case "!summary" if not rest:
                return await self._show(key)
            case "!summary":
                text = "" if rest.lower() == "forget" else rest
                return await self._correct(key, text, f"{message.thread.platform}:{message.author.id}")
            case "!memory" | "!forget" as asked:
                shows = asked == "!memory"
                return await (self._memory.show(key) if shows else self._memory.forget(message.thread, message.author))
            case "!providers":
                return "\n".join(f"- {describe_state(state)}" for state in self._states())
            case "!help":
                return HELP
            case _:
                return await self._decide(message)

    async def _decide(self, message: Message) -> str | None:
        decision = read_decision(message.text)
        if decision is None or self._jobs is None:
            return None
        return await self._jobs.decide(Asking(thread=message.thread, author=message.author), decision)

    async def _show(self, key: str) -> str:
        row = await self._store.load_summary(key)
        if row is None:
            return NO_SUMMARY
        if not row.text:
            return DROPPED.format(through=row.through_seq)
        who = "by a model" if row.author == MODEL else f"by {row.author}"
        return (
            f"Summary of the first {row.through_seq} messages, written {who} at {row.updated_at:%Y-%m-%d %H:%M} UTC "
            f"({row.tokens_before} tokens became {row.tokens_after}):\n\n{row.text}\n\n"
            "`!summary TEXT` corrects it, `!summary forget` drops it."
        )

    async def _correct(self, key: str, text: str, author: str) -> str:
        now = self._clock.now()
        if not await correct_summary(self._store, key, text, author=author, counter=await self._counter(), now=now):
            return await self._show(key)
        return (
            "Corrected; from now on I go by your text." if text else "Dropped; what it stood for is not sent any more."
        )
