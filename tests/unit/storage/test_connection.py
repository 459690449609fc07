"""The connections below the SQLite store: transactions, group commit, durability, errors, the end of the process."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from bot.storage.base import StoreError
from bot.storage.sqlite import SqliteStore
from bot.storage.sqlite_connection import Reader, Tx, Writer, clean, explain
from tests.contract.store.makers import A, new_item, put
from tests.stopwatch import least_wall_s

ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "h.db"


@pytest.fixture
async def writer(path: Path) -> AsyncIterator[Writer]:
    opened = Writer(path)
    await opened.open()
    await opened.run(lambda tx: tx.do("CREATE TABLE t (x INTEGER UNIQUE, s TEXT) STRICT"))
    yield opened
    await opened.close()


def _values(tx: Tx) -> list[int]:
    return [row["x"] for row in tx.all("SELECT x FROM t ORDER BY x")]


def _naming(folder: Path, word: bytes) -> list[str]:
    return [file.name for file in folder.iterdir() if word in file.read_bytes()]


async def test_only_durable_work_is_flushed_and_the_rest_is_not(writer: Writer) -> None:
    normal, full = 1, 2
    for durable, expected in ((True, full), (False, normal), (False, normal), (True, full)):
        assert await writer.run(lambda tx: tx.all("PRAGMA synchronous")[0][0], durable=durable) == expected


async def test_what_was_dropped_is_in_no_file_any_more(writer: Writer, path: Path) -> None:
    secret = "canary " * 2_000  # fills pages of its own
    await writer.run(lambda tx: tx.do("INSERT INTO t (x, s) VALUES (1, ?), (2, 'canary')", secret))
    await writer.empty_log()
    assert _naming(path.parent, b"canary") == [path.name]
    await writer.run(lambda tx: tx.do("DELETE FROM t WHERE x = 1"))
    await writer.run(lambda tx: tx.do("UPDATE t SET s = '' WHERE x = 2"))
    await writer.empty_log()
    assert _naming(path.parent, b"canary") == []
    assert await writer.run(lambda tx: tx.all("PRAGMA busy_timeout")[0][0]) >= 5000


async def test_the_log_of_a_file_that_is_read_elsewhere_is_left_and_nobody_waits_long(
    writer: Writer, path: Path
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM t").fetchall()
        await writer.run(lambda tx: tx.do("INSERT INTO t (x) VALUES (1)"))
        assert await least_wall_s(writer.empty_log, enough_s=4) < 4
    assert await writer.run(_values) == [1]


async def test_the_file_is_in_wal_mode_with_foreign_keys_on_both_connections(writer: Writer, path: Path) -> None:
    reader = Reader(path)
    await reader.open()
    try:
        for run in (writer.run, reader.run):
            assert await run(lambda tx: tx.all("PRAGMA journal_mode")[0][0]) == "wal"
            assert await run(lambda tx: tx.all("PRAGMA foreign_keys")[0][0]) == 1
            assert await run(lambda tx: tx.all("PRAGMA busy_timeout")[0][0]) >= 5000
        with pytest.raises(StoreError):
            await reader.run(lambda tx: tx.do("INSERT INTO t (x) VALUES (1)"))
    finally:
        await reader.close()


async def test_works_that_wait_together_share_one_transaction(writer: Writer, path: Path) -> None:
    changes: list[int] = []

    def insert(tx: Tx) -> None:
        tx.do("INSERT INTO t (x) VALUES (?)", len(changes))
        with sqlite3.connect(path) as outside:
            changes.append(outside.execute("SELECT count(*) FROM t").fetchall()[0][0])
        outside.close()

    await asyncio.gather(*(writer.run(insert) for _ in range(10)))
    assert changes == [0] * 10
    assert await writer.run(_values) == list(range(10))


async def test_bug_37_a_failing_statement_undoes_its_own_work_and_nobody_elses(writer: Writer) -> None:
    def insert_twice(tx: Tx) -> None:
        tx.do("INSERT INTO t (x) VALUES (100)")
        tx.do("INSERT INTO t (x) VALUES (1)")

    def fail_plainly(tx: Tx) -> None:
        tx.do("INSERT INTO t (x) VALUES (200)")
        raise LookupError("no")

    results = await asyncio.gather(
        writer.run(lambda tx: tx.do("INSERT INTO t (x) VALUES (1)")),
        writer.run(insert_twice),
        writer.run(lambda tx: tx.do("SELEKT")),
        writer.run(fail_plainly),
        writer.run(lambda tx: tx.do("INSERT INTO t (x) VALUES (?)", 2)),
        writer.run(lambda tx: tx.do("INSERT INTO t (x) VALUES (?)", 2**70)),
        return_exceptions=True,
    )
    assert [type(r).__name__ for r in results] == [
        "int", "StoreError", "StoreError", "LookupError", "int", "OverflowError"
    ]  # fmt: skip
    assert await writer.run(_values) == [1, 2]


async def test_bug_37_a_work_that_fails_unexpectedly_leaves_the_next_writer_able_to_work(writer: Writer) -> None:
    def vanish(tx: Tx) -> None:
        tx.do("INSERT INTO t (x) VALUES (7)")
        raise AttributeError("a defect")

    results = await asyncio.gather(
        writer.run(lambda tx: tx.do("INSERT INTO t (x) VALUES (1)")),
        writer.run(vanish),
        writer.run(lambda tx: tx.do("INSERT INTO t (x) VALUES (2)")),
        return_exceptions=True,
    )
    assert [type(r).__name__ for r in results] == ["int", "AttributeError", "int"]
    assert await writer.run(_values) == [1, 2]


async def test_a_full_disk_is_named_and_what_still_fits_is_kept(writer: Writer, path: Path) -> None:
    await writer.run(lambda tx: tx.all("PRAGMA max_page_count = 60"))
    results = await asyncio.gather(
        writer.run(lambda tx: tx.do("INSERT INTO t (x) VALUES (1)")),
        writer.run(lambda tx: tx.do("INSERT INTO t (s) VALUES (?)", "x" * 1_000_000)),
        writer.run(lambda tx: tx.do("INSERT INTO t (x) VALUES (2)")),
        return_exceptions=True,
    )
    assert isinstance(results[1], StoreError)
    assert "disk is full; free some space" in str(results[1])
    assert str(path) in str(results[1])
    assert await writer.run(_values) == [1, 2]


async def test_while_another_process_holds_the_lock_readers_go_on_and_a_writer_waits_its_turn(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await put(store, "e1")
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        accepting = asyncio.create_task(store.accept(new_item("e2"), queue_limit=9))
        for _ in range(20):
            assert await store.knows_thread(A)
            assert (await store.count_rows()).inbox_open == 1
        assert not accepting.done()
        holder.execute("COMMIT")
        assert (await accepting).outcome == "new"
    assert (await store.count_rows()).inbox_open == 2
    await store.close()


async def test_the_new_file_is_readable_by_its_owner_only(writer: Writer, path: Path) -> None:
    for file in path.parent.glob("h.db*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.fixture
def notes(path: Path) -> Path:
    path.write_text("these are my notes\n" * 100)
    return path


def _read(path: Path) -> bytes:
    return path.read_bytes()


def _damage(path: Path) -> None:
    """Overwrite everything but the first page."""
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * (path.stat().st_size - 4096))


async def _refuse(path: Path) -> str:
    store = Writer(path)
    before = set(threading.enumerate())
    with pytest.raises(StoreError) as caught:
        await store.open()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not any("connection_worker" in name for name in left), "it would print a trace once the loop is closed"
    await store.close()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    said = await _refuse(tmp_path / "none" / "h.db")
    assert f"there is no folder {tmp_path / 'none'}; create it" in said


async def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    assert "is not a file" in await _refuse(tmp_path)


async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(notes: Path) -> None:
    before = _read(notes)
    assert "is not a SQLite database" in await _refuse(notes)
    assert _read(notes) == before


def test_a_read_only_database_is_named(path: Path) -> None:
    path.touch()
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("CREATE TABLE x (y)")
    connection.close()
    assert "is read-only; give Hermod's user write permission" in str(explain(caught.value, path))


async def test_a_damaged_file_is_named(writer: Writer, path: Path) -> None:
    await writer.close()
    _damage(path)
    assert "is damaged; stop Hermod and restore the file from a backup" in await _refuse(path)


async def test_a_program_that_forgets_to_close_still_ends(path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from bot.storage import open_store\n"
        "store = open_store(sys.argv[1])\n"
        "async def main():\n"
        "    await store.open()\n"
        "    await store.count_rows()\n"
        "    print('worked')\n"
        "asyncio.run(main())\n"
    )
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program, f"sqlite:///{path}"],
        cwd=ROOT,
        timeout=90,
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"worked\n", b"")


async def test_closing_leaves_no_thread_behind(path: Path) -> None:
    before = set(threading.enumerate())
    writer, reader = Writer(path), Reader(path)
    await writer.open()
    await reader.open()
    started = set(threading.enumerate()) - before
    assert len(started) == 2
    await reader.close()
    await writer.close()
    for thread in started:
        thread.join(timeout=30)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain", "plain"),
        ("\ud83d\ude42", "🙂"),
        ("a\ud83d", "a\ufffd"),
        ("\ude42b", "\ufffdb"),
        ("a\0b", "a\0b"),
    ],
)
def test_text_is_made_storable(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    clean(text).encode()
