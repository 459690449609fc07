"""Readings of statement counters, one row for each entry that changed; their texts; and who takes them.

Readings of a target form chains. The first of a chain is whole: it has a row for every entry. Those that build on it
have rows only for entries that are new, changed, or gone (a row without numbers) since the reading that was *saved*
before them, whatever instants the two are of, so a reading that arrives late does no harm. A reading is put together
from the newest row of each entry in its chain.

A chain ends after ``CHAIN_READINGS`` readings (an hour of minutes), or as soon as it has more than ``CHAIN_WEIGHT``
rows for each entry: putting a reading together reads no more than that, dropping what is old is dropping whole
chains, and a whole reading an hour adds at most a sixtieth of what storing each one whole would take.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from bot.storage.rows import build_micros, parse_micros
from bot.storage.snapshots import Snapshot, Statement
from bot.storage.sqlite_connection import Reader, Tx, Writer

CHAIN_READINGS = 60
CHAIN_WEIGHT = 4

_MOST_NAMED = 500  # more keys than this are picked out of the whole reading
_CHAINS_A_CALL = 10
_AFTER_ALL = 2**63 - 1


class SqliteSnapshots:
    """The verbs of ``bot.storage.snapshots.HistoryStore``; what they mean is said there."""

    _writer: Writer
    _reader: Reader

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Store a reading."""
        await self._writer.run(partial(save_snapshot, snapshot=snapshot))

    async def find_snapshot(
        self, target: str, *, at: datetime, side: Literal["before", "after"], keys: Collection[str] | None = None
    ) -> Snapshot | None:
        """Return the nearest reading on one side of an instant."""
        return await self._reader.run(partial(find_snapshot, target=target, at=at, side=side, keys=keys))

    async def list_snapshots(self, target: str, *, start: datetime, end: datetime) -> tuple[datetime, ...]:
        """Return the instants of readings."""
        return await self._reader.run(partial(list_snapshots, target=target, start=start, end=end))

    async def drop_snapshots(self, *, before: datetime) -> int:
        """Drop old readings, a few chains a call."""
        return await self._writer.run(partial(drop_snapshots, before=before))

    async def save_statements(self, target: str, statements: Sequence[Statement]) -> None:
        """Store the texts of entries."""
        await self._writer.run(partial(save_statements, target=target, statements=tuple(statements)))

    async def load_statements(
        self, target: str, *, keys: Collection[str] | None = None, fingerprint: str | None = None
    ) -> tuple[Statement, ...]:
        """Return the texts of entries."""
        return await self._reader.run(partial(load_statements, target=target, keys=keys, fingerprint=fingerprint))

    async def list_unknown(self, target: str, *, limit: int) -> tuple[str, ...]:
        """Return the keys of entries without a text."""
        return await self._reader.run(partial(list_unknown, target=target, limit=limit))

    async def hold_lease(self, name: str, owner: str, *, lease_s: float, now: datetime) -> str:
        """Take or extend a lease."""
        return await self._writer.run(partial(hold_lease, name=name, owner=owner, lease_s=lease_s, now=now))

    async def end_lease(self, name: str, owner: str) -> None:
        """Give a lease back."""
        await self._writer.run(partial(end_lease, name=name, owner=owner))


# -- readings --------------------------------------------------------------------------------------


