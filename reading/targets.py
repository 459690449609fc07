"""Names that stand where a target (a database, a cluster) is named, though no such target is configured.

They are handed to the tool as they are: its own answer says which targets exist, which helps more than silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from reading.vocabulary import STOP_WORDS
from reading.words import stem

_NAME = r"(?P<name>[A-Za-z][\w-]{1,40})"
_KIND = r"(?:database|db|target|instance|cluster|server)"
_CERTAIN = tuple(
    re.compile(pattern, re.IGNORECASE | re.ASCII)
    for pattern in (
        rf"\b(?:on|in|of|from|for|against|at)\s+(?:the\s+|our\s+)?{_NAME}\s+{_KIND}\b",
        rf"\b(?:on|in|of|from|for|against|at)\s+(?:the\s+)?{_KIND}\s+(?:called\s+|named\s+)?{_NAME}\b",
        rf"(?<![A-Za-z0-9_]){_NAME}\s*(?:数据库|库|实例)",
        rf"在\s*{_NAME}\s*(?:上|中|里)",
    )
)
_NEXT = "in|for|during|over|since|with|within|last|past|from|today|yesterday|please|that|which|above|now|and|or|right"
_END = rf"(?=\s*(?:[,.;:?!，。；？！]|$)|\s+(?:{_NEXT})\b)"
_LIKELY = re.compile(rf"\b(?:on|against)\s+(?P<name>[a-z][\w-]{{1,40}}){_END}")
_CONTINUED = re.compile(
    rf"^\W*(?:and\s+)?(?:(?:what|how)\s+about|(?:the\s+)?same\s+(?:on|for|with)|for|on)\s+(?P<name>[a-z][\w-]{{1,40}}){_END}"
)
_NO_NAMES = """
average avg mean total top demand disk fire hold monday tuesday wednesday thursday friday saturday
sunday purpose time it them each every both all slack discord production here there hour minute second
day week month hours minutes seconds days weeks months column columns primary calls call duration max
min sql python web internet line
"""
_NEVER = frozenset(_NO_NAMES.split())


def find_unknown_target(text: str, *, follow_up: bool, ignore: Iterable[str]) -> re.Match[str] | None:
    """Find a name in a target's place: "on warehouse", "the analytics database", "warehouse库".

    Args:
        text: prose with what is read already blanked out.
        follow_up: also accept "what about warehouse?".
        ignore: stems that are words of the registered tools and so no names, and their forms in "-ing".
    """
    ignored = set(ignore)
    patterns: list[re.Pattern[str]] = [*_CERTAIN, _LIKELY, *((_CONTINUED,) if follow_up else ())]
    for pattern in patterns:
        for m in pattern.finditer(text):
            lowered = m.group("name").lower()
            # a tool that writes a report does not make "the reporting db" a word of its own
            named = lowered.endswith("ing") and pattern in _CERTAIN
            known = lowered in ignored or (not named and stem(lowered) in ignored)
            if lowered not in _NEVER and lowered not in STOP_WORDS and not known:
                return m
    return None
