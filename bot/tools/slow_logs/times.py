"""Times as logs write them, into seconds since 1970.

Abbreviations of zones mean what Postgres's own "Default" set says
(https://www.postgresql.org/docs/current/datetime-config-files.html); an unknown one is taken as UTC and reported. A
named zone for the whole log wins over what the log says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agent_core.errors import ToolFailed

_HOURS: Mapping[bytes, float] = {
    **dict.fromkeys((b"", b"UTC", b"GMT", b"Z", b"UCT", b"WET", b"ZULU"), 0.0),
    **dict.fromkeys((b"CET", b"BST", b"WEST", b"MEZ"), 1.0),
    **dict.fromkeys((b"CEST", b"EET", b"IST", b"SAST", b"MESZ"), 2.0),
    **dict.fromkeys((b"EEST", b"MSK", b"IDT"), 3.0),
    **dict.fromkeys((b"HKT", b"SGT", b"AWST"), 8.0),
    **dict.fromkeys((b"JST", b"KST"), 9.0),
    **{b"ACST": 9.5, b"ACDT": 10.5, b"AEST": 10.0, b"AEDT": 11.0, b"NZST": 12.0, b"NZDT": 13.0},
    **{b"NST": -3.5, b"NDT": -2.5, b"AST": -4.0, b"ADT": -3.0, b"EST": -5.0, b"EDT": -4.0, b"CST": -6.0, b"CDT": -5.0},
    **{b"MST": -7.0, b"MDT": -6.0, b"PST": -8.0, b"PDT": -7.0, b"AKST": -9.0, b"AKDT": -8.0, b"HST": -10.0},
}
_OFFSET = re.compile(rb"([+-])(\d\d):?(\d\d)?")
_MOST_MINUTES = 50_000
_OLD = re.compile(rb"(\d\d)(\d\d)(\d\d)\s+(\d{1,2}):(\d\d):(\d\d)(\.\d+)?")
_ISO = re.compile(rb"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d):(\d\d(?:\.\d+)?) ?(Z|[+-]\d\d:?\d\d)?")


def load_zone(name: str) -> tzinfo:
    """Return a zone by its IANA name, ``UTC`` or an offset such as ``+02:00``.

    Raises:
        ToolFailed: code ``unknown_zone``.
    """
    if match := _OFFSET.fullmatch(name.strip().encode("ascii", "replace")):
        return _zone_of(match)
    try:
        return ZoneInfo(name.strip())
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ToolFailed(
            f"there is no time zone {name[:60]!r}",
            code="unknown_zone",
            fix="pass a name such as Europe/Paris, or +02:00",
        ) from None


def _zone_of(match: re.Match[bytes]) -> timezone:
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    return timezone(timedelta(minutes=-minutes if match[1] == b"-" else minutes))


class Times:
    """Reads times of one log. Minutes that were seen are remembered, as a log has many lines of each.

    Args:
        zone: that of the log, whatever it says itself; None: as the log says, else UTC.
    """

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone
        self._minutes: dict[tuple[bytes, bytes], float] = {}
        self.unknown_zones: set[str] = set()
        self.assumed_utc = False

    def minute(self, minute: bytes, zone: bytes) -> float:
        """Return the instant of ``YYYY-mm-dd HH:MM`` with a zone's abbreviation or offset; NaN when it is none."""
        known = self._minutes.get((minute, zone))
        if known is None:
            known = self._read(minute, zone)
            if len(self._minutes) >= _MOST_MINUTES:
                self._minutes.clear()
            self._minutes[minute, zone] = known
        return known

    def _read(self, minute: bytes, zone: bytes) -> float:
        try:
            naive = datetime.fromisoformat(minute.decode("ascii"))
            return naive.replace(tzinfo=self._zone or self._find_zone(zone)).timestamp()
        except (ValueError, OverflowError):
            return float("nan")

    def _find_zone(self, zone: bytes) -> tzinfo:
        if match := _OFFSET.fullmatch(zone):
            return _zone_of(match)
        hours = _HOURS.get(zone.upper())
        if hours is None:
            if len(self.unknown_zones) < 8:
                self.unknown_zones.add(zone.decode("ascii", "replace"))
            return UTC
        return timezone(timedelta(hours=hours))

    def mysql(self, text: bytes) -> float:
        """Return the instant of a ``# Time:`` line, of 5.7 and later or the older form; NaN when it is none."""
        if match := _ISO.match(text):
            if match[4] is None and self._zone is None:
                self.assumed_utc = True
            return self.minute(match[1] + b" " + match[2], match[4] or b"") + float(match[3])
        if match := _OLD.match(text):
            self.assumed_utc = self.assumed_utc or self._zone is None
            day = b"20%b-%b-%b %02d:%b" % (match[1], match[2], match[3], int(match[4]), match[5])
            return self.minute(day, b"") + float(match[6] + (match[7] or b""))
        return float("nan")
