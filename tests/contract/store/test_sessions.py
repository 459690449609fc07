"""What happens to a thread while a run works: it waits, is taken back, has a past and a draft."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bot.storage.base import InboxState, NewInboxItem, NewMessage, OutboxState, RunOutcome, Store, StoreError
from bot.storage.sqlite_claims import PAST_TRIES
from tests.contract.store.makers import (
    LEASE_S,
    T0,
    A,
    B,
    at,
    begin,
    claim,
    claim_nothing,
    new_post,
    new_run,
    outcome,
    put,
)


def new_said(number: int, thread: str = A, *, inside: bool = False) -> NewInboxItem:
    return NewInboxItem(
        event_key=f"{thread}/{number}",
        thread_key=thread,
        kind="message",
        payload=f'{{"text": "secret {number}"}}',
        received_at=at(number),
        said_id=f"m{number}",
        inside=inside,
    )


def new_deletion(number: int, thread: str = A) -> NewInboxItem:
    return NewInboxItem(
        event_key=f"{thread}/{number}/deleted",
        thread_key=thread,
        kind="deleted",
        payload="{}",
        received_at=at(50),
        said_id=f"m{number}",
    )


def new_message(number: int) -> NewMessage:
    body = json.dumps({"role": "user", "content": f"secret {number}", "speaker": "Ann"})
    return NewMessage(role="user", body=body, tokens=90, created_at=at(number), said_id=f"m{number}")


async def hear(store: Store, *numbers: int, inside: bool = False) -> None:
    for number in numbers:
        accepted = await store.accept(new_said(number, inside=inside), queue_limit=99)
        assert accepted.outcome == "new"


# -- what waits ------------------------------------------------------------------------------------


async def test_the_open_items_of_a_thread_are_told_after_a_number_and_in_order(store: Store) -> None:
    await hear(store, 1, 2)
    claimed = await claim(store)
    await store.begin_run(claimed, new_run("r1"), [claimed.items[0].id])
    await hear(store, 3)
    await put(store, "elsewhere", thread=B)
    assert [i.said_id for i in await store.load_open(A)] == ["m2", "m3"]
    assert [i.seq for i in await store.load_open(A, after_seq=2)] == [3]
    assert await store.load_open("slack:T1/C1/none") == ()


async def test_an_item_that_carries_a_sign_is_known_to_the_next_owner(store: Store) -> None:
    await hear(store, 1, 2)
    claimed = await claim(store)
    await store.mark_signed(claimed, claimed.items[1].id)
    heir = await claim(store, "p2", now=at(LEASE_S))
    assert [i.signed for i in heir.items] == [False, True]


async def test_the_end_of_a_run_answers_further_open_items_but_nobody_elses(store: Store) -> None:
    await hear(store, 1)
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    await hear(store, 2, 3)
    await put(store, "elsewhere", thread=B)
    second, third = await store.load_open(A)
    (foreign,) = await store.load_open(B)
    ended = RunOutcome(state="error", error="cancelled", record="", ended_at=at(9), answered=(second.id, foreign.id))
    await store.finish_run(claimed, "r1", ended)
    assert [i.id for i in await store.load_open(A)] == [third.id]
    assert [i.id for i in await store.load_open(B)] == [foreign.id]
    await store.release_claim(claimed)
    assert [i.id for i in (await claim(store, prefixes=(A,))).items] == [third.id]


async def test_a_thread_whose_last_open_items_were_answered_has_no_more_work(store: Store) -> None:
    await hear(store, 1)
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    await hear(store, 2)
    (second,) = await store.load_open(A)
    ended = RunOutcome(state="finished", error="", record="", ended_at=at(9), answered=(second.id,))
    await store.finish_run(claimed, "r1", ended)
    await store.release_claim(claimed)
    await claim_nothing(store, now=at(999))


# -- what is taken back ----------------------------------------------------------------------------


async def test_a_message_that_waits_is_dropped(store: Store) -> None:
    await hear(store, 1)
    assert await store.erase_message(new_deletion(1), now=T0) == "dropped"
    assert await store.load_open(A) == ()
    await claim_nothing(store, now=at(999))
    assert (await store.accept(new_said(1), queue_limit=9)).outcome == "duplicate"


async def test_one_of_several_that_wait_is_dropped_alone(store: Store) -> None:
    await hear(store, 1, 2)
    await store.erase_message(new_deletion(1), now=T0)
    claimed = await claim(store, now=at(60))
    assert [i.said_id for i in claimed.items] == ["m2"]


async def test_a_message_in_the_history_loses_its_text_and_nothing_else(store: Store) -> None:
    await hear(store, 1, 2)
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    ended = RunOutcome(state="finished", error="", record="", ended_at=at(9), messages=(new_message(1), new_message(2)))
    await store.finish_run(claimed, "r1", ended)
    assert await store.erase_message(new_deletion(1), now=T0) == "erased"
    first, second = await store.load_messages(A)
    assert json.loads(first.body) == {"role": "user", "content": "[deleted]", "speaker": "Ann"}
    assert first.tokens < 90
    assert json.loads(second.body)["content"] == "secret 2"
    await store.release_claim(claimed)
    await claim_nothing(store, now=at(999))


async def test_a_message_that_is_being_answered_stays_out_of_the_history_and_its_owner_hears_of_it(
    store: Store, other: Store
) -> None:
    await hear(store, 1)
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    assert await other.erase_message(new_deletion(1), now=T0) == "under way"
    assert await other.erase_message(new_deletion(1), now=T0) == "under way"
    (told,) = await store.load_open(A)
    assert (told.kind, told.state) == ("deleted", InboxState.OPEN)
    ended = RunOutcome(
        state="finished", error="", record="", ended_at=at(9), messages=(new_message(1),), answered=(told.id,)
    )
    await store.finish_run(claimed, "r1", ended)
    assert "secret" not in (await store.load_messages(A))[0].body


async def test_a_message_that_was_deleted_before_it_arrived_is_a_duplicate(store: Store) -> None:
    await hear(store, 1)
    assert await store.erase_message(new_deletion(2), now=T0) == "erased"
    assert (await store.accept(new_said(2), queue_limit=9)).outcome == "duplicate"
    assert [i.said_id for i in await store.load_open(A)] == ["m1"]


# -- the past --------------------------------------------------------------------------------------


async def test_a_thread_that_was_there_before_may_be_read_a_few_times_and_is_kept_once(store: Store) -> None:
    await hear(store, 1, inside=True)
    claimed = await claim(store)
    assert claimed.past_left == PAST_TRIES
    await begin(store, claimed, "r1")
    await store.save_past(claimed, "r1", None)
    heir = await claim(store, "p2", now=at(LEASE_S))
    assert heir.past_left == PAST_TRIES - 1
    await store.save_past(heir, "r1", new_message(0))
    with pytest.raises(StoreError, match="settled"):
        await store.save_past(heir, "r1", new_message(0))
    await store.finish_run(heir, "r1", outcome("question"))
    assert [m.seq for m in await store.load_messages(A)] == [1, 2]
    await hear(store, 2, inside=True)
    await store.release_claim(heir)
    assert (await claim(store, "p3", now=at(LEASE_S))).past_left == 0


async def test_a_thread_that_began_with_its_first_message_has_no_past(store: Store) -> None:
    await hear(store, 1)
    await hear(store, 2, inside=True)
    assert (await claim(store)).past_left == 0


# -- drafts and posts ------------------------------------------------------------------------------


async def test_a_draft_is_known_until_the_first_part_of_its_answer_is_settled(store: Store, other: Store) -> None:
    await hear(store, 1)
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    assert await store.load_draft("r1") is None
    await store.save_draft(claimed, "r1", "1700.8", at(1))
    await store.save_draft(claimed, "r1", "1700.9", at(2))
    assert await other.load_draft("r1") == "1700.9"
    await store.finish_run(claimed, "r1", outcome(posts=(new_post("k1", run_id="r1"), new_post("k2", run_id="r1"))))
    first, _ = await store.load_due(A, now=at(9))
    await store.begin_send(claimed, first.id, now=at(9))
    await store.finish_send(claimed, first.id, OutboxState.PENDING, remote_id=None, reason="", next_at=at(9))
    assert await store.load_draft("r1") == "1700.9"
    await store.finish_send(claimed, first.id, OutboxState.DELIVERED, remote_id="1700.9", reason="", next_at=at(9))
    assert await store.load_draft("r1") is None


async def test_a_post_can_be_split_once_it_is_known_that_it_was_not_made(store: Store) -> None:
    await store.add_outbox(new_post("k/1"))
    await store.add_outbox(new_post("notice"))
    claimed = await claim(store)
    first = claimed.outbox[0]
    await store.begin_send(claimed, first.id, now=at(0))
    parts = [new_post("k/1"), new_post("k/2"), new_post("k/3")]
    for _ in range(2):  # again after a crash
        await store.split_outbox(claimed, first.id, [replace(part, body=f"part {part.key}") for part in parts])
    rows = await store.load_outbox(A)
    assert [(r.key, r.body) for r in rows] == [
        ("k/1", "part k/1"), ("notice", "body of notice"), ("k/2", "part k/2"), ("k/3", "part k/3"),
    ]  # fmt: skip
    await store.finish_send(claimed, first.id, OutboxState.DELIVERED, remote_id="1", reason="", next_at=at(0))
    with pytest.raises(StoreError):
        await store.split_outbox(claimed, first.id, parts)


async def test_a_draft_can_be_dropped(store: Store) -> None:
    await hear(store, 1)
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    await store.save_draft(claimed, "r1", "1700.8", at(1))
    await store.drop_draft(claimed, "r1")
    assert await store.load_draft("r1") is None


async def test_the_posts_that_are_due_are_told_without_those_that_are_settled(store: Store) -> None:
    for n in (1, 2, 3):
        await store.add_outbox(new_post(f"k{n}"))
    claimed = await claim(store)
    first, second, _ = claimed.outbox
    await store.begin_send(claimed, first.id, now=at(0))
    await store.finish_send(claimed, first.id, OutboxState.DELIVERED, remote_id="1", reason="", next_at=at(0))
    assert [p.key for p in await store.load_due(A, now=at(0))] == ["k2", "k3"]
    await store.begin_send(claimed, second.id, now=at(0))
    await store.finish_send(claimed, second.id, OutboxState.PENDING, remote_id=None, reason="", next_at=at(7))
    assert await store.load_due(A, now=at(0)) == ()
    assert [p.key for p in await store.load_due(A, now=at(7))] == ["k2", "k3"]


async def test_who_begins_a_post_is_told_how_long_the_lease_lasts(store: Store) -> None:
    await store.add_outbox(new_post("k1"))
    claimed = await claim(store)
    post = claimed.outbox[0].id
    assert await store.begin_send(claimed, post, now=at(0)) == LEASE_S
    assert await store.begin_send(claimed, post, now=at(LEASE_S + 1)) == -1
    await store.renew_claim(claimed, lease_s=LEASE_S, now=at(LEASE_S))
    assert await store.begin_send(claimed, post, now=at(LEASE_S + 1)) == LEASE_S - 1
