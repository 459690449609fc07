"""A run, its journal and its end."""

from __future__ import annotations

import pytest

from agent_core.context import StepState
from bot.storage.base import Fenced, InboxState, Store, StoreError
from tests.contract.store.makers import (
    LEASE_S,
    A,
    B,
    answer,
    at,
    begin,
    claim,
    claim_nothing,
    new_entry,
    new_item,
    new_post,
    new_run,
    new_usage,
    outcome,
    put,
)


async def test_a_thread_has_one_unfinished_run_at_a_time(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    with pytest.raises(StoreError, match="r1"):
        await store.begin_run(claimed, new_run("r2"), [])
    await store.finish_run(claimed, "r1", outcome())
    await store.begin_run(claimed, new_run("r2"), [])
    assert [r.run_id for r in await store.list_runs(thread_key=A)] == ["r2", "r1"]


async def test_a_run_id_is_used_once(store: Store) -> None:
    await put(store, "e1")
    await answer(store, "r1")
    await put(store, "b1", thread=B)
    claimed = await claim(store)
    with pytest.raises(StoreError, match="r1"):
        await store.begin_run(claimed, new_run("r1", B), [])


async def test_a_run_for_another_thread_than_the_claims_is_refused(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    with pytest.raises(StoreError, match="claim"):
        await store.begin_run(claimed, new_run("r1", B), [])


async def test_items_that_are_not_open_in_this_thread_are_refused_and_no_run_begins(store: Store) -> None:
    await put(store, "b1", thread=B)
    foreign = (await claim(store)).items[0].id
    await put(store, "a1", thread=A)
    claimed = await claim(store)
    for item_ids in ([foreign], [claimed.items[0].id, 999_999], [claimed.items[0].id] * 2):
        with pytest.raises(StoreError, match="not open"):
            await store.begin_run(claimed, new_run("r1"), item_ids)
    assert await store.load_run("r1") is None
    await begin(store, claimed, "r1")


async def test_a_runs_state_follows_its_steps(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    await store.begin_step(claimed, "r1", new_entry("model:1", kind="model"), at(1))
    assert (await store.list_runs())[0].state == "thinking"
    await store.begin_step(claimed, "r1", new_entry("tool:1", kind="tool"), at(2))
    assert (await store.list_runs())[0].state == "acting"
    with pytest.raises(StoreError, match="no run"):
        await store.begin_step(claimed, "r9", new_entry("model:1"), at(3))


async def test_a_new_step_runs_and_a_known_one_is_told(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    entry = new_entry("s1")
    assert await store.begin_step(claimed, "r1", entry, at(1)) is None
    assert await store.begin_step(claimed, "r1", entry, at(2)) == entry
    await store.finish_step(claimed, "r1", "s1", StepState.DONE, '{"v":42}', at(3))
    known = await store.begin_step(claimed, "r1", entry, at(4))
    assert known is not None
    assert (known.state, known.result, known.digest, known.effect) == (
        StepState.DONE,
        '{"v":42}',
        "digest of s1",
        "write",
    )


async def test_steps_are_numbered_in_the_order_of_their_beginning(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    for n, key in enumerate(("model/1", "tool/b", "tool/a")):
        await store.begin_step(claimed, "r1", new_entry(key), at(n))
    await store.finish_step(claimed, "r1", "tool/a", StepState.FAILED, "no", at(7))
    await store.finish_step(claimed, "r1", "tool/b", StepState.UNKNOWN, "", at(8))
    loaded = await store.load_run("r1")
    assert loaded is not None
    assert [(s.n, s.entry.key, s.entry.state, s.begun_at, s.ended_at) for s in loaded[1]] == [
        (1, "model/1", StepState.INTENT, at(0), None),
        (2, "tool/b", StepState.UNKNOWN, at(1), at(8)),
        (3, "tool/a", StepState.FAILED, at(2), at(7)),
    ]


async def test_the_next_owner_finds_the_journal_of_the_one_that_died(store: Store, other: Store) -> None:
    await put(store, "e1")
    dead = await claim(store)
    await begin(store, dead, "r1")
    await store.begin_step(dead, "r1", new_entry("s1"), at(1))
    await store.finish_step(dead, "r1", "s1", StepState.DONE, "one", at(2))
    await store.begin_step(dead, "r1", new_entry("s2"), at(3))
    heir = await claim(other, "p2", now=at(LEASE_S))
    first = await other.begin_step(heir, "r1", new_entry("s1"), at(40))
    second = await other.begin_step(heir, "r1", new_entry("s2"), at(40))
    third = await other.begin_step(heir, "r1", new_entry("s3"), at(40))
    assert first is not None
    assert (first.state, first.result) == (StepState.DONE, "one")
    assert second is not None
    assert second.state is StepState.INTENT
    assert third is None


async def test_a_step_is_finished_only_after_its_beginning_and_stays_done(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    with pytest.raises(StoreError, match="no step"):
        await store.finish_step(claimed, "r1", "s1", StepState.DONE, "x", at(1))
    await store.begin_step(claimed, "r1", new_entry("s1"), at(1))
    await store.finish_step(claimed, "r1", "s1", StepState.DONE, "x", at(2))
    await store.finish_step(claimed, "r1", "s1", StepState.DONE, "x", at(3))
    with pytest.raises(StoreError, match="already done"):
        await store.finish_step(claimed, "r1", "s1", StepState.FAILED, "y", at(4))


async def test_the_end_of_a_run_changes_everything_at_once(store: Store) -> None:
    await put(store, "e1", "e2")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    ended = outcome("hi", "hello", posts=(new_post("r1/1"), new_post("r1/2")), usage=(new_usage("r1"),), ended_at=at(9))
    await store.finish_run(claimed, "r1", ended)
    loaded = await store.load_run("r1")
    assert loaded is not None
    assert (loaded[0].state, loaded[0].ended_at, loaded[0].record) == ("finished", at(9), '{"steps":[]}')
    assert [(m.seq, m.run_id, m.body, m.tokens) for m in await store.load_messages(A)] == [
        (1, "r1", "hi", 2),
        (2, "r1", "hello", 5),
    ]
    assert [p.key for p in await store.load_outbox(A)] == ["r1/1", "r1/2"]
    assert await store.load_usage(since=at(0)) == (new_usage("r1"),)
    await store.release_claim(claimed)
    counts = await store.count_rows()
    assert (counts.inbox_open, counts.runs_active, counts.outbox_pending, counts.threads) == (0, 0, 2, 1)


async def test_an_end_that_fails_in_the_middle_changes_nothing(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    broken = outcome("hi", posts=(new_post("good"), new_post("bad", created_at=at(0).replace(tzinfo=None))))
    with pytest.raises(ValueError, match="zone"):
        await store.finish_run(claimed, "r1", broken)
    assert await store.load_messages(A) == ()
    assert await store.load_outbox(A) == ()
    loaded = await store.load_run("r1")
    assert loaded is not None
    assert loaded[0].ended_at is None
    again = await claim(store, now=at(LEASE_S))
    assert [i.state for i in again.items] == [InboxState.TAKEN]


async def test_a_run_ends_once(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    await store.finish_run(claimed, "r1", outcome("hi"))
    for again in (
        store.finish_run(claimed, "r1", outcome("hi")),
        store.begin_step(claimed, "r1", new_entry("late"), at(9)),
    ):
        with pytest.raises(StoreError, match="already over") as caught:
            await again
        assert not isinstance(caught.value, Fenced)
    assert len(await store.load_messages(A)) == 1


async def test_a_failed_run_keeps_its_reason(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    await store.finish_run(claimed, "r1", outcome(error="deadline"))
    (run,) = await store.list_runs()
    assert (run.state, run.error) == ("error", "deadline")
    await store.release_claim(claimed)
    await claim_nothing(store)


async def test_a_run_is_found_by_a_unique_prefix(store: Store) -> None:
    await put(store, "e1")
    await answer(store, "abc-1")
    await put(store, "e2")
    await answer(store, "abd-2")
    for name in ("abc-1", "abc"):
        loaded = await store.load_run(name)
        assert loaded is not None
        assert loaded[0].run_id == "abc-1"
    for nothing in ("", "abe", "abc-1x", "ab_", "AB", "%"):
        assert await store.load_run(nothing) is None
    with pytest.raises(StoreError, match="more than one"):
        await store.load_run("ab")


async def test_a_whole_id_wins_over_a_longer_one_that_starts_with_it(store: Store) -> None:
    await put(store, "e1")
    await answer(store, "r1")
    await put(store, "e2")
    await answer(store, "r10")
    loaded = await store.load_run("r1")
    assert loaded is not None
    assert loaded[0].run_id == "r1"


async def test_runs_are_listed_newest_first(store: Store) -> None:
    for n in range(4):
        await put(store, f"e{n}", thread=(A, B)[n % 2])
        claimed = await claim(store)
        await store.begin_run(claimed, new_run(f"r{n}", claimed.thread_key, started_at=at(n)), [claimed.items[0].id])
        await store.finish_run(claimed, f"r{n}", outcome())
        await store.release_claim(claimed)
    assert [r.run_id for r in await store.list_runs(limit=3)] == ["r3", "r2", "r1"]
    assert [r.run_id for r in await store.list_runs(thread_key=A)] == ["r2", "r0"]
    assert await store.list_runs(thread_key="slack:none") == ()


async def test_the_newest_part_of_a_history_comes_in_order(store: Store) -> None:
    for n in range(3):
        await put(store, f"e{n}")
        await answer(store, f"r{n}")
    assert [(m.seq, m.body) for m in await store.load_messages(A)] == [(1, "e0"), (2, "e1"), (3, "e2")]
    assert [m.body for m in await store.load_messages(A, limit=2)] == ["e1", "e2"]
    assert await store.load_messages(A, limit=0) == ()
    assert await store.load_messages(B) == ()


async def test_sessions_are_listed_by_last_activity_with_their_counts(store: Store) -> None:
    await put(store, "a1", thread=A, received_at=at(0))
    await answer(store, "r1", now=at(10))
    await put(store, "b1", thread=B, received_at=at(5))
    await store.add_outbox(new_post("notice", "slack:T1/C1/never-spoke", created_at=at(20)))
    sessions = await store.list_sessions()
    assert [(s.thread_key, s.messages, s.runs, s.tokens, s.last_at, s.busy) for s in sessions] == [
        (A, 1, 1, 2, at(10), False),
        (B, 0, 0, 0, at(5), True),
    ]
    assert len(await store.list_sessions(limit=1)) == 1


async def test_half_a_surrogate_pair_from_a_model_does_not_stop_a_run_from_ending(store: Store) -> None:
    await store.accept(new_item("e1"), queue_limit=5)
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    await store.finish_run(claimed, "r1", outcome("so\ud83d far \U0001f642"))
    assert [m.body for m in await store.load_messages(A)] == ["so\ufffd far \U0001f642"]
