"""The slow-query log of MySQL (5.6 to 9) and MariaDB, with the further lines that InnoDB and Percona write.

The forms are those of https://dev.mysql.com/doc/refman/8.4/en/slow-query-log.html and
https://mariadb.com/kb/en/slow-query-log-overview/
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bot.tools.slow_logs.shapes import ShapeTable, Who
from bot.tools.slow_logs.sources import cut_at_entries
from bot.tools.slow_logs.tally import Tally
from bot.tools.slow_logs.times import Times

_COMMENTS = rb"(?:# (?!administrator |Time: |User@Host: )[^\n]*\n|#\n)*+"
HEADER = re.compile(
    rb"(?:# Time: ([^\n]*)\n)?"  # 1
    rb"# User@Host: ([^\[\n]*?)(?:\[[^\n]*)?\n"  # 2
    rb"((?:# (?!Query_time|administrator |Time: |User@Host: )[^\n]*\n)*+)"  # 3 lines before the times
    rb"# Query_time: (\d+(?:\.\d+)?)\s+Lock_time: \d+(?:\.\d+)?"  # 4
    rb"(?:\s+Rows_sent: (\d+))?([^\n]*)\n"
    + _COMMENTS  # 5, 6 the rest of that line
    + rb"(?:use ([^\n]*);\n)?"
    + _COMMENTS  # 7
    + rb"(?:SET (?:last_insert_id=\d+,)?(?:insert_id=\d+,)?timestamp=(\d+(?:\.\d+)?);\n)?"  # 8
)
_SCHEMA = re.compile(rb"(?:Schema|Db): (\S+)")
_AFFECTED = re.compile(rb"Rows_affected: (\d+)")
_BANNER = re.compile(
    rb"^[^\n]*, Version: [^\n]*started with:\n(?:Tcp port:[^\n]*\n)?(?:Time  [^\n]*(?:\n|\Z))?", re.MULTILINE
)
_START = re.compile(rb"(?:\A|(?<=\n))# (?:Time: |User@Host: )")


def read_mysql_log(chunks: Iterator[bytes], table: ShapeTable, times: Times, tally: Tally) -> None:
    """Read one file into ``table``. An entry reaches to the next ``# Time:`` or ``# User@Host:`` after a ``;``."""
    inherited, database = float("nan"), b""
    header_at, read_time, add = HEADER.match, times.mysql, table.add
    for buffer in cut_at_entries(chunks, _last_start, tally):
        position, size = 0, len(buffer)
        while position < size:
            header = header_at(buffer, position)
            if header is None:
                position = _skip(buffer, position, tally)
                continue
            body_at = header.end()
            end = _end_of_body(buffer, body_at)
            time, user, before, query_time, sent, _, use, timestamp = header.groups()
            if time is not None:
                inherited = read_time(time)
            if timestamp is not None:
                at = inherited = float(timestamp)
            else:
                at = inherited
            if use is not None:
                database = use.strip(b"`")
            elif (schema := _SCHEMA.search(before) if before else None) is not None:
                database = schema[1]
            body = buffer[body_at:end]
            if b"started with:" in body:
                body = _BANNER.sub(b"", body)
            body = body.strip(b"; \n")
            position = end
            if body:
                tally.entries += 1
                who: Who = (user, database or None, None)
                add(at, float(query_time), body, who, int(sent) if sent is not None else None)
            else:
                tally.damage(buffer, header.start(), end, "an entry without a statement")
        tally.pass_over(buffer)


def _end_of_body(buffer: bytes, start: int) -> int:
    """Where the next entry begins. The same words inside a literal do not follow a ``;`` and a line's end."""
    search = start
    while True:
        found = buffer.find(b"\n# ", search)
        if found < 0:
            return len(buffer)
        begins = buffer[found + 3 : found + 9] == b"Time: " or buffer[found + 3 : found + 14] == b"User@Host: "
        if begins and (found < start or buffer[found - 1 : found] == b";" or _banner_before(buffer, found)):
            return found + 1
        search = found + 3


def _banner_before(buffer: bytes, found: int) -> bool:
    line = buffer[buffer.rfind(b"\n", 0, found) + 1 : found]
    return line.startswith((b"Time  ", b"Tcp port:"))


def _skip(buffer: bytes, position: int, tally: Tally) -> int:
    """Pass over what is no entry: the server's banner, or damage up to the next entry."""
    if banner := _BANNER.match(buffer, position):
        return banner.end()
    found = _START.search(buffer, position + 1)
    end = len(buffer) if found is None else found.start()
    tally.damage(buffer, position, end, "no entry of a slow log begins here")
    return end


def _last_start(buffer: bytes) -> int:
    """Where the last entry begins: a ``# Time:`` or ``# User@Host:`` line behind a statement's end."""
    end = len(buffer)
    while True:
        at = max(buffer.rfind(b"\n# Time: ", 0, end), buffer.rfind(b"\n# User@Host: ", 0, end))
        if at < 0:
            return 0
        if buffer[at - 1 : at] == b";" or _banner_before(buffer, at):
            return at + 1
        end = at
