"""Posts leave a thread in order, each under one key, at their time."""

from __future__ import annotations

import pytest

from bot.storage.base import Claim, OutboxState, Store, StoreError
from tests.contract.store.makers import LEASE_S, A, B, answer, at, claim, claim_nothing, new_post, put


async def _finish(store: Store, claimed: Claim, post: int, state: OutboxState, *, next_at_s: float = 0.0) -> None:
    remote_id = "1700.9" if state is OutboxState.DELIVERED else None
    await store.finish_send(claimed, post, state, remote_id=remote_id, reason="because", next_at=at(next_at_s))


async def test_the_same_key_is_queued_once(store: Store) -> None:
    await store.add_outbox(new_post("k1"))
    await store.add_outbox(new_post("k1", B))
    (post,) = await store.load_outbox(A)
    assert (post.key, post.body, post.state, post.attempts, post.next_at) == (
        "k1",
        "body of k1",
        OutboxState.PENDING,
        0,
        at(0),
    )
    assert await store.load_outbox(B) == ()


async def test_a_notice_makes_its_thread_claimable(store: Store) -> None:
    await store.add_outbox(new_post("k1", created_at=at(5)))
    await claim_nothing(store, now=at(4))
    claimed = await claim(store, now=at(5))
    assert claimed.items == ()
    assert [p.key for p in claimed.outbox] == ["k1"]


async def test_a_post_that_a_crash_left_in_sending_is_handed_to_the_next_owner(store: Store) -> None:
    await put(store, "e1")
    await answer(store, "r1", posts=(new_post("k1"), new_post("k2")))
    claimed = await claim(store)
    await store.begin_send(claimed, claimed.outbox[0].id, now=at(0))
    heir = await claim(store, "p2", now=at(LEASE_S))
    assert [(p.key, p.state, p.attempts) for p in heir.outbox] == [
        ("k1", OutboxState.SENDING, 1),
        ("k2", OutboxState.PENDING, 0),
    ]


async def test_a_delivered_thread_has_no_more_work(store: Store) -> None:
    await store.add_outbox(new_post("k1"))
    claimed = await claim(store)
    await store.begin_send(claimed, claimed.outbox[0].id, now=at(0))
    await _finish(store, claimed, claimed.outbox[0].id, OutboxState.DELIVERED)
    (post,) = await store.load_outbox(A)
    assert (post.state, post.remote_id, post.attempts, post.reason) == (OutboxState.DELIVERED, "1700.9", 1, "because")
    await store.release_claim(claimed)
    await claim_nothing(store, now=at(9999))
    assert (await store.count_rows()).outbox_pending == 0


async def test_a_post_that_has_to_wait_holds_back_the_later_ones(store: Store) -> None:
    for key in ("k1", "k2", "k3"):
        await store.add_outbox(new_post(key))
    claimed = await claim(store)
    first, second, third = (p.id for p in claimed.outbox)
    await store.begin_send(claimed, first, now=at(0))
    await _finish(store, claimed, first, OutboxState.DELIVERED)
    await store.begin_send(claimed, second, now=at(0))
    await _finish(store, claimed, second, OutboxState.PENDING, next_at_s=60)
    await store.release_claim(claimed)
    await claim_nothing(store, now=at(59))
    assert await store.next_wake(prefixes=("slack:",), now=at(1)) == at(60)
    assert [p.id for p in (await claim(store, now=at(60))).outbox] == [second, third]


async def test_a_thread_with_a_waiting_post_is_claimed_for_a_question_without_its_posts(store: Store) -> None:
    await store.add_outbox(new_post("k1", created_at=at(60)))
    await store.add_outbox(new_post("k2"))
    await put(store, "e1")
    claimed = await claim(store, now=at(1))
    assert len(claimed.items) == 1
    assert claimed.outbox == ()


async def test_a_failed_post_is_given_up_and_lets_the_later_ones_go(store: Store) -> None:
    await store.add_outbox(new_post("k1"))
    await store.add_outbox(new_post("k2"))
    claimed = await claim(store)
    await store.begin_send(claimed, claimed.outbox[0].id, now=at(0))
    await _finish(store, claimed, claimed.outbox[0].id, OutboxState.FAILED)
    await store.release_claim(claimed)
    assert [p.key for p in (await claim(store)).outbox] == ["k2"]


async def test_each_try_is_counted(store: Store) -> None:
    await store.add_outbox(new_post("k1"))
    for n in range(3):
        claimed = await claim(store, now=at(10 * n))
        await store.begin_send(claimed, claimed.outbox[0].id, now=at(0))
        await _finish(store, claimed, claimed.outbox[0].id, OutboxState.PENDING, next_at_s=10 * (n + 1))
        await store.release_claim(claimed)
    assert [p.attempts for p in await store.load_outbox(A)] == [3]


@pytest.mark.parametrize("state", [OutboxState.DELIVERED, OutboxState.FAILED])
async def test_what_is_settled_is_not_sent_again(store: Store, state: OutboxState) -> None:
    await store.add_outbox(new_post("k1"))
    claimed = await claim(store)
    post = claimed.outbox[0].id
    await _finish(store, claimed, post, state)
    with pytest.raises(StoreError, match="already"):
        await store.begin_send(claimed, post, now=at(0))
    with pytest.raises(StoreError, match="already"):
        await _finish(store, claimed, post, OutboxState.PENDING)
    assert [p.state for p in await store.load_outbox(A)] == [state]


async def test_a_post_of_another_thread_is_out_of_reach(store: Store) -> None:
    await store.add_outbox(new_post("b1", B))
    (foreign,) = await store.load_outbox(B)
    await store.add_outbox(new_post("a1", A, created_at=at(-5)))
    claimed = await claim(store)
    assert claimed.thread_key == A
    with pytest.raises(StoreError, match="no post"):
        await store.begin_send(claimed, foreign.id, now=at(0))


async def test_a_run_may_post_into_another_thread(store: Store) -> None:
    await put(store, "e1")
    await answer(store, "r1", posts=(new_post("report", B),))
    claimed = await claim(store)
    assert (claimed.thread_key, [p.key for p in claimed.outbox]) == (B, ["report"])
