"""Threads: what comes in, who may work on it, and what waits to be posted. Functions inside a transaction.

Every verb that changes something of a thread locks the thread's row before anything else. So the verbs of a thread come
one after the other as on SQLite, and each of their statements sees what the one before left.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from bot.storage.base import (
    Accepted,
    Claim,
    Fenced,
    InboxItem,
    NewInboxItem,
    NewOutboxItem,
    OutboxItem,
    OutboxState,
    StoreError,
)
from bot.storage.postgres_connection import Row, Tx
from bot.storage.postgres_rows import build_key_filter
from bot.storage.rows import build_micros, parse_inbox, parse_micros, parse_outbox, parse_run

_FREE = "(owner IS NULL OR lease_until <= %s)"
_UNDELIVERED = "state IN ('pending', 'sending')"
_FIRST_DUE = f"SELECT next_at FROM outbox WHERE thread_key = %s AND {_UNDELIVERED} ORDER BY id LIMIT 1"
_CANDIDATES = 16
PAST_TRIES = 3
"""How often it is tried to read what was said in a thread before Hermod came."""
NO_LIMIT = 2**31
"""Of the queue, for what is not a question."""
LOCKED = "locked AS (SELECT FROM thread WHERE thread_key = %s FOR NO KEY UPDATE)"
"""Within a WITH: a thread's row, locked, where there is one. The statement itself sees what was there before."""
_COUNT = (
    "ON CONFLICT (thread_key) DO UPDATE SET last_at = greatest(thread.last_at, excluded.last_at),"
    " last_seq = thread.last_seq + 1, open_since = coalesce(thread.open_since, excluded.open_since),"
    " past_left = CASE WHEN excluded.past_left > 0 AND thread.last_seq = 0 AND thread.opened_from IS NULL"
    " THEN excluded.past_left ELSE thread.past_left END"
)


async def lock_thread(tx: Tx, thread_key: str) -> Row | None:
    """Lock a thread's row until the end of the transaction and return it; None when nothing knows the thread."""
    return await tx.one("SELECT * FROM thread WHERE thread_key = %s FOR NO KEY UPDATE", thread_key)


async def check_claim(tx: Tx, claim: Claim) -> Row:
    """Lock the thread's row and return it; raises ``Fenced`` unless the claim still stands.

    A lease that ran out but was taken by nobody still stands: what counts is that no other epoch began.
    """
    row = await lock_thread(tx, claim.thread_key)
    if row is None or row["owner"] != claim.owner or row["epoch"] != claim.epoch:
        raise Fenced(
            f"{claim.owner} no longer holds {claim.thread_key} (its epoch was {claim.epoch}); stop without any effect"
        )
    return row


async def ensure_thread(tx: Tx, thread_key: str, at: int) -> None:
    """Make the thread's row, or note that something happened there at ``at``; it is locked either way."""
    await tx.do(
        "INSERT INTO thread (thread_key, last_at) VALUES (%s, %s)"
        " ON CONFLICT (thread_key) DO UPDATE SET last_at = greatest(thread.last_at, excluded.last_at)",
        thread_key,
        at,
    )


# -- what comes in ---------------------------------------------------------------------------------


async def accept(tx: Tx, item: NewInboxItem, queue_limit: int, refusal: NewOutboxItem | None) -> Accepted:
    """Store an item once per event key; see ``Store.accept``.

    Twins that come at the same moment both pass the first look; the second one then fails at the unique key, and the
    transaction that is tried again finds the first. So do two that both begin a thread.
    """
    (look,) = await tx.all(
        f"WITH {LOCKED} SELECT (SELECT seq FROM inbox WHERE event_key = %s) AS seq,"
        " EXISTS (SELECT FROM locked) AS locked",
        item.thread_key,
        item.event_key,
    )
    if look["seq"] is not None:
        return Accepted(outcome="duplicate", seq=look["seq"])
    added = await add_inbox(tx, item, locked=look["locked"], queue_limit=queue_limit)
    if added is None:
        return Accepted(outcome="duplicate", seq=0)
    full = added["state"] == "refused"
    if full and refusal is not None:
        await add_outbox(tx, refusal)
    # A NOTIFY here, and a LISTEN in the dispatcher, would spare the other processes their look every second.
    return Accepted(outcome="full" if full else "new", seq=added["seq"])


