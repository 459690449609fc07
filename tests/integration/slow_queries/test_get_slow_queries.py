"""``get_slow_queries`` against real servers, with a workload whose truth is measured beside them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Literal

import psycopg
import pytest
from psycopg.rows import TupleRow
from pydantic_core import to_json

from agent_core.context import SystemClock
from agent_core.errors import ToolFailed
from bot.storage.base import StoreError
from bot.storage.snapshots import Snapshot
from bot.tools.slow_queries import read_slow_queries, record_reading
from bot.tools.slow_queries.answer import SlowQueries, SlowQuery
from bot.tools.targets import Target, Targets
from tests.integration.slow_queries.conftest import MemorySnapshots, check_no_secret
from tests.servers.postgres import FIRST, SYSTEM, Lab, start_lab, stop_lab

CLOCK = SystemClock()


async def sleep_on(connection: psycopg.AsyncConnection[TupleRow], seconds: float) -> None:
    """A statement that takes as long as it is told."""
    await connection.execute(f"select pg_sleep({seconds})".encode())


async def sleep_and_tell(connection: psycopg.AsyncConnection[TupleRow], seconds: float) -> float:
    """The same, and returns how long by the server's clock; what a busy client needs to read the answer is no part."""
    query = (
        f"with slept as materialized (select pg_sleep({seconds})) "
        "select extract(epoch from clock_timestamp() - statement_timestamp())::float8 from slept"
    )
    row = await (await connection.execute(query.encode())).fetchone()
    assert row is not None
    return float(row[0])


def find_row(answer: SlowQueries, part: str) -> SlowQuery:
    rows = [row for row in answer.rows if part in row.sql and row.state == "finished"]
    assert len(rows) == 1, [row.sql for row in answer.rows]
    return rows[0]


async def test_two_calls_give_the_exact_numbers_of_the_time_between_them(postgres: Lab, store: MemorySnapshots) -> None:
    database = await postgres.create_database()
    reader, app = await postgres.create_reader(), await postgres.create_role()
    targets = postgres.targets(database, reader)
    chooser = random.Random(7)
    async with postgres.connect(database, app) as connection:
        old = [await sleep_and_tell(connection, 1.2) for _ in range(2)]  # a misleading history
        first = await read_slow_queries(targets, store, CLOCK, threshold_s=0)
        truth = [await sleep_and_tell(connection, chooser.choice([0.02, 0.05, 0.3])) for _ in range(20)]
        second = await read_slow_queries(targets, store, CLOCK, threshold_s=0.01)

    assert first.source == "pg_stat_statements (lifetime)"
    assert first.coverage.complete is False
    assert "no earlier reading" in first.coverage.reasons[0]
    row = find_row(second, "pg_sleep")
    mean, deviation = statistics.mean(truth), statistics.pstdev(truth)
    assert second.source == "pg_stat_statements (window between two readings)"
    assert second.coverage.snapshots == 1
    assert second.window.start == first.window.end
    assert row.calls == 20
    assert row.duration_kind == "mean"
    assert row.mean_s == pytest.approx(mean, rel=0.02, abs=0.006)
    assert row.stddev_s == pytest.approx(deviation, rel=0.05, abs=0.006)
    assert row.duration == row.mean_s
    assert row.max_exact is False  # the old history holds the maximum
    assert row.max_s >= max(truth) * 0.9
    lifetime = (await read_lifetime(postgres, database))[0]
    assert lifetime == pytest.approx(statistics.mean([*old, *truth]), rel=0.02, abs=0.006)


async def read_lifetime(lab: Lab, database: str) -> tuple[float, int]:
    """Mean in seconds and calls of pg_sleep, as a tool without readings shows them."""
    async with lab.admin(database) as admin:
        cursor = await admin.execute(
            "select sum(total_exec_time) / sum(calls) / 1000, sum(calls) from pg_stat_statements s "
            "join pg_database d on d.oid = s.dbid where d.datname = current_database() and query like '%pg_sleep%'"
        )
        row = await cursor.fetchone()
    assert row is not None
    return float(row[0]), int(row[1])


