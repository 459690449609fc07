"""``compare_windows`` on real servers: the flipped plan is found, and a steady server is left in peace."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow
from pydantic_core import to_json

from agent_core.errors import ToolFailed
from bot.storage.sqlite import SqliteStore
from bot.tools.query_history.changes import MIN_CHANGE
from bot.tools.query_history.compare import compare_two_windows
from bot.tools.query_history.reading import record_postgres
from bot.tools.slow_queries.history import iso_utc
from bot.tools.targets import Target, Targets
from tests.integration.query_history.conftest import LeapClock, check_at_best
from tests.servers.postgres import Lab
from tests.stopwatch import ATTEMPTS

Work = Callable[[psycopg.AsyncConnection[TupleRow]], Awaitable[None]]


async def fill(lab: Lab, database: str, app: str) -> None:
    """Orders of customers, found through an index."""
    async with lab.admin(database) as admin:
        await admin.execute(
            "create table orders as select n as id, n % 5000 as customer, n * 0.5 as total, repeat('x', 60) as note "
            "from generate_series(1, 60000) n"
        )
        await admin.execute("create index orders_customer on orders (customer)")
        await admin.execute("analyze orders")
        await admin.execute(f"grant select on orders to {app}".encode())


async def work(connection: psycopg.AsyncConnection[TupleRow]) -> None:
    """A minute of a shop, in a second: a few shapes, each with its own durations."""
    for n in range(25):
        await connection.execute(f"select id, total from orders where customer = {n * 37 % 5000}".encode())
        await connection.execute(f"select pg_sleep({0.004 + 0.002 * (n % 3)})".encode())
        await connection.execute(f"select sum(total) from orders where id between {n} and {n + 20000}".encode())
        await connection.execute(f"select note from orders where id = {n}".encode())
        await connection.execute(f"select max(total), {n} from orders".encode())
        await connection.execute(f"select count(*) from generate_series(1, {2000 + n}) as g".encode())


async def live_through(
    lab: Lab, targets: Targets, store: SqliteStore, clock: LeapClock, database: str, app: str, *minutes: Work
) -> tuple[str, ...]:
    """Let hours pass with one work in each, and a reading at each end; return the hours as time ranges."""
    ranges: list[str] = []
    async with lab.connect(database, app) as connection:
        for minute in minutes:
            await record_postgres(targets["lab"], store, clock)
            began = clock.now()
            await minute(connection)
            clock.leap(hours=1)
            ranges.append(f"{iso_utc(began)}/{iso_utc(clock.now())}")
    await record_postgres(targets["lab"], store, clock)
    return tuple(ranges)


async def prepare(lab: Lab) -> tuple[str, str, Targets]:
    database = await lab.create_database()
    reader, app = await lab.create_reader(), await lab.create_role()
    await fill(lab, database, app)
    async with lab.connect(database, app) as connection:
        await work(connection)  # caches are warm from here on
    return database, app, lab.targets(database, reader)


async def test_the_shape_whose_plan_flipped_is_the_first_row(postgres: Lab, tmp_path: Path) -> None:
    """An index is dropped in the middle: the answer begins with the shape that needed it, and what that cost.

    Where the machine did something else in one of the two hours, other shapes may have cost more: then once more.
    """
    await check_at_best(partial(check_flip, postgres), tmp_path)


async def check_flip(postgres: Lab, store: SqliteStore, clock: LeapClock) -> None:
    database, app, targets = await prepare(postgres)

    async def drop_index(connection: psycopg.AsyncConnection[TupleRow]) -> None:
        async with postgres.admin(database) as admin:
            await admin.execute("drop index orders_customer")
        await work(connection)

    a, b = await live_through(postgres, targets, store, clock, database, app, work, drop_index)
    answer = await compare_two_windows(targets, store, clock, a=a, b=b)
    first = answer.rows[0]
    assert (first.rank, first.change) == (1, "regressed")
    assert "from orders where customer = $" in first.sql
    assert (first.calls_a, first.calls_b) == (25, 25)
    assert first.ratio is not None
    assert first.ratio > 3
    assert first.p_value is not None
    assert first.p_value < 1e-4
    assert first.extra_s == pytest.approx(first.total_b_s - first.total_a_s, abs=0.001)
    assert "regressed" in answer.verdict
    assert answer.coverage.snapshots >= 3
    assert answer.a.window.end <= (answer.b.window.start or "")
    back = await compare_two_windows(targets, store, clock, a=b, b=a)
    assert [row.change for row in back.rows if row.fingerprint == first.fingerprint] == ["improved"]


async def test_ten_steady_runs_raise_no_alarm(any_postgres: Lab, store: SqliteStore, clock: LeapClock) -> None:
    database, app, targets = await prepare(any_postgres)
    taken_s: list[float] = []

    async def timed_work(connection: psycopg.AsyncConnection[TupleRow]) -> None:
        began = time.monotonic()
        await work(connection)
        taken_s.append(time.monotonic() - began)

    for _ in range(ATTEMPTS):
        taken_s.clear()
        ranges = await live_through(any_postgres, targets, store, clock, database, app, *[timed_work] * 11)
        answers = [await compare_two_windows(targets, store, clock, a=a, b=b) for a, b in pairwise(ranges)]
        alarms = [
            (row.change, row.sql, row.mean_a_s, row.mean_b_s, row.p_value) for answer in answers for row in answer.rows
        ]
        if not alarms or max(taken_s) < MIN_CHANGE * min(taken_s):
            break  # else the runs were not steady: the machine had something else to do in some of them
    assert alarms == []
    assert all(answer.verdict.startswith("no shape changed beyond chance") for answer in answers)
    assert all(answer.tested >= 6 for answer in answers)


async def test_a_new_report_and_one_that_stopped_are_named(
    any_postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    database, app, targets = await prepare(any_postgres)

    async def with_old(connection: psycopg.AsyncConnection[TupleRow]) -> None:
        await work(connection)
        await connection.execute(b"select pg_sleep(0.6), 'old report of 2025'")

    async def with_new(connection: psycopg.AsyncConnection[TupleRow]) -> None:
        await work(connection)
        await connection.execute(b"select pg_sleep(0.8), 'new report', 5")

    a, b = await live_through(any_postgres, targets, store, clock, database, app, with_old, with_new)
    answer = await compare_two_windows(targets, store, clock, a=a, b=b)
    changes = [(row.change, row.calls_a, row.calls_b) for row in answer.rows if "pg_sleep($1)," in row.sql]
    assert changes == [("new", 0, 1), ("gone", 1, 0)]
    assert answer.rows[0].extra_s == pytest.approx(0.8, abs=0.1)
    assert "report" not in to_json(answer).decode()


async def test_d09_two_databases_of_one_server_are_not_counted_twice(
    any_postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    """https://github.com/pgEdge/ai-dba-workbench/pull/481: 240 calls instead of 120."""
    first, second = await any_postgres.create_database(), await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = Targets([Target.from_url(name, any_postgres.url(name, reader)) for name in (first, second)])
    async with any_postgres.connect(first, app) as here, any_postgres.connect(second, app) as there:
        for round_ in range(2):
            # one reading counts for both targets, and for each only its own database's statements
            await record_postgres(targets[first], store, clock, also=[second])
            began = clock.now()
            if round_ == 0:
                for _ in range(12):
                    await here.execute(b"select pg_sleep(0.01)")
                for _ in range(7):
                    await there.execute(b"select pg_sleep(0.01)")
            clock.leap(hours=1)
        await record_postgres(targets[first], store, clock, also=[second])
    del began
    now = clock.now()
    for name, calls in ((first, 12), (second, 7)):
        hour = [iso_utc(now.replace(microsecond=0) - _hours(n)) for n in (2, 1)]
        answer = await compare_two_windows(
            targets, store, clock, target=name, a=f"{hour[0]}/{hour[1]}", b=f"{hour[1]}/{iso_utc(now)}"
        )
        (row,) = [row for row in answer.rows if "pg_sleep" in row.sql]
        assert (row.change, row.calls_a) == ("gone", calls)


