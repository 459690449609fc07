"""Logs that a real Postgres writes while the test runs: all three forms, with auto_explain, tell the same truth."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from bot.demo.postgres import EmbeddedPostgres
from bot.tools.slow_logs.answer import SlowLog
from bot.tools.slow_queries.redact_sql import fingerprint_sql
from tests.unit.slow_logs.logs import read

SETTINGS = {
    "logging_collector": "on",
    "log_destination": "stderr,csvlog,jsonlog",
    "log_filename": "postgresql.log",
    "log_line_prefix": "%m [%p] %q%u@%d/%a ",
    "log_min_duration_statement": "0",
    "log_error_verbosity": "default",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "log_rotation_size": "0",
}
SIMPLE = (
    "select count(*) from generate_series(1, %d) n where n::text <> 's3cr3t\n2026-01-01 00:00:00.000 UTC [1] LOG:  x'"
)
BOUND = "select %s::int + 1"
CALLS, BOUND_CALLS = 12, 7


async def work(server: EmbeddedPostgres) -> None:
    """Run known statements: simple ones, ones with parameters (parse, bind, execute), one that is cancelled."""
    connection = await psycopg.AsyncConnection.connect(
        server.url("postgres", password=server.password), autocommit=True, application_name="web app"
    )
    async with connection:
        for number in range(CALLS):
            await connection.execute((SIMPLE % (number + 1)).encode())
        for number in range(BOUND_CALLS):
            await connection.execute(BOUND, (number,), prepare=True)
        await connection.execute("set statement_timeout = '50ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            await connection.execute("select pg_sleep(5), 's3cr3t'")


@pytest.fixture(scope="module")
def logs() -> dict[str, bytes]:
    """The three logs of one server."""
    return asyncio.run(write_logs())


async def write_logs() -> dict[str, bytes]:
    async with EmbeddedPostgres(settings=SETTINGS) as server:
        await work(server)
        folder = next(path.parent for path in server.folder.rglob("postgresql.log"))
        names = {"stderr": "postgresql.log", "csvlog": "postgresql.csv", "jsonlog": "postgresql.json"}
        async with asyncio.timeout(60):
            while not all(is_written(folder / name) for name in names.values()):  # noqa: ASYNC110 (another process writes)
                await asyncio.sleep(0.05)
        return {kind: (folder / name).read_bytes() for kind, name in names.items()}


def is_written(path: Path) -> bool:
    """True when the last of the statements is in a log."""
    return path.exists() and b"select pg_sleep(5)" in path.read_bytes()


def shapes(answer: SlowLog) -> Counter[str]:
    return Counter({row.fingerprint: row.calls for row in answer.rows})


@pytest.mark.parametrize("kind", ["stderr", "csvlog", "jsonlog"])
def test_every_execution_counts_once_beside_auto_explain(logs: dict[str, bytes], kind: str) -> None:
    answer = read(logs[kind])
    assert answer.files[0].format == kind
    assert answer.damaged.lines == 0, answer.damaged
    found = shapes(answer)
    assert found[fingerprint_sql(SIMPLE % 1)] == CALLS
    assert found[fingerprint_sql("select $1::int + 1")] == BOUND_CALLS
    plan = next(row.example_plan for row in answer.rows if row.fingerprint == fingerprint_sql(SIMPLE % 1))
    assert plan is not None
    assert "Function Scan" in plan
    assert {(row.db, row.user, row.app) for row in answer.rows if row.calls >= BOUND_CALLS} == {
        ("postgres", "postgres", "web app")
    }
    assert [ended.cancelled for ended in answer.cancelled] == [1]
    assert "s3cr3t" not in repr(answer)


def test_the_three_logs_agree(logs: dict[str, bytes]) -> None:
    answers = [read(content) for content in logs.values()]
    assert shapes(answers[0]) == shapes(answers[1]) == shapes(answers[2])
    totals = [{row.fingerprint: row.total_s for row in answer.rows} for answer in answers]
    assert totals[0] == pytest.approx(totals[1])
    assert totals[0] == pytest.approx(totals[2])
