"""``hermod slowlog``: sum up log files on this machine. It needs no settings and connects to nothing."""

from __future__ import annotations

import csv
import json
import math
import os
import stat
import sys
import time
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from agent_core.errors import ToolFailed
from bot.cli.setup import print_error, print_failure, print_json, print_text
from bot.tools.slow_logs.answer import LogQuery, OrderBy, SlowLog
from bot.tools.slow_logs.formats import AnyFormat
from bot.tools.slow_logs.reading import Wanted, read_logs
from bot.tools.slow_logs.report import build_log_answer
from bot.tools.slow_logs.sources import Source, open_pipe
from bot.tools.slow_logs.times import load_zone

EXIT_DAMAGED = 3
"""Everything was read, and some lines could not be understood."""

_REDRAW_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowlogOptions:
    """The options as they were typed."""

    format: AnyFormat
    prefix: str | None
    zone: str | None
    since: str | None
    until: str | None
    threshold_s: float
    order_by: OrderBy
    limit: int
    csv: Path | None
    as_json: bool


def run_slowlog(files: list[str], options: SlowlogOptions) -> int:
    """``hermod slowlog FILE...``.

    Returns:
        0 when everything was read, 1 when nothing could be, ``EXIT_DAMAGED`` when some lines could not.
    """
    began = time.monotonic()
    try:
        zone = None if options.zone is None else load_zone(options.zone)
        wanted = Wanted(
            format=options.format,
            prefix=options.prefix,
            zone=zone,
            since=-math.inf if options.since is None else _parse_instant(options.since, "since"),
            until=math.inf if options.until is None else _parse_instant(options.until, "until"),
            threshold_s=options.threshold_s,
        )
        sources = [source for name in files for source in _open(name)]
        bar = _Bar(sum(source.size_bytes for source in sources), began)
        try:
            reading = read_logs(sources, wanted, bar.show if sys.stderr.isatty() else None)
        finally:
            bar.clear()
        took_ms = (time.monotonic() - began) * 1000
        everything = build_log_answer(
            reading, wanted, order_by=options.order_by, limit=None, target=files[0], took_ms=took_ms
        )
        if options.csv is not None:
            _write_csv(options.csv, everything)
        answer = build_log_answer(
            reading, wanted, order_by=options.order_by, limit=options.limit, target=files[0], took_ms=took_ms
        )
    except ToolFailed as failure:
        fix = f". {failure.fix}" if failure.fix else ""
        print_failure(f"{failure.message}{fix}", code=failure.code, as_json=options.as_json)
        return 1
    except OSError as error:
        print_failure(
            f"{error.filename or 'a file'}: {error.strerror or error}", code="file_missing", as_json=options.as_json
        )
        return 1
    if options.as_json:
        print_json(json.loads(json.dumps(asdict(answer))))
    else:
        print_text(_render(answer))
        for warning in (*answer.coverage.reasons, *answer.warnings):
            print_error(f"note: {warning}")
    return EXIT_DAMAGED if answer.damaged.lines or reading.stopped else 0


def _parse_instant(text: str, option: str) -> float:
    try:
        instant = datetime.fromisoformat(text.strip().upper())
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise ToolFailed(
            f"--{option} {text[:40]!r} is not an ISO 8601 instant with a zone",
            code="bad_time_range",
            fix="write it like 2026-05-01T10:00:00Z or 2026-05-01T10:00:00+02:00",
        )
    return instant.astimezone(UTC).timestamp()


def _open(name: str) -> list[Source]:
    """Make sources of a file, of all files in a folder, or of standard input (``-``)."""
    if name == "-":
        return [open_pipe("standard input", sys.stdin.buffer)]
    path = Path(name)
    info = path.stat()
    if stat.S_ISDIR(info.st_mode):
        inside = sorted(entry for entry in path.iterdir() if entry.is_file() and not entry.name.startswith("."))
        if not inside:
            raise ToolFailed(f"{name}: the folder has no files", code="no_logs", fix="name the log files")
        return [source for entry in inside for source in _open(str(entry))]
    if not stat.S_ISREG(info.st_mode):
        return [open_pipe(name, path.open("rb"))]
    return [Source(name=name, open=lambda: path.open("rb", buffering=0), size_bytes=info.st_size)]


class _Bar:
    """One line on a terminal that says how far the reading is."""

    def __init__(self, whole: int, began: float) -> None:
        self._whole = whole
        self._began = began
        self._drawn_at = -math.inf

    def show(self, done: int, lines: int) -> None:
        now = time.monotonic()
        if now - self._drawn_at < _REDRAW_S:
            return
        self._drawn_at = now
        rate = lines / max(now - self._began, 0.001)
        if self._whole:
            share = min(1.0, done / self._whole)
            filled = round(share * 24)
            place = f"[{'#' * filled}{'.' * (24 - filled)}] {share:4.0%}"
        else:
            place = f"{done / 1024 / 1024:,.0f} MiB"
        sys.stderr.write(f"\r{place}  {lines:,} lines  {rate:,.0f} lines/s\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._drawn_at > -math.inf:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _write_csv(path: Path, answer: SlowLog) -> None:
    """Write every row; texts that a spreadsheet would take for a formula get an apostrophe."""
    names = [field.name for field in fields(LogQuery)]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        for row in answer.rows:
            writer.writerow([_cell(getattr(row, name)) for name in names])


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t")) else value


def _render(answer: SlowLog) -> str:
    head = f"{'total':>12} {'calls':>9} {'mean':>10} {'p95':>10} {'p99':>10} {'max':>10}  statement"
    window = answer.window
    lines = [
        f"{answer.lines:,} lines, {answer.entries:,} entries, {window.start or '?'} to {window.end or '?'}",
        "",
        head,
    ]
    width = max(40, _columns() - len(head) + len("statement"))
    for row in answer.rows:
        sql = " ".join(row.sql.split())
        sql = sql if len(sql) <= width else f"{sql[: width - 3]}..."
        lines.append(
            f"{_seconds(row.total_s):>12} {row.calls:>9,} {_seconds(row.mean_s):>10} {_seconds(row.p95_s):>10} "
            f"{_seconds(row.p99_s):>10} {_seconds(row.max_s):>10}  {sql}"
        )
    if not answer.rows:
        lines.append("no statement took that long")
    if answer.truncated.rows:
        lines.append(f"... and {answer.truncated.rows:,} further shapes; --limit shows more, --csv writes all")
    for ended in answer.cancelled[:5]:
        lines.append(f"cancelled {ended.cancelled:,} times, no duration known: {' '.join(ended.sql.split())[:width]}")
    if answer.damaged.lines:
        places = "; ".join(f"{p.file} line {p.line:,} ({p.bytes:,} bytes): {p.reason}" for p in answer.damaged.examples)
        lines += ["", f"{answer.damaged.lines:,} lines could not be read, for example {places}"]
    return "\n".join(lines)


def _seconds(value: float) -> str:
    return f"{value:,.1f} s" if value >= 100 else f"{value:.3f} s" if value >= 1 else f"{value * 1000:.2f} ms"


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return 140
