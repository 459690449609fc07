"""What is only added: usage, feedback, the audit chain; and the gauges. Functions inside a transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import cast

from bot.storage.base import AuditRow, Counts, FeedbackRow, StoreError, UsageRow
from bot.storage.rows import build_micros, parse_feedback, parse_micros, parse_usage
from bot.storage.sqlite_connection import Tx, clean

FIRST_PREV_HASH = "0" * 64
_HASHED = ("seq", "at", "actor", "action", "thread_key", "run_id", "detail", "prev_hash")


def add_usage(tx: Tx, usage: UsageRow) -> None:
    """Add what a run used."""
    tx.do(
        "INSERT INTO usage (run_id, thread_key, author, provider, model, requests, input_tokens, output_tokens,"
        " cost_usd, at, cached_input_tokens, cache_write_tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        usage.run_id,
        usage.thread_key,
        usage.author,
        usage.provider,
        usage.model,
        usage.requests,
        usage.input_tokens,
        usage.output_tokens,
        usage.cost_usd,
        build_micros(usage.at),
        usage.cached_input_tokens,
        usage.cache_write_tokens,
    )


def load_usage(tx: Tx, since: datetime, author: str) -> tuple[UsageRow, ...]:
    """Return usage from ``since`` on, oldest first; of one author, or of everybody."""
    theirs, values = ("AND author = ?", (author,)) if author else ("", ())
    rows = tx.all(f"SELECT * FROM usage WHERE at >= ? {theirs} ORDER BY at, id", build_micros(since), *values)
    return tuple(map(parse_usage, rows))


def save_feedback(tx: Tx, row: FeedbackRow) -> None:
    """Record an opinion in place of the same person's earlier one."""
    if tx.one("SELECT 1 FROM run WHERE run_id = ?", row.run_id) is None:
        raise StoreError(f"there is no run {row.run_id!r}")
    tx.do(
        "INSERT INTO feedback (run_id, author, thread_key, value, at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (run_id, author) DO UPDATE SET value = excluded.value, at = excluded.at",
        row.run_id,
        row.author,
        row.thread_key,
        row.value,
        build_micros(row.at),
    )


def load_feedback(tx: Tx, since: datetime, limit: int) -> tuple[FeedbackRow, ...]:
    """Return opinions from ``since`` on, newest first."""
    rows = tx.all(
        "SELECT * FROM feedback WHERE at >= ? ORDER BY at DESC, run_id, author LIMIT ?", build_micros(since), limit
    )
    return tuple(map(parse_feedback, rows))


# -- audit -----------------------------------------------------------------------------------------


def build_audit_hash(line: Mapping[str, object]) -> str:
    """Return the SHA-256 (hex) of a line and the hash before it.

    Hashed is canonical JSON: every column but ``hash``, keys sorted, no spaces, only ASCII, ``at`` in
    microseconds of UTC. Anyone can compute it from the table alone.
    """
    hashed = {name: line[name] for name in _HASHED}
    return hashlib.sha256(json.dumps(hashed, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def add_audit(tx: Tx, at: datetime, actor: str, action: str, thread_key: str, run_id: str, detail: str) -> AuditRow:
    """Append a line to the chain and return it."""
    last = tx.one("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1")
    line = AuditRow(
        seq=1 if last is None else last["seq"] + 1,
        at=parse_micros(build_micros(at)),
        actor=clean(actor),
        action=clean(action),
        thread_key=clean(thread_key),
        run_id=clean(run_id),
        detail=clean(detail),
        prev_hash=FIRST_PREV_HASH if last is None else last["hash"],
        hash="",
    )
    columns = {name: getattr(line, name) for name in _HASHED} | {"at": build_micros(at)}
    line = replace(line, hash=build_audit_hash(columns))
    tx.do(
        f"INSERT INTO audit ({', '.join(_HASHED)}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *columns.values(),
        line.hash,
    )
    return line


def load_audit(tx: Tx, after_seq: int, limit: int) -> list[dict[str, object]]:
    """Return up to ``limit`` lines after one of them, in order, as the table has them (they may be tampered with)."""
    return [dict(row) for row in tx.all("SELECT * FROM audit WHERE seq > ? ORDER BY seq LIMIT ?", after_seq, limit)]


def find_misfit(lines: Sequence[Mapping[str, object]], before: Mapping[str, object] | None) -> int | None:
    """Return the ``seq`` of the first line that does not follow from the one before it, or was changed.

    ``before`` is the line before ``lines``; None when they are the first.
    """
    expected, prev_hash = (1, FIRST_PREV_HASH) if before is None else (cast(int, before["seq"]) + 1, before["hash"])
    for line in lines:
        seq = cast(int, line["seq"])
        if seq != expected or line["prev_hash"] != prev_hash or line["hash"] != build_audit_hash(line):
            return seq
        expected, prev_hash = seq + 1, line["hash"]
    return None


# -- gauges ----------------------------------------------------------------------------------------


def count_rows(tx: Tx) -> Counts:
    """Count open items, unfinished runs, undelivered posts (those being sent included) and threads."""
    row = tx.one(
        "SELECT (SELECT count(*) FROM inbox WHERE state = 'open') AS inbox_open,"
        " (SELECT count(*) FROM run WHERE ended_at IS NULL) AS runs_active,"
        " (SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending')) AS outbox_pending,"
        " (SELECT count(*) FROM thread) AS threads"
    )
    if row is None:
        raise LookupError("a SELECT without FROM has one row")
    return Counts(**{name: row[name] for name in row.keys()})  # noqa: SIM118 - a Row is not a mapping