async def add_inbox(
    tx: Tx, item: NewInboxItem, *, locked: bool, queue_limit: int = NO_LIMIT, job_id: str = ""
) -> Row | None:
    """Add an item whose key is new, and return its row; None when its message was deleted on the platform.

    One statement, which sees what there is in the thread when the thread is locked.

    Args:
        locked: whether this transaction has locked the thread's row. Otherwise there was none, and it is made; a
            transaction that is too late with that fails, and is tried again.
    """
    at = build_micros(item.received_at)
    return await tx.one(
        "WITH look AS (SELECT (SELECT count(*) FROM"
        " (SELECT FROM inbox WHERE thread_key = %s AND state = 'open' LIMIT %s) AS waiting) >= %s AS full_up"
        " WHERE NOT EXISTS (SELECT FROM erased WHERE thread_key = %s AND said_id = %s AND said_id <> '')),"
        " counted AS (INSERT INTO thread (thread_key, last_at, last_seq, past_left, open_since)"
        " SELECT %s, %s, 1, %s, CASE WHEN full_up THEN NULL ELSE %s::bigint END FROM look"
        f" {_COUNT if locked else ''} RETURNING last_seq)"
        " INSERT INTO inbox (event_key, thread_key, seq, kind, payload, received_at, said_id, job_id, state)"
        " SELECT %s, %s, last_seq, %s, %s, %s, %s, %s, CASE WHEN full_up THEN 'refused' ELSE 'open' END"
        " FROM counted, look RETURNING id, seq, state",
        item.thread_key,
        max(queue_limit, 0) if queue_limit < NO_LIMIT else 0,
        queue_limit,
        item.thread_key,
        item.said_id,
        item.thread_key,
        at,
        PAST_TRIES if item.inside else 0,
        at,
        item.event_key,
        item.thread_key,
        item.kind,
        item.payload,
        at,
        item.said_id,
        job_id,
    )


async def knows_thread(tx: Tx, thread_key: str) -> bool:
    """Tell whether an inbox row was ever stored for the thread (a mere notice does not count), or it was opened."""
    row = await tx.one(
        "SELECT 1 FROM thread WHERE thread_key = %s AND (last_seq > 0 OR opened_from IS NOT NULL)", thread_key
    )
    return row is not None


async def load_open(tx: Tx, thread_key: str, after_seq: int) -> tuple[InboxItem, ...]:
    """Return the open items after one of them, in order."""
    rows = await tx.all(
        "SELECT * FROM inbox WHERE thread_key = %s AND state = 'open' AND seq > %s ORDER BY seq", thread_key, after_seq
    )
    return tuple(map(parse_inbox, rows))


async def mark_signed(tx: Tx, claim: Claim, item_id: int) -> None:
    """Record that an item's message carries the sign that it waits."""
    await check_claim(tx, claim)
    await tx.do("UPDATE inbox SET signed = true WHERE id = %s AND thread_key = %s", item_id, claim.thread_key)


# -- claims ----------------------------------------------------------------------------------------


async def find_waiting(tx: Tx, prefixes: Sequence[str], now: int) -> list[int]:
    """Return the ids of threads that wait for work, the longest waiting first; not of all of them.

    Two look-ups, each along its own small index, so that idle threads cost nothing.
    """
    if not prefixes:
        return []
    condition, bounds = build_key_filter("thread_key", prefixes)
    rows = await tx.all(
        "(SELECT open_since AS since, id FROM thread"
        f" WHERE open_since IS NOT NULL AND {_FREE} AND {condition} ORDER BY open_since, id LIMIT {_CANDIDATES})"
        " UNION ALL (SELECT send_at AS since, id FROM thread"
        f" WHERE send_at IS NOT NULL AND send_at <= %s AND {_FREE} AND {condition}"
        f" ORDER BY send_at, id LIMIT {_CANDIDATES}) ORDER BY since, id",
        now,
        *bounds,
        now,
        now,
        *bounds,
    )
    return list(dict.fromkeys(row["id"] for row in rows))


class Busy(Exception):
    """Threads wait, but somebody else has the row of each; to be looked for again, in a new transaction."""


