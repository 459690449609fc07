"""Text that Discord shows exactly as given: none of its characters is a mark or a mention.

Discord takes a backslash before punctuation as "this is no mark". Mentions, times, emoji and commands in angle brackets
are parted by a zero-width space as well, because a server, an old client and a bridge do not all know of backslashes
there; and so is what might be the end of a link, since that is looked for without regard to backslashes. Marks and
forms: discord.com/developers/docs/reference (message formatting) and support.discord.com, "Markdown Text 101".
"""

from __future__ import annotations

import re

ZERO_WIDTH = "\u200b"

USER = re.compile(r"<@!?([0-9]{1,20})>")
"""A mention of a person as a model writes it; it counts only for those whom a reply lists."""

_MARKS = re.compile(
    r"\\(?![0-9A-Za-z\s])"
    r"|[*`\[]"
    r"|<(?=\S|\Z)"  # an address between angle brackets may end behind a backtick, which then ends no code
    r"|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])"  # inside a word it is no mark: snake_case
    r"|~(?=~|\Z)|(?<=~)~|\A~"
    r"|\|(?=\||\Z)|(?<=\|)\||\A\|"
    r"|:(?=(?:[\w+-]*[A-Za-z][\w+-]*|100|1234|[+-]1):)"  # the name of an emoji
)
_LIVE = re.compile(r"<(?=[@#:/&!+]|[^\s<>]+:[^\s<>]*>|\Z)|@(?=everyone|here|\Z)|\](?=\()", re.I)
_LINE = re.compile(r"^([ \t]*)(?=(?:#{1,3}|-#?|>{1,3})(?:\s|$))", re.M)
_NUMBER = re.compile(r"^([ \t]*\d{1,10})(?=\.(?:\s|$))", re.M)
_INNER = re.compile(r"(?<=[0-9A-Za-z])_(?=[0-9A-Za-z])")
_FENCE = re.compile(r"`{3,}")


def escape(text: str, *, all_underscores: bool = False) -> str:
    """Return running text of which Discord takes nothing for a mark inside a line; see ``escape_lines``.

    ``all_underscores``: also those inside a word, which are no marks, but end italics that are written with them.
    """
    escaped = _MARKS.sub(r"\\\g<0>", text)
    if all_underscores:
        escaped = _INNER.sub(r"\\_", escaped)
    return _LIVE.sub(rf"\g<0>{ZERO_WIDTH}", escaped)


def escape_lines(rendered: str) -> str:
    """Return escaped text of which no line begins a heading, a list, a quote or small print."""
    return _NUMBER.sub(r"\1\\", _LINE.sub(r"\1\\", rendered))


def break_fences(text: str) -> str:
    """Return code that cannot end the block in which it stands."""
    return _FENCE.sub(lambda found: ZERO_WIDTH.join(found[0]), text)
