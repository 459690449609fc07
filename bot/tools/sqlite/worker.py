"""The process that reads an SQLite file: a question as JSON on standard input, the answer as JSON on standard output.

It is a process of its own because SQLite has operations that nothing interrupts (LIKE on long texts, one function on
a huge value): killing the process ends them, and the kernel bounds its memory, time and temporary files. Standard
library only, so that it starts quickly.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import sqlite3
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from bot.tools.sqlite.file import FileState, Unusable, look_at, still_same
from bot.tools.sqlite.policy import TABLE_FUNCTIONS, Authorizer

MiB = 1024 * 1024
MEMORY_BYTES = 512 * MiB
TEMPORARY_BYTES = 256 * MiB
"""Of one temporary file, where a sort does not fit into memory."""
LONGEST_VALUE_BYTES = 64 * MiB
"""Of one text or blob, stored or computed."""

_NICE = 5
_STEPS = 1_000
_MOST_VIRTUAL_TABLES = 100
_BINDINGS = re.compile(r"uses (\d+), and there are (\d+) supplied")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the process is asked; every field as JSON has it.

    Args:
        path: of the file.
        sql: one statement.
        parameters: for its placeholders, in order.
        max_rows, most_bytes: rows are read until one of them is reached.
        timeout_s: for the statement.
        plan: explain the statement instead of running it; placeholders then need no values.
    """

    path: str
    sql: str
    parameters: tuple[str | int | float | bool | None, ...] = ()
    max_rows: int = 100
    most_bytes: int = 8 * MiB
    timeout_s: float = 10.0
    plan: bool = False


class _Unknown(dict[str, None]):
    """Values that are not known, for named placeholders of a statement that is only explained."""

    def __missing__(self, _: str) -> None:
        return None


def answer(question: Question) -> dict[str, object]:
    """Answer; a failure is ``{"error": {...}}`` with a code, what SQLite said, and what was refused."""
    authorizer = Authorizer(planning=question.plan)
    began = time.monotonic()
    try:
        state = look_at(question.path)
        connection = _open(question, state, deadline=began + question.timeout_s)
        try:
            connection.set_authorizer(authorizer)
            found = _explain(connection, question, authorizer) if question.plan else _run(connection, question)
        finally:
            connection.close()
        if not still_same(state):
            raise Unusable("written", "the file was written to while it was read")
    except Unusable as failure:
        return {"error": {"kind": failure.kind, "said": failure.said, "refused": ""}}
    except MemoryError:
        return {"error": {"kind": "SQLITE_NOMEM", "said": "", "refused": ""}}
    except sqlite3.Error as error:
        return {"error": {"kind": _kind_of(error), "said": str(error), "refused": authorizer.refused}}
    except sqlite3.Warning:  # Python 3.11 warns where later versions raise an Error
        return {"error": {"kind": "several", "said": "", "refused": ""}}
    return found


def _kind_of(error: sqlite3.Error) -> str:
    if "one statement at a time" in str(error):
        return "several"
    if "bindings supplied" in str(error) or "Binding " in str(error):
        return "bindings"
    return getattr(error, "sqlite_errorname", "") or type(error).__name__


def _open(question: Question, state: FileState, *, deadline: float) -> sqlite3.Connection:
    options = "immutable=1" if state.unshared else "mode=ro"
    connection = sqlite3.connect(
        f"file:{quote(os.path.abspath(question.path))}?{options}",
        uri=True,
        timeout=max(0.1, min(2.0, question.timeout_s / 5)),
        isolation_level=None,
        cached_statements=0,
    )
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    for limit, value in (
        (sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE_BYTES),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000),
    ):
        connection.setlimit(limit, value)
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    for setting in ("query_only = 1", "trusted_schema = 0", "cell_size_check = 1", "cache_size = -32768"):
        connection.execute(f"pragma {setting}")
    _warm(connection)
    return connection


def _warm(connection: sqlite3.Connection) -> None:
    """Let SQLite make its virtual tables now: it does so by CREATE TABLE, which the authorizer refuses."""
    virtual = connection.execute(
        "select name from sqlite_master where type = 'table' and sql like 'create virtual%' limit ?",
        (_MOST_VIRTUAL_TABLES,),
    ).fetchall()
    named = ['"' + str(name).replace('"', '""') + '"' for (name,) in virtual]
    for table in (*TABLE_FUNCTIONS, *named):
        try:
            connection.execute(f"select * from {table} limit 0").fetchall()
        except sqlite3.OperationalError:  # this SQLite has no such module
            continue


