"""One reading of any number of log files: recognised, ordered, read in one pass, summed up."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo

from agent_core.errors import ToolFailed
from bot.tools.slow_logs.answer import ReadFile
from bot.tools.slow_logs.csv_log import read_csv_log
from bot.tools.slow_logs.formats import AnyFormat, Recognised, find_first_time, recognise
from bot.tools.slow_logs.json_log import read_json_log
from bot.tools.slow_logs.messages import Pairing
from bot.tools.slow_logs.mysql_log import read_mysql_log
from bot.tools.slow_logs.prefix import Prefix, compile_prefix
from bot.tools.slow_logs.shapes import MYSQL, POSTGRES, ShapeTable
from bot.tools.slow_logs.sources import OutOfTime, Source, read_chunks
from bot.tools.slow_logs.stderr_log import read_stderr_log
from bot.tools.slow_logs.tally import Tally
from bot.tools.slow_logs.times import Times

_VERSION = re.compile(rb", Version: (\d+\.\d+[\w.-]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be read out of the logs.

    Args:
        format: of all files; ``auto`` looks at each.
        prefix: ``log_line_prefix`` of plain Postgres logs; None guesses it.
        zone: of the times in the logs, whatever they say; None believes them.
        since, until: seconds since 1970; infinite where there is no bound.
        threshold_s: shapes of which no execution took that long are left out.
    """

    format: AnyFormat = "auto"
    prefix: str | None = None
    zone: tzinfo | None = None
    since: float = -math.inf
    until: float = math.inf
    threshold_s: float = 0.0


@dataclass(slots=True)
class Reading:
    """What was read. ``finish`` of the tables has been called."""

    postgres: ShapeTable
    mysql: ShapeTable
    tally: Tally = field(default_factory=Tally)
    times: Times = field(default_factory=Times)
    files: list[ReadFile] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    version: str = ""
    stopped: str = ""
    explains: bool = False

    @property
    def tables(self) -> tuple[ShapeTable, ShapeTable]:
        """Both tables."""
        return self.postgres, self.mysql


Progress = Callable[[int, int], None]
"""Told bytes of files (as they lie on the disk) and lines, as they were read; may raise ``OutOfTime``."""


def read_logs(sources: Sequence[Source], wanted: Wanted, progress: Progress | None = None) -> Reading:
    """Read logs in the order of their times.

    Args:
        sources: at least one. Files that are empty are passed over; so are files of unknown format, as long as one
            other can be read.
        wanted: what is looked for.
        progress: told after each piece.

    Raises:
        ToolFailed: ``log_format_unknown`` when no file can be read, ``bad_prefix``, ``no_times`` when a range was asked
            for and the log has no times.
        OSError: a file cannot be read.
    """
    prefix = None if wanted.prefix is None else compile_prefix(wanted.prefix)
    postgres, mysql = (
        ShapeTable(dialect=dialect, since=wanted.since, until=wanted.until, threshold_s=wanted.threshold_s)
        for dialect in (POSTGRES, MYSQL)
    )
    reading = Reading(postgres, mysql, times=Times(wanted.zone))
    chosen = _choose(sources, wanted, prefix, reading)
    pairing = Pairing(reading.postgres, reading.tally)
    if reading.explains:
        pairing.expect_plans()
    read_bytes = 0

    def count(size: int) -> None:
        nonlocal read_bytes
        read_bytes += size
        if progress is not None:
            progress(read_bytes, reading.tally.lines)

    try:
        for source, recognised in chosen:
            reading.tally.begin(source.name)
            reading.files.append(
                ReadFile(
                    name=source.name,
                    format=recognised.format,
                    log_line_prefix=None if recognised.prefix is None else recognised.prefix.text,
                    prefix_guessed=recognised.guessed,
                )
            )
            _read(read_chunks(source, reading.tally, count), recognised, reading, pairing)
    except OutOfTime as stop:
        reading.stopped = str(stop)
    pairing.finish()
    for table in reading.tables:
        table.finish()
    _check_times(reading)
    return reading


def _choose(
    sources: Sequence[Source], wanted: Wanted, prefix: Prefix | None, reading: Reading
) -> list[tuple[Source, Recognised]]:
    """Recognise the files and put them into the order of their first times."""
    found: list[tuple[str, int, Source, Recognised]] = []
    failure: ToolFailed | None = None
    for position, source in enumerate(sources):
        sample = source.look()
        if not sample.strip() and (sample or not source.size_bytes):
            reading.skipped.append(f"{source.name} is empty")
            continue
        try:
            recognised = recognise(sample, format=wanted.format, prefix=prefix, name=source.name)
        except ToolFailed as error:
            failure = failure or error
            reading.skipped.append(f"{source.name} is no log that can be read, and was passed over")
            continue
        if recognised.format == "mysql" and not reading.version and (match := _VERSION.search(sample)):
            reading.version = match[1].decode("ascii", "replace")
        if b" ms  plan:" in sample:
            reading.explains = True
        found.append((find_first_time(sample), position, source, recognised))
    if not found and failure is not None:
        raise failure
    return [(source, recognised) for _, _, source, recognised in sorted(found, key=lambda item: item[:2])]


def _read(chunks: Iterator[bytes], recognised: Recognised, reading: Reading, pairing: Pairing) -> None:
    times, tally = reading.times, reading.tally
    match recognised.format:
        case "stderr":
            assert recognised.prefix is not None
            read_stderr_log(chunks, recognised.prefix, reading.postgres, pairing, times, tally)
        case "csvlog":
            read_csv_log(chunks, reading.postgres, pairing, times, tally)
        case "jsonlog":
            read_json_log(chunks, reading.postgres, pairing, times, tally)
        case "mysql":
            read_mysql_log(chunks, reading.mysql, times, tally)


def _check_times(reading: Reading) -> None:
    timeless = sum(table.timeless for table in reading.tables)
    known = any(table.outside or table.calls for table in reading.tables)
    if timeless and not known:
        raise ToolFailed(
            "a time range was asked for, and this log has no times",
            code="no_times",
            fix="leave the range out, or put %m into log_line_prefix on the server",
        )
