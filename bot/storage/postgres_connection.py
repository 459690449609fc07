"""The connections to a Postgres database: a small pool, and transactions on it.

Nothing is left behind in a session, so a pooler in transaction mode (PgBouncer) may stand in between: no prepared
statements, no settings but those of a transaction, which are sent together with its BEGIN. Writing runs at READ
COMMITTED: verbs lock the row that decides (their thread's) first, and each later statement sees what was committed
until then. Reading sees one state of the database (REPEATABLE READ, READ ONLY).

A connection that turns out to be dead at BEGIN is replaced and nobody hears of it; one that breaks later fails the
verb under way, and the next one gets another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from bot.storage.base import StoreError
from bot.storage.postgres_failures import describe, explain, explain_connect

if TYPE_CHECKING:
    from psycopg import AsyncConnection, AsyncCursor
    from psycopg.rows import DictRow
    from psycopg_pool import AsyncConnectionPool

    Pool = AsyncConnectionPool[AsyncConnection[DictRow]]

T = TypeVar("T")

Row = Mapping[str, Any]
"""A row as the wire has it, by column; ``postgres_rows`` makes values of it."""

CONNECT_TIMEOUT_S = 5
STATEMENT_TIMEOUT_S = 30
LOCK_TIMEOUT_S = 10
IDLE_TIMEOUT_S = 5
"""Between two statements of a transaction: a process that stands still lets go of its rows before others give up."""
CONNECTIONS_MAX = 8
TRIES = 8
"""Of a transaction that another one got in the way of."""

SILENCE_S = STATEMENT_TIMEOUT_S + 5.0
"""How long an answer is waited for: longer than the server's own limits, which a hung server does not keep."""

WAIT_S = 10.0
_SOON_S = 1.5
_RECONNECT_S = 2.0
_ROLLBACK_S = 5.0
_PAUSE_S = 0.02
APPLICATION = "hermod"
_LIMITS = (
    f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT_S}s'; SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s';"
    f" SET LOCAL idle_in_transaction_session_timeout = '{IDLE_TIMEOUT_S}s'"
)
_BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED; {_LIMITS}".encode()
# A server that waits for standbys by its own settings (remote_apply) goes on doing so.
_BEGIN_DURABLE = _BEGIN + (
    b"; SELECT set_config('synchronous_commit', 'on', true)"
    b" WHERE current_setting('synchronous_commit') IN ('off', 'local')"
)
_BEGIN_READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_LIMITS}".encode()

# Another transaction was in the way, and the same work from the beginning sees what that one left: a serialization
# failure, a deadlock, and a row that was inserted at the same moment. So did time, when this process stood still: the
# server undid the transaction before it heard of a COMMIT.
_AGAIN = ("40001", "40P01", "23505", "25P03")
_READ_ONLY = "25006"


class Tx:
    """A running transaction. Placeholders are ``%s``; a literal ``%`` is written ``%%``."""

    def __init__(self, connection: AsyncConnection[DictRow], *, silence_s: float = SILENCE_S) -> None:
        self._connection = connection
        self._silence_s = silence_s

    async def all(self, sql: str, *values: object) -> list[Row]:
        """Return every row."""
        return list(await (await self._execute(sql, values)).fetchall())

    async def one(self, sql: str, *values: object) -> Row | None:
        """Return the first row, or None."""
        rows = await (await self._execute(sql, values)).fetchall()
        return rows[0] if rows else None

    async def do(self, sql: str, *values: object) -> int:
        """Change rows; return how many."""
        return (await self._execute(sql, values)).rowcount

    async def _execute(self, sql: str, values: Sequence[object]) -> AsyncCursor[DictRow]:
        import psycopg

        sent = [build_array(value) if isinstance(value, list) else value for value in values]
        with _hear(self._connection, self._silence_s):
            try:
                return await self._connection.execute(sql.encode(), sent)
            except (psycopg.DataError, UnicodeEncodeError) as error:
                if getattr(error, "sqlstate", None) is not None:
                    raise
                # It was not sent: text holds what Postgres has no room for.
                cleaned = [clean(value) if isinstance(value, str) else value for value in sent]
                return await self._connection.execute(sql.encode(), cleaned)


