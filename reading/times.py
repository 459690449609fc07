"""Time ranges and durations in a question: "in the last half hour", "slower than 500 ms", "过去两小时", "超过2秒".

Both are made of an amount and a unit; the words around it say which of the two is meant. What cannot be placed for
certain ("last night") is reported as unclear rather than guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from reading.numbers import ANY, CHINESE, DIGITS, parse_number, plain

Role = Literal["range", "threshold", "bare"]

_UNITS: dict[str, tuple[str, float]] = {}
for _names, _letter, _seconds in (
    ("ms msec msecs millis millisecond milliseconds 毫秒", "ms", 0.001),
    ("s sec secs second seconds 秒 秒钟", "s", 1.0),
    ("m min mins minute minutes 分 分钟", "min", 60.0),
    ("h hr hrs hour hours 小时 钟头", "h", 3600.0),
    ("d day days 天 日", "d", 86_400.0),
    ("w wk wks week weeks 周 星期 礼拜", "w", 604_800.0),
    ("month months 月", "month", 2_592_000.0),
):
    _UNITS |= {_name: (_letter, _seconds) for _name in _names.split()}
_LETTERS = (("w", 604_800), ("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))

_EN_UNIT = "(?:" + "|".join(sorted((u for u in _UNITS if u.isascii()), key=len, reverse=True)) + ")"
_EN_WORD = "(?:hours?|hrs?|minutes?|mins?|seconds?|secs?|days?|weeks?|months?)"
_ZH_UNIT = "(?:毫秒|秒钟|秒|分钟|分|小时|钟头|天|日|周|星期|礼拜|月)"
_AMOUNT = re.compile(
    rf"(?P<half>(?:\b(?:an?\s+)?half[\s-]+(?:an?[\s-]+)?(?P<half_unit>hour|minute|min|second|sec|day)\b))"
    rf"|(?P<quarter>\b(?:an?\s+)?quarter[\s-]+(?:of[\s-]+)?(?:an?[\s-]+)?hour\b)"
    rf"|(?P<h>\d+)\s*h(?:ours?|rs?)?\s*(?P<min>\d+)\s*m(?:in(?:ute)?s?)?\b"
    rf"|(?P<couple>\b(?:a\s+)?couple\s+(?:of\s+)?(?P<couple_unit>{_EN_WORD})\b)"
    rf"|半个?(?P<zh_half>{_ZH_UNIT}|钟头)"
    rf"|(?P<zh_quarter>{CHINESE}|\d+)刻钟"
    rf"|(?P<zh>{DIGITS}|{CHINESE})\s*个?(?P<zh_mid>半)?个?(?P<zh_unit>{_ZH_UNIT})(?P<zh_end>半)?"
    rf"|(?P<n>{ANY}|\ban?\b)(?P<and_half>\s+and\s+a\s+half)?[\s-]*(?P<unit>{_EN_UNIT})\b(?P<more>\s+and\s+a\s+half)?"
    rf"|\b(?P<alone>hour|minute|second|day|week|month)\b(?P<alone_more>\s+and\s+a\s+half)?",
    re.IGNORECASE | re.ASCII,
)

_RANGE_BEFORE = re.compile(
    r"(?:\b(?:last|past|previous|prior|preceding|recent|latest|trailing|within|since|inside)\s+"
    r"(?:(?:the|about|around|roughly|full|last|past)\s+)*"
    r"|(?:过去|最近|刚过去|近|前|之前|刚才|这|上)(?:的|这|约|大约|一)?\s*)$",
    re.IGNORECASE | re.ASCII,
)
_THRESHOLD_BEFORE = re.compile(
    r"(?:\bthan\s+|\b(?:over|above|beyond|exceed(?:s|ed|ing)?|at\s+least|minimum(?:\s+of)?|min|needing|takes|took|taking)\s+"
    r"|\bthreshold\s*(?:of|to|is|at|=|:)?\s*(?:to\s+)?|[>≥]=?\s*"
    r"|(?:超过|大于|高于|慢于|长于|多于|不少于|不低于|至少|阈值|耗时|用时|花了|超)(?:了|设为|设置为|改为|改成|设成|是|为|到|等于|=|:|：)?\s*)"
    r"(?:an?\s+|about\s+)?$",
    re.IGNORECASE | re.ASCII,
)
_VAGUE_OVER = re.compile(r"\b(?:over|above|beyond)\s+$", re.IGNORECASE | re.ASCII)
_THRESHOLD_AFTER = re.compile(
    r"\s*(?:\+|or\s+(?:more|longer|slower|above|higher|greater|over)\b|and\s+(?:more|above|over|longer|slower|up)\b"
    r"|(?:及|或)?以上|的?阈值|(?:threshold|minimum)\b)",
    re.IGNORECASE | re.ASCII,
)
_RANGE_AFTER = re.compile(r"\s*(?:ago\b|以?内|之内|以来|之前|以前|window\b)", re.IGNORECASE | re.ASCII)
_NO_UNIT = re.compile(
    rf"(?:\b(?:slower|longer)\s+than\s+|\bthreshold\s*(?:of|to|is|at|=|:)?\s*(?:to\s+)?|[>≥]=?\s*|阈值(?:设为|改为|改成|为|是|=|:|：)?\s*)"
    rf"(?P<n>{DIGITS})(?![\d.]|\s*(?:{_EN_UNIT}\b|{_ZH_UNIT}))",
    re.IGNORECASE | re.ASCII,
)

_CANONICAL = re.compile(r"\blast_(\d+)\s?(s|sec|min|m|h|d|w)\b", re.IGNORECASE | re.ASCII)
_INSTANT = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_INTERVAL = re.compile(rf"(?<![\d/-])({_INSTANT})\s*/\s*({_INSTANT})(?![\d/-])", re.IGNORECASE | re.ASCII)
_SPELLED = re.compile(
    rf"(?:\b(?:between|from)\s+|从)?(?<![\d/-])({_INSTANT})\s*(?:utc\s*)?(?:and|to|until|till|through|–|~|到|至|和)\s*({_INSTANT})"
    rf"(?:\s*utc\b)?(?:之间)?(?![\d/-])",
    re.IGNORECASE | re.ASCII,
)
_DAY = re.compile(r"(?<![\d/-])(?:\bon\s+)?(\d{4}-\d\d-\d\d)(?![\dT/-])")
_CLOCK = r"(\d{1,2}):(\d\d)"
_BETWEEN = re.compile(
    rf"(?:\b(?:between|from)\s+|从)?{_CLOCK}\s*(?:utc\s*)?(?:and|to|until|till|-|–|到|至|和|~)\s*{_CLOCK}(?:\s*utc\b)?(?:之间)?",
    re.IGNORECASE | re.ASCII,
)
_SINCE_CLOCK = re.compile(
    rf"(?:\bsince\s+{_CLOCK}(?:\s*utc\b)?|(?:从|自)?{_CLOCK}(?:以来|之后|以后))", re.IGNORECASE | re.ASCII
)
_NAMED: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE | re.ASCII), name)
    for pattern, name in (
        (r"\b(?:since\s+)?(?:this|the\s+same)\s+time\s+yesterday\b|昨天(?:这|此)时", "last_24h"),
        (r"\bsince\s+yesterday\b|(?:从|自)?昨天(?:以来|开始|到现在|至今)", "since yesterday"),
        (r"\b(?:the\s+)?day\s+before\s+yesterday\b|前天", "day before yesterday"),
        (
            r"\bsince\s+(?:midnight|this\s+morning's\s+midnight)\b|\b(?:so\s+far\s+)?today(?:'s)?(?:\s+so\s+far)?\b",
            "today",
        ),
        (r"今天|今日|当天|零点以来", "today"),
        (r"\byesterday(?:'s)?\b|昨天|昨日", "yesterday"),
        (r"\b(?:so\s+far\s+)?this\s+week(?:'s)?\b|本周|这周|这个星期", "this week"),
        (r"\b(?:so\s+far\s+)?this\s+month(?:'s)?\b|本月|这个月", "this month"),
        (r"\bthis\s+hour\b", "this hour"),
    )
)
_UNCLEAR = re.compile(
    r"\b(?:last|yesterday|this|tonight|to)?\s*(?:night|evening|afternoon|morning|noon|weekend)\b|\btonight\b"
    r"|\b(?:on|since|last|from)\s+(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|\ba\s+(?:few|while)\s+(?:minutes|hours|days|ago)\b"
    r"|昨晚|昨夜|今早|早上|上午|下午|晚上|中午|凌晨|周末|(?:上|这|本)?周[一二三四五六日]|几个?(?:小时|分钟|天)",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """An amount of time in a text. ``role`` says what the words around it make of it.

    ``canonical`` is it as a time range that ends now (``last_30min``), empty below one second.
    """

    seconds: float
    canonical: str
    role: Role
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A time range in a text, in the form that tools take."""

    value: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """All that a text says of time. ``unclear`` holds the words that name a time which cannot be placed."""

    ranges: tuple[Range, ...] = ()
    durations: tuple[Duration, ...] = ()
    unclear: tuple[str, ...] = ()

    def spans(self) -> list[tuple[int, int]]:
        """Places of all ranges and durations in the text."""
        return [(r.start, r.end) for r in self.ranges] + [(d.start, d.end) for d in self.durations]


