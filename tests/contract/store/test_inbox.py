"""What comes in is stored once, in order, within the queue's limit."""

from __future__ import annotations

import asyncio

import pytest

from bot.storage.base import InboxState, OutboxState, Store
from tests.contract.store.makers import A, B, D, answer, at, claim, claim_nothing, new_item, new_post, put


async def test_an_accepted_item_comes_back_as_it_went_in(store: Store) -> None:
    accepted = await store.accept(new_item("e1", payload='{"text":"naïve 數據 🙂 \\u0000"}'), queue_limit=5)
    assert (accepted.outcome, accepted.seq) == ("new", 1)
    (item,) = (await claim(store)).items
    assert item.event_key == "e1"
    assert item.thread_key == A
    assert item.seq == 1
    assert item.kind == "message"
    assert item.payload == '{"text":"naïve 數據 🙂 \\u0000"}'
    assert item.received_at == at(0)
    assert item.state is InboxState.OPEN
    assert item.run_id is None


async def test_the_same_event_is_stored_once_however_often_it_is_delivered(store: Store, other: Store) -> None:
    deliveries = [store.accept(new_item("e1"), queue_limit=5) for _ in range(4)]
    deliveries += [other.accept(new_item("e1"), queue_limit=5) for _ in range(4)]
    outcomes = await asyncio.gather(*deliveries)
    assert sorted(o.outcome for o in outcomes) == ["duplicate"] * 7 + ["new"]
    assert {o.seq for o in outcomes} == {1}
    assert len((await claim(store)).items) == 1


async def test_a_redelivery_after_the_answer_is_still_a_duplicate(store: Store) -> None:
    await put(store, "e1")
    await answer(store, "r1")
    accepted = await store.accept(new_item("e1", received_at=at(86_000)), queue_limit=5)
    assert (accepted.outcome, accepted.seq) == ("duplicate", 1)
    await claim_nothing(store, now=at(86_000))


async def test_numbers_grow_by_one_inside_each_thread_also_when_items_come_at_once(store: Store, other: Store) -> None:
    calls = [
        s.accept(new_item(f"{t}-{n}", t), queue_limit=99) for n in range(10) for t in (A, B) for s in (store, other)
    ]
    outcomes = await asyncio.gather(*calls)
    assert sum(o.outcome == "new" for o in outcomes) == 20
    first, second = await claim(store), await claim(store)
    assert {first.thread_key, second.thread_key} == {A, B}
    for claimed in (first, second):
        assert [i.seq for i in claimed.items] == list(range(1, 11))


async def test_items_of_one_instant_keep_the_order_in_which_they_were_handed_in(store: Store) -> None:
    await asyncio.gather(*(store.accept(new_item(f"e{n}"), queue_limit=99) for n in range(20)))
    assert [i.event_key for i in (await claim(store)).items] == [f"e{n}" for n in range(20)]


async def test_an_item_over_the_limit_is_stored_as_refused_together_with_its_refusal(store: Store) -> None:
    await put(store, "e1", "e2")
    accepted = await store.accept(new_item("e3"), queue_limit=2, refusal=new_post("refusal/e3"))
    assert (accepted.outcome, accepted.seq) == ("full", 3)
    claimed = await claim(store)
    assert [i.event_key for i in claimed.items] == ["e1", "e2"]
    assert [(p.key, p.state) for p in claimed.outbox] == [("refusal/e3", OutboxState.PENDING)]
    again = await store.accept(new_item("e3"), queue_limit=2, refusal=new_post("refusal/e3-again"))
    assert again.outcome == "duplicate"
    assert len(await store.load_outbox(A)) == 1


async def test_the_limit_counts_what_is_open_in_this_thread_only(store: Store) -> None:
    await put(store, "e1", "e2")
    assert (await store.accept(new_item("b1", B), queue_limit=2)).outcome == "new"
    await answer(store, "r1")
    assert (await store.accept(new_item("e3"), queue_limit=2)).outcome == "new"


async def test_the_limit_holds_when_many_items_come_at_once(store: Store, other: Store) -> None:
    calls = [s.accept(new_item(f"{n}", A), queue_limit=5) for n, s in enumerate([store, other] * 10)]
    outcomes = await asyncio.gather(*calls)
    assert sum(o.outcome == "new" for o in outcomes) == 5
    assert sum(o.outcome == "full" for o in outcomes) == 15
    assert sorted(o.seq for o in outcomes) == list(range(1, 21))


async def test_a_limit_of_nothing_refuses_everything(store: Store) -> None:
    assert (await store.accept(new_item("e1"), queue_limit=0)).outcome == "full"
    await claim_nothing(store)


async def test_a_thread_is_known_once_something_of_it_was_accepted(store: Store) -> None:
    assert not await store.knows_thread(A)
    await store.add_outbox(new_post("notice", D))
    assert not await store.knows_thread(D)
    await put(store, "e1")
    assert await store.knows_thread(A)
    await answer(store, "r1")
    assert await store.knows_thread(A)


async def test_an_instant_without_a_zone_is_refused_and_stores_nothing(store: Store) -> None:
    with pytest.raises(ValueError, match="zone"):
        await store.accept(new_item("e1", received_at=at(0).replace(tzinfo=None)), queue_limit=5)
    await claim_nothing(store)
    assert (await store.count_rows()).threads == 0
