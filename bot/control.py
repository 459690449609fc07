"""What people want of a run while it works: it stops, it takes a message in, it shows that others wait.

Everything that comes in is a row of the inbox, whichever process received it; so whoever works on a thread looks for
new rows a few times a second, and needs nothing else to be told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from adapters.chat import Author, ChatAdapter, Deleted, Message, Stop, ThreadRef
from agent_core.context import Steering
from agent_core.llm.types import ModelMessage
from agent_core.runtime.events import MessageInjected, RunEvent, StepFinished
from bot.access import Access, Caller
from bot.messages import STEER
from bot.question import build_question
from bot.storage.base import Claim, InboxItem, RunRow, Store, StoreError
from bot.turn import Read, Turn, find_caller, read_items

log = structlog.get_logger("hermod.control")

T = TypeVar("T")

LOOK_S = 0.3
"""How often to look for what came in while a run works."""

END_S = 0.5
"""How long work that was stopped may take to end; tools that do not stop are abandoned before by the engine."""

LATE_S = 5.0
"""A stop that was said so long before the run's first question was meant for an earlier one."""

SIGNS_S = 2.0
"""How long the end of a run waits for signs that are being put on messages."""

QUEUED, SEEN = "queued", "seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """A run has to end now.

    Args:
        answered: rows of the inbox that its end answers too.
        waiting: how many of them were questions and commands.
        quiet: nobody waits for a word, since all that was asked was deleted.
        by: who stopped it; None where nobody did.
    """

    answered: tuple[int, ...]
    waiting: int = 0
    quiet: bool = False
    by: Author | None = None


async def run_until_halted(work: Coroutine[Any, Any, T], watch: Watch, late: set[asyncio.Task[Any]]) -> T | Halt:
    """Do ``work``, but end it as soon as ``watch`` says so; cancelling this ends both.

    ``late`` keeps what does not end when it is told to, as long as it goes on.
    """
    worker = asyncio.create_task(work, name="run")
    watcher = asyncio.create_task(watch.wait(), name="watch of the run")
    try:
        await asyncio.wait({worker, watcher}, return_when=asyncio.FIRST_COMPLETED)
        return worker.result() if worker.done() else watcher.result()
    finally:
        await _end({task for task in (worker, watcher) if not task.done()}, late)


async def _end(tasks: set[asyncio.Task[Any]], late: set[asyncio.Task[Any]]) -> None:
    def forget(task: asyncio.Task[Any]) -> None:
        late.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not report it as lost

    for task in tasks:
        late.add(task)
        task.add_done_callback(forget)
        task.cancel()
    if tasks:
        _, living = await asyncio.wait(tasks, timeout=END_S)
        for task in living:
            log.error("work_did_not_stop", task=task.get_name())


class Signs:
    """Puts signs on messages, in order, beside the work. Used as an async context manager around it."""

    def __init__(self, adapter: ChatAdapter, thread: ThreadRef) -> None:
        self._adapter = adapter
        self._thread = thread
        self._waiting: deque[tuple[str, str]] = deque(maxlen=200)
        self._task: asyncio.Task[None] | None = None

    def put(self, message_id: str, sign: str) -> None:
        """Put a sign on a message soon, or take it off (``-queued``)."""
        self._waiting.append((message_id, sign))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._put_all(), name="signs")

    async def _put_all(self) -> None:
        while self._waiting:
            message_id, sign = self._waiting.popleft()
            await self._adapter.react(self._thread, message_id, sign)

    async def __aenter__(self) -> Signs:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            _, late = await asyncio.wait({self._task}, timeout=SIGNS_S)
            if late:
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=SIGNS_S)


class Watch:
    """Looks for what comes into a thread while a run of it works.

    A message that is meant for the run is handed to it only after everything that an earlier attempt at the run had
    begun was gone through again, so that a resumed run asks exactly what the first one asked.

    Args:
        store, claim, run, turn: the run under way.
        access: who may speak, and with whose rights.
        steering: hands messages to the run.
        signs: shows people what became of their messages.
        begun: model calls that an earlier attempt at the run had begun.
        look_s: see ``LOOK_S``.
    """

    def __init__(
        self,
        *,
        store: Store,
        claim: Claim,
        run: RunRow,
        turn: Turn,
        access: Access,
        steering: Steering,
        signs: Signs,
        begun: int = 0,
        look_s: float = LOOK_S,
    ) -> None:
        self._store = store
        self._claim = claim
        self._run_id = run.run_id
        self._turn = turn
        self._access = access
        self._steering = steering
        self._signs = signs
        self._ahead = begun
        self._look_s = look_s
        self._seen = 0
        self._since = min((i.sent_at for i in turn.inbound), default=run.started_at)
        self._rights = {access.rights_of(caller) for caller in turn.callers}
        self._messages = {i.id for i in turn.inbound if isinstance(i, Message)}
        self._withdrawn: dict[str, int] = {}
        self._steers: list[tuple[InboxItem, Message, ModelMessage]] = []
        self._handed: set[int] = set()
        self._taken: list[tuple[InboxItem, Message]] = []

    @property
    def answered(self) -> tuple[int, ...]:
        """Rows of the inbox that the end of the run answers: messages that it took in, and deletions it knows of."""
        return (*(item.id for item, _ in self._taken), *self._withdrawn.values())

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the run was asked: its turn's messages, and those that it took in."""
        asked = (i for i in self._turn.inbound if isinstance(i, Message))
        return (*asked, *(message for _, message in self._taken))

    def on_event(self, event: RunEvent) -> None:
        """Follow the run."""
        match event:
            case MessageInjected(run_id=self._run_id, message=message):
                self._note_taken(message)
            case StepFinished(run_id=self._run_id, step=step) if step.kind == "model" and step.purpose != "summary":
                self._ahead -= 1
                self._hand_over()
            case _:
                pass

    async def wait(self) -> Halt:
        """Wait until the run has to end; meanwhile hand it what is meant for it, and put signs on what waits."""
        while True:
            try:
                if halt := await self.look():
                    return halt
            except StoreError as e:
                log.error("look_failed", thread=self._claim.thread_key, error=str(e))
            await asyncio.sleep(self._look_s)

    async def look(self) -> Halt | None:
        """Look once."""
        fresh = await self._store.load_open(self._claim.thread_key, after_seq=self._seen)
        self._seen = max((item.seq for item in fresh), default=self._seen)
        for read in read_items(fresh):
            match read.inbound:
                case Stop() as stop if self._may_stop(stop):
                    return await self._halt(read, stop.author)
                case Deleted(message_id=message_id):
                    self._withdrawn[message_id] = read.item.id
                case Message() if self._is_steer(read.item, read.inbound):
                    (asked,) = build_question([read.inbound])
                    self._steers.append((read.item, read.inbound, asked))
                case Message() if self._may_speak(read.inbound.author):
                    await self._sign(read.item, read.inbound)
                case _:
                    pass
        self._hand_over()
        if self._messages and self._messages <= self._withdrawn.keys():
            return Halt(answered=self.answered, quiet=True)
        return None

    # -- what came in --------------------------------------------------------------------------------

    async def _halt(self, stop: Read, by: Author) -> Halt:
        """End the run and everything that was said before the stop."""
        waiting = await self._store.load_open(self._claim.thread_key)
        before = [read for read in read_items(waiting) if read.order <= stop.order]
        taken = {item.id for item, _ in self._taken}
        left = [r for r in before if isinstance(r.inbound, Message) and r.item.id not in taken]
        for read in left:
            if read.item.signed and read.inbound is not None:
                self._signs.put(read.inbound.id, f"-{QUEUED}")
        answered = dict.fromkeys((*self.answered, *(read.item.id for read in before)))
        return Halt(answered=tuple(answered), waiting=len(left), by=by)

    def _may_stop(self, stop: Stop) -> bool:
        may = self._access.may_speak(find_caller(self._turn.thread, stop)) is None
        return may and (self._since - stop.sent_at).total_seconds() < LATE_S

    def _may_speak(self, author: Author) -> bool:
        return self._access.may_speak(Caller.of(self._turn.thread, author)) is None

    def _is_steer(self, item: InboxItem, message: Message) -> bool:
        """Tell whether a message goes into the run: only one of somebody with the rights of those who asked."""
        rights = self._access.rights_of(Caller.of(self._turn.thread, message.author))
        return item.kind == STEER and rights.speak and self._rights == {rights} and bool(self._messages)

    async def _sign(self, item: InboxItem, message: Message) -> None:
        if not item.signed:
            await self._store.mark_signed(self._claim, item.id)
            self._signs.put(message.id, QUEUED)

    def _hand_over(self) -> None:
        """Hand the run what is meant for it, unless it is still going through what it did before."""
        if self._ahead > 0:
            return
        for item, message, asked in self._steers:
            if item.id not in self._handed:
                self._handed.add(item.id)
                self._steering.push(asked)
                self._signs.put(message.id, SEEN)

    def _note_taken(self, message: ModelMessage) -> None:
        for entry in self._steers:
            item, said, asked = entry
            if (asked.speaker, asked.at) == (message.speaker, message.at):
                self._steers.remove(entry)
                self._handed.discard(item.id)
                self._taken.append((item, said))
                return