def read_times(text: str, now: datetime) -> Times:
    """Find every time range and duration. ``now`` is aware UTC and anchors "this week" and clock times."""
    ranges = _fixed_ranges(text, now)
    masked = text
    for found in ranges:
        masked = blank(masked, found.start, found.end)
    durations = [d for d in map(lambda m: _read_amount(masked, m), _AMOUNT.finditer(masked)) if d is not None]
    durations += _without_unit(masked, durations)
    durations += [
        Duration(seconds=0.0, canonical="", role="threshold", start=m.start(), end=m.end())
        for m in _ANY_LENGTH.finditer(masked)
    ]
    for duration in durations:
        masked = blank(masked, duration.start, duration.end)
    unclear = tuple(found.group().strip() for found in _UNCLEAR.finditer(masked))
    return Times(ranges=tuple(ranges), durations=tuple(durations), unclear=unclear)


def blank(text: str, start: int, end: int) -> str:
    """Put spaces over a part of a text, so that all other positions stay."""
    return text[:start] + " " * (end - start) + text[end:]


def _fixed_ranges(text: str, now: datetime) -> list[Range]:
    found: list[Range] = []

    def add(match: re.Match[str], value: str | None) -> None:
        if value and not any(match.start() < r.end and r.start < match.end() for r in found):
            found.append(Range(value=value, start=match.start(), end=match.end()))

    for m in _CANONICAL.finditer(text):
        add(m, m.group().lower().replace(" ", ""))
    for m in _INTERVAL.finditer(text):
        add(m, f"{m.group(1)}/{m.group(2)}")
    for m in _SPELLED.finditer(text):
        add(m, _spelled(m.group(1), m.group(2)))
    for m in _BETWEEN.finditer(text):
        add(m, _between(m, now))
    for m in _SINCE_CLOCK.finditer(text):
        add(m, _since_clock([g for g in m.groups() if g is not None], now))
    for m in _DAY.finditer(text):
        add(m, _whole_day(m.group(1)))
    for pattern, name in _NAMED:
        for m in pattern.finditer(text):
            add(m, _named_range(name, now))
    return sorted(found, key=lambda r: r.start)


