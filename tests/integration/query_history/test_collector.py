"""The collector on real servers and a real store: one reader, few texts, and a word for each trouble."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bot.collector import STOP_S, Collector
from bot.http import render_metrics
from bot.storage.snapshots import Snapshot
from bot.storage.sqlite import SqliteStore
from bot.tools.targets import Target, Targets
from tests.integration.query_history.conftest import LeapClock
from tests.servers.postgres import Lab

WAIT_S = 60.0

# what only the reader's query for numbers has in it, and what only that for texts has
NUMBERS = "stddev_exec_time"
TEXTS = "left(s.query"


class HurryClock(LeapClock):
    """Pauses pass in a moment, and the clock shows that they did; remembers how long each was meant to be.

    Its stopwatch stands still: what a reading takes on a busy machine makes no pause shorter.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0.02)
        self.leap(seconds=seconds)


@asynccontextmanager
async def collecting(
    targets: Targets,
    store: SqliteStore,
    clock: LeapClock,
    *,
    owner: str = "elsewhere/1/2/a",
    enabled: bool = True,
    keep_s: float = 1e9,
) -> AsyncIterator[Collector]:
    collector = Collector(
        targets=targets,
        store=store,
        clock=clock,
        owner=owner,
        enabled=enabled,
        interval_s=60,
        keep_s=keep_s,
        jitter=lambda: 0.5,
    )
    collector.start()
    try:
        yield collector
    finally:
        await collector.stop()


def numbers(collector: Collector, name: str) -> dict[str, float]:
    return {m.labels["target"]: m.value for m in collector.metrics() if m.name == f"hermod_collector_{name}"}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - a counter tells nobody that it grew
            await asyncio.sleep(0.01)


async def until_read(collector: Collector, readings: int, target: str = "lab") -> None:
    await until(lambda: numbers(collector, "readings_total")[target] >= readings)


async def instants(store: SqliteStore, target: str) -> Sequence[datetime]:
    return await store.list_snapshots(
        target, start=datetime(2020, 1, 1, tzinfo=UTC), end=datetime(2100, 1, 1, tzinfo=UTC)
    )


async def count_calls(lab: Lab, database: str, part: str) -> int:
    async with lab.admin(database) as admin:
        cursor = await admin.execute(
            "select coalesce(sum(calls), 0)::int8 from pg_stat_statements s join pg_database d on d.oid = s.dbid "
            "where d.datname = current_database() and position(%s in query) > 0 and position('hermod' in query) > 0",
            (part,),
        )
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def test_readings_are_taken_at_the_interval_and_counted(postgres: Lab, store: SqliteStore) -> None:
    database = await postgres.create_database()
    targets = postgres.targets(database, await postgres.create_reader())
    clock = HurryClock()
    async with collecting(targets, store, clock) as collector:
        await until_read(collector, 3)
        text = render_metrics(collector.metrics())
    taken = await instants(store, "lab")
    assert len(taken) >= 3
    gaps = [(b - a).total_seconds() for a, b in pairwise(taken)]
    assert all(gap >= 59 for gap in gaps)
    assert clock.pauses[0] == 30  # the jitter's share of the interval
    assert 'hermod_collector_readings_total{target="lab"}' in text
    assert 'hermod_collector_failures_total{target="lab"} 0' in text
    assert 'hermod_collector_newest_reading_age_seconds{target="lab"}' in text


async def test_texts_are_read_once_and_only_their_redacted_form_is_kept(
    any_postgres: Lab, store: SqliteStore, tmp_path: Path
) -> None:
    database = await any_postgres.create_database()
    targets = any_postgres.targets(database, await any_postgres.create_reader())
    async with any_postgres.admin(database) as admin:
        await admin.execute("create role keeper password 'hush-hush-1234'")
        await admin.execute("drop role keeper")
        await admin.execute("create table fresh (id int)")
    async with collecting(targets, store, HurryClock()) as collector:
        await until_read(collector, 8)
        readings = numbers(collector, "readings_total")["lab"]
    assert await count_calls(any_postgres, database, NUMBERS) >= readings
    # the first reading, and those to which the reader's own statements were new
    assert await count_calls(any_postgres, database, TEXTS) <= 4
    known = await store.load_statements("lab")
    assert any("create table fresh" in one.sql.lower() for one in known)
    assert any(one.own for one in known)
    assert any("password" in one.sql.lower() for one in known)
    assert not any("hush-hush-1234" in one.sql for one in known)
    await store.close()
    assert not await asyncio.to_thread(_is_in_files, b"hush-hush-1234", tmp_path)


