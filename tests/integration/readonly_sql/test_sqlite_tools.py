"""The tools of an SQLite target, called through the registry as an agent calls them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from agent_core.context import RunContext, SystemClock
from agent_core.llm.types import ToolCall
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from bot.storage.sqlite import SqliteStore
from bot.tools.readonly_sql.tools import register_readonly_sql_tools
from bot.tools.slow_queries import register_slow_query_tools
from bot.tools.targets import Target, Targets

CLOCK = SystemClock()


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[ToolRegistry]:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.executescript("create table t (a, b); insert into t values (1, 'x'), (2, 'y')")
        connection.commit()
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    targets = Targets(
        [
            Target.from_url("shop", url, allow_sql=True),
            Target.from_url("closed", url),
            Target.from_url("gone", url + "x"),
        ]
    )
    store = SqliteStore(tmp_path / "hermod.db")
    await store.open()
    registry = ToolRegistry()
    register_slow_query_tools(registry, targets, store, CLOCK)
    register_readonly_sql_tools(registry, targets, CLOCK)
    yield registry
    await store.close()


async def _call(registry: ToolRegistry, name: str, arguments: Mapping[str, object]) -> dict[str, object]:
    ctx = RunContext(run_id="r", thread_id="t", deadline=CLOCK.monotonic() + 60)
    (result,) = await ToolExecutor(registry).run(ctx, [ToolCall(id="1", name=name, arguments=json.dumps(arguments))])
    content = json.loads(result.content)
    assert isinstance(content, dict)
    return content


def _code(answer: Mapping[str, object]) -> object:
    error = answer["error"]
    assert isinstance(error, dict)
    return error["code"]


async def test_rows_of_a_file_come_through_the_tool(registry: ToolRegistry) -> None:
    answer = await _call(
        registry, "run_readonly_sql", {"sql": "select * from t where a > ?", "params": [1], "target": "shop"}
    )
    assert (answer["columns"], answer["rows"], answer["engine"]) == (["a", "b"], [[2, "y"]], "sqlite")


async def test_a_file_for_which_sql_is_not_switched_on_is_not_read(registry: ToolRegistry) -> None:
    answer = await _call(registry, "run_readonly_sql", {"sql": "select 1", "target": "closed"})
    assert (answer["ok"], _code(answer)) == (False, "not_allowed")


async def test_a_plan_of_a_file_comes_through_the_tool(registry: ToolRegistry) -> None:
    answer = await _call(registry, "explain_query", {"sql": "select * from t where b = $1", "target": "closed"})
    assert (answer["ok"], answer["engine"], answer["plan_kind"]) == (True, "sqlite", "generic")


async def test_what_a_file_cannot_tell_is_said_by_name(registry: ToolRegistry) -> None:
    by_shape = await _call(registry, "explain_query", {"fingerprint": "0123456789abcdef", "target": "shop"})
    slow = await _call(registry, "get_slow_queries", {"target": "shop"})
    gone = await _call(registry, "explain_query", {"sql": "select 1", "target": "gone"})
    assert [_code(answer) for answer in (by_shape, slow, gone)] == ["unsupported", "unsupported", "file_missing"]
