"""A small reader of Discord's Markdown, written from its rules and not from our writer: what people see, who is told.

The order and form of the rules are those of Discord's client (support.discord.com, "Markdown Text 101"; message
formatting on discord.com/developers/docs/reference): escapes first, then code, then what stands in angle brackets, then
links, then marks. A mark without a partner is text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LIVE = re.compile(
    r"<@!?\d+>|<@&\d+>|<#\d+>|<a?:\w+:\d+>|</[^<>]+:\d+>|<t:-?\d+(?::[tTdDfFRsS])?>"
    r"|<id:(?:customize|browse|guide|home|linked-roles(?::\d+)?)>|@everyone|@here"
)
_BLOCK = re.compile(r"```(?:([A-Za-z0-9_+\-.#]+?)\n)?\n*([^\n][\s\S]*?)\n*```")
_INLINE = re.compile(r"(`+)([\s\S]*?[^`])\1(?!`)")
_ESCAPE = re.compile(r"\\([^0-9A-Za-z\s])")
_ANGLE = re.compile(r"<([^:<> ]+:/[^<> ]+)>")
_BARE = re.compile(r"https?://[^\s<]+[^<.,:;\"')\]\s]")
_LINK = re.compile(r"\[((?:\[[^\]]*\]|[^\[\]]|\](?=[^\[]*\]))*)\]\(\s*<?((?:[^\s()<>]|\([^\s()]*\))*?)>?\s*\)")
_EMOJI = re.compile(r":(?:[\w+-]*[A-Za-z][\w+-]*|100|1234|[+-]1):")
_MARKS = (
    ("strong", re.compile(r"\*\*((?:\\[\s\S]|[^\\])+?)\*\*(?!\*)")),
    ("underline", re.compile(r"__((?:\\[\s\S]|[^\\])+?)__(?!_)")),
    ("em", re.compile(r"_((?:__|\\[\s\S]|[^\\_])+?)_(?![0-9A-Za-z_])")),
    ("em", re.compile(r"\*(?=\S)((?:\*\*|\\[\s\S]|\s+(?:\\[\s\S]|[^\s*\\]|\*\*)|[^\s*\\])+?)\*(?!\*)")),
    ("strike", re.compile(r"~~([\s\S]+?)~~(?!_)")),
    ("spoiler", re.compile(r"\|\|([\s\S]+?)\|\|")),
)
_LINES = (
    ("heading", re.compile(r" *#{1,3}\s+(?=\S)")),
    ("small", re.compile(r" *-#\s+(?=\S)")),
    ("quote", re.compile(r" *>(?:>>)? ")),
    ("list", re.compile(r" *(?:[-*]|\d+\.) +(?=\S)")),
)


@dataclass
class Seen:
    """What people see: the characters, the kinds of marks, who or what is mentioned, the links."""

    text: str = ""
    kinds: set[str] = field(default_factory=set)
    live: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    blocks: list[tuple[str, str]] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    marked: list[tuple[str, str]] = field(default_factory=list)


def read(content: str) -> Seen:
    """Read one message."""
    seen = Seen()
    _read(content, seen, begins=True)
    return seen


def _read(content: str, seen: Seen, *, begins: bool) -> None:
    at = 0
    while at < len(content):
        if begins:
            for kind, rule in _LINES:
                if found := rule.match(content, at):
                    seen.kinds.add(kind)
                    at = found.end()
                    break
            else:
                begins = False
            if begins:
                continue
        at = _read_one(content, at, seen)
        begins = content[at - 1 : at] == "\n"


def _read_one(content: str, at: int, seen: Seen) -> int:
    if found := _ESCAPE.match(content, at):
        seen.text += found[1]
    elif found := _BLOCK.match(content, at):
        seen.blocks.append((found[1] or "", found[2]))
        seen.text += found[2]
    elif found := _INLINE.match(content, at):
        seen.codes.append(found[2])
        seen.text += found[2]
    elif found := LIVE.match(content, at):
        seen.live.append(found[0])
        seen.text += found[0]
    elif found := _ANGLE.match(content, at) or _BARE.match(content, at):
        url = found[0].strip("<>")
        seen.links.append((url, url))
        seen.text += url
    elif found := _LINK.match(content, at):
        label = read(found[1])
        seen.kinds |= label.kinds
        seen.live += label.live
        seen.links.append((label.text, found[2]))
        seen.text += label.text
    elif found := _EMOJI.match(content, at):
        seen.kinds.add("emoji")
        seen.text += found[0]
    else:
        for kind, rule in _MARKS:
            if found := rule.match(content, at):
                seen.kinds.add(kind)
                inner = Seen()
                _read(found[1], inner, begins=False)
                seen.marked.append((kind, inner.text))
                _join(seen, inner)
                return found.end()
        seen.text += content[at]
        return at + 1
    return found.end()


def _join(seen: Seen, inner: Seen) -> None:
    seen.text += inner.text
    seen.kinds |= inner.kinds
    seen.live += inner.live
    seen.codes += inner.codes
    seen.links += inner.links
    seen.blocks += inner.blocks
    seen.marked += inner.marked
