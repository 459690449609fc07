"""What every part of one run shares: ids, limits, deadline, and the seams to the outside.

``RunContext`` is frozen. The three protocols here (``Clock``, ``Redactor``, ``Journal``) are the only
things the engine wants from the program around it; each has a default that works alone.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal, Protocol, TypedDict, Unpack

from agent_core.llm.types import ModelMessage
from agent_core.runtime.events import EventSink, ignore_events


class Clock(Protocol):
    """Time, so that tests can turn it by hand."""

    def now(self) -> datetime:
        """The present instant, aware UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait ``seconds`` of this clock."""
        ...


class SystemClock:
    """The machine's time."""

    def now(self) -> datetime:
        """The present instant, aware UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait ``seconds`` in the event loop."""
        await asyncio.sleep(seconds)


class Redactor(Protocol):
    """Removes secrets from text before it reaches a model, a log, a trace or a cache."""

    def redact(self, text: str) -> str:
        """Return ``text`` with every secret replaced; calling it twice changes nothing more."""
        ...


class NoRedactor:
    """For programs that hold no secrets: gives text back as it is."""

    def redact(self, text: str) -> str:
        """Return ``text``."""
        return text


class StepState(StrEnum):
    """What the journal knows of a step."""

    INTENT = "intent"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """A step as the journal holds it.

    ``key`` names the step inside its run and is the same in every attempt at the run. ``digest`` tells
    whether a resumed run asks for the same thing. ``result`` is JSON text, empty until it is known.
    """

    key: str
    kind: Literal["model", "tool", "message"]
    name: str
    digest: str
    state: StepState
    result: str = ""
    effect: str = "read"


class Journal(Protocol):
    """The durable record of a run's steps. ``begin`` before the effect, ``finish`` after it."""

    async def begin(self, entry: JournalEntry) -> JournalEntry | None:
        """Record the intent of a step.

        Returns:
            None when the step is new (run it), else what an earlier attempt at this run recorded:
            with state done or failed its result is to be used again; with state intent the process
            died in between, so its outcome is unknown.
        """
        ...

    async def finish(self, key: str, state: StepState, result: str) -> None:
        """Record how the step ended."""
        ...


