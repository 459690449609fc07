"""Public reports about the history of statements, each as a test (``docs/database-bug-rows.md``)."""

from __future__ import annotations

from datetime import timedelta

import psycopg
from psycopg.rows import TupleRow

from bot.storage.sqlite import SqliteStore
from bot.tools.query_history.compare import compare_two_windows
from bot.tools.query_history.reading import record_postgres
from bot.tools.query_history.trend import read_trend
from bot.tools.slow_queries.history import iso_utc
from bot.tools.slow_queries.redact_sql import fingerprint_sql
from tests.integration.query_history.conftest import LeapClock
from tests.servers.postgres import Lab

SLEEP = fingerprint_sql("select pg_sleep($1)")


async def run_slow(connection: psycopg.AsyncConnection[TupleRow], times: int, seconds: float = 0.01) -> None:
    for _ in range(times):
        await connection.execute(f"select pg_sleep({seconds})".encode())


async def test_d02_rows_without_an_id_are_counted_in_coverage_and_subtracted_from_nothing(
    postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    """https://github.com/pganalyze/collector/pull/123: entries that the role may not see have no id."""
    database = await postgres.create_database()
    blind, app = await postgres.create_role(), await postgres.create_role()
    targets = postgres.targets(database, blind)
    async with postgres.connect(database, app) as other, postgres.connect(database, blind) as own:
        for seconds in (0.001, 0.05):
            await record_postgres(targets["lab"], store, clock)
            await run_slow(other, 12, seconds)
            await run_slow(own, 12, seconds)
            clock.leap(hours=1)
        now = clock.now()
    edges = [iso_utc(now - timedelta(hours=hours)) for hours in (2, 1, 0)]
    answer = await compare_two_windows(targets, store, clock, a="/".join(edges[:2]), b="/".join(edges[1:]))
    (row,) = [row for row in answer.rows if "pg_sleep" in row.sql]
    assert (row.calls_b, row.users) == (12, (blind,))
    assert answer.coverage.complete is False
    assert any("hidden from" in reason and "GRANT pg_monitor" in reason for reason in answer.coverage.reasons)


async def test_d07_statements_inside_functions_and_those_that_people_send_are_kept_apart(
    any_postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    """https://github.com/powa-team/powa-archivist/issues/54: one row for both had absurd minima and maxima."""
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    async with any_postgres.admin(database) as admin:
        await admin.execute(
            "create function nap() returns void language plpgsql as $$ begin perform pg_sleep(0.05); end $$"
        )
        await admin.execute(f"alter role {app} set pg_stat_statements.track = 'all'".encode())
    async with any_postgres.connect(database, app) as connection:
        await record_postgres(targets["lab"], store, clock)
        for _ in range(3):
            await connection.execute(b"select nap()")
        await run_slow(connection, 4)
        clock.leap(hours=1)
    trend = await read_trend(targets, store, clock, fingerprint=SLEEP, time_range="last_2h", bucket="1h")
    keys = [one.key for one in await store.load_statements("lab") if one.fingerprint == SLEEP]
    assert {key.split("/")[2] for key in keys} == {"0", "1"}
    assert trend.total is not None
    assert trend.total.calls == 7  # each kind subtracted by itself, then added up
    assert trend.total.mean_s <= trend.total.max_s


async def test_d10_two_users_of_one_statement_are_subtracted_apart_and_then_added(
    any_postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    """https://github.com/NikolayS/pg_ash/issues/87: a join on the id alone multiplied rows of several users."""
    database = await any_postgres.create_database()
    reader = await any_postgres.create_reader()
    first, second = await any_postgres.create_role(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    async with any_postgres.connect(database, first) as one, any_postgres.connect(database, second) as two:
        await run_slow(one, 20)
        await record_postgres(targets["lab"], store, clock)
        await run_slow(one, 3)
        await run_slow(two, 5)
        clock.leap(hours=1)
    trend = await read_trend(targets, store, clock, fingerprint=SLEEP, time_range="last_2h", bucket="1h")
    assert trend.total is not None
    assert trend.total.calls == 8
    assert trend.users == tuple(sorted((first, second)))


async def test_d12_nobodys_counters_are_reset_and_a_mended_statement_is_no_longer_slow(
    any_postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    """https://github.com/ankane/pghero/issues/325 and /358: the tool reset what others read, or showed old ills."""
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)

    async def reset_at() -> object:
        async with any_postgres.admin(database) as admin:
            row = await (await admin.execute("select stats_reset, dealloc from pg_stat_statements_info")).fetchone()
        return row

    before = await reset_at()
    async with any_postgres.connect(database, app) as connection:
        await record_postgres(targets["lab"], store, clock)
        await run_slow(connection, 4, 0.2)  # a bad day, before it was mended
        clock.leap(hours=1)
        await record_postgres(targets["lab"], store, clock)
        await run_slow(connection, 4, 0.001)
        clock.leap(hours=1)
    trend = await read_trend(targets, store, clock, fingerprint=SLEEP, time_range="last_2h", bucket="1h")
    means = [row.mean_s for row in trend.rows if row.mean_s is not None]
    assert means[0] > 0.19
    assert means[-1] < 0.1
    assert await reset_at() == before
