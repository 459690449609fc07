"""Index advice only ever reads the target, and what it started is gone when it ends, however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_core.context import SystemClock
from bot.tools.index_advice.answer import IndexReport
from bot.tools.shown_sql import record_sql
from tests.integration.index_advice.conftest import EQUALITY, MemorySnapshots, ask, open_warehouse, readable
from tests.servers.postgres import Lab

CLOCK = SystemClock()

CHECKSUM = """
select md5(string_agg(line, e'\\n' order by line)) from (
  select concat_ws(' ', 'class', oid, relname, relkind, relfilenode, reloptions) from pg_class
  union all select concat_ws(' ', 'index', indexrelid, indisvalid, indkey) from pg_index
  union all select concat_ws(' ', 'column', attrelid, attname, atttypid, attisdropped) from pg_attribute
  union all select concat_ws(' ', 'function', oid, proname) from pg_proc
  union all select concat_ws(' ', 'type', oid, typname) from pg_type
  union all select concat_ws(' ', 'extension', extname, extversion) from pg_extension
  union all select concat_ws(' ', 'statistics', starelid, staattnum, stadistinct) from pg_statistic s
    join pg_class c on c.oid = s.starelid where c.relnamespace = 'public'::regnamespace
  union all select concat_ws(' ', 'role', rolname) from pg_roles
  union all select concat_ws(' ', 'order', md5(o::text)) from orders o
  union all select concat_ws(' ', 'item', md5(i::text)) from items i
) as everything(line)"""


async def checksum(lab: Lab, database: str) -> object:
    async with lab.admin(database) as admin:
        cursor = await admin.execute(CHECKSUM.encode())
        row = await cursor.fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize("superuser", [False, True])
async def test_advice_by_hypopg_leaves_the_target_untouched(
    hypopg_postgres: Lab, store: MemorySnapshots, superuser: bool
) -> None:
    database, target = await open_warehouse(hypopg_postgres, hypopg=True)
    if superuser:
        target = replace(hypopg_postgres.targets(database, "postgres")["lab"], accept_risks=frozenset({"superuser"}))
    before = await checksum(hypopg_postgres, database)
    report = await ask(readable(target), store, sql="select id from orders where email = 'x' and customer_id = 3")
    assert report.rows
    assert await checksum(hypopg_postgres, database) == before


@pytest.mark.parametrize("superuser", [False, True])
async def test_advice_by_a_copy_leaves_the_target_untouched(
    plain_postgres: Lab, store: MemorySnapshots, superuser: bool
) -> None:
    database, target = await open_warehouse(plain_postgres, hypopg=False)
    if superuser:
        target = replace(plain_postgres.targets(database, "postgres")["lab"], accept_risks=frozenset({"superuser"}))
    before = await checksum(plain_postgres, database)
    report = await ask(readable(target), store, sql="select id from orders where email = 'x' and customer_id = 3")
    assert [row.verified_by for row in report.rows] == ["scratch_copy"]
    assert await checksum(plain_postgres, database) == before


async def test_statements_run_on_the_copy_without_rights_outside_of_it(
    plain_postgres: Lab, store: MemorySnapshots
) -> None:
    """A statement of a stranger is executed there: it must not read the machine's files."""
    database, _ = await open_warehouse(plain_postgres, hypopg=False)
    sql = "select pg_read_file('/etc/passwd'), id from orders where customer_id = 42"
    superuser = replace(plain_postgres.targets(database, "postgres")["lab"], accept_risks=frozenset({"superuser"}))
    report = await ask(readable(superuser), store, sql=sql)
    assert not report.rows
    assert "cannot be planned on the copy" in report.no_advice[0].reason
    # What planning lets through, running refuses.
    sql = "select id from orders where customer_id = 42 and (select count(*) from pg_authid where rolpassword > '') > 0"
    report = await ask(readable(superuser), store, sql=sql)
    assert not report.rows or report.rows[0].queries[0].measured_after_s is None


@pytest.fixture
def scratch_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which scratch servers of this test live, and nobody else's."""
    place = Path(tempfile.mkdtemp(prefix="adv-", dir="/tmp"))
    place.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    place.rmdir()  # fails when anything stayed


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def find(place: Path, pattern: str) -> list[Path]:
    return list(place.glob(pattern))


async def wait_for(place: Path, pattern: str, call: asyncio.Task[IndexReport]) -> Path:
    """Wait until a file of the scratch server is there, at most 60 s."""
    async with asyncio.timeout(60):
        while not (found := find(place, f"hermod-pg-*/{pattern}")):
            assert not call.done()
            await asyncio.sleep(0)
    return found[0]


@pytest.mark.parametrize("moment", ["initdb.log", "data/postmaster.pid", "data/base/1[6-9]*"])
async def test_a_cancelled_call_leaves_no_scratch_server_behind(
    plain_postgres: Lab, store: MemorySnapshots, scratch_place: Path, moment: str
) -> None:
    _, target = await open_warehouse(plain_postgres, hypopg=False)
    call = asyncio.create_task(ask(readable(target), store, sql=EQUALITY))
    found = await wait_for(scratch_place, moment, call)
    lines = await asyncio.to_thread(read_lines, found) if found.name == "postmaster.pid" else []
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not find(scratch_place, "*")
    if lines and lines[0].isdigit():
        with pytest.raises(ProcessLookupError):
            os.kill(int(lines[0]), 0)


async def test_a_call_that_ends_leaves_no_scratch_server_behind(
    plain_postgres: Lab, store: MemorySnapshots, scratch_place: Path
) -> None:
    _, target = await open_warehouse(plain_postgres, hypopg=False)
    assert (await ask(readable(target), store, sql=EQUALITY)).rows
    assert not find(scratch_place, "*")


async def test_a_cancelled_call_leaves_no_session_and_nothing_hypothetical_on_the_target(
    hypopg_postgres: Lab, store: MemorySnapshots
) -> None:
    database, target = await open_warehouse(hypopg_postgres, hypopg=True)
    sessions = (
        b"select count(*) from pg_stat_activity where application_name = 'hermod' and datname = current_database()"
    )
    async with hypopg_postgres.admin(database) as admin:
        async with asyncio.timeout(60):
            cancelled = False
            while not cancelled:  # a call may be over before it is seen
                call = asyncio.create_task(ask(target, store, sql=EQUALITY))
                while not call.done():
                    cursor = await admin.execute(sessions)
                    if await cursor.fetchone() == (1,):
                        break
                cancelled = call.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await call
        assert call.cancelled()
        async with asyncio.timeout(60):
            while True:
                cursor = await admin.execute(sessions)
                if await cursor.fetchone() == (0,):
                    break


async def test_what_ran_on_the_copy_is_not_told_as_what_the_target_was_asked(
    plain_postgres: Lab, store: MemorySnapshots
) -> None:
    _, target = await open_warehouse(plain_postgres, hypopg=False)
    with record_sql() as told:
        report = await ask(readable(target), store, sql="select * from orders where customer_id = 424242")
    assert report.rows
    assert any("copy (select" in one and '"orders"' in one for one in told)
    assert any("statements ran on the throw-away copy" in one for one in told)
    assert not any(one.upper().startswith("CREATE INDEX") or "ANALYZE" in one.upper() for one in told)
    assert "424242" not in "".join(told)
