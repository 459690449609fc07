"""Threads: what comes in, who may work on it, and what waits to be posted. Plain functions inside a transaction."""

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
from bot.storage.rows import build_micros, parse_inbox, parse_micros, parse_outbox, parse_run
from bot.storage.sqlite_connection import Tx
from bot.storage.sqlite_memory import is_erased
from bot.storage.sqlite_rows import build_key_filter

_FREE = "(owner IS NULL OR lease_until <= ?)"
_UNDELIVERED = "state IN ('pending', 'sending')"
PAST_TRIES = 3
"""How often it is tried to read what was said in a thread before Hermod came."""
NO_LIMIT = 2**31
"""Of the queue, for what is not a question."""


def check_claim(tx: Tx, claim: Claim) -> None:
    """Raise ``Fenced`` unless the claim still stands.

    A lease that ran out but was taken by nobody still stands: what counts is that no other epoch began.
    """
    row = tx.one("SELECT owner, epoch FROM thread WHERE thread_key = ?", claim.thread_key)
    if row is None or row["owner"] != claim.owner or row["epoch"] != claim.epoch:
        raise Fenced(
            f"{claim.owner} no longer holds {claim.thread_key} (its epoch was {claim.epoch}); stop without any effect"
        )


def ensure_thread(tx: Tx, thread_key: str, at: int) -> None:
    """Make the thread's row, or note that something happened there at ``at``."""
    tx.do(
        "INSERT INTO thread (thread_key, last_at) VALUES (?, ?)"
        " ON CONFLICT (thread_key) DO UPDATE SET last_at = max(last_at, excluded.last_at)",
        thread_key,
        at,
    )


# -- what comes in ---------------------------------------------------------------------------------


def accept(tx: Tx, item: NewInboxItem, queue_limit: int, refusal: NewOutboxItem | None) -> Accepted:
    """Store an item once per event key; see ``Store.accept``."""
    known = tx.one("SELECT seq FROM inbox WHERE event_key = ?", item.event_key)
    if known is not None:
        return Accepted(outcome="duplicate", seq=known["seq"])
    if item.said_id and is_erased(tx, item.thread_key, item.said_id):
        return Accepted(outcome="duplicate", seq=0)
    at = build_micros(item.received_at)
    ensure_thread(tx, item.thread_key, at)
    waiting = tx.all(
        "SELECT 1 FROM inbox WHERE thread_key = ? AND state = 'open' LIMIT ?", item.thread_key, max(queue_limit, 0)
    )
    full = len(waiting) >= queue_limit
    (counted,) = tx.all(
        "UPDATE thread SET last_seq = last_seq + 1,"
        " past_left = CASE WHEN ? AND last_seq = 0 AND opened_from IS NULL THEN ? ELSE past_left END,"
        " open_since = CASE WHEN ? THEN open_since ELSE coalesce(open_since, ?) END"
        " WHERE thread_key = ? RETURNING last_seq",
        item.inside,
        PAST_TRIES,
        full,
        at,
        item.thread_key,
    )
    seq: int = counted["last_seq"]
    tx.do(
        "INSERT INTO inbox (event_key, thread_key, seq, kind, payload, received_at, said_id, state)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        item.event_key,
        item.thread_key,
        seq,
        item.kind,
        item.payload,
        at,
        item.said_id,
        "refused" if full else "open",
    )
    if full and refusal is not None:
        add_outbox(tx, refusal)
    return Accepted(outcome="full" if full else "new", seq=seq)


def knows_thread(tx: Tx, thread_key: str) -> bool:
    """Tell whether an inbox row was ever stored for the thread (a mere notice does not count), or it was opened."""
    row = tx.one("SELECT 1 FROM thread WHERE thread_key = ? AND (last_seq > 0 OR opened_from IS NOT NULL)", thread_key)
    return row is not None


def load_open(tx: Tx, thread_key: str, after_seq: int) -> tuple[InboxItem, ...]:
    """Return the open items after one of them, in order."""
    rows = tx.all(
        "SELECT * FROM inbox WHERE thread_key = ? AND state = 'open' AND seq > ? ORDER BY seq", thread_key, after_seq
    )
    return tuple(map(parse_inbox, rows))


def mark_signed(tx: Tx, claim: Claim, item_id: int) -> None:
    """Record that an item's message carries the sign that it waits."""
    check_claim(tx, claim)
    tx.do("UPDATE inbox SET signed = 1 WHERE id = ? AND thread_key = ?", item_id, claim.thread_key)


