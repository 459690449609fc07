"""Reading logs beside the event loop: one short-lived process a question (``worker.py``)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import asdict, replace
from functools import cache

from pydantic import TypeAdapter, ValidationError

from agent_core.errors import ToolFailed
from bot.tools.slow_logs.answer import SlowLog
from bot.tools.slow_logs.worker import Request

GRACE_S = 10.0
"""What the process may take beyond its own deadline, to start and to write its answer."""


async def read_in_process(request: Request) -> SlowLog:
    """Read the open files of a request in a process of its own; cancelling kills it.

    Raises:
        ToolFailed: as ``read_logs`` and ``load_zone``; ``timeout`` when it did not end in time, ``failed`` when it
            died.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "bot.tools.slow_logs.worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=[descriptor for _, descriptor, _ in request.files],
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LC_ALL": "C.UTF-8"},
        start_new_session=True,  # Ctrl-C goes to us; we end it
    )
    try:
        async with asyncio.timeout(request.deadline_s + GRACE_S):
            out, err = await process.communicate(json.dumps(asdict(request)).encode())
    except TimeoutError:
        raise ToolFailed(
            f"reading the logs did not end within {request.deadline_s + GRACE_S:g} s",
            code="timeout",
            fix="ask for one file by its path, or run `hermod slowlog FILE` on the machine that has the log",
        ) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
    return _parse(out, err, process.returncode)


def _parse(out: bytes, err: bytes, code: int | None) -> SlowLog:
    try:
        answer = json.loads(out)
        failure = answer.get("error")
        if failure is None:
            return _adapter().validate_python(answer, strict=False)
    except (ValueError, ValidationError, AttributeError):
        last = err.decode("utf-8", "replace").strip().rpartition("\n")[2].partition(":")[0]
        raise ToolFailed(
            f"the process that reads logs ended with {code} and no answer ({last[:80] or 'no word'})",
            code="failed",
            fix="try one file at a time; run `hermod slowlog FILE` to see more",
        ) from None
    raise ToolFailed(failure["message"], code=failure["code"], fix=failure["fix"])


@cache
def _adapter() -> TypeAdapter[SlowLog]:
    return TypeAdapter(SlowLog)


def cut_to(answer: SlowLog, most_chars: int) -> SlowLog:
    """Leave out the last rows until the answer has at most ``most_chars`` characters of JSON, but for the first row."""
    used, rows = 0, 0
    for row in answer.rows:
        used += len(json.dumps(asdict(row)))
        if used > most_chars and rows:
            break
        rows += 1
    left = len(answer.rows) - rows
    return replace(
        answer, rows=answer.rows[:rows], truncated=replace(answer.truncated, rows=answer.truncated.rows + left)
    )
