"""Fill the arguments of a tool from a clause, led by its JSON schema alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from reading.clause import Clause
from reading.numbers import ANY, CHINESE, DIGITS, parse_number
from reading.schema import Slot, Value
from reading.targets import find_unknown_target
from reading.times import blank
from reading.words import concepts_of, stem, tokenize

_SORT_CUE = re.compile(
    r"(?:\b(?:by|order|ordered|sort|sorted|rank|ranked|highest|most)\b|按)[^,;，。]{0,24}$", re.I | re.A
)
_SYNONYMS: dict[str, str] = {
    "mean": r"average|avg|mean|平均",
    "max": r"max(?:imum)?|最大|最长",
    "min": r"min(?:imum)?|最小|最短",
    "total": r"total|cumulative|overall|sum|总",
    "calls": r"(?:number of )?(?:calls|executions)|call count|frequency|调用|执行次数|次数",
}
_ALONE: dict[str, str] = {
    "calls": r"most (?:often|frequent(?:ly)?|called|executed)\b(?: called| executed)?|(?:调用|次数)最多"
}
_NUMBER = rf"(?:{DIGITS}|(?!one\b|a\b){ANY})"
_ZH_UNIT = "秒|分|小时|钟头|天|日|周|星期|月|毫秒"
_EN_UNIT = "ms|s|sec|m|min|h|hr|d|w|hours?|minutes?|seconds?|days?|weeks?|months?|times"
_TIME_UNIT = rf"(?!\s*(?:%|个?半?(?:{_ZH_UNIT}))|\s*-?(?:{_EN_UNIT})\b)"
_SUPERLATIVE = "slowest|worst|biggest|largest|longest|heaviest|most|top|newest|latest|oldest"
_LIMITS = tuple(
    re.compile(pattern, re.IGNORECASE | re.ASCII)
    for pattern in (
        rf"\b(?:top|limit(?:ed)?(?:\s+(?:of|to))?|at\s+most|up\s+to|max(?:imum)?|first|only|just|show|list|give\s+me|{_SUPERLATIVE})\s*"
        rf"(?:me\s+)?(?:the\s+)?(?:top\s+|first\s+)?-?(?P<n>{_NUMBER})(?![\w.:*/+-]){_TIME_UNIT}",
        rf"\b(?:last|latest|newest|recent)\s+(?P<n>{_NUMBER})(?=\s+[a-z]){_TIME_UNIT}",
        rf"(?<![\w.*/+-])(?P<n>{_NUMBER})\s+(?:{_SUPERLATIVE})\b",
        rf"(?<![\w.*/+-])(?P<n>{_NUMBER})\s+(?:results?|rows?|entries|items|of\s+them)\b",
        rf"(?:前|最多|只看|只要|头)\s*(?P<n>\d+|{CHINESE})(?![\d.]){_TIME_UNIT}",
        r"(?<![第\d.])(?P<n>\d+|[二两三四五六七八九十百]+)\s*(?:条|行|名|个(?!半|小时|钟头|月|星期))",
    )
)
_FINGERPRINT = re.compile(r"(?<![0-9A-Za-z_])[0-9a-f]{16}(?![0-9A-Za-z_])")
_ANY_NUMBER = re.compile(rf"(?<![\w.])-?(?:{DIGITS})(?![\d])|\b(?!one\b)(?:{ANY})\b", re.IGNORECASE | re.ASCII)
_NEGATED = re.compile(
    r"\b(?:no|not|without|exclude|excluding|skip|don't)\W+(?:\w+\W+)?$|(?:不|无|没有|排除)$", re.I | re.A
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A value for one argument with its place in the clause. ``sure`` is false for values passed on as they stand."""

    value: Value
    start: int
    end: int
    sure: bool = True