def _run(connection: sqlite3.Connection, question: Question) -> dict[str, object]:
    cursor = connection.execute(question.sql, question.parameters)
    columns = [column[0] for column in cursor.description or ()]
    rows: list[list[object]] = []
    left, more = question.most_bytes, False
    while (row := cursor.fetchone()) is not None:
        cells = [_plain(value) for value in row]
        left -= sum(len(cell.encode()) if isinstance(cell, str) else 8 for cell in cells)
        if len(rows) == question.max_rows or left < 0:
            more = True
            break
        rows.append(cells)
    return {"version": sqlite3.sqlite_version, "columns": columns, "rows": rows, "more": more}


def _plain(value: object) -> object:
    """JSON has no bytes, and only finite numbers."""
    if isinstance(value, bytes):
        return {"blob": len(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    return value


def _explain(connection: sqlite3.Connection, question: Question, authorizer: Authorizer) -> dict[str, object]:
    rows = _plan(connection, f"explain query plan {question.sql}")
    tables = {name: _describe(connection, name) for name in dict.fromkeys(authorizer.tables)}
    return {
        "version": sqlite3.sqlite_version,
        "nodes": [[row[0], row[1], row[3]] for row in rows],
        "tables": {name: facts for name, facts in tables.items() if facts is not None},
    }


def _plan(connection: sqlite3.Connection, sql: str) -> list[tuple[int, int, int, str]]:
    try:
        return connection.execute(sql, ()).fetchall()
    except sqlite3.ProgrammingError as error:
        match = _BINDINGS.search(str(error))
        if match is None:
            raise
        count = int(match[1])
    try:
        return connection.execute(sql, _Unknown()).fetchall()
    except sqlite3.ProgrammingError:  # placeholders without a name
        unknown: Sequence[None] = (None,) * count
        return connection.execute(sql, unknown).fetchall()


def _describe(connection: sqlite3.Connection, table: str) -> Mapping[str, object] | None:
    """A table's columns, the first columns of its indexes, and about how many rows it has; None for what is none."""
    name = '"' + table.replace('"', '""') + '"'
    try:
        columns = [str(row[1]) for row in connection.execute(f"pragma table_xinfo({name})")]
        kind = connection.execute("select type from sqlite_master where name = ?", (table,)).fetchone()
        if not columns or kind != ("table",):
            return None
        keys = [str(row[1]) for row in connection.execute(f"pragma table_info({name})") if row[5] == 1]
        for index in connection.execute(f"pragma index_list({name})").fetchall():
            quoted = '"' + str(index[1]).replace('"', '""') + '"'
            first = connection.execute(f"pragma index_info({quoted})").fetchone()
            keys += [str(first[2])] if first and first[2] is not None else []
        rows, exact = _count(connection, table, name)
    except sqlite3.OperationalError:
        return None
    return {"columns": columns, "indexed": keys, "rows": rows, "analyzed": exact}


def _count(connection: sqlite3.Connection, table: str, name: str) -> tuple[int, bool]:
    """From ANALYZE's statistics, else the largest rowid, which costs no scan."""
    if connection.execute("select 1 from sqlite_master where name = 'sqlite_stat1'").fetchone():
        found = connection.execute(
            "select stat from sqlite_stat1 where tbl = ? order by idx is null desc limit 1", (table,)
        ).fetchone()
        first = str(found[0]).split(" ")[0] if found else ""
        if first.isdigit():
            return int(first), True
    largest = connection.execute(f"select max(rowid) from {name}").fetchone()
    return (largest[0] if largest and isinstance(largest[0], int) else 0), False


def main() -> None:
    """Answer the one question on standard input."""
    fields = json.loads(sys.stdin.buffer.read())
    question = Question(**{**fields, "parameters": tuple(fields["parameters"])})
    os.nice(_NICE)
    seconds = math.ceil(question.timeout_s) + 2
    for what, bound in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, TEMPORARY_BYTES),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (bound, bound))
    sys.stdout.buffer.write(json.dumps(answer(question), ensure_ascii=False).encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
