from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agent_core.context import Limits
from agent_core.errors import ModelRetry, ToolFailed
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from agent_core.tools.results import cap_text
from tests.unit.tools.setting import (
    Run,
    call,
    executor,
    failure,
    raw,
)

# -- arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("{", "not JSON"),
        ('{"floor": 1', "at character 11 of 11"),
        ('{"floor": 1,}', "not JSON"),
        ("{'floor': 1}", "not JSON"),
        ('```json\n{"floor": 1}\n```', "not JSON"),
        ('{"floor": 1} {"floor": 2}', "not JSON"),
        ('{"floor": 1, "floor": 2}', "twice"),
        ('{"floor": NaN}', "NaN"),
        ('{"floor": -Infinity}', "-Infinity"),
        ('{"floor": 1e999}', "too large"),
        ('{"floor": ' + "9" * 5000 + "}", "too large"),
        ("[" * 100_000, "nested too deeply"),
        ("[1]", "JSON array"),
        ('"floor"', "JSON string"),
        ("null", "JSON null"),
        ("true", "JSON boolean"),
        ("7", "JSON number"),
    ],
)
async def test_arguments_that_are_not_one_json_object_are_told_and_never_repaired(arguments: str, said: str) -> None:
    run = Run()
    result = await executor.run_one(run.ctx, raw("get_rooms", arguments))
    told = failure(result)
    assert told.code == "invalid_arguments"
    assert said in told.message
    assert told.fix == "get_rooms takes floor (integer), limit (integer)"
    assert result.attempts == 0
    assert run.started == []
    assert run.finished == ["c1"]


async def test_each_wrong_argument_is_named_with_what_it_was() -> None:
    result = await executor.run_one(Run().ctx, call("get_rooms", "c1", floor="two", limmit=3))
    assert failure(result).message == (
        "floor: Input should be a valid integer, unable to parse string as an integer (got 'two'); "
        "limmit: no such argument (did you mean limit?)"
    )


class Inner(BaseModel):
    column: str = "id"


async def test_an_unknown_name_deep_inside_is_refused_too() -> None:
    own = ToolRegistry()

    @own.register
    async def tool(by: list[Inner]) -> str:
        return "ran"

    told = failure(await ToolExecutor(own).run_one(Run().ctx, call("tool", by=[{"column": "a"}, {"colum": "b"}])))
    assert told.message == "by.1.colum: no such argument"


async def test_a_missing_argument_is_named() -> None:
    told = failure(await executor.run_one(Run().ctx, call("echo")))
    assert told.message == "text: is required"
    assert told.fix == "echo takes text (string, required)"


async def test_many_mistakes_are_told_briefly() -> None:
    arguments = {f"x{i}": "y" * 500 for i in range(200)}
    told = failure(await executor.run_one(Run().ctx, call("get_rooms", "c1", **arguments)))
    assert "and 192 more" in told.message
    assert len(told.message) < 1_000


async def test_an_unknown_tool_is_told_with_its_neighbours() -> None:
    told = failure(await executor.run_one(Run().ctx, call("get_room")))
    assert told.code == "unknown_tool"
    assert "did you mean get_rooms?" in told.message
    assert "get_rooms, echo, hang, crash" in told.fix


async def test_a_tool_that_the_agent_does_not_have_is_unknown_to_it() -> None:
    results = await executor.run(Run().ctx, [call("crash")], names=("echo",))
    told = failure(results[0])
    assert (told.code, told.fix) == ("unknown_tool", "available tools: echo")


# -- results -----------------------------------------------------------------------------------------


class Model(BaseModel):
    ok: bool = False
    error: dict[str, str] = {"code": "auth_failed"}


@dataclass
class Plain:
    ok: bool = False
    code: str = "no_history"


class Odd:
    def __str__(self) -> str:
        raise ValueError("no")


def returning(value: object) -> ToolExecutor:
    own = ToolRegistry()

    async def tool() -> object:
        return value

    own.register(tool)
    return ToolExecutor(own)


@pytest.mark.parametrize(
    ("value", "content", "code"),
    [
        ("text as it is", "text as it is", None),
        (None, "null", None),
        (
            {"n": 2**70, "at": datetime(2026, 1, 1, tzinfo=UTC)},
            '{"n":1180591620717411303424,"at":"2026-01-01T00:00:00Z"}',
            None,
        ),
        ({"ratio": float("nan"), "top": float("inf")}, '{"ratio":"NaN","top":"Infinity"}', None),
        ({"ok": False}, '{"ok":false}', "failed"),
        ({"ok": False, "error": {"code": "x"}}, '{"ok":false,"error":{"code":"x"}}', "x"),
        ({"ok": 0}, '{"ok":0}', None),
        (Model(), '{"ok":false,"error":{"code":"auth_failed"}}', "auth_failed"),
        (Plain(), '{"ok":false,"code":"no_history"}', "no_history"),
        ("\ud800", "?", None),
    ],
    ids=str,
)
async def test_what_a_tool_returns_becomes_text(value: object, content: str, code: str | None) -> None:
    result = await returning(value).run_one(Run().ctx, call("tool"))
    assert (result.content, result.error_code, result.ok) == (content, code, code is None)


