"""``get_slow_queries`` on a real MariaDB: counts, means and deviations against a client's stopwatch."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncmy.errors
import pytest
from pydantic_core import to_json

from agent_core.errors import ToolFailed
from bot.storage.base import StoreError
from bot.storage.sqlite import SqliteStore
from bot.tools.mysql.answer import MySqlSlowQuery
from bot.tools.mysql.slow_queries import read_mysql_slow_queries, record_mysql_reading
from bot.tools.slow_logs.mysql_text import fingerprint_mysql
from bot.tools.slow_queries.answer import SlowQueries, SlowQuery
from bot.tools.targets import Target
from tests.integration.mysql.conftest import CLOCK, check_no_secret, count_running, wait_until
from tests.servers.mariadb import MariaLab, Session, start_mariadb, stop_mariadb
from tests.stopwatch import hold_at_best


async def ask(target: Target, store: SqliteStore, **options: object) -> SlowQueries:
    """The last hour, from 10 ms on."""
    merged = {"time_range": "last_1h", "threshold_s": 0.01, **options}
    return await read_mysql_slow_queries(target, store, CLOCK, **merged)  # type: ignore[arg-type]


def row_of(answer: SlowQueries, name: str) -> SlowQuery:
    """The row of the shape with this name in it."""
    (row,) = [row for row in answer.rows if f"`{name}`" in row.sql]
    return row


@asynccontextmanager
async def open_own(path: Path) -> AsyncIterator[SqliteStore]:
    """A store of one attempt."""
    store = SqliteStore(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def sleep_all(session: Session, name: str, seconds: Sequence[float]) -> list[float]:
    """Run statements of one shape; returns how long each took by the server's clock.

    The client's stopwatch runs beside it: it also measures what a busy client needs to read the answer, so it is
    only checked to be the longer of the two.
    """
    taken: list[float] = []
    for length in seconds:
        began = time.perf_counter()
        ((_, micros),) = await session.execute(shape(name, length))
        client_s = time.perf_counter() - began
        assert isinstance(micros, int)
        assert length <= micros / 1e6 <= client_s
        taken.append(micros / 1e6)
    return taken


def shape(name: str, seconds: float = 1.0) -> str:
    """A statement that sleeps and then says since when it runs; its shape is its own by the name."""
    return f"select sleep({seconds}) as {name}, timestampdiff(microsecond, now(6), sysdate(6)) as {name}_us"


async def test_a_window_has_the_counts_means_and_deviations_that_the_client_measured(
    mariadb: MariaLab, tmp_path: Path
) -> None:
    async def check(attempt: int) -> None:
        async with open_own(tmp_path / f"{attempt}.db") as store:
            await check_window(mariadb, store)

    await hold_at_best(check)


async def check_window(mariadb: MariaLab, store: SqliteStore) -> None:
    database = await mariadb.create_database()
    target = mariadb.target(database, await mariadb.create_reader(database))
    async with mariadb.connect(database, "root") as app:
        await app.execute("create table item(id int primary key, name varchar(50))")
        await app.execute("insert into item select seq, concat('name', seq) from seq_1_to_5000")
        await sleep_all(app, "truth", [0.6, 0.6])
        await record_mysql_reading(target, store, CLOCK)
        sleeps = await sleep_all(app, "truth", [0.05 if n % 2 else 0.15 for n in range(20)])
        for number in range(7):
            await app.execute(f"select count(*) as scans from item where name = 'name{number}'")
    answer = await ask(target, store, threshold_s=0.0)

    row = row_of(answer, "truth")
    assert isinstance(row, MySqlSlowQuery)
    assert (row.duration_kind, row.calls, row.db) == ("mean", 20, database)
    assert row.mean_s == pytest.approx(statistics.mean(sleeps), rel=0.02)
    assert row.stddev_s == pytest.approx(statistics.pstdev(sleeps), rel=0.05)
    assert row.max_s == pytest.approx(max(sleeps), rel=0.05)
    assert row.max_exact
    assert row.rows == 20
    scan = row_of(answer, "scans")
    assert isinstance(scan, MySqlSlowQuery)
    assert (scan.calls, scan.rows_examined_per_call, scan.no_index_share) == (7, 5000, 1.0)
    # Two calls of 0.6 s before the window: its mean has nothing of them, while the lifetime's mean has.
    lifetime = [0.6] * 2 + sleeps
    assert statistics.mean(lifetime) > 1.4 * row.mean_s
    assert answer.engine == "mariadb"
    assert answer.coverage.snapshots == 1
    assert not any("reset" in reason for reason in answer.coverage.reasons)


async def test_the_first_question_says_that_it_knows_the_lifetime_only(mariadb: MariaLab, store: SqliteStore) -> None:
    database = await mariadb.create_database()
    target = mariadb.target(database, await mariadb.create_reader(database))
    async with mariadb.connect(database, "root") as app:
        await app.execute("select sleep(0.05) as first from dual where 'a private thing' <> ''")
    answer = await ask(target, store)
    assert not answer.coverage.complete
    assert "no earlier reading" in answer.coverage.reasons[0]
    assert answer.rows[0].calls == 1
    text = to_json(answer).decode()
    assert "private" not in text
    check_no_secret(text, mariadb)


async def test_single_executions_over_the_threshold_are_rows_of_their_own(mariadb: MariaLab, tmp_path: Path) -> None:
    """The mean is far below; the server's ring of executions tells the two that were not."""

    async def check(attempt: int) -> None:
        async with open_own(tmp_path / f"{attempt}.db") as store:
            await check_singles(mariadb, store)

    await hold_at_best(check)


