"""The parts of a schedule in words, English and Chinese: what stands at one place of a text, as a value.

``read_part`` knows the words; ``bot.jobs.phrases`` puts the parts together. A form that means what a cron line cannot
say is a ``Refused`` part with its reason, so that nothing is read out of a half of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from reading.numbers import parse_number

DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


@dataclass(frozen=True, slots=True)
class Weekdays:
    """Days of the week, by their numbers in ``DAYS``."""

    days: frozenset[int]


@dataclass(frozen=True, slots=True)
class Period:
    """``day``, ``week`` or ``month``; the last two need a day."""

    name: Literal["day", "week", "month"]


@dataclass(frozen=True, slots=True)
class MonthDays:
    """Days of the month as cron writes them: ``1``, ``L``, or (in the field of weekdays) ``MON#1``, ``5L``."""

    days: tuple[str, ...]
    weekday: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """Every ``count`` minutes or hours."""

    count: int
    unit: Literal["minute", "hour"]


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of the day as it was said. ``half``: am or pm; ``sure``: it can be nothing else than a time."""

    hour: int
    minute: int
    half: Literal["", "am", "pm"] = ""
    sure: bool = True


@dataclass(frozen=True, slots=True)
class DayPart:
    """A part of the day, that an hour of twelve is in."""

    name: Literal["night", "morning", "noon", "afternoon", "evening"]


@dataclass(frozen=True, slots=True)
class Refused:
    """Words that cannot be scheduled, with the reason."""

    why: str


Part = Weekdays | Period | MonthDays | Step | Clock | DayPart | Refused

UNEVEN = (
    "that is no schedule that cron fields can say; they know days of the week and of the month, and steps that {fit}"
)
_FIT_HOUR, _FIT_DAY = "divide the hour: 1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30", "divide the day: 1, 2, 3, 4, 6, 8, 12"
SKIPS = (
    "every second, third or other one is nothing that cron fields can say; take all of them, or a day of the month "
    "(for example 'on the 1st and 15th of every month at 9')"
)
BOUNDED = (
    "a schedule in words has no exceptions, bounds or dates; write cron fields for a part of the day or of the year "
    "(for example '*/15 9-17 * * MON-FRI')"
)
RARE = "write that as cron fields, for example '0 9 1 1,4,7,10 *' (at 9 on the first of every third month)"

_PLAIN_DAY = (
    r"\b(?:mon(?:days?)?|tue(?:s(?:days?)?)?|wed(?:s|nesdays?)?|thu(?:rs?(?:days?)?)?|fri(?:days?)?|sat(?:urdays?)?"
    r"|sun(?:days?)?)\b"
)
_AND = r"(?:\s*,\s*(?:and\s+)?|\s+and\s+|\s*&\s*|\s*/\s*)"
_EVERY = r"(?:(?:on\s+)?(?:every|each|all)\s+|on\s+(?:the\s+)?|the\s+)?"
_NUMBERS = r"[1-9]\d{0,3}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty"
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_ORDINAL = rf"(?:{'|'.join(_ORDINALS)}|[1-5](?:st|nd|rd|th))"
_DATE = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)|first"
_DATES = rf"(?:{_DATE})(?:{_AND}(?:the\s+)?(?:{_DATE}))*"
_OF_MONTH = r"(?:\s*,?\s+(?:day\s+)?of\s+(?:the|every|each|a)\s+month)"
_ZH_DAY = "一二三四五六日天"
_ZH_NUMBER = "[零〇一二两三四五六七八九十]{1,3}"
_ZH_WEEK = r"(?:周|星期|礼拜|週)"
_ZH_AND = r"(?:\s*(?:、|，|,|和|及|与)\s*)"


def _number(text: str) -> int:
    text = text.strip().lower()
    return int(text) if text.isdigit() else int(parse_number(text))


def _english_days(m: re.Match[str]) -> Part:
    return Weekdays(
        frozenset(DAYS.index(name[:3].upper()) for name in re.findall(_PLAIN_DAY, m["days"], re.IGNORECASE))
    )


def _day_span(m: re.Match[str]) -> Part:
    first, last = (DAYS.index(m[name][:3].upper()) for name in ("from", "to"))
    if first >= last:
        return Refused("days from one to another are named in the order of the week, Monday first")
    return Weekdays(frozenset(range(first, last + 1)))


def _chinese_days(m: re.Match[str]) -> Part:
    return Weekdays(frozenset(min(_ZH_DAY.index(c), 6) for c in m["days"] if c in _ZH_DAY))


def _chinese_span(m: re.Match[str]) -> Part:
    first, last = (min(_ZH_DAY.index(m[name]), 6) for name in ("from", "to"))
    if first >= last:
        return Refused("days from one to another are named in the order of the week, Monday first")
    return Weekdays(frozenset(range(first, last + 1)))


def _step(count: int, unit: str) -> Part:
    name: Literal["minute", "hour"] = "minute" if unit[0] in "m分" else "hour"
    whole, fit = (60, _FIT_HOUR) if name == "minute" else (24, _FIT_DAY)
    if count < 1 or count >= whole or whole % count:
        happens = ""
        if 1 < count < whole:
            last = (whole - 1) // count * count
            within = "in each hour" if name == "minute" else "each day"
            happens = (
                f"; as cron fields it would run at {name} 0, {count}, ... {last} {within}, and then at 0 again, "
                f"{whole - last} {name}s later"
            )
        return Refused(
            f"every {count} {name}s does not divide the {'hour' if name == 'minute' else 'day'} evenly"
            f"{happens}. Take steps that {fit}"
        )
    return Step(count, name)


def _step_of(m: re.Match[str]) -> Part:
    return _step(_number(m["n"]), m["unit"].lower())


def _month_days(m: re.Match[str]) -> Part:
    dates = [1 if d.lower() == "first" else int(re.sub(r"\D", "", d)) for d in re.findall(_DATE, m["dates"], re.I)]
    return _dates(dates)


def _chinese_dates(m: re.Match[str]) -> Part:
    found = re.findall(rf"(\d{{1,2}}|{_ZH_NUMBER})\s*(?:号|日)", m["dates"])
    return _dates([_number(d) for d in found])


def _dates(dates: list[int]) -> Part:
    if odd := next((d for d in dates if not 1 <= d <= 31), None):
        return Refused(f"there is no day {odd} of a month")
    if late := next((d for d in dates if d > 28), None):
        return Refused(
            f"not every month has a day {late}; say 'the last day of the month at 18:00', or write cron fields "
            f"('0 18 {late} * *') if the other months are to be left out"
        )
    return MonthDays(tuple(str(d) for d in sorted(set(dates))))


def _nth_weekday(m: re.Match[str]) -> Part:
    day = DAYS.index(m["day"][:3].upper())
    which = m["nth"].lower()
    if which == "last":
        return MonthDays((f"{(day + 1) % 7}L",), weekday=True)
    nth = _ORDINALS.index(which) + 1 if which in _ORDINALS else int(which[0])
    return MonthDays((f"{DAYS[day]}#{nth}",), weekday=True)


def _clock(m: re.Match[str]) -> Part:
    groups = m.groupdict()
    half = (groups.get("half") or "").lower().replace(".", "").replace(" ", "")
    hour, minute = int(m["h"]), int(groups.get("m") or 0)
    if hour > 23 or minute > 59 or (half and not 1 <= hour <= 12):
        wish = "; midnight is 0:00, of the day that begins" if (hour, minute) == (24, 0) else ""
        return Refused(f"there is no time {' '.join(m[0].split())!r}; hours are 0 to 23{wish}")
    sure = bool(half or groups.get("m") or groups.get("at"))
    return Clock(hour, minute, "am" if half[:1] == "a" else "pm" if half else "", sure)


def _chinese_clock(m: re.Match[str]) -> Part:
    hour = _number(m["h"])
    minute = {"半": 30, "一刻": 15, "三刻": 45, "整": 0}.get(m["m"] or "整")
    if minute is None:
        minute = _number(m["m"].rstrip("分"))
    if hour > 23 or minute > 59:
        return Refused(f"there is no time {m[0]!r}; hours are 0 to 23")
    return Clock(hour, minute)


_PartName = Literal["night", "morning", "noon", "afternoon", "evening"]
_PART_WORDS: tuple[tuple[_PartName, str], ...] = (
    ("night", "night nightly 凌晨 半夜 夜里 深夜"),
    ("morning", "morning 早上 早晨 清晨 上午 早"),
    ("noon", "中午"),
    ("afternoon", "afternoon 下午"),
    ("evening", "evening 傍晚 晚上 晚"),
)
_DAY_PARTS: dict[str, _PartName] = {word: name for name, words in _PART_WORDS for word in words.split()}


def _day_part(m: re.Match[str]) -> Part:
    return DayPart(_DAY_PARTS[m["part"].lower()])


def _fixed(part: Part) -> Callable[[re.Match[str]], Part]:
    return lambda m: part


_WORKDAYS, _WEEKEND = Weekdays(frozenset(range(5))), Weekdays(frozenset((5, 6)))
_UNIT = rf"(?:{_PLAIN_DAY}|day|week|month|hour|weekday|working\s+day)"
_ZH_COUNT = rf"(?:\d{{1,4}}|{_ZH_NUMBER})"
_ZH_DATE = rf"(?:\d{{1,2}}|{_ZH_NUMBER})\s*(?:号|日)"
_AT = r"(?:(?P<at>at)\s+|@\s*)?"
_HALF = r"(?P<half>[ap]\.?\s?m\b\.?)"
_OCLOCK = r"(?:\s*(?:h|hrs|uhr|o'?clock)\b)?"

_REFUSED_FORMS: tuple[tuple[str, str], ...] = (
    (rf"{_EVERY}(?:second|third|fourth|fifth|other|alternate|\d+(?:nd|rd|th))\s+{_UNIT}s?\b(?!{_OF_MONTH})", SKIPS),
    (rf"(?:every|each)\s+(?:{_NUMBERS}|few|couple\s+of)\s+(?:days?|weeks?|months?|years?|{_PLAIN_DAY})\b", SKIPS),
    (r"(?:bi-?weekly|fortnightly|(?:every|each)\s+fortnight|bi-?monthly)\b", SKIPS),
    (r"(?:每隔|每|隔)\s*(?:[二两三四五六七八九十]|[2-9]|\d{2,})\s*个?\s*(?:天|日|周|星期|礼拜|月|年)", SKIPS),
    (r"隔一?(?:天|日|周|星期|月)|每隔一\s*个?(?:天|日|周|星期|月)|双周|单周", SKIPS),
    (r"(?:quarterly|yearly|annually|(?:every|each)\s+(?:quarter|year)\b(?!\s+of\s+an\s+hour)(?!\s+hour))\b", RARE),
    (r"每个?(?:季度|年)", RARE),
)
"""What is refused is looked for first: a part of it would be read as something else."""

_FORMS: tuple[tuple[str, Callable[[re.Match[str]], Part]], ...] = (
    *((form, _fixed(Refused(why))) for form, why in _REFUSED_FORMS),
    # steps
    (r"(?:every|each)\s+half\s+(?:an\s+)?hour\b", _fixed(Step(30, "minute"))),
    (r"(?:every|each)\s+quarter\s+(?:of\s+an\s+)?hour\b", _fixed(Step(15, "minute"))),
    (rf"(?:every|each)\s+(?P<n>{_NUMBERS})\s*(?P<unit>min(?:ute)?s?|m|hours?|hrs?|h)\b", _step_of),
    (r"(?:every|each)\s+minute\b", _fixed(Step(1, "minute"))),
    (r"(?:hourly|(?:every|each)\s+hour)\b", _fixed(Step(1, "hour"))),
    (r"每隔?半个?(?:小时|钟头)", _fixed(Step(30, "minute"))),
    (rf"每隔?\s*(?P<n>{_ZH_COUNT})\s*个?\s*(?P<unit>分钟|分|小时|钟头)", _step_of),
    (r"每分钟", _fixed(Step(1, "minute"))),
    (r"每个?(?:小时|钟头)", _fixed(Step(1, "hour"))),
    # days of the month
    (rf"(?:on\s+)?(?:the\s+)?last\s+day{_OF_MONTH}", _fixed(MonthDays(("L",)))),
    (r"(?:at\s+)?(?:the\s+)?end\s+of\s+(?:the|every|each)\s+month\b", _fixed(MonthDays(("L",)))),
    (
        rf"(?:on\s+)?(?:the\s+|every\s+)?last\s+(?:weekday|working\s+day|business\s+day){_OF_MONTH}",
        _fixed(MonthDays(("LW",))),
    ),
    (rf"(?:on\s+)?(?:the\s+|every\s+)?(?P<nth>last|{_ORDINAL})\s+(?P<day>{_PLAIN_DAY}){_OF_MONTH}", _nth_weekday),
    (rf"(?:on\s+)?(?:the\s+)?(?P<dates>{_DATES}){_OF_MONTH}", _month_days),
    (rf"on\s+(?:the\s+)?(?P<dates>{_DATES})(?!\s*(?:{_PLAIN_DAY}|day|week|month)\b)\b", _month_days),
    (r"每个?月的?(?:最后一[天日]|月底|末)|每月底|月底", _fixed(MonthDays(("L",)))),
    (rf"每个?月的?\s*(?P<dates>{_ZH_DATE}(?:{_ZH_AND}{_ZH_DATE})*)", _chinese_dates),
    # days of the week
    (rf"{_EVERY}(?:week\s?days?|work(?:ing)?\s?days?|business\s+days?)\b", _fixed(_WORKDAYS)),
    (rf"{_EVERY}week\s?ends?\b", _fixed(_WEEKEND)),
    (rf"{_EVERY}(?:from\s+)?(?P<from>{_PLAIN_DAY})\s*(?:-|–|to|through)\s*(?P<to>{_PLAIN_DAY})", _day_span),
    (rf"{_EVERY}(?P<days>{_PLAIN_DAY}(?:{_AND}(?:on\s+|every\s+|each\s+)?{_PLAIN_DAY})*)", _english_days),
    (
        rf"每?个?{_ZH_WEEK}(?P<from>[{_ZH_DAY}])\s*(?:到|至|-|–|~)\s*{_ZH_WEEK}?(?P<to>[{_ZH_DAY}])",
        _chinese_span,
    ),
    (r"(?:每个?|在)?(?:工作日|平日)", _fixed(_WORKDAYS)),
    (r"每个?周末|周末", _fixed(_WEEKEND)),
    (rf"(?:每个?|在)?{_ZH_WEEK}(?P<days>[{_ZH_DAY}](?:{_ZH_AND}?(?:每?{_ZH_WEEK})?[{_ZH_DAY}])*)", _chinese_days),
    # periods
    (r"(?:every|each)\s+week\b|weekly\b|每个?(?:周|星期|礼拜)", _fixed(Period("week"))),
    (r"(?:every|each)\s+month\b|monthly\b|每个?月", _fixed(Period("month"))),
    (r"(?:every|each)\s+(?:single\s+)?day\b|daily\b|每[天日]|天天", _fixed(Period("day"))),
    # times
    (r"(?:at\s+)?(?:12\s*)?(?:noon|midday)\b|正午", _fixed(Clock(12, 0))),
    (r"(?:at\s+)?midnight\b|午夜|零点", _fixed(Clock(0, 0))),
    (rf"{_AT}(?P<h>\d{{1,2}}):(?P<m>\d{{2}})(?!\d)\s*{_HALF}?{_OCLOCK}", _clock),
    (rf"{_AT}(?P<h>\d{{1,2}})\s*{_HALF}", _clock),
    (rf"(?P<at>at)\s+(?P<h>\d{{1,2}})(?![\d.:/-]){_OCLOCK}(?!\s*(?:%|st\b|nd\b|rd\b|th\b))", _clock),
    (r"(?P<h>\d{1,2})\s*o'?clock\b", _clock),
    (
        rf"(?P<h>\d{{1,2}}|{_ZH_NUMBER})\s*(?:点钟|点|點|时)(?P<m>半|一刻|三刻|整|\d{{1,2}}分?|{_ZH_NUMBER}分?)?(?!\d)",
        _chinese_clock,
    ),
    # parts of the day
    (
        r"(?:in\s+the\s+|every\s+|each\s+|at\s+)?(?P<part>nightly|(?:morning|afternoon|evening|night)(?=s?\b))s?\b",
        _day_part,
    ),
    (r"每?(?P<part>凌晨|半夜|夜里|深夜|早上|早晨|清晨|上午|中午|下午|傍晚|晚上|早|晚)", _day_part),
)

_COMPILED = tuple((re.compile(form, re.IGNORECASE | re.ASCII), read) for form, read in _FORMS)
_LETTER = re.compile(r"[A-Za-z0-9_]")
_AFTERWARDS = re.compile(
    r"(?:except|excluding|until|till|unless|starting|beginning|other\s+than|but\s+not|through|thru|除了|直到|开始)"
    r"|(?:from|between|to|and|or|-|–|—|~|从|到|至)\s*(?:at\s+)?(?:\d|noon|midnight|every|each|the\s+\d)"
    rf"|(?:from|between|to|and|or|not)\s+(?:on\s+)?{_PLAIN_DAY}"
    r"|(?:in|of|during)\s+(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b",
    re.IGNORECASE | re.ASCII,
)
_BEFORE = re.compile(r"(?:except|excluding|not|until|till|unless|除了)\s*(?:on\s+|at\s+)?\Z", re.IGNORECASE | re.ASCII)


def read_part(text: str, at: int) -> tuple[Part, int] | None:
    """Read the part of a schedule that begins at a place of a text; return it and where it ends.

    ``text`` has to be lower-case, apart from what has no case.
    """
    if at and _LETTER.match(text[at]) and _LETTER.match(text[at - 1]):
        return None  # within a word
    for form, read in _COMPILED:
        if (m := form.match(text, at)) is not None and m.end() > at:
            return read(m), m.end()
    return None


def is_bounded(text: str, start: int, end: int) -> bool:
    """Tell whether words around a schedule bound it, or except something from it."""
    return _AFTERWARDS.match(text, end) is not None or _BEFORE.search(text[max(0, start - 40) : start]) is not None