@pytest.mark.parametrize("value", [object(), b"\xff", Odd()], ids=["object", "bytes", "odd"])
async def test_a_value_that_is_not_json_is_a_crash_and_not_an_exception(value: object) -> None:
    assert failure(await returning(value).run_one(Run().ctx, call("tool"))).code == "crashed"


async def test_a_circular_value_is_a_crash() -> None:
    value: list[object] = []
    value.append(value)
    assert failure(await returning(value).run_one(Run().ctx, call("tool"))).code == "crashed"


async def test_a_long_output_keeps_head_and_tail_and_says_what_is_missing() -> None:
    run = Run(limits=Limits(tool_output_chars=100))
    result = await returning("a" * 500 + "z" * 500).run_one(run.ctx, call("tool"))
    assert result.truncated is True
    assert len(result.content) <= 100
    assert result.content.startswith("aaa")
    assert result.content.endswith("zzz")
    shown = result.content.count("a") + result.content.count("z")
    # the note has letters of its own: "characters" twice an a, no z
    assert f"[... {1000 - shown + 2} characters left out ...]" in result.content


@given(text=st.text(min_size=0, max_size=300), limit=st.integers(0, 200))
def test_a_cap_is_kept_and_its_note_is_never_cut(text: str, limit: int) -> None:
    capped, cut = cap_text(text, limit)
    assert cut == (len(text) > limit)
    if not cut:
        assert capped == text
        return
    head, _, rest = capped.partition("\n[... ")
    count, _, tail = rest.partition(" characters left out ...]\n")
    assert len(head) + int(count) + len(tail) == len(text)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(capped) <= max(limit, len(f"\n[... {len(text)} characters left out ...]\n"))


class Blank:
    def redact(self, text: str) -> str:
        return text.replace("hunter2", "***")


async def test_a_secret_is_redacted_before_the_cap_can_cut_it() -> None:
    run = Run(limits=Limits(tool_output_chars=60), redactor=Blank())
    for length in range(60):
        text = "a" * length + "hunter2" + "z" * 90
        result = await returning(text).run_one(run.ctx, call("tool", f"c{length}"))
        assert "hunter" not in result.content
        assert "ter2" not in result.content


async def test_a_crash_tells_type_and_message_but_no_trace_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    run = Run(redactor=Blank())
    with caplog.at_level(logging.ERROR, logger="agent_core.tools"):
        result = await executor.run_one(run.ctx, call("crash", "c1", text="password=hunter2"))
    told = failure(result)
    assert told.message == "crash failed with KeyError: 'password=***'"
    assert "Traceback" not in result.content
    assert "Traceback" in caplog.text
    assert "hunter2" not in caplog.text


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    "error",
    [Unprintable(), SystemExit(3), StopAsyncIteration(), TimeoutError("own"), RecursionError(), MemoryError()],
    ids=lambda e: type(e).__name__,
)
async def test_whatever_a_tool_raises_its_call_has_a_result(error: BaseException) -> None:
    own = ToolRegistry()

    @own.register
    async def tool() -> str:
        raise error

    @own.register
    def sync_tool() -> str:
        raise error

    results = await ToolExecutor(own).run(Run().ctx, [call("tool", "1"), call("sync_tool", "2")])
    assert [failure(result).code for result in results] == ["crashed", "crashed"]


async def test_stop_iteration_from_a_thread_is_a_crash() -> None:
    own = ToolRegistry()

    @own.register
    def tool() -> object:
        return next(iter([]))

    assert failure(await ToolExecutor(own).run_one(Run().ctx, call("tool"))).code == "crashed"


async def test_a_failure_inside_a_task_group_of_a_tool_keeps_its_code() -> None:
    own = ToolRegistry()

    async def part() -> None:
        raise ToolFailed("refused", code="auth_failed", fix="mend the password")

    @own.register
    async def tool() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(part())
        return "never"

    told = failure(await ToolExecutor(own).run_one(Run().ctx, call("tool")))
    assert (told.code, told.message, told.fix) == ("auth_failed", "refused", "mend the password")


async def test_a_tool_that_cancels_itself_does_not_end_the_run() -> None:
    own = ToolRegistry()

    @own.register
    async def tool() -> str:
        raise asyncio.CancelledError

    results = await ToolExecutor(own).run(Run().ctx, [call("tool", "1"), call("tool", "2")])
    assert [failure(result).code for result in results] == ["cancelled", "cancelled"]


async def test_a_tool_can_ask_the_model_to_call_it_differently() -> None:
    own = ToolRegistry()

    @own.register
    async def tool(when: str) -> str:
        raise ModelRetry("when: write last_30min, not half an hour")

    told = failure(await ToolExecutor(own).run_one(Run().ctx, call("tool", "c1", when="half an hour")))
    assert told.code == "invalid_arguments"
    assert "write last_30min" in told.message


async def test_times_are_those_of_the_runs_clock() -> None:
    run = Run()
    own = ToolRegistry()

    @own.register
    async def tool() -> str:
        run.clock.seconds += 2.5
        return "done"

    result = await ToolExecutor(own).run_one(run.ctx, call("tool"))
    assert result.started_at == datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
    assert result.duration_s == 2.5
    assert result.replayed is False