async def check_singles(mariadb: MariaLab, store: SqliteStore) -> None:
    database = await mariadb.create_database()
    target = mariadb.target(database, await mariadb.create_reader(database))
    await record_mysql_reading(target, store, CLOCK)
    async with mariadb.connect(database, "root") as app:
        taken = await sleep_all(app, "lone", [0.2, 0.2] + [0.001] * 30)
    answer = await ask(target, store, threshold_s=0.15)
    row = row_of(answer, "lone")
    assert (row.duration_kind, row.calls, row.state) == ("single", 2, "finished")
    assert row.duration == pytest.approx(max(taken), rel=0.05)
    assert row.total_s == pytest.approx(sum(taken[:2]), rel=0.05)
    assert answer.may_have_exceeded == ()


async def test_what_runs_now_is_listed_with_its_age_and_without_its_literals(
    mariadb: MariaLab, store: SqliteStore
) -> None:
    database = await mariadb.create_database()
    role = await mariadb.create_reader(database)
    async with mariadb.admin() as admin, mariadb.connect(database, "root") as app:
        began = time.perf_counter()
        task = asyncio.create_task(app.execute("select sleep(20), 'a token in flight'"))
        await wait_until(lambda: _runs(admin, "a token in flight"))
        seen = time.perf_counter()
        await wait_until(lambda: _older(seen, 0.3))
        answer = await ask(mariadb.target(database, role), store, threshold_s=0.2)
        age_s = time.perf_counter() - began
        (row,) = [row for row in answer.rows if row.state == "running"]
        assert (row.sql, row.db, row.user, row.duration_kind) == ("select sleep(?), ?", database, "root", "single")
        assert 0.2 <= row.duration <= age_s
        assert row.pid is not None
        await admin.execute(f"kill query {int(row.pid)}")
        with pytest.raises(asyncmy.errors.OperationalError):
            await task


async def _runs(admin: Session, marker: str) -> bool:
    return await count_running(admin, marker) == 1


async def _older(began: float, seconds: float) -> bool:
    return time.perf_counter() - began >= seconds


async def _pass_a_second() -> None:
    """FIRST_SEEN, by which the beginning of the counters is known, has whole seconds."""
    began = time.perf_counter()
    await wait_until(lambda: _older(began, 1.1))


