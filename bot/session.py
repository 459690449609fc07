"""One turn of a thread: its open messages become a run, and the run becomes an answer."""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from adapters.chat import Action, Attachment, Author, ChatAdapter, Command, Deleted, Message, Stop, ThreadRef
from agent_core.agent import Agent
from agent_core.context import Clock, Limits, Redactor, RunContext, Steering, StepState
from agent_core.llm.tokens import TokenCounter
from agent_core.llm.types import ModelMessage
from agent_core.prompts import PromptTemplate, describe_tools
from agent_core.runtime.events import EventSink, RunEnded, RunEvent
from agent_core.runtime.loop import AgentLoop
from agent_core.runtime.state import RunRecord, RunState
from bot.access import Access
from bot.answer import (
    STOPPED,
    Answer,
    address_answer,
    build_answer,
    build_messages,
    build_outcome,
    build_stopped,
    find_reason,
)
from bot.attachments import Attachments, RunFiles
from bot.commands import CommandRunner, Question
from bot.control import LOOK_S, QUEUED, Halt, Signs, Watch, run_until_halted
from bot.jobs.brief import tell_stopped
from bot.jobs.job import REPORT_THREAD, SETTINGS_OWNER, Firing
from bot.live import READING, SHOW_EVERY_S, Live, Status
from bot.memory import StoreOutputs, load_memory, read_past
from bot.presenter import build_reply_rows
from bot.question import build_question
from bot.sender import Sender
from bot.storage.base import Claim, InboxState, NewOutboxItem, RunRow, Store
from bot.storage.journal import StoreJournal
from bot.tools.research.sources import list_sources
from bot.turn import Turn, read_turn, take_turn
from bot.words import ThreadWords, is_word

if TYPE_CHECKING:
    from agent_core.telemetry import Telemetry

log = structlog.get_logger("hermod.session")

MAX_MESSAGE_CHARS = 16_000
"""A longer message is answered with a request to shorten it: it would push the whole thread out of memory."""

MAX_ATTEMPTS = 5
"""A run that took its process down this often without finishing a step is ended with a visible failure."""

REPORT_AGENT = "supervisor"
"""How the runs that make reports are called."""

EMPTY = (
    "You mentioned me without a question. Ask, for example: *which queries were slow in the last 30 minutes?* "
    "I answer in this thread and remember it."
)
TOO_LONG = (
    "Your message has {length:,} characters; I read up to {limit:,}. Please send the part that matters, "
    "or put the rest into a file that a tool can read."
)
GAVE_UP = "I could not finish this: the process stopped {attempts} times while working on it. (run {run_id})"
NOTHING_TO_STOP = "There is nothing running here that I could stop."
UNUSED_BUTTON = "That button does nothing any more. Please ask me again."
UNREADABLE = "I cannot read what was sent here any more; please send it again. (run {run_id})"
CRASHED = "Something in me broke while I worked on this; the details are in my log. (run {run_id})"


ActionHandler = Callable[[Action], Awaitable[str]]
"""Takes a pressed button of one name; what it returns is said in the thread, unless it is empty."""


class Reports(Protocol):
    """Makes the reports of scheduled jobs (``bot.jobs.report.ReportRunner``)."""

    async def run(self, ctx: RunContext, firing: Firing) -> Answer:
        """Make a report: the answer is its headline, and ``sequel`` what follows in the thread below it."""
        ...

    async def decline(self, firing: Firing, reason: str) -> Answer:
        """Pause a job whose owner may not have it any more, and say so."""
        ...


