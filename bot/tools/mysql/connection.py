"""One short-lived, read-only connection to MySQL or MariaDB for one tool call.

The guards, in the order in which they are trusted: the account's own rights (dangerous ones are refused); a READ ONLY
session with a READ ONLY transaction in it, which the server confirms with every answer, and without which nothing
more is sent; one statement a message, proven on each connection; time-outs on the server. The driver leaves a
statement running when its coroutine is cancelled, so the session is then killed through a second connection.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from agent_core.errors import ToolFailed
from bot.tools.mysql.address import Place, list_places
from bot.tools.mysql.failures import (
    explain_connect_error,
    explain_error,
    explain_silence,
    explain_timeout,
    number_of,
)
from bot.tools.mysql.privileges import refuse_risks
from bot.tools.mysql.session import (
    BEGIN,
    GRACE_S,
    GRANTS,
    ID,
    IDENTITY,
    OWN_MARK,
    SESSION,
    TWO,
    Flavor,
    build_settings,
    check_parameters,
    measure,
    read_columns,
    read_version,
)
from bot.tools.shown_sql import note_sql, write_sent
from bot.tools.slow_logs.mysql_text import redact_mysql
from bot.tools.targets import Target

if TYPE_CHECKING:
    from bot.tools.mysql.driver import GuardedConnection

__all__ = ["OLDEST", "OWN_MARK", "Flavor", "MySqlReadOnly", "Row", "open_mysql"]

Row = Mapping[str, object]

OLDEST: Mapping[Flavor, tuple[int, int, int]] = {"mysql": (8, 0, 0), "mariadb": (10, 6, 0)}
"""The oldest versions whose performance_schema and EXPLAIN these tools know."""

_KILL_S = 3.0
_CLOSE_S = 1.0
_NAMES: Mapping[Flavor, str] = {"mysql": "MySQL", "mariadb": "MariaDB"}
# What the driver's reading of the protocol raises on bytes that make no sense, beside its own errors.
_BROKEN = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    LookupError,
    ArithmeticError,
    struct.error,
    AssertionError,
)
_T = TypeVar("_T")


class MySqlReadOnly:
    """An open READ ONLY transaction on a target; use it from one coroutine at a time.

    Args:
        target: what it is connected to.
        flavor: which of the two servers it is.
        version: as people write it: ``10.11.19``.
        version_num: the same as numbers.
        connection_id: of the session, as in SHOW PROCESSLIST.
    """

    def __init__(
        self,
        connection: GuardedConnection,
        place: Place,
        target: Target,
        *,
        statement_timeout_s: float,
        connect_timeout_s: int,
    ) -> None:
        self._connection = connection
        self._place = place
        self._timeout_s = statement_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._failed = False  # the last statement did
        self._set = False  # a statement without columns may have changed the session
        self._spent = False
        self._identity: tuple[object, ...] = ()
        self.target = target
        self.flavor, self.version, self.version_num = read_version(str(connection.server_version))
        self.connection_id = 0

    async def fetch(self, query: str, parameters: Sequence[object] = (), *, own: bool = True) -> list[Row]:
        """Run one statement and return all its rows, by column name.

        Args:
            query: one statement; with ``parameters``, ``%s`` stands for each and ``%%`` for a percent sign.
            parameters: texts, bytes, numbers, times or None. The driver writes them into the statement.
            own: it is a query of ours with nothing in it that was passed in, so it may be shown as it is.

        Raises:
            ToolFailed: see ``failures``; ``statement_timeout`` also where the server broke the statement off and
                sent what it had as if that were the answer.
            TypeError: a parameter is of another kind, for example a dict, whose keys the driver does not escape.
        """
        note_sql(lambda: write_sent(query, parameters) if own else redact_mysql(query))
        values = check_parameters(parameters)
        columns, rows, _ = await self._guarded(lambda: self._read_all(query, values))
        return [dict(zip(columns, row, strict=True)) for row in rows]

    async def fetch_one(self, query: str, parameters: Sequence[object] = (), *, own: bool = True) -> Row | None:
        """Run one statement and return its first row, or None; see ``fetch``."""
        rows = await self.fetch(query, parameters, own=own)
        return rows[0] if rows else None

    async def fetch_capped(
        self, statement: str, parameters: Sequence[object] = (), *, most_rows: int, most_bytes: int
    ) -> tuple[tuple[str, ...], list[tuple[object, ...]], bool]:
        """Run one statement and read its rows until a bound is reached.

        Returns:
            The columns' names, the rows, and whether there were more. The bytes of a row are those of its values as
            text. After a cut answer the session is ended, so nothing more can be asked on this connection.

        Raises:
            ToolFailed, TypeError: as for ``fetch``.
        """
        note_sql(lambda: redact_mysql(statement))
        values = check_parameters(parameters)
        return await self._guarded(lambda: self._read_capped(statement, values, most_rows, most_bytes))

    # -- entering and leaving ----------------------------------------------------------------------

    async def enter(self) -> None:
        """Check the server and the account, and begin; called once by ``open_mysql``."""
        oldest = OLDEST[self.flavor]
        if self.version_num < oldest:
            raise ToolFailed(
                f"target {self.target.name!r} runs {_NAMES[self.flavor]} {self.version}; "
                f"version {oldest[0]}.{oldest[1]} or later is needed",
                code="unsupported_version",
                fix="upgrade the server",
            )
        await self._prove_one_statement()
        await self._guarded(lambda: self._read_all(build_settings(self.flavor, self._timeout_s)), entering=True)
        await self._guarded(lambda: self._read_all(SESSION), entering=True)
        _, grants, _ = await self._guarded(lambda: self._read_all(GRANTS), entering=True)
        refuse_risks([str(grant) for (grant, *_) in grants], self.target)
        await self._begin()
        self._identity = await self._ask_identity(self._connection)
        row = await self.fetch_one(ID)
        if row is None or not isinstance(number := row["hermod_id"], int):
            raise explain_error(OSError(), self.target)
        self.connection_id = number

    async def leave(self) -> None:
        """Say goodbye, so that the server does not count a broken connection; bounded."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._connection.ensure_closed()
        except (*_BROKEN, TimeoutError):
            self._connection.close()

    async def _prove_one_statement(self) -> None:
        """Two statements in one message have to be a syntax error."""
        try:
            await self._guarded(lambda: self._read_all(TWO), entering=True)
        except ToolFailed as failure:
            if failure.code == "parse_failed":
                return
            raise
        raise ToolFailed(
            f"target {self.target.name!r}: the server, or a proxy in front of it, takes several statements at once",
            code="multiple_statements",
            fix="connect to the server itself, not through the proxy",
        )

    async def _begin(self) -> None:
        await self._guarded(lambda: self._read_all(BEGIN), entering=True)
        self._failed = self._set = False

    # -- one statement -----------------------------------------------------------------------------

    async def _guarded(self, run: Callable[[], Awaitable[_T]], *, entering: bool = False) -> _T:
        """Run one exchange with everything that has to hold before, during and after it."""
        from bot.tools.mysql.driver import MySQLError, PacketTooLarge

        if not entering:
            await self._check_read_only()
        clock = asyncio.get_running_loop()
        began = clock.time()
        try:
            async with asyncio.timeout(self._timeout_s + GRACE_S):
                result = await run()
        except TimeoutError:
            await self._abandon()
            raise explain_silence(self.target) from None
        except (MySQLError, PacketTooLarge, *_BROKEN) as error:
            if not isinstance(error, MySQLError) or number_of(error) in (0, 2006, 2013):
                await self._abandon()
            self._failed = True
            raise explain_error(error, self.target) from None
        except BaseException:
            await self._abandon()
            raise
        if clock.time() - began >= self._timeout_s and not entering:
            # BENCHMARK() and SLEEP() come back early and without an error when the server's time-out strikes.
            self._failed = True
            raise explain_timeout(self.target)
        return result

    async def _check_read_only(self) -> None:
        if self._spent:
            raise ToolFailed(
                f"target {self.target.name!r}: this connection has ended", code="connect_failed", retryable=True
            )
        if self._failed:
            # An error may have ended the transaction, and its answer does not say so.
            await self._guarded(lambda: self._read_all(SESSION), entering=True)
            await self._begin()
        if not self._connection.is_read_only:
            await self._abandon()
            raise ToolFailed(
                f"target {self.target.name!r}: the statement before this one ended the read-only transaction",
                code="not_read_only",
                fix="pass a statement that only reads",
            )
        if self._set:
            # SET SESSION TRANSACTION READ WRITE is allowed inside, for what a DDL statement then begins.
            await self._guarded(lambda: self._read_all(SESSION), entering=True)
            self._set = False

    async def _read_all(
        self, query: str, values: tuple[object, ...] | None = None
    ) -> tuple[tuple[str, ...], list[tuple[object, ...]], bool]:
        async with self._connection.buffered() as cursor:
            await cursor.execute(query, values)
            rows = [tuple(row) for row in await cursor.fetchall()]
            columns = read_columns(cursor.description)
            self._set = self._set or not columns
            return columns, rows, False

    async def _read_capped(
        self, statement: str, values: tuple[object, ...] | None, most_rows: int, most_bytes: int
    ) -> tuple[tuple[str, ...], list[tuple[object, ...]], bool]:
        from bot.tools.mysql.driver import LARGEST_PACKET_BYTES, PacketTooLarge

        rows: list[tuple[object, ...]] = []
        left = most_bytes
        cursor = self._connection.streaming()
        # A row that is too large is not read into memory; the margin is for what surrounds the values.
        self._connection.most_packet_bytes = most_bytes + 64 * 1024
        columns: tuple[str, ...] = ()
        try:
            await cursor.execute(statement, values)
            columns = read_columns(cursor.description)
            while columns and (row := await cursor.fetchone()) is not None:
                left -= sum(measure(value) for value in row)
                if len(rows) == most_rows or left < 0:
                    raise PacketTooLarge
                rows.append(tuple(row))
        except PacketTooLarge:
            await self._abandon()
            return columns, rows, True
        finally:
            self._connection.most_packet_bytes = LARGEST_PACKET_BYTES
        await cursor.close()
        self._set = self._set or not columns
        return columns, rows, False

    # -- ending what runs --------------------------------------------------------------------------

    async def _abandon(self) -> None:
        """Hang up, and end the session on the server, also while our own task is being cancelled; bounded."""
        if self._spent:
            return
        self._spent = True
        self._connection.close()
        if not self.connection_id:
            return
        task = asyncio.ensure_future(self._kill())
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:  # the caller raises what it is already raising
                continue

    async def _kill(self) -> None:
        """KILL through a second connection.

        The session is killed, not only its query: KILL QUERY does nothing to a statement that the server has not
        begun to read yet. Any account may kill its own sessions.
        """
        from bot.tools.mysql.driver import MySQLError

        try:
            async with asyncio.timeout(_KILL_S):
                side = await _connect(self._place, self._connect_timeout_s)
                try:
                    if await self._ask_identity(side) == self._identity:  # behind one address there may be several
                        async with side.buffered() as cursor:
                            await cursor.execute(f"KILL {self.connection_id:d}")
                finally:
                    await side.ensure_closed()
        except (MySQLError, *_BROKEN):
            return  # it has ended already, or the server's own time-out ends it

    async def _ask_identity(self, connection: GuardedConnection) -> tuple[object, ...]:
        async with connection.buffered() as cursor:
            await cursor.execute(IDENTITY)
            row = await cursor.fetchone()
            return tuple(row or ())


