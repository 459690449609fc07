"""The cumulative counters of pg_stat_statements at one instant, and their form in the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from bot.storage.snapshots import Snapshot

_FORMAT = 3


class StatementKey(NamedTuple):
    """What identifies an entry: ``queryid`` alone is shared by users, databases and nesting levels."""

    userid: int
    dbid: int
    toplevel: bool
    queryid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """One entry's numbers since it was made. Times in seconds, ``since`` on the server's clock or unknown.

    Blocks are those of shared buffers (found there, read from below) and of temporary files (written); ``read_s`` is
    the time of reading, 0 while ``track_io_timing`` is off. ``wal_bytes``: of write-ahead log.
    """

    calls: int
    total_s: float
    mean_s: float
    stddev_s: float
    max_s: float
    rows: int = 0
    temp_blocks: int = 0
    hit_blocks: int = 0
    read_blocks: int = 0
    read_s: float = 0.0
    wal_bytes: int = 0
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


def write_key(key: StatementKey) -> str:
    """Write a key as the store has it."""
    return f"{key.userid}/{key.dbid}/{int(key.toplevel)}/{key.queryid}"


def parse_key(text: str) -> StatementKey:
    """Read what ``write_key`` wrote.

    Raises:
        ValueError: it is something else.
    """
    userid, dbid, toplevel, queryid = map(int, text.split("/"))
    return StatementKey(userid, dbid, bool(toplevel), queryid)


def build_snapshot(target: str, counters: Counters) -> Snapshot:
    """Write counters as the store has them: a text for the whole, and one for each entry's numbers."""
    head = {
        "v": _FORMAT,
        "now": counters.server_now.timestamp(),
        "started": counters.server_started_at.timestamp(),
        "reset": None if counters.reset_at is None else counters.reset_at.timestamp(),
        "evicted": counters.evicted,
        "system": counters.system_id,
        "hidden": counters.hidden,
    }
    return Snapshot(
        target=target,
        taken_at=counters.taken_at,
        head=_dump(head),
        rows={write_key(key): _dump(_list_numbers(c)) for key, c in counters.entries.items()},
    )


def read_snapshot(snapshot: Snapshot) -> Counters | None:
    """Read what ``build_snapshot`` wrote; None when it is damaged or from another version of this form."""
    try:
        head = json.loads(snapshot.head)
        if head["v"] != _FORMAT:
            return None
        return Counters(
            taken_at=snapshot.taken_at,
            server_now=_instant(head["now"]),
            server_started_at=_instant(head["started"]),
            reset_at=None if head["reset"] is None else _instant(head["reset"]),
            evicted=head["evicted"],
            system_id=head["system"],
            hidden=head["hidden"],
            entries={parse_key(key): _read_counter(numbers) for key, numbers in snapshot.rows.items()},
        )
    except (ValueError, KeyError, TypeError):
        return None


def _list_numbers(c: Counter) -> list[float]:
    numbers = [c.calls, c.total_s, c.mean_s, c.stddev_s, c.max_s, c.rows]
    numbers += [c.temp_blocks, c.hit_blocks, c.read_blocks, c.read_s, c.wal_bytes]
    return numbers if c.since is None else [*numbers, c.since]


def _read_counter(text: str) -> Counter:
    calls, total, mean, stddev, largest, rows, temp, hit, read, read_s, wal, *since = json.loads(text)
    return Counter(
        calls=calls,
        total_s=total,
        mean_s=mean,
        stddev_s=stddev,
        max_s=largest,
        rows=rows,
        temp_blocks=temp,
        hit_blocks=hit,
        read_blocks=read,
        read_s=read_s,
        wal_bytes=wal,
        since=since[0] if since else None,
    )


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
