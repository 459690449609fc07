"""Rows 6, 9 and 18: a run that stopped in the middle goes on, and no side effect happens twice."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path

import pytest

from agent_core.context import MemoryJournal, RunContext, StepState
from agent_core.llm.types import ToolCall
from agent_core.memory.validity import is_sendable
from agent_core.runtime.state import RunState
from agent_core.tools.approval import Decision
from agent_core.tools.base import Tool
from tests.bugs.stage import Stage, pairs
from tests.servers.openai import OpenAIServer

ROOT = Path(__file__).parents[2]


class Desk:
    """A person who takes their time: ``decision`` is what they say once ``asked``; until then the call waits."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.decision: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self.calls: list[str] = []

    async def approve(self, ctx: RunContext, tool: Tool, call: ToolCall) -> Decision:
        self.calls.append(call.id)
        self.asked.set()
        return await asyncio.shield(self.decision)


@pytest.mark.parametrize("approved", [True, False])
async def test_bug_6_a_decision_after_a_restart_keeps_the_call_and_its_result_and_the_thread_goes_on(
    server: OpenAIServer, approved: bool
) -> None:
    server.on(user="first", step=0).tools(("look", {}), ("restart", {"host": "a"}))
    server.on().text("done")
    journal, desk = MemoryJournal(), Desk()
    async with Stage(server, approver=desk) as stage:
        waiting = asyncio.create_task(stage.ask("first", journal=journal))
        await asyncio.wait_for(desk.asked.wait(), 30)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with Stage(server, approver=desk) as stage:  # the next process, with nothing but the journal
        desk.decision.set_result(Decision(approved=approved, by="ann"))
        record = await stage.ask("first", journal=journal)
        assert (record.state, record.answer) == (RunState.FINISHED, "done")
        assert stage.ran["restart a"] == approved
        assert len(set(desk.calls)) == 1  # the same call, asked about again
        (call_id,) = set(desk.calls)
        assert call_id in journal.entries["model:1"].result  # the journal has the call ...
        if approved:
            assert journal.entries[f"tool:{call_id}"].state is StepState.DONE  # ... and its result
        results = dict(pairs(stage.conversation.messages))
        assert ("a restarted" in results["restart"]) is approved
        assert is_sendable(stage.conversation.messages)
        assert (await stage.ask("next", "run2")).answer == "done"
    assert server.violations == []
    assert [r.last_said for r in server.requests] == ["first", "first", "next"]


async def die_in(tool: str, server: OpenAIServer, folder: Path) -> tuple[dict[str, str], Counter[str]]:
    """Kill a process (SIGKILL) while ``tool`` works, run the turn again; returns what it said and the tool's runs."""
    server.on(step=0).tools((tool, {}))
    server.on().text("done")
    count = folder / "count"

    async def start(mode: str) -> asyncio.subprocess.Process:
        words = ["-m", "tests.bugs.dying", server.base_url, str(folder / "journal"), str(count), mode]
        return await asyncio.create_subprocess_exec(sys.executable, *words, stdout=PIPE, cwd=ROOT)

    async with asyncio.timeout(90):  # two processes start
        first = await start("hang")
        assert first.stdout is not None
        assert await first.stdout.readline() == b"working\n"
        first.kill()
        await first.communicate()
        again = await start("go")
        said, _ = await again.communicate()
    return json.loads(said.splitlines()[-1]), Counter(count.read_text().split())


async def test_bug_9_a_run_killed_inside_a_tool_goes_on_and_the_server_accepts_it(
    server: OpenAIServer, tmp_path: Path
) -> None:
    said, ran = await die_in("look", server, tmp_path)
    assert said == {"answer": "done", "error": ""}
    assert ran == {"look": 2}  # a look may be had again
    assert "look done" in server.requests[-1].tool_results["look"]
    assert server.violations == []


async def test_bug_18_a_side_effect_that_a_kill_left_in_doubt_is_not_started_again(
    server: OpenAIServer, tmp_path: Path
) -> None:
    said, ran = await die_in("restart", server, tmp_path)
    assert said == {"answer": "done", "error": ""}
    assert ran == {"restart": 1}
    assert "unknown_outcome" in server.requests[-1].tool_results["restart"]
    assert server.violations == []
