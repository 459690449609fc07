"""Readings of statement counters on Postgres: one row for each entry that changed; their texts; and who takes them.

Readings form chains as ``sqlite_snapshots`` describes, with the same bounds. What differs is that several transactions
write at once: two readings of one target are saved one after the other, since the later one builds on the earlier,
and dropping keeps all saving out, since what it drops must not be built on meanwhile. Both by advisory locks, the one
of all readings (shared or not) always before that of a target.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from bot.storage.postgres_connection import Connections, Row, Tx, clean
from bot.storage.rows import build_micros, parse_micros
from bot.storage.snapshots import Snapshot, Statement
from bot.storage.sqlite_snapshots import CHAIN_READINGS, CHAIN_WEIGHT

_CHAINS_A_CALL = 10
_AT_ONCE = 250  # entries in one statement: making it ready takes the event loop a few milliseconds
_AFTER_ALL = 2**63 - 1


class PostgresSnapshots:
    """The verbs of ``bot.storage.snapshots.HistoryStore``; what they mean is said there."""

    _db: Connections

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Store a reading."""
        await self._db.run(partial(save_snapshot, snapshot=snapshot))

    async def find_snapshot(
        self, target: str, *, at: datetime, side: Literal["before", "after"], keys: Collection[str] | None = None
    ) -> Snapshot | None:
        """Return the nearest reading on one side of an instant."""
        return await self._db.read(partial(find_snapshot, target=target, at=at, side=side, keys=keys))

    async def list_snapshots(self, target: str, *, start: datetime, end: datetime) -> tuple[datetime, ...]:
        """Return the instants of readings."""
        return await self._db.read(partial(list_snapshots, target=target, start=start, end=end))

    async def drop_snapshots(self, *, before: datetime) -> int:
        """Drop old readings, a few chains a call."""
        return await self._db.run(partial(drop_snapshots, before=before))

    async def save_statements(self, target: str, statements: Sequence[Statement]) -> None:
        """Store the texts of entries."""
        await self._db.run(partial(save_statements, target=target, statements=tuple(statements)))

    async def load_statements(
        self, target: str, *, keys: Collection[str] | None = None, fingerprint: str | None = None
    ) -> tuple[Statement, ...]:
        """Return the texts of entries."""
        return await self._db.read(partial(load_statements, target=target, keys=keys, fingerprint=fingerprint))

    async def list_unknown(self, target: str, *, limit: int) -> tuple[str, ...]:
        """Return the keys of entries without a text."""
        return await self._db.read(partial(list_unknown, target=target, limit=limit))

    async def hold_lease(self, name: str, owner: str, *, lease_s: float, now: datetime) -> str:
        """Take or extend a lease."""
        return await self._db.run(partial(hold_lease, name=name, owner=owner, lease_s=lease_s, now=now))

    async def end_lease(self, name: str, owner: str) -> None:
        """Give a lease back."""
        await self._db.run(partial(end_lease, name=name, owner=owner))


# -- readings --------------------------------------------------------------------------------------


async def _lock_target(tx: Tx, target: str) -> None:
    """Wait until nobody else writes readings or texts of a target, or drops any."""
    await tx.one("SELECT pg_advisory_xact_lock_shared(hashtextextended('hermod:readings', 0))")
    await tx.one("SELECT pg_advisory_xact_lock(hashtextextended('hermod:readings:' || %s::text, 0))", target)


async def save_snapshot(tx: Tx, snapshot: Snapshot) -> None:
    """Store a reading: whole, or what has changed since the one saved before it."""
    await _lock_target(tx, snapshot.target)
    rows = {clean(key): clean(numbers) for key, numbers in snapshot.rows.items()}
    newest = await tx.one("SELECT id, chain FROM snapshot WHERE target = %s ORDER BY id DESC LIMIT 1", snapshot.target)
    chain, before = await _load_chain(tx, None if newest is None else newest["chain"], len(rows))
    (saved,) = await tx.all(
        "INSERT INTO snapshot (target, taken_at, chain, head) VALUES (%s, %s, %s, %s) RETURNING id",
        snapshot.target,
        build_micros(snapshot.taken_at),
        chain or 0,
        snapshot.head,
    )
    if chain is None:
        chain = saved["id"]
        await tx.do("UPDATE snapshot SET chain = id WHERE id = %s", chain)
    changed: list[tuple[str, str | None]] = [(k, v) for k, v in rows.items() if before.get(k) != v]
    changed += [(key, None) for key in before if key not in rows]
    for first in range(0, len(changed), _AT_ONCE):
        await _add_rows(tx, snapshot.target, chain, saved["id"], changed[first : first + _AT_ONCE])


