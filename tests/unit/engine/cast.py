"""A model that plays several parts, told apart by their instructions, for tests of supervisor and workers."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from agent_core.context import Journal, Limits, MemoryJournal, RunContext
from agent_core.errors import ProviderError, ToolFailed
from agent_core.llm.pricing import FREE, PriceList
from agent_core.llm.provider import Provider
from agent_core.llm.scripted import say
from agent_core.llm.types import ModelRequest, ModelResponse, StreamItem, TextChunk, Usage
from agent_core.memory.conversation import Conversation
from agent_core.prompts import load_prompts
from agent_core.runtime.events import RunEvent
from agent_core.runtime.loop import AgentLoop
from agent_core.supervisor import Assignment, Supervisor, SupervisorRecord
from agent_core.tools.approval import Approver, Authorizer
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from agent_core.workers import Worker, build_workers
from tests.unit.engine.running import HandClock, WordCounter

Line = str | ModelResponse | ProviderError | Callable[[ModelRequest], Awaitable[str | ModelResponse]]
"""What a part says: text, a response, an error, or a coroutine function of the request."""

PARTS = ((r"You divide a task", "plan"), (r"You write the answer", "synthesis"), (r"You are (\w+)\.", ""))
USAGE = Usage(input_tokens=10, output_tokens=5, requests=1)


class Cast:
    """Each part has its lines, in order; the last is said again and again."""

    name = model = "scripted"

    def __init__(self, **parts: Line | Sequence[Line]) -> None:
        self._parts = {name: list(said) if isinstance(said, list | tuple) else [said] for name, said in parts.items()}
        self.asked: list[tuple[str, ModelRequest]] = []

    async def complete(self, request: ModelRequest) -> ModelResponse:
        part = _part_of(request)
        self.asked.append((part, request))
        lines: list[Any] = self._parts[part]
        line = lines.pop(0) if len(lines) > 1 else lines[0]
        if isinstance(line, ProviderError):
            raise line
        if callable(line):
            line = await line(request)
        return replace(say(line), usage=USAGE) if isinstance(line, str) else line

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        response = await self.complete(request)
        yield TextChunk(text=response.message.content)
        yield response

    def prepare(self) -> None:
        """Nothing to prepare."""

    async def aclose(self) -> None:
        """Nothing to release."""

    def requests(self, part: str) -> list[ModelRequest]:
        return [request for name, request in self.asked if name == part]

    def question(self, part: str, n: int = 0) -> str:
        """What a part was asked, without the system message."""
        return "\n".join(m.content for m in self.requests(part)[n].messages if m.role == "user")


def _part_of(request: ModelRequest) -> str:
    system = request.messages[0].content
    for pattern, part in PARTS:
        if found := re.match(pattern, system):
            return part or found[1]
    raise AssertionError(f"nobody plays this: {system[:60]}")


def plan(*assignments: tuple[str, str] | tuple[str, str, list[str]]) -> str:
    """The JSON of a plan: pairs of an id and a worker, perhaps with ids that it depends on."""
    return json.dumps(
        {
            "assignments": [
                {"id": a[0], "worker": a[1], "task": f"task of {a[0]}", "depends_on": a[2] if len(a) == 3 else []}
                for a in assignments
            ]
        }
    )


def registry() -> ToolRegistry:
    """Tools for workers: one that the built-in ones know by name, one that fails, one that is nobody's."""
    tools = ToolRegistry()

    async def get_slow_queries(limit: int = 5) -> dict[str, object]:
        """List the slowest statements. With their plans."""
        return {"ok": True, "rows": [["select 1", limit]]}

    async def calculator(expression: str) -> str:
        """Compute something."""
        raise ToolFailed("no result", code="bad_expression")

    async def reboot() -> str:
        """Restart the server."""
        return "done"

    tools.register(get_slow_queries)
    tools.register(calculator)
    tools.register(reboot)
    return tools


class Stage:
    """A supervisor with the built-in workers over a cast; ``run`` does a task."""

    def __init__(
        self,
        provider: Provider,
        *,
        limits: Limits | None = None,
        journal: Journal | None = None,
        tools: ToolRegistry | None = None,
        authorizer: Authorizer | None = None,
        approver: Approver | None = None,
        configured: Sequence[Worker] = (),
        max_assignments: int = 8,
        max_parallel: int = 4,
        plan: Sequence[Assignment] = (),
    ) -> None:
        self.registry = tools or registry()
        self.executor = ToolExecutor(self.registry, authorizer=authorizer, approver=approver)
        self.loop = AgentLoop(provider=provider, executor=self.executor, prices=PriceList({"scripted": FREE}))
        self.workers = build_workers(configured, load_prompts(), self.registry)
        self.supervisor = Supervisor(
            loop=self.loop,
            executor=self.executor,
            workers=self.workers,
            prompts=load_prompts(),
            max_assignments=max_assignments,
            max_parallel=max_parallel,
            plan=plan,
        )
        self.limits = limits or Limits()
        self.journal = journal or MemoryJournal()
        self.clock = HandClock()
        self.conversation = Conversation(WordCounter())
        self.events: list[RunEvent] = []

    @property
    def ctx(self) -> RunContext:
        return RunContext(
            run_id="run1",
            thread_id="t1",
            limits=self.limits,
            deadline=self.clock.monotonic() + self.limits.run_deadline_s,
            clock=self.clock,
            journal=self.journal,
            emit=self.events.append,
        )

    async def run(self, task: str = "why is it slow?", **context: object) -> SupervisorRecord:
        ctx = replace(self.ctx, **context)  # type: ignore[arg-type]
        return await self.supervisor.run(ctx, task, self.conversation)
