"""``log_line_prefix`` of Postgres, compiled to a reader of whole entries.

The escapes are those of https://www.postgresql.org/docs/current/runtime-config-logging.html#GUC-LOG-LINE-PREFIX
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent_core.errors import ToolFailed
from bot.tools.slow_logs.messages import DURATION

LEVELS = b"DEBUG[1-5]?|LOG|INFO|NOTICE|WARNING|ERROR|FATAL|PANIC|STATEMENT|DETAIL|HINT|CONTEXT|QUERY|LOCATION|BACKTRACE"
_ZONE = rb"(?P<zone>[A-Za-z]{1,6}|[+-]\d\d(?::?\d\d)?)"
# Names have at most 63 bytes in Postgres; without a bound, a long line that does not fit would be tried for hours.
_FIELDS: dict[str, bytes] = {
    "a": rb"(?P<app>[^\n]{0,64}?)",
    "u": rb"(?P<user>[^\n]{0,64}?)",
    "d": rb"(?P<db>[^\n]{0,64}?)",
    "r": rb"\S{0,200}?",
    "h": rb"\S{0,200}?",
    "L": rb"\S{0,200}?",
    "b": rb"[^\n]{0,200}?",
    "p": rb"(?P<pid>\d+)",
    "P": rb"\d*",
    "t": rb"(?P<minute>\d{4}-\d\d-\d\d \d\d:\d\d):(?P<seconds>\d\d) " + _ZONE,
    "m": rb"(?P<minute>\d{4}-\d\d-\d\d \d\d:\d\d):(?P<seconds>\d\d\.\d{3}) " + _ZONE,
    "n": rb"(?P<epoch>\d{9,11}(?:\.\d+)?)",
    "i": rb"[^\n]{0,200}?",
    "e": rb"[0-9A-Z]{5}",
    "c": rb"(?P<session>[0-9a-f]+\.[0-9a-f]+)",
    "l": rb"(?P<line>\d+)",
    "s": rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?:[A-Za-z]{1,6}|[+-]\d\d(?::?\d\d)?)",
    "v": rb"[\d/-]*",
    "x": rb"\d+",
    "Q": rb"-?\d+",
    "%": rb"%",
}
# Where a blank is all that stands between an application's name and that of a user or a database, it is open which word
# is whose: "my app shop " may be two pairs by "%a %d ". Likely is the one in which user and database are one word each.
_OPEN = re.compile(r"%-?\d*[abi] .*%-?\d*[ud]", re.DOTALL)
_ONE_WORD = _FIELDS | {escape: rb"\S{0,64}?" for escape in "ud"}
_ONE_WORD_IF_PLAIN = _FIELDS | {
    "u": rb"(?P<user>(?(plain)\S{0,64}?|[^\n]{0,64}?))",
    "d": rb"(?P<db>(?(plain)\S{0,64}?|[^\n]{0,64}?))",
}
_GROUP = re.compile(rb"\?P<(\w+)>")
_NAMES = ("minute", "seconds", "zone", "epoch", "pid", "session", "line", "user", "db", "app")
# As in Postgres's log_status_format: a second %q says nothing new, and what a last % is to say is passed over.
_ESCAPE = re.compile(r"%(-?\d+)?(.|\Z)", re.DOTALL)

COMMON = (
    "%m [%p] ",
    "%m [%p] %q%u@%d ",
    "%m [%p] %q%u@%d/%a ",
    "%m [%p] %q[user=%u,db=%d,app=%a] ",
    "%m [%p] %u@%d ",
    "%m [%p] %u %d ",
    "%m [%p] %u %d %a ",
    "%m [%p] %q%a ",
    "%m [%p] user=%u,db=%d,app=%a,client=%h ",
    "%m [%p]: user=%u,db=%d,app=%a,client=%h ",
    "%m [%p]: [%l-1] user=%u,db=%d,app=%a,client=%h ",
    "%m [%p]: [%l-1] user=%u,db=%d ",
    "%m [%p]: [%l-1] db=%d,user=%u ",
    "%m [%p]: [%l-1] %quser=%u,db=%d,app=%a,client=%h ",
    "%m [%p]: ",
    "%t [%p] ",
    "%t [%p]: ",
    "%t [%p] %q%u@%d ",
    "%t [%p-%l] %q%u@%d ",
    "%t [%p]: [%l-1] ",
    "%t [%p]: [%l-1] user=%u,db=%d ",
    "%t [%p]: [%l-1] db=%d,user=%u ",
    "%t [%p]: [%l-1] user=%u,db=%d,app=%a,client=%h ",
    "%t [%p]: user=%u,db=%d,app=%a,client=%h ",
    "%t:%r:%u@%d:[%p]:",
    "%t:%h:%u@%d:[%p]:",
    "%m:%r:%u@%d:[%p]:%l:%e:%s:%v:%x:%c:%q%a:",
    "%t-%c-",
    "%m-%c-",
    "%m [%c] ",
    "%m %c %u %d ",
    "%m %p %c %l %u %d ",
    "%t %p %u %d ",
    "%m %u@%d %p %r %a : ",
    "%n [%p] ",
    "%n [%p] %q%u@%d ",
    "< %m >",
    "<%m>",
    "%t ",
    "%m ",
    "[%p] ",
    "",
)
"""Prefixes that are tried when none is given: the defaults of Postgres and Debian, and those of hosting services."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A compiled prefix.

    Args:
        text: as it stands in ``postgresql.conf``.
        entry: matches one whole entry with its continuation lines and the last line's end. Groups by name: those of
            ``_NAMES``, ``level``, ``duration``, ``step`` and ``body``; a group that the prefix lacks never matches.
    """

    text: str
    entry: re.Pattern[bytes]

    @property
    def fields(self) -> int:
        """How many facts it tells, for choosing between two that match."""
        return sum(f"%{escape}" in self.text for escape in "audpcmtnl")


def compile_prefix(text: str) -> Prefix:
    """Compile a ``log_line_prefix``.

    Raises:
        ToolFailed: code ``bad_prefix``; an escape that Postgres does not have.
    """
    if _OPEN.search(text) is None:
        head = _build_head(text, _FIELDS)
    else:
        plain = _GROUP.sub(b"?:", _build_head(text, _ONE_WORD))
        head = rb"(?:(?=" + plain + rb"(?:" + LEVELS + rb"):  )(?P<plain>)|)" + _build_head(text, _ONE_WORD_IF_PLAIN)
    seen = {name.decode() for name in _GROUP.findall(head)}
    missing = b"".join(rb"(?P<%b>(?!))?" % name.encode() for name in _NAMES if name not in seen)
    whole = (
        rb"^" + head + rb"(?P<level>" + LEVELS + rb"):  (?:" + DURATION + rb")?"
        rb"(?P<body>[^\n]*+(?:\n\t[^\n]*+)*+)\n?" + missing
    )
    return Prefix(text=text, entry=re.compile(whole, re.MULTILINE))


def _build_head(text: str, fields: Mapping[str, bytes]) -> bytes:
    """Build the pattern of a prefix; the second of two equal escapes has no name in it."""
    parts: list[bytes] = []
    seen: set[bytes] = set()
    at, optional = 0, False
    for match in _ESCAPE.finditer(text):
        parts.append(re.escape(text[at : match.start()].encode()))
        at = match.end()
        escape, width = match[2], match[1]
        if escape in ("q", ""):
            parts += [b"(?:"] if escape and not optional else []
            optional = optional or bool(escape)
            continue
        field = fields.get(escape)
        if field is None:
            raise ToolFailed(
                f"log_line_prefix {text[:80]!r} has %{escape}, which Postgres does not know",
                code="bad_prefix",
                fix="copy log_line_prefix from postgresql.conf, or from SHOW log_line_prefix",
            )
        for name in _GROUP.findall(field):
            if name in seen:
                field = field.replace(b"?P<%b>" % name, b"?:")
            seen.add(name)
        parts.append(rb" *+" + field + rb" *" if width else field)
    parts.append(re.escape(text[at:].encode()))
    if optional:
        parts.append(b")?")
    return b"".join(parts)


def guess_prefix(sample: bytes) -> Prefix | None:
    """Find the prefix of the entries of ``sample``; None when fewer than half of its lines fit any known one."""
    lines = [line for line in sample.split(b"\n")[:400] if line and line[:1] not in b"\t "]
    looks = re.compile(rb"(?:^|[^A-Za-z])(?:" + LEVELS + rb"):  ")
    lines = [line[:1_000] for line in lines if looks.search(line, 0, 1_000)][:200]
    best: tuple[int, int, Prefix] | None = None
    for text in COMMON:
        prefix = compile_prefix(text)
        matches = [m for line in lines if (m := prefix.entry.match(line)) is not None]
        odd = sum(_is_odd(m) for m in matches)
        rank = (len(matches) - odd, prefix.fields)
        if matches and (best is None or rank > best[:2]):
            best = (*rank, prefix)
    return best[2] if best is not None and best[0] * 2 >= len(lines) > 0 else None


def _is_odd(match: re.Match[bytes]) -> bool:
    """A name with the signs of the next fields in it was read with the wrong prefix."""
    names = [match[name] for name in ("user", "db", "app")]
    return (
        any(
            name is not None and (b"=" in name or (b"[" in name.lstrip(b"[") and b"unknown" not in name))
            for name in names
        )
        or any(name is not None and b" " in name for name in names[:2])
        or (names[1] is not None and b"/" in names[1])
    )
