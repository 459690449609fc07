"""Put a loop together for tests: scripted model, real executor, a clock that is turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from agent_core.agent import Agent
from agent_core.context import Journal, Limits, MemoryJournal, RunContext
from agent_core.llm.cache.policy import AnswerCache
from agent_core.llm.pricing import FREE, PriceList
from agent_core.llm.provider import Provider
from agent_core.llm.scripted import ScriptedProvider, Turn
from agent_core.llm.types import ModelMessage
from agent_core.memory.conversation import Conversation
from agent_core.memory.summarize import Summarizer
from agent_core.runtime.events import RunEvent
from agent_core.runtime.loop import AgentLoop
from agent_core.runtime.state import RunRecord
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry


class WordCounter:
    """Counts words; enough where counts do not matter."""

    exact = True

    def count(self, text: str) -> int:
        return len(text.split())


class HandClock:
    """Time that only moves when a test turns it, or when something sleeps on it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        await asyncio.sleep(0)


class Bench:
    """One thread with its loop; ``ask`` runs a turn."""

    def __init__(
        self,
        turns: Sequence[Turn] | Provider,
        *,
        registry: ToolRegistry | None = None,
        limits: Limits | None = None,
        agent: Agent | None = None,
        journal: Journal | None = None,
        summarizer: Summarizer | None = None,
        cache: AnswerCache | None = None,
    ) -> None:
        self.scripted = ScriptedProvider(turns) if isinstance(turns, list) else None
        provider: Provider = self.scripted or turns  # type: ignore[assignment]
        self.registry = registry or ToolRegistry()
        self.limits = limits or Limits()
        self.agent = agent or Agent(instructions="be brief")
        self.journal = journal or MemoryJournal()
        self.clock = HandClock()
        self.conversation = Conversation(WordCounter())
        self.events: list[RunEvent] = []
        prices = PriceList({"scripted": FREE})
        executor = ToolExecutor(self.registry)
        self.loop = AgentLoop(provider=provider, executor=executor, prices=prices, summarizer=summarizer, cache=cache)

    @property
    def script(self) -> ScriptedProvider:
        """The scripted provider, to look at what was asked."""
        assert self.scripted is not None
        return self.scripted

    def context(self, run_id: str = "run1") -> RunContext:
        return RunContext(
            run_id=run_id,
            thread_id="t1",
            limits=self.limits,
            deadline=self.clock.monotonic() + self.limits.run_deadline_s,
            clock=self.clock,
            journal=self.journal,
            emit=self.events.append,
        )

    async def ask(self, text: str, *, run_id: str = "run1", **context: object) -> RunRecord:
        ctx = replace(self.context(run_id), **context)  # type: ignore[arg-type]
        return await self.loop.run(self.agent, ctx, self.conversation, [ModelMessage(role="user", content=text)])