@dataclass(slots=True, kw_only=True)
class Filled:
    """What could be read for one tool: per argument one value or, where several are named, all of them."""

    readings: dict[str, list[Reading]] = field(default_factory=dict)
    missing: list[Slot] = field(default_factory=list)

    def arguments(self) -> dict[str, Value]:
        """The first value of each argument."""
        return {name: found[0].value for name, found in self.readings.items()}

    def variants(self) -> list[dict[str, Value]]:
        """One set of arguments for each value of the first argument that has several (at most four)."""
        base = self.arguments()
        for name, found in self.readings.items():
            values = list(dict.fromkeys(r.value for r in found))
            if len(values) > 1:
                return [{**base, name: value} for value in values[:4]]
        return [base]

    def spans(self) -> list[tuple[int, int]]:
        """Places in the clause that the values were read from."""
        return [(r.start, r.end) for found in self.readings.values() for r in found]


def fill(slots: Sequence[Slot], clause: Clause, *, follow_up: bool = False, ignore: Iterable[str] = ()) -> Filled:
    """Read every argument that the clause names. Free text is not read here (see ``freetext``).

    Args:
        slots: the tool's arguments.
        clause: what was said.
        follow_up: the clause continues an earlier call, so "what about X" names a target.
        ignore: words that are never a target (the vocabulary of the registered tools).
    """
    filled = Filled()
    rest = clause.prose
    for slot in slots:
        found = _named(slot, clause.text)
        if found:
            rest = _keep(filled, slot, [found], rest)
    for slot in sorted(slots, key=_order):
        if slot.name not in filled.readings:
            found_all = _read(slot, clause, rest, slots, follow_up=follow_up, ignore=ignore)
            if slot.kind == "time-range":  # a range that another argument has is not read twice
                found_all = [r for r in found_all if (r.start, r.end) not in filled.spans()][:1]
            if found_all:
                rest = _keep(filled, slot, found_all, rest)
    _fill_numbers(filled, slots, rest)
    read = filled.readings.keys()
    filled.missing = [s for s in slots if s.required and s.name not in read and s.unless not in read]
    return filled


def _order(slot: Slot) -> int:
    order = "sql code fingerprint url expression time-range duration zone target choice limit"
    kinds = order.split()
    return kinds.index(slot.kind) if slot.kind in kinds else len(kinds)


def _keep(filled: Filled, slot: Slot, found: list[Reading], rest: str) -> str:
    filled.readings[slot.name] = found
    for reading in found:
        rest = blank(rest, reading.start, reading.end)
    return rest


def _named(slot: Slot, text: str) -> Reading | None:
    """Read ``name=value``, the terse form that always works."""
    m = re.search(
        rf"(?<![\w.]){re.escape(slot.name)}\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s,;，；]+)", text, re.IGNORECASE | re.ASCII
    )
    if m is None:
        return None
    raw = m.group(1).strip("\"'")
    value: Value = raw
    if slot.kind in ("duration", "limit", "number"):
        try:
            value = _as_number(slot, parse_number(raw.lower().removesuffix("s")))
        except ValueError:
            return None
    elif slot.kind == "boolean":
        value = raw.lower() in ("true", "yes", "1", "on")
    return Reading(value=value, start=m.start(), end=m.end())


def _as_number(slot: Slot, number: float) -> int | float:
    return int(number) if number == int(number) and (slot.integer or slot.kind == "limit") else number


def _read(
    slot: Slot, clause: Clause, rest: str, slots: Sequence[Slot], *, follow_up: bool, ignore: Iterable[str]
) -> list[Reading]:
    found: list[Reading] = []
    match slot.kind:
        case "sql":
            found = _sql(clause, slots)
        case "code" | "fingerprint" | "url":
            found = _verbatim(slot, clause, rest)
        case "expression":
            e = clause.expression
            found = [Reading(value=e.value, start=e.start, end=e.end)] if e else []
        case "time-range":
            found = _time_range(clause)
        case "duration":
            found = _duration(slot, clause, slots)
        case "zone":
            found = [Reading(value=z.value, start=z.start, end=z.end, sure=z.known) for z in clause.zones]
        case "target":
            found = _target(slot, clause, rest, follow_up=follow_up, ignore=ignore)
        case "choice":
            found = _sort_choice(slot, rest) if slot.sorts else _options_in(slot, rest)
        case "limit":
            found = _limit(rest)
        case "boolean":
            found = _boolean(slot, rest)
        case "number" | "text" | "other":
            pass  # numbers are dealt out together, free text comes last
    return found


