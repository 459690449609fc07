"""Logs for tests: entries as the servers write them, and a reading of them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from datetime import tzinfo

from bot.tools.slow_logs.answer import LogQuery, OrderBy, SlowLog
from bot.tools.slow_logs.formats import AnyFormat
from bot.tools.slow_logs.reading import Wanted, read_logs
from bot.tools.slow_logs.report import build_log_answer
from bot.tools.slow_logs.sources import Source

PREFIX = "%m [%p] %q%u@%d/%a "


def read(
    *logs: bytes | str,
    format: AnyFormat = "auto",
    prefix: str | None = None,
    zone: tzinfo | None = None,
    since: float = -math.inf,
    until: float = math.inf,
    threshold_s: float = 0.0,
    order_by: OrderBy = "total",
    limit: int | None = None,
) -> SlowLog:
    """Read logs as one set of files called ``log 0``, ``log 1``, ..."""
    wanted = Wanted(format=format, prefix=prefix, zone=zone, since=since, until=until, threshold_s=threshold_s)
    sources = [
        source(f"log {position}", log.encode() if isinstance(log, str) else log) for position, log in enumerate(logs)
    ]
    reading = read_logs(sources, wanted)
    return build_log_answer(reading, wanted, order_by=order_by, limit=limit, target="logs", took_ms=0.0)


def source(name: str, content: bytes) -> Source:
    """A file that is not on a disk."""
    return Source(name=name, open=lambda: io.BytesIO(content), size_bytes=len(content))


def calls_of(answer: SlowLog) -> dict[str, int]:
    """Calls by statement."""
    return {" ".join(row.sql.split()): row.calls for row in answer.rows}


def only(answer: SlowLog) -> LogQuery:
    """The one row."""
    assert len(answer.rows) == 1, answer.rows
    return answer.rows[0]


def pg(message: str, *, at: str = "2026-05-01 10:00:00.000 UTC", pid: int = 7, level: str = "LOG") -> str:
    """One entry of a plain log with ``PREFIX``."""
    body = message.replace("\n", "\n\t")
    return f"{at} [{pid}] app@shop/web {level}:  {body}\n"


def timed(sql: str, ms: float, *, at: str = "2026-05-01 10:00:00.000 UTC", pid: int = 7) -> str:
    """A statement with its duration in a plain log."""
    return pg(f"duration: {ms:.3f} ms  statement: {sql}", at=at, pid=pid)


def csv_row(
    message: str,
    *,
    at: str = "2026-05-01 10:00:00.000 UTC",
    session: str = "6900.7",
    line: int = 1,
    severity: str = "LOG",
    query: str = "",
    detail: str = "",
) -> str:
    """One record of a csvlog, with the 26 columns of version 14 and later."""
    columns: Sequence[object] = (
        at, "app", "shop", 7, "10.0.0.1:5", session, line, "SELECT", "2026-05-01 09:00:00 UTC", "3/7", 0, severity,
        "00000", message, detail, "", "", "", "", query, "", "", "web", "client backend", "", 123,
    )  # fmt: skip
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerow(columns)
    return out.getvalue()


def json_row(message: str, *, at: str = "2026-05-01 10:00:00.000 UTC", session: str = "6900.7", line: int = 1) -> str:
    """One record of a jsonlog."""
    return (
        json.dumps(
            {
                "timestamp": at,
                "user": "app",
                "dbname": "shop",
                "pid": 7,
                "session_id": session,
                "line_num": line,
                "error_severity": "LOG",
                "message": message,
                "application_name": "web",
            },
            ensure_ascii=False,
        )
        + "\n"
    )


def my(
    sql: str,
    seconds: float = 1.5,
    *,
    time: str | None = "2026-05-01T10:00:00.000000Z",
    timestamp: int | None = 1777629600,
    use: str | None = None,
    extra: str = "",
) -> str:
    """One entry of a MySQL slow log."""
    lines = [] if time is None else [f"# Time: {time}"]
    lines.append("# User@Host: app[app] @ web1 [10.0.0.1]  Id:    12")
    lines.append(f"# Query_time: {seconds:.6f}  Lock_time: 0.000010 Rows_sent: 3  Rows_examined: 100{extra}")
    lines += [] if use is None else [f"use {use};"]
    lines += [] if timestamp is None else [f"SET timestamp={timestamp};"]
    return "\n".join([*lines, f"{sql};"]) + "\n"
