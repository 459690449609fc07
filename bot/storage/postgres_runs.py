"""Runs, their journal, and the history that they leave. Functions inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

from agent_core.context import JournalEntry, StepState
from bot.storage.base import (
    Claim,
    NewInboxItem,
    NewMessage,
    RunOutcome,
    RunRow,
    SessionRow,
    StepRow,
    StoreError,
)
from bot.storage.postgres_claims import NO_LIMIT, accept, add_outbox, check_claim, ensure_thread, lock_thread
from bot.storage.postgres_connection import Row, Tx
from bot.storage.postgres_ledger import add_usage
from bot.storage.postgres_memory import append_messages, blank_message, lock_threads, save_summary
from bot.storage.rows import LAST_CHARACTER, build_micros, parse_entry, parse_micros, parse_run, parse_step

_FINAL = ("finished", "error")


async def begin_run(tx: Tx, claim: Claim, run: RunRow, item_ids: Sequence[int]) -> None:
    """Create a run of the claimed thread and bind open items to it."""
    await check_claim(tx, claim)
    if run.thread_key != claim.thread_key:
        raise StoreError(f"run {run.run_id} is for {run.thread_key}, the claim for {claim.thread_key}")
    if run.state in _FINAL or run.ended_at is not None:
        raise StoreError(f"run {run.run_id} cannot begin in the final state {run.state}")
    other = await tx.one(
        "SELECT run_id FROM run WHERE run_id = %s OR (thread_key = %s AND ended_at IS NULL)", run.run_id, run.thread_key
    )
    if other is not None:
        raise StoreError(f"run {run.run_id} cannot begin: {other['run_id']} exists and a thread has one run at a time")
    started_at = build_micros(run.started_at)
    await tx.do(
        "INSERT INTO run (run_id, thread_key, agent, state, attempt, started_at, error, record)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
        run.run_id,
        run.thread_key,
        run.agent,
        run.state,
        run.attempt,
        started_at,
        run.error,
        run.record,
    )
    for item_id in item_ids:
        bound = await tx.do(
            "UPDATE inbox SET state = 'taken', run_id = %s WHERE id = %s AND thread_key = %s AND state = 'open'",
            run.run_id,
            item_id,
            claim.thread_key,
        )
        if not bound:
            raise StoreError(f"item {item_id} is not open in {claim.thread_key}; the run was not begun")
    await tx.do(
        "UPDATE thread SET open_since = coalesce(open_since, %s), last_at = greatest(last_at, %s)"
        " WHERE thread_key = %s",
        started_at,
        started_at,
        claim.thread_key,
    )


async def begin_step(tx: Tx, claim: Claim, run_id: str, entry: JournalEntry, now: datetime) -> JournalEntry | None:
    """Record a step's intent and return None, or return what an earlier attempt recorded; the run's state follows."""
    await _check_unfinished(tx, claim, run_id)
    await tx.do(
        "UPDATE run SET state = %s WHERE run_id = %s", "thinking" if entry.kind == "model" else "acting", run_id
    )
    known = await tx.one("SELECT * FROM step WHERE run_id = %s AND key = %s", run_id, entry.key)
    if known is not None:
        return parse_entry(known)
    await tx.do(
        "INSERT INTO step (run_id, n, key, kind, name, digest, effect, state, result, begun_at)"
        " VALUES (%s, (SELECT coalesce(max(n), 0) + 1 FROM step WHERE run_id = %s), %s, %s, %s, %s, %s, %s, %s, %s)",
        run_id,
        run_id,
        entry.key,
        entry.kind,
        entry.name,
        entry.digest,
        entry.effect,
        entry.state.value,
        entry.result,
        build_micros(now),
    )
    return None


async def finish_step(
    tx: Tx, claim: Claim, run_id: str, key: str, state: StepState, result: str, now: datetime
) -> None:
    """Record how a step ended; one that is done stays as it is."""
    await _check_unfinished(tx, claim, run_id)
    known = await tx.one("SELECT state, result FROM step WHERE run_id = %s AND key = %s", run_id, key)
    if known is None:
        raise StoreError(f"run {run_id} has no step {key!r}; begin it before its effect")
    if known["state"] == StepState.DONE:
        if state == StepState.DONE and result == known["result"]:
            return
        raise StoreError(f"step {key!r} of run {run_id} is already done; nothing was changed")
    await tx.do(
        "UPDATE step SET state = %s, result = %s, ended_at = %s WHERE run_id = %s AND key = %s",
        state.value,
        result,
        None if state == StepState.INTENT else build_micros(now),
        run_id,
        key,
    )


async def finish_run(tx: Tx, claim: Claim, run_id: str, outcome: RunOutcome) -> None:
    """End a run with everything that follows from it."""
    if outcome.state not in _FINAL:
        raise StoreError(f"a run ends as one of {_FINAL}, not as {outcome.state}")
    key, ended_at = claim.thread_key, build_micros(outcome.ended_at)
    elsewhere = {item.thread_key for item in outcome.outbox} - {key}
    if elsewhere:
        await lock_threads(tx, key, *elsewhere)
    await _check_unfinished(tx, claim, run_id)
    for other in sorted(elsewhere):  # new ones, too, come in one order
        await ensure_thread(tx, other, ended_at)
    await tx.do(
        "UPDATE run SET state = %s, error = %s, reason = %s, record = %s, ended_at = %s WHERE run_id = %s",
        outcome.state,
        outcome.error,
        outcome.reason,
        outcome.record,
        ended_at,
        run_id,
    )
    await tx.do("UPDATE inbox SET state = 'done' WHERE run_id = %s AND state = 'taken'", run_id)
    for item_id in outcome.answered:
        await tx.do(
            "UPDATE inbox SET state = 'done', run_id = %s WHERE id = %s AND thread_key = %s AND state = 'open'",
            run_id,
            item_id,
            key,
        )
    await tx.do(
        "UPDATE inbox SET payload = '' WHERE run_id = %s AND said_id IN"
        " (SELECT said_id FROM erased WHERE thread_key = %s)",
        run_id,
        key,
    )
    await refresh_open_since(tx, key)
    await append_messages(tx, key, run_id, outcome.messages, ended_at)
    if outcome.summary is not None:
        await save_summary(tx, outcome.summary)
    for item in outcome.outbox:
        await add_outbox(tx, item)
    for usage in outcome.usage:
        await add_usage(tx, usage)
    if outcome.sequel:
        await tx.do("INSERT INTO sequel (run_id, body) VALUES (%s, %s)", run_id, outcome.sequel)


async def refresh_open_since(tx: Tx, thread_key: str) -> None:
    """Look again since when the thread waits for work; an unfinished run of it is waiting too."""
    await tx.do(
        "UPDATE thread SET open_since = coalesce("
        "(SELECT min(started_at) FROM run WHERE thread_key = %s AND ended_at IS NULL),"
        " (SELECT min(received_at) FROM inbox WHERE thread_key = %s AND state = 'open')) WHERE thread_key = %s",
        thread_key,
        thread_key,
        thread_key,
    )


async def erase_message(tx: Tx, item: NewInboxItem, now: datetime) -> Literal["dropped", "under way", "erased"]:
    """Take a message back, wherever it is; see ``Store.erase_message``."""
    key, said_id = item.thread_key, item.said_id
    if not said_id:
        raise StoreError(f"nothing says which message of {key} was deleted")
    await lock_thread(tx, key)
    await tx.do(
        "INSERT INTO erased (thread_key, said_id, erased_at) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        key,
        said_id,
        build_micros(now),
    )
    await blank_message(tx, key, said_id)
    rows = await tx.all("SELECT id, state FROM inbox WHERE thread_key = %s AND said_id = %s", key, said_id)
    await tx.do(
        "UPDATE inbox SET payload = '', state = CASE state WHEN 'open' THEN 'done' ELSE state END"
        " WHERE thread_key = %s AND said_id = %s AND state <> 'taken'",
        key,
        said_id,
    )
    if any(row["state"] == "taken" for row in rows):
        await accept(tx, replace(item, said_id=""), queue_limit=NO_LIMIT, refusal=None)
        return "under way"
    if not any(row["state"] == "open" for row in rows):
        return "erased"
    await refresh_open_since(tx, key)
    return "dropped"


async def save_past(tx: Tx, claim: Claim, run_id: str, message: NewMessage | None) -> None:
    """Put what was said before Hermod came into the history, or count a try that failed."""
    await _check_unfinished(tx, claim, run_id)
    if message is None:
        await tx.do("UPDATE thread SET past_left = greatest(past_left - 1, 0) WHERE thread_key = %s", claim.thread_key)
        return
    if not await tx.do("UPDATE thread SET past_left = 0 WHERE thread_key = %s AND past_left > 0", claim.thread_key):
        if await tx.one("SELECT 1 FROM thread WHERE thread_key = %s AND opened_from IS NOT NULL", claim.thread_key):
            return
        raise StoreError(f"what was said in {claim.thread_key} before is settled already; nothing was changed")
    await append_messages(tx, claim.thread_key, run_id, (message,), build_micros(message.created_at))


async def save_draft(tx: Tx, claim: Claim, run_id: str, remote_id: str, now: datetime) -> None:
    """Record what is visible of a run's answer."""
    await _check_unfinished(tx, claim, run_id)
    await tx.do(
        "INSERT INTO draft (run_id, thread_key, remote_id, shown_at) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (run_id) DO UPDATE SET remote_id = excluded.remote_id, shown_at = excluded.shown_at",
        run_id,
        claim.thread_key,
        remote_id,
        build_micros(now),
    )