def _verbatim(slot: Slot, clause: Clause, rest: str) -> list[Reading]:
    if slot.kind == "code":
        return [Reading(value=c.value, start=c.start, end=c.end) for c in clause.code[:1]]
    if slot.kind == "url":
        return [Reading(value=k.url, start=k.start, end=k.end) for k in clause.links]
    return [Reading(value=m.group(), start=m.start(), end=m.end()) for m in _FINGERPRINT.finditer(rest)][:1]


def _sql(clause: Clause, slots: Sequence[Slot]) -> list[Reading]:
    if clause.sql is None:
        return []
    value, end = clause.sql.value, clause.sql.end
    targets = [str(o) for s in slots if s.kind == "target" for o in s.options]
    tail = _target_after(value, targets)
    if tail and not clause.sql.marked:
        end -= len(value) - tail
        value = value[:tail].rstrip(" ,;")
    return [Reading(value=value, start=clause.sql.start, end=end)]


def _target_after(sql: str, targets: Sequence[str]) -> int | None:
    """Find where "on billing" begins at the end of a bare statement, so that it is not taken for SQL."""
    if not targets:
        return None
    names = "|".join(map(re.escape, targets))
    m = re.search(
        rf"[\s,;]+(?:(?:on|in|for|against)\s+(?:the\s+)?(?:{names})(?:\s+(?:database|db))?|在?\s*(?:{names})\s*(?:库|数据库|上))\s*$",
        sql,
        re.IGNORECASE | re.ASCII,
    )
    return m.start() if m else None


def _time_range(clause: Clause) -> list[Reading]:
    times = clause.times
    found = [Reading(value=r.value, start=r.start, end=r.end) for r in times.ranges]
    found += [
        Reading(value=d.canonical, start=d.start, end=d.end)
        for d in times.durations
        if d.role == "range" and d.canonical
    ]
    if not found:
        bare = [d for d in times.durations if d.role == "bare" and d.seconds >= 60]
        found = [Reading(value=d.canonical, start=d.start, end=d.end) for d in bare]
    return sorted(found, key=lambda reading: reading.start)


def _duration(slot: Slot, clause: Clause, slots: Sequence[Slot]) -> list[Reading]:
    ranged = any(s.kind == "time-range" for s in slots)
    durations = [d for d in clause.times.durations if d.role == "threshold"]
    if not durations:
        durations = [d for d in clause.times.durations if d.role == "bare" and (d.seconds < 60 or not ranged)]
    return [
        Reading(value=_as_number(slot, round(d.seconds / slot.unit_s, 6)), start=d.start, end=d.end)
        for d in durations[:1]
    ]


def _target(slot: Slot, clause: Clause, rest: str, *, follow_up: bool, ignore: Iterable[str]) -> list[Reading]:
    text = rest
    if clause.sql and not clause.sql.marked:
        tail = _target_after(clause.sql.value, [str(o) for o in slot.options])
        if tail is not None:
            begin = clause.sql.start + tail
            text = rest[:begin] + clause.text[begin : clause.sql.end] + rest[clause.sql.end :]
    known = _options_in(slot, text)
    if known:
        return [_with_kind(r, text) for r in known]
    m = find_unknown_target(text, follow_up=follow_up, ignore=ignore)
    return [Reading(value=m.group("name"), start=m.start("name"), end=m.end("name"), sure=False)] if m else []


def _options_in(slot: Slot, text: str) -> list[Reading]:
    """Find the allowed values that stand in the text as words, in the order of the text."""
    found: list[Reading] = []
    for option in slot.options:
        spelled = re.sub(r"[_\- ]+", r"[_\\- ]?", re.escape(str(option)).replace("\\", ""))
        for m in re.finditer(rf"(?<![A-Za-z0-9_]){spelled}(?![A-Za-z0-9_])", text, re.IGNORECASE | re.ASCII):
            found.append(Reading(value=option, start=m.start(), end=m.end()))
    return sorted(found, key=lambda r: r.start)


