"""The cumulative counters of pg_stat_statements at one instant, and their form in the store."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

_FORMAT = 1
_LARGEST_BYTES = 64 * 1024 * 1024


class StatementKey(NamedTuple):
    """What identifies an entry: ``queryid`` alone is shared by users, databases and nesting levels."""

    userid: int
    dbid: int
    toplevel: bool
    queryid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """One entry's numbers since it was made. Times in seconds, ``since`` on the server's clock or unknown."""

    calls: int
    total_s: float
    mean_s: float
    stddev_s: float
    max_s: float
    rows: int = 0
    temp_blocks: int = 0
    since: float | None = None


ZERO = Counter(calls=0, total_s=0.0, mean_s=0.0, stddev_s=0.0, max_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """All entries of one server at one instant.

    Args:
        taken_at: on our clock, aware UTC.
        server_now: the same instant on the server's clock; everything below is on that clock.
        server_started_at: start of the postmaster.
        reset_at: when all counters began at zero; None where the extension does not tell (before 1.9).
        evicted: how often the server threw entries out for want of room, in total; None as above.
        system_id: the cluster's identity; empty when it is not known.
        entries: by key.
        hidden: entries that this role may not see.
    """

    taken_at: datetime
    server_now: datetime
    server_started_at: datetime
    reset_at: datetime | None
    evicted: int | None
    system_id: str
    entries: Mapping[StatementKey, Counter] = field(repr=False)
    hidden: int = 0

    def to_our_clock(self, instant: datetime) -> datetime:
        """Translate an instant of the server's clock into ours."""
        return self.taken_at - (self.server_now - instant)


def dump_counters(counters: Counters) -> str:
    """Write counters as text for ``Snapshot.payload``: compressed JSON, about 30 characters an entry."""
    head = {
        "v": _FORMAT,
        "now": counters.server_now.timestamp(),
        "started": counters.server_started_at.timestamp(),
        "reset": None if counters.reset_at is None else counters.reset_at.timestamp(),
        "evicted": counters.evicted,
        "system": counters.system_id,
        "hidden": counters.hidden,
        "entries": [
            [*key, c.calls, c.total_s, c.mean_s, c.stddev_s, c.max_s, c.rows, c.temp_blocks, c.since]
            for key, c in counters.entries.items()
        ],
    }
    return base64.b85encode(zlib.compress(json.dumps(head, separators=(",", ":")).encode(), 6)).decode()


def load_counters(payload: str, *, taken_at: datetime) -> Counters | None:
    """Read what ``dump_counters`` wrote; None when it is damaged or from another version of this format."""
    try:
        inflater = zlib.decompressobj()
        head = json.loads(inflater.decompress(base64.b85decode(payload), _LARGEST_BYTES))
        if head["v"] != _FORMAT:
            return None
        return Counters(
            taken_at=taken_at,
            server_now=_instant(head["now"]),
            server_started_at=_instant(head["started"]),
            reset_at=None if head["reset"] is None else _instant(head["reset"]),
            evicted=head["evicted"],
            system_id=head["system"],
            hidden=head["hidden"],
            entries={
                StatementKey(userid, dbid, toplevel, queryid): Counter(
                    calls=calls,
                    total_s=total,
                    mean_s=mean,
                    stddev_s=stddev,
                    max_s=largest,
                    rows=rows,
                    temp_blocks=temp,
                    since=since,
                )
                for userid, dbid, toplevel, queryid, calls, total, mean, stddev, largest, rows, temp, since in head[
                    "entries"
                ]
            },
        )
    except (ValueError, KeyError, TypeError, zlib.error):
        return None


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