class EventTap(Protocol):
    """Somebody who follows runs beside the chat platform (the console)."""

    def __call__(self, thread_key: str, event: RunEvent) -> None:
        """Take one event of a run in the thread."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Desk:
    """What a turn has around it while it is answered."""

    claim: Claim
    run: RunRow
    turn: Turn
    watch: Watch
    steering: Steering
    status: Status


class Session:
    """Works on claimed threads (``bot.dispatcher.ThreadWork``). One instance serves every thread.

    Args:
        store, adapters, sender: where rows and replies go.
        loop, agent, limits, prompt: how runs are made; ``prompt`` fills the agent's instructions.
        commands: runs slash commands.
        words: answers words about the thread itself.
        reports: makes the reports of jobs.
        access: who may do what.
        counter: counts the tokens of new messages.
        clock, redactor: the engine's seams.
        tap: follows every run's events, or None.
        telemetry: exports every run's spans and metrics, or None.
        actions: what becomes of pressed buttons, by their name.
        attachments: files of threads, in and out; None where no tool needs them.
        look_s: how often to look for what came into a thread while its run works.
        show_s: how often people see more of an answer that is written.
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
        reports: Reports,
        access: Access,
        counter: Callable[[], Awaitable[TokenCounter]],
        clock: Clock,
        redactor: Redactor,
        tap: EventTap | None = None,
        telemetry: Telemetry | None = None,
        actions: Mapping[str, ActionHandler] | None = None,
        attachments: Attachments | None = None,
        look_s: float = LOOK_S,
        show_s: float = SHOW_EVERY_S,
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
        self._reports = reports
        self._access = access
        self._counter = counter
        self._clock = clock
        self._redactor = redactor
        self._tap = tap
        self._telemetry = telemetry
        self._actions = dict(actions or {})
        self._attachments = attachments
        self._look_s = look_s
        self._show_s = show_s
        self._stopped: set[str] = set()
        self._late: set[asyncio.Task[Any]] = set()
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
        try:
            answer = address_answer(await self._answer(claim, run, turn), turn, run.run_id)
            await self._finish(claim, run, answer)
            if not (answer.text or answer.files):  # there is nothing that a draft could become
                await self._sender.detach(run.run_id)
                await self._sender.discard(claim, run.run_id)
                if answer.error != "denied":
                    await self._adapters[turn.thread.platform].set_status(turn.thread, "")
            await self._deliver(claim)
        finally:
            await self._sender.detach(run.run_id)

    async def crashed(self, claim: Claim) -> None:
        """End the thread's run with a visible failure; one is begun for items that never came so far."""
        if await self._sender.give_up(claim):
            return  # it was a post that broke; the messages of the thread are not to blame
        found = await self._store.list_runs(thread_key=claim.thread_key)
        run = next((row for row in found if not RunState(row.state).final), None)
        if run is None:
            waiting = [item for item in claim.items if item.state is InboxState.OPEN]
            if not waiting:
                return
            run = await self._begin(claim, read_turn(ThreadRef.parse_key(claim.thread_key), waiting))
        # addressed as its answer would have been: a command's announcement must not wait for ever
        mine = claim.items if claim.run is None else [item for item in claim.items if item.run_id == run.run_id]
        turn = read_turn(ThreadRef.parse_key(claim.thread_key), mine)
        said = CRASHED.format(run_id=run.run_id)
        answer = Answer(text=said, error="crashed", reason="something in Hermod broke; its log has thread_crashed")
        await self._finish(claim, run, address_answer(answer, turn, run.run_id))
        await self._deliver(claim)

    # -- the beginning -------------------------------------------------------------------------------

    async def _resume_or_begin(self, claim: Claim) -> tuple[RunRow, Turn]:
        thread = ThreadRef.parse_key(claim.thread_key)
        if claim.run is not None:
            mine = [item for item in claim.items if item.run_id == claim.run.run_id]
            return claim.run, read_turn(thread, mine)
        turn = take_turn(thread, claim.items, self._access.rights_of, alone=self._stands_alone)
        return await self._begin(claim, turn), turn

    def _stands_alone(self, message: Message) -> bool:
        return is_word(message) or self._commands.is_command(message)

    async def _begin(self, claim: Claim, turn: Turn) -> RunRow:
        reports = bool(turn.inbound) and isinstance(turn.inbound[0], Firing)
        run = RunRow(
            run_id=f"r{secrets.token_hex(8)}",
            thread_key=claim.thread_key,
            agent=REPORT_AGENT if reports else self._agent.name,
            state=RunState.INIT.value,
            started_at=self._clock.now(),
        )
        await self._store.begin_run(claim, run, turn.item_ids)
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
        if self._attachments is not None:
            await self._attachments.note([i for i in turn.inbound if isinstance(i, Message)])
        adapter, steering = self._adapters[turn.thread.platform], Steering()
        begun = await self._prepare(claim, run)
        async with Signs(adapter, turn.thread) as signs, Status(adapter, turn.thread) as status:
            for message_id in turn.signed:
                signs.put(message_id, f"-{QUEUED}")
            watch = Watch(
                store=self._store,
                claim=claim,
                run=run,
                turn=turn,
                access=self._access,
                steering=steering,
                signs=signs,
                begun=begun,
                look_s=self._look_s,
            )
            if halt := await watch.look():
                return _build_halted(halt, firing=first if isinstance(first, Firing) else None)
            desk = _Desk(claim=claim, run=run, turn=turn, watch=watch, steering=steering, status=status)
            if isinstance(first, Firing | Command) or (isinstance(first, Message) and self._commands.is_command(first)):
                return await (
                    self._report(desk, first) if isinstance(first, Firing) else self._run_command(desk, first)
                )
            answer = await self._run_agent(desk, messages)
        return replace(answer, text=f"{answer.text}\n\n{problem}") if problem else answer

    async def _decline(self, claim: Claim, run: RunRow, turn: Turn) -> Answer | None:
        """Return what ends a turn before anything of it is run, or None."""
        if turn.stopped or (turn.inbound and all(isinstance(i, Deleted) for i in turn.inbound)):
            return _end_unbegun(turn)
        if denial := next((d for c in turn.callers if (d := self._access.may_speak(c))), None):
            return await self._deny(claim, turn, denial)
        if claim.thread_key in self._stopped:
            return Answer(text=STOPPED, error="cancelled")
        if run.attempt > MAX_ATTEMPTS and not await self._progresses(run):
            said = GAVE_UP.format(attempts=run.attempt - 1, run_id=run.run_id)
            return Answer(text=said, error="gave_up", reason=f"the process stopped {run.attempt - 1} times at it")
        if not turn.inbound:
            said = UNREADABLE.format(run_id=run.run_id)
            return Answer(text=said, error="unreadable", reason="what was asked cannot be read any more")
        return await self._answer_sign(turn)

    async def _deny(self, claim: Claim, turn: Turn, reason: str) -> Answer:
        log.info("turn_denied", thread=claim.thread_key)
        if turn.inbound and isinstance(firing := turn.inbound[0], Firing):
            return await self._reports.decline(firing, reason)
        return Answer(text=reason if turn.addressed else "", error="denied")

    async def _answer_sign(self, turn: Turn) -> Answer | None:
        """Answer a button or a late stop; None where the turn is something else."""
        match turn.inbound[0]:
            case Stop():
                return _end_unbegun(replace(turn, stopped=True))
            case Action(name=name) as action if name in self._actions:
                return Answer(text=await self._actions[name](action))
            case Action():
                return Answer(text=UNUSED_BUTTON, error="unused")
            case _:
                return None

    async def _progresses(self, run: RunRow) -> bool:
        """Tell whether a run gets on in spite of its restarts: some may end, but not every one, without a new step."""
        found = await self._store.load_run(run.run_id)
        done = sum(step.entry.state is StepState.DONE for step in found[1]) if found is not None else 0
        return run.attempt <= MAX_ATTEMPTS * (1 + done)

    async def _prepare(self, claim: Claim, run: RunRow) -> int:
        """Clear away what an earlier attempt at the run left visible; return how many model calls it had begun."""
        if claim.run is None:
            return 0
        await self._sender.discard(claim, run.run_id)
        found = await self._store.load_run(run.run_id)
        steps = () if found is None else found[1]
        return sum(step.entry.kind == "model" and not step.entry.key.startswith("summary:") for step in steps)

    async def _run_command(self, desk: _Desk, given: Command | Message) -> Answer:
        made = RunFiles(self._attachments, desk.claim.thread_key)
        ctx = self._build_context(desk, desk.status.on_event, made.on_event)
        reading = self._commands.read(ctx, given)
        if isinstance(reading, Question):
            return await self._ask(desk, given, reading.text)
        ended = await run_until_halted(self._commands.run(ctx, reading), desk.watch, self._late)
        if isinstance(ended, Halt):
            return _build_halted(ended)
        error = "" if ended.ok else "command"
        answer = Answer(text=ended.text, error=error, answered=desk.watch.answered, private=ended.private)
        if (shown := await made.render()) is None:
            return replace(answer, files=await made.build(whole=True))
        text, files = shown  # a program that ran is everybody's, also where it failed
        return replace(answer, text=text, files=files, private=False)

    async def _report(self, desk: _Desk, firing: Firing) -> Answer:
        """Have the report of a job made; what one that is stopped has cost is known from its last event."""
        records: list[RunRecord] = []

        def note(event: RunEvent) -> None:
            match event:
                case RunEnded(run_id=desk.run.run_id, record=record):
                    records.append(record)
                case _:
                    pass

        ctx = self._build_context(desk, desk.watch.on_event, note)
        ended = await run_until_halted(self._reports.run(ctx, firing), desk.watch, self._late)
        if not isinstance(ended, Halt):
            return ended
        author = f"{firing.thread.platform}:{firing.author.id}"
        stopped = _build_halted(ended, firing=firing)
        return replace(stopped, record=records[-1] if records else None, author=author)

    async def _ask(self, desk: _Desk, given: Command | Message, question: str) -> Answer:
        """Run the agent on a question that came as a command; nobody else has seen it, so the answer repeats it."""
        if isinstance(given, Message):
            return await self._run_agent(desk, [given])
        asked = Message(
            thread=given.thread,
            id=given.id,
            author=given.author,
            text=question,
            mentioned=True,
            sent_at=given.sent_at,
        )
        messages, problem = _look_at([asked])
        if not messages:
            return Answer(text=problem, error="command", private=True)
        answer = await self._run_agent(desk, messages)
        quoted = "\n".join(f"> {line}" for line in question.splitlines())
        return replace(answer, text=f"{quoted}\n\n{answer.text}") if answer.text else answer

    async def _run_agent(self, desk: _Desk, messages: Sequence[Message]) -> Answer:
        """Run the agent on messages until it answered, or has to end; people see its answer grow."""
        claim, run_id, counter = desk.claim, desk.run.run_id, await self._counter()
        adapter = self._adapters[desk.turn.thread.platform]
        if claim.past_left and adapter.capabilities.history:
            desk.status.show(READING)
            past = await read_past(self._store, adapter, claim, desk.run, counter, self._redactor, self._clock.now())
            if self._attachments is not None:
                await self._attachments.note_said(claim.thread_key, past)
        memory = await load_memory(self._store, claim.thread_key, counter)
        made = RunFiles(self._attachments, claim.thread_key)
        live = Live(
            adapter.open_draft(desk.turn.thread, asker=messages[0].author),
            run_id,
            redactor=self._redactor,
            keep=lambda remote_id: self._store.save_draft(claim, run_id, remote_id, self._clock.now()),
            every_s=self._show_s,
        )
        async with AsyncExitStack() as stack:
            if live.draft is not None:
                self._sender.attach(run_id, live.draft)
            await stack.enter_async_context(live)
            ctx = self._build_context(desk, desk.watch.on_event, desk.status.on_event, live.on_event, made.on_event)
            # the time of the first start, so that a resumed run asks exactly what the first attempt asked
            values = {"name": "Hermod", "now": f"{desk.run.started_at:%Y-%m-%d %H:%M} UTC"}
            if "tools" in self._prompt.placeholders:
                values["tools"] = describe_tools(self._loop.list_specs(ctx, self._agent.tools))
            agent = replace(self._agent, instructions=self._prompt.fill(**values), template=self._prompt.label)
            work = self._loop.run(agent, ctx, memory.conversation, build_question(messages))
            ended = await run_until_halted(work, desk.watch, self._late)
        if live.cut_off:
            await self._sender.detach(run_id)
        if isinstance(ended, Halt):
            text = "" if ended.quiet else build_stopped(live.record, live.text, ended.waiting)
            if text and live.record is not None:
                memory.conversation.append(ModelMessage(role="assistant", content=text))
            answer, record = _build_halted(ended, text), live.record
        else:
            record = ended
            answer = build_answer(record)
            text = "\n\n".join(filter(None, (answer.text, list_sources(made.results))))
            answer = replace(answer, text=text, answered=desk.watch.answered, files=await made.build())
        now = self._clock.now()
        return replace(
            answer,
            record=record,
            author=f"{messages[0].thread.platform}:{messages[0].author.id}",
            messages=build_messages(memory.conversation, len(memory.seqs), now, desk.watch.messages),
            summary=memory.build_summary(claim.thread_key, now),
        )

    def _build_context(self, desk: _Desk, *followers: EventSink) -> RunContext:
        thread_key, run_id = desk.claim.thread_key, desk.run.run_id

        def emit(event: RunEvent) -> None:
            for follower in followers:
                follower(event)
            if self._tap is not None:
                self._tap(thread_key, event)

        ctx = RunContext(
            run_id=run_id,
            thread_id=thread_key,
            limits=self._limits,
            deadline=self._clock.monotonic() + self._limits.run_deadline_s,
            clock=self._clock,
            redactor=self._redactor,
            journal=StoreJournal(self._store, desk.claim, run_id, self._clock),
            emit=emit,
            outputs=StoreOutputs(self._store, self._clock),
            steering=desk.steering,
            cache_scope=self._access.scope_of(desk.turn.callers),
            deps=desk.turn,
        )
        return ctx if self._telemetry is None else self._telemetry.follow(ctx)

    # -- the end -------------------------------------------------------------------------------------

    async def _finish(self, claim: Claim, run: RunRow, answer: Answer) -> None:
        """End the run: its answer is in the outbox with the same transaction."""
        now, thread = self._clock.now(), ThreadRef.parse_key(claim.thread_key)
        text, limits = self._redactor.redact(answer.text), self._adapters[thread.platform].limits
        rows: tuple[NewOutboxItem, ...] = ()
        if text or answer.files:
            build = functools.partial(
                build_reply_rows,
                thread,
                text or ", ".join(f"`{file.name}`" for file in answer.files),
                run_id=run.run_id,
                limits=limits,
                now=now,
                whole=self._sender.holds(run.run_id),
                private_to=answer.private_to,
                respond_to=answer.respond_to,
                feedback=answer.feedback,
                files=self._redact_files(answer.files),
            )
            rows = await asyncio.to_thread(build)  # megabytes take their time, and some texts seconds to be cut
        why = self._redactor.redact(find_reason(answer))
        outcome = build_outcome(replace(answer, reason=why), claim.thread_key, rows, now)
        await self._store.finish_run(claim, run.run_id, outcome)
        if self._attachments is not None:
            await self._attachments.drop_made(claim.thread_key, run.run_id)
        self.ended[outcome.state] += 1
        log.info("run_ended", thread=claim.thread_key, run_id=run.run_id, state=outcome.state, error=outcome.error)

    def _redact_files(self, files: Sequence[Attachment]) -> tuple[Attachment, ...]:
        """Remove secrets from texts; those that are files of a run have lost theirs when they were loaded."""
        return tuple(replace(f, content=self._redactor.redact(f.content)) if f.encoding == "text" else f for f in files)

    async def _deliver(self, claim: Claim) -> None:
        await self._sender.send(claim, await self._store.load_due(claim.thread_key, now=self._clock.now()))


