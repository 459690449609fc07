"""A change of a job that a person was shown waits for them alone, and is taken once."""

from __future__ import annotations

import asyncio

import pytest

from bot.storage.base import Store
from bot.storage.jobs import Proposal
from tests.contract.store.makers import A, B, at

ROUNDS = 50


def new_proposal(body: str = "{}", *, thread: str = A, author: str = "slack:U1", created_at: float = 0.0) -> Proposal:
    return Proposal(thread_key=thread, author=author, body=body, created_at=at(created_at))


async def test_a_proposal_is_taken_once(store: Store) -> None:
    await store.save_proposal(new_proposal())
    assert await store.take_proposal(A, "slack:U1", after=at(-1)) == new_proposal()
    assert await store.take_proposal(A, "slack:U1", after=at(-1)) is None


async def test_a_proposal_is_of_one_person_in_one_thread(store: Store) -> None:
    mine, theirs = new_proposal("mine"), new_proposal("theirs", author="slack:U2")
    elsewhere = new_proposal("elsewhere", thread=B)
    for proposal in (mine, theirs, elsewhere):
        await store.save_proposal(proposal)
    assert await store.take_proposal(B, "slack:U2", after=at(-1)) is None
    assert await store.take_proposal(A, "slack:U2", after=at(-1)) == theirs
    assert await store.take_proposal(B, "slack:U1", after=at(-1)) == elsewhere
    assert await store.take_proposal(A, "slack:U1", after=at(-1)) == mine


async def test_a_proposal_stands_in_the_place_of_the_last_one(store: Store) -> None:
    await store.save_proposal(new_proposal("first", created_at=0))
    await store.save_proposal(new_proposal("second", created_at=5))
    assert await store.take_proposal(A, "slack:U1", after=at(1)) == new_proposal("second", created_at=5)
    assert await store.take_proposal(A, "slack:U1", after=at(-99)) is None


@pytest.mark.parametrize(("after", "counts"), [(-0.000001, True), (0.0, False), (1.0, False)])
async def test_a_proposal_that_is_too_old_counts_as_none_and_is_removed(
    store: Store, after: float, counts: bool
) -> None:
    await store.save_proposal(new_proposal())
    taken = await store.take_proposal(A, "slack:U1", after=at(after))
    assert taken == (new_proposal() if counts else None)
    assert await store.take_proposal(A, "slack:U1", after=at(-99)) is None


async def test_what_waits_in_a_thread_is_listed_and_goes_on_waiting(store: Store) -> None:
    mine, theirs = new_proposal("mine", created_at=5), new_proposal("theirs", author="slack:U2", created_at=3)
    for proposal in (mine, theirs, new_proposal("elsewhere", thread=B)):
        await store.save_proposal(proposal)
    for _ in range(2):
        assert await store.list_proposals(A, after=at(2)) == (theirs, mine)
    assert await store.list_proposals(A, after=at(3)) == (mine,)
    assert await store.list_proposals(A, after=at(5)) == ()
    await store.take_proposal(A, "slack:U1", after=at(0))
    assert await store.list_proposals(A, after=at(2)) == (theirs,)


async def test_of_two_who_take_a_proposal_at_once_one_gets_it(store: Store, other: Store) -> None:
    for n in range(ROUNDS):
        proposal = new_proposal(str(n))
        await store.save_proposal(proposal)
        taken = await asyncio.gather(*(s.take_proposal(A, "slack:U1", after=at(-1)) for s in (store, other)))
        assert sorted(taken, key=str) == sorted([proposal, None], key=str)