async def load_draft(tx: Tx, run_id: str) -> str | None:
    """Return the platform's id of what is visible of a run's answer."""
    row = await tx.one("SELECT remote_id FROM draft WHERE run_id = %s", run_id)
    return None if row is None else str(row["remote_id"])


async def drop_draft(tx: Tx, claim: Claim, run_id: str) -> None:
    """Record that nothing of a run's answer is visible."""
    await check_claim(tx, claim)
    await tx.do("DELETE FROM draft WHERE run_id = %s", run_id)


async def load_run(tx: Tx, prefix: str) -> tuple[RunRow, tuple[StepRow, ...]] | None:
    """Return the run whose id is ``prefix``, or the only one whose id starts with it."""
    if not prefix:
        return None
    row = await tx.one("SELECT * FROM run WHERE run_id = %s", prefix)
    if row is None:
        rows = await tx.all(
            "SELECT * FROM run WHERE run_id >= %s AND run_id < %s LIMIT 2", prefix, prefix + LAST_CHARACTER
        )
        if len(rows) > 1:
            raise StoreError(
                f"more than one run starts with {prefix!r} ({rows[0]['run_id']}, ...); give more of the id"
            )
        if not rows:
            return None
        row = rows[0]
    steps = await tx.all("SELECT * FROM step WHERE run_id = %s ORDER BY n", row["run_id"])
    return parse_run(row), tuple(map(parse_step, steps))