def _end_unbegun(turn: Turn) -> Answer:
    """Build the answer of a turn that was stopped before it began, or is about what was deleted since."""
    if not turn.stopped:
        return Answer(text="")
    stop = next(i for i in reversed(turn.inbound) if isinstance(i, Stop))
    if turn.thread.thread.startswith(REPORT_THREAD):
        firing = next((i for i in turn.inbound if isinstance(i, Firing)), None)
        return Answer(text="") if firing is None else _stop_report(firing, stop.author)  # it was over before
    if not turn.waiting:
        return Answer(text=NOTHING_TO_STOP)
    return Answer(text=build_stopped(None, "", turn.waiting), error="cancelled", reason=_name_stopper(stop.author))


def _build_halted(halt: Halt, text: str | None = None, *, firing: Firing | None = None) -> Answer:
    """Build the answer of a run that a person ended; ``firing``: the report that it was to make."""
    if firing is not None and halt.by is not None:
        return replace(_stop_report(firing, halt.by), answered=halt.answered)
    said = "" if halt.quiet else build_stopped(None, "", halt.waiting)
    why = "" if halt.by is None else _name_stopper(halt.by)
    return Answer(text=said if text is None else text, error="cancelled", reason=why, answered=halt.answered)


def _stop_report(firing: Firing, by: Author) -> Answer:
    return Answer(text=tell_stopped(firing, by), error="cancelled", reason=_name_stopper(by))


def _name_stopper(by: Author) -> str:
    return f"by {'the operator' if by == SETTINGS_OWNER else by.name or by.id}"


def _look_at(messages: Sequence[Message]) -> tuple[list[Message], str]:
    """Return the messages that can be asked, and what is to be said about the others."""
    said = [m for m in messages if m.text.strip() or m.files]
    longest = max((len(m.text) for m in said), default=0)
    if longest > MAX_MESSAGE_CHARS:
        problem = TOO_LONG.format(length=longest, limit=MAX_MESSAGE_CHARS)
        return [m for m in said if len(m.text) <= MAX_MESSAGE_CHARS], problem
    return said, "" if said else EMPTY
