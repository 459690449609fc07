"""The part of the Store protocol that keeps readings of statement counters. ``base.Store`` has it, with the same rules.

What the entries' keys and numbers mean is the tools' business; here they are texts, so that the counters of any
database fit. Whether all rows of a reading are stored, or only those that changed, does not show.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A database's cumulative statement counters at one instant.

    ``head``: what is said of the whole reading. ``rows``: the numbers of every entry, by its key.
    """

    target: str
    taken_at: datetime
    head: str
    rows: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What is known of an entry beside its numbers.

    ``sql`` has neither literals nor comments. ``db`` and ``user`` are names. ``own``: a statement of Hermod's.
    """

    key: str
    fingerprint: str
    sql: str
    db: str
    user: str
    own: bool


class HistoryStore(Protocol):
    """The verbs for readings, texts, and the leases of those who take them."""

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Store a reading. Entries that stand with the same numbers in the one before take no room."""
        ...

    async def find_snapshot(
        self, target: str, *, at: datetime, side: Literal["before", "after"], keys: Collection[str] | None = None
    ) -> Snapshot | None:
        """The newest reading taken at or before ``at``, or the oldest one taken after it; whole, or only ``keys``."""
        ...

    async def list_snapshots(self, target: str, *, start: datetime, end: datetime) -> tuple[datetime, ...]:
        """The instants of the target's readings in ``start <= t <= end``, in order."""
        ...

    async def drop_snapshots(self, *, before: datetime) -> int:
        """Drop readings of all targets that were taken before an instant, with the texts that nothing needs any more.

        A part of them, so that other writing goes on; call it until it returns 0.

        Returns:
            How many went.
        """
        ...

    async def save_statements(self, target: str, statements: Sequence[Statement]) -> None:
        """Store what is known of entries that the target's readings have; others are passed over."""
        ...

    async def load_statements(
        self, target: str, *, keys: Collection[str] | None = None, fingerprint: str | None = None
    ) -> tuple[Statement, ...]:
        """What is known of the target's entries: all, those of ``keys``, or those of one shape."""
        ...

    async def list_unknown(self, target: str, *, limit: int) -> tuple[str, ...]:
        """Keys of entries that stand in the target's newest readings and of which nothing is known, newest first."""
        ...

    async def hold_lease(self, name: str, owner: str, *, lease_s: float, now: datetime) -> str:
        """Take or extend the lease ``name``, when it is free, over, or already ours.

        Returns:
            The owner who holds it now.
        """
        ...

    async def end_lease(self, name: str, owner: str) -> None:
        """Give a lease back; quietly does nothing when it is not ours."""
        ...
