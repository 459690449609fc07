"""Usage, the audit chain and gauges."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from bot.storage.base import AuditRow, Store
from tests.contract.store.backends import Backend
from tests.contract.store.makers import A, at, begin, claim, new_post, new_usage, outcome, put


async def test_usage_is_told_from_an_instant_on_oldest_first(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    rows = (
        new_usage("r1", used_at=at(5), cost_usd=None),
        new_usage("r1", used_at=at(1), cost_usd=0.0),
        new_usage("r1/worker", used_at=at(3)),
    )
    await store.finish_run(claimed, "r1", outcome(usage=rows))
    assert await store.load_usage(since=at(3)) == (rows[2], rows[0])
    assert await store.load_usage(since=at(0)) == (rows[1], rows[2], rows[0])
    assert await store.load_usage(since=at(6)) == ()


async def _audit(store: Store, detail: str) -> None:
    await store.add_audit(at=at(0), actor="U1", action="tool", thread_key=A, run_id="r1", detail=detail)


async def test_an_empty_chain_is_whole(store: Store) -> None:
    assert await store.verify_audit() == (0, None)


async def test_each_audit_line_carries_the_hash_of_the_one_before(store: Store) -> None:
    first = await store.add_audit(at=at(0), actor="U1", action="tool", thread_key=A, run_id="r1", detail="{}")
    berlin = at(1).astimezone(timezone(timedelta(hours=1)))
    second = await store.add_audit(at=berlin, actor="U\ud800", action="", thread_key="", run_id="", detail="數")
    assert (first.seq, second.seq) == (1, 2)
    assert second.prev_hash == first.hash
    assert second.at == at(1)
    assert len(second.hash) == 64
    assert await store.verify_audit() == (2, None)


async def test_lines_written_at_once_by_two_stores_make_one_chain(store: Store, other: Store) -> None:
    await asyncio.gather(*(_audit(s, f"{n}") for n in range(20) for s in (store, other)))
    assert await store.verify_audit() == (40, None)


@pytest.mark.parametrize(
    ("sql", "lines", "misfit"),
    [
        ("UPDATE audit SET detail = 'nothing happened' WHERE seq = 3", 5, 3),
        ("UPDATE audit SET at = at + 1 WHERE seq = 2", 5, 2),
        ("UPDATE audit SET at = 9000000000000000000 WHERE seq = 2", 5, 2),
        ("UPDATE audit SET actor = 'U2' WHERE seq = 1", 5, 1),
        ("UPDATE audit SET hash = 'ff' WHERE seq = 5", 5, 5),
        ("UPDATE audit SET prev_hash = 'ff' WHERE seq = 4", 5, 4),
        ("DELETE FROM audit WHERE seq = 1", 4, 2),
        ("DELETE FROM audit WHERE seq = 3", 4, 4),
        ("INSERT INTO audit SELECT 0, at, actor, action, thread_key, run_id, detail, prev_hash, hash FROM audit"
         " WHERE seq = 1", 6, 0),
    ],
)  # fmt: skip
async def test_a_tampered_line_is_found(
    store: Store, backend: Backend, url: str, sql: str, lines: int, misfit: int
) -> None:
    for n in range(5):
        await _audit(store, f"line {n}")
    backend.run_sql(url, sql)
    assert await store.verify_audit() == (lines, misfit)


def _hash_again(line: AuditRow) -> str:
    """The hash as the store describes it, computed without it."""
    columns = {
        "seq": line.seq,
        "at": (line.at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1),
        "actor": line.actor,
        "action": line.action,
        "thread_key": line.thread_key,
        "run_id": line.run_id,
        "detail": line.detail,
        "prev_hash": line.prev_hash,
    }
    return hashlib.sha256(json.dumps(columns, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


async def test_a_line_that_was_changed_and_hashed_anew_is_betrayed_by_the_next_one(
    store: Store, backend: Backend, url: str
) -> None:
    lines = [
        await store.add_audit(at=at(n), actor="U1", action="tool", thread_key=A, run_id="r1", detail=f"é {n}")
        for n in range(4)
    ]
    assert [_hash_again(line) for line in lines] == [line.hash for line in lines]
    changed = replace(lines[1], detail="nothing")
    backend.run_sql(url, f"UPDATE audit SET detail = 'nothing', hash = '{_hash_again(changed)}' WHERE seq = 2")
    assert await store.verify_audit() == (4, 3)


async def test_a_last_line_that_was_renumbered_and_hashed_anew_does_not_fit(
    store: Store, backend: Backend, url: str
) -> None:
    await _audit(store, "line 1")
    last = await store.add_audit(at=at(0), actor="U1", action="tool", thread_key=A, run_id="r1", detail="")
    renumbered = replace(last, seq=9)
    backend.run_sql(url, f"UPDATE audit SET seq = 9, hash = '{_hash_again(renumbered)}' WHERE seq = 2")
    assert await store.verify_audit() == (2, 9)


async def test_a_tampered_line_is_found_in_a_chain_of_many_pages(store: Store, backend: Backend, url: str) -> None:
    await asyncio.gather(*(_audit(store, f"line {n}") for n in range(2100)))
    assert await store.verify_audit() == (2100, None)
    backend.run_sql(url, "UPDATE audit SET detail = 'x' WHERE seq IN (1001, 2050)")
    assert await store.verify_audit() == (2100, 1001)


async def test_gauges_count_what_waits(store: Store) -> None:
    await put(store, "e1", "e2")
    await put(store, "d1", thread="discord:G/1/2")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    await store.add_outbox(new_post("k1"))
    counts = await store.count_rows()
    assert (counts.inbox_open, counts.runs_active, counts.outbox_pending, counts.threads) == (1, 1, 1, 2)