@asynccontextmanager
async def open_mysql(
    target: Target, *, statement_timeout_s: float = 10.0, connect_timeout_s: int = 5
) -> AsyncIterator[MySqlReadOnly]:
    """Connect, enter a READ ONLY transaction, and end it with the connection.

    Args:
        target: a MySQL or MariaDB target.
        statement_timeout_s: for each statement, on the server; waiting for a lock may take a fifth of it (at least
            a second).
        connect_timeout_s: for each of the target's hosts, with the handshake.

    Raises:
        ToolFailed: ``missing_extra``, ``connect_failed``, ``auth_failed``, ``unsupported_version``,
            ``dangerous_role``, and what ``failures.explain_error`` names. Neither address nor password is in any
            message.
    """
    place, connection = await _connect_first(target, connect_timeout_s)
    opened = MySqlReadOnly(
        connection, place, target, statement_timeout_s=statement_timeout_s, connect_timeout_s=connect_timeout_s
    )
    try:
        await opened.enter()
        yield opened
    finally:
        await opened.leave()


async def _connect_first(target: Target, connect_timeout_s: int) -> tuple[Place, GuardedConnection]:
    """Connect to the first of the target's places that answers."""
    try:
        from bot.tools.mysql.driver import MySQLError, PacketTooLarge, Rejected
    except ImportError as error:
        raise ToolFailed(
            "the MySQL driver is not installed",
            code="missing_extra",
            fix="pip install 'hermod-bot[mysql]', then start again",
        ) from error
    failure: ToolFailed | None = None
    for place in list_places(target):
        try:
            return place, await _connect(place, connect_timeout_s)
        except (MySQLError, PacketTooLarge, Rejected, *_BROKEN) as error:
            failure = explain_connect_error(error, target, plain=place.tls is None and not place.verified)
            if failure.code != "connect_failed":
                break
    raise failure or explain_connect_error(OSError(), target)


async def _connect(place: Place, timeout_s: int) -> GuardedConnection:
    from bot.tools.mysql.driver import GuardedConnection

    connection = GuardedConnection(
        tls=place.tls, tls_optional=place.tls_optional, verified=place.verified, options=place.options
    )
    task = asyncio.current_task()
    cancels = 0 if task is None else task.cancelling()
    async with asyncio.timeout(timeout_s):  # the driver's own bound ends before the greeting
        await connection.connect()
    if task is not None and task.cancelling() > cancels:
        # asyncio.wait_for, which the driver uses, loses a cancel that comes at the moment of success (Python 3.11,
        # https://github.com/python/cpython/issues/86296); the call would go on as if nobody had cancelled it.
        connection.close()
        raise asyncio.CancelledError
    return connection
