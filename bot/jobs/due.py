"""Which occurrences of a job run now, and which are given up: what its policy says of times that were missed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from bot.jobs.calendar import Occurrence, Schedule

CatchUp = Literal["none", "latest", "all"]

PUNCTUAL_S = 60.0
"""An occurrence that is found later than this was missed: processes look every few seconds."""

MOST_AT_ONCE = 100
"""Of one job, with ``all``; older ones are given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What is to be done about a job at one moment.

    Args:
        run: these occurrences, the oldest first.
        missed: how many were given up, as far as they were counted (those within the grace).
        missed_since: the first one that was given up, or None when none was.
        next_at: when to look again; None when the job has no further occurrence.
    """

    run: tuple[Occurrence, ...]
    missed: int
    missed_since: datetime | None
    next_at: datetime | None


def find_due(
    schedule: Schedule, *, next_at: datetime, now: datetime, catch_up: CatchUp = "latest", grace_s: float = 3600.0
) -> Due:
    """Decide about every occurrence from ``next_at`` to ``now``.

    Args:
        schedule: of the job.
        next_at: the first occurrence that nobody has decided about.
        now: aware UTC. Before ``next_at``, because the clock was set back, nothing is due.
        catch_up: of missed occurrences ``none`` runs, only the ``latest``, or ``all``.
        grace_s: how late one may still run, in seconds; a punctual one always may.
    """
    if now < next_at:
        return Due(run=(), missed=0, missed_since=None, next_at=next_at)
    lateness = timedelta(seconds=PUNCTUAL_S if catch_up == "none" else max(grace_s, PUNCTUAL_S))
    # What is older than that is not even counted: after a year of downtime that would be half a million.
    begin = max(next_at, now - lateness)
    found: deque[Occurrence] = deque(maxlen=MOST_AT_ONCE)
    count, following = 0, None
    for occurrence in schedule.after(begin - timedelta(minutes=1)):
        if occurrence.at > now:
            following = occurrence.at
            break
        if occurrence.at >= begin:
            found.append(occurrence)
            count += 1
    run = tuple(found) if catch_up == "all" else tuple(found)[-1:]
    given_up = begin > next_at or count > len(run)
    return Due(run=run, missed=count - len(run), missed_since=next_at if given_up else None, next_at=following)
