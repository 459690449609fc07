"""Attacks, reads and odd files of ``run_readonly_sql`` on SQLite: real files, the real process."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from agent_core.context import SystemClock
from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.answer import SqlRequest, SqlRows
from bot.tools.readonly_sql.sqlite import run_on_sqlite
from bot.tools.targets import Target
from tests.unit.readonly_sql.sqlite_statements import ATTACKS, ENDLESS, READS, SCHEMA

_REFUSALS = {"not_read_only", "parse_failed", "multiple_statements", "result_too_large"}
# The statement's time, the process' grace, and a busy machine.
_BOUND_S = 40.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database in rollback mode, closed."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA)
        connection.commit()
    return path


@pytest.fixture
def wal_file(file: Path) -> Path:
    """The same in WAL mode, closed."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("pragma journal_mode = wal")
    return file


def _target(path: Path) -> Target:
    return Target.from_url("shop", f"sqlite:///{path}", allow_sql=True)


async def _run(
    path: Path, sql: str, *parameters: str | int | None, timeout_s: float = 10.0, max_rows: int = 50
) -> SqlRows:
    request = SqlRequest(
        sql=sql.replace("{dir}", str(path.parent)), parameters=parameters, timeout_s=timeout_s, max_rows=max_rows
    )
    return await run_on_sqlite(_target(path), SystemClock(), request)


async def _fail(path: Path, sql: str = "select count(*) from orders", *, timeout_s: float = 10.0) -> ToolFailed:
    with pytest.raises(ToolFailed) as failure:
        await _run(path, sql, timeout_s=timeout_s)
    assert failure.value.fix
    assert str(path.parent) not in f"{failure.value.message} {failure.value.fix}"
    return failure.value


def _folder(path: Path) -> dict[str, str]:
    """Names and contents of everything beside the database."""
    return {entry.name: hashlib.sha256(entry.read_bytes()).hexdigest() for entry in sorted(path.parent.iterdir())}


@pytest.mark.parametrize("mode", ["rollback", "wal"])
async def test_no_attack_changes_a_byte_or_makes_a_file(file: Path, mode: str, request: pytest.FixtureRequest) -> None:
    if mode == "wal":
        request.getfixturevalue("wal_file")
    before = _folder(file)
    gate = asyncio.Semaphore(2)

    async def attack(sql: str) -> str | None:
        async with gate:
            try:
                answer = await _run(file, sql, timeout_s=5.0)
            except ToolFailed as failure:
                return None if failure.code in _REFUSALS and failure.fix else f"{sql}: {failure.code} {failure.message}"
            return f"ran: {sql}: {answer.rows}"

    done = await asyncio.gather(*map(attack, ATTACKS))
    assert [said for said in done if said is not None] == []
    assert _folder(file) == before


@pytest.mark.parametrize("sql", ENDLESS)
async def test_what_never_ends_is_ended(file: Path, sql: str) -> None:
    before, began = _folder(file), time.monotonic()
    failure = await _fail(file, sql, timeout_s=1.0)
    assert failure.code in ("statement_timeout", "result_too_large")
    assert time.monotonic() - began < _BOUND_S
    assert _folder(file) == before


@pytest.mark.parametrize("mode", ["rollback", "wal"])
async def test_no_honest_read_is_refused(file: Path, mode: str, request: pytest.FixtureRequest) -> None:
    if mode == "wal":
        request.getfixturevalue("wal_file")
    before, refused = _folder(file), []
    for read in READS:
        try:
            answer = await _run(file, read)
        except ToolFailed as failure:
            refused.append(f"{read}: {failure.message}")
            continue
        assert len(answer.columns) == len(answer.types)
        assert all(len(row) == len(answer.columns) for row in answer.rows)
    assert refused == []
    assert _folder(file) == before


async def test_values_come_as_what_json_holds_without_a_loss(file: Path) -> None:
    answer = await _run(file, "select 9223372036854775807, 1.5, 'é', null, x'0001', 1e999, ?, ?", "a'b", None)
    assert answer.rows == (("9223372036854775807", 1.5, "é", None, "<2 bytes>", "Infinity", "a'b", None),)
    assert answer.types == ("integer", "real", "text", "null", "blob", "real", "text", "null")
    assert answer.engine == "sqlite"
    assert answer.engine_version == sqlite3.sqlite_version


async def test_rows_and_bytes_are_bounded_where_they_are_read(file: Path) -> None:
    endless = "with recursive n (i) as (select 1 union all select i + 1 from n) select i, {} from n"
    few = await _run(file, endless.format("'x'"), max_rows=7)
    assert (few.row_count, few.more_rows) == (7, True)
    wide = await _run(file, endless.format("hex(zeroblob(200000))"), max_rows=1000)
    assert wide.more_rows
    assert wide.row_count < 1000
    assert wide.warnings


