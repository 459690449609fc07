"""What a resumed run does with the tool calls of its earlier attempt."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.context import JournalEntry, MemoryJournal, RunContext, StepState
from agent_core.errors import ReplayMismatch, ToolFailed
from agent_core.llm.types import ToolCall
from agent_core.tools.approval import Decision
from agent_core.tools.base import Effect, Tool, ToolResult
from agent_core.tools.executor import ToolExecutor, dump_result, load_result
from agent_core.tools.registry import ToolRegistry
from tests.unit.tools.setting import Run, call, failure


class Yes:
    async def approve(self, ctx: RunContext, tool: Tool, call: ToolCall) -> Decision:
        return Decision(approved=True, by="ann")


class Desk:
    """A tool that counts how often it really ran, and can be told to hang or to fail."""

    def __init__(self, effect: Effect = Effect.READ) -> None:
        self.ran = 0
        self.begun = asyncio.Event()
        self.hang = False
        self.fail = False
        registry = ToolRegistry()
        registry.register(self.order, effect=effect, timeout_s=0.05)
        registry.register(self.slow, effect=effect)
        self.executor = ToolExecutor(registry, approver=Yes())

    async def order(self, what: str = "tea", count: int = 1) -> str:
        """Order."""
        self.ran += 1
        if self.hang:
            await asyncio.Event().wait()
        if self.fail:
            raise ToolFailed("sold out", code="sold_out")
        return f"{count} {what}, order {self.ran}"

    async def slow(self) -> str:
        """Work until cancelled."""
        self.ran += 1
        self.begun.set()
        await asyncio.Event().wait()
        return "never"


def resumed(run: Run) -> Run:
    return Run(journal=run.journal, clock=run.clock)


def entry(run: Run, key: str = "tool:c1") -> JournalEntry:
    assert isinstance(run.journal, MemoryJournal)
    return run.journal.entries[key]


@pytest.mark.parametrize("effect", list(Effect))
async def test_a_finished_call_is_not_made_again(effect: Effect) -> None:
    desk, run = Desk(effect), Run()
    first = await desk.executor.run_one(run.ctx, call("order", "c1", what="tea", count=2))
    again = resumed(run)
    second = await desk.executor.run_one(again.ctx, call("order", "c1", count=2, what="tea"))
    assert desk.ran == 1
    assert second == replace(first, replayed=True)
    assert (again.started, again.finished) == ([], ["c1"])


async def test_a_failed_call_stays_failed() -> None:
    desk, run = Desk(Effect.WRITE), Run()
    desk.fail = True
    await desk.executor.run_one(run.ctx, call("order"))
    assert entry(run).state is StepState.FAILED
    desk.fail = False
    result = await desk.executor.run_one(resumed(run).ctx, call("order"))
    assert (failure(result).code, desk.ran) == ("sold_out", 1)


async def test_the_journal_knows_tool_effect_and_arguments_before_the_tool_runs() -> None:
    desk, run = Desk(Effect.EXEC), Run()
    seen: list[StepState] = []

    class Watching(MemoryJournal):
        async def begin(self, entry: JournalEntry) -> JournalEntry | None:
            assert desk.ran == 0
            seen.append(entry.state)
            assert (entry.key, entry.kind, entry.name, entry.effect) == ("tool:c1", "tool", "order", "exec")
            return await super().begin(entry)

    run.journal = Watching()
    await desk.executor.run_one(run.ctx, call("order"))
    assert seen == [StepState.INTENT]


async def killed(desk: Desk, run: Run) -> None:
    """Stop the process, as it were, while the tool works."""
    work = asyncio.create_task(desk.executor.run_one(run.ctx, call("slow")))
    await desk.begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert entry(run).state is StepState.INTENT


async def test_a_read_that_was_interrupted_runs_again() -> None:
    desk, run = Desk(), Run()
    await killed(desk, run)
    desk.begun.clear()
    again = asyncio.create_task(desk.executor.run_one(resumed(run).ctx, call("slow")))
    await asyncio.wait_for(desk.begun.wait(), 30)
    again.cancel()
    assert desk.ran == 2


@pytest.mark.parametrize("effect", [Effect.WRITE, Effect.EXEC])
async def test_a_change_that_was_interrupted_is_shown_to_a_person_and_never_repeated(effect: Effect) -> None:
    desk, run = Desk(effect), Run()
    await killed(desk, run)
    for _ in range(2):
        told = failure(await desk.executor.run_one(resumed(run).ctx, call("slow")))
        assert told.code == "unknown_outcome"
        assert "a person has to check" in told.fix
    assert desk.ran == 1
    assert entry(run).state is StepState.UNKNOWN


async def test_a_change_that_ran_out_of_time_is_in_doubt_and_says_so() -> None:
    desk, run = Desk(Effect.WRITE), Run()
    desk.hang = True
    told = failure(await desk.executor.run_one(run.ctx, call("order")))
    assert told.code == "timeout"
    assert "whether it took effect is unknown" in told.message
    assert entry(run).state is StepState.UNKNOWN
    desk.hang = False
    assert failure(await desk.executor.run_one(resumed(run).ctx, call("order"))).code == "timeout"
    assert desk.ran == 1


async def test_another_call_under_the_same_key_ends_the_run() -> None:
    desk, run = Desk(), Run()
    await desk.executor.run_one(run.ctx, call("order", "c1", count=2))
    for other in (call("order", "c1", count=3), call("order", "c1"), call("slow", "c1")):
        with pytest.raises(ReplayMismatch):
            await desk.executor.run_one(resumed(run).ctx, other)
    with pytest.raises(ReplayMismatch):
        await desk.executor.run(resumed(run).ctx, [call("order", "c0"), call("order", "c1", count=3)])


async def test_a_result_that_cannot_be_read_back_ends_the_run() -> None:
    desk, run = Desk(), Run()
    await desk.executor.run_one(run.ctx, call("order"))
    for broken in ("{", "[]", '{"ok": true}'):
        await run.journal.finish("tool:c1", StepState.DONE, broken)
        with pytest.raises(ReplayMismatch):
            await desk.executor.run_one(resumed(run).ctx, call("order"))


class Gone(Exception):
    """The claim was lost."""


async def test_a_journal_that_cannot_be_written_stops_the_run_with_its_own_error() -> None:
    desk = Desk()

    class Fenced(MemoryJournal):
        async def begin(self, entry: JournalEntry) -> JournalEntry | None:
            raise Gone

    run = Run(journal=Fenced())
    for calls in ([call("order", "1")], [call("order", "1"), call("order", "2")]):
        with pytest.raises(Gone):
            await desk.executor.run(run.ctx, calls)
    assert desk.ran == 0


async def test_a_refused_call_leaves_no_trace_in_the_journal() -> None:
    desk, run = Desk(), Run()
    await desk.executor.run(run.ctx, [call("order", "1", wat=1), call("nobody", "2")])
    assert isinstance(run.journal, MemoryJournal)
    assert run.journal.entries == {}


@given(
    st.builds(
        ToolResult,
        call_id=st.text(),
        name=st.text(),
        ok=st.booleans(),
        content=st.text(),
        error_code=st.none() | st.text(),
        started_at=st.datetimes(timezones=st.just(UTC)),
        duration_s=st.floats(0, 1e6),
        attempts=st.integers(0, 3),
        truncated=st.booleans(),
    )
)
def test_a_result_comes_back_from_the_journal_as_it_was(result: ToolResult) -> None:
    assert load_result(dump_result(result)) == replace(result, replayed=True)


@given(st.recursive(st.none() | st.booleans() | st.text() | st.integers(), st.lists) | st.text())
def test_anything_else_is_a_value_error(thing: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # which one depends on the thing
        load_result(thing if isinstance(thing, str) else json.dumps(thing))


def test_the_stored_form_is_known() -> None:
    result = ToolResult(call_id="c", name="n", ok=True, content="é", started_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert json.loads(dump_result(result)) == {
        "call_id": "c",
        "name": "n",
        "ok": True,
        "content": "é",
        "error_code": None,
        "started_at": "2026-01-01T00:00:00+00:00",
        "duration_s": 0.0,
        "attempts": 1,
        "truncated": False,
        "trusted": False,
    }