def save_snapshot(tx: Tx, snapshot: Snapshot) -> None:
    """Store a reading: whole, or what has changed since the one saved before it."""
    newest = tx.one("SELECT id, chain FROM snapshot WHERE target = ? ORDER BY id DESC LIMIT 1", snapshot.target)
    chain, before = _load_chain(tx, None if newest is None else newest["chain"], len(snapshot.rows))
    (saved,) = tx.all(
        "INSERT INTO snapshot (target, taken_at, chain, head) VALUES (?, ?, ?, ?) RETURNING id",
        snapshot.target,
        build_micros(snapshot.taken_at),
        chain or 0,
        snapshot.head,
    )
    if chain is None:
        chain = saved["id"]
        tx.do("UPDATE snapshot SET chain = id WHERE id = ?", chain)
    changed: dict[str, str | None] = {k: v for k, v in snapshot.rows.items() if before.get(k) != v}
    changed |= {key: None for key in before if key not in snapshot.rows}
    for key, numbers in changed.items():
        (statement,) = tx.all(
            "INSERT INTO statement (target, key, chain) VALUES (?, ?, ?)"
            " ON CONFLICT (target, key) DO UPDATE SET chain = excluded.chain RETURNING id",
            snapshot.target,
            key,
            chain,
        )
        tx.do(
            "INSERT INTO snapshot_row (chain, statement, snapshot, numbers) VALUES (?, ?, ?, ?)",
            chain,
            statement["id"],
            saved["id"],
            numbers,
        )


def _load_chain(tx: Tx, chain: int | None, entries: int) -> tuple[int | None, dict[str, str]]:
    """Return the chain that may be continued with its newest state; None when a new one is to begin."""
    if chain is None:
        return None, {}
    size = tx.one(
        "SELECT (SELECT count(*) FROM snapshot WHERE chain = ?) AS readings,"
        " (SELECT count(*) FROM snapshot_row WHERE chain = ?) AS rows",
        chain,
        chain,
    )
    if size is None or size["readings"] >= CHAIN_READINGS or size["rows"] > CHAIN_WEIGHT * max(entries, 1):
        return None, {}
    return chain, _load_rows(tx, chain, None, None)


def find_snapshot(
    tx: Tx, target: str, at: datetime, side: Literal["before", "after"], keys: Collection[str] | None
) -> Snapshot | None:
    """Return the target's nearest reading on one side of ``at`` (the very instant counts as before)."""
    condition = (
        "taken_at <= ? ORDER BY taken_at DESC, id DESC" if side == "before" else "taken_at > ? ORDER BY taken_at"
    )
    row = tx.one(f"SELECT * FROM snapshot WHERE target = ? AND {condition} LIMIT 1", target, build_micros(at))
    if row is None:
        return None
    return Snapshot(
        target=target,
        taken_at=parse_micros(row["taken_at"]),
        head=row["head"],
        rows=_load_rows(tx, row["chain"], row["id"], keys),
    )


def _load_rows(tx: Tx, chain: int, until: int | None, keys: Collection[str] | None) -> dict[str, str]:
    """Put a reading together: of each entry the newest row, unless that says that it is gone."""
    condition, values = "", list[object]()
    if until is not None:
        condition, values = " AND r.snapshot <= ?", [until]
    if keys is not None and len(keys) <= _MOST_NAMED:
        condition += f" AND s.key IN ({', '.join('?' * len(keys))})"
        values += keys
    newest: dict[str, str | None] = {
        row["key"]: row["numbers"]
        for row in tx.all(
            "SELECT s.key, r.numbers FROM snapshot_row r JOIN statement s ON s.id = r.statement"
            f" WHERE r.chain = ?{condition} ORDER BY r.statement, r.snapshot",
            chain,
            *values,
        )
    }
    return {key: numbers for key, numbers in newest.items() if numbers is not None and (keys is None or key in keys)}


def list_snapshots(tx: Tx, target: str, start: datetime, end: datetime) -> tuple[datetime, ...]:
    """Return the instants of the readings in ``start <= t <= end``, in order."""
    rows = tx.all(
        "SELECT taken_at FROM snapshot WHERE target = ? AND taken_at BETWEEN ? AND ? ORDER BY taken_at",
        target,
        build_micros(start),
        build_micros(end),
    )
    return tuple(parse_micros(row["taken_at"]) for row in rows)


