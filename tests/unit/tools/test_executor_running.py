"""How calls run: retries, time, threads, company, rights and approvals."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import threading
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.context import Limits, RunContext
from agent_core.errors import ToolFailed
from agent_core.llm.types import ToolCall
from agent_core.tools.approval import Decision, Denial
from agent_core.tools.base import Effect, Tool
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from tests.unit.tools.setting import (
    Run,
    TurnedClock,
    call,
    executor,
    failure,
    raw,
    registry,
)

# -- retries -----------------------------------------------------------------------------------------


class Flaky:
    """Fails as often as it is told."""

    def __init__(
        self, failures: int, *, retryable: bool = True, effect: Effect = Effect.READ, costs_s: float = 0
    ) -> None:
        self.failures = failures
        self.calls = 0
        self.clock = TurnedClock()
        self.retryable = retryable
        self.costs_s = costs_s
        own = ToolRegistry()
        own.register(self.tool, effect=effect)
        self.executor = ToolExecutor(own, approver=Yes())

    async def tool(self) -> str:
        """Try."""
        self.calls += 1
        self.clock.seconds += self.costs_s
        if self.calls <= self.failures:
            raise ToolFailed("no connection", code="connect_failed", retryable=self.retryable)
        return "done"


class Yes:
    async def approve(self, ctx: RunContext, tool: Tool, call: ToolCall) -> Decision:
        return Decision(approved=True, by="ann")


async def test_a_read_that_fails_for_a_moment_is_tried_three_times() -> None:
    flaky = Flaky(2)
    result = await flaky.executor.run_one(Run(clock=flaky.clock).ctx, call("tool"))
    assert (result.content, result.attempts, flaky.clock.slept) == ("done", 3, [0.25, 1.0])
    flaky = Flaky(9)
    result = await flaky.executor.run_one(Run(clock=flaky.clock).ctx, call("tool"))
    assert (failure(result).code, result.attempts, flaky.calls) == ("connect_failed", 3, 3)


@pytest.mark.parametrize("effect", [Effect.WRITE, Effect.EXEC])
async def test_what_changes_something_is_never_tried_twice(effect: Effect) -> None:
    flaky = Flaky(1, effect=effect)
    result = await flaky.executor.run_one(Run(clock=flaky.clock).ctx, call("tool"))
    assert (failure(result).retryable, flaky.calls) == (True, 1)


async def test_a_lasting_failure_is_not_tried_again() -> None:
    flaky = Flaky(1, retryable=False)
    await flaky.executor.run_one(Run(clock=flaky.clock).ctx, call("tool"))
    assert flaky.calls == 1


async def test_no_retry_begins_that_could_not_end_in_time() -> None:
    flaky = Flaky(9, costs_s=2.9)
    run = Run(clock=flaky.clock, limits=Limits(tool_timeout_s=3.0))
    result = await flaky.executor.run_one(run.ctx, call("tool"))
    assert (failure(result).code, flaky.calls, flaky.clock.slept) == ("connect_failed", 1, [])


async def test_when_the_time_ends_a_later_attempt_the_reason_of_the_earlier_one_is_told() -> None:
    own = ToolRegistry()
    calls = 0

    @own.register(timeout_s=2.0)
    async def tool() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            await asyncio.Event().wait()
        raise ToolFailed("nobody answers", code="connect_failed", fix="start the server", retryable=True)

    run = Run()
    told = failure(await ToolExecutor(own).run_one(run.ctx, call("tool")))
    assert (told.code, calls) == ("timeout", 2)
    assert "2 s" in told.message
    assert "nobody answers" in told.message
    assert told.fix == "start the server"


# -- time --------------------------------------------------------------------------------------------


async def test_a_call_after_the_deadline_does_not_run() -> None:
    run = Run(limits=Limits(run_deadline_s=10))
    run.clock.seconds = 10
    result = await executor.run_one(run.ctx, call("echo", "c1", text="x"))
    assert failure(result).code == "timeout"
    assert run.started == []


async def test_the_runs_deadline_bounds_a_tool_that_may_take_longer() -> None:
    own = ToolRegistry()

    @own.register(timeout_s=3600)
    async def tool() -> None:
        await asyncio.Event().wait()

    run = Run(limits=Limits(run_deadline_s=0.05))
    told = failure(await ToolExecutor(own).run_one(run.ctx, call("tool")))
    assert told.code == "timeout"
    assert "0.05 s" in told.message


async def test_a_tool_that_will_not_be_cancelled_is_abandoned_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    own = ToolRegistry()
    release, ended = asyncio.Event(), asyncio.Event()

    @own.register(timeout_s=0.02)
    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return "late"

    with caplog.at_level(logging.WARNING, logger="agent_core.tools"):
        results = await ToolExecutor(own).run(Run().ctx, [call("stubborn", "1")])
    assert failure(results[0]).code == "timeout"
    assert "stubborn did not stop" in caplog.text
    release.set()
    await asyncio.wait_for(ended.wait(), 30)


async def test_cancelling_the_run_cancels_every_tool_and_passes_through() -> None:
    own = ToolRegistry()
    begun, stopped = asyncio.Queue[int](), set[int]()

    @own.register
    async def tool(n: int) -> None:
        try:
            begun.put_nowait(n)
            await asyncio.Event().wait()
        finally:
            stopped.add(n)

    run = Run()
    work = asyncio.create_task(ToolExecutor(own).run(run.ctx, [call("tool", str(n), n=n) for n in range(3)]))
    for _ in range(3):
        await begun.get()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert stopped == {0, 1, 2}
    assert run.finished == []


# -- threads -----------------------------------------------------------------------------------------

asker: contextvars.ContextVar[str] = contextvars.ContextVar("asker", default="nobody")


async def test_a_blocking_tool_sees_the_context_variables_of_the_run() -> None:
    own = ToolRegistry()

    @own.register
    def tool(ctx: RunContext, a: int) -> str:
        return f"{asker.get()} {ctx.run_id} {a} {threading.current_thread().daemon}"

    asker.set("ann")
    assert (await ToolExecutor(own).run_one(Run().ctx, call("tool", a=1))).content == "ann run-1 1 True"


async def test_a_hung_thread_is_left_behind_in_time_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    own = ToolRegistry()
    release = threading.Event()
    threads: list[threading.Thread] = []

    @own.register(timeout_s=0.05)
    def tool() -> str:
        threads.append(threading.current_thread())
        release.wait(30)
        return "late"

    with caplog.at_level(logging.WARNING, logger="agent_core.tools"):
        result = await ToolExecutor(own).run_one(Run().ctx, call("tool"))
        assert failure(result).code == "timeout"
        assert "thread of tool was abandoned" in caplog.text
        release.set()
        while not threads:  # noqa: ASYNC110 - a thread may begin late
            await asyncio.sleep(0.005)
        await asyncio.to_thread(threads[0].join, 30)
    assert "abandoned thread of tool ended after" in caplog.text


async def test_more_hung_threads_than_a_pool_holds_do_not_stop_the_next_tool() -> None:
    own = ToolRegistry()
    release = threading.Event()

    @own.register(timeout_s=0.05)
    def stuck() -> None:
        release.wait(30)

    @own.register
    def quick() -> str:
        return "done"

    calls = [call("stuck", str(n)) for n in range(40)] + [call("quick", "q")]
    try:
        results = await ToolExecutor(own).run(Run().ctx, calls)
        assert results[-1].content == "done"
        assert {failure(result).code for result in results[:-1]} == {"timeout"}
    finally:
        release.set()


# -- order and company -------------------------------------------------------------------------------


async def test_results_come_in_the_order_of_the_calls_though_tools_end_otherwise() -> None:
    own = ToolRegistry()
    turns = [asyncio.Event() for _ in range(6)]
    turns[5].set()

    @own.register
    async def tool(n: int) -> int:
        await turns[n].wait()
        if n:
            turns[n - 1].set()
        return n

    run = Run()
    results = await ToolExecutor(own).run(run.ctx, [call("tool", str(n), n=n) for n in range(6)])
    assert [result.content for result in results] == ["0", "1", "2", "3", "4", "5"]
    assert run.finished == ["5", "4", "3", "2", "1", "0"]


async def test_an_exclusive_tool_runs_alone_and_in_its_place() -> None:
    own = ToolRegistry()
    running: set[str] = set()
    seen: dict[str, set[str]] = {}
    order: list[str] = []

    async def work(n: str) -> None:
        running.add(n)
        order.append(n)
        for _ in range(3):
            await asyncio.sleep(0)
            for one in running:
                seen.setdefault(one, set()).update(running - {one})
        running.discard(n)

    @own.register
    async def shared(n: str) -> None:
        await work(n)

    @own.register(exclusive=True)
    async def alone(n: str) -> None:
        await work(n)

    names = ["shared", "shared", "alone", "alone", "shared", "shared"]
    results = await ToolExecutor(own).run(Run().ctx, [call(name, str(i), n=str(i)) for i, name in enumerate(names)])
    assert len(results) == 6
    assert seen == {"0": {"1"}, "1": {"0"}, "2": set(), "3": set(), "4": {"5"}, "5": {"4"}}
    assert order == ["0", "1", "2", "3", "4", "5"]


async def test_no_calls_give_no_results() -> None:
    assert await executor.run(Run().ctx, []) == ()


_calls = st.one_of(
    st.builds(lambda n: ("get_rooms", json.dumps({"floor": n})), st.integers()),
    st.sampled_from(
        [
            ("crash", "{}"),
            ("nobody", "{}"),
            ("echo", "{"),
            ("echo", '{"text": "x"}'),
            ("echo", "{}"),
            ("get_rooms", "[]"),
        ]
    ),
    st.tuples(st.text(max_size=5), st.text(max_size=10)),
    st.tuples(st.sampled_from(["echo", "get_rooms", "crash"]), st.text(max_size=20)),
)


@settings(max_examples=60, deadline=None)
@given(asked=st.lists(_calls, max_size=8))
async def test_every_call_of_any_batch_has_exactly_one_result_in_order(asked: list[tuple[str, str]]) -> None:
    run = Run()
    calls = [raw(name, arguments, f"id{i}") for i, (name, arguments) in enumerate(asked)]
    results = await executor.run(run.ctx, calls)
    assert [(result.call_id, result.name) for result in results] == [(call.id, call.name) for call in calls]
    assert sorted(run.finished) == sorted(call.id for call in calls)
    for result in results:
        assert result.ok == (result.error_code is None)
        assert result.content


# -- rights and approvals ----------------------------------------------------------------------------


class Rules:
    """Hides ``crash``, and denies what is on a floor above 3."""

    async def authorize(self, ctx: RunContext, tool: Tool, arguments: Mapping[str, object]) -> Denial | None:
        floor = arguments.get("floor")
        if isinstance(floor, int) and floor > 3:
            return Denial(reason=f"floor {floor} is closed to {ctx.deps}")
        return None

    def visible(self, ctx: RunContext, tool: Tool) -> bool:
        return tool.name != "crash"


async def test_a_denied_call_does_not_run_and_says_why() -> None:
    guarded = ToolExecutor(registry, authorizer=Rules())
    run = Run(deps="ann")
    calls = [call("get_rooms", "1", floor=7), call("get_rooms", "2", floor=2), call("get_rooms", "3")]
    results = await guarded.run(run.ctx, calls)
    assert [result.error_code for result in results] == ["denied", None, None]
    assert failure(results[0]).message == "floor 7 is closed to ann"
    assert sorted(run.started) == ["2", "3"]


async def test_a_hidden_tool_is_in_no_schema_and_in_no_message() -> None:
    guarded = ToolExecutor(registry, authorizer=Rules())
    ctx = Run().ctx
    assert [spec.name for spec in guarded.specs(ctx)] == ["get_rooms", "echo", "hang"]
    assert guarded.specs(ctx) is guarded.specs(ctx)
    result = await guarded.run_one(ctx, call("crush"))
    assert "crash" not in result.content
    told = failure(await guarded.run_one(ctx, raw("crash", "{")))
    assert told.code == "denied"
    assert "text" not in told.message + told.fix


async def test_the_authorizer_sees_defaults_and_the_models_names() -> None:
    own = ToolRegistry()
    seen: list[Mapping[str, object]] = []

    @own.register
    async def tool(schema: str, target: str = "main") -> str:
        return "ok"

    class Watching(Rules):
        async def authorize(self, ctx: RunContext, tool: Tool, arguments: Mapping[str, object]) -> Denial | None:
            seen.append(arguments)
            return None

    await ToolExecutor(own, authorizer=Watching()).run_one(Run().ctx, call("tool", schema="public"))
    assert seen == [{"schema": "public", "target": "main"}]


async def test_an_error_of_the_authorizer_lets_nothing_run() -> None:
    class Broken(Rules):
        async def authorize(self, ctx: RunContext, tool: Tool, arguments: Mapping[str, object]) -> Denial | None:
            raise OSError("no rules")

    run = Run()
    result = await ToolExecutor(registry, authorizer=Broken()).run_one(run.ctx, call("get_rooms"))
    assert (failure(result).code, run.started) == ("crashed", [])


async def test_an_authorizer_that_does_not_answer_ends_with_the_run() -> None:
    class Silent(Rules):
        async def authorize(self, ctx: RunContext, tool: Tool, arguments: Mapping[str, object]) -> Denial | None:
            await asyncio.Event().wait()
            return None

    run = Run(limits=Limits(run_deadline_s=0.05))
    result = await ToolExecutor(registry, authorizer=Silent()).run_one(run.ctx, call("get_rooms"))
    assert (failure(result).code, run.started) == ("timeout", [])


class Asked:
    def __init__(self, decision: Decision | None) -> None:
        self.decision = decision
        self.asked: list[str] = []

    async def approve(self, ctx: RunContext, tool: Tool, call: ToolCall) -> Decision:
        self.asked.append(call.id)
        if self.decision is None:
            await asyncio.Event().wait()
            raise AssertionError
        return self.decision


def writing() -> tuple[ToolRegistry, list[str]]:
    own = ToolRegistry()
    done: list[str] = []

    @own.register(effect=Effect.WRITE)
    async def drop(table: str) -> str:
        done.append(table)
        return "dropped"

    return own, done


async def test_without_an_approver_nothing_that_changes_something_runs() -> None:
    own, done = writing()
    told = failure(await ToolExecutor(own).run_one(Run().ctx, call("drop", "c1", table="a")))
    assert told.code == "approval_required"
    assert "nothing was run" in told.message
    assert done == []


async def test_an_approved_call_runs_once() -> None:
    own, done = writing()
    approver = Asked(Decision(approved=True, by="ann"))
    result = await ToolExecutor(own, approver=approver).run_one(Run().ctx, call("drop", "c1", table="a"))
    assert (result.content, done, approver.asked) == ("dropped", ["a"], ["c1"])


async def test_a_refused_call_says_who_and_why() -> None:
    own, done = writing()
    approver = Asked(Decision(approved=False, by="ann", reason="not on a friday"))
    told = failure(await ToolExecutor(own, approver=approver).run_one(Run().ctx, call("drop", "c1", table="a")))
    assert told.code == "denied"
    assert told.message == "drop was refused by ann: not on a friday; nothing was run"
    assert done == []


async def test_an_approval_that_nobody_gives_ends_with_the_run() -> None:
    own, done = writing()
    run = Run(limits=Limits(run_deadline_s=0.05))
    told = failure(await ToolExecutor(own, approver=Asked(None)).run_one(run.ctx, call("drop", "c1", table="a")))
    assert (told.code, done) == ("approval_required", [])


async def test_nobody_is_asked_to_approve_a_call_that_is_wrong_or_denied() -> None:
    own, _ = writing()
    approver = Asked(Decision(approved=True))

    class Deny(Rules):
        async def authorize(self, ctx: RunContext, tool: Tool, arguments: Mapping[str, object]) -> Denial | None:
            return Denial(reason="no")

    guarded = ToolExecutor(own, authorizer=Deny(), approver=approver)
    await guarded.run(Run().ctx, [call("drop", "1", table="a"), raw("drop", "{", "2"), call("drop", "3")])
    assert approver.asked == []
