"""A primary with a real standby: delay on both, counters of each for itself."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
import pytest

from bot.demo.binaries import find_account
from bot.tools.database_health import read_db_health, read_index_health, read_table_health
from bot.tools.database_health.answer import Check
from bot.tools.database_health.checks import HEALTH_BOUNDS, Bounds, CheckName, HealthBounds
from bot.tools.targets import Target
from tests.integration.database_health.conftest import CLOCK, target_of, until
from tests.servers.postgres import FIRST, SYSTEM, Lab, start_lab, stop_lab

_PORT = 5433


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A primary, and the standby that streams from it."""

    primary: Lab
    database: str
    reader: str

    def standby_url(self, role: str) -> str:
        """The standby's address."""
        secret = quote(self.primary.passwords[role], safe="")
        where = urlencode({"host": str(self.primary.server.folder), "port": _PORT})
        return f"postgresql://{role}:{secret}@/{self.database}?{where}"

    @property
    def on_primary(self) -> Target:
        return target_of(self.primary, self.database, self.reader)

    @property
    def on_standby(self) -> Target:
        return Target.from_url("standby", self.standby_url(self.reader))


def _spawn(lab: Lab, command: Sequence[str]) -> subprocess.Popen[bytes]:
    account = find_account()
    folder = lab.server.folder
    with (Path(folder) / "standby.log").open("ab") as log:
        return subprocess.Popen(
            [str(lab.server.binaries.folder / command[0]), *command[1:]],
            cwd=folder,
            env={"PATH": os.defpath, "LC_ALL": "C", "PGPASSWORD": lab.server.password},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
        )


async def _prepare(lab: Lab) -> tuple[str, str]:
    database = await lab.create_database()
    async with lab.admin(database) as admin:
        await admin.execute("create table t (a int, b int); create index one on t (a); create index two on t (a)")
        await admin.execute("create index idle on t (b)")
    return database, await lab.create_reader()


async def _until_streaming(pair: Pair) -> None:
    async def streams() -> bool:
        try:
            connection = await psycopg.AsyncConnection.connect(pair.standby_url(pair.reader))
        except psycopg.OperationalError:
            return False
        async with connection:
            row = await (await connection.execute("select status from pg_stat_wal_receiver")).fetchone()
            return row == ("streaming",)

    async def is_streamed_to() -> bool:  # the primary says so only once the standby has caught up
        async with pair.primary.admin() as admin:
            row = await (await admin.execute("select state from pg_stat_replication")).fetchone()
            return row == ("streaming",)

    await until(streams, within_s=60)
    await until(is_streamed_to, within_s=60)


@pytest.fixture(scope="module", params=[FIRST, SYSTEM])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both servers; they end with the fixture."""
    lab = start_lab(request.param, settings={"wal_level": "replica", "max_wal_senders": "4"})
    standby: subprocess.Popen[bytes] | None = None
    try:
        database, reader = asyncio.run(_prepare(lab))
        folder, data = str(lab.server.folder), str(lab.server.folder / "standby")
        copy = ["pg_basebackup", "-h", folder, "-p", str(lab.server.port), "-U", "postgres", "-D", data, "-R"]
        assert _spawn(lab, [*copy, "-X", "stream", "-c", "fast", "--no-sync"]).wait(60) == 0
        standby = _spawn(
            lab, ["postgres", "-D", data, "-c", f"port={_PORT}", "-c", f"unix_socket_directories={folder}"]
        )
        made = Pair(primary=lab, database=database, reader=reader)
        asyncio.run(_until_streaming(made))
        yield made
    finally:
        if standby is not None:
            standby.send_signal(signal.SIGQUIT)
            standby.wait(30)
        stop_lab(lab)


async def look(target: Target, name: CheckName, bounds: HealthBounds = HEALTH_BOUNDS) -> Check:
    """Run one check."""
    (row,) = (await read_db_health(target, CLOCK, checks=[name], bounds=bounds)).rows
    return row


async def test_a_standby_that_keeps_up_is_well_on_both_sides(pair: Pair) -> None:
    here, there = await look(pair.on_primary, "replication"), await look(pair.on_standby, "replication")
    assert (here.status, there.status) == ("ok", "ok")
    assert here.items[0].startswith("standby walreceiver (pid ")
    assert "streaming, async" in here.items[0]
    assert "does not stream" not in there.evidence


async def test_every_check_answers_on_a_standby(pair: Pair) -> None:
    answer = await read_db_health(pair.on_standby, CLOCK)
    assert {row.status for row in answer.rows} == {"ok"}
    assert len(answer.rows) == 11


async def test_a_standby_that_stands_still_is_found_on_both_sides(pair: Pair) -> None:
    async with (
        pair.primary.admin(pair.database) as admin,
        await psycopg.AsyncConnection.connect(pair.standby_url("postgres"), autocommit=True) as standby,
    ):
        await standby.execute("select pg_wal_replay_pause()")
        bounds = HealthBounds(lag_bytes=Bounds(warn=1024 * 1024))
        await admin.execute("create table filler as select repeat('x', 500) as t from generate_series(1, 20000)")

        async def late() -> bool:
            here = await look(pair.on_primary, "replication", bounds)
            there = await look(pair.on_standby, "replication", bounds)
            return here.status == there.status == "warn" and "MiB received and not replayed" in there.evidence

        await until(late)
        here, there = await look(pair.on_primary, "replication", bounds), await look(pair.on_standby, "replication")
        assert here.value is not None
        assert here.value > 1024 * 1024
        assert "MiB" in here.items[0]
        assert there.status == "warn"
        assert "replay is paused" in there.evidence
        assert "pg_wal_replay_resume()" in there.advice
        await standby.execute("select pg_wal_replay_resume()")

        async def well() -> bool:
            return (await look(pair.on_primary, "replication", bounds)).status == "ok"

        await until(well)


async def test_a_role_without_pg_monitor_gets_the_grant_on_the_primary(pair: Pair) -> None:
    plain = await pair.primary.create_role()
    row = await look(target_of(pair.primary, pair.database, plain), "replication")
    assert row.status == "unknown"
    assert row.grant == f"GRANT pg_monitor TO {plain};"
    assert "1 standby streaming from here" in row.evidence


async def test_indexes_are_judged_with_the_other_servers_in_mind(pair: Pair) -> None:
    here = await read_index_health(pair.on_primary, CLOCK, min_size_mb=0, enough_s=0)
    unused = next(row for row in here.rows if row.index == "public.idle")
    assert unused.suggestion == "DROP INDEX CONCURRENTLY public.idle;"
    assert any(note.startswith("1 standby streaming from here") for note in unused.notes)
    there = await read_index_health(pair.on_standby, CLOCK, min_size_mb=0, enough_s=0)
    assert {row.kind for row in there.rows} == {"duplicate", "unused"}
    assert not any(row.suggestion for row in there.rows)
    assert all("a standby is read-only: such a line runs on the primary" in row.notes for row in there.rows)


async def test_tables_of_a_standby_are_listed_with_a_word_on_its_counters(pair: Pair) -> None:
    answer = await read_table_health(pair.on_standby, CLOCK)
    assert "public.t" in {row.table for row in answer.rows}
    assert any("a standby: scans are its own" in warning for warning in answer.warnings)
