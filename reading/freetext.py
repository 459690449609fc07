"""Read a free text argument: what is left of a clause when the words that name the tool are taken off its ends."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reading.clause import Clause
from reading.schema import Slot
from reading.spec import Example
from reading.vocabulary import STOP_WORDS
from reading.words import Token

_QUOTED = re.compile(r"\"([^\"\n]+)\"|“([^”\n]+)”|「([^」\n]+)」|(?<![A-Za-z])'([^'\n]+)'(?![A-Za-z])|`([^`\n]+)`")
_PREPOSITIONS = frozenset(("for", "of", "about", "on", "in", "to", "at", "from", "with", "by", "into", "as"))
_JOINTS = _PREPOSITIONS | {"the", "a", "an", "this", "that", "these", "following"}
_CLOSINGS = frozenset(("please", "pls", "plz", "on", "in", "the", "for", "me", "thanks"))
_LONG_NAMES = re.compile(r"query|question|text|message|content|body|prompt|task|search|description|title|reason|note")


def read_free_text(
    slot: Slot,
    clause: Clause,
    examples: Sequence[Example],
    triggers: set[str],
    taken: Sequence[tuple[int, int]],
) -> tuple[int, int] | None:
    """Return the span of the text that belongs to ``slot``, or None when nothing is left for it.

    Quoted text wins. Otherwise stop words and the tool's own words are taken off both ends; where the tool's examples
    show a short value (a city, a service) only the part after the last preposition is kept.
    """
    for m in _QUOTED.finditer(clause.text):
        group = next(n for n, value in enumerate(m.groups(), 1) if value)
        if not any(a < m.end() and m.start() < b for a, b in taken):
            return m.span(group)
    tokens = [t for t in clause.words if not any(a < t.end and t.start < b for a, b in taken)]
    if not any(triggers.intersection(t.concepts) for t in tokens):
        return None
    short = _is_short(slot, examples)
    start, end = _trim(tokens, triggers) if short else _trim_around(tokens, triggers)
    if start >= end:
        return None
    if short:
        start = _after_preposition(tokens, start, end)
    left, right = _widen(clause.text, tokens[start].start, tokens[end - 1].end)
    return (left, right) if left < right else None


def _idle(token: Token, triggers: set[str]) -> bool:
    if token.text.isdigit():
        return False
    return not token.concepts or bool(triggers.intersection(token.concepts))


def _trim(tokens: Sequence[Token], triggers: set[str]) -> tuple[int, int]:
    start, end = 0, len(tokens)
    seen = False
    while start < end and _idle(tokens[start], triggers):
        # once the tool is named, a preposition ends what belongs to it
        seen = seen or bool(triggers.intersection(tokens[start].concepts))
        start += 1
        if seen and tokens[start - 1].text in ("for", "about"):
            break
    while end > start and _idle(tokens[end - 1], triggers) and not tokens[end - 1].text.isdigit():
        end -= 1
    return start, end


def _trim_around(tokens: Sequence[Token], triggers: set[str]) -> tuple[int, int]:
    """Take off what leads up to the tool's last word at the beginning, and what ends a request; keep all else.

    A long text may begin with any word ("echo hi there"), so only joints are taken off behind the tool's words.
    """
    first, last = _trim(tokens, triggers)
    named = [n for n in range(min(first, len(tokens))) if triggers.intersection(tokens[n].concepts)]
    if not named:
        return first, last
    start, end = named[-1] + 1, len(tokens)
    while start < end and (
        tokens[start].text in _JOINTS or (not tokens[start].text.isascii() and not tokens[start].concepts)
    ):
        start += 1
    while end > start and (tokens[end - 1].text in _CLOSINGS or triggers.intersection(tokens[end - 1].concepts)):
        end -= 1
    return start, end


def _is_short(slot: Slot, examples: Sequence[Example]) -> bool:
    if _LONG_NAMES.search(slot.name):
        return False
    shown = [str(e.arguments[slot.name]) for e in examples if slot.name in e.arguments]
    return all(len(value.split()) <= 2 for value in shown)


def _after_preposition(tokens: Sequence[Token], start: int, end: int) -> int:
    places = [n for n in range(start, end - 1) if tokens[n].text in _PREPOSITIONS]
    first = places[-1] + 1 if places else start
    while first < end - 1 and tokens[first].text in STOP_WORDS:
        first += 1
    return first


def _widen(text: str, start: int, end: int) -> tuple[int, int]:
    """Take in the rest of the words at both ends: a name such as ``pg_stat_statements`` or ``C++`` is one word."""
    while start > 0 and re.match(r"[\w@#$./-]", text[start - 1], re.ASCII):
        start -= 1
    # a name may begin with a character that is a stop word elsewhere (the first of Shanghai)
    if start == 1 or (start > 1 and text[start - 2].isspace()):
        start -= re.match(r"[\u4e00-\u9fff]", text[start - 1]) is not None
    while end < len(text) and re.match(r"[\w@#$+/-]", text[end], re.ASCII):
        end += 1
    return start, end
