"""One short-lived, read-only connection for one tool call.

The guards, in the order in which they are trusted: the role's own rights; a READ ONLY transaction that is
entered with a statement in it, so that nothing can turn it back (SQLSTATE 25001); one statement a message for
what comes from outside; time-outs on the server. A cancelled coroutine cancels on the server too (psycopg does).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agent_core.errors import ToolFailed
from bot.tools.shown_sql import note_sql, write_sent
from bot.tools.slow_queries.failures import explain_connect_error, explain_error, explain_silence
from bot.tools.slow_queries.redact_sql import redact_sql
from bot.tools.targets import Target

if TYPE_CHECKING:
    from psycopg import AsyncConnection, AsyncCursor
    from psycopg.rows import DictRow
    from psycopg.sql import Composed

OLDEST_SERVER = 12
"""The oldest major version of Postgres whose views and EXPLAIN these tools know."""

# Inside a statement, because newer servers leave out a comment that stands before it.
OWN_MARK = "/* hermod */"

OWN_APPLICATION = "hermod"
"""``application_name`` of these connections."""

GRACE_S = 3.0
"""How much longer than the server's own time-out an answer is waited for, before the server counts as hung."""

SUPERUSER_RISK = "superuser"
"""What ``Target.accept_risks`` calls it."""

# In the query that is made anyway. The role that logged in counts as well: RESET ROLE leads back to it.
_SUPERUSER = """pg_catalog.current_setting('is_superuser')::pg_catalog.bool or (select r.rolsuper
  from pg_catalog.pg_roles r where r.rolname operator(pg_catalog.=) session_user) as superuser"""

Row = Mapping[str, object]


