"""What a turn came to, and the rows that this makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog
from pydantic_core import to_json

from adapters.chat import Action, Attachment, Command, Message, Stop
from agent_core.errors import ModelFailed
from agent_core.llm.wire import dump_message
from agent_core.memory.conversation import Conversation
from agent_core.observe import trace_as_data
from agent_core.runtime.keeping import CACHE
from agent_core.runtime.state import RunRecord, RunState
from bot.jobs.sequel import has_posts
from bot.models import count
from bot.question import build_question
from bot.storage.base import NewMessage, NewOutboxItem, RunOutcome, SummaryRow, UsageRow
from bot.turn import Turn

log = structlog.get_logger("hermod.answer")

STOPPED = "Stopped."
LEFT = "{count} will not be answered."
KNOWN = "What the tools returned until then:"
KNOWN_LINES = 6
KNOWN_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The text to post, and what is kept of the run.

    Args:
        text: for the thread; empty where nothing is to be said.
        error: the stable word of what ended it early; empty when it was answered.
        reason: a line about that, or about what is missing, for whoever looks at runs; empty: what the record says.
        record: of the run, None where nothing was run.
        messages: join the thread's history.
        author: who is charged for it.
        summary: replaces the thread's, where the run wrote one.
        answered: further open rows of the inbox that this answers.
        files: go along with the text.
        private: for the one who gave the command or pressed the button only.
        private_to, respond_to, feedback: see ``adapters.chat.Reply``; ``address_answer`` fills them.
        sequel: what follows in the thread of the text once that is posted (``bot.jobs.sequel``); empty: nothing.
    """

    text: str
    error: str = ""
    record: RunRecord | None = None
    messages: tuple[NewMessage, ...] = ()
    author: str = ""
    summary: SummaryRow | None = None
    answered: tuple[int, ...] = ()
    files: tuple[Attachment, ...] = ()
    private: bool = False
    private_to: str = ""
    respond_to: str = ""
    feedback: str = ""
    sequel: str = ""
    reason: str = ""


def address_answer(answer: Answer, turn: Turn, run_id: str) -> Answer:
    """Say for whom an answer is, and how it gets there; what a run found can be rated, at the end of its last post.

    A pressed button is acknowledged to the one who pressed it, a stop sign only where the platform tells how; what it
    ended is everybody's. A refused command is nobody else's business.
    """
    first = turn.inbound[0] if turn.inbound else None
    respond_to = first.respond_to if isinstance(first, Command | Action | Stop) else ""
    hidden = (
        isinstance(first, Action)
        or (isinstance(first, Command) and answer.error == "denied")
        or (isinstance(first, Stop) and bool(respond_to) and len(turn.inbound) == 1)
    )
    found = answer.record is not None and bool(answer.record.answer) and answer.error != "cancelled"
    return replace(
        answer,
        private_to=first.author.id if first is not None and (answer.private or hidden) else "",
        respond_to=respond_to,
        feedback=run_id if found and not has_posts(answer.sequel) else "",
    )


def build_answer(record: RunRecord) -> Answer:
    """Turn the end of a run into an answer: what it found, and what ended it early; the log tells of failed models."""
    _log_failures(record)
    error = record.error
    if error is None:
        text = record.answer
    elif record.answer:
        text = f"{record.answer}\n\n(run {record.run_id}, ended by {error.kind})"
    else:
        text = f"I could not answer: {error}. (run {record.run_id})"
    kind = "" if record.state is RunState.FINISHED else "failed" if error is None else error.kind
    return Answer(text=text, error=kind, record=record)


def _log_failures(record: RunRecord) -> None:
    """Tell operators of models that failed, also where another one answered and nobody noticed."""
    for step in record.steps:
        # what an open breaker kept from being asked is no news; why it opened was told before
        if failures := [line for line in step.failures if "not asked (" not in line]:
            log.info("model_fell_back", run_id=record.run_id, provider=step.provider, failures=failures)
    if isinstance(record.error, ModelFailed):
        log.info("model_failed", run_id=record.run_id, reason=str(record.error))


