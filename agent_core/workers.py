"""Workers as data, one run of a worker inside another run, and ``call_worker``, with which an agent asks one."""

from __future__ import annotations

import hashlib
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from agent_core.agent import Agent
from agent_core.context import Journal, JournalEntry, RunContext, StepState
from agent_core.errors import ConfigError, ModelRetry, ToolFailed
from agent_core.llm.types import ModelMessage
from agent_core.memory.conversation import Conversation
from agent_core.prompts import ANSWERING, Prompts, PromptTemplate, describe_time, describe_tools
from agent_core.runtime.loop import AgentLoop
from agent_core.runtime.state import RunRecord
from agent_core.tools.base import Effect
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import NAME_PATTERN, ToolRegistry

CALL_WORKER = "call_worker"
_TASK = Field(min_length=1, max_length=8_000, description="What to find out; the worker sees nothing but this.")

SHARE = 0.8
"""Of a run's remaining time, the part that its workers may take; the rest is for what is made of their findings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """An agent with instructions and tools of its own, which ``build_workers`` makes ready to be asked.

    Args:
        agent: its name, tools (None: every READ tool) and bounds.
        description: what it finds out, for whoever divides the work.
        template: its instructions, or their name. They are filled in when it is asked, for only then it is known which
            of its tools the person behind the run may use.
    """

    agent: Agent
    description: str
    template: PromptTemplate | str = "react"

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.agent.name


def load_built_in() -> Iterator[Worker]:
    """Yield the workers of ``workers.toml``, with every tool that they could use."""
    for name, d in tomllib.loads((files("agent_core") / "workers.toml").read_text(encoding="utf-8")).items():
        steps, memory = d.get("max_steps", 5), d.get("memory_tokens", 8_000)
        agent = Agent(name=name, tools=tuple(d["tools"]), max_steps=steps, memory_tokens=memory)
        yield Worker(agent=agent, description=d["description"], template=d["template"])


def build_workers(configured: Sequence[Worker], prompts: Prompts, registry: ToolRegistry) -> Mapping[str, Worker]:
    """Return the workers of ``workers.toml`` and the configured ones, which replace those of the same name.

    Call it when every tool is registered. No worker gets ``call_worker``.

    Raises:
        ConfigError: a configured worker has an illegal name, no description, an unknown tool or template.
    """
    known = {tool.name: tool for tool in registry.tools() if tool.name != CALL_WORKER}
    reading = tuple(name for name, tool in known.items() if tool.effect is Effect.READ)
    workers: dict[str, Worker] = {}
    for worker in load_built_in():
        tools = tuple(name for name in worker.agent.tools or () if name in known)
        workers[worker.name] = _complete(worker, tools, prompts)
    for worker in configured:
        if NAME_PATTERN.fullmatch(worker.name) is None or not worker.description.strip():
            raise ConfigError(f"worker {worker.name!r}: needs a description, and a name of letters, digits, '_', '-'")
        tools = reading if worker.agent.tools is None else worker.agent.tools
        if unknown := sorted(set(tools) - known.keys()):
            raise ConfigError(f"worker {worker.name!r}: it cannot have the tools {unknown}; known are {sorted(known)}")
        workers[worker.name] = _complete(worker, tools, prompts)
    return MappingProxyType(workers)


def _complete(worker: Worker, tools: tuple[str, ...], prompts: Prompts) -> Worker:
    template = prompts.get(worker.template) if isinstance(worker.template, str) else worker.template
    if template is None or template.placeholders - ANSWERING:
        known = sorted(name for name, found in prompts.items() if found.allowed == ANSWERING)
        raise ConfigError(f"worker {worker.name!r}: it cannot use the template {worker.template!r}; known are {known}")
    agent = replace(worker.agent, tools=tools, stream=False, template=template.label)
    return replace(worker, agent=agent, template=template)


def describe_workers(workers: Mapping[str, Worker]) -> str:
    """Return a line for each worker: its name and what it is for."""
    return "\n".join(f"- {name}: {worker.description}" for name, worker in workers.items())


# -- a run inside a run --------------------------------------------------------------------------------


class PartJournal:
    """The part of a run's journal that belongs to a run inside it: its keys begin with the part's name."""

    def __init__(self, journal: Journal, part: str) -> None:
        self._journal, self._part = journal, part

    async def begin(self, entry: JournalEntry) -> JournalEntry | None:
        """Record the intent of a step, or return what is known of it."""
        known = await self._journal.begin(replace(entry, key=f"{self._part}/{entry.key}"))
        return known and replace(known, key=entry.key)

    async def finish(self, key: str, state: StepState, result: str) -> None:
        """Record how the step ended."""
        await self._journal.finish(f"{self._part}/{key}", state, result)


def build_part(ctx: RunContext, part: str) -> RunContext:
    """Return the context of a run inside that of ``ctx``: same budget, deadline, rights and events; own id and keys."""
    return replace(ctx, run_id=f"{ctx.run_id}-{part}", journal=PartJournal(ctx.journal, part), steering=None)


def shorten_deadline(ctx: RunContext) -> RunContext:
    """Return ``ctx`` with the time that workers may take."""
    time_s = ctx.remaining_s() * SHARE
    limits = replace(ctx.limits, run_deadline_s=round(time_s, 1))
    return replace(ctx, deadline=ctx.clock.monotonic() + time_s, limits=limits)


async def run_worker(
    worker: Worker, task: str, ctx: RunContext, *, loop: AgentLoop, executor: ToolExecutor
) -> RunRecord:
    """Let a worker of ``build_workers`` do ``task``, in a conversation of its own; ``ctx`` is from ``build_part``."""
    if isinstance(worker.template, str):
        raise ConfigError(f"worker {worker.name!r} is not ready; build_workers makes it so")
    tools = describe_tools(executor.specs(ctx, worker.agent.tools))
    instructions = worker.template.fill(name=worker.name, now=describe_time(ctx.clock.now()), tools=tools)
    agent = replace(worker.agent, instructions=instructions)
    return await loop.run(agent, ctx, Conversation(), [ModelMessage(role="user", content=task)])


# -- as a tool -----------------------------------------------------------------------------------------


def register_call_worker(
    registry: ToolRegistry, workers: Mapping[str, Worker], *, loop: AgentLoop, executor: ToolExecutor
) -> None:
    """Register ``call_worker``: an agent hands a task to one of ``workers``, which have no such tool themselves.

    The same task for the same worker again in one run gets the same finding.
    """
    under_way: set[str] = set()

    async def call_worker(ctx: RunContext, worker: str, task: Annotated[str, _TASK]) -> dict[str, object]:
        if worker not in workers:
            raise ModelRetry(f"there is no worker {worker!r}; take one of {[*workers]}")
        # named by what is asked, so that a run that is resumed finds the worker's steps again
        part = hashlib.blake2b(f"{worker}\0{task}".encode(), digest_size=6).hexdigest()
        inside = build_part(shorten_deadline(ctx), f"c{part}")
        if inside.run_id in under_way:
            raise ToolFailed(f"{worker} is at this task already; its other call will tell", code="busy")
        under_way.add(inside.run_id)
        try:
            record = await run_worker(workers[worker], task, inside, loop=loop, executor=executor)
        finally:
            under_way.discard(inside.run_id)
        if record.error is not None:
            said = f"{worker} did not finish: {record.error}. {record.answer}"
            raise ToolFailed(said.strip(), code=record.error.kind)
        return {"ok": True, "worker": worker, "finding": record.answer}

    registry.register(
        call_worker,
        description="Hand a task to a worker, who has tools of its own and returns a finding. Call it several times at "
        f"once for tasks that do not depend on each other. The workers:\n{describe_workers(workers)}",
        timeout_s=math.inf,  # bounded by what remains of the run
    )