def _is_in_files(secret: bytes, folder: Path) -> bool:
    return any(secret in file.read_bytes() for file in folder.iterdir())


async def test_d09_two_databases_of_one_server_are_read_by_one_collector(any_postgres: Lab, store: SqliteStore) -> None:
    """https://github.com/pgEdge/ai-dba-workbench/pull/481: one view of the instance was read once for each database."""
    first, second = await any_postgres.create_database(), await any_postgres.create_database(extension=False)
    reader = await any_postgres.create_reader()
    other = await any_postgres.create_reader()
    targets = Targets(
        [
            # the extension is not in the first of them, which keeps nothing from being read through the other
            Target.from_url("a", any_postgres.url(second, reader)),
            Target.from_url("b", any_postgres.url(first, reader)),
            Target.from_url("c", any_postgres.url(first, other)),  # another role may see something else
        ]
    )
    async with collecting(targets, store, HurryClock()) as collector:
        await until_read(collector, 6, "a")
        await until_read(collector, 6, "c")
    one, two = list(await instants(store, "a")), list(await instants(store, "b"))
    assert one[: len(two)] == two  # the end may come before the last is stored for both
    assert len(one) - len(two) <= 1
    assert one != list(await instants(store, "c"))
    counted = numbers(collector, "readings_total")
    assert counted["a"] == counted["b"]
    # The end may come between a reading and its being counted, once for each of the two that read; a third reader
    # would make a third as many again.
    calls, stored = await count_calls(any_postgres, first, NUMBERS), counted["a"] + counted["c"]
    assert stored <= calls <= stored + 2


async def test_what_is_missing_is_said_once_and_its_end_too(any_postgres: Lab, store: SqliteStore) -> None:
    database = await any_postgres.create_database(extension=False)
    targets = any_postgres.targets(database, await any_postgres.create_reader())
    clock = HurryClock()
    with capture_logs() as logs:
        async with collecting(targets, store, clock) as collector:
            await until(lambda: numbers(collector, "failures_total")["lab"] >= 4)
            async with any_postgres.admin(database) as admin:
                await admin.execute("create extension pg_stat_statements")
            await until_read(collector, 2)
    (failed,) = [entry for entry in logs if entry["event"] == "collector_failed"]
    assert (failed["code"], failed["target"], failed["log_level"]) == ("extension_missing", "lab", "warning")
    assert "CREATE EXTENSION pg_stat_statements" in failed["what_to_do"]
    (recovered,) = [entry for entry in logs if entry["event"] == "collector_recovered"]
    assert recovered["after"] == "extension_missing"
    pauses = [round(pause) for pause in clock.pauses if 31 < pause < 3600]  # the others are the sweep's
    assert pauses[:4] == [120, 240, 480, 960]
    assert pauses[-1] == 60


async def test_attempts_on_a_server_that_stays_down_do_not_end_and_do_not_hurry(store: SqliteStore) -> None:
    targets = Targets([Target.from_url("gone", "postgresql://u:p@127.0.0.1:1/db")])
    clock = HurryClock()
    with capture_logs() as logs:
        async with collecting(targets, store, clock) as collector:
            await until(lambda: numbers(collector, "failures_total")["gone"] >= 9)
    assert max(clock.pauses) <= 3600
    assert [round(p) for p in clock.pauses if 60 < p < 3600][-1] == 1800
    assert [entry["code"] for entry in logs if entry["event"] == "collector_failed"] == ["connect_failed"]
    assert numbers(collector, "newest_reading_age_seconds") == {}


async def test_a_server_that_says_nothing_holds_up_neither_others_nor_the_end(
    any_postgres: Lab, store: SqliteStore
) -> None:
    connected = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            connected.set()
            await reader.read()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    database = await any_postgres.create_database()
    lab = any_postgres.targets(database, await any_postgres.create_reader())["lab"]
    targets = Targets([lab, Target.from_url("mute", f"postgresql://u:p@127.0.0.1:{port}/db?sslmode=disable")])
    collector = Collector(targets=targets, store=store, clock=HurryClock(), owner="elsewhere/1/2/a", jitter=lambda: 0.0)
    collector.start()
    await asyncio.wait_for(connected.wait(), WAIT_S)
    await until_read(collector, 2)
    began = time.perf_counter()
    await collector.stop()
    assert time.perf_counter() - began < 5 * STOP_S
    server.close()
    left = [task.get_name() for task in asyncio.all_tasks() if "collector" in task.get_name()]
    assert left == []