def build_stopped(record: RunRecord | None, said: str, waiting: int) -> str:
    """Write the answer of a run that a person stopped: what is known so far, and what will not be answered."""
    parts = [said.rstrip()] if said.strip() else []
    parts.append(STOPPED if not waiting else f"{STOPPED} {LEFT.format(count=count(waiting, 'waiting message'))}")
    found = [step for step in (() if record is None else record.steps) if step.kind == "tool" and step.ok]
    if found and not said:
        lines = [f"- {step.name}: `{_shorten(step.detail).replace('`', chr(39))}`" for step in found[-KNOWN_LINES:]]
        parts.append("\n".join([KNOWN, *lines]))
    return "\n\n".join(parts)


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= KNOWN_CHARS else f"{text[:KNOWN_CHARS]}…"


def build_messages(
    conversation: Conversation, known: int, now: datetime, said: Sequence[Message] = ()
) -> tuple[NewMessage, ...]:
    """Build the history rows of what a run added: everything after the first ``known`` messages.

    ``said`` are the chat messages that the run was asked; each one's id goes with its row.
    """
    ids: dict[tuple[str, datetime | None], list[str]] = {}
    for message, asked in zip(said, build_question(said), strict=True):
        ids.setdefault((asked.speaker or "", asked.at), []).append(message.id)
    rows: list[NewMessage] = []
    for m, tokens in zip(conversation.messages[known:], conversation.tokens[known:], strict=True):
        mine = ids.get((m.speaker or "", m.at), []) if m.role == "user" else []
        said_id = mine.pop(0) if mine else ""
        rows.append(NewMessage(role=m.role, body=dump_message(m), tokens=tokens, created_at=now, said_id=said_id))
    return tuple(rows)


def find_reason(answer: Answer) -> str:
    """Return the line about what a run did not come to: the answer's own, or that of its record; empty: all is well."""
    if answer.reason or answer.record is None or answer.record.error is None:
        return answer.reason
    return str(answer.record.error)


def build_outcome(answer: Answer, thread_key: str, outbox: Sequence[NewOutboxItem], now: datetime) -> RunOutcome:
    """Build everything that the end of a run changes in the store."""
    record = answer.record
    return RunOutcome(
        state="error" if answer.error else "finished",
        error=answer.error,
        reason=_shorten(answer.reason),
        record="" if record is None else to_json(trace_as_data(record)).decode(),
        ended_at=now,
        messages=answer.messages,
        summary=answer.summary,
        answered=answer.answered,
        outbox=tuple(outbox),
        sequel=answer.sequel,
        usage=() if record is None else build_usage_rows(record, thread_key, answer.author, now),
    )


def build_usage_rows(record: RunRecord, thread_key: str, author: str, now: datetime) -> tuple[UsageRow, ...]:
    """Sum a run's model steps up by provider and model."""
    rows: dict[tuple[str, str], UsageRow] = {}
    for step in record.steps:
        if step.usage is None or step.provider == CACHE:
            continue
        key = (step.provider, step.name)
        row = rows.get(key) or UsageRow(
            run_id=record.run_id,
            thread_key=thread_key,
            author=author,
            provider=step.provider,
            model=step.name,
            requests=0,
            input_tokens=0,
            output_tokens=0,
            cost_usd=0.0,
            at=now,
        )
        rows[key] = replace(
            row,
            requests=row.requests + step.usage.requests,
            input_tokens=row.input_tokens + step.usage.input_tokens,
            output_tokens=row.output_tokens + step.usage.output_tokens,
            cached_input_tokens=row.cached_input_tokens + step.usage.cached_input_tokens,
            cache_write_tokens=row.cache_write_tokens + step.usage.cache_write_tokens,
            cost_usd=None if row.cost_usd is None or step.cost_usd is None else row.cost_usd + step.cost_usd,
        )
    return tuple(rows.values())
