"""One line of Markdown made safe for Slack to render, from left to right, without looking further than it must.

What is in the line stays Markdown. Only this is changed: ``<`` that could begin a mark of Slack's, links that hide
where they lead, images, ``@here``; and bold text is closed where Slack can see it (``**Note:**so`` becomes
``**Note**:so``). Where a line is not complete, what could still become one of these is left off.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from adapters.markdown.bidi import FSI, PDI, RTL_RUN
from adapters.slack.links import Shown, show_link
from adapters.slack.mrkdwn import MENTION

BREAK = "\u200b"
"""Stands between two characters that may not meet."""

CODE_MAX, LABEL_MAX, TARGET_MAX, BOLD_MAX = 400, 1_000, 2_500, 300
"""How far the end of a construct may be, in characters; behind that it is taken as words."""

_SPECIAL = re.compile(r"\\|`+|!?\[|\]|<|\*+|@|https?://")
_TARGET = re.compile(
    r"\([ \t]*(?:<([^<>\n]*)>|((?:[^\s()<>\\]|\\.|\([^\s()<>]*\))*))"
    r"(?:[ \t]+(?:\"[^\"\n]*\"|'[^'\n]*'|\([^()\n]*\)))?[ \t]*\)"
)
_TARGET_BEGUN = re.compile(r"\([ \t]*(?:<[^<>\n]*>?|[^\s<>]*)(?:[ \t]+(?:[\"'(][^\n]*)?)?$")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_BRACKETS = re.compile(r"\\.|[\[\]]")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^\s<>]{1,2000})>", re.I)
_ANGLE_BEGUN = re.compile(r"<[^\s<>]{0,2000}$")
_BOLD = re.compile(rf"\*\*(?![\s*])([^*\n]{{1,{BOLD_MAX}}})(?<!\s)\*\*(?!\*)")
_BOLD_BEGUN = re.compile(rf"\*\*(?:[^\s*][^*\n]{{0,{BOLD_MAX - 1}}}\*{{0,2}})?$")
_URL = re.compile(r"https?://[^\s<>\[\]`*|]*")
_URL_BEGUN = re.compile(r"h(?:t(?:t(?:p(?:s?(?::/?)?)?)?)?)?$")
_WORD = re.compile(r"\w")
_PINGING = ("here", "channel", "everyone")
_BARE_PING = re.compile(r"@(?=here|channel|everyone)", re.I)
_IN_CODE = re.compile(r"<(?=[!@#]|[a-zA-Z][a-zA-Z0-9+.-]{0,31}:)")
_IN_CODE_BEGUN = re.compile(r"<[a-zA-Z0-9+.-]{0,32}$")
_CODE_SPANS = re.compile(r"[^`]*(?:`[^`]+`[^`]*)*")
_OUTSIDE_END = ":：。，、；！？.,;!?…」』）】》”’)\"'"
_OUTSIDE_START = "「『（【《“‘(\"'"


@dataclass(frozen=True, slots=True)
class InlineWriter:
    """Writes lines. ``mentions`` may be pinged; ``trusted`` hosts may be linked to, None for any."""

    mentions: frozenset[str]
    trusted: frozenset[str] | None

    def code(self, line: str, *, whole: bool = True) -> str:
        """A line inside a code block: a break behind each ``<`` that Slack could take for its own mark."""
        if not whole:
            line = _IN_CODE_BEGUN.sub("", line)
        return _IN_CODE.sub(f"<{BREAK}", line)

    def text(self, line: str, *, whole: bool = True, isolated: bool = False) -> str:
        """A line of running text, or what is certain of one; ``isolated``: isolate what runs from right to left."""
        out: list[str] = []
        at = 0
        while at < len(line):
            found = _SPECIAL.search(line, at)
            end = found.start() if found else len(line)
            words = line[at:end]
            if found is None and not whole:
                words = self._certain(words, isolated=isolated)
            out.append(RTL_RUN.sub(rf"{FSI}\g<0>{PDI}", words) if isolated else words)
            if found is None:
                break
            written = self._mark(line, found, whole=whole)
            if written is None:
                break
            out.append(written[0])
            at = written[1]
        return "".join(out)

    def _certain(self, words: str, *, isolated: bool) -> str:
        words = words.removesuffix("!")  # may begin an image
        if self.trusted is not None:
            words = _URL_BEGUN.sub("", words)
        if isolated and (runs := list(RTL_RUN.finditer(words))) and not _WORD.search(words, runs[-1].end()):
            words = words[: runs[-1].start()]  # the run may go on behind blanks and signs
        return words

    def _mark(self, line: str, found: re.Match[str], *, whole: bool) -> tuple[str, int] | None:
        """What is written for the mark found, and where to go on; None to wait for more of the line."""
        at, mark = found.start(), found[0]
        written: tuple[str, int] | None
        match mark[0]:
            case "\\":
                written = self._escaped(line, at, whole=whole)
            case "`":
                written = self._code_span(line, at, len(mark), whole=whole)
            case "[" | "!":
                written = self._link(line, at, image=mark[0] == "!", whole=whole)
            case "]":
                joint = BREAK if line[at + 1 : at + 2] in ("(", ":") else ""
                written = (f"]{joint}", at + 1) if whole or at + 1 < len(line) else None
            case "<":
                written = self._angle(line, at, whole=whole)
            case "*":
                written = self._stars(line, at, len(mark), whole=whole)
            case "@":
                written = self._at(line, at, whole=whole)
            case _:
                written = self._address(line, at, whole=whole)
        return written

    def _at(self, line: str, at: int, *, whole: bool) -> tuple[str, int] | None:
        rest = line[at + 1 : at + 9].lower()
        if not whole and at + 9 > len(line) and any(word.startswith(rest) and word != rest for word in _PINGING):
            return None
        return (f"@{BREAK}" if rest.startswith(_PINGING) else "@"), at + 1

    def _escaped(self, line: str, at: int, *, whole: bool) -> tuple[str, int] | None:
        if at + 1 == len(line):
            return ("\\", at + 1) if whole else None
        char = line[at + 1]
        written = {"<": "&lt;", "]": f"\\]{BREAK}", "@": f"@{BREAK}"}.get(char, "\\" + char)
        return written, at + 2

    def _code_span(self, line: str, at: int, ticks: int, *, whole: bool) -> tuple[str, int] | None:
        end = at + CODE_MAX
        for run in re.finditer(r"`+", line[at + ticks : end]):
            begin, stop = at + ticks + run.start(), at + ticks + run.end()
            if stop >= end:
                break
            if stop == len(line) and not whole:
                return None
            if len(run[0]) == ticks:
                marks = "`" * ticks
                return f"{marks}{self.code(line[at + ticks : begin])}{marks}", stop
        if not whole and len(line) < end:
            return None
        return "\\`" * ticks, at + ticks

    # -- links
    def _link(self, line: str, at: int, *, image: bool, whole: bool) -> tuple[str, int] | None:
        begin = at + 1 + image
        words = (line[at:begin], begin)
        close = _closing_bracket(line, begin)
        if close < 0:
            return None if not whole and len(line) < begin + LABEL_MAX else words
        if close + 1 == len(line):
            return words if whole else None
        if line[close + 1] != "(":
            return words
        target = _TARGET.match(line, close + 1, close + 1 + TARGET_MAX)
        if target is not None:
            label = line[begin:close]
            url = html.unescape(
                re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", target[1] if target[1] is not None else target[2])
            )
            return self._safe_link(label, url), target.end()
        if not whole and len(line) < close + 1 + TARGET_MAX and _TARGET_BEGUN.match(line, close + 1):
            return None
        return words

    def _safe_link(self, label: str, url: str) -> str:
        shown = show_link(url, re.sub(r"[*_`~\\]", "", label), self.trusted)
        words = _BARE_PING.sub(f"@{BREAK}", label.replace("<", "&lt;").replace("[", "\\[").replace("]", "\\]"))
        if not _CODE_SPANS.fullmatch(words):
            words = words.replace("`", "\\`")
        if shown.url and not shown.before:
            return f"[{words}]({_target(shown.url)})" if label else _bare(shown)
        if shown.url:
            return f"{words} ({_bare(shown)})"
        dead = url.replace("<", "&lt;").replace("://", f":{BREAK}//").replace("@", f"@{BREAK}")
        return f"{words} ({dead})" if url and label != url else dead if url else words

    def _angle(self, line: str, at: int, *, whole: bool) -> tuple[str, int] | None:
        mention = MENTION.match(line, at)
        if mention is not None and mention[1] in self.mentions:
            return mention[0], mention.end()
        link = _AUTOLINK.match(line, at)
        if link is not None:
            shown = show_link(link[1], "", self.trusted)
            return (_bare(shown) if shown.url else link[1].replace("://", f":{BREAK}//")), link.end()
        if not whole and _ANGLE_BEGUN.match(line, at):
            return None
        return "&lt;", at + 1

    def _address(self, line: str, at: int, *, whole: bool) -> tuple[str, int] | None:
        found = _URL.match(line, at)
        end = found.end() if found else at
        url = line[at:end]
        if self.trusted is None:
            return url, end
        if end == len(line) and not whole:
            return None
        return (url if show_link(url, "", self.trusted).url else url.replace("://", f":{BREAK}//")), end

    # -- bold
    def _stars(self, line: str, at: int, stars: int, *, whole: bool) -> tuple[str, int] | None:
        if at + stars == len(line) and not whole:
            return None
        if stars != 2:
            return "*" * stars, at + stars
        found = _BOLD.match(line, at)
        if found is None:
            return None if not whole and _BOLD_BEGUN.match(line, at) else ("**", at + 2)
        if found.end() == len(line) and not whole:
            return None
        before, after = line[at - 1 : at] if at else "", line[found.end() : found.end() + 1]
        return self._bold(found[1], _is_word(before), _is_word(after)), found.end()

    def _bold(self, words: str, joins_left: bool, joins_right: bool) -> str:
        """Bold text, its marks where they are marks: a mark between a sign and a letter is not one (CommonMark 6.2)."""
        inner = words
        if joins_left:
            inner = inner.lstrip(_OUTSIDE_START)
        head = words[: len(words) - len(inner)]
        if joins_right and "](" not in inner:
            inner = inner.rstrip(_OUTSIDE_END)
        tail = words[len(head) + len(inner) :]
        inner = inner.strip()
        if not inner:
            return self.text(words)
        left = BREAK if joins_left and not head else ""
        right = BREAK if joins_right and not tail else ""
        return f"{head}{left}**{self.text(inner)}**{right}{tail}"


def _closing_bracket(line: str, begin: int) -> int:
    """Where the bracket that is open at ``begin`` is closed, -1 for nowhere near."""
    depth = 0
    for found in _BRACKETS.finditer(line, begin, begin + LABEL_MAX):
        if found[0] == "[":
            depth += 1
        elif found[0] == "]":
            if not depth:
                return found.start()
            depth -= 1
    return -1


def _bare(shown: Shown) -> str:
    return shown.label if shown.label and not shown.before else shown.url.removeprefix("mailto:")


def _target(url: str) -> str:
    for char, code in (("<", "%3C"), (">", "%3E"), (" ", "%20"), ("(", "%28"), (")", "%29"), ("\\", "%5C")):
        url = url.replace(char, code)
    return url


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"
