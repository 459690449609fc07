"""When a job runs, in words: "every weekday at 9 in Berlin", "每周一8点半", or five cron fields.

The reader is strict. It takes what it is sure of; what it cannot read, what is incomplete, and what cron fields cannot
say is refused with examples of what works. Hours without am or pm are those of the 24-hour clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from bot.jobs.calendar import BadSchedule, parse_schedule
from bot.jobs.wording import (
    BOUNDED,
    DAYS,
    Clock,
    DayPart,
    MonthDays,
    Part,
    Period,
    Refused,
    Step,
    Weekdays,
    is_bounded,
    read_part,
)
from bot.jobs.zones import ANY_INSTANT, NamedZone, find_zones, resolve_zone, say_choices

LONGEST = 600
"""Characters of a text in which a schedule is looked for; what follows is a part of the rest."""

AROUND = 3
"""Words before and behind a quoted schedule that may change what it says."""

EXAMPLES = (
    "'every weekday at 9 in Berlin', 'mondays and thursdays at 8:15 Europe/Berlin', 'on the 1st of every month at 7', "
    "'every 15 minutes', '每个工作日上午9点（柏林时间）', or cron fields: '0 9 * * MON-FRI'"
)

_CRON = re.compile(
    r"\s*(?P<quote>[`'\"]?)(?P<cron>[0-9*][0-9*,/-]*\s+[0-9*][0-9*,/-]*\s+(?:[0-9*][0-9*,/-]*|LW?)"
    r"\s+[0-9A-Z*][0-9A-Z*,/-]*\s+[0-9A-Z*][0-9A-Z*,/#-]*)(?P=quote)(?![\w*/,#-])",
    re.IGNORECASE | re.ASCII,
)
_JOINT = re.compile(r"[\s,，、()（）]+|\b(?:on|and|the)\b|的", re.IGNORECASE)
_BEFORE_ZONE = re.compile(r"(?:(?:in|at|for)\s+(?:the\s+)?|按照?|在|以)?[(（]?\s*", re.IGNORECASE)
_AFTER_ZONE = re.compile(r"(?:['’]s)?\s*(?:local\s+)?(?:time(?:\s?zone)?\b|时间|时区)?\s*[)）]?", re.IGNORECASE)
_HERE = re.compile(
    r"(?:this|the|our|my|your|here|a|an|it|that|case|private|public|english|chinese|german|[#<@])\b|[#<@]"
)
_PLACE = re.compile(r"\s*[,(]?\s*in\s+(?P<place>[^\W\d_][\w./-]*)")
_PLAIN = str.maketrans("０１２３４５６７８９：\u00a0\u3000", "0123456789:  ")
"""Signs that an input method may write for the plain ones; as many, so that places stay."""

_EDGES = " \t\r\n,，、.。:：;；-–—()（）"


class BadPhrase(ValueError):
    """The words are no schedule; the message says why, and what can be written."""


class Unsayable(BadPhrase):
    """It was read, and it is nothing that cron fields can say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A schedule that was read.

    Args:
        cron: five fields, as ``bot.jobs.calendar.parse_schedule`` takes them.
        zone: the IANA name of the zone that was named, or None.
        rest: the text without the schedule.
    """

    cron: str
    zone: str | None
    rest: str

    @property
    def needs_zone(self) -> bool:
        """False for times that are the same in every zone: steps of minutes, and every hour."""
        return self.cron.split()[1:] != ["*", "*", "*", "*"]


@dataclass(frozen=True, slots=True)
class _Found:
    """A part, or a zone, with its place."""

    part: Part | NamedZone
    start: int
    end: int


def parse_when(text: str) -> When:
    """Read a schedule out of a text.

    Args:
        text: the words, with or without others before and behind them.

    Raises:
        BadPhrase: there is none, more than one, half of one, or one that cron fields cannot say.
    """
    text, tail = text[:LONGEST], text[LONGEST:]
    when = _parse(text)
    return replace(when, rest=f"{when.rest}{tail}") if tail else when


def _parse(text: str) -> When:
    if (m := _CRON.match(text)) is not None:
        return _read_cron(m, text)
    runs = list(_find_runs(text))
    chosen = _choose(runs, text)
    parts = [found.part for run in chosen for found in run]
    if refused := next((part for part in parts if isinstance(part, Refused)), None):
        raise Unsayable(f"{refused.why}. What works: {EXAMPLES}")
    cron = _build_cron([part for part in parts if not isinstance(part, NamedZone)])
    zone, cut = _take_zone([part for part in parts if isinstance(part, NamedZone)], text, chosen[-1][-1].end)
    rest = text
    for start, end in sorted([*((run[0].start, run[-1].end) for run in chosen), cut], reverse=True):
        rest = f"{rest[:start].rstrip(_EDGES)} {rest[end:].lstrip(_EDGES)}" if end > start else rest
    return When(cron=cron, zone=zone, rest=rest.strip(_EDGES))


def read_around(when: str, said: str) -> When | None:
    """Read a schedule that was taken from a message with the words around it: "tuesday" may be one of "every second".

    Returns:
        None where it is not in the message, or what is around it is about something else.

    Raises:
        Unsayable: with them it is something that cron fields cannot say.
    """
    at = said.casefold().find(when.casefold())
    if not when or at < 0:
        return None
    before, after = said[:at].split()[-AROUND:], said[at + len(when) :].split()[:AROUND]
    glued = said[at + len(when) : at + len(when) + 1].strip()
    wider = " ".join([*before, when]) + ("" if glued else " ") + " ".join(after)
    try:
        return parse_when(wider)
    except Unsayable:
        raise
    except BadPhrase:
        return None


def _read_cron(m: re.Match[str], text: str) -> When:
    cron = " ".join(m["cron"].upper().split())
    rest = text[m.end() :].strip(_EDGES)
    zone: str | None = None
    try:
        parse_schedule(cron, "UTC", now=ANY_INSTANT)
        named = sorted(find_zones(rest), key=lambda found: found.start)
        before = _BEFORE_ZONE.match(rest)
        if named and before is not None and named[0].start == before.end():
            zone, rest = _name(named[0], rest), rest[_end_of_zone(rest, named[0].end) :]
        elif (m2 := re.match(r"[A-Za-z]+/[A-Za-z_/]+|in\s+(?P<place>\w+)\Z", rest)) is not None:
            resolve_zone(m2["place"] or m2[0])
    except BadSchedule as error:
        raise BadPhrase(str(error)) from None
    return When(cron=cron, zone=zone, rest=rest.strip(_EDGES))


# -- finding ---------------------------------------------------------------------------------------


def _find_runs(text: str) -> Iterator[list[_Found]]:
    """Yield the parts that stand beside each other, zones among them."""
    zones = find_zones(text)
    lowered = "".join(c.lower() if len(c.lower()) == 1 else c for c in text).translate(_PLAIN)
    run: list[_Found] = []
    at = 0
    while at < len(text):
        found = _find_part(lowered, at) or _find_zone(lowered, at, zones, first=not run)
        if found is not None:
            run.append(found)
            at = found.end
        elif run and (joint := _JOINT.match(lowered, at)) is not None:
            at = joint.end()
        else:
            if run:
                yield run
                run = []
            at += 1
    if run:
        yield run


def _find_part(text: str, at: int) -> _Found | None:
    read = read_part(text, at)
    return None if read is None else _Found(read[0], at, read[1])


def _find_zone(text: str, at: int, zones: Sequence[NamedZone], *, first: bool) -> _Found | None:
    if text[at].isspace():
        return None
    before = _BEFORE_ZONE.match(text, at)
    begins = {at, at if before is None else before.end()}
    zone = next((zone for zone in zones if zone.start in begins), None)
    if zone is None:
        return None
    end = _end_of_zone(text, zone.end)
    if first and zone.start == at and not text[zone.end : end].strip():
        return None  # "a report about Berlin every day": a bare name before a schedule is what it is about
    return _Found(zone, at, end)


def _end_of_zone(text: str, end: int) -> int:
    after = _AFTER_ZONE.match(text, end)
    return end if after is None else after.end()


def _skip(text: str, at: int) -> int:
    joint = re.compile(r"[\s,，(（]+").match(text, at)
    return at if joint is None else joint.end()


def _choose(runs: Sequence[list[_Found]], text: str) -> list[list[_Found]]:
    """Return the run that says how often, and with it one that only says at what time."""
    often = [
        run for run in runs if any(isinstance(f.part, Weekdays | Period | MonthDays | Step | Refused) for f in run)
    ]
    told = [run for run in often if not _is_adjective(run, text)] or often
    if any(is_bounded(text, run[0].start, _skip(text, run[-1].end)) for run in told):
        raise Unsayable(f"{BOUNDED}. What works: {EXAMPLES}")
    if not told:
        timed = any(isinstance(f.part, Clock | DayPart) for run in runs for f in run)
        if timed and any(isinstance(f.part, DayPart) and _repeats(f, text) for run in runs for f in run):
            return [run for run in runs if any(isinstance(f.part, Clock | DayPart) for f in run)]
        why = "it says at what time, but not on which days" if timed else "I can read no schedule in it"
        raise BadPhrase(f"{why}. What works: {EXAMPLES}")
    if len(told) > 1:
        raise BadPhrase(f"it says more than once when; one job has one schedule. What works: {EXAMPLES}")
    chosen = told[0]
    if any(isinstance(f.part, Clock | Step | Refused) for f in chosen):
        return [chosen]
    timed_runs = [
        run for run in runs if run is not chosen and any(isinstance(f.part, Clock) and f.part.sure for f in run)
    ]
    if len(timed_runs) > 1:
        raise BadPhrase(f"it says more than once at what time. What works: {EXAMPLES}")
    return sorted([chosen, *timed_runs], key=lambda run: run[0].start)


def _is_adjective(run: Sequence[_Found], text: str) -> bool:
    """True for "daily" in "the daily report": it names a report, no times."""
    alone = text[run[0].start : run[-1].end].lower()
    if alone not in ("daily", "weekly", "monthly", "hourly"):
        return False
    return re.match(r"\s+[^\W\d_]", text[run[-1].end :]) is not None and not re.match(
        r"\s+(?:at|on|in|@)\b", text[run[-1].end :]
    )


def _repeats(found: _Found, text: str) -> bool:
    return re.match(r"every|each|nightly|每", text[found.start : found.end], re.IGNORECASE) is not None


# -- building --------------------------------------------------------------------------------------


def _build_cron(parts: Sequence[Part]) -> str:
    """Put the parts together.

    Raises:
        BadPhrase: they contradict each other, or something is missing.
    """
    _check_order(parts)
    clocks = [part for part in parts if isinstance(part, Clock)]
    day_part = next((part for part in parts if isinstance(part, DayPart)), None)
    days = next((part for part in parts if isinstance(part, Weekdays)), None)
    month = next((part for part in parts if isinstance(part, MonthDays)), None)
    step = next((part for part in parts if isinstance(part, Step)), None)
    period = next((part for part in parts if isinstance(part, Period)), None)
    if sum(found is not None for found in (days, month)) > 1 or (period is not None and not _fits(period, days, month)):
        raise _contradicts()
    of_month = "*" if month is None or month.weekday else ",".join(month.days)
    of_week = ",".join(month.days) if month is not None and month.weekday else _write_days(days)
    if step is not None:
        if clocks or day_part or period or month:
            raise _contradicts()
        return _write_step(step, of_week)
    if period is not None and ((period.name == "week" and days is None) or (period.name == "month" and month is None)):
        wish = "'weekly on friday at 17:00'" if period.name == "week" else "'on the 1st of every month at 7'"
        raise BadPhrase(f"every {period.name}, but on which day? For example {wish}. What works: {EXAMPLES}")
    if not clocks:
        raise BadPhrase(f"at what time? For example 'every weekday at 9 in Berlin'. What works: {EXAMPLES}")
    times = [_resolve(clock, day_part) for clock in clocks]
    if len({minute for _, minute in times}) > 1:
        raise BadPhrase(
            "times of one job are the same minutes past the hour, such as 9:30 and 17:30; else make two jobs"
        )
    hours = ",".join(str(hour) for hour in sorted({hour for hour, _ in times}))
    return f"{times[0][1]} {hours} {of_month} * {of_week}"


def _check_order(parts: Sequence[Part]) -> None:
    """Refuse what names a kind of part in two places: "monday at 9 and thursday at 10" is two jobs."""
    kinds = [kind for kind, _ in groupby(type(part) for part in parts if not isinstance(part, DayPart))]
    if len(kinds) != len(set(kinds)) or sum(isinstance(part, DayPart) for part in parts) > 1:
        raise _contradicts()
    for kind in (Weekdays, MonthDays, Step, Period):
        if len({part for part in parts if isinstance(part, kind)}) > 1:
            raise _contradicts()


def _contradicts() -> BadPhrase:
    return BadPhrase(f"it says more than one thing of when; one job has one schedule. What works: {EXAMPLES}")


def _fits(period: Period, days: Weekdays | None, month: MonthDays | None) -> bool:
    match period.name:
        case "day":
            return days is None and month is None
        case "week":
            return month is None
        case "month":
            return days is None


def _write_step(step: Step, of_week: str) -> str:
    each = "*" if step.count == 1 else f"*/{step.count}"
    return f"{each} * * * {of_week}" if step.unit == "minute" else f"0 {each} * * {of_week}"


def _write_days(days: Weekdays | None) -> str:
    if days is None or len(days.days) == len(DAYS):
        return "*"
    named = sorted(days.days)
    # cron's week begins on Sunday, so a range cannot end there
    if len(named) > 2 and named[-1] - named[0] == len(named) - 1 and named[-1] < DAYS.index("SUN"):
        return f"{DAYS[named[0]]}-{DAYS[named[-1]]}"
    return ",".join(DAYS[day] for day in named)


def _resolve(clock: Clock, day_part: DayPart | None) -> tuple[int, int]:
    """Return hour and minute of the 24-hour clock.

    Raises:
        BadPhrase: the hour is not in that part of the day.
    """
    hour, name = clock.hour, "" if day_part is None else day_part.name
    if clock.half:
        hour = hour % 12 + (12 if clock.half == "pm" else 0)
    elif name in ("afternoon", "evening") and 1 <= hour < 12:
        hour += 12
    elif name == "night" and 6 <= hour <= 12:
        hour = (hour + 12) % 24
    elif name == "noon" and 1 <= hour <= 2:
        hour += 12
    span = _SPANS.get(name, range(24))
    if hour not in span:
        raise BadPhrase(f"{clock.hour}:{clock.minute:02} is not in the {name}; write for example 'every day at 17:30'")
    return hour, clock.minute


_SPANS = {
    "night": (*range(18, 24), *range(6)),
    "morning": range(12),
    "noon": range(11, 15),
    "afternoon": range(12, 19),
    "evening": range(16, 24),
}


def _take_zone(zones: Sequence[NamedZone], text: str, end: int) -> tuple[str | None, tuple[int, int]]:
    """Return the zone, and the place behind the schedule that was looked up for it.

    Raises:
        BadPhrase: there are two, it may be one of several, or a place was named that is none.
    """
    try:
        names = {_name(zone, text) for zone in zones}
        if len(names) > 1:
            raise BadPhrase(f"it names more than one time zone: {', '.join(sorted(names))}")
        place = _PLACE.match(text, end)
        if names or place is None or _HERE.match(place["place"].lower()):
            return next(iter(names), None), (end, end)
        return resolve_zone(place["place"]), (end, place.end())
    except BadSchedule as error:
        raise BadPhrase(str(error)) from None


def _name(zone: NamedZone, text: str) -> str:
    if zone.choices:
        raise BadPhrase(say_choices(text[zone.start : zone.end], zone.choices))
    return zone.name