async def claim_thread(
    tx: Tx, owner: str, prefixes: Sequence[str], lease_s: float, now: datetime, wait: bool = False
) -> Claim | None:
    """Take the thread that has waited longest; see ``Store.claim_thread``.

    Those who claim at the same moment pass each other over. A row that somebody had changed meanwhile stays locked
    though it is passed over, so nothing else is waited for in that transaction: with ``wait`` it is the first thread
    only, before any other row is locked.

    Raises:
        Busy: nothing was claimed, and something does wait.
    """
    at = build_micros(now)
    candidates = await find_waiting(tx, prefixes, at)
    if not candidates:
        return None
    until = build_micros(now + timedelta(seconds=lease_s))
    thread = await tx.one(
        "WITH found AS (SELECT id FROM thread WHERE id = ANY(%s::bigint[])"
        f" AND (open_since IS NOT NULL OR send_at <= %s) AND {_FREE} ORDER BY array_position(%s::bigint[], id)"
        f" LIMIT 1 FOR NO KEY UPDATE {'' if wait else 'SKIP LOCKED'})"
        " UPDATE thread SET owner = %s, lease_until = %s, epoch = epoch + 1 FROM found WHERE thread.id = found.id"
        " RETURNING thread_key, epoch, past_left",
        candidates[:1] if wait else candidates,
        at,
        at,
        candidates,
        owner,
        until,
    )
    if thread is None:
        raise Busy
    key: str = thread["thread_key"]
    run = await tx.one(
        "UPDATE run SET attempt = attempt + 1 WHERE thread_key = %s AND ended_at IS NULL RETURNING *", key
    )
    items = await tx.all("SELECT * FROM inbox WHERE thread_key = %s AND state = 'open'", key)
    if run is not None:
        items += await tx.all("SELECT * FROM inbox WHERE run_id = %s AND state = 'taken'", run["run_id"])
    return Claim(
        thread_key=key,
        owner=owner,
        epoch=thread["epoch"],
        lease_until=parse_micros(until),
        items=tuple(sorted(map(parse_inbox, items), key=lambda item: item.seq)),
        run=None if run is None else parse_run(run),
        outbox=await load_due(tx, key, at),
        past_left=thread["past_left"],
    )


async def renew_claim(tx: Tx, claim: Claim, lease_s: float, now: datetime) -> None:
    """Extend the lease of a claim that stands."""
    await check_claim(tx, claim)
    until = build_micros(now + timedelta(seconds=lease_s))
    await tx.do("UPDATE thread SET lease_until = %s WHERE thread_key = %s", until, claim.thread_key)


async def release_claim(tx: Tx, claim: Claim) -> None:
    """Give the thread back if the claim still stands."""
    await tx.do(
        "UPDATE thread SET owner = NULL, lease_until = NULL WHERE thread_key = %s AND owner = %s AND epoch = %s",
        claim.thread_key,
        claim.owner,
        claim.epoch,
    )


async def list_owners(tx: Tx) -> tuple[str, ...]:
    """Return every owner of a lease, in alphabetical order."""
    rows = await tx.all("SELECT DISTINCT owner FROM thread WHERE owner IS NOT NULL ORDER BY owner")
    return tuple(row["owner"] for row in rows)


async def free_owner(tx: Tx, owner: str) -> None:
    """End every lease of ``owner``; its claims are fenced from now on."""
    await tx.do(
        "WITH theirs AS (SELECT id FROM thread WHERE owner = %s ORDER BY thread_key FOR NO KEY UPDATE)"
        " UPDATE thread SET owner = NULL, lease_until = NULL FROM theirs WHERE thread.id = theirs.id",
        owner,
    )


async def find_next_wake(tx: Tx, prefixes: Sequence[str], now: int) -> datetime | None:
    """Return the earliest instant after ``now`` at which a lease ends or a thread's first post falls due."""
    if not prefixes:
        return None
    condition, bounds = build_key_filter("thread_key", prefixes)
    rows = await tx.all(
        "(SELECT lease_until AS at FROM thread"
        f" WHERE owner IS NOT NULL AND lease_until > %s AND {condition} ORDER BY lease_until LIMIT 1)"
        " UNION ALL (SELECT send_at AS at FROM thread"
        f" WHERE send_at IS NOT NULL AND send_at > %s AND {condition} ORDER BY send_at LIMIT 1)",
        now,
        *bounds,
        now,
        *bounds,
    )
    return parse_micros(min(row["at"] for row in rows)) if rows else None