def drop_snapshots(tx: Tx, before: datetime) -> int:
    """Drop readings taken before an instant, of every target; return how many those were. A few chains a call.

    What later readings build on stays until they go, too; so do the texts of entries that they have.
    """
    instant, dropped = build_micros(before), 0
    chains = tx.all("SELECT DISTINCT chain FROM snapshot WHERE taken_at < ? LIMIT ?", instant, _CHAINS_A_CALL)
    for (chain,) in chains:
        dropped += tx.do("DELETE FROM snapshot WHERE chain = ? AND taken_at < ?", chain, instant)
        if tx.one("SELECT 1 FROM snapshot WHERE chain = ? LIMIT 1", chain) is None:
            tx.do("DELETE FROM snapshot_row WHERE chain = ?", chain)
    if dropped:
        # Chains are numbered in the order of their making, so nothing that is left has an entry of before all of them.
        tx.do(
            "DELETE FROM statement WHERE chain < coalesce("
            "(SELECT min(chain) FROM snapshot WHERE snapshot.target = statement.target), ?)",
            _AFTER_ALL,
        )
    return dropped


# -- texts -----------------------------------------------------------------------------------------


def save_statements(tx: Tx, target: str, statements: Sequence[Statement]) -> None:
    """Store what is known of entries that readings have; others are passed over."""
    for one in statements:
        tx.do(
            "UPDATE statement SET fingerprint = ?, sql = ?, db = ?, account = ?, own = ? WHERE target = ? AND key = ?",
            one.fingerprint,
            one.sql,
            one.db,
            one.user,
            one.own,
            target,
            one.key,
        )


def load_statements(
    tx: Tx, target: str, keys: Collection[str] | None, fingerprint: str | None
) -> tuple[Statement, ...]:
    """Return what is known of a target's entries."""
    condition, values = "", list[object]()
    if fingerprint is not None:
        condition, values = " AND fingerprint = ?", [fingerprint]
    if keys is not None and len(keys) <= _MOST_NAMED:
        condition += f" AND key IN ({', '.join('?' * len(keys))})"
        values += keys
    rows = tx.all(
        f"SELECT * FROM statement WHERE target = ? AND fingerprint IS NOT NULL{condition} ORDER BY id", target, *values
    )
    return tuple(_parse_statement(row) for row in rows if keys is None or row["key"] in keys)


def list_unknown(tx: Tx, target: str, limit: int) -> tuple[str, ...]:
    """Return keys of the newest chain whose texts are not stored, the newest entries first."""
    rows = tx.all(
        "SELECT s.key FROM statement s WHERE s.target = ? AND s.fingerprint IS NULL"
        " AND s.chain = (SELECT chain FROM snapshot WHERE target = ? ORDER BY id DESC LIMIT 1)"
        " ORDER BY s.id DESC LIMIT ?",
        target,
        target,
        limit,
    )
    return tuple(row["key"] for row in rows)


def _parse_statement(row: sqlite3.Row) -> Statement:
    return Statement(
        key=row["key"],
        fingerprint=row["fingerprint"],
        sql=row["sql"],
        db=row["db"],
        user=row["account"],
        own=bool(row["own"]),
    )


# -- leases ----------------------------------------------------------------------------------------


def hold_lease(tx: Tx, name: str, owner: str, lease_s: float, now: datetime) -> str:
    """Take or extend a lease that is free, over, or ours; return who holds it now."""
    tx.do(
        "INSERT INTO lease (name, owner, lease_until) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
        " SET owner = excluded.owner, lease_until = excluded.lease_until"
        " WHERE lease.owner = excluded.owner OR lease.lease_until <= ?",
        name,
        owner,
        build_micros(now + timedelta(seconds=lease_s)),
        build_micros(now),
    )
    row = tx.one("SELECT owner FROM lease WHERE name = ?", name)
    if row is None:
        raise LookupError("a lease that was just written is there")
    holder: str = row["owner"]
    return holder


def end_lease(tx: Tx, name: str, owner: str) -> None:
    """End a lease, if it is the owner's."""
    tx.do("DELETE FROM lease WHERE name = ? AND owner = ?", name, owner)
