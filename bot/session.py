"""One turn of a thread: its open messages become a run, and the run becomes an answer."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import structlog

from adapters.chat import Action, ChatAdapter, Command, Message, ThreadRef
from agent_core.agent import Agent
from agent_core.context import Clock, Limits, Redactor, RunContext, StepState
from agent_core.llm.tokens import TokenCounter
from agent_core.llm.types import ModelMessage
from agent_core.prompts import PromptTemplate
from agent_core.runtime.events import EventSink, RunEvent
from agent_core.runtime.loop import AgentLoop
from agent_core.runtime.state import RunState
from bot.access import Access
from bot.answer import Answer, build_answer, build_messages, build_outcome
from bot.commands import CommandRunner
from bot.memory import StoreOutputs, load_memory
from bot.presenter import Sender, Status, build_reply_rows
from bot.storage.base import Claim, InboxState, RunRow, Store
from bot.storage.journal import StoreJournal
from bot.turn import Turn, read_turn, take_turn
from bot.words import ThreadWords

if TYPE_CHECKING:
    from agent_core.telemetry import Telemetry

log = structlog.get_logger("hermod.session")

MAX_MESSAGE_CHARS = 16_000
"""A longer message is answered with a request to shorten it: it would push the whole thread out of memory."""

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
UNUSED_BUTTON = "That button does nothing any more. Please ask me again."
UNREADABLE = "I cannot read what was sent here any more; please send it again. (run {run_id})"
CRASHED = "Something in me broke while I worked on this; the details are in my log. (run {run_id})"


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
        words: answers words about the thread itself.
        access: who may do what.
        counter: counts the tokens of new messages.
        clock, redactor: the engine's seams.
        tap: follows every run's events, or None.
        telemetry: exports every run's spans and metrics, or None.
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
        words: ThreadWords,
        access: Access,
        counter: Callable[[], Awaitable[TokenCounter]],
        clock: Clock,
        redactor: Redactor,
        tap: EventTap | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._store = store
        self._adapters = adapters
        self._sender = sender
        self._loop = loop
        self._agent = agent
        self._limits = limits
        self._prompt = prompt
        self._commands = commands
        self._words = words
        self._access = access
        self._counter = counter
        self._clock = clock
        self._redactor = redactor
        self._tap = tap
        self._telemetry = telemetry
        self._stopped: set[str] = set()
        self.ended: dict[str, int] = {"finished": 0, "error": 0}

    @contextmanager
    def stopping(self, thread_key: str) -> Iterator[None]:
        """While this lasts, end what the thread still has open, instead of answering it."""
        self._stopped.add(thread_key)
        try:
            yield
        finally:
            self._stopped.discard(thread_key)

    # -- ThreadWork ----------------------------------------------------------------------------------

    async def work(self, claim: Claim) -> None:
        """Post what waits to be posted, then answer one turn; its answer is posted too."""
        await self._sender.send(claim, claim.outbox)
        if claim.run is None and not claim.items:
            return
        run, turn = await self._resume_or_begin(claim)
        answer = await self._answer(claim, run, turn)
        await self._finish(claim, run, answer)
        await self._deliver(claim)

    async def crashed(self, claim: Claim) -> None:
        """End the thread's run with a visible failure; one is begun for items that never came so far."""
        if await self._sender.give_up(claim):
            return  # it was a post that broke; the messages of the thread are not to blame
        found = await self._store.list_runs(thread_key=claim.thread_key)
        run = next((row for row in found if not RunState(row.state).final), None)
        if run is None:
            waiting = [item.id for item in claim.items if item.state is InboxState.OPEN]
            if not waiting:
                return
            run = await self._begin(claim, waiting)
        await self._finish(claim, run, Answer(text=CRASHED.format(run_id=run.run_id), error="crashed"))
        await self._deliver(claim)

    # -- the beginning -------------------------------------------------------------------------------

    async def _resume_or_begin(self, claim: Claim) -> tuple[RunRow, Turn]:
        thread = ThreadRef.parse_key(claim.thread_key)
        if claim.run is not None:
            mine = [item for item in claim.items if item.run_id == claim.run.run_id]
            return claim.run, read_turn(thread, mine)
        turn = take_turn(thread, claim.items, self._access.rights_of)
        return await self._begin(claim, turn.item_ids), turn

    async def _begin(self, claim: Claim, item_ids: Sequence[int]) -> RunRow:
        run = RunRow(
            run_id=f"r{secrets.token_hex(8)}",
            thread_key=claim.thread_key,
            agent=self._agent.name,
            state=RunState.INIT.value,
            started_at=self._clock.now(),
        )
        await self._store.begin_run(claim, run, item_ids)
        return run

    # -- the answer ----------------------------------------------------------------------------------

    async def _answer(self, claim: Claim, run: RunRow, turn: Turn) -> Answer:
        """Answer a turn: with a word where nothing is to be run, else with a status that shows while it runs."""
        if declined := await self._decline(claim, run, turn):
            return declined
        first = turn.inbound[0]
        if isinstance(first, Message) and len(turn.inbound) == 1 and (said := await self._words.answer(first)):
            return Answer(text=said)
        messages, problem = _look_at([i for i in turn.inbound if isinstance(i, Message)])
        if isinstance(first, Message) and not messages:
            return Answer(text=problem)
        async with Status(self._adapters[turn.thread.platform], turn.thread) as status:
            ctx = self._build_context(claim, run, turn, status.on_event)
            if isinstance(first, Command):
                text, ok = await self._commands.run(ctx, first)
                return Answer(text=text, error="" if ok else "command")
            answer = await self._ask_agent(run, ctx, messages)
        return replace(answer, text=f"{answer.text}\n\n{problem}") if problem else answer

    async def _decline(self, claim: Claim, run: RunRow, turn: Turn) -> Answer | None:
        """Return what ends a turn before anything of it is run, or None."""
        if denial := next((d for c in turn.callers if (d := self._access.may_speak(c))), None):
            log.info("turn_denied", thread=claim.thread_key)
            return Answer(text=denial if turn.addressed else "", error="denied")
        if claim.thread_key in self._stopped:
            return Answer(text=STOPPED, error="cancelled")
        if run.attempt > MAX_ATTEMPTS and not await self._progresses(run):
            return Answer(text=GAVE_UP.format(attempts=run.attempt - 1, run_id=run.run_id), error="gave_up")
        if not turn.inbound:
            return Answer(text=UNREADABLE.format(run_id=run.run_id), error="unreadable")
        if isinstance(turn.inbound[0], Action):
            return Answer(text=UNUSED_BUTTON, error="unused")
        return None

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

        ctx = RunContext(
            run_id=run.run_id,
            thread_id=claim.thread_key,
            limits=self._limits,
            deadline=self._clock.monotonic() + self._limits.run_deadline_s,
            clock=self._clock,
            redactor=self._redactor,
            journal=StoreJournal(self._store, claim, run.run_id, self._clock),
            emit=emit,
            outputs=StoreOutputs(self._store, self._clock),
            cache_scope=self._access.scope_of(turn.callers),
            deps=turn,
        )
        return ctx if self._telemetry is None else self._telemetry.follow(ctx)

    async def _ask_agent(self, run: RunRow, ctx: RunContext, messages: Sequence[Message]) -> Answer:
        memory = await load_memory(self._store, ctx.thread_id, await self._counter())
        question = [ModelMessage(role="user", content=m.text, speaker=m.author.name, at=m.sent_at) for m in messages]
        # the time of the first start, so that a resumed run asks exactly what the first attempt asked
        values = {"name": "Hermod", "now": f"{run.started_at:%Y-%m-%d %H:%M} UTC"}
        agent = replace(self._agent, instructions=self._prompt.fill(**values), template=self._prompt.label)
        record = await self._loop.run(agent, ctx, memory.conversation, question)
        for step in record.steps:
            # what an open breaker kept from being asked is no news; why it opened was told before
            if failures := [line for line in step.failures if "not asked (" not in line]:
                log.warning("model_fell_back", run_id=run.run_id, provider=step.provider, failures=failures)
        now = self._clock.now()
        return build_answer(
            record,
            author=f"{messages[0].thread.platform}:{messages[0].author.id}",
            messages=build_messages(memory.conversation, len(memory.seqs), now),
            summary=memory.build_summary(ctx.thread_id, now),
        )

    # -- the end -------------------------------------------------------------------------------------

    async def _finish(self, claim: Claim, run: RunRow, answer: Answer) -> None:
        """End the run: its answer is in the outbox with the same transaction."""
        now, thread = self._clock.now(), ThreadRef.parse_key(claim.thread_key)
        text, limits = self._redactor.redact(answer.text), self._adapters[thread.platform].limits
        rows = build_reply_rows(thread, text, run_id=run.run_id, limits=limits, now=now) if text else ()
        outcome = build_outcome(answer, claim.thread_key, rows, now)
        await self._store.finish_run(claim, run.run_id, outcome)
        self.ended[outcome.state] += 1
        log.info("run_ended", thread=claim.thread_key, run_id=run.run_id, state=outcome.state, error=outcome.error)

    async def _deliver(self, claim: Claim) -> None:
        rows = await self._store.load_outbox(claim.thread_key)
        await self._sender.send(claim, tuple(row for row in rows if not row.state.final))


def _look_at(messages: Sequence[Message]) -> tuple[list[Message], str]:
    """Return the messages that can be asked, and what is to be said about the others."""
    said = [m for m in messages if m.text.strip()]
    longest = max((len(m.text) for m in said), default=0)
    if longest > MAX_MESSAGE_CHARS:
        problem = TOO_LONG.format(length=longest, limit=MAX_MESSAGE_CHARS)
        return [m for m in said if len(m.text) <= MAX_MESSAGE_CHARS], problem
    return said, "" if said else EMPTY
