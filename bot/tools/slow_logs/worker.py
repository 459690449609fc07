"""The process that reads logs for a tool: a request as JSON on standard input, the answer as JSON on standard output.

It is a process of its own so that nothing else waits while a log is read, its memory and time are bounded by the
kernel, and killing it ends it. The files are open already when it starts.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from dataclasses import asdict, dataclass

from agent_core.errors import ToolFailed
from bot.tools.slow_logs.answer import OrderBy
from bot.tools.slow_logs.formats import AnyFormat
from bot.tools.slow_logs.reading import Wanted, read_logs
from bot.tools.slow_logs.report import build_log_answer
from bot.tools.slow_logs.sources import OutOfTime, Source
from bot.tools.slow_logs.times import load_zone

MEMORY_BYTES = 512 * 1024 * 1024
_NICE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the process is asked; every field as JSON has it.

    Args:
        files: names, descriptors and sizes of the open files.
        deadline_s: after this many seconds reading stops, and the answer says how far it came.
        since, until: seconds since 1970, or None.
    """

    target: str
    files: tuple[tuple[str, int, int], ...]
    format: AnyFormat = "auto"
    prefix: str | None = None
    zone: str | None = None
    since: float | None = None
    until: float | None = None
    threshold_s: float = 0.0
    order_by: OrderBy = "total"
    limit: int = 20
    deadline_s: float = 60.0


def answer(request: Request) -> dict[str, object]:
    """Read the logs of a request; a failure is ``{"error": {...}}`` with code, message and fix."""
    began = time.monotonic()
    whole = sum(size for _, _, size in request.files)

    def progress(done: int, lines: int) -> None:
        if time.monotonic() - began > request.deadline_s:
            share = f"{done / whole:.0%}" if whole else "a part"
            raise OutOfTime(f"reading was stopped after {request.deadline_s:g} s, at {share} of the logs' bytes")

    try:
        wanted = Wanted(
            format=request.format,
            prefix=request.prefix,
            zone=None if request.zone is None else load_zone(request.zone),
            since=-math.inf if request.since is None else request.since,
            until=math.inf if request.until is None else request.until,
            threshold_s=request.threshold_s,
        )
        sources = [_source(name, descriptor, size) for name, descriptor, size in request.files]
        reading = read_logs(sources, wanted, progress)
    except ToolFailed as failure:
        return {"error": {"code": failure.code, "message": failure.message, "fix": failure.fix}}
    except OSError as error:
        message = f"a log cannot be read ({error.strerror or type(error).__name__})"
        return {"error": {"code": "file_missing", "message": message, "fix": "look at the disk and the file's rights"}}
    took_ms = (time.monotonic() - began) * 1000
    found = build_log_answer(
        reading, wanted, order_by=request.order_by, limit=request.limit, target=request.target, took_ms=took_ms
    )
    return asdict(found)


def _source(name: str, descriptor: int, size: int) -> Source:
    def open_again() -> object:
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.fdopen(os.dup(descriptor), "rb", buffering=0)

    return Source(name=name, open=open_again, size_bytes=size)  # type: ignore[arg-type]


def main() -> None:
    """Answer the one request on standard input."""
    fields = json.loads(sys.stdin.buffer.read())
    request = Request(**{**fields, "files": tuple(map(tuple, fields["files"]))})
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    seconds = math.ceil(request.deadline_s) + 10
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write(json.dumps(answer(request)))


if __name__ == "__main__":
    main()
