"""A verb never blocks the event loop, and survives being cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from pathlib import Path
from typing import cast

import pytest

from agent_core.context import StepState
from bot.storage import open_store
from bot.storage.base import OutboxState, Store, StoreError
from bot.storage.snapshots import Snapshot, Statement
from tests.contract.store.backends import Backend
from tests.contract.store.makers import (
    ALL,
    LEASE_S,
    A,
    at,
    begin,
    claim,
    new_entry,
    new_item,
    new_post,
    new_run,
    new_usage,
    outcome,
    put,
)


async def _every_verb(store: Store) -> None:
    await store.ping()
    await store.accept(new_item("e1", payload="x" * 1_000_000), queue_limit=9, refusal=new_post("no"))
    await store.knows_thread(A)
    claimed = await claim(store)
    await store.renew_claim(claimed, lease_s=LEASE_S, now=at(1))
    await store.begin_run(claimed, new_run("r1"), [i.id for i in claimed.items])
    await store.begin_step(claimed, "r1", new_entry("s1"), at(1))
    await store.finish_step(claimed, "r1", "s1", StepState.DONE, "y" * 1_000_000, at(1))
    posts = tuple(new_post(f"k{n}") for n in range(50))
    await store.finish_run(claimed, "r1", outcome(*map(str, range(200)), posts=posts, usage=(new_usage("r1"),)))
    await store.load_run("r1")
    await store.list_runs()
    await store.load_messages(A)
    await store.list_sessions()
    await store.add_outbox(new_post("notice"))
    (first, *_) = await store.load_outbox(A)
    await store.begin_send(claimed, first.id, now=at(0))
    await store.finish_send(claimed, first.id, OutboxState.DELIVERED, remote_id="1", reason="", next_at=at(1))
    await store.load_usage(since=at(0))
    for _ in range(50):
        await store.add_audit(at=at(0), actor="U", action="a", thread_key=A, run_id="r1", detail="d" * 1000)
    await store.verify_audit()
    rows = {f"key {n}": "1" * 100 for n in range(5_000)}
    for minute in range(3):
        await store.save_snapshot(Snapshot(target="t", taken_at=at(minute), head="", rows=rows))
    await store.find_snapshot("t", at=at(0), side="before")
    await store.list_snapshots("t", start=at(0), end=at(9))
    known = [Statement(key=key, fingerprint="f", sql="s" * 1000, db="d", user="u", own=False) for key in rows]
    await store.save_statements("t", known)
    await store.load_statements("t")
    await store.list_unknown("t", limit=9)
    await store.drop_snapshots(before=at(9))
    await store.hold_lease("l", "p1", lease_s=9, now=at(0))
    await store.end_lease("l", "p1")
    await store.count_rows()
    await store.next_wake(prefixes=ALL, now=at(0))
    await store.list_owners()
    await store.release_claim(claimed)
    await store.free_owner("p1")


class _Named:
    """A store that tells which verb was asked last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked = ""

    def __getattr__(self, name: str) -> object:
        self.asked = name
        return getattr(self._store, name)


class _Listener(logging.Handler):
    """Collects the verbs that the event loop calls slow."""

    def __init__(self, named: _Named) -> None:
        super().__init__()
        self._named = named
        self.slow: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if "took" in record.getMessage():
            self.slow.add(self._named.asked)


async def test_no_verb_is_a_slow_callback(backend: Backend, tmp_path: Path) -> None:
    """A verb that blocks the loop does so each time; a busy machine stops now this one, now that one."""
    loop = asyncio.get_running_loop()
    slow: set[str] | None = None
    for n in range(8):
        folder = tmp_path / f"round{n}"
        folder.mkdir()
        store = open_store(backend.build_url(folder))
        await store.open()
        named = _Named(store)
        listener = _Listener(named)
        logging.getLogger("asyncio").addHandler(listener)
        loop.set_debug(True)
        loop.slow_callback_duration = 0.1
        try:
            await _every_verb(cast(Store, named))
        finally:
            loop.set_debug(False)
            logging.getLogger("asyncio").removeHandler(listener)
            await store.close()
        slow = listener.slow if slow is None else slow & listener.slow
        if not slow:
            break
    assert slow == set()


async def test_a_cancelled_caller_takes_nobody_else_down(store: Store) -> None:
    calls: list[Awaitable[object]] = [store.accept(new_item(f"e{n}"), queue_limit=99) for n in range(20)]
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    stored = [i.event_key for i in (await claim(store)).items]
    for n, result in enumerate(results):
        if n % 3:
            assert not isinstance(result, BaseException)
            assert f"e{n}" in stored
    await put(store, "after")


async def test_closing_finishes_what_was_handed_in(url: str) -> None:
    store = open_store(url)
    await store.open()
    tasks = [asyncio.create_task(store.accept(new_item(f"e{n}"), queue_limit=999)) for n in range(200)]
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    assert {(await task).outcome for task in tasks} == {"new"}
    await store.open()
    try:
        assert len((await claim(store)).items) == 200
    finally:
        await store.close()


async def test_a_store_that_is_not_open_says_so(url: str) -> None:
    store = open_store(url)
    for use in (store.ping(), store.accept(new_item("e1"), queue_limit=1), store.count_rows()):
        with pytest.raises(StoreError, match="not open"):
            await use
    await store.close()


async def test_a_run_begun_twice_at_once_begins_once(store: Store, other: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    results = await asyncio.gather(begin(store, claimed, "r1"), begin(other, claimed, "r2"), return_exceptions=True)
    assert sorted(isinstance(r, StoreError) for r in results) == [False, True]
    assert len(await store.list_runs()) == 1
