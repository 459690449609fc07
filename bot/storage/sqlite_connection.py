"""The two connections to a SQLite file: one that writes, one that reads.

Every use of a connection is *one* hop: a plain function that runs whole in the connection's thread. Two
awaits (``execute``, then ``fetchone``) leave a statement open between them, and another task's transaction
that starts there fails at once with "database is locked", whatever the busy timeout. aiosqlite offers such
a hop only as ``_execute``; ``_hop`` and ``_connect`` are the only places that touch its privates, and
``tests/unit/storage`` fails when a release of aiosqlite changes them.

Works that wait at the same time share one transaction and one flush (group commit); each stands in its own
savepoint, so that one failing changes nothing for the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from bot.storage.base import StoreError
from bot.storage.migrate import migrate

if TYPE_CHECKING:
    import aiosqlite

T = TypeVar("T")

BUSY_TIMEOUT_S = 10.0
BATCH_MAX = 64
LOG_PATIENCE_MS = 500
_WAL_KEEP_BYTES = 64 * 1024 * 1024
_STATEMENTS_KEPT = 256
_OLDEST_SQLITE = (3, 37, 0)  # STRICT tables
_EXPECTED = (StoreError, sqlite3.Error, ValueError, TypeError, LookupError, ArithmeticError)

_creating = threading.Lock()


class Tx:
    """A running transaction. Each method reads its statement to the end, so none is left open."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def all(self, sql: str, *values: object) -> list[sqlite3.Row]:
        """Return every row."""
        return self._execute(sql, values).fetchall()

    def one(self, sql: str, *values: object) -> sqlite3.Row | None:
        """Return the first row, or None."""
        rows = self._execute(sql, values).fetchall()
        return rows[0] if rows else None

    def do(self, sql: str, *values: object) -> int:
        """Change rows; return how many."""
        cursor = self._execute(sql, values)
        cursor.fetchall()
        return cursor.rowcount

    def _execute(self, sql: str, values: Sequence[object]) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, values)
        except UnicodeEncodeError:
            return self._connection.execute(sql, [clean(v) if isinstance(v, str) else v for v in values])


def clean(text: str) -> str:
    """Return ``text`` as a database can hold it: half a surrogate pair (a model's broken escape) becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def explain(error: sqlite3.Error, path: Path) -> StoreError:
    """Say what a SQLite error means for the operator of ``path`` and what to do."""
    name = getattr(error, "sqlite_errorname", "") or ""
    remedies = (
        ("SQLITE_CANTOPEN", f"cannot be opened; check that the folder {path.parent} exists and may be written"),
        ("SQLITE_READONLY", "is read-only; give Hermod's user write permission on the file and its folder"),
        ("SQLITE_PERM", "may not be used; give Hermod's user write permission on the file and its folder"),
        ("SQLITE_FULL", "cannot grow, the disk is full; free some space and try again"),
        ("SQLITE_NOTADB", "is not a SQLite database; point [storage] url at another file"),
        ("SQLITE_CORRUPT", "is damaged; stop Hermod and restore the file from a backup"),
        ("SQLITE_BUSY", f"was locked by another process for more than {BUSY_TIMEOUT_S:.0f} s; see who holds it"),
        ("SQLITE_LOCKED", "is locked inside this process; this is a defect of Hermod, please report it"),
        ("SQLITE_IOERR", "cannot be read or written; look at the disk (dmesg) and at its free space"),
    )
    for prefix, remedy in remedies:
        if name.startswith(prefix):
            return StoreError(f"the database file {path} {remedy} ({name}: {error})")
    return StoreError(f"the database file {path} refused a statement ({name or type(error).__name__}: {error})")


# -- connecting ------------------------------------------------------------------------------------


def _connect_writer(path: Path) -> sqlite3.Connection:
    """Create the file if need be, connect, and bring the schema up to date. Runs in the connection's thread."""
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise StoreError(f"Python's SQLite is {sqlite3.sqlite_version}; Hermod needs 3.37 or newer")
    _create_private(path)
    connection = _connect_plain(path)
    try:
        migrate(connection, path, patience_s=3 * BUSY_TIMEOUT_S)
    except sqlite3.Error as error:
        connection.close()
        raise explain(error, path) from error
    except StoreError:
        connection.close()
        raise
    return connection


