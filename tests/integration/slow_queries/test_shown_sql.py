"""``echo_sql``: what a tool ran, word for word, so that a DBA can run it by hand."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from agent_core.context import RunContext, SystemClock
from agent_core.llm.types import ToolCall
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from bot.tools.shown_sql import SQL_RAN, offer_sql
from bot.tools.slow_queries import register_slow_query_tools
from bot.tools.targets import Targets
from tests.integration.slow_queries.conftest import MemorySnapshots
from tests.servers.postgres import Lab


def build(targets: Targets) -> ToolRegistry:
    plain, shown = ToolRegistry(), ToolRegistry()
    register_slow_query_tools(plain, targets, MemorySnapshots(), SystemClock())
    for tool in plain.tools():
        shown.add(offer_sql(tool))
    return shown


async def ask(registry: ToolRegistry, name: str, **arguments: object) -> dict[str, Any]:
    ctx = RunContext(run_id="r", thread_id="t", deadline=SystemClock().monotonic() + 60)
    (result,) = await ToolExecutor(registry).run(ctx, [ToolCall(id="1", name=name, arguments=json.dumps(arguments))])
    answer = json.loads(result.content)
    assert answer["ok"] is True, answer
    return dict(answer)


async def test_the_sql_that_was_run_is_shown_on_request_and_runs_by_hand(any_postgres: Lab) -> None:
    database, role = await any_postgres.create_database(), await any_postgres.create_reader()
    registry = build(any_postgres.targets(database, role))
    silent = await ask(registry, "get_slow_queries", threshold=0)
    answer = await ask(registry, "get_slow_queries", threshold=0, echo_sql=True)
    assert SQL_RAN not in silent
    ran = answer[SQL_RAN].split(";\n\n")
    assert any("pg_stat_statements(false)" in text for text in ran)
    async with await psycopg.AsyncConnection.connect(any_postgres.url(database, role), autocommit=True) as connection:
        for text in ran:
            if "\n-- with" not in text:
                await connection.execute(text.encode())


async def test_the_shown_sql_of_a_plan_has_no_literal_of_the_statement(any_postgres: Lab) -> None:
    database, role = await any_postgres.create_database(), await any_postgres.create_reader()
    registry = build(any_postgres.targets(database, role))
    sql = "select relname from pg_class where relname = 's3cr3t-literal'"
    answer = await ask(registry, "explain_query", sql=sql, echo_sql=True)
    assert "EXPLAIN" in answer[SQL_RAN]
    assert "s3cr3t-literal" not in answer[SQL_RAN]
