"""The same on a live MariaDB. MySQL 8 keeps its digests in the same table; that is from its manual, never run here
(https://dev.mysql.com/doc/refman/8.4/en/performance-schema-statement-summary-tables.html)."""

from __future__ import annotations

import asyncio
import time

from bot.collector import Collector
from bot.storage.sqlite import SqliteStore
from bot.tools.query_history.compare import compare_two_windows
from bot.tools.query_history.mysql_reading import record_mysql
from bot.tools.query_history.trend import read_trend
from bot.tools.slow_queries.history import iso_utc
from tests.integration.query_history.conftest import LeapClock
from tests.servers.mariadb import MariaLab, mariadb

__all__ = ["mariadb"]


async def test_trends_and_comparisons_of_a_mariadb(mariadb: MariaLab, store: SqliteStore, clock: LeapClock) -> None:
    database = await mariadb.create_database()
    reader, app = await mariadb.create_reader(database), await mariadb.create_role(f"select on {database}.*")
    targets = mariadb.targets(database, reader)
    hours: list[str] = []
    taken_s = 0.0
    async with mariadb.connect(database, app) as session:
        for durations in ([0.005] * 40, [0.04] * 35):
            await record_mysql(targets["lab"], store, clock)
            began, begun_s = clock.now(), time.monotonic()
            for n, seconds in enumerate(durations):
                await session.execute(f"select sleep({seconds}), 'hush-hush'")
                await session.execute(f"select {n} + 1")
            taken_s += time.monotonic() - begun_s
            clock.leap(hours=1)
            hours.append(f"{iso_utc(began)}/{iso_utc(clock.now())}")
    await record_mysql(targets["lab"], store, clock)
    answer = await compare_two_windows(targets, store, clock, a=hours[0], b=hours[1])
    first = answer.rows[0]
    assert (answer.engine, first.rank, first.change) == ("mariadb", 1, "regressed")
    assert (first.calls_a, first.calls_b) == (40, 35)
    assert "sleep" in first.sql.lower()
    assert "hush-hush" not in first.sql
    assert first.stddev_a_s is None
    assert any("counts no variance" in warning for warning in answer.warnings)
    trend = await read_trend(targets, store, clock, fingerprint=first.fingerprint, time_range="last_4h", bucket="1h")
    assert [row.calls for row in trend.rows if row.coverage > 0.5] == [40, 35]
    assert trend.total is not None
    assert trend.total.stddev_s is None
    assert trend.total.mean_s + 0.001 >= (40 * 0.005 + 35 * 0.04) / 75
    assert trend.total.mean_s <= taken_s / 75 + 0.001  # on a busy machine a sleep lasts longer, and the stopwatch knows


async def test_the_collector_reads_a_mariadb_too(mariadb: MariaLab, store: SqliteStore, clock: LeapClock) -> None:
    database = await mariadb.create_database()
    targets = mariadb.targets(database, await mariadb.create_reader(database))
    collector = Collector(
        targets=targets, store=store, clock=clock, owner="elsewhere/1/2/a", interval_s=0.2, jitter=lambda: 0.0
    )
    collector.start()
    try:
        async with asyncio.timeout(60):
            while next(collector.metrics()).value < 2:  # noqa: ASYNC110 - a counter tells nobody that it grew
                await asyncio.sleep(0.02)
    finally:
        await collector.stop()
    assert await store.find_snapshot("lab", at=clock.now(), side="before") is not None
