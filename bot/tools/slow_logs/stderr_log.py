"""Postgres's plain log (``log_destination = stderr``, also what journald and containers show of it)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bot.tools.slow_logs.messages import Pairing
from bot.tools.slow_logs.prefix import Prefix
from bot.tools.slow_logs.shapes import ShapeTable, Who
from bot.tools.slow_logs.sources import cut_at_entries
from bot.tools.slow_logs.tally import Tally
from bot.tools.slow_logs.times import Times

_NAN = float("nan")
_CONTINUATION = b"\t"
_EXECUTIONS = frozenset({b"statement", b"execute"})


def read_stderr_log(
    chunks: Iterator[bytes], prefix: Prefix, table: ShapeTable, pairing: Pairing, times: Times, tally: Tally
) -> None:
    """Read one file into ``table``. Lines that begin with a tab belong to the entry before them."""
    groups = prefix.entry.groupindex
    order = [groups[name] for name in ("minute", "seconds", "zone", "level", "duration", "step", "body")]
    user, db, app = groups["user"], groups["db"], groups["app"]
    session_group = groups["session"] if prefix.entry.pattern.count(b"?P<session>[0-9a-f]") else groups["pid"]
    find, minute_of, add = prefix.entry.finditer, times.minute, table.add
    for buffer in cut_at_entries(chunks, _last_start, tally):
        position = 0
        for match in find(buffer):
            start = match.start()
            if start != position:
                _pass_gap(buffer, position, start, tally)
            position = match.end()
            minute, seconds, zone, level, duration, step, body = match.group(*order)
            at = minute_of(minute, zone) + float(seconds) if minute else _epoch(match)
            if level == b"LOG" and step in _EXECUTIONS and not pairing.waits:
                add(at, float(duration) / 1000, body, match.group(user, db, app))
            else:
                session = match[session_group] or b""
                who = match.group(user, db, app)
                line = int(match["line"] or 0)
                _take(pairing, level, step, duration, body, at=at, who=who, session=session, line=line)
            tally.entries += 1
        if position != len(buffer):
            _pass_gap(buffer, position, len(buffer), tally)
        tally.pass_over(buffer)


def _take(
    pairing: Pairing,
    level: bytes,
    step: bytes | None,
    duration: bytes | None,
    body: bytes,
    *,
    at: float,
    who: Who,
    session: bytes,
    line: int,
) -> None:
    """Take an entry that is not simply a statement with its duration."""
    if level == b"LOG" and duration is not None:
        duration_s = float(duration) / 1000
        if step is None:
            pairing.bare_duration(at, duration_s, who, session, line)
        elif step == b"plan":
            pairing.plan(at, duration_s, body, who, session)
        elif step in (b"parse", b"bind"):
            pairing.step(at, duration_s, body)
        else:
            pairing.timed(at, duration_s, body, who, session)
    elif level == b"LOG":
        pairing.untimed(body, session, line)
    elif level in (b"ERROR", b"FATAL"):
        pairing.error(body, session)
    elif level == b"STATEMENT":
        pairing.failed_statement(at, body, who, session)


def _epoch(match: re.Match[bytes]) -> float:
    epoch = match["epoch"]
    return float(epoch) if epoch else _NAN


def _pass_gap(buffer: bytes, start: int, end: int, tally: Tally) -> None:
    if tally.file_lines == 0 and start == 0:
        tally.damage(buffer, start, end, "the file begins inside an entry, or with lines of another program")
    else:
        tally.damage(buffer, start, end, "not in the form that log_line_prefix gives to lines")


def _last_start(buffer: bytes) -> int:
    """Where the last entry begins: after a line's end that no tab follows."""
    end = len(buffer)
    while (newline := buffer.rfind(b"\n", 0, end)) >= 0:
        following = buffer[newline + 1 : newline + 2]
        # At the very end it is not known yet what follows.
        if following and following != _CONTINUATION:
            return newline + 1
        end = newline
    return 0
