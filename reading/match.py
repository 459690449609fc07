"""Find the tool that a clause asks for, from names, descriptions, examples and readable arguments."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from reading.clause import Clause
from reading.freetext import read_free_text
from reading.schema import Slot, read_slots
from reading.slots import Filled, Reading, fill
from reading.spec import Spec
from reading.vocabulary import STOP_WORDS
from reading.words import Token, first_sentence, has_chinese, tokenize

NAME, EXAMPLE, HEADLINE, ARGUMENT, DETAIL = 1.0, 0.7, 0.6, 0.35, 0.2
"""How much a word counts by where the tool uses it."""

ACCEPT = 0.5
"""The score from which a tool is taken to be meant."""
_STRANGE = 0.45
"""What one meaningful word costs that the tool does not know; less where a statement or calculation decides."""
_SURE: Mapping[str, float] = {"sql": 1.0, "expression": 1.0, "fingerprint": 1.0, "code": 0.8, "url": 0.8}
"""Readings that nearly decide by themselves."""
_HINT: Mapping[str, float] = {
    "zone": 0.4,
    "time-range": 0.25,
    "duration": 0.25,
    "target": 0.1,
    "choice": 0.15,
    "limit": 0.1,
}
_POINTED_AT = 0.8
"""What it tells that a row of an earlier result has the argument that would be missing."""
_INCOMPLETE = 0.3
"""How much better a tool has to fit that lacks a required argument."""
_UNREAD = 0.6
"""What it costs a tool to have no argument for a time range, a statement or a calculation that was named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A registered tool as the matcher sees it: weights by concept, arguments, words around free text."""

    spec: Spec
    slots: tuple[Slot, ...]
    weights: Mapping[str, float]
    examples: tuple[frozenset[str], ...]

    def has(self, *kinds: str) -> bool:
        """Tell whether an argument is of one of ``kinds``."""
        return any(s.kind in kinds for s in self.slots)


@dataclass(slots=True, kw_only=True)
class Match:
    """A tool, how well it fits (0 is not at all), and the arguments that were read for it.

    ``worded`` is the part of the score that comes from words, without the readable arguments.
    """

    candidate: Candidate
    score: float
    worded: float
    filled: Filled = field(default_factory=Filled)

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.candidate.spec.name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """Weight of the words that fit a tool, by how telling they are and without that, and of those that do not fit."""

    known: float
    plain: float
    strange: float


class ToolIndex:
    """The registered tools, prepared for matching. Building costs some milliseconds; matching well below one.

    Args:
        tools: the specs, in the order of registration (the first wins a tie).
    """

    def __init__(self, tools: Sequence[Spec]) -> None:
        self.candidates = tuple(_candidate(spec) for spec in tools)
        users: dict[str, int] = {}
        for candidate in self.candidates:
            for concept, weight in candidate.weights.items():
                if weight >= HEADLINE:
                    users[concept] = users.get(concept, 0) + 1
        many = math.log(1 + max(len(tools), 1))
        self._rarity = {c: 0.5 + 0.5 * math.log(1 + len(tools) / n) / many for c, n in users.items()}
        self.vocabulary = frozenset(
            [
                *(c for k in self.candidates for c, w in k.weights.items() if w >= HEADLINE),
                *(w for spec in tools for w in re.findall(r"[a-z]+ing\b", _headline(spec).lower())),
            ]
        )
        self.lexicon = frozenset(
            w
            for spec in tools
            for w in re.findall(r"[a-z]{4,}", f"{spec.name} {_questions(spec)}".lower().replace("_", " "))
            if w not in STOP_WORDS
        )

    def find(self, name: str) -> Candidate | None:
        """Return the tool called ``name``."""
        return next((c for c in self.candidates if c.spec.name == name), None)

    def rarity(self, concept: str) -> float:
        """1 for a word of one tool (or of none), less the more tools use it."""
        return self._rarity.get(concept, 1.0)

    def rank(self, clause: Clause, given: Callable[[Slot], Reading | None] | None = None) -> list[Match]:
        """Return the tools that fit, best first. Tools without any word in common need a telling argument.

        Args:
            clause: what was said.
            given: a value for a required argument that the clause only points at ("the slowest one").
        """
        matches: list[Match] = []
        for candidate in self.candidates:
            worded = any(c in candidate.weights for t in clause.tokens for c in t.concepts)
            if worded or (clause.compares and candidate.has("duration")) or self._tells(candidate, clause):
                matches.append(self.match(candidate, clause, given))
        # Of two that fit about as well, the one that has all that it needs is meant, unless a row is pointed at.
        lack = _INCOMPLETE if given is None else 0.0
        return sorted((m for m in matches if m.score > 0), key=lambda m: lack * bool(m.filled.missing) - m.score)

    def _tells(self, candidate: Candidate, clause: Clause) -> bool:
        return (
            (candidate.has("sql") and clause.sql is not None)
            or (candidate.has("expression") and clause.expression is not None)
            or (candidate.has("code") and bool(clause.code))
            or (candidate.has("url") and bool(clause.links))
        )

    def match(
        self, candidate: Candidate, clause: Clause, given: Callable[[Slot], Reading | None] | None = None
    ) -> Match:
        """Fill the tool's arguments and score the fit."""
        filled = fill(candidate.slots, clause, ignore=self.vocabulary)
        pointed = _take_given(filled, given) if given else False
        self.read_text(candidate, clause, filled)
        words = self._words(candidate, clause, filled.spans())
        named = re.search(rf"(?<!\w){re.escape(candidate.spec.name)}(?!\w)", clause.prose, re.IGNORECASE) is not None
        read = {s.kind: filled.readings[s.name][0].sure for s in candidate.slots if filled.readings.get(s.name)}
        telling = sum(
            (_SURE.get(kind) or _HINT.get(kind, 0.05)) * (1.0 if sure else 0.5) for kind, sure in read.items()
        )
        if pointed:
            telling += _POINTED_AT - (_SURE["sql"] if "sql" in read else 0.0)
            read.pop("sql", None)  # it is a hint only, words have to name the tool
        cost = _STRANGE * words.strange
        if "sql" in read or named:
            cost = min(cost, 0.4)
        elif "expression" in read:
            cost *= 0.6
        decides = named or bool(_SURE.keys() & read.keys())
        fits = words.plain + telling >= 0.6 * words.strange and words.plain >= 0.35
        score = words.known + telling + 2.0 * named - cost - _unread(candidate, clause) if fits or decides else 0.0
        return Match(candidate=candidate, score=score, worded=words.known, filled=filled)

    def read_text(self, candidate: Candidate, clause: Clause, filled: Filled) -> None:
        """Give the words that are left to a free text argument that is required."""
        for slot in list(filled.missing):
            if slot.kind != "text":
                continue
            triggers = {c for c, w in candidate.weights.items() if w >= EXAMPLE}
            triggers |= {c for s in candidate.slots if s is not slot for t in tokenize(s.name) for c in t.concepts}
            span = read_free_text(slot, clause, candidate.spec.examples, triggers, filled.spans())
            if span:
                start, end = span
                filled.readings[slot.name] = [Reading(value=clause.text[start:end], start=start, end=end)]
                filled.missing.remove(slot)

    def _words(self, candidate: Candidate, clause: Clause, spans: list[tuple[int, int]]) -> _Words:
        """Weigh the words outside the arguments: those that fit the tool, and those that do not."""
        known: dict[str, float] = {}
        strange: dict[str, float] = {}
        chinese_end = -1
        for token in clause.tokens:
            if not token.concepts or any(a <= token.start and token.end <= b for a, b in spans):
                continue
            weights = {c: candidate.weights[c] for c in token.concepts if c in candidate.weights}
            for concept, weight in weights.items():
                known[concept] = max(known.get(concept, 0.0), weight)
            if not weights:
                # pairs cut from one unknown run of Chinese are one word, not several
                goes_on = token.start < chinese_end
                strange[token.text] = 0.0 if goes_on else 0.4 if len(token.text) == 1 else 1.0
                chinese_end = token.end if has_chinese(token.text) else -1
        if clause.compares and candidate.has("duration"):
            known["slow"] = max(known.get("slow", 0.0), EXAMPLE * candidate.weights.get("slow", 0.0))
        asked = frozenset(c for t in clause.tokens for c in t.concepts)
        closest = max((_overlap(asked, example) for example in candidate.examples), default=0.0)
        return _Words(
            known=sum(w * self.rarity(c) for c, w in known.items()) + 0.3 * closest * bool(known),
            plain=sum(known.values()),
            strange=sum(strange.values()),
        )

    def strange_words(self, candidate: Candidate, clause: Clause, spans: list[tuple[int, int]]) -> list[str]:
        """Return the meaningful words that neither the tool nor its arguments account for."""
        return [
            t.text
            for t in _outside(clause, spans)
            if t.concepts and not any(c in candidate.weights for c in t.concepts)
        ]

    def is_told(self, match: Match, clause: Clause) -> bool:
        """Tell whether words of the clause name the tool itself, not only its arguments and their values."""
        arguments = {c for s in match.candidate.slots for t in tokenize(s.name) for c in t.concepts}
        told = [t for t in _outside(clause, match.filled.spans()) if t.start >= clause.lead]
        concepts = {c for t in told for c in t.concepts} - arguments
        return any(match.candidate.weights.get(c, 0.0) >= HEADLINE for c in concepts)


