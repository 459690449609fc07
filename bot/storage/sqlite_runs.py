"""Runs, their journal, and the history that they leave. Plain functions inside a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from agent_core.context import JournalEntry, StepState
from bot.storage.base import (
    Claim,
    RunOutcome,
    RunRow,
    SessionRow,
    StepRow,
    StoreError,
)
from bot.storage.sqlite_claims import add_outbox, check_claim
from bot.storage.sqlite_connection import Tx
from bot.storage.sqlite_ledger import add_usage
from bot.storage.sqlite_memory import add_message, save_summary
from bot.storage.sqlite_rows import (
    LAST_CHARACTER,
    build_micros,
    parse_entry,
    parse_micros,
    parse_run,
    parse_step,
)

_FINAL = ("finished", "error")


def begin_run(tx: Tx, claim: Claim, run: RunRow, item_ids: Sequence[int]) -> None:
    """Create a run of the claimed thread and bind open items to it."""
    check_claim(tx, claim)
    if run.thread_key != claim.thread_key:
        raise StoreError(f"run {run.run_id} is for {run.thread_key}, the claim for {claim.thread_key}")
    if run.state in _FINAL or run.ended_at is not None:
        raise StoreError(f"run {run.run_id} cannot begin in the final state {run.state}")
    other = tx.one(
        "SELECT run_id FROM run WHERE run_id = ? OR (thread_key = ? AND ended_at IS NULL)", run.run_id, run.thread_key
    )
    if other is not None:
        raise StoreError(f"run {run.run_id} cannot begin: {other['run_id']} exists and a thread has one run at a time")
    started_at = build_micros(run.started_at)
    tx.do(
        "INSERT INTO run (run_id, thread_key, agent, state, attempt, started_at, error, record)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
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
        bound = tx.do(
            "UPDATE inbox SET state = 'taken', run_id = ? WHERE id = ? AND thread_key = ? AND state = 'open'",
            run.run_id,
            item_id,
            claim.thread_key,
        )
        if not bound:
            raise StoreError(f"item {item_id} is not open in {claim.thread_key}; the run was not begun")
    tx.do(
        "UPDATE thread SET open_since = coalesce(open_since, ?), last_at = max(last_at, ?) WHERE thread_key = ?",
        started_at,
        started_at,
        claim.thread_key,
    )


def begin_step(tx: Tx, claim: Claim, run_id: str, entry: JournalEntry, now: datetime) -> JournalEntry | None:
    """Record a step's intent and return None, or return what an earlier attempt recorded; the run's state follows."""
    _check_unfinished(tx, claim, run_id)
    tx.do("UPDATE run SET state = ? WHERE run_id = ?", "thinking" if entry.kind == "model" else "acting", run_id)
    known = tx.one("SELECT * FROM step WHERE run_id = ? AND key = ?", run_id, entry.key)
    if known is not None:
        return parse_entry(known)
    tx.do(
        "INSERT INTO step (run_id, n, key, kind, name, digest, effect, state, result, begun_at)"
        " VALUES (?, (SELECT coalesce(max(n), 0) + 1 FROM step WHERE run_id = ?), ?, ?, ?, ?, ?, ?, ?, ?)",
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


def finish_step(tx: Tx, claim: Claim, run_id: str, key: str, state: StepState, result: str, now: datetime) -> None:
    """Record how a step ended; one that is done stays as it is."""
    _check_unfinished(tx, claim, run_id)
    known = tx.one("SELECT state, result FROM step WHERE run_id = ? AND key = ?", run_id, key)
    if known is None:
        raise StoreError(f"run {run_id} has no step {key!r}; begin it before its effect")
    if known["state"] == StepState.DONE:
        if state == StepState.DONE and result == known["result"]:
            return
        raise StoreError(f"step {key!r} of run {run_id} is already done; nothing was changed")
    tx.do(
        "UPDATE step SET state = ?, result = ?, ended_at = ? WHERE run_id = ? AND key = ?",
        state.value,
        result,
        None if state == StepState.INTENT else build_micros(now),
        run_id,
        key,
    )


def finish_run(tx: Tx, claim: Claim, run_id: str, outcome: RunOutcome) -> None:
    """End a run with everything that follows from it."""
    if outcome.state not in _FINAL:
        raise StoreError(f"a run ends as one of {_FINAL}, not as {outcome.state}")
    _check_unfinished(tx, claim, run_id)
    key, ended_at = claim.thread_key, build_micros(outcome.ended_at)
    tx.do(
        "UPDATE run SET state = ?, error = ?, record = ?, ended_at = ? WHERE run_id = ?",
        outcome.state,
        outcome.error,
        outcome.record,
        ended_at,
        run_id,
    )
    tx.do("UPDATE inbox SET state = 'done' WHERE run_id = ? AND state = 'taken'", run_id)
    (thread,) = tx.all(
        "UPDATE thread SET last_message_seq = last_message_seq + ?, last_at = max(last_at, ?),"
        " open_since = (SELECT min(received_at) FROM inbox WHERE thread_key = ? AND state = 'open')"
        " WHERE thread_key = ? RETURNING last_message_seq",
        len(outcome.messages),
        ended_at,
        key,
        key,
    )
    first = thread["last_message_seq"] - len(outcome.messages) + 1
    for seq, message in enumerate(outcome.messages, start=first):
        add_message(tx, key, seq, run_id, message)
    if outcome.summary is not None:
        save_summary(tx, outcome.summary)
    for item in outcome.outbox:
        add_outbox(tx, item)
    for usage in outcome.usage:
        add_usage(tx, usage)


def load_run(tx: Tx, prefix: str) -> tuple[RunRow, tuple[StepRow, ...]] | None:
    """Return the run whose id is ``prefix``, or the only one whose id starts with it."""
    if not prefix:
        return None
    row = tx.one("SELECT * FROM run WHERE run_id = ?", prefix)
    if row is None:
        rows = tx.all("SELECT * FROM run WHERE run_id >= ? AND run_id < ? LIMIT 2", prefix, prefix + LAST_CHARACTER)
        if len(rows) > 1:
            raise StoreError(
                f"more than one run starts with {prefix!r} ({rows[0]['run_id']}, ...); give more of the id"
            )
        if not rows:
            return None
        row = rows[0]
    steps = tx.all("SELECT * FROM step WHERE run_id = ? ORDER BY n", row["run_id"])
    return parse_run(row), tuple(map(parse_step, steps))


def list_runs(tx: Tx, thread_key: str | None, limit: int) -> tuple[RunRow, ...]:
    """Return the newest runs first."""
    if thread_key is None:
        rows = tx.all("SELECT * FROM run ORDER BY started_at DESC, rowid DESC LIMIT ?", max(limit, 0))
    else:
        rows = tx.all(
            "SELECT * FROM run WHERE thread_key = ? ORDER BY started_at DESC, rowid DESC LIMIT ?",
            thread_key,
            max(limit, 0),
        )
    return tuple(map(parse_run, rows))


def list_sessions(tx: Tx, limit: int) -> tuple[SessionRow, ...]:
    """Return threads with their counts; ``busy`` means open items or a run that is not final."""
    rows = tx.all(
        "SELECT t.thread_key, t.last_at, t.open_since IS NOT NULL AS busy,"
        " (SELECT count(*) FROM message m WHERE m.thread_key = t.thread_key) AS messages,"
        " (SELECT coalesce(sum(m.tokens), 0) FROM message m WHERE m.thread_key = t.thread_key) AS tokens,"
        " (SELECT count(*) FROM run r WHERE r.thread_key = t.thread_key) AS runs"
        " FROM thread t WHERE t.last_seq > 0 ORDER BY t.last_at DESC, t.id DESC LIMIT ?",
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


def _check_unfinished(tx: Tx, claim: Claim, run_id: str) -> sqlite3.Row:
    """Return the run if the claim stands and the run is the claimed thread's and not over.

    A run that is over is refused with ``StoreError``, not ``Fenced``: the claim may well stand, and whoever
    ends a run twice made a mistake of their own.
    """
    check_claim(tx, claim)
    row = tx.one("SELECT * FROM run WHERE run_id = ? AND thread_key = ?", run_id, claim.thread_key)
    if row is None:
        raise StoreError(f"there is no run {run_id} in {claim.thread_key}; nothing was changed")
    if row["ended_at"] is not None:
        raise StoreError(f"run {run_id} is already over ({row['state']}); nothing was changed")
    return row
