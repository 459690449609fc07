"""``run_readonly_sql`` on an SQLite file.

The guards, in the order in which they are trusted: the file is opened for reading only; SQLite's authorizer lets only
listed actions, functions and pragmas through (``bot.tools.sqlite.policy``); the module takes one statement; the
statement runs in a process of its own with bounds on time, memory and temporary files; rows and bytes are bounded
while they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.answer import MOST_BYTES, Sheet, SqlRequest, SqlRows, note_binary
from bot.tools.slow_queries.statement_check import LONGEST_SQL
from bot.tools.sqlite.process import ask_worker, find_file
from bot.tools.sqlite.worker import Question
from bot.tools.targets import Target

# Values are shortened only after they were read; a row of long texts may be longer than an answer.
_MOST_READ_BYTES = 8 * MOST_BYTES


async def run_on_sqlite(target: Target, clock: Clock, request: SqlRequest) -> SqlRows:
    """Run a request on an SQLite target.

    Raises:
        ToolFailed: see ``ask_worker``; ``parse_failed`` without a statement.
    """
    began = clock.monotonic()
    _check_text(request.sql)
    question = Question(
        path=find_file(target),
        sql=request.sql,
        parameters=request.parameters,
        max_rows=request.max_rows,
        most_bytes=_MOST_READ_BYTES,
        timeout_s=request.timeout_s,
    )
    found = await ask_worker(target, question)
    columns, rows = _read(found)
    if not columns:
        raise ToolFailed("there is no statement in the text", code="parse_failed", fix="pass one SELECT statement")
    sheet = Sheet(max_rows=request.max_rows)
    for row in rows:
        if not sheet.add([_plain(value) for value in row]):
            break
    more = bool(found.get("more"))
    if more and len(rows) < request.max_rows:
        sheet.full_of_bytes = True
    sheet.more_rows = sheet.more_rows or more
    return SqlRows(
        target=target.name,
        engine="sqlite",
        engine_version=str(found.get("version", "")),
        source="the statement, on the file opened for reading only",
        truncated=sheet.truncated,
        warnings=sheet.warnings(),
        took_ms=round((clock.monotonic() - began) * 1000, 1),
        columns=columns,
        types=tuple(_name_type(rows, at) for at in range(len(columns))),
        rows=sheet.rows,
        row_count=len(sheet.rows),
        more_rows=sheet.more_rows,
        cells_cut=sheet.cells_cut,
        sql=request.sql.strip(),
    )


def _check_text(sql: str) -> None:
    if len(sql) > LONGEST_SQL:
        raise ToolFailed(
            f"the statement has {len(sql)} characters; {LONGEST_SQL} are taken",
            code="parse_failed",
            fix="pass a shorter statement",
        )
    if "\0" in sql or any("\ud800" <= character <= "\udfff" for character in sql):
        raise ToolFailed(
            "the statement has a character in it that no text can have", code="parse_failed", fix="leave it out"
        )


def _read(found: Mapping[str, object]) -> tuple[tuple[str, ...], Sequence[Sequence[object]]]:
    columns, rows = found.get("columns"), found.get("rows")
    if not isinstance(columns, list) or not isinstance(rows, list):
        return (), ()
    return tuple(map(str, columns)), [row for row in rows if isinstance(row, list)]


def _plain(value: object) -> object:
    """Undo what the worker did for JSON."""
    if isinstance(value, dict):
        if isinstance(size := value.get("blob"), int):
            return note_binary(size)
        return float(str(value.get("number")))
    return value


def _name_type(rows: Sequence[Sequence[object]], at: int) -> str:
    """In SQLite's words, by the first value that is not null: columns have no types of their own."""
    value = next((row[at] for row in rows if row[at] is not None), None)
    match value:
        case None:
            return "null"
        case int():
            return "integer"
        case float():
            return "real"
        case str():
            return "text"
        case _:
            return "blob" if isinstance(value, dict) and "blob" in value else "real"