def _take_given(filled: Filled, given: Callable[[Slot], Reading | None]) -> bool:
    taken = False
    for slot in list(filled.missing):
        reading = given(slot) if slot.kind != "text" else None
        if reading:
            filled.readings[slot.name] = [reading]
            filled.missing.remove(slot)
            taken = True
    return taken


def _outside(clause: Clause, spans: list[tuple[int, int]]) -> list[Token]:
    return [t for t in clause.tokens if not any(a <= t.start and t.end <= b for a, b in spans)]


def _unread(candidate: Candidate, clause: Clause) -> float:
    cost = 0.0
    # "today" and the like also go with a question for the date
    named = bool(clause.times.ranges) and not candidate.has("zone")
    if not candidate.has("time-range") and (named or any(d.role == "range" for d in clause.times.durations)):
        cost += _UNREAD
    if clause.sql is not None and not candidate.has("sql", "code"):
        cost += _UNREAD
    if clause.expression is not None and not candidate.has("expression", "code"):
        cost += _UNREAD
    if clause.code and not candidate.has("sql", "code", "expression", "text", "url"):
        cost += _UNREAD / 2
    return cost


def _overlap(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b) if a and b else 0.0


def _headline(spec: Spec) -> str:
    return f"{spec.name.replace('_', ' ')} {first_sentence(spec.description)[:300]} {_questions(spec)}"


def _questions(spec: Spec) -> str:
    """Join the example questions, without the values of their arguments (those are no words of the tool)."""
    return " . ".join(_without_values(e.question, e.arguments) for e in spec.examples)


def _without_values(question: str, arguments: Mapping[str, object]) -> str:
    for value in arguments.values():
        text = str(value)
        if len(text) > 1:
            question = re.sub(re.escape(text), " ", question, flags=re.IGNORECASE)
    return question


def _candidate(spec: Spec) -> Candidate:
    weights: dict[str, float] = {}

    def weigh(text: str, weight: float) -> None:
        for token in tokenize(text):
            for concept in token.concepts:
                weights[concept] = max(weights.get(concept, 0.0), weight)

    slots = read_slots(spec.parameters)
    weigh(spec.description[:2000], DETAIL)
    for slot in slots:
        weigh(slot.name, ARGUMENT)
    weigh(first_sentence(spec.description)[:300], HEADLINE)
    weigh(_questions(spec), EXAMPLE)
    weigh(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", spec.name), NAME)
    examples = tuple(
        frozenset(c for t in tokenize(_without_values(e.question, e.arguments)) for c in t.concepts)
        for e in spec.examples
    )
    return Candidate(spec=spec, slots=slots, weights=weights, examples=examples)
