"""Which kind of log a file is, by its beginning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from agent_core.errors import ToolFailed
from bot.tools.slow_logs.csv_log import RECORD
from bot.tools.slow_logs.prefix import COMMON, Prefix, guess_prefix

Format = Literal["stderr", "csvlog", "jsonlog", "mysql"]
AnyFormat = Literal["auto", "stderr", "csvlog", "jsonlog", "mysql"]

_NAMES: Mapping[Format, str] = {
    "stderr": "Postgres's plain log",
    "csvlog": "Postgres's csvlog",
    "jsonlog": "Postgres's jsonlog",
    "mysql": "the slow-query log of MySQL or MariaDB",
}
_JSON = re.compile(rb'^\{[^\n]*"error_severity"[^\n]*\}', re.MULTILINE)
_MYSQL = re.compile(rb"^# (?:User@Host: |Query_time: \d)|^[^\n]*, Version: [^\n]*started with:\n", re.MULTILINE)
_CSV_LINE = re.compile(rb"^(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? [A-Za-z0-9+:-]{1,6},)", re.MULTILINE)
_INSTANT = re.compile(rb"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d{1,6})?)")
_OLD_TIME = re.compile(rb"# Time: (\d\d)(\d\d)(\d\d)\s+(\d{1,2}):(\d\d:\d\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """What a file is. ``prefix`` is there for ``stderr``; ``guessed`` when nobody gave it."""

    format: Format
    prefix: Prefix | None = None
    guessed: bool = False


def recognise(sample: bytes, *, format: AnyFormat, prefix: Prefix | None, name: str) -> Recognised:
    """Tell what a file is.

    Args:
        sample: its beginning, decompressed.
        format: what somebody says it is; ``auto`` looks.
        prefix: the compiled ``log_line_prefix``, where somebody gave it.
        name: for the message.

    Raises:
        ToolFailed: code ``log_format_unknown``; the message says what was tried. Nothing of the file is repeated.
    """
    if format != "auto" and format != "stderr":  # noqa: PLR1714 (so that the type checker sees what is left)
        return Recognised(format=format)
    if prefix is not None and (format == "stderr" or prefix.entry.search(sample) is not None):
        return Recognised(format="stderr", prefix=prefix)
    if format == "auto":
        if _JSON.search(sample):
            return Recognised(format="jsonlog")
        if any(RECORD.match(sample, line.start()) for line in _CSV_LINE.finditer(sample)):
            return Recognised(format="csvlog")
        if _MYSQL.search(sample):
            return Recognised(format="mysql")
    if prefix is None and (guessed := guess_prefix(sample)) is not None:
        return Recognised(format="stderr", prefix=guessed, guessed=True)
    given = f"the given log_line_prefix {prefix.text!r}" if prefix is not None else f"{len(COMMON)} common prefixes"
    tried = [f"{_NAMES['stderr']} with {given}"]
    if format == "auto":
        tried += [_NAMES[kind] for kind in get_args(Format)[1:]]
    raise ToolFailed(
        f"{name}: this is no log that can be read. Tried on its first {len(sample):,} bytes: {'; '.join(tried)}",
        code="log_format_unknown",
        fix="pass format (stderr, csvlog, jsonlog or mysql); for a plain Postgres log pass log_line_prefix as "
        "SHOW log_line_prefix prints it. Messages in other languages than English (lc_messages) cannot be read",
    )


def find_first_time(sample: bytes) -> str:
    """The first time in a file as text that sorts by time; empty when there is none. For ordering rotated files."""
    if match := _INSTANT.search(sample):
        return f"{match[1].decode()} {match[2].decode()}"
    if match := _OLD_TIME.search(sample):
        year, month, day, hour, rest = (part.decode() for part in match.groups())
        return f"20{year}-{month}-{day} {int(hour):02d}:{rest}"
    return ""