async def test_a_reset_in_between_is_told_and_no_number_is_negative(postgres: Lab, store: MemorySnapshots) -> None:
    database = await postgres.create_database()
    reader, app = await postgres.create_reader(), await postgres.create_role()
    targets = postgres.targets(database, reader)
    async with postgres.connect(database, app) as connection:
        for _ in range(5):
            await sleep_on(connection, 0.1)
        first = await read_slow_queries(targets, store, CLOCK, threshold_s=0)
        async with postgres.admin(database) as admin:
            await admin.execute("select pg_stat_statements_reset()")
        for _ in range(6):  # more calls than before, so that counting calls does not show the reset
            await sleep_on(connection, 0.02)
        second = await read_slow_queries(targets, store, CLOCK, threshold_s=0)
    row = find_row(second, "pg_sleep")
    mean_s, calls = await read_lifetime(postgres, database)  # since the reset
    assert (row.calls, calls) == (6, 6)
    assert row.mean_s == pytest.approx(mean_s, abs=1e-5)
    assert second.window.start is not None
    assert second.window.start > first.window.end
    assert second.coverage.complete is False
    assert any("reset" in reason for reason in second.coverage.reasons)
    assert all(r.calls > 0 and r.total_s >= 0 and r.stddev_s >= 0 for r in second.rows)


async def test_the_reset_of_one_statement_counts_it_from_there(any_postgres: Lab, store: MemorySnapshots) -> None:
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    async with any_postgres.connect(database, app) as connection:
        for _ in range(3):
            await sleep_on(connection, 0.05)
        first = await read_slow_queries(targets, store, CLOCK, threshold_s=0.04)
        queryid = find_row(first, "pg_sleep").queryid
        async with any_postgres.admin(database) as admin:
            await admin.execute("select pg_stat_statements_reset(0, 0, %s)", (int(queryid or 0),))
        for _ in range(4):
            await sleep_on(connection, 0.05)
        second = await read_slow_queries(targets, store, CLOCK, threshold_s=0.04)
    assert find_row(second, "pg_sleep").calls == 4
    assert any("counted from there" in reason for reason in second.coverage.reasons)