async def list_runs(tx: Tx, thread_key: str | None, limit: int) -> tuple[RunRow, ...]:
    """Return the newest runs first."""
    if thread_key is None:
        rows = await tx.all("SELECT * FROM run ORDER BY started_at DESC, rowid DESC LIMIT %s", max(limit, 0))
    else:
        rows = await tx.all(
            "SELECT * FROM run WHERE thread_key = %s ORDER BY started_at DESC, rowid DESC LIMIT %s",
            thread_key,
            max(limit, 0),
        )
    return tuple(map(parse_run, rows))


_SILENT_ORIGIN = (
    "SELECT o.thread_key FROM thread o WHERE o.thread_key = t.opened_from"
    " AND NOT EXISTS (SELECT 1 FROM message m WHERE m.thread_key = o.thread_key)"
)


async def list_sessions(tx: Tx, limit: int, author: str) -> tuple[SessionRow, ...]:
    """Return threads with their counts; ``busy`` means open items or a run that is not final.

    A thread without a history that another was opened from is not listed; its runs count for that one.
    """
    used = "SELECT thread_key FROM usage WHERE author = %s"
    theirs = f"AND (t.thread_key IN ({used}) OR t.opened_from IN ({used}))" if author else ""
    rows = await tx.all(
        "SELECT t.thread_key, t.last_at, t.open_since IS NOT NULL AS busy,"
        " (SELECT count(*) FROM message m WHERE m.thread_key = t.thread_key) AS messages,"
        " (SELECT coalesce(sum(m.tokens), 0)::bigint FROM message m WHERE m.thread_key = t.thread_key) AS tokens,"
        f" (SELECT count(*) FROM run r WHERE r.thread_key IN (t.thread_key, ({_SILENT_ORIGIN}))) AS runs"
        " FROM thread t WHERE (t.last_seq > 0 OR t.opened_from IS NOT NULL)"
        " AND NOT (EXISTS (SELECT 1 FROM thread o WHERE o.opened_from = t.thread_key)"
        " AND NOT EXISTS (SELECT 1 FROM message m WHERE m.thread_key = t.thread_key))"
        f" {theirs} ORDER BY t.last_at DESC, t.id DESC LIMIT %s",
        *((author, author) if author else ()),
        max(limit, 0),
    )
    return tuple(
        SessionRow(
            thread_key=row["thread_key"],
            messages=row["messages"],
            runs=row["runs"],
            tokens=row["tokens"],
            last_at=parse_micros(row["last_at"]),
            busy=bool(row["busy"]),
        )
        for row in rows
    )


async def _check_unfinished(tx: Tx, claim: Claim, run_id: str) -> Row:
    """Return the run if the claim stands and the run is the claimed thread's and not over.

    A run that is over is refused with ``StoreError``, not ``Fenced``: the claim may well stand, and whoever
    ends a run twice made a mistake of their own.
    """
    await check_claim(tx, claim)
    row = await tx.one("SELECT * FROM run WHERE run_id = %s AND thread_key = %s", run_id, claim.thread_key)
    if row is None:
        raise StoreError(f"there is no run {run_id} in {claim.thread_key}; nothing was changed")
    if row["ended_at"] is not None:
        raise StoreError(f"run {run_id} is already over ({row['state']}); nothing was changed")
    return row