def _hours(count: int) -> timedelta:
    return timedelta(hours=count)


async def test_ranges_that_overlap_and_a_past_without_readings_are_refused(
    any_postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    database = await any_postgres.create_database()
    targets = any_postgres.targets(database, await any_postgres.create_reader())
    for a, b, code in (
        ("last_2h", "last_1h", "bad_time_range"),
        ("last_2h", "nonsense", "bad_time_range"),
        ("yesterday", "last_1min", "no_history"),
    ):
        with pytest.raises(ToolFailed) as raised:
            await compare_two_windows(targets, store, clock, a=a, b=b)
        assert raised.value.code == code
        assert raised.value.fix
    # one reading does not tell two ranges apart
    clock.leap(hours=3)
    with pytest.raises(ToolFailed) as raised:
        await compare_two_windows(targets, store, clock, a="yesterday", b="last_1min")
    assert raised.value.code == "no_history"


async def test_two_readings_of_today_say_nothing_of_ranges_long_ago(
    any_postgres: Lab, store: SqliteStore, clock: LeapClock
) -> None:
    """A new installation was told that nothing had changed since last week."""
    database = await any_postgres.create_database()
    targets = any_postgres.targets(database, await any_postgres.create_reader())
    for _ in range(3):
        await record_postgres(targets["lab"], store, clock)
    now = clock.now()
    ago = [iso_utc(now - timedelta(days=days)) for days in (8, 7, 1)]
    with pytest.raises(ToolFailed) as raised:
        await compare_two_windows(targets, store, clock, a=f"{ago[0]}/{ago[1]}", b=f"{ago[2]}/{iso_utc(now)}")
    assert raised.value.code == "no_history"
    assert "of a (" in raised.value.message