async def _add_rows(tx: Tx, target: str, chain: int, snapshot: int, changed: list[tuple[str, str | None]]) -> None:
    await tx.do(
        "WITH changed AS (SELECT key, numbers FROM unnest(%s::text[], %s::text[]) AS c (key, numbers)),"
        " entry AS (INSERT INTO statement (target, key, chain)"
        " SELECT %s::text, key, %s::bigint FROM changed"
        " ON CONFLICT (target, key) DO UPDATE SET chain = excluded.chain RETURNING id, key)"
        " INSERT INTO snapshot_row (chain, statement, snapshot, numbers)"
        " SELECT %s::bigint, entry.id, %s::bigint, changed.numbers FROM changed JOIN entry USING (key)",
        [key for key, _ in changed],
        [numbers for _, numbers in changed],
        target,
        chain,
        chain,
        snapshot,
    )


async def _load_chain(tx: Tx, chain: int | None, entries: int) -> tuple[int | None, dict[str, str]]:
    """Return the chain that may be continued with its newest state; None when a new one is to begin."""
    if chain is None:
        return None, {}
    (size,) = await tx.all(
        "SELECT (SELECT count(*) FROM snapshot WHERE chain = %s) AS readings,"
        " (SELECT count(*) FROM snapshot_row WHERE chain = %s) AS rows",
        chain,
        chain,
    )
    if size["readings"] >= CHAIN_READINGS or size["rows"] > CHAIN_WEIGHT * max(entries, 1):
        return None, {}
    return chain, await _load_rows(tx, chain, None, None)


async def find_snapshot(
    tx: Tx, target: str, at: datetime, side: Literal["before", "after"], keys: Collection[str] | None
) -> Snapshot | None:
    """Return the target's nearest reading on one side of ``at`` (the very instant counts as before)."""
    condition = (
        "taken_at <= %s ORDER BY taken_at DESC, id DESC" if side == "before" else "taken_at > %s ORDER BY taken_at, id"
    )
    row = await tx.one(f"SELECT * FROM snapshot WHERE target = %s AND {condition} LIMIT 1", target, build_micros(at))
    if row is None:
        return None
    return Snapshot(
        target=target,
        taken_at=parse_micros(row["taken_at"]),
        head=row["head"],
        rows=await _load_rows(tx, row["chain"], row["id"], keys),
    )


async def _load_rows(tx: Tx, chain: int, until: int | None, keys: Collection[str] | None) -> dict[str, str]:
    """Put a reading together: of each entry the newest row, unless that says that it is gone."""
    condition, values = "", list[object]()
    if until is not None:
        condition, values = " AND r.snapshot <= %s", [until]
    if keys is not None:
        condition += " AND s.key = ANY(%s::text[])"
        values.append([clean(key) for key in keys])
    rows = await tx.all(
        "SELECT key, numbers FROM (SELECT DISTINCT ON (r.statement) s.key, r.numbers"
        " FROM snapshot_row r JOIN statement s ON s.id = r.statement"
        f" WHERE r.chain = %s{condition} ORDER BY r.statement, r.snapshot DESC) AS newest WHERE numbers IS NOT NULL",
        chain,
        *values,
    )
    return {row["key"]: row["numbers"] for row in rows}


async def list_snapshots(tx: Tx, target: str, start: datetime, end: datetime) -> tuple[datetime, ...]:
    """Return the instants of the readings in ``start <= t <= end``, in order."""
    rows = await tx.all(
        "SELECT taken_at FROM snapshot WHERE target = %s AND taken_at BETWEEN %s AND %s ORDER BY taken_at",
        target,
        build_micros(start),
        build_micros(end),
    )
    return tuple(parse_micros(row["taken_at"]) for row in rows)


