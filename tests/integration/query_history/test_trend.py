"""``query_trend`` on real servers: the truth of windows, and what happens to it when counters do not live on."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow
from pydantic_core import to_json

from agent_core.errors import ToolFailed
from bot.storage.sqlite import SqliteStore
from bot.tools.query_history.answer import QueryTrend, TrendBucket, TrendTotal
from bot.tools.query_history.reading import record_postgres
from bot.tools.query_history.trend import read_trend
from bot.tools.slow_queries.redact_sql import fingerprint_sql
from bot.tools.targets import Target, Targets
from tests.integration.query_history.conftest import LeapClock, check_at_best
from tests.servers.postgres import FIRST, SYSTEM, Lab, start_lab, stop_lab

SHAPES = {
    "sleeping": "select pg_sleep({})",
    "joined": "select count(*) from (values (1), (2)) as v(n), lateral (select pg_sleep({} / 2 + n * 0)) as s",
}


async def run_and_time(
    connection: psycopg.AsyncConnection[TupleRow], shape: str, seconds: Sequence[float]
) -> list[float]:
    """Run a shape with values in it, and return how long each took by the client's stopwatch."""
    taken: list[float] = []
    for value in seconds:
        began = time.perf_counter()
        await connection.execute(SHAPES[shape].format(value).encode())
        taken.append(time.perf_counter() - began)
    return taken


def fingerprint_of(shape: str) -> str:
    return fingerprint_sql(SHAPES[shape].format("$1"))


async def trend_of(
    targets: Targets, store: SqliteStore, clock: LeapClock, shape: str, *, time_range: str = "last_4h"
) -> QueryTrend:
    return await read_trend(
        targets, store, clock, fingerprint=fingerprint_of(shape), time_range=time_range, bucket="1h"
    )


def check_sane(trend: QueryTrend) -> None:
    """No number is ever negative, and no mean is above its maximum."""
    rows: list[TrendBucket | TrendTotal] = [*trend.rows, *([trend.total] if trend.total else [])]
    for row in rows:
        if row.calls:
            numbers = (row.mean_s, row.total_s, row.stddev_s, row.max_s)
            assert all(number is not None and number >= 0 for number in numbers), row
            assert row.mean_s is not None
            assert row.max_s is not None
            assert row.mean_s <= row.max_s + 1e-6, row


async def test_windows_are_the_truth_while_the_lifetime_view_is_far_off(postgres: Lab, tmp_path: Path) -> None:
    """For each shape: calls exact, mean within 2 %, deviation within 5 % of a stopwatch beside the statements.

    The stopwatch also runs while a busy client does not get to read the answer: a reading that it spoilt is repeated.
    """
    await check_at_best(partial(check_windows, postgres), tmp_path)


async def check_windows(postgres: Lab, store: SqliteStore, clock: LeapClock) -> None:
    database = await postgres.create_database()
    reader, app = await postgres.create_reader(), await postgres.create_role()
    targets = postgres.targets(database, reader)
    dice = random.Random(7)
    truth: dict[str, list[float]] = {}
    async with postgres.connect(database, app) as connection:
        for shape in SHAPES:  # an old, misleading history
            await run_and_time(connection, shape, [1.5, 1.5])
        await record_postgres(targets["lab"], store, clock)
        for shape in SHAPES:
            truth[shape] = await run_and_time(connection, shape, [dice.choice([0.05, 0.1, 0.4]) for _ in range(14)])
    clock.leap(hours=1)
    for shape, taken in truth.items():
        trend = await trend_of(targets, store, clock, shape)
        check_sane(trend)
        assert trend.total is not None
        assert trend.total.calls == 14
        assert trend.total.mean_s == pytest.approx(statistics.mean(taken), rel=0.02, abs=0.006)
        assert trend.total.stddev_s == pytest.approx(statistics.pstdev(taken), rel=0.05, abs=0.006)
        lifetime = (3.0 + sum(taken)) / 16
        assert lifetime > 2 * trend.total.mean_s
    payload = to_json(trend).decode()
    assert "0.05" not in trend.sql
    assert not any(secret in payload for secret in postgres.passwords.values())