# -- claims ----------------------------------------------------------------------------------------


def find_waiting(tx: Tx, prefixes: Sequence[str], now: int) -> str | None:
    """Return the key of the thread that has waited longest for work, or None.

    Two look-ups, each along its own small index, so that idle threads cost nothing.
    """
    if not prefixes:
        return None
    condition, bounds = build_key_filter("thread_key", prefixes)
    opened = tx.one(
        "SELECT thread_key, open_since AS since, id FROM thread INDEXED BY thread_open"
        f" WHERE open_since IS NOT NULL AND {_FREE} AND {condition} ORDER BY open_since, id LIMIT 1",
        now,
        *bounds,
    )
    sendable = tx.one(
        "SELECT thread_key, send_at AS since, id FROM thread INDEXED BY thread_send"
        f" WHERE send_at IS NOT NULL AND send_at <= ? AND {_FREE} AND {condition} ORDER BY send_at, id LIMIT 1",
        now,
        now,
        *bounds,
    )
    found = [row for row in (opened, sendable) if row is not None]
    if not found:
        return None
    key: str = min(found, key=lambda row: (row["since"], row["id"]))["thread_key"]
    return key


def claim_thread(tx: Tx, owner: str, prefixes: Sequence[str], lease_s: float, now: datetime) -> Claim | None:
    """Take the thread that has waited longest; see ``Store.claim_thread``."""
    at = build_micros(now)
    key = find_waiting(tx, prefixes, at)
    if key is None:
        return None
    until = build_micros(now + timedelta(seconds=lease_s))
    (thread,) = tx.all(
        "UPDATE thread SET owner = ?, lease_until = ?, epoch = epoch + 1 WHERE thread_key = ?"
        " RETURNING epoch, past_left",
        owner,
        until,
        key,
    )
    run = tx.one("UPDATE run SET attempt = attempt + 1 WHERE thread_key = ? AND ended_at IS NULL RETURNING *", key)
    items = tx.all("SELECT * FROM inbox WHERE thread_key = ? AND state = 'open'", key)
    if run is not None:
        items += tx.all("SELECT * FROM inbox WHERE run_id = ? AND state = 'taken'", run["run_id"])
    return Claim(
        thread_key=key,
        owner=owner,
        epoch=thread["epoch"],
        lease_until=parse_micros(until),
        items=tuple(sorted(map(parse_inbox, items), key=lambda item: item.seq)),
        run=None if run is None else parse_run(run),
        outbox=load_due(tx, key, at),
        past_left=thread["past_left"],
    )


def renew_claim(tx: Tx, claim: Claim, lease_s: float, now: datetime) -> None:
    """Extend the lease of a claim that stands."""
    check_claim(tx, claim)
    until = build_micros(now + timedelta(seconds=lease_s))
    tx.do("UPDATE thread SET lease_until = ? WHERE thread_key = ?", until, claim.thread_key)


def release_claim(tx: Tx, claim: Claim) -> None:
    """Give the thread back if the claim still stands."""
    tx.do(
        "UPDATE thread SET owner = NULL, lease_until = NULL WHERE thread_key = ? AND owner = ? AND epoch = ?",
        claim.thread_key,
        claim.owner,
        claim.epoch,
    )


def list_owners(tx: Tx) -> tuple[str, ...]:
    """Return every owner of a lease, in alphabetical order."""
    rows = tx.all("SELECT DISTINCT owner FROM thread INDEXED BY thread_lease WHERE owner IS NOT NULL ORDER BY owner")
    return tuple(row["owner"] for row in rows)


def free_owner(tx: Tx, owner: str) -> None:
    """End every lease of ``owner``; its claims are fenced from now on."""
    tx.do(
        "UPDATE thread INDEXED BY thread_lease SET owner = NULL, lease_until = NULL"
        " WHERE owner IS NOT NULL AND owner = ?",
        owner,
    )


def find_next_wake(tx: Tx, prefixes: Sequence[str], now: int) -> datetime | None:
    """Return the earliest instant after ``now`` at which a lease ends or a thread's first post falls due."""
    if not prefixes:
        return None
    condition, bounds = build_key_filter("thread_key", prefixes)
    lease = tx.one(
        "SELECT lease_until AS at FROM thread INDEXED BY thread_lease"
        f" WHERE owner IS NOT NULL AND lease_until > ? AND {condition} ORDER BY lease_until LIMIT 1",
        now,
        *bounds,
    )
    post = tx.one(
        "SELECT send_at AS at FROM thread INDEXED BY thread_send"
        f" WHERE send_at IS NOT NULL AND send_at > ? AND {condition} ORDER BY send_at LIMIT 1",
        now,
        *bounds,
    )
    instants = [row["at"] for row in (lease, post) if row is not None]
    return parse_micros(min(instants)) if instants else None