def _iso(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def _at(now: datetime, hour: str, minute: str) -> datetime | None:
    if int(hour) > 24 or int(minute) > 59 or (int(hour) == 24 and int(minute)):
        return None
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(hours=int(hour), minutes=int(minute))


def _between(match: re.Match[str], now: datetime) -> str | None:
    start, end = _at(now, match.group(1), match.group(2)), _at(now, match.group(3), match.group(4))
    if start is None or end is None:
        return None
    if end <= start:
        start -= timedelta(days=1)
    if start > now:
        start, end = start - timedelta(days=1), end - timedelta(days=1)
    return f"{_iso(start)}/{_iso(end)}"


def _spelled(first: str, last: str) -> str | None:
    """Read "from A to B": without a zone in UTC, and a day that ends it is meant whole."""
    try:
        start, end = (datetime.fromisoformat(part.upper().replace(" ", "T")) for part in (first, last))
    except ValueError:
        return None
    if len(last) == len("2026-01-31"):
        end += timedelta(days=1)
    start, end = (at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC) for at in (start, end))
    return f"{_iso(start)}/{_iso(end)}" if start < end else None


def _since_clock(parts: list[str], now: datetime) -> str | None:
    start = _at(now, parts[0], parts[1])
    if start is None:
        return None
    return f"{_iso(start if start < now else start - timedelta(days=1))}/{_iso(now)}"


def _whole_day(day: str) -> str | None:
    try:
        start = datetime.fromisoformat(f"{day}T00:00:00+00:00")
        return f"{_iso(start)}/{_iso(start + timedelta(days=1))}"
    except (ValueError, OverflowError):
        return None


