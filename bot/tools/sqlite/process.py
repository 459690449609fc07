"""Asks the process that reads SQLite files (``worker``), and says in our words what went wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from agent_core.errors import ToolFailed
from bot.tools.slow_queries.redact_sql import redact_message
from bot.tools.sqlite.worker import Question
from bot.tools.targets import Target

GRACE_S = 5.0
"""What the process may take beyond the statement's own time, to start and to write its answer."""


@dataclass(frozen=True, slots=True)
class _Reading:
    code: str
    said: str
    fix: str
    retryable: bool = False


_BUSY = _Reading("lock_timeout", "another program has locked the file", "try again in a moment", retryable=True)
_TOO_LARGE = _Reading(
    "result_too_large",
    "the statement needs more memory or temporary files than it may have",
    "select fewer rows or columns, or cut long texts with substr(column, 1, 1000)",
)
_LEFT_OPEN = _Reading(
    "failed",
    "a program ended in the middle of a change, and reading would mean to repair the file",
    "open the file once with the program that writes it, which finishes or takes back the change",
)
_DAMAGED = _Reading("failed", "the file is damaged", "run PRAGMA integrity_check on a copy, or restore a backup")
_TIMEOUT = _Reading(
    "statement_timeout",
    "the statement took too long and was ended",
    "filter more, add an index, or raise timeout_s",
)
_NO_DATABASE = _Reading("failed", "the file is no SQLite database (or an encrypted one)", "correct the target's url")
_UNREADABLE = _Reading("failed", "the file cannot be opened", "give Hermod's user the right to read it and its folder")
_READINGS: Mapping[str, _Reading] = {
    "missing": _Reading("file_missing", "there is no such file", "correct the path in the target's url"),
    "link": _Reading(
        "failed", "its path is a symbolic link, which may point elsewhere tomorrow", "name the file itself in the url"
    ),
    "folder": _Reading("failed", "its path is a folder", "name the database file in the target's url"),
    "special": _Reading("failed", "its path is no regular file", "name the database file in the target's url"),
    "unreadable": _UNREADABLE,
    "no_database": _NO_DATABASE,
    "SQLITE_NOTADB": _NO_DATABASE,
    "left_open": _LEFT_OPEN,
    "written": _Reading(
        "lock_timeout", "the file was written to while it was read", "try again in a moment", retryable=True
    ),
    "several": _Reading(
        "multiple_statements", "there is more than one statement in the text", "pass one statement at a time"
    ),
    "bindings": _Reading(
        "bad_parameters",
        "the values and the placeholders do not agree",
        "pass one value in params for each ?, in order",
    ),
    "SQLITE_INTERRUPT": _TIMEOUT,
    "SQLITE_NOMEM": _TOO_LARGE,
    "SQLITE_TOOBIG": _TOO_LARGE,
    "SQLITE_FULL": _TOO_LARGE,
    "SQLITE_READONLY": _Reading("not_read_only", "the statement would write", "pass a statement that only reads"),
}
_BY_FAMILY: Mapping[str, _Reading] = {
    "SQLITE_BUSY": _BUSY,
    "SQLITE_LOCKED": _BUSY,
    "SQLITE_IOERR": _TOO_LARGE,
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_READONLY": _LEFT_OPEN,
    "SQLITE_CANTOPEN": _UNREADABLE,
    "SQLITE_PERM": _UNREADABLE,
}


def find_file(target: Target) -> str:
    """The path of a target: ``sqlite:///a.db`` is beside the working directory, ``sqlite:////srv/a.db`` absolute."""
    return target.database.removeprefix("/")


async def ask_worker(target: Target, question: Question) -> Mapping[str, object]:
    """Ask in a process of its own; cancelling kills it.

    Raises:
        ToolFailed: with a code of ``docs/tools.md``; no message has the path or a value in it.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "bot.tools.sqlite.worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LC_ALL": "C.UTF-8"},
        start_new_session=True,  # Ctrl-C goes to us; we end it
    )
    try:
        async with asyncio.timeout(question.timeout_s + GRACE_S):
            out, err = await process.communicate(json.dumps(asdict(question)).encode())
    except TimeoutError:
        raise _failure(_TIMEOUT, target) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise _failure(_TIMEOUT, target)
    return _parse(out, err, target, question)


def _parse(out: bytes, err: bytes, target: Target, question: Question) -> Mapping[str, object]:
    try:
        found = json.loads(out)
    except ValueError:
        last = err.decode("utf-8", "replace").strip().rpartition("\n")[2].partition(":")[0]
        if last == "MemoryError":
            raise _failure(_TOO_LARGE, target) from None
        raise ToolFailed(
            f"target {target.name!r}: the process that reads the file gave no answer ({last[:80] or 'no word'})",
            code="failed",
            fix="try again; look at the memory of the machine if it stays so",
        ) from None
    if not isinstance(found, dict) or (error := found.get("error")) is None:
        return found if isinstance(found, dict) else {}
    raise _explain(str(error["kind"]), str(error["said"]), str(error["refused"]), target, question)


def _explain(kind: str, said: str, refused: str, target: Target, question: Question) -> ToolFailed:
    if refused:
        return ToolFailed(
            f"target {target.name!r}: {refused} is not allowed, the statement has to read only",
            code="not_read_only",
            fix="pass a SELECT, WITH, VALUES or EXPLAIN statement that uses SQLite's own functions",
        )
    family = "_".join(kind.split("_")[:2])
    reading = _READINGS.get(kind) or _BY_FAMILY.get(family)
    if reading is None:
        return ToolFailed(
            f"target {target.name!r}: SQLite cannot run the statement: {redact_message(said, question.sql)}",
            code="parse_failed",
            fix="correct the statement; names of tables are in sqlite_schema",
        )
    if kind == "missing" and said == "absolute":
        return _failure(
            _Reading(reading.code, reading.said, "for an absolute path write four slashes: sqlite:////..."), target
        )
    return _failure(reading, target)


def _failure(reading: _Reading, target: Target) -> ToolFailed:
    return ToolFailed(
        f"target {target.name!r}: {reading.said}", code=reading.code, fix=reading.fix, retryable=reading.retryable
    )
