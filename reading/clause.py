"""One request of a message, with everything in it that does not depend on a tool read once."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cached_property

from reading.links import Link, find_links
from reading.maths import Expression, read_expression
from reading.sqltext import Code, read_code, read_sql
from reading.times import Times, read_times
from reading.vocabulary import FOLLOW_UP_CHINESE, FOLLOW_UP_ENGLISH
from reading.words import Token, tokenize
from reading.zones import Zone, read_zones

LONGEST_PROSE = 4_000
"""Characters in which words are looked for; a longer message is a pasted text, whose end says nothing more."""

_FOLLOWS = re.compile(
    rf"^\W*(?:(?:{'|'.join(sorted(FOLLOW_UP_ENGLISH, key=len, reverse=True))})\b|(?:{'|'.join(FOLLOW_UP_CHINESE)}))"
    r"|呢[?？\s]*$|\binstead\W*$|\bas\s+well\W*$|\btoo\W*$",
    re.IGNORECASE,
)


class Clause:
    """A text and its readings; each is made on first use.

    Args:
        text: what was said, spelling already mended.
        now: aware UTC, the anchor of "this week" and clock times.
    """

    def __init__(self, text: str, now: datetime) -> None:
        self.text = text
        self._now = now

    @cached_property
    def sql(self) -> Code | None:
        """The SQL statement."""
        return read_sql(self.text)

    @cached_property
    def code(self) -> list[Code]:
        """What is marked as code."""
        return read_code(self.text)

    @cached_property
    def links(self) -> list[Link]:
        """Addresses of web pages, but those in a statement or in longer code."""
        apart = [c for c in [*self.code, *([self.sql] if self.sql else [])] if not find_links(c.value.split(" ")[0])]
        found = find_links(self.text[:LONGEST_PROSE])
        return [link for link in found if not any(c.start <= link.start < c.end for c in apart)]

    @cached_property
    def prose(self) -> str:
        """The beginning of the text with SQL, code and addresses crossed out; positions are those of ``text``."""
        prose = self.text
        spans = [(c.start, c.end) for c in [*self.code, *([self.sql] if self.sql else [])]]
        for start, end in [*spans, *((k.start, k.end) for k in self.links)]:
            # not spaces: a pattern that skips spaces would have to try a long run of them from every place
            prose = prose[:start] + "\0" * (end - start) + prose[end:]
        return prose[:LONGEST_PROSE]

    @cached_property
    def times(self) -> Times:
        """Time ranges and durations of the prose."""
        return read_times(self.prose, self._now)

    @cached_property
    def expression(self) -> Expression | None:
        """The arithmetic in the prose, or marked as code."""
        found = read_expression(self.prose)
        if found is None and len(self.code) == 1 and self.sql is None and len(self.code[0].value) < 500:
            code = self.code[0]
            marked = read_expression(code.value)
            if marked and marked.end - marked.start >= len(code.value) - 2:
                return Expression(value=marked.value, start=code.start, end=code.end)
        return found

    @cached_property
    def zones(self) -> list[Zone]:
        """Places whose time zone is known."""
        return read_zones(self.prose)

    @cached_property
    def words(self) -> list[Token]:
        """The words of the prose. An address is one, whatever stands in it."""
        links = [Token(text=k.url, start=k.start, end=k.end, concepts=(k.url,)) for k in self.links]
        return sorted([*tokenize(self.prose), *links], key=lambda token: token.start)

    @cached_property
    def tokens(self) -> list[Token]:
        """The words of the prose that are not part of a time range or duration ("1 day" asks for no date)."""
        spans = self.times.spans()
        return [w for w in self.words if not any(a <= w.start and w.end <= b for a, b in spans)]

    @cached_property
    def compares(self) -> bool:
        """True when it asks for what lasted longer than some time ("took more than 2 s")."""
        return any(d.role == "threshold" for d in self.times.durations)

    @cached_property
    def follows(self) -> bool:
        """True when it is worded as a continuation: "and ...", "what about ...?", "…呢？"."""
        return _FOLLOWS.search(self.prose) is not None

    @cached_property
    def lead(self) -> int:
        """Where the words that only mark a continuation end ("now" in "now for yesterday"); 0 without them."""
        m = _FOLLOWS.match(self.prose)
        return m.end() if m else 0
