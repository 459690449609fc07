"""What the tests of tools share: a clock turned by hand, a run, a call, and a look at a result."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from agent_core.context import Journal, Limits, MemoryJournal, NoRedactor, Redactor, RunContext
from agent_core.llm.types import ToolCall
from agent_core.runtime.events import RunEvent, ToolFinished, ToolStarted
from agent_core.tools.base import ToolResult
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry


class TurnedClock:
    """Time that moves when a test turns it, or when something sleeps on it."""

    def __init__(self, start: datetime = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)) -> None:
        self.start = start
        self.seconds = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)


@dataclass
class Run:
    """One run and what it emitted."""

    limits: Limits = field(default_factory=Limits)
    journal: Journal = field(default_factory=MemoryJournal)
    redactor: Redactor = field(default_factory=NoRedactor)
    clock: TurnedClock = field(default_factory=TurnedClock)
    deps: object = None
    events: list[RunEvent] = field(default_factory=list)

    @property
    def ctx(self) -> RunContext:
        return RunContext(
            run_id="run-1",
            thread_id="thread-1",
            deadline=self.limits.run_deadline_s,
            limits=self.limits,
            clock=self.clock,
            redactor=self.redactor,
            journal=self.journal,
            emit=self.events.append,
            deps=self.deps,
        )

    @property
    def started(self) -> list[str]:
        return [event.call.id for event in self.events if isinstance(event, ToolStarted)]

    @property
    def finished(self) -> list[str]:
        return [event.result.call_id for event in self.events if isinstance(event, ToolFinished)]


def call(name: str, id: str = "c1", /, **arguments: object) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=json.dumps(arguments))


def raw(name: str, arguments: str, id: str = "c1") -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


@dataclass(frozen=True)
class Failure:
    code: str
    message: str
    fix: str
    retryable: bool


def failure(result: ToolResult) -> Failure:
    """Read a failed result, and check that it has the one form."""
    assert result.ok is False
    read = json.loads(result.content)
    assert read["ok"] is False
    assert list(read["error"]) == ["code", "message", "fix", "retryable"]
    assert read["error"]["code"] == result.error_code
    return Failure(**read["error"])


# -- tools that several tests call ------------------------------------------------------------------

registry = ToolRegistry()
executor = ToolExecutor(registry)


@registry.register
async def get_rooms(floor: int = 1, limit: int = 10) -> dict[str, object]:
    """List rooms."""
    return {"ok": True, "floor": floor, "limit": limit}


@registry.register
async def echo(text: str) -> str:
    """Say it again."""
    return text


@registry.register(timeout_s=0.05)
async def hang() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return "never"


@registry.register
async def crash(text: str = "boom") -> str:
    """Raise."""
    raise KeyError(text)