async def test_other_databases_and_our_own_statements_are_left_out_and_said_to_be(
    mariadb: MariaLab, store: SqliteStore
) -> None:
    mine, other = await mariadb.create_database(), await mariadb.create_database()
    target = mariadb.target(mine, await mariadb.create_reader(mine))
    await record_mysql_reading(target, store, CLOCK)
    async with mariadb.connect(other, "root") as app:
        await app.execute(shape("elsewhere", 0.8))
    answer = await ask(target, store, threshold_s=0.0)
    assert [row.db for row in answer.rows] == []
    assert any("other databases" in warning for warning in answer.warnings)
    everything = await ask(target, store, threshold_s=0.0, include_system=True, limit=100)
    assert len(everything.rows) + everything.truncated.rows > 10  # our own way in alone has more shapes
    slowest = await ask(target, store, threshold_s=0.7, include_system=True)
    assert row_of(slowest, "elsewhere").db == other


async def test_d36_statements_beyond_the_table_of_digests_are_one_row_called_overflow(store: SqliteStore) -> None:
    """https://github.com/percona/percona-agent/pull/165: a NULL digest ended the program."""
    lab = await asyncio.to_thread(start_mariadb, {"performance-schema-digests-size": "40"})
    try:
        database = await lab.create_database()
        target = lab.target(database, await lab.create_reader(database))
        async with lab.connect(database, "root") as app:
            for n in range(60):
                await app.execute(f"select 1 as a{n}")
            await record_mysql_reading(target, store, CLOCK)
            await sleep_all(app, "late", [0.05] * 3)
        answer = await ask(target, store)
        (row,) = [row for row in answer.rows if row.fingerprint == "overflow"]
        assert (row.calls >= 3, "no room" in row.sql) == (True, True)
        assert row.total_s >= 0.15
        (warning,) = [warning for warning in answer.warnings if "digests is full" in warning]
        assert "performance_schema_digests_size" in warning
        assert "(40 shapes)" in warning
    finally:
        await asyncio.to_thread(stop_mariadb, lab)


async def test_a_restart_between_two_readings_gives_no_negative_number_and_is_said(store: SqliteStore) -> None:
    lab = await asyncio.to_thread(start_mariadb)
    try:
        database = await lab.create_database()
        target = lab.target(database, await lab.create_reader(database))
        async with lab.connect(database, "root") as app:
            await sleep_all(app, "again", [0.03] * 9)
        await record_mysql_reading(target, store, CLOCK)
        await _pass_a_second()
        await asyncio.to_thread(lab.server.restart)
        async with lab.connect(database, "root") as app:
            began = time.perf_counter()
            taken = await sleep_all(app, "again", [0.06] * 4)
            whole_s = time.perf_counter() - began
        answer = await ask(target, store)
        row = row_of(answer, "again")
        assert row.calls == 4
        # a busy server may be held up after its own clock was read
        assert 0.98 * statistics.mean(taken) <= row.mean_s <= whole_s / 4
        assert any("restarted" in warning for warning in answer.warnings)
        assert not answer.coverage.complete
        assert any("the counters were reset then" in reason for reason in answer.coverage.reasons)
    finally:
        await asyncio.to_thread(stop_mariadb, lab)


async def test_a_table_of_digests_that_somebody_emptied_is_counted_from_there(
    mariadb: MariaLab, store: SqliteStore
) -> None:
    database = await mariadb.create_database()
    target = mariadb.target(database, await mariadb.create_reader(database))
    async with mariadb.connect(database, "root") as app:
        await sleep_all(app, "emptied", [0.02] * 5)
        await record_mysql_reading(target, store, CLOCK)
        await _pass_a_second()
        await app.execute("truncate table performance_schema.events_statements_summary_by_digest")
        await sleep_all(app, "emptied", [0.02] * 2)
    answer = await ask(target, store)
    assert row_of(answer, "emptied").calls == 2
    assert any("the counters were reset then" in reason for reason in answer.coverage.reasons)