@pytest.fixture(params=[FIRST, SYSTEM])
def own_postgres(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A server that a test may restart."""
    lab = start_lab(request.param)
    yield lab
    stop_lab(lab)


async def test_a_clean_restart_between_two_calls_keeps_the_window_exact(
    own_postgres: Lab, store: MemorySnapshots
) -> None:
    database = await own_postgres.create_database()
    reader, app = await own_postgres.create_reader(), await own_postgres.create_role()
    targets = own_postgres.targets(database, reader)
    async with own_postgres.connect(database, app) as connection:
        for _ in range(2):
            await sleep_on(connection, 0.05)
    await record_reading(targets["lab"], store, CLOCK)
    await own_postgres.server.restart()
    async with own_postgres.connect(database, app) as connection:
        for _ in range(3):
            await sleep_on(connection, 0.05)
    answer = await read_slow_queries(targets, store, CLOCK, threshold_s=0.04)
    assert find_row(answer, "pg_sleep").calls == 3
    assert any("restarted" in warning and "kept" in warning for warning in answer.warnings)


async def test_a_crash_between_two_calls_starts_the_window_anew(own_postgres: Lab, store: MemorySnapshots) -> None:
    """A killed session makes the server throw its shared memory away, with the counters in it."""
    database = await own_postgres.create_database()
    reader, app = await own_postgres.create_reader(), await own_postgres.create_role()
    targets = own_postgres.targets(database, reader)
    async with own_postgres.connect(database, app) as connection:
        for _ in range(5):
            await sleep_on(connection, 0.1)
        first = await read_slow_queries(targets, store, CLOCK, threshold_s=0.04)
        async with own_postgres.admin(database) as admin:  # the lab flushes late: the roles would be lost with it
            await admin.execute("checkpoint")
        before = await own_postgres.find_checkpointer()
        os.kill(connection.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            await connection.execute("select 1")
    async with asyncio.timeout(60):
        while await own_postgres.find_checkpointer() in (None, before):
            pass  # each look is a connection attempt, which takes its time
    async with own_postgres.connect(database, app) as connection:
        for _ in range(6):
            await sleep_on(connection, 0.02)
    answer = await read_slow_queries(targets, store, CLOCK, threshold_s=0.01)
    row = find_row(answer, "pg_sleep")
    assert row.calls == 6
    assert row.mean_s == pytest.approx((await read_lifetime(own_postgres, database))[0], abs=1e-5)  # began anew, too
    assert answer.window.start is not None
    assert answer.window.start > first.window.end
    assert any("reset" in reason for reason in answer.coverage.reasons)


async def test_the_threshold_splits_slow_shapes_from_those_that_may_have_been_slow_once(
    any_postgres: Lab, store: MemorySnapshots
) -> None:
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    async with any_postgres.connect(database, app) as connection:
        await record_reading(targets["lab"], store, CLOCK)
        for seconds in (0.3, 0.0, 0.0, 0.0, 0.0, 0.0):
            await sleep_on(connection, seconds)
        answer = await read_slow_queries(targets, store, CLOCK, threshold_s=0.2)
    assert [row.sql for row in answer.rows if "pg_sleep" in row.sql] == []
    suspects = [row for row in answer.may_have_exceeded if "pg_sleep" in row.sql]
    assert len(suspects) == 1
    assert suspects[0].basis == "window"
    assert suspects[0].max_exact is True
    assert suspects[0].max_s >= 0.3
    assert suspects[0].mean_s < 0.2


async def test_what_was_slow_before_the_first_reading_is_listed_apart(
    any_postgres: Lab, store: MemorySnapshots
) -> None:
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    async with any_postgres.connect(database, app) as connection:
        await sleep_on(connection, 0.3)
        await record_reading(targets["lab"], store, CLOCK)
        answer = await read_slow_queries(targets, store, CLOCK, threshold_s=0.2)
    assert answer.rows == ()
    assert [(row.basis, row.calls) for row in answer.may_have_exceeded] == [("lifetime", 1)]


async def test_a_statement_that_still_runs_is_listed_as_a_single_execution_without_its_literals(
    postgres: Lab, store: MemorySnapshots
) -> None:
    database = await postgres.create_database()
    reader, app = await postgres.create_reader(), await postgres.create_role()
    async with postgres.connect(database, app) as connection, postgres.admin() as admin:
        running = asyncio.create_task(
            connection.execute("select pg_sleep(60), 'planted@secret.example' as mail /* planted comment */")
        )
        await wait_until_active(admin, connection.info.backend_pid, for_s=0.2)
        answer = await read_slow_queries(postgres.targets(database, reader), store, CLOCK, threshold_s=0.1)
        connection.cancel()
        with pytest.raises(psycopg.errors.QueryCanceled):
            await running
    rows = [row for row in answer.rows if row.state == "running"]
    assert len(rows) == 1
    assert rows[0].duration_kind == "single"
    assert rows[0].duration >= 0.2
    assert rows[0].user == app
    assert rows[0].sql == "select pg_sleep($1), $2 as mail"
    assert "planted" not in to_json(answer).decode()


async def wait_until_active(admin: psycopg.AsyncConnection[TupleRow], pid: int, *, for_s: float) -> None:
    """Wait until a session has been busy with one statement for some time, at most a minute."""
    async with asyncio.timeout(60):
        while True:
            cursor = await admin.execute(
                "select state = 'active' and clock_timestamp() - query_start > make_interval(secs => %s) "
                "from pg_stat_activity where pid = %s",
                (for_s, pid),
            )
            row = await cursor.fetchone()
            if row is not None and row[0]:
                return


async def test_d08_other_databases_and_hermods_own_statements_are_left_out_unless_asked_for(
    any_postgres: Lab, store: MemorySnapshots
) -> None:
    here, elsewhere = await any_postgres.create_database(), await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(here, reader)
    await record_reading(targets["lab"], store, CLOCK)
    async with any_postgres.connect(here, app) as connection, any_postgres.connect(elsewhere, app) as other:
        await connection.execute("select 1 as mine_in_this_database")
        await other.execute("select pg_sleep(0.3) as in_the_other_database")
    plain = await read_slow_queries(targets, store, CLOCK, threshold_s=0, limit=100)
    everything = await read_slow_queries(targets, store, CLOCK, threshold_s=0, limit=100, include_system=True)
    texts = [row.sql for row in plain.rows]
    assert any("mine_in_this_database" in text for text in texts)
    assert not any("in_the_other_database" in text for text in texts)
    assert {row.user for row in plain.rows} == {app}
    assert any("in other databases" in warning for warning in plain.warnings)
    assert find_row(everything, "in_the_other_database").db == elsewhere
    assert reader in {row.user for row in everything.rows}
    assert not everything.warnings


async def test_a_table_that_poses_as_the_view_is_not_read(any_postgres: Lab, store: MemorySnapshots) -> None:
    database = await any_postgres.create_database(extension=False)
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    async with any_postgres.admin(database) as admin:
        await admin.execute("create schema tucked_away")
        await admin.execute("create extension pg_stat_statements schema tucked_away")
        await admin.execute("create table public.pg_stat_statements (query text, calls int, queryid int)")
        await admin.execute("insert into public.pg_stat_statements values ('a lie', 1000000, 1)")
        failure = await failure_of(any_postgres.targets(database, reader), store, any_postgres)
        assert failure.code == "insufficient_privilege"
        assert failure.fix == f"GRANT USAGE ON SCHEMA tucked_away TO {reader};"
        await admin.execute(f"grant usage on schema tucked_away to {reader}".encode())
    async with any_postgres.connect(database, app) as connection:
        await sleep_on(connection, 0.05)
    answer = await read_slow_queries(any_postgres.targets(database, reader), store, CLOCK, threshold_s=0.04)
    assert find_row(answer, "pg_sleep").calls == 1
    assert "a lie" not in to_json(answer).decode()


async def test_d03_d05_d06_columns_are_those_of_the_extension_not_of_the_server(postgres: Lab) -> None:
    reader, app = await postgres.create_reader(), await postgres.create_role()
    async with postgres.admin() as admin:
        cursor = await admin.execute(
            "select version from pg_available_extension_versions where name = 'pg_stat_statements'"
        )
        versions = [str(version) for (version,) in await cursor.fetchall()]
    assert {"1.4", "1.7", "1.8", "1.9", "1.10"} <= set(versions)
    for version in versions:
        database = await postgres.create_database(extension=False)
        async with postgres.admin(database) as admin:
            await admin.execute(f"create extension pg_stat_statements version '{version}'".encode())
        async with postgres.connect(database, app) as connection:
            for _ in range(3):
                await sleep_on(connection, 0.05)
        answer = await read_slow_queries(postgres.targets(database, reader), MemorySnapshots(), CLOCK, threshold_s=0.04)
        row = find_row(answer, "pg_sleep")
        assert row.calls == 3, version
        assert 0.04 < row.mean_s < 5, version
        assert row.io is not None
        assert row.io.read_s >= 0


@pytest.mark.parametrize("order_by", ["total", "mean", "max", "calls"])
async def test_rows_come_in_the_asked_order_and_the_limit_says_what_it_left_out(
    any_postgres: Lab, store: MemorySnapshots, order_by: Literal["total", "mean", "max", "calls"]
) -> None:
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    await record_reading(targets["lab"], store, CLOCK)
    async with any_postgres.connect(database, app) as connection:
        for times, seconds, more in ((1, 0.06, ""), (9, 0.01, ", 1"), (3, 0.03, ", 1, 1")):
            for _ in range(times):
                await connection.execute(f"select pg_sleep({seconds}){more}".encode())
    answer = await read_slow_queries(targets, store, CLOCK, threshold_s=0.005, order_by=order_by, limit=2)
    values = [{"total": r.total_s, "mean": r.mean_s, "max": r.max_s, "calls": r.calls}[order_by] for r in answer.rows]
    assert len(values) == 2
    assert values == sorted(values, reverse=True)
    assert answer.truncated.rows == 1


# -- bad circumstances: each a code, a remedy, and no secret ---------------------------------------


async def failure_of(targets: Targets, store: MemorySnapshots, lab: Lab, **arguments: str) -> ToolFailed:
    with pytest.raises(ToolFailed) as caught:
        await read_slow_queries(targets, store, CLOCK, **arguments)  # type: ignore[arg-type]
    failure = caught.value
    check_no_secret(f"{failure!r} {failure.message} {failure.fix} {failure.__cause__!r}", lab)
    assert failure.fix
    return failure


async def test_a_missing_extension_names_the_line_to_run_and_what_runs_now(
    any_postgres: Lab, store: MemorySnapshots
) -> None:
    database = await any_postgres.create_database(extension=False)
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    async with any_postgres.connect(database, app) as connection, any_postgres.admin() as admin:
        running = asyncio.create_task(connection.execute("select pg_sleep(60) as what_runs_now"))
        await wait_until_active(admin, connection.info.backend_pid, for_s=1.0)
        failure = await failure_of(any_postgres.targets(database, reader), store, any_postgres)
        connection.cancel()
        with pytest.raises(psycopg.errors.QueryCanceled):
            await running
    assert failure.code == "extension_missing"
    assert f"CREATE EXTENSION pg_stat_statements; (in database {database}" in failure.fix
    assert "shared_preload_libraries" not in failure.fix  # it is loaded already
    assert "what_runs_now" in failure.message


async def test_a_library_that_is_not_loaded_names_the_setting_and_the_restart(
    bare_postgres: Lab, store: MemorySnapshots
) -> None:
    reader = await bare_postgres.create_reader()
    without = await bare_postgres.create_database(extension=False)
    failure = await failure_of(bare_postgres.targets(without, reader), store, bare_postgres)
    assert failure.code == "extension_missing"
    assert "shared_preload_libraries" in failure.fix
    assert "restart" in failure.fix
    assert "CREATE EXTENSION" in failure.fix
    database = await bare_postgres.create_database()
    failure = await failure_of(bare_postgres.targets(database, reader), store, bare_postgres)
    assert failure.code == "not_preloaded"
    assert "ALTER SYSTEM SET shared_preload_libraries" in failure.fix
    assert "restart" in failure.fix


async def test_a_role_that_sees_only_itself_gets_the_grant_instead_of_an_all_clear(
    postgres: Lab, store: MemorySnapshots
) -> None:
    database = await postgres.create_database()
    outsider, app = await postgres.create_role(), await postgres.create_role()
    async with postgres.connect(database, app) as connection:
        await sleep_on(connection, 0.05)
    failure = await failure_of(postgres.targets(database, outsider), store, postgres)
    assert failure.code == "insufficient_privilege"
    assert failure.fix.startswith(f"GRANT pg_monitor TO {outsider};")
    assert failure.retryable is False


async def test_a_role_that_sees_its_own_slow_statements_is_told_that_others_are_hidden(
    any_postgres: Lab, store: MemorySnapshots
) -> None:
    database = await any_postgres.create_database()
    app = await any_postgres.create_role()
    async with any_postgres.connect(database, app) as connection:
        await sleep_on(connection, 0.05)
    answer = await read_slow_queries(any_postgres.targets(database, app), store, CLOCK, threshold_s=0.04)
    assert find_row(answer, "pg_sleep").calls == 1
    assert answer.coverage.complete is False
    assert any("hidden" in r and f"GRANT pg_monitor TO {app};" in r for r in answer.coverage.reasons)


async def test_a_wrong_password_is_an_auth_failure_without_the_password(postgres: Lab, store: MemorySnapshots) -> None:
    reader = await postgres.create_reader()
    url = postgres.server.url("postgres", user=reader, password="wr0ng-pass")
    failure = await failure_of(Targets([Target.from_url("lab", url)]), store, postgres)
    assert failure.code == "auth_failed"
    assert failure.retryable is False
    assert "wr0ng-pass" not in f"{failure.message} {failure.fix}"
    missing = Targets([Target.from_url("lab", f"postgresql://nobody@/postgres?host={postgres.server.folder}")])
    assert (await failure_of(missing, store, postgres)).code == "auth_failed"


async def test_a_password_beside_the_url_wins_over_the_one_in_it(any_postgres: Lab, store: MemorySnapshots) -> None:
    database, reader = await any_postgres.create_database(), await any_postgres.create_reader()
    url = any_postgres.server.url(database, user=reader, password="wr0ng-pass")
    target = Target.from_url("lab", url, password=any_postgres.passwords[reader])
    assert "s3cret" not in repr(target)
    answer = await read_slow_queries(Targets([target]), store, CLOCK)
    assert answer.ok is True
    check_no_secret(to_json(answer).decode(), any_postgres)


async def test_a_database_that_does_not_exist_or_has_no_room_is_a_failed_connection(
    any_postgres: Lab, store: MemorySnapshots
) -> None:
    reader = await any_postgres.create_reader()
    failure = await failure_of(any_postgres.targets("no_such_database", reader), store, any_postgres)
    assert (failure.code, failure.retryable) == ("connect_failed", False)
    full = await any_postgres.create_role("connection limit 0")
    failure = await failure_of(any_postgres.targets("postgres", full), store, any_postgres)
    assert (failure.code, failure.retryable) == ("connect_failed", True)


async def test_a_server_that_is_down_is_a_failed_connection_without_its_address(
    any_postgres: Lab, store: MemorySnapshots
) -> None:
    for url in (
        "postgresql://bot:s3cret-down@127.0.0.1:1/shop",
        "postgresql://bot:s3cret-down@/shop?host=/tmp/hermod-nowhere",
    ):
        failure = await failure_of(Targets([Target.from_url("shop", url)]), store, any_postgres)
        assert failure.code == "connect_failed"
        assert "nothing answers" in failure.message
        for secret in ("s3cret-down", "127.0.0.1", "hermod-nowhere"):
            assert secret not in f"{failure.message} {failure.fix}"


async def test_a_server_that_refuses_tls_is_told_so(any_postgres: Lab, store: MemorySnapshots) -> None:
    reader = await any_postgres.create_reader()
    url = any_postgres.url("postgres", reader)
    target = Target.from_url("lab", url, sslmode="no-such-mode")
    failure = await failure_of(Targets([target]), store, any_postgres)
    assert failure.code == "connect_failed"
    assert "sslmode" in failure.fix


async def test_unknown_targets_and_other_engines_are_named(any_postgres: Lab, store: MemorySnapshots) -> None:
    two = Targets([Target.from_url("blue", "postgresql://a@b/c"), Target.from_url("green", "mysql://a@b/c")])
    failure = await failure_of(two, store, any_postgres, target="red")
    assert failure.code == "unknown_target"
    assert "blue, green" in failure.message
    assert (await failure_of(two, store, any_postgres)).code == "unknown_target"
    failure = await failure_of(two, store, any_postgres, target="green")
    assert failure.code == "unsupported"
    assert "MySQL" in failure.message
    assert (await failure_of(Targets(), store, any_postgres)).code == "unknown_target"
    failure = await failure_of(two, store, any_postgres, target="blue", time_range="yesteryear")
    assert failure.code == "bad_time_range"


async def test_a_store_that_cannot_be_used_costs_the_window_and_not_the_answer(any_postgres: Lab) -> None:
    class BrokenSnapshots(MemorySnapshots):
        async def save_snapshot(self, snapshot: Snapshot) -> None:
            raise StoreError("disk full")

    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    async with any_postgres.connect(database, app) as connection:
        await sleep_on(connection, 0.05)
    answer = await read_slow_queries(any_postgres.targets(database, reader), BrokenSnapshots(), CLOCK, threshold_s=0.04)
    assert find_row(answer, "pg_sleep").calls == 1
    assert answer.coverage.complete is False
    assert answer.warnings


async def test_a_call_that_is_cancelled_leaves_no_session_behind(any_postgres: Lab) -> None:
    """The store hangs in the middle of the call, while its transaction is open."""
    database, reader = await any_postgres.create_database(), await any_postgres.create_reader()
    reached = asyncio.Event()

    class HangingSnapshots(MemorySnapshots):
        async def save_snapshot(self, snapshot: Snapshot) -> None:
            reached.set()
            await asyncio.Event().wait()

    call = asyncio.create_task(read_slow_queries(any_postgres.targets(database, reader), HangingSnapshots(), CLOCK))
    await reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(60), any_postgres.admin() as admin:
        while True:
            cursor = await admin.execute("select count(*) from pg_stat_activity where usename = %s", (reader,))
            row = await cursor.fetchone()
            if row == (0,):
                break


async def test_windows_in_the_past_use_the_readings_next_to_them(any_postgres: Lab, store: MemorySnapshots) -> None:
    """Three readings an hour apart (their instants are set by hand) make two past hours."""
    database = await any_postgres.create_database()
    reader, app = await any_postgres.create_reader(), await any_postgres.create_role()
    targets = any_postgres.targets(database, reader)
    noon = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=5)
    async with any_postgres.connect(database, app) as connection:
        for hour, calls in enumerate((0, 2, 3)):
            for _ in range(calls):
                await sleep_on(connection, 0.02)
            await record_reading(targets["lab"], store, CLOCK)
            taken = store.snapshots.pop()
            at = noon + timedelta(hours=hour)
            store.snapshots.append(replace(taken, taken_at=at))
    counted = []
    for hour in (0, 1):
        asked = f"{(noon + timedelta(hours=hour)).isoformat()}/{(noon + timedelta(hours=hour + 1)).isoformat()}"
        answer = await read_slow_queries(targets, store, CLOCK, threshold_s=0.01, time_range=asked)
        counted.append((find_row(answer, "pg_sleep").calls, answer.coverage.snapshots, answer.coverage.complete))
    assert counted == [(2, 2, True), (3, 2, True)]