async def test_a_value_count_that_does_not_fit_is_said(file: Path) -> None:
    with pytest.raises(ToolFailed) as failure:
        await _run(file, "select ?, ?", 1)
    assert failure.value.code == "bad_parameters"


def _children() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


async def _wait_for_child(before: set[str]) -> set[str]:
    async with asyncio.timeout(_BOUND_S):
        while True:
            if started := _children() - before:
                return started
            await asyncio.sleep(0.01)


async def test_cancelling_kills_the_process(file: Path) -> None:
    before = _children()
    task = asyncio.create_task(_run(file, ENDLESS[0], timeout_s=30.0))
    started = await _wait_for_child(before)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not started & _children()


# -- odd files -------------------------------------------------------------------------------------


async def test_a_missing_file_is_said_and_not_made(tmp_path: Path) -> None:
    failure = await _fail(tmp_path / "none.db")
    assert failure.code == "file_missing"
    assert _folder(tmp_path / "none.db") == {}


async def test_a_path_with_too_few_slashes_gets_the_hint(file: Path) -> None:
    target = Target.from_url("shop", f"sqlite://{file}", allow_sql=True)
    with pytest.raises(ToolFailed, match="no such file") as failure:
        await run_on_sqlite(target, SystemClock(), SqlRequest(sql="select 1"))
    assert "four slashes" in str(failure.value.fix)


async def test_a_folder_a_link_a_pipe_and_a_text_are_told_apart(file: Path) -> None:
    folder, link, pipe, text = (file.parent / name for name in ("folder", "link.db", "pipe.db", "text.db"))
    folder.mkdir()
    link.symlink_to(file)
    os.mkfifo(pipe)
    text.write_text("this is no database, but long enough to be taken for the header of one")
    said = [(await _fail(path)).message for path in (folder, link, pipe, text)]
    assert [
        part in message for part, message in zip(("folder", "link", "regular", "no SQLite"), said, strict=True)
    ] == [True] * 4


async def test_an_empty_file_is_a_database_without_tables(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    assert (await _run(tmp_path / "empty.db", "select count(*) from sqlite_master")).rows == ((0,),)
    assert (await _fail(tmp_path / "empty.db")).code == "parse_failed"


@pytest.fixture
def damaged(file: Path) -> Path:
    """A database with nonsense behind its first page."""
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    file.write_bytes(data)
    return file


async def test_a_damaged_file_is_said_to_be_damaged(damaged: Path) -> None:
    failure = await _fail(damaged)
    assert "damaged" in failure.message


async def test_a_locked_database_is_a_lock_timeout_that_may_be_retried(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("begin exclusive")
        failure = await _fail(file, timeout_s=1.0)
        assert (failure.code, failure.retryable) == ("lock_timeout", True)
        writer.execute("rollback")
    assert (await _run(file, "select count(*) from orders")).rows == ((3,),)


async def test_a_wal_database_that_is_being_written_shows_what_is_committed(wal_file: Path) -> None:
    with closing(sqlite3.connect(wal_file, isolation_level=None)) as writer:
        writer.execute("insert into pairs values (5, 6)")
        writer.execute("begin immediate")
        writer.execute("insert into pairs values (7, 8)")
        assert (await _run(wal_file, "select count(*) from pairs")).rows == ((3,),)
        names = sorted(path.name for path in wal_file.parent.iterdir())
        writer.execute("commit")
    assert names == ["shop.db", "shop.db-shm", "shop.db-wal"]
    assert sorted(path.name for path in wal_file.parent.iterdir()) == ["shop.db"]


@pytest.fixture
def left_behind(wal_file: Path) -> Path:
    """A WAL database whose writer was killed in its work, and whose index of the log is lost."""
    code = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('insert into pairs values (9, 9)'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(wal_file)], check=True, timeout=60)
    wal_file.with_name("shop.db-shm").unlink()
    return wal_file


async def test_a_log_that_a_killed_writer_left_is_not_repaired_by_a_reader(left_behind: Path) -> None:
    before = _folder(left_behind)
    failure = await _fail(left_behind)
    assert "in the middle of a change" in failure.message
    assert _folder(left_behind) == before


@pytest.fixture
def half_written(file: Path) -> Path:
    """A database whose writer was killed in its work, in rollback mode."""
    code = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('pragma cache_size = 1'); c.execute('begin');"
        "c.execute('update orders set note = hex(zeroblob(20000))'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(file)], check=True, timeout=60)
    assert file.with_name("shop.db-journal").exists()
    return file


async def test_a_journal_that_a_killed_writer_left_is_not_rolled_back_by_a_reader(half_written: Path) -> None:
    before = _folder(half_written)
    failure = await _fail(half_written)
    assert "in the middle of a change" in failure.message
    assert _folder(half_written) == before