def _connect_reader(path: Path) -> sqlite3.Connection:
    connection = _connect_plain(path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _connect_plain(path: Path) -> sqlite3.Connection:
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, cached_statements=_STATEMENTS_KEPT
        )
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON").fetchall()  # what is forgotten is overwritten in the file
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_KEEP_BYTES}").fetchall()
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        raise explain(error, path) from error
    return connection


def _create_private(path: Path) -> None:
    """Create a missing file so that only its owner reads it (it holds conversations).

    Never opens a file that exists: closing it would drop the locks that SQLite holds on it for this process
    (https://www.sqlite.org/howtocorrupt.html, section 2.2); the lock keeps two stores of one process apart.
    """
    with _creating:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            if not path.is_file():
                raise StoreError(f"{path} is not a file; point [storage] url at a file") from None
            if not os.access(path, os.R_OK | os.W_OK):
                raise StoreError(
                    f"the database file {path} may not be read and written; give Hermod's user that permission"
                ) from None
        except FileNotFoundError as error:
            raise StoreError(
                f"the database file {path} cannot be created: there is no folder {path.parent}; create it"
                " or change [storage] url"
            ) from error
        except OSError as error:
            raise StoreError(
                f"the database file {path} cannot be created ({error.strerror}); give Hermod's user write permission"
                f" on {path.parent}, or change [storage] url"
            ) from error


async def _connect(connector: Callable[[], sqlite3.Connection]) -> aiosqlite.Connection:
    import aiosqlite

    connection = aiosqlite.Connection(connector, iter_chunk_size=64)
    # Else a program that forgets close() never exits. Up to aiosqlite 0.21 the connection is the thread itself.
    thread = cast(threading.Thread, getattr(connection, "_thread", connection))
    thread.daemon = True
    try:
        return await connection
    except StoreError:
        # aiosqlite told its thread to end but does not wait for it; a loop that closes first makes it print a trace.
        await asyncio.to_thread(thread.join, BUSY_TIMEOUT_S)
        raise


