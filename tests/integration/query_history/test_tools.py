"""The two tools as models and people meet them: through the registry, and laid out for a thread."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta

import pytest

from agent_core.context import RunContext
from agent_core.llm.types import ToolCall
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from bot.result_files import build_result_files
from bot.storage.sqlite import SqliteStore
from bot.tools.query_history.buckets import MOST_BUCKETS
from bot.tools.query_history.reading import record_postgres
from bot.tools.query_history.tools import register_query_history_tools
from bot.tools.slow_queries.history import iso_utc
from bot.tools.slow_queries.redact_sql import fingerprint_sql
from bot.tools.targets import Targets
from reading.layout import render_result
from tests.integration.query_history.conftest import LeapClock
from tests.servers.postgres import Lab


async def call(
    targets: Targets, store: SqliteStore, clock: LeapClock, name: str, arguments: Mapping[str, object]
) -> tuple[dict[str, object], str, list[str]]:
    """One call as ``hermod tools run`` makes it: the result, how it is laid out, and the files that go along."""
    registry = ToolRegistry()
    register_query_history_tools(registry, targets, store, clock)
    ctx = RunContext(run_id="r", thread_id="t", deadline=clock.monotonic() + 60)
    (result,) = await ToolExecutor(registry).run(ctx, [ToolCall(id="1", name=name, arguments=json.dumps(arguments))])
    assert result.truncated is False
    content = json.loads(result.content)
    assert content["ok"] is result.ok, content
    files = [file.name for file in build_result_files([result], whole=True)]
    return content, render_result(result.content, {}), files


async def test_a_trend_is_laid_out_with_its_chart_and_goes_along_as_picture_and_table(
    any_postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    pytest.importorskip("matplotlib", reason="the plotting library is an extra")
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    async with any_postgres.connect(database, app) as connection:
        for seconds in (0.01, 0.02, 0.04):
            await record_postgres(targets["lab"], store, clock)
            for _ in range(2):
                await connection.execute(f"select pg_sleep({seconds})".encode())
            clock.leap(hours=1)
    fingerprint = fingerprint_sql("select pg_sleep($1)")
    answer, shown, files = await call(
        targets, store, clock, "query_trend", {"fingerprint": fingerprint, "time_range": "last_4h", "bucket": "1h"}
    )
    assert isinstance(answer["rows"], list)
    assert [row["calls"] for row in answer["rows"]][-3:] == [2, 2, 2]
    assert files == ["query-trend-lab.png", "query-trend-lab.csv"]
    assert str(answer["chart"]).strip() in shown
    assert "select pg_sleep($1)" in shown


async def test_a_comparison_is_laid_out_with_its_verdict(
    any_postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    async with any_postgres.connect(database, app) as connection:
        for seconds in (0.002, 0.05):
            await record_postgres(targets["lab"], store, clock)
            for _ in range(8):
                await connection.execute(f"select pg_sleep({seconds})".encode())
            clock.leap(hours=1)
    now = clock.now()
    edges = [iso_utc(now - timedelta(hours=hours)) for hours in (2, 1, 0)]
    answer, shown, files = await call(
        targets, store, clock, "compare_windows", {"a": "/".join(edges[:2]), "b": "/".join(edges[1:])}
    )
    assert isinstance(answer["rows"], list)
    assert answer["rows"][0]["change"] == "regressed"
    assert str(answer["verdict"]) in shown
    assert "regressed" in shown.split("select pg_sleep")[0] or "regressed" in shown
    assert files == ["compare-windows-lab.csv"]


async def test_the_longest_trend_is_read_whole(any_postgres: Lab, store: SqliteStore, clock: LeapClock) -> None:
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    wide = ", ".join(f"pg_sleep(0.001), '{n}' as a_long_name_{n}" for n in range(100))
    async with any_postgres.connect(database, app) as connection:
        for _ in range(MOST_BUCKETS + 1):
            await record_postgres(targets["lab"], store, clock)
            await connection.execute(f"select {wide}".encode())
            clock.leap(minutes=1)
    await record_postgres(targets["lab"], store, clock)
    known = [one for one in await store.load_statements("lab") if "a_long_name_9" in one.sql]
    answer, _, _ = await call(
        targets,
        store,
        clock,
        "query_trend",
        {"fingerprint": known[0].fingerprint, "time_range": f"last_{MOST_BUCKETS}min", "bucket": "1min"},
    )
    assert isinstance(answer["rows"], list)
    assert len(answer["rows"]) >= MOST_BUCKETS
    assert len(json.dumps(answer)) < 24_000