# -- posts -----------------------------------------------------------------------------------------


async def add_outbox(tx: Tx, item: NewOutboxItem) -> None:
    """Queue a post; a known key changes nothing."""
    at = build_micros(item.created_at)
    await ensure_thread(tx, item.thread_key, at)
    await tx.do(
        "WITH added AS (INSERT INTO outbox (key, thread_key, run_id, body, created_at, state, next_at)"
        " VALUES (%s, %s, %s, %s, %s, 'pending', %s) ON CONFLICT (key) DO NOTHING RETURNING next_at)"
        f" UPDATE thread SET send_at = coalesce(({_FIRST_DUE}), (SELECT next_at FROM added)) WHERE thread_key = %s",
        item.key,
        item.thread_key,
        item.run_id,
        item.body,
        at,
        at,
        item.thread_key,
        item.thread_key,
    )


async def split_outbox(tx: Tx, claim: Claim, outbox_id: int, parts: Sequence[NewOutboxItem]) -> None:
    """Put the first part in the place of a post, and queue the others."""
    await check_claim(tx, claim)
    await _load_undelivered(tx, claim, outbox_id)
    await tx.do("UPDATE outbox SET body = %s WHERE id = %s", parts[0].body, outbox_id)
    for part in parts[1:]:
        await add_outbox(tx, part)


async def begin_send(tx: Tx, claim: Claim, outbox_id: int, now: datetime) -> float:
    """Count an attempt and mark the row as sending; return the seconds that are left of the lease."""
    thread = await check_claim(tx, claim)
    await _load_undelivered(tx, claim, outbox_id)
    await tx.do("UPDATE outbox SET state = 'sending', attempts = attempts + 1 WHERE id = %s", outbox_id)
    return (parse_micros(thread["lease_until"]) - now).total_seconds()


async def finish_send(
    tx: Tx, claim: Claim, outbox_id: int, state: OutboxState, remote_id: str | None, reason: str, next_at: datetime
) -> None:
    """Record what became of a post; a delivered or failed one is not changed any more, and its run has no draft."""
    await check_claim(tx, claim)
    await _load_undelivered(tx, claim, outbox_id)
    await tx.do(
        "UPDATE outbox SET state = %s, remote_id = %s, reason = %s, next_at = %s WHERE id = %s",
        state.value,
        remote_id,
        reason,
        build_micros(next_at),
        outbox_id,
    )
    if state.final:
        await tx.do("DELETE FROM draft WHERE run_id = (SELECT run_id FROM outbox WHERE id = %s)", outbox_id)
    await _refresh_send_at(tx, claim.thread_key)


async def load_outbox(tx: Tx, thread_key: str) -> tuple[OutboxItem, ...]:
    """Return every post of a thread in the order of posting."""
    rows = await tx.all("SELECT * FROM outbox WHERE thread_key = %s ORDER BY id", thread_key)
    return tuple(map(parse_outbox, rows))


async def load_due(tx: Tx, thread_key: str, now: int) -> tuple[OutboxItem, ...]:
    """Return undelivered posts up to the first that is not due: a later one never overtakes it."""
    rows = await tx.all(f"SELECT * FROM outbox WHERE thread_key = %s AND {_UNDELIVERED} ORDER BY id", thread_key)
    late = next((n for n, row in enumerate(rows) if row["next_at"] > now), len(rows))
    return tuple(map(parse_outbox, rows[:late]))


async def _load_undelivered(tx: Tx, claim: Claim, outbox_id: int) -> None:
    row = await tx.one("SELECT state FROM outbox WHERE id = %s AND thread_key = %s", outbox_id, claim.thread_key)
    if row is None:
        raise StoreError(f"there is no post {outbox_id} in {claim.thread_key}; nothing was changed")
    if row["state"] not in ("pending", "sending"):
        raise StoreError(f"post {outbox_id} is already {row['state']}; nothing was changed")


async def _refresh_send_at(tx: Tx, thread_key: str) -> None:
    await tx.do(f"UPDATE thread SET send_at = ({_FIRST_DUE}) WHERE thread_key = %s", thread_key, thread_key)