async def test_each_bucket_has_its_own_numbers_and_what_is_not_known_is_said(
    any_postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    async with any_postgres.connect(database, app) as connection:
        await record_postgres(targets["lab"], store, clock)
        for durations in ([0.02] * 3, [], [0.1, 0.1]):
            await run_and_time(connection, "sleeping", durations)
            clock.leap(hours=1)
            await record_postgres(targets["lab"], store, clock)
    trend = await trend_of(targets, store, clock, "sleeping", time_range="last_6h")
    check_sane(trend)
    ran = [row.calls for row in trend.rows if row.coverage > 0.5]
    assert ran == [3, 0, 2]
    assert {row.calls for row in trend.rows if row.coverage == 0} == {None}
    assert trend.total is not None
    assert (trend.total.calls, trend.users) == (5, (app,))
    assert trend.coverage.complete is False
    assert "buckets have no reading next to their borders" in trend.coverage.reasons[0]
    assert trend.chart.strip().count("·") == 1
    assert trend.chart.rstrip()[-1] == "█"
    assert trend.chart.startswith(" ")


async def test_without_a_reading_the_past_is_unknown_and_the_next_question_knows_more(
    any_postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    async with any_postgres.connect(database, app) as connection:
        await run_and_time(connection, "sleeping", [0.01] * 3)
        first = await trend_of(targets, store, clock, "sleeping")
        assert first.total is None
        assert {row.calls for row in first.rows} == {None}
        await run_and_time(connection, "sleeping", [0.01] * 2)
    clock.leap(hours=1)
    second = await trend_of(targets, store, clock, "sleeping")
    assert second.total is not None
    assert second.total.calls == 2


async def test_d11_a_statement_thrown_out_and_back_gives_no_negative_number(
    store: SqliteStore, clock: LeapClock
) -> None:
    """https://github.com/zubkov-andrei/pg_profile/issues/116: any fall of a counter is a new beginning."""
    lab = await asyncio.to_thread(start_lab, "first", settings={"pg_stat_statements.max": "100"})
    try:
        database = await lab.create_database()
        reader, app = await lab.create_reader(), await lab.create_role()
        targets = lab.targets(database, reader)
        async with lab.connect(database, app) as connection:
            await run_and_time(connection, "sleeping", [0.05] * 8)
            await record_postgres(targets["lab"], store, clock)
            clock.leap(hours=1)
            for n in range(1, 250):  # shapes of their own, so that the server throws out what is used less
                shape = f"select {', '.join(['1'] * n)}".encode()
                for _ in range(14):
                    await connection.execute(shape)
            await run_and_time(connection, "sleeping", [0.05] * 3)
        trend = await trend_of(targets, store, clock, "sleeping")
    finally:
        await asyncio.to_thread(stop_lab, lab)
    check_sane(trend)
    assert trend.total is not None
    assert trend.total.calls == 3
    assert trend.coverage.complete is False
    assert any("threw statements out" in reason for reason in trend.coverage.reasons)
    assert any("began anew" in reason for reason in trend.coverage.reasons)


async def test_d13_another_tools_reset_is_told_and_counted_from(
    postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    """https://github.com/zubkov-andrei/pg_profile/issues/34: wrong values after somebody else's reset."""
    database = await postgres.create_database()
    reader, app = await postgres.create_reader(), await postgres.create_role()
    targets = postgres.targets(database, reader)
    async with postgres.connect(database, app) as connection:
        await run_and_time(connection, "sleeping", [0.2] * 3)
        await record_postgres(targets["lab"], store, clock)
        clock.leap(hours=1)
        async with postgres.admin(database) as admin:
            await admin.execute("select pg_stat_statements_reset()")
        await run_and_time(connection, "sleeping", [0.01] * 5)  # more calls, less time
    trend = await trend_of(targets, store, clock, "sleeping")
    check_sane(trend)
    assert trend.total is not None
    assert trend.total.calls == 5
    assert trend.total.mean_s < 0.15
    assert trend.coverage.complete is False
    assert any("were reset once" in reason for reason in trend.coverage.reasons)


@pytest.mark.parametrize("kind", [FIRST, SYSTEM])
@pytest.mark.parametrize("crash", [False, True])
async def test_a_restart_between_two_readings_keeps_the_numbers_or_says_that_they_are_lost(
    store: SqliteStore, clock: LeapClock, kind: str, crash: bool
) -> None:
    lab = await asyncio.to_thread(start_lab, kind)
    try:
        database = await lab.create_database()
        reader, app = await lab.create_reader(), await lab.create_role()
        async with lab.connect(database, app) as connection:
            await run_and_time(connection, "sleeping", [0.1] * 3)
            await record_postgres(lab.targets(database, reader)["lab"], store, clock)
            clock.leap(hours=1)
            await run_and_time(connection, "sleeping", [0.01] * 2)
            if crash:  # a killed session makes the server throw its shared memory away, with the counters in it
                async with lab.admin(database) as admin:  # the lab flushes late: the roles would be lost with it
                    await admin.execute("checkpoint")
                before = await lab.find_checkpointer()
                os.kill(connection.info.backend_pid, signal.SIGKILL)
                with pytest.raises(psycopg.OperationalError):
                    await connection.execute("select 1")
        if crash:
            async with asyncio.timeout(60):
                while await lab.find_checkpointer() in (None, before):
                    pass  # each look is a connection attempt, which takes its time
        else:
            await lab.server.restart()
        targets = lab.targets(database, reader)
        async with lab.connect(database, app) as connection:
            await run_and_time(connection, "sleeping", [0.01] * 4)
        trend = await trend_of(targets, store, clock, "sleeping")
    finally:
        await asyncio.to_thread(stop_lab, lab)
    check_sane(trend)
    assert trend.total is not None
    if crash:
        assert trend.total.calls == 4
        assert any("were reset once" in reason for reason in trend.coverage.reasons)
    else:
        assert trend.total.calls == 6
        assert any("restarted at" in warning and "kept" in warning for warning in trend.warnings)


async def test_an_unknown_fingerprint_and_a_bad_bucket_are_told_with_what_to_do(
    any_postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    database = await any_postgres.create_database()
    targets = any_postgres.targets(database, await any_postgres.create_reader())
    with pytest.raises(ToolFailed) as raised:
        await read_trend(targets, store, clock, fingerprint="no such thing")
    assert raised.value.code == "unknown_fingerprint"
    assert "get_slow_queries" in raised.value.fix
    with pytest.raises(ToolFailed) as raised:
        await read_trend(targets, store, clock, fingerprint="x", bucket="soon")
    assert raised.value.code == "bad_bucket"


async def test_a_database_that_is_down_still_has_a_past(
    any_postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    async with any_postgres.connect(database, app) as connection:
        await record_postgres(targets["lab"], store, clock)
        await run_and_time(connection, "sleeping", [0.01] * 3)
        clock.leap(hours=1)
        await record_postgres(targets["lab"], store, clock)
    down = Targets([Target.from_url("lab", f"postgresql://{reader}:x@127.0.0.1:1/{database}")])
    trend = await trend_of(down, store, clock, "sleeping")
    assert trend.total is not None
    assert trend.total.calls == 3
    assert "nothing answers at its address" in trend.warnings[0]
    never_read = Targets([Target.from_url("other", f"postgresql://{reader}:x@127.0.0.1:1/{database}")])
    with pytest.raises(ToolFailed) as raised:
        await trend_of(never_read, store, clock, "sleeping")
    assert raised.value.code == "connect_failed"
