"""Markdown for ``chat.appendStream``, which Slack renders itself and to which text can only be added.

Slack reads standard Markdown there, and its own ``<…>`` marks too. So the source is passed on with everything taken
out that could ping, hide an address or make Slack fetch one. What is already written never changes: a construct whose
end is not there yet (a link, bold text, the head of a table, a ``<``) is held back until it is, or until it is so long
that it cannot be one. Rules: docs.slack.dev/reference/block-kit/blocks/markdown-block. That an escaped ``<`` is shown
and never read as a mark again was measured by others (PostHog, pull request 95054).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from adapters.markdown.bidi import find_rtl, leans_left
from adapters.markdown.grapheme import cut_before, is_boundary
from adapters.markdown.pieces import normalise
from adapters.slack.inline import BREAK, InlineWriter

TABLE_ROWS, TABLE_COLUMNS, TABLE_CHARS = 99, 20, 9_000
"""What of the tables of a stream Slack may draw; further rows follow as code."""

_CONTAINER = re.compile(r"[ \t]*(?:(?:>|[-*+]|\d{1,9}[.)])(?:[ \t]+|(?=$)|(?=>)))*[ \t]*")
_FENCE = re.compile(r"(?:(`{3,})[^`]*|(~{3,}).*)$")
_ITEM = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+")
_DELIMITER = re.compile(r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_DIRECTION_FROM = 160  # so much of a line tells which way it runs


def render_stream(
    markdown: str, mentions: Collection[str] = (), *, final: bool = False, trusted: Collection[str] | None = None
) -> str:
    """Render a growing text for ``markdown_text``.

    What this returns for the beginning of a text is the beginning of what it returns for more of it.

    Args:
        markdown: the text so far.
        mentions: ids of the users whose ``<@ID>`` may ping them.
        final: the text is complete: nothing is held back, and an open fence is closed.
        trusted: hosts that may be linked to; None for any.
    """
    return StreamText(mentions, trusted=trusted).show(markdown, final=final)


class StreamText:
    """``render_stream`` for many calls with one growing text: only what is new is looked at. One task uses it."""

    def __init__(self, mentions: Collection[str] = (), *, trusted: Collection[str] | None = None) -> None:
        self._writer = InlineWriter(frozenset(mentions), None if trusted is None else frozenset(trusted))
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._seen = ""
        self._lines = _Lines(self._writer)

    def show(self, markdown: str, *, final: bool = False) -> str:
        """Return the whole text so far, rendered. A text that does not continue the last one begins anew."""
        text = _settled(markdown, final=final)
        if not text.startswith(self._seen):
            self._begin_anew()
        *lines, last = text[len(self._seen) :].split("\n")
        for n, line in enumerate(lines):
            known = final or n + 1 < len(lines)
            if not self._lines.take(line, follows=[*lines, last][n + 1], known=known):
                return self._lines.begun(line)
            self._seen += line + "\n"
        return self._lines.ended(last) if final else self._lines.begun(last)


def _settled(markdown: str, *, final: bool) -> str:
    """The text without what its next character may still change: half a line end, half a grapheme."""
    text = markdown if final else markdown.removesuffix("\r")
    text = normalise(text)
    if final or not text or text[-1].isascii():
        return text
    at = cut_before(text, len(text) - 1)
    written = next((n for n in range(len(text), 0, -1) if text[n - 1].isascii()), 0)  # whatever joins it
    return text[: max(at if is_boundary(text, at) else 0, written)]


@dataclass(slots=True)
class _Lines:
    """Goes through a text line by line; knows in which fence or table the next one stands."""

    writer: InlineWriter
    out: list[str] = field(default_factory=list)
    fence: str = ""
    quoted: bool = False
    column: int = 0  # where the text of the list item stands that may hold what follows
    fence_column: int = 0
    headed: bool = False  # the line before may be the head of a table
    table: bool = False
    as_code: bool = False  # the rows of a table go on as code
    rows: int = 0
    cells: int = 0

    # -- whole lines
    def take(self, line: str, *, follows: str, known: bool) -> bool:
        """Render a whole line; false when what ``follows`` has to be ``known`` better first."""
        free = not (self.fence or self.table or self.as_code)
        if free and not known and line[_indent(line) :].startswith("|") and _is_bars(follows):
            return False
        self.out.append(self._line(line) + "\n")
        return True

    def _line(self, line: str) -> str:
        if self.fence and self._leaves_fence(line):
            self.fence = ""
        if self.fence:
            return self._in_fence(line)
        if self.table or self.as_code:
            if "|" in line:
                return self._row(line)
            before = "```\n" if self.as_code else ""
            self.table = self.as_code = False
            return before + self._line(line)
        at = _indent(line)
        opening = _FENCE.match(line, at)
        if opening and self._may_open(line[:at]):
            self._open_fence(line[:at], opening[1] or opening[2])
            return line[:at] + self.writer.code(line[at:])
        if self.headed and "|" in line and _DELIMITER.match(line):
            return self._delimiter(line)
        self._note_item(line)
        self.headed = "|" in line
        return self._prose(line)

    def _in_fence(self, line: str) -> str:
        if not self._closes_fence(line):
            return self.writer.code(line)
        self.fence = ""
        return line

    def _prose(self, line: str) -> str:
        return self.writer.text(line, isolated=leans_left(line[:_DIRECTION_FROM]))

    def _note_item(self, line: str) -> None:
        item = _ITEM.match(line)
        if item:
            self.column = _width(item[0])
        elif line.strip() and _margin(line) < self.column:
            self.column = 0

    # -- fences
    def _may_open(self, before: str) -> bool:
        """True unless it stands so deep that it is code already."""
        if before.strip():
            return True
        base = self.column if _width(before) >= self.column else 0
        return _width(before) - base < 4

    def _open_fence(self, before: str, marks: str) -> None:
        self._note_item(before + "x")
        self.fence, self.quoted, self.headed = marks, ">" in before, False
        self.fence_column = 0 if self.quoted else min(self.column, _width(before))

    def _leaves_fence(self, line: str) -> bool:
        """True for a line that belongs neither to the quote nor to the list item in which the fence stands."""
        if self.quoted:
            return not line.lstrip().startswith(">")
        return bool(line.strip()) and _margin(line) < self.fence_column

    def _closes_fence(self, line: str) -> bool:
        inside = line.lstrip(" \t>") if self.quoted else line.lstrip(" \t")
        marks = inside.rstrip()
        deep = not self.quoted and _margin(line) - self.fence_column >= 4
        return not deep and len(marks) >= len(self.fence) and not marks.strip(self.fence[0])

    # -- tables
    def _delimiter(self, line: str) -> str:
        self.headed = False
        if line.strip(" \t>").strip("|").count("|") >= TABLE_COLUMNS or self.cells >= TABLE_CHARS:
            return BREAK + line  # lines with bars, but no table
        self.table, self.rows = True, 0
        return line

    def _row(self, line: str) -> str:
        self.rows += 1
        self.cells += len(line)
        if self.as_code:
            return self.writer.code(line)
        if self.rows > TABLE_ROWS or self.cells > TABLE_CHARS:
            self.table, self.as_code = False, True
            return "\n```\n" + self.writer.code(line)
        return self._prose(line)

    # -- the last line
    def ended(self, line: str) -> str:
        """All that is rendered, with the last line, and with what is open closed."""
        end = replace(self, out=[])
        tail = end._line(line) if line else ""
        whole = "".join(self.out) + tail
        if end.fence or end.as_code:
            whole += ("" if whole.endswith("\n") else "\n") + ("> " if end.quoted and end.fence else "")
            whole += " " * end.fence_column + end.fence if end.fence else "```"
        return whole

    def begun(self, line: str) -> str:
        """All that is rendered, with what is certain of the line that follows."""
        return "".join(self.out) + self._certain(line)

    def _certain(self, line: str) -> str:
        if self.fence:
            return self._certain_code(line)
        if self.table or self.as_code or not line.strip() or (self.headed and _is_bars(line)):
            return ""
        at = _indent(line)
        rest = line[at:]
        marks = len(rest) - len(rest.lstrip(rest[0])) if rest and rest[0] in "`~" else 0
        if not rest or rest[0] == "|" or marks >= 3 or (marks and marks == len(rest)):
            return line[:at].rstrip("*")
        first = find_rtl(line)
        if first >= 0 and len(line) < _DIRECTION_FROM:
            return self.writer.text(line[:first], whole=False)
        return self.writer.text(line, whole=False, isolated=leans_left(line[:_DIRECTION_FROM]))

    def _certain_code(self, line: str) -> str:
        inside = line.lstrip(" \t>") if self.quoted else line.lstrip(" \t")
        if not inside or inside[0] == self.fence[0] or self._leaves_fence(line):
            return ""
        return self.writer.code(line, whole=False)


def _indent(line: str) -> int:
    """Where the text of a line begins, behind the marks of quotes and lists."""
    found = _CONTAINER.match(line)
    return found.end() if found else 0


def _is_bars(line: str) -> bool:
    """True for what may be the line below the head of a table."""
    return not line.strip(" \t>|:-")


def _width(text: str) -> int:
    return len(text.expandtabs(4))


def _margin(line: str) -> int:
    """How far a line is indented, in columns."""
    return _width(line[: len(line) - len(line.lstrip(" \t"))])
