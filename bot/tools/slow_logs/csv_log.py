"""Postgres's csvlog (https://www.postgresql.org/docs/current/runtime-config-logging.html#RUNTIME-CONFIG-LOGGING-CSVLOG)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bot.tools.slow_logs.messages import MESSAGE, Pairing
from bot.tools.slow_logs.shapes import ShapeTable, Who
from bot.tools.slow_logs.sources import MOST_ENTRY
from bot.tools.slow_logs.tally import Tally
from bot.tools.slow_logs.times import Times

_FIELD = rb'(?:"(?:[^"]|"")*+"|[^",\n]*+)'
_QUOTED = rb'(?:"((?:[^"]++|"")*+)"|([^",\n]*+))'
_BEGIN = rb"(\d{4}-\d\d-\d\d \d\d:\d\d):(\d\d(?:\.\d+)?) ([A-Za-z]{1,6}|[+-]\d\d(?::?\d\d)?),"
RECORD = re.compile(
    _BEGIN
    + _QUOTED  # 4, 5 user
    + b","
    + _QUOTED  # 6, 7 database
    + rb",\d*+,"  # process
    + _FIELD  # client
    + rb",([0-9a-f.]*+),(\d*+),"  # 8 session, 9 its line
    + rb"(?:"
    + _FIELD
    + rb",){2}"  # tag, session start
    + rb"[\d/-]*+,\d*+,([A-Z]+\d?),"  # 10 severity
    + _FIELD  # state
    + b","
    + _QUOTED  # 11, 12 message
    + rb"(?:,"
    + _FIELD
    + rb"){5}"  # detail, hint, internal query, its position, context
    + b","
    + _QUOTED  # 13, 14 query
    + rb"(?:,"
    + _FIELD
    + rb"){2},"  # query position, location
    + _QUOTED  # 15, 16 application
    + rb"(?:,"
    + _FIELD
    + rb")*+\r?(?:\n|\Z)"
)
_NEXT = re.compile(rb"\n(?=" + _BEGIN + rb")")


def read_csv_log(chunks: Iterator[bytes], table: ShapeTable, pairing: Pairing, times: Times, tally: Tally) -> None:
    """Read one file into ``table``. After a record that cannot be read, reading goes on at the next one that can."""
    rest, ended = b"", False
    while not ended:
        chunk = next(chunks, None)
        ended = chunk is None
        buffer = rest + chunk if chunk else rest
        position = _read_records(buffer, ended, table, pairing, times, tally)
        tally.pass_over(buffer[:position])
        rest = buffer[position:]


def _read_records(buffer: bytes, ended: bool, table: ShapeTable, pairing: Pairing, times: Times, tally: Tally) -> int:
    """Read the complete records of a piece, and return where the first incomplete one begins."""
    position, size = 0, len(buffer)
    match_at, message_of, minute_of, add = RECORD.match, MESSAGE.match, times.minute, table.add
    while position < size:
        match = match_at(buffer, position)
        # A record that reaches to the end of the piece may go on in the next one.
        if match is None or (match.end() == size and not ended and buffer[-1:] != b"\n"):
            if not ended and size - position <= MOST_ENTRY:
                return position
            if match is None:
                position = _resync(buffer, position, ended, tally)
                continue
        minute, seconds, zone, user, user2, db, db2, session, line, severity, quoted, plain, _, _, app, app2 = (
            match.groups()
        )
        position = match.end()
        tally.entries += 1
        body = plain if quoted is None else quoted.replace(b'""', b'"') if b'""' in quoted else quoted
        at = minute_of(minute, zone) + float(seconds)
        who: Who = (user or user2, db or db2, app or app2)
        if severity == b"LOG":
            told = message_of(body)
            if told is None:
                pairing.untimed(body, session, int(line or 0))
                continue
            duration_s, step = float(told[1]) / 1000, told[2]
            if step in (b"statement", b"execute") and not pairing.waits:
                add(at, duration_s, body[told.end() :], who)
            else:
                take_message(
                    pairing, step, body[told.end() :], duration_s, at=at, who=who, session=session, line=int(line or 0)
                )
        elif severity in (b"ERROR", b"FATAL"):
            query = match[14] if match[13] is None else match[13].replace(b'""', b'"')
            pairing.cancelled(at, body, query or b"", who, session)
    return position


def take_message(
    pairing: Pairing,
    step: bytes | None,
    text: bytes,
    duration_s: float,
    *,
    at: float,
    who: Who,
    session: bytes,
    line: int,
) -> None:
    """Take a LOG message with a duration, of a form that names session and line."""
    if step is None:
        pairing.bare_duration(at, duration_s, who, session, line)
    elif step == b"plan":
        pairing.plan(at, duration_s, text, who, session)
    elif step in (b"parse", b"bind"):
        pairing.step(at, duration_s, text)
    else:
        pairing.timed(at, duration_s, text, who, session)


def _resync(buffer: bytes, position: int, ended: bool, tally: Tally) -> int:
    """Find the next line that begins a readable record, count what is skipped, and return where it begins."""
    search = position
    while (found := _NEXT.search(buffer, search)) is not None:
        start = found.end()
        if RECORD.match(buffer, start) is not None:
            break
        search = start
    else:
        start = len(buffer) if ended else max(position + 1, len(buffer) - MOST_ENTRY // 2)
    tally.damage(buffer, position, start, "not a csv record (a stray quote, a cut line, or another form)")
    return start
