"""Row 44: the connection pool carries 200 runs at once."""

from __future__ import annotations

import asyncio

from agent_core.agent import Agent
from agent_core.llm.types import ModelMessage
from agent_core.memory.conversation import Conversation
from agent_core.runtime.loop import AgentLoop
from agent_core.runtime.state import RunState
from tests.bugs.stage import Stage
from tests.servers.openai import OpenAIServer, Reply, Request
from tests.unit.engine.running import WordCounter

RUNS = 200


class Gate:
    """Holds every request back until ``RUNS`` of them are there: a smaller pool would wait for ever."""

    def __init__(self, server: OpenAIServer) -> None:
        self._server = server
        self.open = asyncio.Event()

    def watch(self, request: Request) -> bool:
        if self._server.in_flight == RUNS:
            self.open.set()
        return True


async def test_bug_44_200_runs_are_under_way_at_once_and_each_is_answered(server: OpenAIServer, stage: Stage) -> None:
    gate = Gate(server)
    hold = server.on(step=0, where=gate.watch).tools(("look", {}))
    hold.wait = gate.open
    server.on(step=1).dynamic(lambda request: Reply(f"answer to {request.last_said}"))
    loop = AgentLoop(provider=stage.provider, executor=stage.executor)

    async def one(n: int) -> tuple[RunState, str]:
        question = [ModelMessage(role="user", content=f"question {n}")]
        record = await loop.run(Agent(), stage.context(f"run{n}"), Conversation(WordCounter()), question)
        return record.state, record.answer

    async with asyncio.timeout(60):
        ended = await asyncio.gather(*(one(n) for n in range(RUNS)))
    assert ended == [(RunState.FINISHED, f"answer to question {n}") for n in range(RUNS)]
    assert server.peak == RUNS
    assert len(server.requests) == 2 * RUNS
    assert server.violations == []
