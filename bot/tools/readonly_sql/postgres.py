"""``run_readonly_sql`` on Postgres.

The layers, in the order in which they are trusted: the role; a READ ONLY transaction that cannot be turned back
(``open_read_only``); one statement a message, by the extended protocol; the parse tree and what its names mean on the
server; time-outs; a cursor on the server, so that no more rows come over than are asked for, and no longer texts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.answer import (
    MOST_BYTES,
    MOST_CELL_CHARS,
    Parameter,
    Sheet,
    SqlRequest,
    SqlRows,
    note_binary,
)
from bot.tools.readonly_sql.policy_postgres import Statement, has_foreign_words, inspect_statement
from bot.tools.readonly_sql.postgres_catalog import check_settings, check_uses
from bot.tools.readonly_sql.postgres_failures import explain_query_error, explain_slowness
from bot.tools.readonly_sql.postgres_role import enter_session
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly, open_read_only
from bot.tools.targets import Target

if TYPE_CHECKING:
    from psycopg import AsyncCursor

SOURCE = "the statement, run in a READ ONLY transaction that was rolled back"

_LOOK = "declare hermod_look no scroll cursor without hold for "
_ROWS = "declare hermod_rows no scroll cursor without hold for "
_SLACK_S = 1.0
"""How much later than the server's own time-out the whole statement is given up: it holds for each batch of rows."""

# Types with short texts, by their numbers in the server's catalog/pg_type.dat; every other text is cut on the server.
_BOOL, _BYTEA = 16, 17
_INTEGERS = frozenset({20, 21, 23, 26})
_FLOATS = frozenset({700, 701})
_INSTANTS = frozenset({1114, 1184})
_SHORT = frozenset({18, 19, 27, 28, 29, 790, 829, 869, 650, 1082, 1083, 1186, 1266, 2278, 2950, 3220})
_SHORT_BYTES = 64

