"""Threads: what comes in, who may work on it, and what waits to be posted. Plain functions inside a transaction."""

from __future__ import annotations

from bot.storage.base import Claim, Fenced
from bot.storage.postgres_connection import Row, Tx


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