async def test_without_the_right_to_the_statistics_the_grant_is_said(mariadb: MariaLab, store: SqliteStore) -> None:
    database = await mariadb.create_database()
    role = await mariadb.create_role(f"select on {database}.*")
    with pytest.raises(ToolFailed) as caught:
        await ask(mariadb.target(database, role), store)
    assert caught.value.code == "insufficient_privilege"
    assert f"GRANT SELECT ON performance_schema.* TO {role}" in caught.value.fix


async def test_a_server_without_performance_schema_is_told_what_to_switch_on(store: SqliteStore) -> None:
    lab = await asyncio.to_thread(start_mariadb, {"performance-schema": "OFF"})
    try:
        role = await lab.create_reader()
        with pytest.raises(ToolFailed) as caught:
            await ask(lab.target("", role), store)
        assert caught.value.code == "not_preloaded"
        assert "performance_schema = ON" in caught.value.fix
    finally:
        await asyncio.to_thread(stop_mariadb, lab)


async def test_without_digests_or_single_executions_the_consumers_are_named(
    mariadb: MariaLab, store: SqliteStore
) -> None:
    database = await mariadb.create_database()
    target = mariadb.target(database, await mariadb.create_reader(database))
    switch = "update performance_schema.setup_consumers set enabled = %s where name = %s"
    async with mariadb.admin() as admin:
        try:
            await admin.execute(switch, ["NO", "events_statements_history_long"])
            answer = await ask(target, store)
            assert any("events_statements_history_long" in warning for warning in answer.warnings)
            await admin.execute(switch, ["NO", "statements_digest"])
            with pytest.raises(ToolFailed) as caught:
                await ask(target, store)
            assert (caught.value.code, "'statements_digest'" in caught.value.fix) == ("not_preloaded", True)
        finally:
            for name in ("statements_digest", "events_statements_history_long"):
                await admin.execute(switch, ["YES", name])


async def test_prepared_statements_that_mariadb_keeps_no_digest_of_are_counted_in_a_warning(
    mariadb: MariaLab, store: SqliteStore
) -> None:
    database = await mariadb.create_database()
    target = mariadb.target(database, await mariadb.create_reader(database))
    async with mariadb.connect(database, "root") as app:
        statement = await app.connection.prepare("select sleep(?)")  # type: ignore[no-untyped-call]
        await statement.execute((0.02,))
    answer = await ask(target, store)
    assert any("prepared statements" in warning for warning in answer.warnings)


async def test_a_store_that_fails_leaves_the_lifetime_view(mariadb: MariaLab) -> None:
    class Broken:
        async def save_snapshot(self, snapshot: object) -> None:
            raise StoreError("full")

        async def find_snapshot(self, target: str, **_: object) -> None:
            raise StoreError("full")

    database = await mariadb.create_database()
    target = mariadb.target(database, await mariadb.create_reader(database))
    async with mariadb.connect(database, "root") as app:
        await app.execute(shape("unstored", 0.02))
    answer = await read_mysql_slow_queries(target, Broken(), CLOCK, time_range="last_1h", threshold_s=0.01)
    assert row_of(answer, "unstored").calls == 1
    assert any("storage" in warning for warning in answer.warnings)


async def test_a_live_row_has_the_fingerprint_of_the_same_statement_in_a_slow_log(
    mariadb: MariaLab, store: SqliteStore
) -> None:
    database = await mariadb.create_database()
    target = mariadb.target(database, await mariadb.create_reader(database))
    statement = "SELECT  id, name FROM goods\n WHERE name = 'n1' and id > 3 order by name desc limit 5"
    async with mariadb.connect(database, "root") as app:
        await app.execute("create table goods(id int primary key, name varchar(50))")
        await app.execute(statement)
    answer = await ask(target, store, threshold_s=0.0)
    assert fingerprint_mysql(statement) in {row.fingerprint for row in answer.rows}