async def drop_snapshots(tx: Tx, before: datetime) -> int:
    """Drop readings taken before an instant, of every target; return how many those were. A few chains a call.

    What later readings build on stays until they go, too; so do the texts of entries that they have.
    """
    instant = build_micros(before)
    if await tx.one("SELECT 1 FROM snapshot WHERE taken_at < %s LIMIT 1", instant) is None:
        return 0  # mostly there is nothing: then nobody who saves has to wait
    await tx.one("SELECT pg_advisory_xact_lock(hashtextextended('hermod:readings', 0))")
    rows = await tx.all("SELECT DISTINCT chain FROM snapshot WHERE taken_at < %s LIMIT %s", instant, _CHAINS_A_CALL)
    chains = [row["chain"] for row in rows]
    dropped = await tx.do("DELETE FROM snapshot WHERE chain = ANY(%s::bigint[]) AND taken_at < %s", chains, instant)
    await tx.do(
        "DELETE FROM snapshot_row WHERE chain = ANY(%s::bigint[])"
        " AND NOT EXISTS (SELECT 1 FROM snapshot s WHERE s.chain = snapshot_row.chain)",
        chains,
    )
    if dropped:
        # Chains are numbered in the order of their making, so nothing that is left has an entry of before all of them.
        await tx.do(
            "DELETE FROM statement USING (SELECT t.target, coalesce(min(s.chain), %s::bigint) AS first"
            " FROM (SELECT DISTINCT target FROM statement) t LEFT JOIN snapshot s USING (target) GROUP BY t.target)"
            " AS kept WHERE statement.target = kept.target AND statement.chain < kept.first",
            _AFTER_ALL,
        )
    return dropped


# -- texts -----------------------------------------------------------------------------------------


async def save_statements(tx: Tx, target: str, statements: Sequence[Statement]) -> None:
    """Store what is known of entries that readings have; others are passed over."""
    await _lock_target(tx, target)
    for first in range(0, len(statements), _AT_ONCE):
        await _update_texts(tx, target, statements[first : first + _AT_ONCE])


async def _update_texts(tx: Tx, target: str, statements: Sequence[Statement]) -> None:
    known = {clean(one.key): one for one in statements}.items()
    await tx.do(
        "UPDATE statement SET fingerprint = known.fingerprint, sql = known.sql, db = known.db, account = known.account,"
        " own = known.own FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::boolean[])"
        " AS known (key, fingerprint, sql, db, account, own)"
        " WHERE statement.target = %s AND statement.key = known.key",
        [key for key, _ in known],
        [clean(one.fingerprint) for _, one in known],
        [clean(one.sql) for _, one in known],
        [clean(one.db) for _, one in known],
        [clean(one.user) for _, one in known],
        [one.own for _, one in known],
        target,
    )


async def load_statements(
    tx: Tx, target: str, keys: Collection[str] | None, fingerprint: str | None
) -> tuple[Statement, ...]:
    """Return what is known of a target's entries."""
    condition, values = "", list[object]()
    if fingerprint is not None:
        condition, values = " AND fingerprint = %s", [fingerprint]
    if keys is not None:
        condition += " AND key = ANY(%s::text[])"
        values.append([clean(key) for key in keys])
    rows = await tx.all(
        f"SELECT * FROM statement WHERE target = %s AND fingerprint IS NOT NULL{condition} ORDER BY id", target, *values
    )
    return tuple(map(_parse_statement, rows))


async def list_unknown(tx: Tx, target: str, limit: int) -> tuple[str, ...]:
    """Return keys of the newest chain whose texts are not stored, the newest entries first."""
    rows = await tx.all(
        "SELECT s.key FROM statement s WHERE s.target = %s AND s.fingerprint IS NULL"
        " AND s.chain = (SELECT chain FROM snapshot WHERE target = %s ORDER BY id DESC LIMIT 1)"
        " ORDER BY s.id DESC LIMIT %s",
        target,
        target,
        limit,
    )
    return tuple(row["key"] for row in rows)


def _parse_statement(row: Row) -> Statement:
    return Statement(
        key=row["key"],
        fingerprint=row["fingerprint"],
        sql=row["sql"],
        db=row["db"],
        user=row["account"],
        own=row["own"],
    )


# -- leases ----------------------------------------------------------------------------------------


async def hold_lease(tx: Tx, name: str, owner: str, lease_s: float, now: datetime) -> str:
    """Take or extend a lease that is free, over, or ours; return who holds it now."""
    await tx.do(
        "INSERT INTO lease (name, owner, lease_until) VALUES (%s, %s, %s) ON CONFLICT (name) DO UPDATE"
        " SET owner = excluded.owner, lease_until = excluded.lease_until"
        " WHERE lease.owner = excluded.owner OR lease.lease_until <= %s",
        name,
        owner,
        build_micros(now + timedelta(seconds=lease_s)),
        build_micros(now),
    )
    (row,) = await tx.all("SELECT owner FROM lease WHERE name = %s", name)  # the row is locked, ours or not
    holder: str = row["owner"]
    return holder


async def end_lease(tx: Tx, name: str, owner: str) -> None:
    """End a lease, if it is the owner's."""
    await tx.do("DELETE FROM lease WHERE name = %s AND owner = %s", name, owner)