async def test_of_two_processes_one_collects_until_its_lease_is_over(any_postgres: Lab, store: SqliteStore) -> None:
    database = await any_postgres.create_database()
    targets = any_postgres.targets(database, await any_postgres.create_reader())
    clock = HurryClock()
    # a process of another machine, of which nobody can tell whether it lives
    assert await store.hold_lease("collector/lab", "far/7/7/x", lease_s=600, now=clock.now()) == "far/7/7/x"
    began = clock.now()
    async with collecting(targets, store, clock) as collector:
        await until_read(collector, 1)
        assert clock.now() - began >= timedelta(seconds=590)
        async with collecting(targets, store, HurryClock(), owner="elsewhere/1/2/b") as second:
            await until_read(collector, 4)
            # the second one's hours fly, too; it takes over only when it believes the lease to be over
            assert numbers(second, "failures_total") == {"lab": 0}
    # given back: whoever asks next has it at once
    assert await store.hold_lease("collector/lab", "anybody", lease_s=1, now=clock.now()) == "anybody"


async def test_a_killed_process_is_followed_by_the_other_at_once(
    any_postgres: Lab, store: SqliteStore, tmp_path: Path
) -> None:
    database = await any_postgres.create_database()
    url = any_postgres.url(database, await any_postgres.create_reader())
    command = [sys.executable, "-m", "tests.integration.query_history.collecting", str(tmp_path / "hermod.db"), url]
    processes = []
    try:
        for _ in range(2):
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            processes.append(process)
            assert await _say(process) == "started"
            if len(processes) == 1:
                assert await _say(process) == "reading"
        first, second = processes
        for _ in range(5):  # while the first lives, the second has nothing to tell
            assert await _say(first) == "reading"
        telling = asyncio.create_task(_say(second))
        assert not telling.done()
        before = len(await instants(store, "lab"))
        os.kill(first.pid, signal.SIGKILL)
        # the lease would last for more than five seconds; a dead owner's is taken at the next interval
        assert await telling == "reading"
        assert len(await instants(store, "lab")) > before
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _say(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    while True:
        line = (await asyncio.wait_for(process.stdout.readline(), WAIT_S)).decode().strip()
        if line in ("started", "reading", ""):  # the rest is its log
            return line


async def test_old_readings_go_also_where_nothing_is_collected(any_postgres: Lab, store: SqliteStore) -> None:
    database = await any_postgres.create_database()
    reader = await any_postgres.create_reader()
    targets = Targets([Target.from_url("lab", any_postgres.url(database, reader)), Target.from_url("f", "sqlite:///x")])
    clock = HurryClock()
    now = clock.now()
    for days in (40, 33, 20):
        at = now - timedelta(days=days)
        await store.save_snapshot(Snapshot(target="of before", taken_at=at, head="", rows={"k": f"{days}"}))
    async with collecting(targets, store, clock, enabled=False, keep_s=32 * 86_400.0) as collector:
        async with asyncio.timeout(WAIT_S):
            while len(await instants(store, "of before")) > 1:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
    assert await instants(store, "of before") == (now - timedelta(days=20),)
    assert list(collector.metrics()) == []
    assert await instants(store, "lab") == ()


async def test_a_store_that_fails_is_told_and_readings_go_on_when_it_works_again(
    any_postgres: Lab, tmp_path: Path
) -> None:
    database = await any_postgres.create_database()
    targets = any_postgres.targets(database, await any_postgres.create_reader())
    store = SqliteStore(tmp_path / "closed.db")  # not open yet
    with capture_logs() as logs:
        async with collecting(targets, store, HurryClock()) as collector:
            await until(lambda: numbers(collector, "failures_total")["lab"] >= 3)
            await store.open()
            await until_read(collector, 1)
    await store.close()
    assert [entry["code"] for entry in logs if entry["event"] == "collector_failed"] == ["storage"]


@pytest.mark.parametrize("scheme", ["sqlite:///x.db", "slowlog:///x.log?format=auto"])
async def test_targets_without_counters_are_passed_over(store: SqliteStore, scheme: str) -> None:
    async with collecting(Targets([Target.from_url("file", scheme)]), store, HurryClock()) as collector:
        assert list(collector.metrics()) == []
