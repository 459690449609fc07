"""What is only added, on Postgres: usage, feedback, the audit chain; and the gauges. The verbs and their functions."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import cast

from bot.storage.base import AuditRow, Counts, FeedbackRow, StoreError, UsageRow
from bot.storage.postgres_claims import lock_thread
from bot.storage.postgres_connection import Connections, Tx, clean
from bot.storage.rows import build_micros, parse_feedback, parse_micros, parse_usage
from bot.storage.sqlite_ledger import FIRST_PREV_HASH, build_audit_hash, find_misfit

_AUDIT_PAGE = 1000
_BEFORE_ALL = -(2**63)
_HASHED = ("seq", "at", "actor", "action", "thread_key", "run_id", "detail", "prev_hash")


class PostgresLedger:
    """The verbs of ``base.Store`` for usage, feedback, audit and gauges; what they mean is said there."""

    _db: Connections

    async def load_usage(self, *, since: datetime, author: str = "") -> tuple[UsageRow, ...]:
        """Return usage rows since an instant."""
        return await self._db.read(partial(load_usage, since=since, author=author))

    async def save_feedback(self, row: FeedbackRow) -> None:
        """Record what somebody thought of an answer."""
        await self._db.run(partial(save_feedback, row=row))

    async def load_feedback(self, *, since: datetime, limit: int = 1000) -> tuple[FeedbackRow, ...]:
        """Return what people thought since an instant."""
        return await self._db.read(partial(load_feedback, since=since, limit=limit))

    async def add_audit(
        self, *, at: datetime, actor: str, action: str, thread_key: str, run_id: str, detail: str
    ) -> AuditRow:
        """Append to the audit chain."""
        work = partial(
            add_audit, at=at, actor=actor, action=action, thread_key=thread_key, run_id=run_id, detail=detail
        )
        return await self._db.run(work)

    async def verify_audit(self) -> tuple[int, int | None]:
        """Check the chain page by page, so that a long one takes little memory and keeps no connection busy."""
        lines = 0
        misfit: int | None = None
        last: dict[str, object] | None = None
        while page := await self._load_audit_page(last):
            if misfit is None:
                misfit = find_misfit(page, last)
            last = page[-1]
            lines += len(page)
        return lines, misfit

    async def _load_audit_page(self, last: dict[str, object] | None) -> list[dict[str, object]]:
        after_seq = _BEFORE_ALL if last is None else cast(int, last["seq"])
        return await self._db.read(partial(load_audit, after_seq=after_seq, limit=_AUDIT_PAGE))

    async def count_rows(self) -> Counts:
        """Return the gauges."""
        return await self._db.read(count_rows)


# -- usage and feedback ----------------------------------------------------------------------------


async def add_usage(tx: Tx, usage: UsageRow) -> None:
    """Add what a run used."""
    await tx.do(
        "INSERT INTO usage (run_id, thread_key, author, provider, model, requests, input_tokens, output_tokens,"
        " cost_usd, at, cached_input_tokens, cache_write_tokens)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
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


async def load_usage(tx: Tx, since: datetime, author: str) -> tuple[UsageRow, ...]:
    """Return usage from ``since`` on, oldest first; of one author, or of everybody."""
    theirs, values = ("AND author = %s", (author,)) if author else ("", ())
    rows = await tx.all(f"SELECT * FROM usage WHERE at >= %s {theirs} ORDER BY at, id", build_micros(since), *values)
    return tuple(map(parse_usage, rows))


async def save_feedback(tx: Tx, row: FeedbackRow) -> None:
    """Record an opinion in place of the same person's earlier one."""
    if await tx.one("SELECT 1 FROM run WHERE run_id = %s", row.run_id) is None:
        raise StoreError(f"there is no run {row.run_id!r}")
    await lock_thread(tx, row.thread_key)
    await tx.do(
        "INSERT INTO feedback (run_id, author, thread_key, value, at) VALUES (%s, %s, %s, %s, %s)"
        " ON CONFLICT (run_id, author) DO UPDATE SET value = excluded.value, at = excluded.at",
        row.run_id,
        row.author,
        row.thread_key,
        row.value,
        build_micros(row.at),
    )


async def load_feedback(tx: Tx, since: datetime, limit: int) -> tuple[FeedbackRow, ...]:
    """Return opinions from ``since`` on, newest first."""
    rows = await tx.all(
        "SELECT * FROM feedback WHERE at >= %s ORDER BY at DESC, run_id, author LIMIT %s",
        build_micros(since),
        max(limit, 0),
    )
    return tuple(map(parse_feedback, rows))


# -- audit -----------------------------------------------------------------------------------------


async def add_audit(
    tx: Tx, at: datetime, actor: str, action: str, thread_key: str, run_id: str, detail: str
) -> AuditRow:
    """Append a line to the chain and return it.

    One append at a time, in whichever process: the lock is held until the transaction ends, and the statement after
    it sees what was committed meanwhile. A lock on the newest line would not do, for who waited for it would see it
    as the newest still.
    """
    await tx.one("SELECT pg_advisory_xact_lock(hashtextextended('hermod:audit', 0))")
    last = await tx.one("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1")
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
    columns: dict[str, object] = {name: getattr(line, name) for name in _HASHED} | {"at": build_micros(at)}
    line = replace(line, hash=build_audit_hash(columns))
    await tx.do(
        f"INSERT INTO audit ({', '.join(_HASHED)}, hash) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        *columns.values(),
        line.hash,
    )
    return line


async def load_audit(tx: Tx, after_seq: int, limit: int) -> list[dict[str, object]]:
    """Return up to ``limit`` lines after one of them, in order, as the table has them (they may be tampered with)."""
    rows = await tx.all("SELECT * FROM audit WHERE seq > %s ORDER BY seq LIMIT %s", after_seq, limit)
    return [dict(row) for row in rows]


# -- gauges ----------------------------------------------------------------------------------------


async def count_rows(tx: Tx) -> Counts:
    """Count open items, unfinished runs, undelivered posts (those being sent included) and threads."""
    (row,) = await tx.all(
        "SELECT (SELECT count(*) FROM inbox WHERE state = 'open') AS inbox_open,"
        " (SELECT count(*) FROM run WHERE ended_at IS NULL) AS runs_active,"
        " (SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending')) AS outbox_pending,"
        " (SELECT count(*) FROM thread) AS threads"
    )
    return Counts(**row)
