"""``run_readonly_sql`` on MySQL and MariaDB.

The guards, in the order in which they are trusted: the account's own rights (``open_mysql`` refuses dangerous ones);
the READ ONLY transaction, one statement a message and the time-outs on the server, all of ``open_mysql``; the policy on
tokens and tree (``policy_mysql``); stored functions and views (``mysql_lookups``); the bounds on rows and bytes while
they are read. What READ ONLY alone lets through on these servers, the policy has to stop: DROP and CREATE, INTO
OUTFILE, SET GLOBAL, KILL, GET_LOCK, sequences.

One bound is the servers' own: they look at a time-out between rows and operations, so one call on texts of megabytes
(LOCATE of one in another) goes on in its killed session until it is done. Nothing is read or written by it meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.tools.mysql.connection import MySqlReadOnly, open_mysql
from bot.tools.readonly_sql.answer import MOST_BYTES, Sheet, SqlRequest, SqlRows
from bot.tools.readonly_sql.mysql_lexer import Kind, Token, join_tokens
from bot.tools.readonly_sql.mysql_lookups import AMBIGUOUS_MODES, refuse_hidden_writers
from bot.tools.readonly_sql.mysql_tables import SECRET_VARIABLE, reads_variables, refuse_secrets
from bot.tools.readonly_sql.policy_mysql import CheckedMySql, check_mysql
from bot.tools.targets import Target

# Values are shortened only after they were read; a row of long texts may be longer than an answer.
_MOST_READ_BYTES = 8 * MOST_BYTES

_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (int, "integer"),
    (float, "double"),
    (Decimal, "decimal"),
    (datetime, "datetime"),
    (date, "date"),
    (timedelta, "time"),
    (bytes, "binary"),
)


async def run_on_mysql(target: Target, clock: Clock, request: SqlRequest) -> SqlRows:
    """Run a request on a MySQL or MariaDB target.

    Raises:
        ToolFailed: what ``check_mysql``, ``refuse_hidden_writers`` and ``open_mysql`` raise, ``bad_parameters`` where
            parameters and ``?`` do not agree, ``statement_timeout``.
    """
    began = clock.monotonic()
    checked = await asyncio.to_thread(check_mysql, request.sql, database=target.database)
    statement, parameters = _bind(checked, request)
    sheet = Sheet(max_rows=request.max_rows)
    async with open_mysql(target, statement_timeout_s=request.timeout_s) as db:
        await _look_up(db, checked)
        columns, rows, more = await db.fetch_capped(
            statement, parameters, most_rows=request.max_rows, most_bytes=_MOST_READ_BYTES
        )
        flavor, version = db.flavor, db.version
    for row in rows:
        if not sheet.add([_plain(value) for value in row]):
            break
    if more and len(rows) < request.max_rows:
        sheet.full_of_bytes = True
    sheet.more_rows = sheet.more_rows or more
    warnings = sheet.warnings()
    if checked.hints_left_out:
        warnings += ("optimizer hints were left out of the statement",)
    return SqlRows(
        target=target.name,
        engine=flavor,
        engine_version=version,
        source="the statement, in a READ ONLY transaction",
        truncated=sheet.truncated,
        warnings=warnings,
        took_ms=round((clock.monotonic() - began) * 1000, 1),
        columns=columns,
        types=_name_types(rows, len(columns)),
        rows=sheet.rows,
        row_count=len(sheet.rows),
        more_rows=sheet.more_rows,
        cells_cut=sheet.cells_cut,
        sql=checked.text,
    )


async def _look_up(db: MySqlReadOnly, checked: CheckedMySql) -> None:
    """Judge what only the server knows, and make sure that it reads quotes as the lexer did."""
    row = await db.fetch_one("select database() as place, @@sql_mode as mode")
    place, mode = ("", "") if row is None else (str(row["place"] or ""), str(row["mode"]))
    if any(word in mode for word in AMBIGUOUS_MODES):
        raise ToolFailed(
            f"target {db.target.name!r}: the server reads quotes in its own way (sql_mode {mode})",
            code="parse_failed",
            fix="remove ANSI_QUOTES and NO_BACKSLASH_ESCAPES from the sql_mode of the account's sessions",
        )
    names = frozenset(token.name for token in checked.tokens if token.name)
    refuse_secrets(checked.tables, names, all_columns=checked.all_columns, database=place, mysql_8=db.flavor == "mysql")
    if reads_variables(checked.tokens, checked.tables):
        row = await db.fetch_one(f"SHOW GLOBAL VARIABLES LIKE '{SECRET_VARIABLE}'")
        if row is not None and row["Value"]:
            raise ToolFailed(
                f"target {db.target.name!r}: {SECRET_VARIABLE} is set on this server, and the statement may show it",
                code="insufficient_privilege",
                fix=f"remove {SECRET_VARIABLE} from the server's options, or read others as SELECT @@NAME",
            )
    await refuse_hidden_writers(db, checked, database=place)


def _bind(checked: CheckedMySql, request: SqlRequest) -> tuple[str, tuple[object, ...]]:
    """The statement as the driver takes it: ``%s`` for values, which it writes in, and then ``%%`` for ``%``."""
    if checked.placeholders != len(request.parameters):
        raise ToolFailed(
            f"the statement has {checked.placeholders} ? and {len(request.parameters)} values came with it",
            code="bad_parameters",
            fix="write ? for each value, outside of quotes, and pass as many values in params",
        )
    if not request.parameters:
        return checked.text, ()
    bound = [
        Token(Kind.SYMBOL, "%s", True)
        if token.is_symbol("?")
        else Token(token.kind, token.text.replace("%", "%%"), token.gap)
        for token in checked.tokens
    ]
    return join_tokens(bound), tuple(request.parameters)


def _plain(value: object) -> object:
    """Times as the servers write them; a BIT(1), which is how they keep booleans, as 0 or 1."""
    if isinstance(value, timedelta):
        return _write_time(value)
    if isinstance(value, bytes) and value in (b"\0", b"\1"):
        return value[0]
    return value


def _write_time(value: timedelta) -> str:
    whole = abs(value)
    seconds = whole.days * 86_400 + whole.seconds
    part = f".{whole.microseconds:06d}" if whole.microseconds else ""
    sign = "-" if value < timedelta(0) else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{part}"


def _name_types(rows: Sequence[tuple[object, ...]], width: int) -> tuple[str, ...]:
    """The kinds of the values that came; the driver tells no more."""
    return tuple(next((_name_type(row[at]) for row in rows if row[at] is not None), "null") for at in range(width))


def _name_type(value: object) -> str:
    return next((name for kind, name in _TYPE_NAMES if isinstance(value, kind)), "text")
