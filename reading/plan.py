"""From the newest message and the thread to tool calls, or to what is missing for one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from reading.clause import Clause
from reading.links import find_links
from reading.match import ACCEPT, Match, ToolIndex
from reading.past import PastCall, look_up, read_reference, rows_of
from reading.schema import Slot
from reading.slots import Filled, Reading, fill
from reading.spec import Spec
from reading.vocabulary import REPEAT
from reading.words import mend_spelling

_TIME_WORDS = "hour hours minute minutes second seconds yesterday today week weeks last past"
_TO_COME = "\0"
"""Stands for a value of a row that the message's first part will find."""
_HARD = r"[?？;；!！。]+\s*|\n+|\.\s+(?=[A-Z])"
_SOFT = (
    r"(?<!\s)\s*,?\s*\b(?:and\s+(?:also|then)|and|then|also|plus|after\s+that|as\s+well\s+as)\s+(?=\S)"
    r"|[,，、]\s*(?:还有|另外|以及|并且|并|顺便|然后|再)?|(?:还有|另外|以及|并且|顺便|然后)\s*"
)
_SEPARATOR = re.compile(f"(?:{_HARD}|{_SOFT})")
_ATTACHED = re.compile(r"^\[attached file: .*\]$", re.MULTILINE)
"""How a turn names the files that came with a message; they say nothing about which tool is meant, beside words."""
_MENTION = re.compile(r"<[@#!][^>]{1,80}>|^\s*@[\w.-]+[,:]?\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call with everything it needs."""

    name: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A tool was found, but something for it is not: required arguments, or a time that cannot be placed."""

    spec: Spec
    missing: tuple[Slot, ...] = ()
    unclear: tuple[str, ...] = ()
    no_rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do. ``later`` is true when a part of the message needs the results of ``calls`` first."""

    calls: tuple[Call, ...] = ()
    asks: tuple[Ask, ...] = ()
    later: bool = False


class Planner:
    """Reads messages against a fixed set of tools.

    Args:
        index: the prepared tools.
        now: aware UTC, the anchor of clock times and "this week".
    """

    def __init__(self, index: ToolIndex, now: datetime) -> None:
        self._index = index
        self._now = now

    def plan(self, text: str, past: Sequence[PastCall], *, fresh: Sequence[PastCall] | None = None) -> Plan:
        """Plan one message.

        Args:
            text: the message.
            past: the calls of the thread before it.
            fresh: None at first; on the second look the calls that the first one led to, so that "and explain the
                slowest one" finds its row. Only what had to wait is planned then.
        """
        said = _ATTACHED.sub(" ", text)
        clauses = self._split(_MENTION.sub(" ", said if said.strip() else text))
        calls: list[Call] = []
        asks: list[Ask] = []
        waits = False
        for clause in clauses:
            if self._waits(clause, calls):
                waits = True
                if fresh is None:
                    continue
                outcome = self._read(clause, fresh)
                found = [o for o in outcome if isinstance(o, Call)]
                return Plan(calls=tuple(found), asks=tuple(o for o in outcome if isinstance(o, Ask)))
            for step in self._read(clause, past):
                calls.append(step) if isinstance(step, Call) else asks.append(step)
        if fresh is not None:
            return Plan()
        return Plan(calls=tuple(_unique(calls)), asks=tuple(asks), later=waits)

    def _waits(self, clause: Clause, calls: Sequence[Call]) -> bool:
        """Tell whether the clause points at a row of what ``calls`` will find."""
        best = self._best(clause, None) if calls else None
        if best is None or best.name in {c.name for c in calls}:
            return False
        return any(r.value == _TO_COME for found in best.filled.readings.values() for r in found)

    # -- one clause ------------------------------------------------------------------------------------

    def _clause(self, text: str) -> Clause:
        return Clause(text, self._now)

    def _best(self, clause: Clause, past: Sequence[PastCall] | None) -> Match | None:
        ranked = self._index.rank(clause, _find_given(clause, past))
        return ranked[0] if ranked and ranked[0].score >= ACCEPT else None

    def _read(self, clause: Clause, past: Sequence[PastCall]) -> list[Call | Ask]:
        best = self._best(clause, past)
        continued = self._continue(clause, past, best)
        if continued is not None:
            return continued
        if best is None:
            return []
        shown = self._example(best, clause)
        if shown is not None:
            return [shown]
        self._take_target(best, clause, past)
        self._inherit(best, clause, past)
        if best.filled.missing:
            pointed = read_reference(clause.prose) is not None
            return [Ask(spec=best.candidate.spec, missing=tuple(best.filled.missing), no_rows=pointed)]
        return self._finish(best.name, best.filled, clause, {})

    def _example(self, match: Match, clause: Clause) -> Call | None:
        """Take the arguments of an example when exactly its question was asked."""
        asked = _folded(clause.text)
        for example in match.candidate.spec.examples:
            if _folded(example.question) == asked:
                return Call(name=match.name, arguments=example.arguments)
        return None

    def _finish(self, name: str, filled: Filled, clause: Clause, base: Mapping[str, object]) -> list[Call | Ask]:
        candidate = self._index.find(name)
        if candidate and candidate.has("time-range") and clause.times.unclear:
            ranged = {s.name for s in candidate.slots if s.kind == "time-range"}
            if not ranged.intersection(filled.readings):
                return [Ask(spec=candidate.spec, unclear=clause.times.unclear)]
        return [Call(name=name, arguments={**base, **variant}) for variant in filled.variants()]

    def _take_target(self, match: Match, clause: Clause, past: Sequence[PastCall]) -> None:
        """A row is explained where it was found."""
        reference = read_reference(clause.prose)
        values = match.filled.arguments()
        for slot in match.candidate.slots if reference else ():
            if slot.kind != "target" or slot.name in match.filled.readings:
                continue
            for call in reversed(past):
                if any(
                    v in values.values() for row in rows_of(call.result) for v in row.values() if isinstance(v, str)
                ):
                    told = call.result.get("target") if isinstance(call.result, Mapping) else None
                    target = call.arguments.get(slot.name) or told
                    if isinstance(target, str):
                        match.filled.readings[slot.name] = [_reading(target, 0, 0)]
                    break

    def _inherit(self, match: Match, clause: Clause, past: Sequence[PastCall]) -> None:
        """Take missing arguments from the last call of the same tool ("explain that on billing")."""
        last = next((c for c in reversed(past) if c.name == match.name), None)
        points = clause.follows or read_reference(clause.prose) is not None
        if last is None or not points:
            return
        for slot in list(match.filled.missing):
            value = last.arguments.get(slot.name)
            if isinstance(value, str | int | float):
                match.filled.readings[slot.name] = [_reading(value, 0, 0)]
                match.filled.missing.remove(slot)

    # -- continuing an earlier call ---------------------------------------------------------------------

    def _continue(self, clause: Clause, past: Sequence[PastCall], best: Match | None) -> list[Call | Ask] | None:
        """Read the clause as a change to one of the last calls; None when it is a request of its own."""
        if not past:
            return None
        repeated = clause.text.strip(" \t\n.!?。！？").lower() in REPEAT
        if repeated:
            return [Call(name=past[-1].name, arguments=past[-1].arguments)]
        told = best is not None and self._index.is_told(best, clause)
        if told and not clause.follows:
            return None
        for call in _newest_of_each(past):
            if best is not None and told and best.name != call.name:
                continue
            steps = self._change(clause, call)
            if steps is not None:
                return steps
        return None

    def _change(self, clause: Clause, call: PastCall) -> list[Call | Ask] | None:
        """Read the clause as other values for the arguments of ``call``; None when it says more than that."""
        candidate = self._index.find(call.name)
        if candidate is None:
            return None
        filled = fill(candidate.slots, clause, follow_up=True, ignore=self._index.vocabulary)
        changed = set(filled.readings)
        strange = self._index.strange_words(candidate, clause, filled.spans())
        if not changed and not (clause.times.unclear and candidate.has("time-range")):
            return None
        if len(strange) > 1:
            return None
        return self._finish(call.name, filled, clause, call.arguments)

    # -- several requests in one message ----------------------------------------------------------------

    def _split(self, text: str) -> list[Clause]:
        """Cut a message into requests. A cut stands only where both sides ask for something by themselves."""
        text = self._mend(text)
        whole = self._clause(text)
        closed = whole.times.spans()
        closed += [(whole.expression.start, whole.expression.end)] if whole.expression else []
        cuts = [
            m
            for m in _SEPARATOR.finditer(whole.prose)
            if m.end() < len(text.rstrip()) and not any(a < m.end() and m.start() < b for a, b in closed)
        ]
        if not cuts or len(cuts) > 24:
            return [whole]
        groups: list[tuple[int, int, Match | None]] = []
        start = 0
        for cut in [*cuts, None]:
            end, following = (cut.start(), cut.end()) if cut else (len(text), len(text))
            self._add_piece(groups, text, start, end)
            start = following
        if len(groups) < 2:
            return [whole]
        return [self._clause(text[a:b]) for a, b, _ in groups]

    def _mend(self, text: str) -> str:
        """Mend the spelling of all but addresses."""
        lexicon, done, parts = self._index.lexicon.union(_TIME_WORDS.split()), 0, list[str]()
        for link in find_links(text):
            parts += [mend_spelling(text[done : link.start], lexicon), link.url]
            done = link.end
        return "".join([*parts, mend_spelling(text[done:], lexicon)])

    def _add_piece(self, groups: list[tuple[int, int, Match | None]], text: str, start: int, end: int) -> None:
        match = self._best(self._clause(text[start:end]), None)
        if not groups:
            groups.append((start, end, match))
            return
        before_start, _, before = groups[-1]
        stands = match is not None and match.worded + _decided(match) >= ACCEPT
        if before is not None and match is not None and stands and not _belongs(before, match):
            groups.append((start, end, match))
            return
        joined = self._best(self._clause(text[before_start:end]), None)
        groups[-1] = (before_start, end, joined or before)


def _find_given(clause: Clause, past: Sequence[PastCall] | None) -> Callable[[Slot], Reading | None] | None:
    """Make a look-up for arguments that the clause points at; None when it points at nothing.

    With ``past`` None the rows are still to come, and ``_TO_COME`` stands for their values.
    """
    reference = read_reference(clause.prose)
    if reference is None:
        return None

    def find(slot: Slot) -> Reading | None:
        if past is None:
            wanted = slot.kind in ("sql", "code", "number", "fingerprint")
            return _reading(_TO_COME, reference.start, reference.end) if wanted else None
        last = past[-1].arguments.get(slot.name) if past and reference.vague else None
        found = look_up(reference, slot, past)
        value = last if last is not None else found[0] if found else None
        return _reading(value, reference.start, reference.end) if isinstance(value, str | int | float) else None

    return find


def _decided(match: Match) -> float:
    return (
        1.0
        if any(s.kind in ("expression", "sql") for s in match.candidate.slots if s.name in match.filled.readings)
        else 0.0
    )


def _belongs(before: Match, piece: Match) -> bool:
    """Tell whether a piece goes on with the request before it: same tool, and nothing said twice."""
    if before.name != piece.name:
        return False
    return not set(before.filled.readings).intersection(piece.filled.readings)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip("?？.!。！ ")


def _newest_of_each(past: Sequence[PastCall]) -> list[PastCall]:
    newest: dict[str, PastCall] = {}
    for call in reversed(past[-12:]):
        newest.setdefault(call.name, call)
    return list(newest.values())


def _unique(calls: Sequence[Call]) -> list[Call]:
    return [c for n, c in enumerate(calls) if c not in calls[:n]]


def _reading(value: str | int | float, start: int, end: int) -> Reading:
    return Reading(value=value, start=start, end=end)