class ReadOnly:
    """An open READ ONLY transaction on a target.

    Args:
        connection: the psycopg connection; only ``explain`` needs it directly.
        target: what it is connected to.
        patience_s: how long the answer to one statement is waited for.
        version_num: the server's version as ``server_version_num`` has it, for example 180006.
    """

    def __init__(self, connection: AsyncConnection[DictRow], target: Target, *, patience_s: float) -> None:
        self.connection = connection
        self.target = target
        self._patience_s = patience_s
        self.version_num = connection.info.server_version

    @property
    def version(self) -> str:
        """The server's version as people write it: ``18.6``."""
        return f"{self.version_num // 10_000}.{self.version_num % 10_000}"

    async def execute(
        self,
        statement: bytes | Composed,
        parameters: Sequence[object] = (),
        *,
        prepare: bool | None = None,
        own: bool = False,
    ) -> AsyncCursor[DictRow]:
        """Run a statement, and hang up when no answer comes: a hung server keeps no time-out of its own.

        ``own``: it is a query of ours with nothing in it that was passed in, so it may be shown as it is.

        Raises:
            ToolFailed: ``connect_failed``, when the server has stopped answering.
            psycopg.Error: whatever else went wrong, for ``failures.explain_error``.
        """
        import psycopg

        note_sql(lambda: self._write(statement, parameters, own=own))
        loop, hung_up = asyncio.get_running_loop(), False

        def hang_up() -> None:
            nonlocal hung_up
            hung_up = True
            # Closing would free a file descriptor that the event loop still watches; this wakes psycopg instead.
            with socket.socket(fileno=os.dup(self.connection.fileno())) as double:
                double.shutdown(socket.SHUT_RDWR)

        timer = loop.call_later(self._patience_s, hang_up)
        try:
            return await self.connection.execute(statement, parameters or None, prepare=prepare)
        except psycopg.Error:
            if hung_up:
                raise explain_silence(self.target) from None
            raise
        finally:
            timer.cancel()

    def _write(self, statement: bytes | Composed, parameters: Sequence[object], *, own: bool) -> str:
        text = statement.decode() if isinstance(statement, bytes) else statement.as_string(self.connection)
        return write_sent(text, parameters) if own else redact_sql(text)

    async def fetch(self, query: str | Composed, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one of our own queries and return its rows.

        Raises:
            ToolFailed: see ``failures.explain_error``.
        """
        import psycopg

        try:
            statement = query.encode() if isinstance(query, str) else query
            cursor = await self.execute(statement, parameters, own=True)
            return list(await cursor.fetchall())
        except psycopg.Error as error:
            raise explain_error(error, self.target) from None

    async def fetch_one(self, query: str | Composed, parameters: Sequence[object] = ()) -> Row | None:
        """Run one of our own queries and return its first row, or None."""
        rows = await self.fetch(query, parameters)
        return rows[0] if rows else None


@asynccontextmanager
async def open_read_only(
    target: Target, *, own_queries: bool = True, statement_timeout_s: float = 10.0, connect_timeout_s: int = 5
) -> AsyncIterator[ReadOnly]:
    """Connect, enter a READ ONLY transaction, and roll it back at the end.

    Args:
        target: a Postgres target.
        own_queries: look names up in ``pg_catalog`` only; false keeps the role's ``search_path``.
        statement_timeout_s: for each statement, on the server; waiting for a lock may take a fifth of it.
        connect_timeout_s: for each of the target's hosts.

    Raises:
        ToolFailed: ``missing_extra``, ``connect_failed``, ``auth_failed``, ``unsupported_version``,
            ``dangerous_role``, and what ``failures.explain_error`` names. Neither address nor password is in any
            message.
    """
    try:
        import psycopg
        from psycopg.conninfo import make_conninfo
        from psycopg.rows import dict_row
    except ImportError as error:
        raise ToolFailed(
            "the Postgres driver is not installed",
            code="missing_extra",
            fix="pip install 'hermod-bot[postgres]', then start again",
        ) from error
    try:
        connection = await psycopg.AsyncConnection.connect(
            make_conninfo(**_parameters(target, connect_timeout_s)),
            autocommit=True,  # we say BEGIN ourselves
            prepare_threshold=None,  # nothing is kept prepared, so poolers in transaction mode work
            row_factory=dict_row,
        )
    except (psycopg.Error, UnicodeError, ValueError) as error:
        raise explain_connect_error(error, target) from None
    try:
        opened = ReadOnly(connection, target, patience_s=statement_timeout_s + GRACE_S)
        if opened.version_num < OLDEST_SERVER * 10_000:
            raise ToolFailed(
                f"target {target.name!r} runs Postgres {opened.version}; version {OLDEST_SERVER} or later is needed",
                code="unsupported_version",
                fix="upgrade the server",
            )
        try:
            cursor = await opened.execute(_enter(statement_timeout_s, own_queries=own_queries).encode(), own=True)
            cursor.nextset()  # the first is BEGIN's
            _check_role(target, await cursor.fetchone())
        except psycopg.Error as error:
            raise explain_error(error, target) from None
        yield opened
    finally:
        # Closing ends the transaction on the server; a ROLLBACK would be one more wait that can hang.
        await connection.close()


def _enter(statement_timeout_s: float, *, own_queries: bool) -> str:
    """Begin, and make the transaction's first query at once: after one, READ ONLY cannot be turned back."""
    timeout_ms = int(statement_timeout_s * 1000)
    settings = {
        "statement_timeout": str(timeout_ms),
        "lock_timeout": str(timeout_ms // 5),
        "idle_in_transaction_session_timeout": str(timeout_ms),
        "standard_conforming_strings": "on",
        "client_min_messages": "error",
    }
    if own_queries:
        settings["search_path"] = "pg_catalog"
    calls = ", ".join(f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in settings.items())
    return f"begin {OWN_MARK} transaction read only; select {OWN_MARK} {calls}, {_SUPERUSER}"


def _check_role(target: Target, row: Row | None) -> None:
    """Refuse a superuser, who could leave every guard but the first, unless the operator accepts that."""
    if SUPERUSER_RISK in target.accept_risks or (row is not None and row["superuser"] is False):
        return
    raise ToolFailed(
        f"target {target.name!r}: its role is a superuser, whom nothing on the server holds back",
        code="dangerous_role",
        fix=f"use the role that 'hermod targets grant {target.name}' makes, or set accept_risks = "
        f'["{SUPERUSER_RISK}"] in [targets.{target.name}]',
    )


def _parameters(target: Target, connect_timeout_s: int) -> dict[str, str]:
    """Connection parameters in libpq's names; what is empty is left to libpq."""
    named: dict[str, str | None] = {
        "host": target.host,
        "port": target.port,
        "user": target.user,
        "dbname": target.database,
        "password": None if target.password is None else target.password.get_secret_value(),
        "sslmode": target.sslmode,
    }
    return {
        **target.options,
        **{key: value for key, value in named.items() if value},
        "connect_timeout": str(connect_timeout_s),
        "application_name": OWN_APPLICATION,
        "client_encoding": "utf8",
    }