def _with_kind(reading: Reading, text: str) -> Reading:
    """Take "database" beside a target's name into its place, so that it does not count as a word of its own."""
    before = re.search(r"(?:\b(?:database|db|target|instance)\s+)$", text[: reading.start], re.I | re.A)
    after = re.match(
        r"\s*(?:(?:database|db|target|instance|cluster)\b|数据库|实例|库)", text[reading.end :], re.I | re.A
    )
    start = before.start() if before else reading.start
    return replace(reading, start=start, end=reading.end + (after.end() if after else 0))


def _sort_choice(slot: Slot, text: str) -> list[Reading]:
    for option in slot.options:
        word = str(option)
        alone = re.search(_ALONE[word], text, re.I | re.A) if word in _ALONE else None
        if alone:
            return [Reading(value=option, start=alone.start(), end=alone.end())]
        spelled = re.escape(word).replace("_", "[_ ]")
        pattern = rf"(?<![A-Za-z])(?:{spelled}|{_SYNONYMS.get(word, spelled)})(?![A-Za-z])"
        for m in re.finditer(pattern, text, re.I | re.A):
            cue = _SORT_CUE.search(text[: m.start()])
            if cue:
                return [Reading(value=option, start=cue.start(), end=m.end())]
    return []


def _limit(text: str) -> list[Reading]:
    for pattern in _LIMITS:
        m = pattern.search(text)
        if m:
            number = parse_number(m.group("n"))
            if number == int(number) and number > 0:
                return [Reading(value=int(number), start=m.start("n"), end=m.end("n"))]
    return []


def _boolean(slot: Slot, text: str) -> list[Reading]:
    wanted = {c for t in tokenize(slot.name) for c in t.concepts} - {"includ", "with", "only"}
    tokens = [t for t in tokenize(text) if wanted.intersection(t.concepts)]
    if not wanted or not wanted <= {c for t in tokens for c in t.concepts}:
        return []
    value = _NEGATED.search(text[: tokens[0].start]) is None
    return [Reading(value=value, start=tokens[0].start, end=tokens[-1].end)]


def _fill_numbers(filled: Filled, slots: Sequence[Slot], rest: str) -> None:
    """Give numbers that are left to number arguments: by the argument's name beside them, else in order."""
    open_slots = [
        s for s in slots if (s.kind == "number" or s.name in ("count", "n")) and s.name not in filled.readings
    ]
    numbers = [m for m in _ANY_NUMBER.finditer(rest)] if open_slots else []
    for slot in list(open_slots):
        near = next((m for m in numbers if _stands_beside(slot, rest, m)), None)
        if near:
            numbers.remove(near)
            open_slots.remove(slot)
            filled.readings[slot.name] = [_number_reading(slot, near)]
    required = [s for s in open_slots if s.required]
    takers = required or (open_slots if len(open_slots) == 1 and len(numbers) == 1 else [])
    for slot, m in zip(takers, numbers, strict=False):
        filled.readings[slot.name] = [_number_reading(slot, m)]


def _number_reading(slot: Slot, m: re.Match[str]) -> Reading:
    text = m.group()
    number = -parse_number(text[1:]) if text.startswith("-") else parse_number(text)
    return Reading(value=_as_number(slot, number), start=m.start(), end=m.end())


def _stands_beside(slot: Slot, text: str, number: re.Match[str]) -> bool:
    names = {stem(w) for w in slot.name.lower().split("_")} | {
        c for w in slot.name.lower().split("_") for c in concepts_of(w)
    }
    before = re.findall(r"[A-Za-z]+", text[max(0, number.start() - 24) : number.start()])[-2:]
    after = re.findall(r"[A-Za-z]+", text[number.end() : number.end() + 24])[:1]
    return any(stem(w.lower()) in names or names.intersection(concepts_of(w.lower())) for w in (*before, *after))
