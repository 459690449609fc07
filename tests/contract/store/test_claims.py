"""Whoever works on a thread holds its lease; a process that comes back late is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from agent_core.context import StepState
from bot.storage.base import Claim, Fenced, OutboxState, Store
from tests.contract.store.makers import (
    ALL,
    LEASE_S,
    A,
    B,
    D,
    answer,
    at,
    begin,
    claim,
    claim_nothing,
    new_entry,
    new_item,
    new_post,
    new_run,
    outcome,
    put,
)


async def test_an_empty_store_has_nothing_to_claim(store: Store) -> None:
    await claim_nothing(store)
    assert await store.next_wake(prefixes=ALL, now=at(0)) is None
    assert await store.list_owners() == ()


async def test_the_thread_that_waited_longest_comes_first(store: Store) -> None:
    await put(store, "late", thread=A, received_at=at(5))
    await put(store, "early", thread=B, received_at=at(1))
    await put(store, "early-again", thread=D, received_at=at(2))
    order = [(await claim(store, now=at(9))).thread_key for _ in range(3)]
    assert order == [B, D, A]


async def test_an_old_due_post_comes_before_a_younger_question(store: Store) -> None:
    await put(store, "e1", thread=A, received_at=at(5))
    await store.add_outbox(new_post("notice", B, created_at=at(1)))
    assert [(await claim(store, now=at(9))).thread_key for _ in range(2)] == [B, A]


async def test_a_claimed_thread_is_not_claimed_again_before_its_lease_ends(store: Store, other: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    assert (claimed.owner, claimed.epoch, claimed.lease_until) == ("p1", 1, at(LEASE_S))
    await claim_nothing(other, now=at(LEASE_S - 0.001))
    taken = await claim(other, "p2", now=at(LEASE_S))
    assert (taken.owner, taken.epoch) == ("p2", 2)


async def test_only_threads_with_a_wanted_prefix_are_claimed(store: Store) -> None:
    await put(store, "s", thread=A)
    await put(store, "d", thread=D, received_at=at(1))
    await claim_nothing(store, now=at(2), prefixes=())
    await claim_nothing(store, now=at(2), prefixes=("terminal:", "Slack:", "%", "slack_"))
    assert (await claim(store, now=at(2), prefixes=("terminal:", "discord:"))).thread_key == D
    assert (await claim(store, now=at(2), prefixes=("",))).thread_key == A


async def test_a_prefix_without_a_mark_at_its_end_is_the_key_of_one_thread(store: Store) -> None:
    for key in (A, f"{A}5", f"{A}x"):
        await put(store, key, thread=key)
    await claim_nothing(store, now=at(2), prefixes=(A[:-1],))
    assert (await claim(store, now=at(2), prefixes=(A,))).thread_key == A
    await claim_nothing(store, now=at(2), prefixes=(A,))
    assert await store.next_wake(prefixes=(A[:-1],), now=at(2)) is None
    assert await store.next_wake(prefixes=(A,), now=at(2)) is not None


async def test_a_released_thread_without_work_is_left_alone(store: Store) -> None:
    await put(store, "e1")
    await answer(store, "r1")
    await claim_nothing(store, now=at(1000))


async def test_a_released_thread_with_open_items_is_claimed_again_with_all_of_them(store: Store) -> None:
    await put(store, "e1")
    await store.release_claim(await claim(store))
    await put(store, "e2")
    again = await claim(store)
    assert again.epoch == 2
    assert [i.event_key for i in again.items] == ["e1", "e2"]


async def test_what_was_accepted_before_a_crash_is_claimed_by_the_next_process(store: Store, url: str) -> None:
    from bot.storage import open_store

    await put(store, "e1")
    await store.close()
    restarted = open_store(url)
    await restarted.open()
    try:
        assert [i.event_key for i in (await claim(restarted)).items] == ["e1"]
    finally:
        await restarted.close()


async def test_an_item_that_comes_during_a_run_waits_for_the_next_turn(store: Store) -> None:
    await put(store, "e1")
    first = await claim(store)
    await begin(store, first, "r1")
    await put(store, "e2")
    await claim_nothing(store)
    await store.finish_run(first, "r1", outcome("e1"))
    await store.release_claim(first)
    second = await claim(store)
    assert second.run is None
    assert [i.event_key for i in second.items] == ["e2"]


async def test_an_unfinished_run_is_handed_over_with_its_items_and_the_new_ones(store: Store) -> None:
    await put(store, "e1", "e2")
    first = await claim(store)
    await store.begin_run(first, new_run("r1"), [i.id for i in first.items])
    await put(store, "e3")
    second = await claim(store, "p2", now=at(LEASE_S))
    assert second.run is not None
    assert (second.run.run_id, second.run.attempt) == ("r1", 2)
    assert [(i.event_key, i.run_id) for i in second.items] == [("e1", "r1"), ("e2", "r1"), ("e3", None)]
    third = await claim(store, "p3", now=at(2 * LEASE_S))
    assert third.run is not None
    assert third.run.attempt == 3


async def test_a_renewed_lease_lasts_from_the_renewal_on(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await store.renew_claim(claimed, lease_s=LEASE_S, now=at(20))
    await claim_nothing(store, now=at(LEASE_S + 1))
    assert (await claim(store, now=at(20 + LEASE_S))).epoch == 2


async def test_a_lease_that_ran_out_is_still_ours_until_somebody_takes_it(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await store.renew_claim(claimed, lease_s=LEASE_S, now=at(10 * LEASE_S))
    await begin(store, claimed, "r1")
    assert len(await store.list_runs()) == 1


async def test_ten_askers_at_once_get_ten_different_threads(store: Store, other: Store) -> None:
    threads = [f"slack:T1/C1/{n}" for n in range(10)]
    for thread in threads:
        await put(store, f"e-{thread}", thread=thread)
    asks = [s.claim_thread(f"p{n}", prefixes=ALL, lease_s=5, now=at(0)) for n, s in enumerate([store, other] * 10)]
    claims = [c for c in await asyncio.gather(*asks) if c is not None]
    assert sorted(c.thread_key for c in claims) == sorted(threads)


Use = Callable[[Store, Claim, int], Awaitable[object]]

USES: dict[str, Use] = {
    "renew_claim": lambda s, c, post: s.renew_claim(c, lease_s=LEASE_S, now=at(0)),
    "begin_run": lambda s, c, post: s.begin_run(c, new_run("r2"), []),
    "begin_step": lambda s, c, post: s.begin_step(c, "r1", new_entry("s2"), at(0)),
    "finish_step": lambda s, c, post: s.finish_step(c, "r1", "s1", StepState.DONE, "late", at(0)),
    "finish_run": lambda s, c, post: s.finish_run(c, "r1", outcome("late", posts=(new_post("late"),))),
    "save_past": lambda s, c, post: s.save_past(c, "r1", None),
    "save_draft": lambda s, c, post: s.save_draft(c, "r1", "1700.8", at(0)),
    "split_outbox": lambda s, c, post: s.split_outbox(c, post, [new_post("late"), new_post("late/2")]),
    "drop_draft": lambda s, c, post: s.drop_draft(c, "r1"),
    "mark_signed": lambda s, c, post: s.mark_signed(c, c.items[0].id),
    "begin_send": lambda s, c, post: s.begin_send(c, post, now=at(0)),
    "finish_send": lambda s, c, post: s.finish_send(
        c, post, OutboxState.DELIVERED, remote_id="late", reason="", next_at=at(0)
    ),
}


async def _work_half_done(store: Store) -> tuple[Claim, int]:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    assert await store.begin_step(claimed, "r1", new_entry("s1"), at(0)) is None
    await store.add_outbox(new_post("p1"))
    (post,) = await store.load_outbox(A)
    return claimed, post.id


async def _see(store: Store) -> tuple[object, ...]:
    return (
        await store.load_run("r1"),
        await store.list_runs(),
        await store.load_messages(A),
        await store.load_outbox(A),
        await store.load_usage(since=at(-1)),
        await store.next_wake(prefixes=ALL, now=at(0)),
        await store.list_owners(),
    )


@pytest.mark.parametrize("verb", USES)
async def test_a_verb_with_a_claim_that_somebody_else_took_changes_nothing(
    store: Store, other: Store, verb: str
) -> None:
    old, post = await _work_half_done(store)
    await claim(other, "p2", now=at(LEASE_S))
    before = await _see(store)
    with pytest.raises(Fenced, match="p1"):
        await USES[verb](store, old, post)
    assert await _see(store) == before


@pytest.mark.parametrize("verb", USES)
async def test_a_verb_with_a_claim_that_was_given_back_is_fenced(store: Store, verb: str) -> None:
    old, post = await _work_half_done(store)
    await store.release_claim(old)
    before = await _see(store)
    with pytest.raises(Fenced):
        await USES[verb](store, old, post)
    assert await _see(store) == before


@pytest.mark.parametrize("verb", USES)
async def test_the_same_owner_claiming_again_fences_its_own_older_claim(store: Store, verb: str) -> None:
    old, post = await _work_half_done(store)
    await claim(store, "p1", now=at(LEASE_S))
    with pytest.raises(Fenced):
        await USES[verb](store, old, post)


@pytest.mark.parametrize("verb", USES)
async def test_every_verb_works_while_the_claim_stands(store: Store, verb: str) -> None:
    claimed, post = await _work_half_done(store)
    if verb == "begin_run":
        await store.finish_run(claimed, "r1", outcome())
    await USES[verb](store, claimed, post)


async def test_giving_back_a_lost_claim_leaves_the_new_owner_alone(store: Store) -> None:
    await put(store, "e1")
    old = await claim(store)
    new = await claim(store, "p2", now=at(LEASE_S))
    await store.release_claim(old)
    await store.release_claim(old)
    await claim_nothing(store, now=at(LEASE_S))
    await store.renew_claim(new, lease_s=LEASE_S, now=at(LEASE_S))


async def test_a_dead_owner_is_freed_at_once_and_only_this_one(store: Store) -> None:
    await put(store, "a", thread=A)
    await put(store, "b", thread=B, received_at=at(1))
    dead, alive = await claim(store, "dead", now=at(2)), await claim(store, "alive", now=at(2))
    assert await store.list_owners() == ("alive", "dead")
    await store.free_owner("dead")
    assert await store.list_owners() == ("alive",)
    with pytest.raises(Fenced):
        await store.renew_claim(dead, lease_s=LEASE_S, now=at(2))
    await store.renew_claim(alive, lease_s=LEASE_S, now=at(2))
    assert (await claim(store, "p3", now=at(3))).thread_key == A


async def test_owners_whose_lease_ran_out_are_still_listed(store: Store) -> None:
    await put(store, "e1")
    await claim(store, "gone")
    assert await store.list_owners() == ("gone",)


async def test_the_next_wake_is_the_first_lease_end_or_due_post_of_our_threads(store: Store) -> None:
    await put(store, "a", thread=A)
    await claim(store)
    await store.add_outbox(new_post("later", D, created_at=at(50)))
    assert await store.next_wake(prefixes=ALL, now=at(0)) == at(LEASE_S)
    assert await store.next_wake(prefixes=ALL, now=at(LEASE_S)) == at(50)
    assert await store.next_wake(prefixes=ALL, now=at(50)) is None
    assert await store.next_wake(prefixes=("discord:",), now=at(0)) == at(50)
    assert await store.next_wake(prefixes=("terminal:",), now=at(0)) is None


async def test_a_refused_begin_leaves_the_store_able_to_work(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    results = await asyncio.gather(
        store.begin_run(claimed, new_run("r2"), []),
        store.accept(new_item("e2"), queue_limit=9),
        store.begin_step(claimed, "r1", new_entry("s1"), at(0)),
        store.begin_run(claimed, new_run("r3"), []),
        store.accept(new_item("e3"), queue_limit=9),
        return_exceptions=True,
    )
    assert [isinstance(r, Exception) for r in results] == [True, False, False, True, False]
    assert [r.run_id for r in await store.list_runs()] == ["r1"]
