"""Single executions: those that are over (the server keeps the last thousands) and those that still run.

events_statements_history_long is a ring over all sessions; what fell out of it is not known. See
https://dev.mysql.com/doc/refman/8.4/en/performance-schema-events-statements-history-long-table.html and
https://mariadb.com/kb/en/performance-schema-events_statements_history_long-table/.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bot.tools.mysql.connection import OWN_MARK, MySqlReadOnly, Row
from bot.tools.mysql.digests import PICO, make_key
from bot.tools.slow_queries.counters import StatementKey

_TEXT_CHARS = 8_000

# Our own running statement began at NOW(6) on the wall clock and at TIMER_START on the clock of the events.
_CLOCK = f"""SELECT {OWN_MARK} e.TIMER_START AS ticks, UNIX_TIMESTAMP(NOW(6)) AS now
FROM performance_schema.events_statements_current e
  JOIN performance_schema.threads t ON t.THREAD_ID = e.THREAD_ID
WHERE t.PROCESSLIST_ID = CONNECTION_ID() AND e.NESTING_EVENT_ID IS NULL"""

_SAMPLES = f"""SELECT {OWN_MARK} CURRENT_SCHEMA AS schema_name, DIGEST AS digest, COUNT(*) AS calls,
  SUM(TIMER_WAIT) AS total, MAX(TIMER_WAIT) AS longest, SUM(POW(TIMER_WAIT / 1e12, 2)) AS squares
FROM performance_schema.events_statements_history_long
WHERE DIGEST IS NOT NULL AND TIMER_END > %s AND TIMER_END <= %s AND TIMER_WAIT >= %s
GROUP BY CURRENT_SCHEMA, DIGEST"""

_OLDEST = f"""SELECT {OWN_MARK} MIN(TIMER_END) AS ticks, COUNT(*) AS kept
FROM performance_schema.events_statements_history_long WHERE TIMER_END > 0"""

_RUNNING = f"""SELECT {OWN_MARK} t.PROCESSLIST_ID AS id, t.PROCESSLIST_USER AS account, t.PROCESSLIST_DB AS db,
  LEFT(t.PROCESSLIST_INFO, {_TEXT_CHARS}) AS text, t.PROCESSLIST_TIME AS seconds,
  (SELECT MAX(e.TIMER_WAIT) FROM performance_schema.events_statements_current e
   WHERE e.THREAD_ID = t.THREAD_ID AND e.END_EVENT_ID IS NULL AND e.NESTING_EVENT_ID IS NULL) AS waited
FROM performance_schema.threads t
WHERE t.TYPE = 'FOREGROUND' AND t.PROCESSLIST_COMMAND IN ('Query', 'Execute') AND t.PROCESSLIST_INFO IS NOT NULL
  AND t.PROCESSLIST_ID <> CONNECTION_ID() AND t.PROCESSLIST_INFO NOT LIKE '%%{OWN_MARK}%%'
  AND t.PROCESSLIST_TIME >= %s
ORDER BY t.PROCESSLIST_TIME DESC LIMIT %s"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Some executions of one shape, each of them known. Times in seconds."""

    calls: int
    total_s: float
    mean_s: float
    stddev_s: float
    max_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventClock:
    """Translates between the wall clock of the server and the clock of its events (picoseconds)."""

    ticks: int
    at: datetime

    def to_ticks(self, instant: datetime) -> int:
        """The event clock at an instant of the server's wall clock; not before its zero."""
        return max(0, self.ticks + round((instant - self.at).total_seconds() * PICO))

    def to_instant(self, ticks: int) -> datetime:
        """The server's wall clock at an instant of the event clock."""
        return datetime.fromtimestamp(self.at.timestamp() + (ticks - self.ticks) / PICO, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStatement:
    """One execution that still goes on; ``sql`` is the raw text, for the redactor only."""

    connection_id: int
    user: str
    db: str
    age_s: float
    sql: str = field(repr=False)


async def fetch_clock(db: MySqlReadOnly) -> EventClock | None:
    """Read both clocks at one instant; None where the server does not watch this session."""
    row = await db.fetch_one(_CLOCK)
    if row is None or row["ticks"] is None:
        return None
    return EventClock(ticks=int(str(row["ticks"])), at=datetime.fromtimestamp(float(str(row["now"])), UTC))


async def fetch_samples(
    db: MySqlReadOnly, clock: EventClock, *, start: datetime, end: datetime, least_s: float = 0.0
) -> dict[StatementKey, Sample]:
    """Sum up the kept executions that ended in a range of the server's wall clock and took ``least_s`` or more."""
    bounds = [clock.to_ticks(start), clock.to_ticks(end), round(least_s * PICO)]
    samples: dict[StatementKey, Sample] = {}
    for row in await db.fetch(_SAMPLES, bounds):
        schema = row["schema_name"]
        samples[make_key(None if schema is None else str(schema), str(row["digest"]))] = _read_sample(row)
    return samples


async def fetch_ring_start(db: MySqlReadOnly, clock: EventClock, *, size: int) -> datetime | None:
    """When the oldest kept execution ended, on the server's clock; None while none was dropped for want of room."""
    row = await db.fetch_one(_OLDEST)
    if row is None or row["ticks"] is None or int(str(row["kept"])) < size:
        return None
    return clock.to_instant(int(str(row["ticks"])))


async def fetch_running(db: MySqlReadOnly, *, threshold_s: float, limit: int) -> tuple[RunningStatement, ...]:
    """List what runs at this moment for ``threshold_s`` or longer, longest first.

    Without events_statements_current the age is in whole seconds.
    """
    # The whole seconds may be one less than the true age.
    rows = await db.fetch(_RUNNING, [max(0, math.floor(threshold_s) - 1), limit])
    running = [
        RunningStatement(
            connection_id=int(str(row["id"])),
            user=str(row["account"] or ""),
            db=str(row["db"] or ""),
            age_s=float(str(row["seconds"] or 0)) if row["waited"] is None else int(str(row["waited"])) / PICO,
            sql=str(row["text"]),
        )
        for row in rows
    ]
    over = [statement for statement in running if statement.age_s >= threshold_s]
    return tuple(sorted(over, key=lambda statement: statement.age_s, reverse=True))


def is_whole(sample: Sample | None, calls: int, total_s: float) -> bool:
    """True when the kept executions are all that the counters counted, so that their statistics are exact."""
    return sample is not None and sample.calls == calls and math.isclose(sample.total_s, total_s, rel_tol=1e-6)


def _read_sample(row: Mapping[str, object] | Row) -> Sample:
    calls, total_s = int(str(row["calls"])), float(str(row["total"])) / PICO
    mean_s = total_s / calls
    variance = float(str(row["squares"])) / calls - mean_s**2
    return Sample(
        calls=calls,
        total_s=total_s,
        mean_s=mean_s,
        stddev_s=math.sqrt(max(0.0, variance)),
        max_s=float(str(row["longest"])) / PICO,
    )
