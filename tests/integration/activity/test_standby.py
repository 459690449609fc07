"""The tools on a real streaming standby: a copy of the primary's data folder, taken as a base backup is."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from bot.demo.binaries import Binaries, find_account
from bot.demo.postgres import EmbeddedPostgres, find_binaries
from bot.tools.activity.answer import Check
from bot.tools.activity.blocking import read_blocking_tree
from bot.tools.activity.knots import NOBODY_WAITS
from bot.tools.activity.preflight import read_preflight
from bot.tools.activity.running import read_running_queries
from bot.tools.targets import Target, Targets
from tests.integration.activity.conftest import CLOCK, PATIENCE_S, chain_of
from tests.servers.postgres import FIRST, SYSTEM

pytestmark = pytest.mark.timeout(180)

_SETTINGS = {"wal_level": "replica", "max_wal_senders": "4", "max_standby_streaming_delay": "-1", "autovacuum": "off"}


class Standby(EmbeddedPostgres):
    """A server that begins with a copy of another one's data and follows it.

    Args:
        primary: runs, with ``wal_level = replica``.
        binaries: the primary's.
    """

    def __init__(self, primary: EmbeddedPostgres, binaries: Binaries) -> None:
        super().__init__(binaries=binaries, preload=("pg_stat_statements",), settings=_SETTINGS)
        self._primary = primary
        self.password = primary.password

    async def _init_cluster(self, binaries: Binaries) -> None:
        """Copy instead of making an empty cluster (https://www.postgresql.org/docs/current/continuous-archiving.html)."""
        data = self.folder / "data"
        async with await psycopg.AsyncConnection.connect(self._primary.url(), autocommit=True) as connection:
            await connection.execute("select pg_backup_start('standby', true)")
            await asyncio.to_thread(
                shutil.copytree,
                self._primary.folder / "data",
                data,
                ignore=shutil.ignore_patterns("postmaster.*", "pg_stat_tmp"),
            )
            label = await (await connection.execute("select labelfile from pg_backup_stop(false)")).fetchone()
        assert label is not None
        (data / "backup_label").write_text(label[0])
        (data / "standby.signal").touch()
        place = f"host={self._primary.folder} port={self._primary.port} user=postgres password={self._primary.password}"
        with (data / "postgresql.conf").open("a") as conf:
            conf.writelines(
                f"{name} = '{value}'\n"
                for name, value in {**self._all_settings(binaries), "primary_conninfo": place}.items()
            )
        account = find_account()
        if account is not None:
            for path in (data, *data.rglob("*")):
                os.chown(path, account.uid, account.gid, follow_symlinks=False)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A primary and its standby, with a table ``acct`` and the role ``reader`` on both."""

    primary: EmbeddedPostgres
    standby: EmbeddedPostgres

    def targets(self, role: str = "reader") -> Targets:
        """The standby as a target."""
        return Targets([Target.from_url("lab", self.standby.url("postgres", user=role, password="s3cret-pass"))])

    async def until(self, server: EmbeddedPostgres, query: str) -> None:
        """Ask a server until it says true."""
        async with asyncio.timeout(PATIENCE_S), await connect(server) as connection:
            while True:
                row = await (await connection.execute(query.encode())).fetchone()
                if row is not None and row[0]:
                    return
                await asyncio.sleep(0.05)


async def connect(server: EmbeddedPostgres) -> psycopg.AsyncConnection[tuple[object, ...]]:
    return await psycopg.AsyncConnection.connect(server.url(), autocommit=True, application_name="lab-app")


async def start_pair(kind: str) -> Pair:
    binaries = find_binaries() if kind == "first" else find_binaries(source="system")
    primary = EmbeddedPostgres(binaries=binaries, preload=("pg_stat_statements",), settings=_SETTINGS)
    await primary.start()
    try:
        async with await connect(primary) as admin:
            await admin.execute("create table acct(id int primary key, bal int)")
            await admin.execute("insert into acct select g, 0 from generate_series(1, 9) g")
            await admin.execute("create role reader login password 's3cret-pass'")
            await admin.execute("grant pg_monitor to reader")
            await admin.execute("create role blind login password 's3cret-pass'")
            await admin.execute("create extension pg_stat_statements")
        standby = Standby(primary, binaries)
        await standby.start()
    except BaseException:
        await primary.stop()
        raise
    return Pair(primary=primary, standby=standby)


async def stop_pair(pair: Pair) -> None:
    await pair.standby.stop()
    await pair.primary.stop()


@pytest.fixture(scope="module", params=[FIRST, SYSTEM])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A primary and a standby that follows it."""
    made = asyncio.run(start_pair(request.param))
    yield made
    asyncio.run(stop_pair(made))


@pytest.fixture(autouse=True)
async def following(pair: Pair) -> None:
    """The standby has seen everything that the primary did."""
    await pair.until(pair.primary, "select count(*) = 1 from pg_stat_replication where state = 'streaming'")
    await pair.until(pair.primary, "select bool_and(replay_lsn >= pg_current_wal_lsn()) from pg_stat_replication")


async def test_a_standby_is_called_one_and_lines_say_where_they_have_to_be_run(pair: Pair) -> None:
    answer = await read_preflight(pair.targets("blind"), CLOCK)
    assert answer.server_role == "standby"
    (server,) = [row for row in answer.rows if row.name == "server"]
    assert isinstance(server, Check)
    assert server.value == "standby"
    assert "GRANT pg_monitor TO blind; (on the primary) -- other sessions" in answer.to_run
    assert "ALTER SYSTEM SET track_io_timing = on; SELECT pg_reload_conf(); -- track_io_timing" in answer.to_run


async def test_running_statements_of_a_standby_are_shown_and_its_replay_is_none(pair: Pair) -> None:
    assert (await read_running_queries(pair.targets(), CLOCK)).rows == ()
    async with await connect(pair.standby) as session:
        await session.execute("begin")
        await session.execute("select count(*) from acct")
        (row,) = (await read_running_queries(pair.targets(), CLOCK)).rows
        assert (row.pid, row.state) == (session.info.backend_pid, "idle in transaction")
        await session.execute("rollback")


async def test_who_waits_for_a_lock_that_the_primary_took_is_put_behind_the_replay(pair: Pair) -> None:
    assert (await read_blocking_tree(pair.targets(), CLOCK)).summary == NOBODY_WAITS
    async with await connect(pair.primary) as change, await connect(pair.standby) as session:
        await change.execute("begin")
        await change.execute("lock table acct in access exclusive mode")
        await change.execute("select pg_switch_wal()")
        await pair.until(
            pair.standby, "select exists(select from pg_locks where mode = 'AccessExclusiveLock' and granted)"
        )
        waiting = asyncio.create_task(session.execute("select count(*) from acct"))
        await pair.until(pair.standby, "select exists(select from pg_locks where not granted)")
        answer = await read_blocking_tree(pair.targets(), CLOCK)
        (root,) = answer.rows
        assert chain_of(root)[1] == session.info.backend_pid
        assert root.held_lock == "AccessExclusiveLock on public.acct"
        assert root.state == "startup"
        assert root.note == "the standby's replay of the primary's changes"
        assert "replays what the primary has changed" in answer.summary
        await change.execute("rollback")
        await waiting


async def test_a_replay_that_waits_for_a_query_is_told(pair: Pair) -> None:
    async with await connect(pair.standby) as session, await connect(pair.primary) as change:
        await session.execute("begin")
        await session.execute("select count(*) from acct")
        await change.execute("begin")
        await change.execute("lock table acct in access exclusive mode")
        await change.execute("alter table acct add column more int")
        await change.execute("commit")
        await pair.until(
            pair.standby,
            "select exists(select from pg_stat_activity where backend_type = 'startup' and wait_event_type = 'Lock')",
        )
        answer = await read_blocking_tree(pair.targets(), CLOCK)
        assert "replay of the primary's changes waits for a query here (Lock: relation)" in answer.warnings[0]
        await session.execute("rollback")
