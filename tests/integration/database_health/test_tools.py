"""The three tools as a model meets them: through the registry and the executor."""

from __future__ import annotations

import json
from collections.abc import Mapping

from agent_core.context import RunContext
from agent_core.llm.types import ToolCall
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from bot.tools.database_health import register_health_tools
from bot.tools.targets import Target, Targets
from reading.layout import render_result
from tests.integration.database_health.conftest import CLOCK
from tests.servers.postgres import Lab


async def call(targets: Targets, name: str, arguments: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """One call, as text and as JSON; it has to fit into one answer."""
    registry = ToolRegistry()
    register_health_tools(registry, targets, CLOCK)
    ctx = RunContext(run_id="r", thread_id="t", deadline=CLOCK.monotonic() + 60)
    (result,) = await ToolExecutor(registry).run(ctx, [ToolCall(id="1", name=name, arguments=json.dumps(arguments))])
    assert result.truncated is False
    content = json.loads(result.content)
    assert isinstance(content, dict)
    assert content["ok"] is result.ok
    return result.content, content


async def test_answers_stay_small_enough_to_be_read_whole(any_postgres: Lab) -> None:
    database, reader = await any_postgres.create_database(), await any_postgres.create_reader()
    targets = any_postgres.targets(database, reader)
    async with any_postgres.admin(database) as admin:
        await admin.execute(
            """do $$begin for i in 1..90 loop
              execute format('create table a_table_with_quite_a_long_name_%s (a int, b int)', i);
              execute format('create index on a_table_with_quite_a_long_name_%s (a)', i);
              execute format('create index on a_table_with_quite_a_long_name_%s (a)', i);
            end loop; end$$"""
        )
    for name, arguments in (("index_health", {"min_size_mb": 0}), ("table_health", {"top": 100})):
        text, answer = await call(targets, name, arguments)
        rows, truncated = answer["rows"], answer["truncated"]
        assert isinstance(rows, list)
        assert isinstance(truncated, dict)
        assert len(rows) > 5
        assert truncated["rows"] > 0
        assert len(text) < 22_000
    assert answer["examined"] == 90


async def test_people_get_a_table_with_what_matters_first(any_postgres: Lab) -> None:
    database, reader = await any_postgres.create_database(), await any_postgres.create_reader()
    targets = any_postgres.targets(database, reader)
    async with any_postgres.admin(database) as admin:
        await admin.execute("create table t (a int); create index one on t (a); create index two on t (a)")
    text, _ = await call(targets, "index_health", {"min_size_mb": 0})
    shown = render_result(text, {})
    assert "| # | table | index | size | kind | finding | definition |" in shown
    assert "**suggestions**\n- DROP INDEX CONCURRENTLY public.two;" in shown
    text, _ = await call(targets, "table_health", {})
    assert "| table | size | live rows | dead rows | heap | index |" in render_result(text, {})
    text, _ = await call(targets, "db_health", {"checks": ["connections", "wraparound"]})
    assert "| # | status | check | value | bound | evidence |" in render_result(text, {})


async def test_failures_reach_the_model_with_code_and_remedy(any_postgres: Lab) -> None:
    targets = Targets([Target.from_url("lab", any_postgres.server.url("postgres", password="wr0ng-pass"))])
    for name in ("index_health", "table_health", "db_health"):
        text, failure = await call(targets, name, {})
        assert isinstance(failure["error"], dict)
        assert failure["error"]["code"] == "auth_failed"
        assert "wr0ng-pass" not in text
        _, failure = await call(targets, name, {"target": "nope"})
        assert isinstance(failure["error"], dict)
        assert failure["error"]["code"] == "unknown_target"
    _, failure = await call(targets, "db_health", {"checks": ["weather"]})
    assert failure["ok"] is False


def test_schemas_and_examples_carry_what_a_model_and_the_offline_provider_need() -> None:
    targets = Targets([Target.from_url(name, "postgresql://a/b") for name in ("shop", "billing")])
    registry = ToolRegistry()
    register_health_tools(registry, targets, CLOCK)
    specs = registry.specs()
    assert [spec.name for spec in specs] == ["index_health", "table_health", "db_health"]
    for spec in specs:
        properties = spec.parameters["properties"]
        assert isinstance(properties, dict)
        assert properties["target"]["enum"] == ["billing", "shop"]
        assert 3 <= len(spec.examples) <= 6
        assert any(not example.question.isascii() for example in spec.examples)
        assert "Example: {" in spec.description
