"""When a job runs: five cron fields, read in a named time zone.

Times are computed by cronsim, which treats the two odd nights of a year as Debian's cron does
(https://manpages.debian.org/cron.8): a job at a fixed time of the day runs once in each of them, at the end of a gap
and at the first of two equal times; one whose minute or hour is ``*`` follows the time that passes. On top of that, an
occurrence here always lies after the one before it, from wherever one begins to look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

EXAMPLE = "'0 9 * * MON-FRI' (minute, hour, day of the month, month, day of the week) with 'Europe/Berlin'"
_FIELDS = 5
_LONGEST = 200


class BadSchedule(ValueError):
    """The cron fields or the zone cannot be used; the message says what is wrong, and how it is written."""


@dataclass(frozen=True, slots=True, order=True)
class Occurrence:
    """One time at which a job is due.

    Args:
        at: the instant, aware UTC, whole minutes.
        key: names it among the job's occurrences. For a fixed time of the day it is the local time, so that an hour
            that comes twice has one; otherwise the instant.
        local: the local time with its offset, for people: ``2026-03-29 03:00 +02:00``.
    """

    at: datetime
    key: str
    local: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """A job's times. Made by ``parse_schedule``."""

    cron: str
    zone: str

    @property
    def fixed(self) -> bool:
        """True for fixed times of the day, which an odd night does not double; false where minute or hour is ``*``."""
        minute, hour = self.cron.split()[:2]
        return not minute.startswith("*") and not hour.startswith("*")

    def after(self, instant: datetime) -> Iterator[Occurrence]:
        """Yield the occurrences after an instant, in order; it ends only when there are no more for decades.

        Args:
            instant: aware. An occurrence at exactly this instant is not one after it.
        """
        zone, fixed, last = ZoneInfo(self.zone), self.fixed, instant.astimezone(UTC)
        for local in CronSim(self.cron, last.astimezone(zone)):
            at = local.astimezone(UTC)
            # Two times in a gap have one end, and the first of two equal times may have passed.
            if at > last:
                yield _build(at, at.astimezone(zone), fixed=fixed)
                last = at

    def next(self, instant: datetime) -> Occurrence | None:
        """The first occurrence after an instant, or None."""
        return next(self.after(instant), None)


def _build(at: datetime, local: datetime, *, fixed: bool) -> Occurrence:
    offset = local.strftime("%z")
    shown = f"{local:%Y-%m-%d %H:%M} {offset[:3]}:{offset[3:5]}"
    return Occurrence(at=at, key=f"{local:%Y-%m-%dT%H:%M}" if fixed else f"{at:%Y-%m-%dT%H:%MZ}", local=shown)


def parse_schedule(cron: str, zone: str, *, now: datetime) -> Schedule:
    """Read cron fields and a zone.

    Args:
        cron: five fields; names of months and days may stand for numbers, and ``L``, ``LW`` and ``#`` are known.
        zone: a name of the IANA data base.
        now: aware; the schedule has to have an occurrence after it.

    Raises:
        BadSchedule: with the right form as an example.
    """
    fields = cron.split()
    if len(cron) > _LONGEST or len(fields) != _FIELDS:
        raise BadSchedule(f"a schedule has {_FIELDS} cron fields, not {len(fields)}; for example {EXAMPLE}")
    known = _find_zone(zone)
    schedule = Schedule(cron=" ".join(fields).upper(), zone=known)
    try:
        first = schedule.next(now)
    except CronSimError as error:
        raise BadSchedule(
            f"the cron fields {cron!r} cannot be read: {str(error).lower()}; for example {EXAMPLE}"
        ) from None
    if first is None:
        raise BadSchedule(f"the cron fields {cron!r} name a day that never comes; for example {EXAMPLE}")
    return schedule


@cache
def _list_zones() -> frozenset[str]:
    return frozenset(available_timezones())  # it walks through hundreds of files


def _find_zone(name: str) -> str:
    zones = _list_zones()
    if name in zones:
        return name
    by_name = {zone.lower(): zone for zone in zones}
    if (found := by_name.get(name.strip().lower().replace(" ", "_"))) is not None:
        return found
    cities = {zone.rpartition("/")[2].lower(): zone for zone in sorted(zones) if "/" in zone}
    near = get_close_matches(name.strip().lower().replace(" ", "_"), [*by_name, *cities], n=1)
    wish = f"; did you mean {by_name.get(near[0]) or cities[near[0]]!r}?" if near else ""
    raise BadSchedule(f"there is no time zone {name[:60]!r}{wish} Zones are named as in 'Europe/Berlin' or 'UTC'")
