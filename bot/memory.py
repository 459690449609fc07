"""What a thread remembers, between the store and the engine."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from adapters.chat import ChatAdapter, Said, ThreadRef
from agent_core.context import Clock, Redactor
from agent_core.llm.tokens import TokenCounter
from agent_core.llm.types import ModelMessage
from agent_core.llm.wire import clean_text, dump_message, load_message
from agent_core.memory.conversation import Conversation, Summary
from agent_core.memory.summarize import summary_message
from bot.question import build_past
from bot.storage.base import Claim, NewMessage, RunRow, Store, SummaryRow

log = structlog.get_logger("hermod.memory")

HISTORY_ROWS = 2_000
"""Newest rows of a thread, after its summary, that are read; the token budget chooses among them."""

PAST_LIMIT = 50
"""Messages of a thread's past that are read."""

PAST_TIMEOUT_S = 10.0
NO_PAST = "(nothing that can be read was said in this thread before)"

MODEL = "model"
"""The author of a summary that no person corrected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedMemory:
    """A thread's conversation as it was loaded; ``seqs`` are the rows of its messages, in order."""

    conversation: Conversation
    seqs: tuple[int, ...]
    loaded: Summary | None

    def build_summary(self, thread_key: str, now: datetime) -> SummaryRow | None:
        """Build the row of a summary that was written since, or None when there is no new one."""
        summary = self.conversation.summary
        if summary is None or summary is self.loaded:
            return None
        return SummaryRow(
            thread_key=thread_key,
            text=summary.text,
            through_seq=self.seqs[summary.covers - 1],
            tokens_before=summary.tokens_before,
            tokens_after=summary.tokens_after,
            author=MODEL,
            updated_at=now,
        )


async def load_memory(store: Store, thread_key: str, counter: TokenCounter) -> LoadedMemory:
    """Load a thread's summary and what was said after it; a row that cannot be read is left out."""
    conversation, seqs = Conversation(counter), list[int]()
    row = await store.load_summary(thread_key)
    for message in await store.load_messages(
        thread_key, limit=HISTORY_ROWS, after_seq=0 if row is None else row.through_seq
    ):
        try:
            conversation.append(load_message(message.body), message.tokens)
            seqs.append(message.seq)
        except ValueError as e:
            log.error("history_row_unreadable", thread=thread_key, seq=message.seq, error=str(e))
    if row is not None and row.text:
        conversation.summary = Summary(
            text=row.text, covers=0, tokens_before=row.tokens_before, tokens_after=row.tokens_after
        )
    return LoadedMemory(conversation=conversation, seqs=tuple(seqs), loaded=conversation.summary)


async def correct_summary(
    store: Store, thread_key: str, text: str, *, author: str, counter: TokenCounter, now: datetime
) -> bool:
    """Replace the text of a thread's summary; an empty one forgets it, and what it stood for is not sent any more.

    Returns:
        False when there is no summary to correct.
    """
    row = await store.load_summary(thread_key)
    if row is None or not row.text:
        return False
    written = Summary(text=text, covers=0)
    tokens = Conversation(counter).count(summary_message(written)) if text else 0
    await store.save_summary(replace(row, text=text, tokens_after=tokens, author=author, updated_at=now))
    return True


async def read_past(
    store: Store,
    adapter: ChatAdapter,
    claim: Claim,
    run: RunRow,
    counter: TokenCounter,
    redactor: Redactor,
    now: datetime,
) -> tuple[Said, ...]:
    """Read once what was said in a thread before Hermod came, into its history; only before a run's first step.

    A try that failed is told in the log, and there are a few of them, one a turn.

    Returns:
        What was read just now.
    """
    found = await store.load_run(run.run_id)
    if found is None or found[1]:
        return ()  # a resumed run has to ask what its first attempt asked
    thread = ThreadRef.parse_key(claim.thread_key)
    said: tuple[Said, ...] = ()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PAST_TIMEOUT_S):
            said = await adapter.fetch_history(thread, limit=PAST_LIMIT)
    if not said:  # at least the message that called Hermod is there
        log.warning("past_not_read", thread=claim.thread_key, tries_left=claim.past_left - 1)
        await store.save_past(claim, run.run_id, None)
        return ()
    clean = [replace(s, text=redactor.redact(clean_text(s.text))) for s in said]
    told = build_past(clean, left_out={item.said_id for item in claim.items}, root=thread.thread)
    message = told or ModelMessage(role="user", content=NO_PAST)
    tokens = Conversation(counter).count(message)
    row = NewMessage(role=message.role, body=dump_message(message), tokens=tokens, created_at=now)
    await store.save_past(claim, run.run_id, row)
    log.info("past_read", thread=claim.thread_key, messages=len(said))
    return said


class StoreOutputs:
    """Whole tool outputs in the store, by thread (``agent_core.context.OutputStore``)."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def put(self, thread_id: str, output_id: str, text: str) -> None:
        """Keep ``text``."""
        await self._store.save_output(thread_id, output_id, text, self._clock.now())

    async def get(self, thread_id: str, output_id: str) -> str | None:
        """Return the text, or None."""
        return await self._store.load_output(thread_id, output_id)
