"""``cancel_query`` and ``terminate_session`` end nothing, whoever approves what, and say what they would have ended."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from agent_core.context import RunContext
from agent_core.llm.types import ToolCall
from agent_core.tools.approval import Decision
from agent_core.tools.base import Effect, Tool
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from bot.tools.activity import register_activity_tools
from bot.tools.activity.answer import RunningQuery
from bot.tools.activity.ending import NoApprovals
from bot.tools.activity.running import read_running_queries
from bot.tools.targets import Targets
from tests.integration.activity.conftest import CLOCK, Connection, Yard

ENDINGS = ("cancel_query", "terminate_session")


class Yes:
    """Approves whatever is asked; in no release is this one wired in."""

    async def approve(self, ctx: RunContext, tool: Tool, call: ToolCall) -> Decision:
        return Decision(approved=True, by="ann")


async def ask(
    targets: Targets, name: str, arguments: Mapping[str, object], *, approver: NoApprovals | Yes | None = None
) -> dict[str, object]:
    """One call through the executor; returns the error."""
    registry = ToolRegistry()
    register_activity_tools(registry, targets, CLOCK)
    executor = ToolExecutor(registry, approver=approver or NoApprovals(targets))
    ctx = RunContext(run_id="r", thread_id="t", deadline=CLOCK.monotonic() + 60)
    result = await executor.run_one(ctx, ToolCall(id="1", name=name, arguments=json.dumps(arguments)))
    assert result.ok is False
    error = json.loads(result.content)["error"]
    assert isinstance(error, dict)
    return error


async def sleeping(yard: Yard, session: Connection) -> RunningQuery:
    """Let a session sleep, and return it as ``running_queries`` shows it."""
    pid = session.info.backend_pid
    yard.begin(session, "select pg_sleep(60), 's3cret-literal'")
    await yard.until("select count(*) = 1 from pg_stat_activity where pid = %s and wait_event = 'PgSleep'", (pid,))
    answer = await read_running_queries(yard.lab.targets(yard.database, yard.reader), CLOCK)
    (row,) = [row for row in answer.rows if row.pid == pid]
    return row


async def check_alive(yard: Yard, session: Connection, row: RunningQuery) -> None:
    """The same session still executes the same statement, and its client has heard nothing."""
    async with yard.lab.admin() as admin:
        found = await (
            await admin.execute(
                "select wait_event, query_id::text, to_char(backend_start at time zone 'UTC', "
                '\'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\') from pg_stat_activity where pid = %s',
                (row.pid,),
            )
        ).fetchone()
    assert found == ("PgSleep", row.query_id, row.backend_start)
    assert not yard.tasks[session].done()


@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.parametrize("approver", [None, Yes()], ids=["as wired", "even approved"])
@pytest.mark.parametrize("strong", [False, True], ids=["reader", "may signal"])
async def test_d22_nothing_is_ended_and_what_would_have_been_is_named(
    yard: Yard, name: str, approver: Yes | None, strong: bool
) -> None:
    """A button ended sessions in read-only mode; https://github.com/sosedoff/pgweb/pull/859."""
    role = await yard.lab.create_role(grant="pg_signal_backend") if strong else yard.app
    if strong:
        async with yard.lab.admin() as admin:
            await admin.execute(f"grant pg_monitor to {role}".encode())
    async with yard.session() as session:
        row = await sleeping(yard, session)
        arguments = {
            "pid": row.pid,
            "expected_query_id": row.query_id,
            "expected_backend_start": row.backend_start,
            "reason": "it blocks the checkout",
        }
        error = await ask(yard.lab.targets(yard.database, role), name, arguments, approver=approver)
        assert error["code"] == "approval_required"
        message = str(error["message"])
        assert f"session {row.pid} of target 'lab' (user {yard.app}, app lab-app, database {yard.database}" in message
        assert "select pg_sleep($1), $2" in message
        assert "it is the session that was meant" in message
        assert "approval is not available in this release, so nothing was ended" in message
        assert "Reason given: it blocks the checkout." in message
        call = "pg_cancel_backend" if name == "cancel_query" else "pg_terminate_backend"
        assert f"SELECT {call}(pid) FROM pg_stat_activity WHERE pid = {row.pid}" in str(error["fix"])
        assert "s3cret" not in json.dumps(error)
        await check_alive(yard, session, row)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"expected_backend_start": "2020-01-01T00:00:00.000000Z"}, "it began at "),
        ({"expected_backend_start": "yesterday"}, "it began at "),
        ({"expected_backend_start": None}, "expected_backend_start was not given"),
        ({"expected_query_id": "1"}, "it executes something else by now"),
        ({"expected_query_id": None}, "expected_query_id was not given"),
    ],
)
async def test_a_session_that_is_not_surely_the_one_that_was_meant_is_told(
    yard: Yard, change: dict[str, object], said: str
) -> None:
    async with yard.session() as session:
        row = await sleeping(yard, session)
        arguments = {"pid": row.pid, "expected_query_id": row.query_id, "expected_backend_start": row.backend_start}
        error = await ask(yard.lab.targets(yard.database, yard.reader), "terminate_session", {**arguments, **change})
        assert error["code"] == "approval_required"
        assert "it is not surely the session that was meant" in str(error["message"])
        assert said in str(error["message"])
        assert "pg_terminate_backend" not in str(error["fix"])
        await check_alive(yard, session, row)