class MemoryJournal:
    """A journal that lives as long as the process; the default, and the one benchmarks switch on."""

    def __init__(self) -> None:
        self.entries: dict[str, JournalEntry] = {}

    async def begin(self, entry: JournalEntry) -> JournalEntry | None:
        """Record the intent, or return what is known of the step."""
        known = self.entries.get(entry.key)
        if known is None:
            self.entries[entry.key] = entry
        return known

    async def finish(self, key: str, state: StepState, result: str) -> None:
        """Record how the step ended."""
        known = self.entries[key]
        self.entries[key] = replace(known, state=state, result=result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run may use; None means no limit. Times in seconds, money in US dollars.

    Reaching one ends the run with what is known so far.
    """

    max_steps: int = 10
    run_deadline_s: float = 120.0
    max_same_action: int = 3
    tool_timeout_s: float = 30.0
    tool_output_chars: int = 24_000
    requests: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None


class Budget:
    """What a run and everything it started have used so far: workers share their supervisor's.

    Not thread-safe; charged on the event loop only. ``cost_usd`` is None as soon as one price is unknown.
    """

    __slots__ = ("_charged", "cost_usd", "requests", "tokens", "tool_calls")

    def __init__(self) -> None:
        self.requests = 0
        self.tool_calls = 0
        self.tokens = 0
        self.cost_usd: float | None = 0.0
        self._charged = set[str]()

    def charge(
        self,
        *,
        requests: int = 0,
        tool_calls: int = 0,
        tokens: int = 0,
        cost_usd: float | None = 0.0,
        name: str = "",
        repeated: bool = False,
    ) -> None:
        """Add to what was used; what is ``repeated`` from a journal is left out if its ``name`` was charged before."""
        if repeated and name in self._charged:
            return
        self._charged.add(name)
        self.requests += requests
        self.tool_calls += tool_calls
        self.tokens += tokens
        self.cost_usd = None if self.cost_usd is None or cost_usd is None else self.cost_usd + cost_usd


class OutputStore(Protocol):
    """Keeps whole tool outputs whose middle was left out of the history, for ``read_output``."""

    async def put(self, thread_id: str, output_id: str, text: str) -> None:
        """Keep ``text``; the same id again replaces it."""
        ...

    async def get(self, thread_id: str, output_id: str) -> str | None:
        """Return the text, or None when this thread has none of that id."""
        ...


class MemoryOutputs:
    """An output store that lives as long as the process and keeps the newest ``limit`` outputs."""

    def __init__(self, limit: int = 100) -> None:
        self._limit = limit
        self._texts: dict[tuple[str, str], str] = {}

    async def put(self, thread_id: str, output_id: str, text: str) -> None:
        """Keep ``text``."""
        self._texts[thread_id, output_id] = text
        while len(self._texts) > self._limit:
            del self._texts[next(iter(self._texts))]

    async def get(self, thread_id: str, output_id: str) -> str | None:
        """Return the text, or None."""
        return self._texts.get((thread_id, output_id))


class Steering:
    """Messages for a run that is under way; it takes them between two steps."""

    def __init__(self) -> None:
        self._waiting: list[ModelMessage] = []

    def push(self, message: ModelMessage) -> None:
        """Hand a user message to the run."""
        self._waiting.append(message)

    @property
    def waiting(self) -> tuple[ModelMessage, ...]:
        """What the run has not taken yet, in order; after a run: what came too late for it."""
        return tuple(self._waiting)

    def take(self, count: int) -> None:
        """Remove the first ``count`` messages. Called by the loop once they are in the run's journal."""
        del self._waiting[:count]


class ContextFields(TypedDict, total=False):
    """The fields of ``RunContext`` that have a default."""

    limits: Limits
    clock: Clock
    redactor: Redactor
    journal: Journal
    emit: EventSink
    budget: Budget
    outputs: OutputStore
    steering: Steering | None
    cache_scope: str
    deps: object
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The frozen surroundings of one run, handed to the loop, the executor and every tool.

    Args:
        run_id: unique; the same when a run is resumed.
        thread_id: the conversation that the run belongs to.
        limits: see ``Limits``.
        deadline: instant on ``clock.monotonic()`` after which nothing of the run goes on.
        clock, redactor, journal: the seams above.
        emit: receives the run's events.
        budget: what was used so far; a worker has its supervisor's.
        outputs: where whole tool outputs are kept when the history gets a part of them.
        steering: messages that come while the run works; None when nobody can send any.
        cache_scope: who may share answers with whom (channel and roles, say); empty: nobody, nothing is cached.
        deps: whatever the program wants its tools and its authorizer to find here (for Hermod: who
            asked, and from where). The engine never looks into it.
        tags: small facts for traces, never secrets.
    """

    run_id: str
    thread_id: str
    deadline: float
    limits: Limits = Limits()
    clock: Clock = field(default_factory=SystemClock)
    redactor: Redactor = field(default_factory=NoRedactor)
    journal: Journal = field(default_factory=MemoryJournal)
    emit: EventSink = ignore_events
    budget: Budget = field(default_factory=Budget)
    outputs: OutputStore = field(default_factory=MemoryOutputs)
    steering: Steering | None = None
    cache_scope: str = ""
    deps: object = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def create(cls, thread_id: str = "", **fields: Unpack[ContextFields]) -> RunContext:
        """Build the context of a new run: with an id of its own, and ``limits.run_deadline_s`` from now on."""
        limits, clock = fields.get("limits", Limits()), fields.get("clock", SystemClock())
        deadline = clock.monotonic() + limits.run_deadline_s
        return cls(run_id=f"r{secrets.token_hex(8)}", thread_id=thread_id, deadline=deadline, **fields)

    def remaining_s(self) -> float:
        """Seconds until the deadline; 0 when it has passed."""
        return max(0.0, self.deadline - self.clock.monotonic())
