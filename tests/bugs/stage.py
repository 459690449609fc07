"""One thread whose model is the strict local server, asked through the official SDK."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from typing import Self

from agent_core.agent import Agent
from agent_core.context import Journal, Limits, MemoryJournal, RunContext, SystemClock
from agent_core.llm.openai_compat import OpenAICompatible
from agent_core.llm.tokens import EstimatingCounter
from agent_core.llm.types import ModelMessage, ToolCall
from agent_core.memory.conversation import Conversation
from agent_core.memory.summarize import Summarizer
from agent_core.runtime.events import EventSink, ignore_events
from agent_core.runtime.loop import AgentLoop
from agent_core.runtime.state import RunRecord
from agent_core.tools.approval import Approver, Decision
from agent_core.tools.base import Effect, Tool
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from tests.servers.openai import OpenAIServer


class Yes:
    """Approves everything."""

    async def approve(self, ctx: RunContext, tool: Tool, call: ToolCall) -> Decision:
        return Decision(approved=True, by="ann")


class Stage:
    """A server, a loop over it, and one conversation; ``ask`` runs a turn in it.

    Its tools: ``look`` (READ) and ``restart`` (EXEC), whose runs are counted in ``ran``.
    """

    def __init__(
        self,
        server: OpenAIServer,
        *,
        approver: Approver | None = None,
        limits: Limits | None = None,
        summarizer: Summarizer | None = None,
    ) -> None:
        self.server = server
        self.summarizer = summarizer
        self.limits = limits or Limits()
        self.provider = OpenAICompatible(name="main", model="fake-large", api_key="k", base_url=server.base_url)
        self.ran: Counter[str] = Counter()
        self.registry = ToolRegistry()
        self.registry.register(self.look)
        self.registry.register(self.restart, effect=Effect.EXEC)
        self.executor = ToolExecutor(self.registry, approver=approver or Yes())
        self.conversation = Conversation(EstimatingCounter())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.provider.aclose()

    async def look(self, where: str = "here") -> str:
        """Look somewhere."""
        self.ran[f"look {where}"] += 1
        return f"looked {where}"

    async def restart(self, host: str = "a") -> str:
        """Restart a host."""
        self.ran[f"restart {host}"] += 1
        return f"{host} restarted"

    def context(
        self, run_id: str = "run1", *, journal: Journal | None = None, emit: EventSink | None = None
    ) -> RunContext:
        clock = SystemClock()
        return RunContext(
            run_id=run_id,
            thread_id="t1",
            limits=self.limits,
            deadline=clock.monotonic() + self.limits.run_deadline_s,
            clock=clock,
            journal=journal or MemoryJournal(),
            emit=emit or ignore_events,
        )

    async def ask(
        self,
        text: str,
        run_id: str = "run1",
        *,
        agent: Agent | None = None,
        journal: Journal | None = None,
        emit: EventSink | None = None,
    ) -> RunRecord:
        loop = AgentLoop(provider=self.provider, executor=self.executor, summarizer=self.summarizer)
        ctx = self.context(run_id, journal=journal, emit=emit)
        question = [ModelMessage(role="user", content=text)]
        async with asyncio.timeout(30):
            return await loop.run(agent or Agent(instructions="be brief"), ctx, self.conversation, question)

    def sent(self, n: int = -1) -> list[dict[str, object]]:
        """The messages of the n-th request that the server got."""
        return self.server.requests[n].messages


def pairs(messages: Iterable[ModelMessage]) -> list[tuple[str, str]]:
    """Each call with the result that stands right after it, in order: name and result."""
    found: list[tuple[str, str]] = []
    waiting: list[ToolCall] = []
    for message in messages:
        if message.role == "tool":
            found.append((waiting.pop(0).name, message.content))
        else:
            assert waiting == []
            waiting = list(message.tool_calls)
    return found


def as_bytes(messages: object) -> bytes:
    """The JSON of messages, to compare byte by byte."""
    return json.dumps(messages, ensure_ascii=False).encode()
