"""Time zones as people name them for a job: IANA names, cities, abbreviations that have one meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from bot.jobs.calendar import BadSchedule, parse_schedule
from reading.zones import read_zones

AMBIGUOUS: Mapping[str, tuple[str, ...]] = {
    "CST": ("America/Chicago", "Asia/Shanghai", "America/Havana"),
    "IST": ("Asia/Kolkata", "Europe/Dublin", "Asia/Jerusalem"),
    "BST": ("Europe/London", "Asia/Dhaka"),
    "AST": ("America/Halifax", "Asia/Riyadh"),
    "PST": ("America/Los_Angeles", "Asia/Manila"),
    "EST": ("America/New_York", "America/Jamaica", "Australia/Sydney"),
    "MST": ("America/Denver", "America/Phoenix", "Asia/Kuala_Lumpur"),
    "SST": ("Pacific/Pago_Pago", "Asia/Singapore"),
    "GST": ("Asia/Dubai", "Pacific/Guam"),
    "ECT": ("America/Guayaquil", "America/Puerto_Rico"),
    "AMT": ("Asia/Yerevan", "America/Manaus"),
}
"""Abbreviations that more than one country uses, or that are wrong for half of the year; with what may be meant."""

_CENTRAL_EUROPE = {"cet": "Europe/Berlin", "cest": "Europe/Berlin", "mez": "Europe/Berlin", "mesz": "Europe/Berlin"}
_SHORT = re.compile(rf"(?<![A-Za-z/_])(?:{'|'.join(AMBIGUOUS)})(?![A-Za-z/_])", re.IGNORECASE)
ANY_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedZone:
    """A zone in a text, by its IANA ``name``, from ``start`` to ``end``. ``choices``: it may be one of several."""

    name: str
    start: int
    end: int
    choices: tuple[str, ...] = ()


def find_zones(text: str) -> list[NamedZone]:
    """Find the places and abbreviations in a text whose time zone is known, or may be one of several."""
    found = [
        NamedZone(name="", start=m.start(), end=m.end(), choices=AMBIGUOUS[m[0].upper()]) for m in _SHORT.finditer(text)
    ]
    for zone in read_zones(text):
        if not zone.known or any(o.start < zone.end and zone.start < o.end for o in found):
            continue
        name = _CENTRAL_EUROPE.get(text[zone.start : zone.end].lower(), zone.value)
        found.append(NamedZone(name=name, start=zone.start, end=zone.end))
    return found


def resolve_zone(text: str) -> str:
    """Return the IANA name of what a person named, alone: a zone, a city, an abbreviation.

    Raises:
        BadSchedule: it is none, or may be one of several; the message says what can be written.
    """
    asked = " ".join(text.split()).strip("()（） ,.")
    for zone in find_zones(asked):
        if zone.start == 0 and asked[zone.end :].strip().lower() in ("", "time", "时间"):
            if zone.choices:
                raise BadSchedule(say_choices(asked[: zone.end], zone.choices))
            return zone.name
    return parse_schedule("0 0 * * *", asked, now=ANY_INSTANT).zone


def say_choices(name: str, choices: tuple[str, ...]) -> str:
    """Say which zones an abbreviation may mean."""
    listed = f"{', '.join(choices[:-1])} or {choices[-1]}"
    return f"{name.upper()} is the time of several places; write the one that you mean: {listed}"
