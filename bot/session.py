"""One turn of a thread: its open messages become a run, and the run becomes an answer."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import structlog
from pydantic_core import to_json

from adapters.chat import ChatAdapter, Command, Inbound, Message, ThreadRef
from agent_core.agent import Agent
from agent_core.context import Clock, Limits, Redactor, RunContext, StepState
from agent_core.llm.tokens import TokenCounter
from agent_core.llm.types import ModelMessage
from agent_core.llm.wire import dump_message, load_message
from agent_core.memory.conversation import Conversation
from agent_core.observe import trace_as_data
from agent_core.prompts import PromptTemplate
from agent_core.runtime.events import EventSink, RunEvent
from agent_core.runtime.loop import AgentLoop
from agent_core.runtime.state import RunRecord, RunState
from bot.access import Access, Caller
from bot.commands import CommandRunner
from bot.messages import load_inbound
from bot.presenter import Sender, Status, build_reply_rows
from bot.storage.base import (
    Claim,
    InboxItem,
    InboxState,
    NewMessage,
    RunOutcome,
    RunRow,
    Store,
    UsageRow,
)
from bot.storage.journal import StoreJournal

log = structlog.get_logger("hermod.session")

MAX_MESSAGE_CHARS = 16_000
"""A longer message is answered with a request to shorten it: it would push the whole thread out of memory."""

HISTORY_ROWS = 400
"""Newest rows of a thread that are read; the token budget chooses among them."""

MAX_ATTEMPTS = 5
"""A run that took its process down this often without finishing a step is ended with a visible failure."""

EMPTY = (
    "You mentioned me without a question. Ask, for example: *which queries were slow in the last 30 minutes?* "
    "I answer in this thread and remember it."
)
TOO_LONG = (
    "Your message has {length:,} characters; I read up to {limit:,}. Please send the part that matters, "
    "or put the rest into a file that a tool can read."
)
GAVE_UP = "I could not finish this: the process stopped {attempts} times while working on it. (run {run_id})"
STOPPED = "Stopped."
CRASHED = "Something in me broke while I worked on this; the details are in my log. (run {run_id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What the tools of a run can know of who asked: every author of the turn, and where."""

    thread: ThreadRef
    callers: tuple[Caller, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a turn came to: the text to post, and what is kept of it."""

    text: str
    state: RunState
    error: str = ""
    record: RunRecord | None = None
    messages: tuple[NewMessage, ...] = ()
    author: str = ""


class EventTap(Protocol):
    """Somebody who follows runs beside the chat platform (the console)."""

    def __call__(self, thread_key: str, event: RunEvent) -> None:
        """Take one event of a run in the thread."""
        ...


class Session:
    """Works on claimed threads (``bot.dispatcher.ThreadWork``). One instance serves every thread.

    Args:
        store, adapters, sender: where rows and replies go.
        loop, agent, limits, prompt: how runs are made; ``prompt`` fills the agent's instructions.
        commands: runs slash commands.
        access: who may do what.
        counter: counts the tokens of new messages.
        clock, redactor: the engine's seams.
        tap: follows every run's events, or None.
    """

    def __init__(
        self,
        *,
        store: Store,
        adapters: Mapping[str, ChatAdapter],
        sender: Sender,
        loop: AgentLoop,
        agent: Agent,
        limits: Limits,
        prompt: PromptTemplate,
        commands: CommandRunner,
        access: Access,
        counter: Callable[[], Awaitable[TokenCounter]],
        clock: Clock,
        redactor: Redactor,
        tap: EventTap | None = None,
    ) -> None:
        self._store = store
        self._adapters = adapters
        self._sender = sender
        self._loop = loop
        self._agent = agent
        self._limits = limits
        self._prompt = prompt
        self._commands = commands
        self._access = access
        self._counter = counter
        self._clock = clock
        self._redactor = redactor
        self._tap = tap
        self._stopped: set[str] = set()
        self.ended: dict[str, int] = {"finished": 0, "error": 0}

    def stop_run(self, thread_key: str) -> None:
        """End the thread's unfinished run when it is next claimed, instead of resuming it."""
        self._stopped.add(thread_key)

    # -- ThreadWork ----------------------------------------------------------------------------------

    async def work(self, claim: Claim) -> None:
        """Post what waits to be posted, then answer the open messages; their answer is posted too."""
        await self._sender.send(claim, claim.outbox)
        if not claim.items:
            return
        run = claim.run or await self._begin(claim)
        mine = [item for item in claim.items if item.run_id == run.run_id] if claim.run else self._next_turn(claim)
        items = sorted(mine, key=_sent_first)
        inbound = [load_inbound(item.kind, item.payload) for item in items]
        adapter = self._adapters[inbound[0].thread.platform]
        async with Status(adapter, inbound[0].thread) as status:
            answer = await self._answer(claim, run, inbound, status.on_event)
            await self._finish(claim, run, inbound[0].thread, adapter, answer)
            await self._deliver(claim)

    async def crashed(self, claim: Claim) -> None:
        """End the thread's run with a visible failure; one is begun for items that never came so far."""
        if await self._sender.give_up(claim):
            return  # it was a post that broke; the messages of the thread are not to blame
        found = await self._store.list_runs(thread_key=claim.thread_key, limit=1)
        run = next((row for row in found if not RunState(row.state).final), None)
        if run is None:
            waiting = [item.id for item in claim.items if item.state is InboxState.OPEN]
            if not waiting:
                return
            run = await self._start(claim, waiting)
        thread = ThreadRef.parse_key(claim.thread_key)
        answer = Answer(text=CRASHED.format(run_id=run.run_id), state=RunState.ERROR, error="crashed")
        await self._finish(claim, run, thread, self._adapters[thread.platform], answer)
        await self._deliver(claim)

    # -- the turn ------------------------------------------------------------------------------------

    async def _begin(self, claim: Claim) -> RunRow:
        return await self._start(claim, [item.id for item in self._next_turn(claim)])

    async def _start(self, claim: Claim, item_ids: Sequence[int]) -> RunRow:
        run = RunRow(
            run_id=f"r{secrets.token_hex(8)}",
            thread_key=claim.thread_key,
            agent=self._agent.name,
            state=RunState.INIT.value,
            started_at=self._clock.now(),
        )
        await self._store.begin_run(claim, run, item_ids)
        return run

    def _next_turn(self, claim: Claim) -> list[InboxItem]:
        """Take the open items that belong together: messages of people with the same rights, or one command."""
        taken: list[InboxItem] = []
        rights: object = None
        for item in sorted(claim.items, key=_sent_first):
            inbound = load_inbound(item.kind, item.payload)
            if not isinstance(inbound, Message):
                return taken or [item]
            theirs = self._access.rights_of(Caller.of(inbound.thread, inbound.author))
            if taken and theirs != rights:
                break
            rights = theirs
            taken.append(item)
        return taken

    async def _answer(self, claim: Claim, run: RunRow, inbound: Sequence[Inbound], on_event: EventSink) -> Answer:
        callers = tuple(dict.fromkeys(Caller.of(i.thread, i.author) for i in inbound))
        if denial := next((d for c in callers if (d := self._access.may_speak(c))), None):
            log.info("turn_denied", thread=claim.thread_key)
            addressed = any(not isinstance(i, Message) or i.mentioned or i.direct for i in inbound)
            return Answer(text=denial if addressed else "", state=RunState.ERROR, error="denied")
        if claim.thread_key in self._stopped:
            self._stopped.discard(claim.thread_key)
            return Answer(text=STOPPED, state=RunState.ERROR, error="cancelled")
        if run.attempt > MAX_ATTEMPTS and not await self._progresses(run):
            text = GAVE_UP.format(attempts=run.attempt - 1, run_id=run.run_id)
            return Answer(text=text, state=RunState.ERROR, error="gave_up")
        ctx = self._build_context(claim, run, Turn(thread=inbound[0].thread, callers=callers), on_event)
        first = inbound[0]
        if isinstance(first, Command):
            text, ok = await self._commands.run(ctx, first)
            return Answer(text=text, state=RunState.FINISHED if ok else RunState.ERROR, error="" if ok else "command")
        messages = [i for i in inbound if isinstance(i, Message)]
        if problem := _problem_with(messages):
            return Answer(text=problem, state=RunState.FINISHED)
        return await self._run(claim, run, ctx, messages)

    async def _progresses(self, run: RunRow) -> bool:
        """Tell whether a run gets on in spite of its restarts: some may end, but not every one, without a new step."""
        found = await self._store.load_run(run.run_id)
        done = sum(step.entry.state is StepState.DONE for step in found[1]) if found is not None else 0
        return run.attempt <= MAX_ATTEMPTS * (1 + done)

    def _build_context(self, claim: Claim, run: RunRow, turn: Turn, on_event: EventSink) -> RunContext:
        def emit(event: RunEvent) -> None:
            on_event(event)
            if self._tap is not None:
                self._tap(claim.thread_key, event)

        return RunContext(
            run_id=run.run_id,
            thread_id=claim.thread_key,
            limits=self._limits,
            deadline=self._clock.monotonic() + self._limits.run_deadline_s,
            clock=self._clock,
            redactor=self._redactor,
            journal=StoreJournal(self._store, claim, run.run_id, self._clock),
            emit=emit,
            deps=turn,
        )

    async def _run(self, claim: Claim, run: RunRow, ctx: RunContext, messages: Sequence[Message]) -> Answer:
        conversation = Conversation(await self._counter())
        for row in await self._store.load_messages(claim.thread_key, limit=HISTORY_ROWS):
            conversation.append(load_message(row.body), row.tokens)
        known = len(conversation)
        question = [
            ModelMessage(role="user", content=m.text, speaker=m.author.name) for m in messages if m.text.strip()
        ]
        # the time of the first start, so that a resumed run asks exactly what the first attempt asked
        instructions = self._prompt.fill(name="Hermod", now=f"{run.started_at:%Y-%m-%d %H:%M} UTC")
        record = await self._loop.run(replace(self._agent, instructions=instructions), ctx, conversation, question)
        error = record.error
        text = record.answer if record.answer or error is None else f"I could not answer: {error}. (run {run.run_id})"
        if record.answer and error is not None:
            text = f"{record.answer}\n\n(run {run.run_id}, ended by {error.kind})"
        return Answer(
            text=text,
            state=record.state,
            error="" if error is None else error.kind,
            record=record,
            messages=_new_messages(conversation, known, self._clock.now()),
            author=f"{messages[0].thread.platform}:{messages[0].author.id}",
        )

    async def _finish(self, claim: Claim, run: RunRow, thread: ThreadRef, adapter: ChatAdapter, answer: Answer) -> None:
        now = self._clock.now()
        text = self._redactor.redact(answer.text)
        rows = build_reply_rows(thread, text, run_id=run.run_id, limits=adapter.limits, now=now) if text else ()
        final = "finished" if answer.state is RunState.FINISHED else "error"
        await self._store.finish_run(
            claim,
            run.run_id,
            RunOutcome(
                state="finished" if answer.state is RunState.FINISHED else "error",
                error=answer.error,
                record="" if answer.record is None else to_json(trace_as_data(answer.record)).decode(),
                ended_at=now,
                messages=answer.messages,
                outbox=rows,
                usage=() if answer.record is None else build_usage_rows(claim, answer, now),
            ),
        )
        self.ended[final] += 1
        log.info("run_ended", thread=claim.thread_key, run_id=run.run_id, state=final, error=answer.error)

    async def _deliver(self, claim: Claim) -> None:
        rows = await self._store.load_outbox(claim.thread_key)
        await self._sender.send(claim, tuple(row for row in rows if not row.state.final))


def _sent_first(item: InboxItem) -> tuple[datetime, int]:
    """Order by when something was said; two sockets may deliver it the other way round."""
    return load_inbound(item.kind, item.payload).sent_at, item.seq


def _problem_with(messages: Sequence[Message]) -> str:
    """Name what keeps a question from being asked, or return an empty text."""
    if not any(m.text.strip() for m in messages):
        return EMPTY
    longest = max(len(m.text) for m in messages)
    return TOO_LONG.format(length=longest, limit=MAX_MESSAGE_CHARS) if longest > MAX_MESSAGE_CHARS else ""


def _new_messages(conversation: Conversation, known: int, now: datetime) -> tuple[NewMessage, ...]:
    fresh = zip(conversation.messages[known:], conversation.tokens[known:], strict=True)
    return tuple(NewMessage(role=m.role, body=dump_message(m), tokens=tokens, created_at=now) for m, tokens in fresh)


def build_usage_rows(claim: Claim, answer: Answer, now: datetime) -> tuple[UsageRow, ...]:
    """Sum a run's model steps up by provider and model; the first author of the turn carries them."""
    rows: dict[tuple[str, str], UsageRow] = {}
    record = answer.record
    for step in record.steps if record is not None else ():
        if step.usage is None:
            continue
        key = (step.provider, step.name)
        row = rows.get(key) or UsageRow(
            run_id=record.run_id if record is not None else "",
            thread_key=claim.thread_key,
            author=answer.author,
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
            cost_usd=None if row.cost_usd is None or step.cost_usd is None else row.cost_usd + step.cost_usd,
        )
    return tuple(rows.values())