# -- posts -----------------------------------------------------------------------------------------


def add_outbox(tx: Tx, item: NewOutboxItem) -> None:
    """Queue a post; a known key changes nothing."""
    at = build_micros(item.created_at)
    ensure_thread(tx, item.thread_key, at)
    tx.do(
        "INSERT INTO outbox (key, thread_key, run_id, body, created_at, state, next_at)"
        " VALUES (?, ?, ?, ?, ?, 'pending', ?) ON CONFLICT (key) DO NOTHING",
        item.key,
        item.thread_key,
        item.run_id,
        item.body,
        at,
        at,
    )
    _refresh_send_at(tx, item.thread_key)


def split_outbox(tx: Tx, claim: Claim, outbox_id: int, parts: Sequence[NewOutboxItem]) -> None:
    """Put the first part in the place of a post, and queue the others."""
    check_claim(tx, claim)
    _load_undelivered(tx, claim, outbox_id)
    tx.do("UPDATE outbox SET body = ? WHERE id = ?", parts[0].body, outbox_id)
    for part in parts[1:]:
        add_outbox(tx, part)


def begin_send(tx: Tx, claim: Claim, outbox_id: int, now: datetime) -> float:
    """Count an attempt and mark the row as sending; return the seconds that are left of the lease."""
    check_claim(tx, claim)
    _load_undelivered(tx, claim, outbox_id)
    tx.do("UPDATE outbox SET state = 'sending', attempts = attempts + 1 WHERE id = ?", outbox_id)
    (thread,) = tx.all("SELECT lease_until FROM thread WHERE thread_key = ?", claim.thread_key)
    return (parse_micros(thread["lease_until"]) - now).total_seconds()


def finish_send(
    tx: Tx, claim: Claim, outbox_id: int, state: OutboxState, remote_id: str | None, reason: str, next_at: datetime
) -> None:
    """Record what became of a post; a delivered or failed one is not changed any more, and its run has no draft."""
    check_claim(tx, claim)
    _load_undelivered(tx, claim, outbox_id)
    tx.do(
        "UPDATE outbox SET state = ?, remote_id = ?, reason = ?, next_at = ? WHERE id = ?",
        state.value,
        remote_id,
        reason,
        build_micros(next_at),
        outbox_id,
    )
    if state.final:
        tx.do("DELETE FROM draft WHERE run_id = (SELECT run_id FROM outbox WHERE id = ?)", outbox_id)
    _refresh_send_at(tx, claim.thread_key)


def load_outbox(tx: Tx, thread_key: str) -> tuple[OutboxItem, ...]:
    """Return every post of a thread in the order of posting."""
    return tuple(map(parse_outbox, tx.all("SELECT * FROM outbox WHERE thread_key = ? ORDER BY id", thread_key)))


def load_due(tx: Tx, thread_key: str, now: int) -> tuple[OutboxItem, ...]:
    """Return undelivered posts up to the first that is not due: a later one never overtakes it."""
    rows = tx.all(f"SELECT * FROM outbox WHERE thread_key = ? AND {_UNDELIVERED} ORDER BY id", thread_key)
    late = next((n for n, row in enumerate(rows) if row["next_at"] > now), len(rows))
    return tuple(map(parse_outbox, rows[:late]))


def _load_undelivered(tx: Tx, claim: Claim, outbox_id: int) -> None:
    row = tx.one("SELECT state FROM outbox WHERE id = ? AND thread_key = ?", outbox_id, claim.thread_key)
    if row is None:
        raise StoreError(f"there is no post {outbox_id} in {claim.thread_key}; nothing was changed")
    if row["state"] not in ("pending", "sending"):
        raise StoreError(f"post {outbox_id} is already {row['state']}; nothing was changed")


def _refresh_send_at(tx: Tx, thread_key: str) -> None:
    tx.do(
        "UPDATE thread SET send_at ="
        f" (SELECT next_at FROM outbox WHERE thread_key = ? AND {_UNDELIVERED} ORDER BY id LIMIT 1)"
        " WHERE thread_key = ?",
        thread_key,
        thread_key,
    )
