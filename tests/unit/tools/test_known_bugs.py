"""Bugs that other agent frameworks had in their tools, one test each, numbered as in the table of bugs."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agent_core.context import Limits, MemoryJournal, RunContext, StepState
from agent_core.errors import ConfigError, ToolFailed
from agent_core.llm.types import ToolCall
from agent_core.tools.approval import Decision
from agent_core.tools.base import Effect, Tool
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from tests.unit.tools.setting import Run, call, failure, raw
from tests.unit.tools.test_schema import assert_acceptable


class Yes:
    async def approve(self, ctx: RunContext, tool: Tool, call: ToolCall) -> Decision:
        return Decision(approved=True)


def build_registry() -> ToolRegistry:
    registry = ToolRegistry()

    @registry.register
    async def look(where: str = "here") -> str:
        return f"looked {where}"

    @registry.register
    async def crash() -> str:
        raise ZeroDivisionError("division by zero")

    @registry.register(timeout_s=0.5)
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    return registry


async def test_bug_10_every_id_of_a_batch_with_an_invalid_call_gets_its_result() -> None:
    calls = [call("look", "a"), raw("look", '{"where": 1', "b"), call("look", "c", nowhere=1), call("look", "d")]
    results = await ToolExecutor(build_registry()).run(Run().ctx, calls)
    assert [(result.call_id, result.ok) for result in results] == [("a", True), ("b", False), ("c", False), ("d", True)]


async def test_bug_12_an_unknown_tool_does_not_keep_its_valid_siblings_from_running() -> None:
    calls = [call("invented", "a"), call("look", "b"), call("invented", "c"), call("look", "d")]
    results = await ToolExecutor(build_registry()).run(Run().ctx, calls)
    assert [result.error_code for result in results] == ["unknown_tool", None, "unknown_tool", None]


async def test_bug_13_one_tool_that_raises_leaves_two_results_and_one_error() -> None:
    calls = [call("look", "a"), call("crash", "b"), call("look", "c")]
    results = await ToolExecutor(build_registry()).run(Run().ctx, calls)
    assert [result.content for result in (results[0], results[2])] == ["looked here", "looked here"]
    assert failure(results[1]).message == "crash failed with ZeroDivisionError: division by zero"


async def test_bug_14_by_default_every_failure_goes_to_the_model_as_a_result() -> None:
    registry = build_registry()

    @registry.register
    async def fail() -> str:
        raise ToolFailed("no such host", code="connect_failed", fix="check the address")

    @registry.register(effect=Effect.WRITE)
    async def write() -> str:
        return "written"

    calls = [
        call("crash", "a"),
        call("fail", "b"),
        call("hang", "c"),
        call("nothing", "d"),
        raw("look", "[]", "e"),
        call("write", "f"),
    ]
    results = await ToolExecutor(registry).run(Run().ctx, calls)
    assert [failure(result).code for result in results] == [
        "crashed",
        "connect_failed",
        "timeout",
        "unknown_tool",
        "invalid_arguments",
        "approval_required",
    ]


async def test_bug_15_blocking_tools_run_beside_each_other_and_beside_the_loop() -> None:
    registry = ToolRegistry()
    loop = asyncio.get_running_loop()
    together = threading.Barrier(2)

    @registry.register
    def block() -> str:
        together.wait(30)  # both are blocking at the same time
        beat = threading.Event()
        loop.call_soon_threadsafe(beat.set)
        return "went on" if beat.wait(30) else "the loop stood still"

    results = await ToolExecutor(registry).run(Run().ctx, [call("block", "a"), call("block", "b")])
    assert [result.content for result in results] == ["went on", "went on"]


async def test_bug_16_a_hung_tool_times_out_and_its_siblings_do_not_wait_for_it() -> None:
    run = Run()
    results = await ToolExecutor(build_registry()).run(run.ctx, [call("hang", "a"), call("look", "b")])
    assert failure(results[0]).code == "timeout"
    assert results[1].content == "looked here"
    assert run.finished == ["b", "a"]


async def test_bug_17_the_configured_timeout_is_read_and_failures_can_be_told_apart() -> None:
    registry = ToolRegistry()

    @registry.register
    async def fetch(what: str) -> str:
        match what:
            case "slow":
                await asyncio.Event().wait()
            case "locked":
                raise ToolFailed("may not read", code="insufficient_privilege", fix="GRANT pg_monitor")
            case _:
                raise ToolFailed("busy", code="lock_timeout", retryable=True)
        return "never"

    run = Run(limits=Limits(tool_timeout_s=1.0))
    calls = [call("fetch", what, what=what) for what in ("slow", "locked", "busy")]
    told = [failure(result) for result in await ToolExecutor(registry).run(run.ctx, calls)]
    assert [(one.code, one.retryable) for one in told] == [
        ("timeout", False),
        ("insufficient_privilege", False),
        ("lock_timeout", True),
    ]
    assert "1 s" in told[0].message


async def test_bug_18_a_change_that_may_still_be_running_is_not_started_again() -> None:
    registry = ToolRegistry()
    effects: list[str] = []

    @registry.register(effect=Effect.EXEC)
    async def rebuild() -> str:
        effects.append("rebuilt")
        return "done"

    executor, journal = ToolExecutor(registry, approver=Yes()), MemoryJournal()
    await executor.run_one(Run(journal=journal).ctx, call("rebuild"))
    # an earlier process got as far as this, or is still at it
    journal.entries["tool:c1"] = replace(journal.entries["tool:c1"], state=StepState.INTENT, result="")
    assert failure(await executor.run_one(Run(journal=journal).ctx, call("rebuild"))).code == "unknown_outcome"
    assert effects == ["rebuilt"]


def test_bug_19_a_second_tool_of_the_same_name_is_refused() -> None:
    registry = build_registry()
    first = registry.get("look")

    async def look() -> str:
        return "another"

    with pytest.raises(ConfigError, match="'look' is registered twice"):
        registry.register(look)
    assert registry.get("look") is first


@given(
    arguments=st.dictionaries(st.just("sql"), st.text(), min_size=1),
    cut=st.floats(0, 1, exclude_max=True),
)
async def test_bug_27_a_call_cut_anywhere_is_not_repaired_and_not_run(arguments: dict[str, str], cut: float) -> None:
    registry = ToolRegistry()
    ran: list[str] = []

    @registry.register
    async def delete_rows(sql: str = "") -> str:
        ran.append(sql)
        return "deleted"

    whole = json.dumps(arguments)
    result = await ToolExecutor(registry).run_one(Run().ctx, raw("delete_rows", whole[: int(len(whole) * cut)]))
    assert failure(result).code == "invalid_arguments"
    assert ran == []


async def test_bug_27_a_cut_delete_is_refused() -> None:
    registry = ToolRegistry()

    @registry.register
    async def run_sql(sql: str) -> str:
        return "ran"

    text = '{"sql":"DELETE FROM orders WHERE created_at < now() - interval \'90'
    told = failure(await ToolExecutor(registry).run_one(Run().ctx, raw("run_sql", text)))
    assert told.code == "invalid_arguments"
    assert "Unterminated string" in told.message


class Filter(BaseModel):
    column: str
    values: tuple[int, int] = (0, 1)


BY_ID = Filter(column="id")


async def test_bug_42_defaults_are_kept_schemas_are_acceptable_and_star_args_refused() -> None:
    registry = ToolRegistry()

    @registry.register
    async def search(text: str, by: Filter = BY_ID, limit: int = 5, note: str | None = None) -> str:
        return f"{text} {by.column} {limit} {note}"

    assert_acceptable(registry.specs()[0].parameters)
    assert registry.specs()[0].parameters["required"] == ["text"]
    result = await ToolExecutor(registry).run_one(Run().ctx, call("search", "c1", text="x"))
    assert result.content == "x id 5 None"

    async def many(*texts: str) -> str:
        return ""

    with pytest.raises(ConfigError, match=r"\*texts"):
        registry.register(many)
