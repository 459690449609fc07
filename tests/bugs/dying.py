"""A process that runs one turn with a journal in a file, and can be killed: ``python -m tests.bugs.dying``.

Arguments: the model server's address, the journal's file, the file that counts runs of the tool, ``hang`` or ``go``.
It prints ``working`` once its tool has begun, and at the end its answer as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from agent_core.agent import Agent
from agent_core.context import JournalEntry, MemoryJournal, RunContext, StepState, SystemClock
from agent_core.llm.openai_compat import OpenAICompatible
from agent_core.llm.tokens import EstimatingCounter
from agent_core.llm.types import ModelMessage
from agent_core.memory.conversation import Conversation
from agent_core.runtime.loop import AgentLoop
from agent_core.tools.base import Effect
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from tests.bugs.stage import Yes


class FileJournal(MemoryJournal):
    """A journal of lines; what was written is read again by the next process."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        for line in path.read_text().splitlines() if path.exists() else []:
            read = json.loads(line)
            self.entries[read["key"]] = JournalEntry(**{**read, "state": StepState(read["state"])})

    def _write(self, entry: JournalEntry) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(entry)) + "\n")

    async def begin(self, entry: JournalEntry) -> JournalEntry | None:
        known = await super().begin(entry)
        if known is None:
            self._write(entry)
        return known

    async def finish(self, key: str, state: StepState, result: str) -> None:
        await super().finish(key, state, result)
        self._write(self.entries[key])


async def main(base_url: str, journal: str, count: str, mode: str) -> None:
    registry = ToolRegistry()

    async def work(name: str) -> str:
        with Path(count).open("a") as file:  # noqa: ASYNC230  # a byte, so that the count outlives a kill
            file.write(f"{name}\n")
        sys.stdout.write("working\n")
        sys.stdout.flush()
        if mode == "hang":
            await asyncio.Event().wait()
        return f"{name} done"

    async def look() -> str:
        """Look at it."""
        return await work("look")

    async def restart() -> str:
        """Restart it."""
        return await work("restart")

    registry.register(look)
    registry.register(restart, effect=Effect.EXEC)
    provider = OpenAICompatible(name="main", model="fake-large", api_key="k", base_url=base_url)
    loop = AgentLoop(provider=provider, executor=ToolExecutor(registry, approver=Yes()))
    ctx = RunContext(
        run_id="run1", thread_id="t1", deadline=SystemClock().monotonic() + 60, journal=FileJournal(Path(journal))
    )
    question = [ModelMessage(role="user", content="do it")]
    record = await loop.run(Agent(), ctx, Conversation(EstimatingCounter()), question)
    sys.stdout.write(json.dumps({"answer": record.answer, "error": str(record.error or "")}) + "\n")
    await provider.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