async def _hop(connection: aiosqlite.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    def run() -> T:
        return work(connection._conn)

    return cast(T, await connection._execute(run))  # type: ignore[no-untyped-call]  # private, see above


# -- reading ---------------------------------------------------------------------------------------


class Reader:
    """The connection that only reads; each work sees one consistent state of the database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: aiosqlite.Connection | None = None

    async def open(self) -> None:
        """Connect. The file must exist and be up to date (``Writer.open``)."""
        self._connection = await _connect(partial(_connect_reader, self._path))

    async def close(self) -> None:
        """Disconnect after what is already being read."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def run(self, work: Callable[[Tx], T]) -> T:
        """Run ``work`` in the connection's thread.

        Raises:
            StoreError: not open, or the database failed.
        """
        if self._connection is None:
            raise StoreError("the store is not open")
        try:
            return await _hop(self._connection, partial(_read, work=work))
        except sqlite3.Error as error:
            raise explain(error, self._path) from error


def _read(connection: sqlite3.Connection, *, work: Callable[[Tx], T]) -> T:
    connection.execute("BEGIN")
    try:
        return work(Tx(connection))
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


# -- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[Tx], object]
    durable: bool
    future: asyncio.Future[object]


@dataclass(frozen=True, slots=True)
class _Failure:
    error: Exception


class Writer:
    """The one connection that writes. Works run in the order in which they were handed in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: aiosqlite.Connection | None = None
        self._waiting: list[_Job] = []
        self._flusher: asyncio.Task[None] | None = None
        self._synchronous = ""

    async def open(self) -> None:
        """Connect, creating the file and bringing its schema up to date.

        Raises:
            StoreError: not reachable, not writable, not ours, or made by a newer Hermod.
        """
        self._synchronous = ""
        self._connection = await _connect(partial(_connect_writer, self._path))

    async def close(self) -> None:
        """Finish what was handed in, then disconnect."""
        connection, self._connection = self._connection, None
        if self._flusher is not None:
            await asyncio.wait({self._flusher})
        if connection is not None:
            await connection.close()

    async def run(self, work: Callable[[Tx], T], *, durable: bool = False) -> T:
        """Run ``work`` in a transaction, in the connection's thread.

        When it raises, nothing of it is kept. When the caller is cancelled meanwhile, it may have happened
        or not. With ``durable`` the transaction survives a loss of power, else only the end of the process.

        Raises:
            StoreError: not open, or the database failed.
        """
        if self._connection is None:
            raise StoreError("the store is not open")
        job = _Job(work, durable, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush(self._connection), name="hermod-store-writer")
        return cast(T, await job.future)

    async def empty_log(self) -> None:
        """Move the write-ahead log into the file and cut it off, so that it holds nothing of what was dropped.

        Where another process reads, it stays until that one is done; it is overwritten then.
        """
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                await _hop(self._connection, _truncate_log)

    async def _flush(self, connection: aiosqlite.Connection) -> None:
        """Write batch after batch until nobody waits. ``run`` starts it, ``close`` waits for it."""
        batch: list[_Job] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                batch = [job for job in batch if not job.future.done()]
                if batch and not await self._write(connection, batch):
                    # One work took the whole transaction down with it: let each stand for itself.
                    for job in batch:
                        await self._write(connection, [job])
        finally:
            self._flusher = None
            for job in (*batch, *self._waiting):
                job.future.cancel()
            self._waiting.clear()

    async def _write(self, connection: aiosqlite.Connection, batch: list[_Job]) -> bool:
        """Write one batch and answer its callers; False when it must be tried one by one."""
        hop = _hop(connection, partial(self._run_batch, batch))
        (got,) = await asyncio.gather(hop, return_exceptions=True)
        if isinstance(got, BaseException):
            if len(batch) > 1 and not _is_busy(got):
                return False
            got = [_Failure(got if isinstance(got, Exception) else StoreError("the store was closed"))] * len(batch)
        for job, outcome in zip(batch, got, strict=True):
            if job.future.done():
                continue
            if not isinstance(outcome, _Failure):
                job.future.set_result(outcome)
            elif isinstance(outcome.error, sqlite3.Error):
                said = explain(outcome.error, self._path)
                said.__cause__ = outcome.error
                job.future.set_exception(said)
            else:
                job.future.set_exception(outcome.error)
        return True

    def _run_batch(self, batch: list[_Job], connection: sqlite3.Connection) -> list[object]:
        synchronous = "FULL" if any(job.durable for job in batch) else "NORMAL"
        if synchronous != self._synchronous:
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            self._synchronous = synchronous
        connection.execute("BEGIN IMMEDIATE")
        try:
            tx = Tx(connection)
            outcomes = [_run_in_savepoint(connection, tx, job.work) for job in batch]
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return outcomes


def _truncate_log(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA busy_timeout = {LOG_PATIENCE_MS}").fetchall()  # all other writing waits meanwhile
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}").fetchall()


def _run_in_savepoint(connection: sqlite3.Connection, tx: Tx, work: Callable[[Tx], object]) -> object:
    connection.execute("SAVEPOINT work")
    try:
        result = work(tx)
    except _EXPECTED as error:
        if not connection.in_transaction:
            raise  # SQLite rolled everything back by itself (disk full, I/O error)
        connection.execute("ROLLBACK TO work")
        result = _Failure(error)
    connection.execute("RELEASE work")
    return result


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, sqlite3.Error) and (getattr(error, "sqlite_errorname", "") or "").startswith("SQLITE_BUSY")
