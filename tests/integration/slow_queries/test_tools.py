"""The two tools as a model meets them: through the registry, the executor and a store on disk."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from agent_core.context import RunContext, SystemClock
from agent_core.llm.types import ToolCall
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from bot.storage.sqlite import SqliteStore
from bot.tools.slow_queries import register_slow_query_tools
from bot.tools.targets import Target, Targets
from tests.integration.slow_queries.conftest import check_no_secret
from tests.servers.postgres import Lab

CLOCK = SystemClock()


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "hermod.db")
    await store.open()
    yield store
    await store.close()


async def call(targets: Targets, store: SqliteStore, name: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """One call in a process of its own, as ``hermod tools run`` makes it."""
    registry = ToolRegistry()
    register_slow_query_tools(registry, targets, store, CLOCK)
    ctx = RunContext(run_id="r", thread_id="t", deadline=CLOCK.monotonic() + 60)
    (result,) = await ToolExecutor(registry).run(ctx, [ToolCall(id="1", name=name, arguments=json.dumps(arguments))])
    assert result.truncated is False
    content = json.loads(result.content)
    assert isinstance(content, dict)
    assert content["ok"] is result.ok
    return content


async def test_two_one_shot_calls_on_one_store_give_the_window_between_them(
    any_postgres: Lab, disk: SqliteStore
) -> None:
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    async with any_postgres.connect(database, app) as connection:
        await connection.execute("select pg_sleep(0.2)")
        first = await call(targets, disk, "get_slow_queries", {})
        for _ in range(3):
            await connection.execute("select pg_sleep(0.02)")
    second = await call(targets, disk, "get_slow_queries", {"threshold": 0.01, "target": "lab"})
    rows = second["rows"]
    assert isinstance(rows, list)
    assert [(row["sql"], row["calls"], row["duration_kind"]) for row in rows] == [("select pg_sleep($1)", 3, "mean")]
    assert isinstance(rows[0]["queryid"], str)
    assert isinstance(first["window"], dict)
    assert isinstance(second["window"], dict)
    assert second["window"]["start"] == first["window"]["end"]
    check_no_secret(json.dumps([first, second]), any_postgres)


async def test_an_answer_stays_small_enough_to_be_read_whole(any_postgres: Lab, disk: SqliteStore) -> None:
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    await call(targets, disk, "get_slow_queries", {})
    async with any_postgres.connect(database, app) as connection:
        for width in range(90):
            columns = ", ".join(f"{width} as a_column_with_a_long_name_{n}" for n in range(width + 1))
            await connection.execute(f"select {columns}".encode())
    answer = await call(targets, disk, "get_slow_queries", {"threshold": 0, "limit": 100, "order_by": "calls"})
    rows, truncated = answer["rows"], answer["truncated"]
    assert isinstance(rows, list)
    assert isinstance(truncated, dict)
    assert 5 < len(rows) < 90
    assert len(rows) + truncated["rows"] >= 90
    assert len(json.dumps(answer)) < 22_000


async def test_failures_reach_the_model_with_code_and_remedy(any_postgres: Lab, disk: SqliteStore) -> None:
    targets = Targets([Target.from_url("lab", any_postgres.server.url("postgres", password="wr0ng-pass"))])
    failure = await call(targets, disk, "get_slow_queries", {"target": "nope"})
    assert failure["error"] == {
        "code": "unknown_target",
        "message": "there is no target 'nope'; name one of: lab",
        "fix": "pass target as one of: lab",
        "retryable": False,
    }
    failure = await call(targets, disk, "explain_query", {"sql": "select 1"})
    assert isinstance(failure["error"], dict)
    assert failure["error"]["code"] == "auth_failed"
    check_no_secret(json.dumps(failure), any_postgres)
    assert "wr0ng-pass" not in json.dumps(failure)


async def test_plans_come_through_with_lines_and_findings(any_postgres: Lab, disk: SqliteStore) -> None:
    database, reader = await any_postgres.create_database(), await any_postgres.create_reader()
    plan = await call(
        any_postgres.targets(database, reader),
        disk,
        "explain_query",
        {"sql": "select relname from pg_class where oid = $1"},
    )
    assert plan["plan_kind"] == "generic"
    rows = plan["rows"]
    assert isinstance(rows, list)
    assert "pg_class" in rows[0]["text"]


def test_schemas_and_examples_carry_what_a_model_and_the_offline_provider_need() -> None:
    targets = Targets([Target.from_url(name, "postgresql://a/b") for name in ("shop", "billing")])
    registry = ToolRegistry()

    class NoStore:
        save_snapshot = find_snapshot = None

    register_slow_query_tools(registry, targets, NoStore(), CLOCK)  # type: ignore[arg-type]
    slow, explain = registry.specs()
    assert (slow.name, explain.name) == ("get_slow_queries", "explain_query")
    properties = slow.parameters["properties"]
    assert isinstance(properties, dict)
    assert properties["target"]["enum"] == ["billing", "shop"]
    assert properties["time_range"]["format"] == "time-range"
    assert properties["threshold"]["format"] == "duration-s"
    for spec in (slow, explain):
        assert 3 <= len(spec.examples) <= 5
        assert any(not example.question.isascii() for example in spec.examples)
        assert "Example: {" in spec.description
