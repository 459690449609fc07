"""What a thread remembers, on Postgres: its messages, their summary, whole tool outputs. The verbs and their functions.

Every verb that changes something locks the thread's row first, as those of a claim do, so that no two wait for each
other in a circle; of several threads, that with the first key (in the order of bytes) comes first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from bot.storage.base import Kept, NewMessage, StoredMessage, SummaryRow
from bot.storage.postgres_connection import Connections, Tx, clean
from bot.storage.rows import build_micros, parse_message, parse_summary

DELETED = "[deleted]"
"""Stands in a history for the text of a message that was deleted on the platform."""

_DELETED_TOKENS = 8


class PostgresMemory:
    """The verbs of ``base.Store`` for what a thread remembers; what they mean is said there."""

    _db: Connections

    async def load_messages(
        self, thread_key: str, *, limit: int | None = None, after_seq: int = 0
    ) -> tuple[StoredMessage, ...]:
        """Return the thread's history in order."""
        work = partial(load_messages, thread_key=thread_key, limit=limit, after_seq=after_seq)
        return await self._db.read(work)

    async def load_summary(self, thread_key: str) -> SummaryRow | None:
        """Return the thread's summary."""
        return await self._db.read(partial(load_summary, thread_key=thread_key))

    async def save_summary(self, summary: SummaryRow) -> None:
        """Replace a thread's summary."""
        await self._db.run(partial(save_summary, summary=summary))

    async def save_output(self, thread_key: str, output_id: str, text: str, now: datetime) -> None:
        """Keep a whole tool output."""
        await self._db.run(partial(save_output, thread_key=thread_key, output_id=output_id, text=text, now=now))

    async def load_output(self, thread_key: str, output_id: str) -> str | None:
        """Return a kept output."""
        return await self._db.read(partial(load_output, thread_key=thread_key, output_id=output_id))

    async def count_kept(self, thread_key: str) -> Kept:
        """Count what is kept of a thread."""
        return await self._db.read(partial(count_kept, thread_key=thread_key))

    async def forget_thread(self, thread_key: str) -> Kept:
        """Drop what was said and found in a thread."""
        return await self._db.run(partial(forget_thread, thread_key=thread_key))


async def lock_threads(tx: Tx, *thread_keys: str) -> None:
    """Wait until nobody else changes anything in these threads; those that nothing knows are passed over."""
    if len(thread_keys) == 1:
        await tx.all("SELECT 1 FROM thread WHERE thread_key = %s FOR NO KEY UPDATE", *thread_keys)
        return
    await tx.all(
        "SELECT 1 FROM thread WHERE thread_key = ANY(%s::text[]) ORDER BY thread_key FOR NO KEY UPDATE",
        [clean(key) for key in thread_keys],
    )


# -- messages --------------------------------------------------------------------------------------


async def append_messages(tx: Tx, thread_key: str, run_id: str, messages: Sequence[NewMessage], at: int) -> None:
    """Append entries to a history, and note that something happened in the thread at ``at``.

    Of a message that was erased meanwhile, the entry is without its text.
    """
    (thread,) = await tx.all(
        "UPDATE thread SET last_message_seq = last_message_seq + %s, last_at = greatest(last_at, %s)"
        " WHERE thread_key = %s RETURNING last_message_seq",
        len(messages),
        at,
        thread_key,
    )
    if not messages:
        return
    erased = await _load_erased(tx, thread_key, [message.said_id for message in messages if message.said_id])
    first = thread["last_message_seq"] - len(messages) + 1
    values: list[object] = []
    for seq, message in enumerate(messages, start=first):
        gone = bool(message.said_id) and clean(message.said_id) in erased
        values += (
            thread_key,
            seq,
            run_id,
            message.role,
            blank(message.body) if gone else message.body,
            min(message.tokens, _DELETED_TOKENS) if gone else message.tokens,
            build_micros(message.created_at),
            message.said_id,
        )
    await tx.do(
        "INSERT INTO message (thread_key, seq, run_id, role, body, tokens, created_at, said_id)"
        f" VALUES {', '.join(['(%s, %s, %s, %s, %s, %s, %s, %s)'] * len(messages))}",
        *values,
    )


async def _load_erased(tx: Tx, thread_key: str, said_ids: list[str]) -> set[str]:
    if not said_ids:
        return set()
    rows = await tx.all(
        "SELECT said_id FROM erased WHERE thread_key = %s AND said_id = ANY(%s::text[])",
        thread_key,
        [clean(said_id) for said_id in said_ids],
    )
    return {row["said_id"] for row in rows}


def blank(body: str) -> str:
    """Return an entry of a history without its text. In Python: ``jsonb`` refuses the escape of a NUL."""
    return json.dumps({**json.loads(body), "content": DELETED}, ensure_ascii=False, separators=(",", ":"))


async def blank_message(tx: Tx, thread_key: str, said_id: str) -> None:
    """Replace the text of a message in the history."""
    where = "WHERE thread_key = %s AND said_id = %s"
    for row in await tx.all(f"SELECT seq, body FROM message {where}", thread_key, said_id):
        await tx.do(
            "UPDATE message SET body = %s, tokens = least(tokens, %s) WHERE thread_key = %s AND seq = %s",
            blank(row["body"]),
            _DELETED_TOKENS,
            thread_key,
            row["seq"],
        )


async def load_messages(tx: Tx, thread_key: str, limit: int | None, after_seq: int) -> tuple[StoredMessage, ...]:
    """Return the newest ``limit`` entries of a history after ``after_seq`` (all with None), oldest first."""
    rows = await tx.all(
        "SELECT * FROM message WHERE thread_key = %s AND seq > %s ORDER BY seq DESC LIMIT %s",
        thread_key,
        after_seq,
        None if limit is None else max(limit, 0),
    )
    return tuple(map(parse_message, reversed(rows)))