_INSTANT = re.compile(r"(\d{4,}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)(\+00)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """``size_at``: where the hidden column with the whole length of a text stands, if there is one."""

    name: str
    oid: int
    type_name: str
    size_at: int | None = None

    @property
    def whole(self) -> bool:
        """Nothing of it is ever cut."""
        return self.oid in (_BOOL, _BYTEA) or self.oid in _INTEGERS | _FLOATS | _INSTANTS | _SHORT

    def read(self, raw: bytes | None) -> object:
        """Read a value from the text that the server sent."""
        if raw is None:
            return None
        text = raw.decode(errors="replace")
        if (convert := _READERS.get(self.oid)) is not None:
            return convert(text)
        return text


def _read_instant(text: str) -> str:
    """ISO 8601; what has no such form (infinity, years before Christ) stays as it is."""
    match = _INSTANT.fullmatch(text)
    return text if match is None else f"{match[1]}T{match[2]}{'Z' if match[3] else ''}"


_READERS: Mapping[int, Callable[[str], object]] = {
    _BOOL: lambda text: text == "t",
    _BYTEA: lambda text: note_binary(int(text)),
    **dict.fromkeys(_INTEGERS, int),
    **dict.fromkeys(_FLOATS, float),
    **dict.fromkeys(_INSTANTS, _read_instant),
}


async def run_on_postgres(target: Target, clock: Clock, request: SqlRequest) -> SqlRows:
    """Run one statement that only reads.

    Raises:
        ToolFailed: ``not_read_only``, ``not_allowed``, ``multiple_statements``, ``parse_failed``, ``dangerous_role``,
            ``insufficient_privilege``, ``statement_timeout``, ``lock_timeout``, ``query_failed`` (the server could
            not work it out: a division by zero), and what ``open_read_only`` raises. No message holds data.
    """
    began = clock.monotonic()
    statement = inspect_statement(request.sql)
    parameters = _check_parameters(statement, request.parameters)
    async with open_read_only(target, own_queries=False, statement_timeout_s=request.timeout_s) as db:
        role = await enter_session(db)
        if statement.kind == "show":
            columns, sheet = await _show(db, statement, request)
        else:
            _check_words(db, statement)
            await check_uses(db, statement.uses)
            columns, sheet = await _query(db, statement, parameters, request)
        version = db.version
    return SqlRows(
        target=target.name,
        engine="postgresql",
        engine_version=version,
        source=SOURCE,
        sql=statement.sql,
        columns=tuple(column.name for column in columns),
        types=tuple(column.type_name for column in columns),
        rows=sheet.rows,
        row_count=len(sheet.rows),
        more_rows=sheet.more_rows,
        cells_cut=sheet.cells_cut,
        truncated=sheet.truncated,
        warnings=(*sheet.warnings(), *role.warnings()),
        took_ms=round((clock.monotonic() - began) * 1000, 1),
    )


def _check_words(db: ReadOnly, statement: Statement) -> None:
    encoding = db.connection.info.parameter_status("server_encoding")
    if encoding != "UTF8" and has_foreign_words(statement.sql):
        raise ToolFailed(
            f"this database stores texts as {encoding or 'it does not say'}, and may read unquoted names beyond ASCII "
            "in another way",
            code="parse_failed",
            fix='put such names into double quotes: "..."',
        )


def _check_parameters(statement: Statement, given: Sequence[Parameter]) -> list[str | None]:
    """Write the values as texts, for the server to read as what the statement needs."""
    if len(given) != statement.parameters:
        raise ToolFailed(
            f"the statement has {statement.parameters} parameters ($1, $2, ...), and {len(given)} values were passed",
            code="parse_failed",
            fix="pass one value in params for each of them",
        )
    values: list[str | None] = []
    for value in given:
        text = None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        if text is not None and ("\0" in text or not _is_whole(text)):
            raise ToolFailed("a value holds a character that Postgres cannot store", code="parse_failed")
        values.append(text)
    return values


def _is_whole(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


async def _show(db: ReadOnly, statement: Statement, request: SqlRequest) -> tuple[Sequence[_Column], Sheet]:
    await check_settings(db, statement.uses.settings)
    sheet = Sheet(max_rows=request.max_rows)
    for name in statement.uses.settings:
        row = await db.fetch_one(f"select {OWN_MARK} pg_catalog.current_setting(%s, true) as value", (name,))
        if row is None or row["value"] is None:
            raise ToolFailed("there is no such setting", code="parse_failed", fix="look its name up in pg_settings")
        sheet.add((str(row["value"]),))
    return [_Column(name=name, oid=25, type_name="text") for name in statement.uses.settings], sheet


async def _query(
    db: ReadOnly, statement: Statement, parameters: list[str | None], request: SqlRequest
) -> tuple[Sequence[_Column], Sheet]:
    import psycopg

    try:
        async with asyncio.timeout(request.timeout_s + _SLACK_S):
            try:
                columns = await _look(db, statement.sql, parameters)
                return columns, await _read(db, statement.sql, parameters, columns, request)
            except psycopg.Error as error:
                offset = len(_LOOK) - statement.start
                raise explain_query_error(error, db.target, request.sql, offset=offset) from None
    except TimeoutError:
        raise explain_slowness(db.target) from None


async def _look(db: ReadOnly, sql: str, parameters: list[str | None]) -> list[_Column]:
    """Let the server say what columns the statement has; nothing of it is run yet."""
    await _declare(db, f"{_LOOK}{sql}\n", parameters)
    # No row is fetched, but the answer describes them; text results, whatever their types.
    cursor = await db.execute(b"fetch forward 0 from hermod_look")
    described = [(column.name, column.type_code, column.type_display) for column in cursor.description or []]
    await db.execute(b"close hermod_look")
    named = await _name_types(db, [oid for _, oid, display in described if display.isdigit()])
    return [_Column(name=name, oid=oid, type_name=named.get(oid, display)) for name, oid, display in described]


async def _name_types(db: ReadOnly, oids: Sequence[int]) -> Mapping[int, str]:
    """The names of types that are the database's own."""
    if not oids:
        return {}
    rows = await db.fetch(
        f"select {OWN_MARK} o::bigint as oid, pg_catalog.format_type(o, null) as name from unnest(%s::oid[]) as o",
        (list(oids),),
    )
    return {int(str(row["oid"])): str(row["name"]) for row in rows}


async def _read(
    db: ReadOnly, sql: str, parameters: list[str | None], columns: Sequence[_Column], request: SqlRequest
) -> Sheet:
    """Fetch rows, in batches that cannot be large, until there are enough."""
    cell_chars = max(64, min(MOST_CELL_CHARS, MOST_BYTES // (4 * max(1, len(columns)))))
    wrapped, columns = _wrap(sql, columns, cell_chars)
    await _declare(db, f"{_ROWS}{wrapped}", parameters)
    sheet = Sheet(max_rows=request.max_rows, most_cell_chars=cell_chars)
    row_bytes = sum(_SHORT_BYTES if column.whole else 4 * cell_chars for column in columns) or 1
    while True:
        batch = max(1, min(request.max_rows + 1, MOST_BYTES // row_bytes))
        cursor = await db.execute(b"fetch forward %d from hermod_rows" % batch)
        count = _take(cursor, columns, sheet)
        if sheet.more_rows or count < batch:
            return sheet


def _take(cursor: AsyncCursor[object], columns: Sequence[_Column], sheet: Sheet) -> int:
    """Put the rows of a batch onto the sheet; the values are read as the texts that came."""
    result = cursor.pgresult
    if result is None:
        return 0
    for row in range(result.ntuples):
        if not sheet.add([column.read(result.get_value(row, at)) for at, column in enumerate(columns)]):
            break
        for at, column in enumerate(columns):
            if column.size_at is not None and (size := result.get_value(row, column.size_at)) is not None:
                shown = result.get_value(row, at) or b""
                sheet.count_cut(int(size) - len(shown))
    return result.ntuples


def _wrap(sql: str, columns: Sequence[_Column], cell_chars: int) -> tuple[str, list[_Column]]:
    """Put the statement into one that cuts long texts on the server, with hidden columns for what was cut.

    ``offset 0`` keeps the planner from merging the two, which would work some expressions out twice.
    """
    if not columns:
        return f"{sql}\n", []
    names = [f"c{number}" for number in range(1, len(columns) + 1)]
    shown: list[str] = []
    hidden: list[str] = []
    placed: list[_Column] = []
    for name, column in zip(names, columns, strict=True):
        if column.oid == _BYTEA:
            shown.append(f"pg_catalog.octet_length({name})")
        elif column.whole:
            shown.append(name)
        else:
            text = f"{name}::pg_catalog.text"
            shown.append(f"pg_catalog.left({text}, {cell_chars})")
            hidden.append(
                f"case when pg_catalog.length({text}) operator(pg_catalog.>) {cell_chars} "
                f"then pg_catalog.octet_length({text}) end"
            )
            at = len(names) + len(hidden) - 1
            placed.append(replace(column, size_at=at))
            continue
        placed.append(column)
    selected = ", ".join([*shown, *hidden])
    return f"select {selected} from (select * from (\n{sql}\n) as q offset 0) as t ({', '.join(names)})", placed


async def _declare(db: ReadOnly, statement: str, parameters: list[str | None]) -> None:
    """Declare a cursor over the protocol that takes exactly one statement."""
    from psycopg import AsyncRawCursor

    class OneStatement(AsyncRawCursor[object]):
        """Parameters as ``$1``, and never the simple protocol: asking for binary results rules that out."""

        async def execute(  # type: ignore[override]
            self, query: bytes, params: Sequence[object] | None = None, *, prepare: bool | None = None
        ) -> OneStatement:
            return await super().execute(query, params, prepare=prepare, binary=True)

    usual = db.connection.cursor_factory
    db.connection.cursor_factory = OneStatement  # type: ignore[assignment]
    try:
        await db.execute(statement.encode(), parameters, prepare=False)
    finally:
        db.connection.cursor_factory = usual