def _named_range(name: str, now: datetime) -> str:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    match name:
        case "since yesterday":
            return f"{_iso(midnight - timedelta(days=1))}/{_iso(now)}"
        case "day before yesterday":
            return f"{_iso(midnight - timedelta(days=2))}/{_iso(midnight - timedelta(days=1))}"
        case "this week":
            return f"{_iso(midnight - timedelta(days=now.weekday()))}/{_iso(now)}"
        case "this month":
            return f"{_iso(midnight.replace(day=1))}/{_iso(now)}"
        case "this hour":
            return f"{_iso(now.replace(minute=0, second=0, microsecond=0))}/{_iso(now)}"
        case _:
            return name


def _read_amount(text: str, m: re.Match[str]) -> Duration | None:
    if m.group("alone") and not _RANGE_BEFORE.search(text[max(0, m.start() - 30) : m.start()]):
        return None
    amount = _amount_of(m)
    if amount is None:
        return None
    count, unit = amount
    if unit == "month":
        count, unit = count * 30, "d"
    seconds = count * (0.001 if unit == "ms" else dict(_LETTERS)[unit])
    return Duration(
        seconds=round(seconds, 6),
        canonical=_canonical(count, unit, seconds),
        role=_role(text, m.start(), m.end(), seconds),
        start=m.start(),
        end=m.end(),
    )


def _amount_of(m: re.Match[str]) -> tuple[float, str] | None:  # noqa: PLR0911 - one line a way of writing
    g = m.groupdict()

    def unit(name: str) -> str:
        return _UNITS[g[name].lower()][0]

    if g["half"]:
        return 0.5, unit("half_unit")
    if g["quarter"]:
        return 15, "min"
    if g["h"]:
        return int(g["h"]) * 60 + int(g["min"]), "min"
    if g["couple"]:
        return 2, unit("couple_unit")
    if g["zh_half"]:
        return 0.5, unit("zh_half")
    if g["zh_quarter"]:
        return 15 * parse_number(g["zh_quarter"]), "min"
    if g["zh"]:
        return parse_number(g["zh"]) + (0.5 if g["zh_mid"] or g["zh_end"] else 0), unit("zh_unit")
    if g["alone"]:
        return 1.5 if g["alone_more"] else 1, unit("alone")
    number = 1.0 if g["n"].lower() in ("a", "an") else parse_number(g["n"])
    return number + (0.5 if g["and_half"] or g["more"] else 0), unit("unit")


def _canonical(count: float, unit: str, seconds: float) -> str:
    if count == int(count) and unit != "ms" and count > 0:
        return f"last_{int(count)}{unit}"
    for letter, size in _LETTERS:
        if seconds >= size and abs(seconds / size - round(seconds / size)) < 1e-9:
            return f"last_{plain(round(seconds / size))}{letter}"
    return ""


def _role(text: str, start: int, end: int, seconds: float) -> Role:
    before, after = text[max(0, start - 40) : start], text[end : end + 20]
    if _RANGE_BEFORE.search(before) or (_RANGE_AFTER.match(after) and not _THRESHOLD_BEFORE.search(before)):
        return "range"
    if _VAGUE_OVER.search(before) and seconds >= 600:
        return "bare"  # "over 2 hours" is nearly always "over the last 2 hours"
    if _THRESHOLD_BEFORE.search(before) or _THRESHOLD_AFTER.match(after):
        return "threshold"
    return "bare"


_ANY_LENGTH = re.compile(
    r"\b(?:whatever|regardless\s+of|no\s+matter|any)\s+(?:the\s+|their\s+|its\s+|how\s+)?(?:duration|length|long\w*|threshold)"
    r"(?:\s+(?:they|it)\s+(?:took|take|ran|run|are|is))?\b|(?:不限|无论|不管)(?:时长|耗时|多久|多长)",
    re.IGNORECASE | re.ASCII,
)


def _without_unit(text: str, known: list[Duration]) -> list[Duration]:
    """Read thresholds in seconds that have no unit: "slower than 2", "> 2", "threshold 0.5"."""
    return [
        Duration(seconds=parse_number(m.group("n")), canonical="", role="threshold", start=m.start(), end=m.end())
        for m in _NO_UNIT.finditer(text)
        if not any(m.start("n") < d.end and d.start < m.end() for d in known)
    ]
