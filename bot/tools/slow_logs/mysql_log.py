"""The slow-query log of MySQL (5.6 to 9) and MariaDB, with the further lines that InnoDB and Percona write.

The forms are those of https://dev.mysql.com/doc/refman/8.4/en/slow-query-log.html and
https://mariadb.com/kb/en/slow-query-log-overview/
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bot.tools.slow_logs.keys import is_whole_mysql
from bot.tools.slow_logs.shapes import ShapeTable, Who
from bot.tools.slow_logs.sources import MOST_ENTRY, shorten_entry
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
_FAR = 64 * 1024
_SCHEMA = re.compile(rb"(?:Schema|Db): (\S+)")
_AFFECTED = re.compile(rb"Rows_affected: (\d+)")
_BANNER = re.compile(
    rb"^[^\n]*, Version: [^\n]*started with:\n(?:Tcp port:[^\n]*\n)?(?:Time[ \t]{2}[^\n]*(?:\n|\Z))?", re.MULTILINE
)
_START = re.compile(rb"(?:\A|(?<=\n))# (?:Time: |User@Host: )")


def read_mysql_log(chunks: Iterator[bytes], table: ShapeTable, times: Times, tally: Tally) -> None:
    """Read one file into ``table``. An entry reaches to the next ``# Time:`` or ``# User@Host:`` after a ``;``."""
    reader = _Reader(table, times, tally)
    rest, ended, shortened = b"", False, False
    while not ended:
        chunk = next(chunks, None)
        ended = chunk is None
        buffer = rest + chunk if chunk else rest
        position = reader.read(buffer, ended)
        tally.pass_over(buffer[:position])
        rest = buffer[position:]
        shortened = shortened and position == 0
        if len(rest) > MOST_ENTRY or (shortened and rest):
            tally.shortened += not shortened
            rest, shortened = shorten_entry(rest), True


class _Reader:
    """Reads the pieces of one file; time and database stay from one entry to the next."""

    def __init__(self, table: ShapeTable, times: Times, tally: Tally) -> None:
        self._table = table
        self._times = times
        self._tally = tally
        self._at = float("nan")
        self._database = b""

    def read(self, buffer: bytes, ended: bool) -> int:
        """Read the complete entries of a piece, and return where the first incomplete one begins."""
        position, size = 0, len(buffer)
        while position < size:
            header = HEADER.match(buffer, position)
            if header is None:
                if not ended and size - position < _FAR:
                    return position
                position = _skip(buffer, position, self._tally)
                continue
            end = _end_of_body(buffer, header.end(), ended)
            if end == size and not ended:
                return position
            self._take(header, buffer, end)
            position = end
        return position

    def _take(self, header: re.Match[bytes], buffer: bytes, end: int) -> None:
        time, user, before, query_time, sent, _, use, timestamp = header.groups()
        if time is not None:
            self._at = self._times.mysql(time)
        if timestamp is not None:
            self._at = float(timestamp)
        if use is not None:
            self._database = use.strip(b"`")
        elif (schema := _SCHEMA.search(before) if before else None) is not None:
            self._database = schema[1]
        body = self._cut_body(buffer, header.end(), end)
        if not body:
            self._tally.damage(buffer, header.start(), end, "an entry without a statement")
            return
        self._tally.entries += 1
        who: Who = (user, self._database or None, None)
        self._table.add(self._at, float(query_time), body, who, int(sent) if sent is not None else None)

    def _cut_body(self, buffer: bytes, start: int, end: int) -> bytes:
        """The statement, without the banner of a restart and without what stands behind its end."""
        body = buffer[start:end]
        if b"started with:" in body:
            body = _BANNER.sub(b"", body)
        if not body.endswith(b";\n") and not body.rstrip().endswith(b";"):
            closed = body.rfind(b";\n")
            if closed > 0 and is_whole_mysql(body[:closed]):
                self._tally.damage(buffer, start + closed + 2, end, "no entry of a slow log begins here")
                body = body[:closed]
        return body.strip(b"; \n")


def _end_of_body(buffer: bytes, start: int, ended: bool) -> int:
    """Where the next entry begins: at a header behind a ``;`` and a line's end, unless that is inside a literal."""
    search, first = start, 0
    while True:
        found = buffer.find(b"\n# ", search)
        if found < 0:
            open_quote = first and (ended or len(buffer) - first > _FAR) and not is_whole_mysql(buffer[start:])
            return first if open_quote else len(buffer)
        if first and found - first > _FAR:
            return first
        begins = buffer[found + 3 : found + 9] == b"Time: " or buffer[found + 3 : found + 14] == b"User@Host: "
        if begins:
            closed = found < start or buffer[found - 1 : found] == b";" or _banner_before(buffer, found)
            odd = (buffer.count(b"'", start, found) | buffer.count(b'"', start, found)) % 2
            if (closed and not odd) or (
                HEADER.match(buffer, found + 1) is not None and is_whole_mysql(buffer[start:found])
            ):
                return found + 1
            if closed and not first:
                first = found + 1  # a statement may really have an open quote, when it was cut off
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
