"""What a thread remembers: its messages, their summary, whole tool outputs. Plain functions inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from bot.storage.base import Kept, NewMessage, StoredMessage, SummaryRow
from bot.storage.rows import build_micros, parse_message, parse_summary
from bot.storage.sqlite_connection import Tx

DELETED = "[deleted]"
"""Stands in a history for the text of a message that was deleted on the platform."""

_BLANKED = "body = json_set(body, '$.content', ?), tokens = min(tokens, 8)"


def add_message(tx: Tx, thread_key: str, seq: int, run_id: str, message: NewMessage) -> None:
    """Append an entry to a history; of a message that was erased meanwhile without its text."""
    tx.do(
        "INSERT INTO message (thread_key, seq, run_id, role, body, tokens, created_at, said_id)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        thread_key,
        seq,
        run_id,
        message.role,
        message.body,
        message.tokens,
        build_micros(message.created_at),
        message.said_id,
    )
    if message.said_id and is_erased(tx, thread_key, message.said_id):
        tx.do(f"UPDATE message SET {_BLANKED} WHERE thread_key = ? AND seq = ?", DELETED, thread_key, seq)


def append_messages(tx: Tx, thread_key: str, run_id: str, messages: Sequence[NewMessage], at: int) -> None:
    """Append entries to a history, and note that something happened in the thread at ``at``."""
    (thread,) = tx.all(
        "UPDATE thread SET last_message_seq = last_message_seq + ?, last_at = max(last_at, ?) WHERE thread_key = ?"
        " RETURNING last_message_seq",
        len(messages),
        at,
        thread_key,
    )
    first = thread["last_message_seq"] - len(messages) + 1
    for seq, message in enumerate(messages, start=first):
        add_message(tx, thread_key, seq, run_id, message)


def is_erased(tx: Tx, thread_key: str, said_id: str) -> bool:
    """Tell whether a message was deleted on the platform."""
    return tx.one("SELECT 1 FROM erased WHERE thread_key = ? AND said_id = ?", thread_key, said_id) is not None


def blank_message(tx: Tx, thread_key: str, said_id: str) -> None:
    """Replace the text of a message in the history."""
    tx.do(f"UPDATE message SET {_BLANKED} WHERE thread_key = ? AND said_id = ?", DELETED, thread_key, said_id)


def load_messages(tx: Tx, thread_key: str, limit: int | None, after_seq: int) -> tuple[StoredMessage, ...]:
    """Return the newest ``limit`` entries of a history after ``after_seq`` (all with None), oldest first."""
    rows = tx.all(
        "SELECT * FROM message WHERE thread_key = ? AND seq > ? ORDER BY seq DESC LIMIT ?",
        thread_key,
        after_seq,
        -1 if limit is None else max(limit, 0),
    )
    return tuple(map(parse_message, reversed(rows)))


def save_summary(tx: Tx, summary: SummaryRow) -> None:
    """Replace a thread's summary."""
    tx.do(
        "INSERT INTO summary (thread_key, text, through_seq, tokens_before, tokens_after, author, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (thread_key) DO UPDATE SET text = excluded.text,"
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


def load_summary(tx: Tx, thread_key: str) -> SummaryRow | None:
    """Return a thread's summary."""
    row = tx.one("SELECT * FROM summary WHERE thread_key = ?", thread_key)
    return None if row is None else parse_summary(row)


def save_output(tx: Tx, thread_key: str, output_id: str, text: str, now: datetime) -> None:
    """Keep a whole tool output."""
    tx.do(
        "INSERT INTO output (thread_key, output_id, text, created_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (thread_key, output_id) DO UPDATE SET text = excluded.text",
        thread_key,
        output_id,
        text,
        build_micros(now),
    )


def load_output(tx: Tx, thread_key: str, output_id: str) -> str | None:
    """Return a kept output of this thread."""
    row = tx.one("SELECT text FROM output WHERE thread_key = ? AND output_id = ?", thread_key, output_id)
    return None if row is None else str(row["text"])


# ?1 and ?2 are the thread and the one that it was opened from, or twice the same.
_BOTH = "thread_key IN (?1, ?2)"
_ENDED = f"SELECT run_id FROM run WHERE {_BOTH} AND ended_at IS NOT NULL"
_SETTLED = "state IN ('delivered', 'failed')"
_SEQUELS = (
    f"sequel WHERE run_id IN ({_ENDED})"
    f" AND run_id NOT IN (SELECT run_id FROM outbox WHERE {_BOTH} AND run_id IS NOT NULL AND NOT {_SETTLED})"
)
_KEPT = {
    "messages": f"message WHERE {_BOTH}",
    "summary": f"summary WHERE {_BOTH} AND text <> ''",
    "outputs": f"output WHERE {_BOTH}",
    "steps": f"step WHERE run_id IN ({_ENDED})",
    "traces": f"run WHERE {_BOTH} AND ended_at IS NOT NULL AND record <> ''",
}
_TEXTS = (
    f"inbox WHERE {_BOTH} AND state IN ('done', 'refused') AND payload <> ''",
    f"outbox WHERE {_BOTH} AND {_SETTLED} AND body <> ''",
    f"proposal WHERE {_BOTH}",
    _SEQUELS,
)


def _find_both(tx: Tx, thread_key: str) -> tuple[str, str]:
    """Return a thread and the one that it was opened from; where people began, twice the thread."""
    row = tx.one("SELECT coalesce(opened_from, thread_key) AS origin FROM thread WHERE thread_key = ?", thread_key)
    return thread_key, thread_key if row is None else row["origin"]


def count_kept(tx: Tx, thread_key: str) -> Kept:
    """Count the content of everything in a thread that is over."""
    both = _find_both(tx, thread_key)

    def count(rows: str) -> int:
        return int(tx.all(f"SELECT count(*) AS n FROM {rows}", *both)[0]["n"])

    (sums,) = tx.all(f"SELECT coalesce(sum(tokens), 0) AS tokens FROM message WHERE {_BOTH}", *both)
    return Kept(
        **{name: count(rows) for name, rows in _KEPT.items()},
        tokens=sums["tokens"],
        texts=sum(map(count, _TEXTS)),
    )


def forget_thread(tx: Tx, thread_key: str) -> Kept:
    """Drop the content of everything in a thread that is over; return what that was."""
    kept = count_kept(tx, thread_key)
    both = _find_both(tx, thread_key)
    for statement in (
        f"DELETE FROM message WHERE {_BOTH}",
        f"DELETE FROM summary WHERE {_BOTH}",
        f"DELETE FROM output WHERE {_BOTH}",
        f"DELETE FROM step WHERE run_id IN ({_ENDED})",
        f"DELETE FROM proposal WHERE {_BOTH}",
        f"DELETE FROM {_SEQUELS}",
        f"UPDATE run SET record = '', reason = '' WHERE {_BOTH} AND ended_at IS NOT NULL",
        f"UPDATE inbox SET payload = '' WHERE {_BOTH} AND state IN ('done', 'refused')",
        f"UPDATE outbox SET body = '' WHERE {_BOTH} AND {_SETTLED}",
    ):
        tx.do(statement, *both)
    return kept
