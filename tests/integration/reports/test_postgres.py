"""A report about a real Postgres: what a person reads, the chart and the table, and the thread afterwards."""

from __future__ import annotations

import base64
import csv
import io
import json
from datetime import timedelta

import numpy as np
import pytest
from matplotlib.image import imread

from agent_core.llm.offline import OfflineProvider
from agent_core.llm.openai_compat import OpenAICompatible
from agent_core.tools.builtin import register_builtin
from agent_core.tools.registry import ToolRegistry
from bot.storage.sqlite import SqliteStore
from bot.tools.databases import register_database_tools
from bot.tools.query_history.reading import record_postgres
from bot.tools.slow_queries.redact_sql import fingerprint_sql
from bot.tools.targets import Targets
from tests.clocks import NoonClock
from tests.integration.reports.stage import DIVIDES, WRITES, Stage, plan_call, read_body, remember
from tests.servers.openai import OpenAIServer, Reply, Request
from tests.servers.openai.script import Call
from tests.servers.postgres import Lab

SLEEPS = "select pg_sleep({}), 'report'"
BLUE = (0x1F / 255, 0x6F / 255, 0xEB / 255)
"""Of the line of a trend."""
OPTIMIZER = "^You are sql_optimizer"


async def make_history(lab: Lab, store: SqliteStore, clock: NoonClock) -> Targets:
    """Four hours in each of which a statement runs, slower and slower."""
    database, role = await lab.create_database(), await lab.create_reader()
    targets = lab.targets(database, role, name="shop")
    async with lab.connect(database, "postgres") as connection:
        await record_postgres(targets["shop"], store, clock)
        for hour in range(4):
            for _ in range(3):
                await connection.execute(SLEEPS.format(0.11 + 0.02 * hour).encode())
            clock.ahead += timedelta(hours=1)
            await record_postgres(targets["shop"], store, clock)
    return targets


def build_registry(targets: Targets, store: SqliteStore, clock: NoonClock) -> ToolRegistry:
    registry = ToolRegistry()
    register_database_tools(registry, targets, store, clock)
    register_builtin(registry)
    return registry


async def test_a_plain_report_of_a_real_server_says_what_is_slow(any_postgres: Lab, store: SqliteStore) -> None:
    clock = NoonClock()
    targets = await make_history(any_postgres, store, clock)
    stage = Stage(store, OfflineProvider(), registry=build_registry(targets, store, clock), targets=targets)
    answer = await stage.run(at=clock.now())
    lines = answer.text.splitlines()
    assert len(lines) <= 5
    assert any("slow statement" in line and "[sql_optimizer:a1]" in line for line in lines)
    body, replies = read_body(answer)
    assert "pg_sleep" in body
    assert "### Slow statements [sql_optimizer:a1]" in body
    assert fingerprint_sql(SLEEPS.format("$1")) in body.partition("**Sources**")[2]
    assert all(len(file.content) for reply in replies for file in reply.files)


@pytest.mark.parametrize(("bucket", "drawn"), [("1h", True), ("10m", False)])
async def test_a_written_report_has_a_chart_of_what_is_known_a_table_and_evidence(
    any_postgres: Lab, store: SqliteStore, server: OpenAIServer, model: OpenAICompatible, bucket: str, drawn: bool
) -> None:
    clock, fingerprint = NoonClock(), fingerprint_sql(SLEEPS.format("$1"))
    targets = await make_history(any_postgres, store, clock)
    end = clock.now()
    day = f"{end - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}/{end:%Y-%m-%dT%H:%M:%SZ}"

    def look_closer(request: Request) -> Reply:
        rows = json.loads(request.tool_results["get_slow_queries"])["rows"]
        assert fingerprint in {row["fingerprint"] for row in rows}
        return Reply(
            calls=[
                Call(
                    "query_trend",
                    json.dumps(
                        {"fingerprint": fingerprint, "target": "shop", "time_range": "last_6h", "bucket": bucket}
                    ),
                )
            ]
        )

    server.on(system=DIVIDES).tools(plan_call(("a1", "sql_optimizer", "slow statements of shop")))
    server.on(system=OPTIMIZER, step=0).tools(
        ("get_slow_queries", {"target": "shop", "time_range": day, "threshold": 0.1})
    )
    server.on(system=OPTIMIZER, step=1).dynamic(look_closer)
    server.on(system=OPTIMIZER).text("slower every hour")
    server.on(system=WRITES).text(
        "A statement gets slower every hour [sql_optimizer:a1].\n---\nSee the chart [sql_optimizer:a1]."
    )
    stage = Stage(store, model, registry=build_registry(targets, store, clock), targets=targets)
    answer = await stage.run(at=end)
    _, replies = read_body(answer)
    files = {file.name: file for file in replies[-1].files}
    assert sorted(files) == [*(["query-trend-shop.png"] if drawn else []), "slow-queries-shop.csv"]
    if drawn:
        png = base64.b64decode(files["query-trend-shop.png"].content)
        pixels = imread(io.BytesIO(png))[:, :, :3]
        line = np.abs(pixels - np.array(BLUE)).max(axis=2) < 0.1
        assert line.sum() > 500, "the chart has no line"
    rows = list(csv.DictReader(io.StringIO(files["slow-queries-shop.csv"].content)))
    assert fingerprint in {row["fingerprint"] for row in rows}
    conversation = remember(answer)
    assert [call.name for m in conversation.messages for call in m.tool_calls] == ["get_slow_queries", "query_trend"]
    assert fingerprint in "".join(m.content for m in conversation.messages if m.role == "tool")