async def test_the_same_instant_written_otherwise_is_the_same_session(yard: Yard) -> None:
    async with yard.session() as session:
        row = await sleeping(yard, session)
        assert row.backend_start is not None
        written = row.backend_start.replace("T", " ").replace("Z", "+00:00")
        arguments = {"pid": row.pid, "expected_query_id": row.query_id, "expected_backend_start": written}
        error = await ask(yard.lab.targets(yard.database, yard.reader), "cancel_query", arguments)
        assert "it is the session that was meant" in str(error["message"])


@pytest.mark.parametrize("pid", [2**31 - 1, 2**40])
async def test_a_session_that_is_not_there_is_told(yard: Yard, pid: int) -> None:
    error = await ask(yard.lab.targets(yard.database, yard.reader), "terminate_session", {"pid": pid})
    assert error["code"] == "approval_required"
    assert f"there is no session {pid}" in str(error["message"])


async def test_a_database_that_cannot_be_reached_changes_nothing_in_the_answer(yard: Yard) -> None:
    targets = yard.lab.targets("no_such_database", yard.reader)
    error = await ask(targets, "cancel_query", {"pid": 1})
    assert error["code"] == "approval_required"
    assert "could not be looked up" in str(error["message"])


def test_both_are_registered_as_writing_so_that_no_policy_means_no() -> None:
    registry = ToolRegistry()
    register_activity_tools(registry, Targets([]), CLOCK)
    effects = {tool.name: tool.effect for tool in registry.tools()}
    assert {name for name, effect in effects.items() if effect is not Effect.READ} == set(ENDINGS)


async def test_the_approver_tells_other_writing_tools_what_the_engine_does() -> None:
    done: list[str] = []

    async def drop_table() -> str:
        done.append("dropped")
        return "dropped"

    async def refuse(approver: NoApprovals | None) -> object:
        registry = ToolRegistry()
        registry.register(drop_table, description="Drop.", effect=Effect.WRITE)
        ctx = RunContext(run_id="r", thread_id="t", deadline=CLOCK.monotonic() + 60)
        executor = ToolExecutor(registry, approver=approver)
        result = await executor.run_one(ctx, ToolCall(id="1", name="drop_table", arguments="{}"))
        return json.loads(result.content)

    assert await refuse(NoApprovals(Targets([]))) == await refuse(None)
    assert done == []