# -- summary and outputs ---------------------------------------------------------------------------


async def save_summary(tx: Tx, summary: SummaryRow) -> None:
    """Replace a thread's summary."""
    await lock_threads(tx, summary.thread_key)
    await tx.do(
        "INSERT INTO summary (thread_key, text, through_seq, tokens_before, tokens_after, author, updated_at)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (thread_key) DO UPDATE SET text = excluded.text,"
        " through_seq = excluded.through_seq, tokens_before = excluded.tokens_before,"
        " tokens_after = excluded.tokens_after, author = excluded.author, updated_at = excluded.updated_at",
        summary.thread_key,
        summary.text,
        summary.through_seq,
        summary.tokens_before,
        summary.tokens_after,
        summary.author,
        build_micros(summary.updated_at),
    )


async def load_summary(tx: Tx, thread_key: str) -> SummaryRow | None:
    """Return a thread's summary."""
    row = await tx.one("SELECT * FROM summary WHERE thread_key = %s", thread_key)
    return None if row is None else parse_summary(row)


async def save_output(tx: Tx, thread_key: str, output_id: str, text: str, now: datetime) -> None:
    """Keep a whole tool output."""
    await lock_threads(tx, thread_key)
    await tx.do(
        "INSERT INTO output (thread_key, output_id, text, created_at) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (thread_key, output_id) DO UPDATE SET text = excluded.text",
        thread_key,
        output_id,
        text,
        build_micros(now),
    )


async def load_output(tx: Tx, thread_key: str, output_id: str) -> str | None:
    """Return a kept output of this thread."""
    row = await tx.one("SELECT text FROM output WHERE thread_key = %s AND output_id = %s", thread_key, output_id)
    return None if row is None else str(row["text"])


# -- forgetting ------------------------------------------------------------------------------------

# The thread, and the one that it was opened from.
_BOTH = "thread_key = ANY(%s::text[])"
# An array, so that its few ids are looked up: a join is planned for any number of them, and may read all steps.
_OF_ENDED = f"run_id = ANY(ARRAY(SELECT run_id FROM run WHERE {_BOTH} AND ended_at IS NOT NULL))"
_SETTLED = "state IN ('delivered', 'failed')"
_SEQUELS = (
    f"sequel WHERE {_OF_ENDED}"
    f" AND run_id NOT IN (SELECT run_id FROM outbox WHERE {_BOTH} AND run_id IS NOT NULL AND NOT {_SETTLED})"
)
_KEPT = {
    "messages": f"message WHERE {_BOTH}",
    "summary": f"summary WHERE {_BOTH} AND text <> ''",
    "outputs": f"output WHERE {_BOTH}",
    "steps": f"step WHERE {_OF_ENDED}",
    "traces": f"run WHERE {_BOTH} AND ended_at IS NOT NULL AND record <> ''",
}
_TEXTS = (
    f"inbox WHERE {_BOTH} AND state IN ('done', 'refused') AND payload <> ''",
    f"outbox WHERE {_BOTH} AND {_SETTLED} AND body <> ''",
    f"proposal WHERE {_BOTH}",
    _SEQUELS,
)


async def _find_both(tx: Tx, thread_key: str) -> list[str]:
    """Return the thread that one was opened from, if people did not begin it, and then that one itself."""
    row = await tx.one("SELECT opened_from FROM thread WHERE thread_key = %s", thread_key)
    origin = None if row is None else row["opened_from"]
    return [thread_key] if origin in (None, thread_key) else [origin, thread_key]


async def count_kept(tx: Tx, thread_key: str) -> Kept:
    """Count the content of everything in a thread that is over."""
    both = await _find_both(tx, thread_key)
    counts: dict[str, int] = {}
    for name, rows in _KEPT.items():
        counts[name] = await _count(tx, rows, both)
    sums = await tx.all(f"SELECT coalesce(sum(tokens), 0)::bigint AS tokens FROM message WHERE {_BOTH}", both)
    texts = [await _count(tx, rows, both) for rows in _TEXTS]
    return Kept(**counts, tokens=sums[0]["tokens"], texts=sum(texts))


async def _count(tx: Tx, rows: str, both: list[str]) -> int:
    (counted,) = await tx.all(f"SELECT count(*) AS n FROM {rows}", *[both] * rows.count("%s"))
    return int(counted["n"])


async def forget_thread(tx: Tx, thread_key: str) -> Kept:
    """Drop the content of everything in a thread that is over; return what that was."""
    both = await _find_both(tx, thread_key)
    await lock_threads(tx, *both)
    kept = await count_kept(tx, thread_key)
    for statement in (
        f"DELETE FROM message WHERE {_BOTH}",
        f"DELETE FROM summary WHERE {_BOTH}",
        f"DELETE FROM output WHERE {_BOTH}",
        f"DELETE FROM step WHERE {_OF_ENDED}",
        f"DELETE FROM proposal WHERE {_BOTH}",
        f"DELETE FROM {_SEQUELS}",
        f"UPDATE run SET record = '', reason = '' WHERE {_BOTH} AND ended_at IS NOT NULL",
        f"UPDATE inbox SET payload = '' WHERE {_BOTH} AND state IN ('done', 'refused')",
        f"UPDATE outbox SET body = '' WHERE {_BOTH} AND {_SETTLED}",
    ):
        await tx.do(statement, *[both] * statement.count("%s"))
    return kept