def clean(text: str) -> str:
    """Return ``text`` as Postgres can hold it: U+FFFD stands for half a surrogate pair, and for U+0000."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "\ufffd")


def build_array(values: Sequence[object]) -> str:
    """Return a list as Postgres writes an array of it; the statement casts it (``%s::text[]``).

    psycopg does it element by element, which keeps the event loop for a tenth of a second with 5000 texts.
    See https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO.
    """
    return "{" + ",".join(map(_build_element, values)) + "}"


def _build_element(value: object) -> str:
    if value is None:
        return "NULL"
    text = str(value)
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


class Connections:
    """The pool. Verbs hand a function in, which runs whole inside one transaction.

    Args:
        url: ``postgresql://...``, as libpq reads it.
        silence_s: after which a server that does not answer a statement is hung up on.
    """

    def __init__(self, url: str, *, silence_s: float = SILENCE_S) -> None:
        self._url = url
        self._silence_s = silence_s
        self._pool: Pool | None = None
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._asking = asyncio.Lock()
        self._running = 0
        self._rested = asyncio.Event()

    async def connect(self) -> AsyncConnection[DictRow]:
        """Make a connection outside the pool, in autocommit; whoever asks closes it.

        Raises:
            StoreError: it could not be made; the message says why and what to do, and holds no password.
        """
        import psycopg
        from psycopg.rows import dict_row

        try:
            async with asyncio.timeout(2 * CONNECT_TIMEOUT_S):
                return await psycopg.AsyncConnection.connect(
                    self._url,
                    autocommit=True,
                    prepare_threshold=None,
                    row_factory=dict_row,
                    connect_timeout=CONNECT_TIMEOUT_S,
                    application_name=APPLICATION,
                    client_encoding="utf8",
                )
        except (psycopg.Error, TimeoutError, UnicodeError) as error:
            raise explain_connect(error, self._url) from None

    async def open(self) -> None:
        """Start the pool. The schema must be up to date (``postgres_migrate``, with a connection of ``connect``)."""
        import psycopg_pool
        from psycopg import AsyncConnection
        from psycopg.rows import DictRow, dict_row

        options = {
            "autocommit": True,
            "prepare_threshold": None,
            "row_factory": dict_row,
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": APPLICATION,
            "client_encoding": "utf8",
        }
        pool = psycopg_pool.AsyncConnectionPool(
            self._url,
            connection_class=AsyncConnection[DictRow],
            kwargs=options,
            min_size=1,
            max_size=CONNECTIONS_MAX,
            open=False,
            name="hermod-store",
            timeout=WAIT_S,
            reconnect_timeout=_RECONNECT_S,
        )
        await pool.open()
        self._pool = pool

    async def close(self) -> None:
        """Finish what was handed in, then disconnect. Safe to call twice."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        while self._running:
            self._rested.clear()
            await self._rested.wait()
        await pool.close(timeout=CONNECT_TIMEOUT_S)

    async def run(self, work: Callable[[Tx], Awaitable[T]], *, durable: bool = False, lane: str = "") -> T:
        """Run ``work`` in a transaction.

        When it raises, nothing of it is kept. When the caller is cancelled meanwhile, it may have happened or not.

        Args:
            work: what is done; several times when another transaction got in the way, so it has no other effects.
            durable: the transaction is on the server's disk when this returns, whatever ``synchronous_commit`` says.
            lane: works of one lane come one after the other, in the order in which they were handed in; with several
                connections they would race. Empty: in none.

        Raises:
            StoreError: not open, or the database failed.
        """
        with self._hand_in() as pool:
            if not lane:
                return await self._repeat(pool, work, durable=durable)
            order = self._lanes.setdefault(lane, asyncio.Lock())  # it hands over in the order of asking
            async with order:
                return await self._repeat(pool, work, durable=durable)

    async def read(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        """Run ``work``, which only reads; it sees one state of the database.

        Raises:
            StoreError: not open, or the database failed.
        """
        import psycopg

        with self._hand_in() as pool:
            try:
                return await self._transact(pool, _BEGIN_READ, work)
            except psycopg.Error as error:
                raise explain(error, self._url) from error

    @contextlib.contextmanager
    def _hand_in(self) -> Iterator[Pool]:
        """The pool, for a work that ``close`` waits for."""
        if self._pool is None:
            raise StoreError("the store is not open")
        self._running += 1
        try:
            yield self._pool
        finally:
            self._running -= 1
            self._rested.set()

    async def _repeat(self, pool: Pool, work: Callable[[Tx], Awaitable[T]], *, durable: bool) -> T:
        import psycopg

        for n in range(1, TRIES + 1):
            try:
                return await self._transact(pool, _BEGIN_DURABLE if durable else _BEGIN, work)
            except psycopg.Error as error:
                if error.sqlstate == _READ_ONLY:
                    # After a failover the old primary is a standby: the next verb asks the address anew.
                    await pool.drain()
                if error.sqlstate not in _AGAIN or n == TRIES:
                    raise explain(error, self._url) from error
            await asyncio.sleep(random.uniform(0, _PAUSE_S * 2 ** (n - 1)))  # noqa: S311 - not a secret
        raise AssertionError("the last try returns or raises")

    async def _transact(self, pool: Pool, begin: bytes, work: Callable[[Tx], Awaitable[T]]) -> T:
        connection = None
        try:
            connection = await self._begin(pool, begin)
            result = await work(Tx(connection, silence_s=self._silence_s))
            with _hear(connection, self._silence_s):
                ended = await connection.execute(b"COMMIT")
            if ended.statusmessage != "COMMIT":
                raise StoreError("a failed statement was passed over, so nothing was kept; please report this defect")
            return result
        except TimeoutError as error:
            raise explain(error, self._url) from None
        finally:
            if connection is not None:
                await _give_back(pool, connection)

    async def _take(self, pool: Pool) -> AsyncConnection[DictRow]:
        """Wait for a connection; where none comes soon, ask the server for one: the pool tells no reason."""
        import psycopg_pool

        try:
            with contextlib.suppress(psycopg_pool.PoolTimeout):
                return await pool.getconn(_SOON_S)
            async with self._asking:
                await (await self.connect()).close()
            return await pool.getconn(WAIT_S)
        except psycopg_pool.PoolTimeout:
            said = f"all {CONNECTIONS_MAX} connections to {describe(self._url)} were busy for {WAIT_S:.0f} s; try again"
            raise StoreError(said) from None
        except psycopg_pool.PoolClosed:
            raise StoreError("the store is not open") from None

    async def _begin(self, pool: Pool, begin: bytes) -> AsyncConnection[DictRow]:
        """Begin a transaction on a connection that is alive: those that died while they were idle are passed over."""
        import psycopg

        for n in range(CONNECTIONS_MAX + 1):
            connection = await self._take(pool)
            try:
                with _hear(connection, self._silence_s):
                    await connection.execute(begin)
                return connection
            except BaseException as error:
                dead = isinstance(error, psycopg.OperationalError) and connection.closed
                await _give_back(pool, connection)
                if not dead or n == CONNECTIONS_MAX:
                    raise
        raise AssertionError("the last try returns or raises")


@contextlib.contextmanager
def _hear(connection: AsyncConnection[DictRow], silence_s: float) -> Iterator[None]:
    """Hang up on a server that says nothing for so long; ``TimeoutError`` then.

    Cancelling would not do: psycopg then asks the server to cancel, and waits for what it says to that.
    """
    import psycopg

    hung_up = False

    def hang_up() -> None:
        nonlocal hung_up
        hung_up = True
        # Closing would free a file descriptor that the event loop still watches; this wakes psycopg instead.
        with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as double:
            double.shutdown(socket.SHUT_RDWR)

    timer = asyncio.get_running_loop().call_later(silence_s, hang_up)
    try:
        yield
    except psycopg.Error:
        if hung_up:
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


async def _give_back(pool: Pool, connection: AsyncConnection[DictRow]) -> None:
    """Return a connection without a transaction; what cannot be rolled back is closed, and the pool makes another."""
    import psycopg
    from psycopg.pq import TransactionStatus

    try:
        status = connection.info.transaction_status
        if status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            with _hear(connection, _ROLLBACK_S):
                await connection.execute(b"ROLLBACK")
        elif status != TransactionStatus.IDLE:
            await connection.close()
    except (psycopg.Error, TimeoutError):
        await connection.close()
    finally:
        await pool.putconn(connection)
