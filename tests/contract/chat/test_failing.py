"""Posting that goes wrong: refused, limited, broken off. Each has its outcome, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio

import pytest

from adapters.chat import Delivered, InDoubt, Rejected, Reply, RetryLater
from tests.contract.chat import unable
from tests.contract.chat.place import Place, ask
from tests.contract.chat.scenario import scenario
from tests.contract.chat.test_posting import deliver, texts


@scenario("gone", unable=unable.always_delivered)
async def test_a_place_that_was_deleted_is_gone(place: Place) -> None:
    thread = (await ask(place)).thread
    await place.adapter.post(Reply(thread=thread, text="one", key="run/1"))
    await place.remove(thread)
    outcome = await place.adapter.post(Reply(thread=thread, text="two", key="run/2"))
    assert isinstance(outcome, Rejected)
    assert outcome.gone
    assert outcome.reason


@scenario("gone", unable=unable.always_delivered)
async def test_nothing_raises_where_nothing_is_any_more(place: Place) -> None:
    message = await ask(place)
    await place.adapter.post(Reply(thread=message.thread, text="one", key="run/1"))
    await place.remove(message.thread)
    await place.adapter.set_status(message.thread, "working")
    await place.adapter.react(message.thread, message.id, "seen")
    await place.adapter.discard_draft(message.thread, "")
    await place.adapter.fetch_history(message.thread, limit=5)
    draft = place.adapter.open_draft(message.thread, asker=message.author)
    assert draft is not None
    await draft.show("so far")
    await draft.abandon()
    assert not isinstance(await place.adapter.find_posted(message.thread, "run/9"), Delivered)


@scenario("refused", unable=unable.always_delivered)
async def test_a_missing_permission_is_refused_with_its_remedy(place: Place) -> None:
    thread = (await ask(place)).thread
    place.forbid_posting()
    outcome = await place.adapter.post(Reply(thread=thread, text="Two.", key="run/1"))
    assert isinstance(outcome, Rejected)
    assert any(remedy in outcome.reason.lower() for remedy in ("invite", "permission", "allow")), outcome.reason
    assert texts(place, thread) == []


@scenario("refused", unable=unable.always_delivered)
async def test_a_refusal_names_no_secret(place: Place) -> None:
    thread = (await ask(place)).thread
    place.forbid_posting()
    outcome = await place.adapter.post(Reply(thread=thread, text="Two.", key="run/1"))
    assert isinstance(outcome, Rejected)
    server = place.server  # type: ignore[attr-defined]
    for secret in ("token", "bot_token", "app_token", "signing_secret"):
        if hasattr(server, secret):
            assert getattr(server, secret) not in outcome.reason


@scenario("rates", unable=unable.always_delivered)
async def test_a_refusal_for_a_while_ends_and_the_answer_stands_once(place: Place) -> None:
    thread = (await ask(place)).thread
    place.limit_posts(1.0)
    reply = Reply(thread=thread, text="Two.", key="run/1")
    first = await place.adapter.post(reply)
    assert isinstance(first, RetryLater | Delivered)
    if isinstance(first, RetryLater):
        assert 0 < first.after_s <= 2.0
        assert first.reason
        assert texts(place, thread) == []
    assert isinstance(await deliver(place, reply), Delivered)
    assert texts(place, thread) == ["Two."]


@scenario("rates", unable=unable.always_delivered)
async def test_a_refusal_for_long_is_no_wait(place: Place) -> None:
    thread = (await ask(place)).thread
    place.limit_posts(600.0)
    async with asyncio.timeout(15):
        outcome = await place.adapter.post(Reply(thread=thread, text="Two.", key="run/1"))
    assert isinstance(outcome, RetryLater)
    assert 500 < outcome.after_s < 700


@scenario("rates", unable=unable.always_delivered)
async def test_answers_in_a_row_keep_the_platforms_limits(place: Place) -> None:
    """As strict as the platform's own figures; what was above them is found by the place at the end."""
    place.server.set_knobs(strict_rate_limits=True)  # type: ignore[attr-defined]
    thread = (await ask(place)).thread
    replies = [Reply(thread=thread, text=f"a{n}", key=f"run/{n}") for n in range(3)]
    for reply in replies:
        assert isinstance(await deliver(place, reply), Delivered)
    assert texts(place, thread) == ["a0", "a1", "a2"]


@pytest.mark.parametrize("arrives", [True, False])
@scenario("doubt", unable=unable.always_delivered)
async def test_a_post_whose_connection_broke_stands_there_once(place: Place, arrives: bool) -> None:
    thread = (await ask(place)).thread
    await place.adapter.post(Reply(thread=thread, text="before", key="run0/1"))
    place.break_post(arrives=arrives)
    reply = Reply(thread=thread, text="Two.", key="run/1")
    outcome = await place.adapter.post(reply)
    assert isinstance(outcome, InDoubt)
    found = await place.adapter.find_posted(thread, "run/1")
    assert not isinstance(found, InDoubt)
    if found is None:
        assert isinstance(await deliver(place, reply), Delivered)
    assert texts(place, thread) == ["before", "Two."]


@pytest.mark.parametrize("arrives", [True, False])
@scenario("doubt", unable=unable.always_delivered)
async def test_a_process_that_takes_over_settles_a_post_in_doubt(place: Place, arrives: bool) -> None:
    thread = (await ask(place)).thread
    await place.adapter.post(Reply(thread=thread, text="before", key="run0/1"))
    place.break_post(arrives=arrives)
    reply = Reply(thread=thread, text="Two.", key="run/1")
    assert isinstance(await place.adapter.post(reply), InDoubt)
    await place.take_over()
    found = await place.adapter.find_posted(thread, "run/1")
    assert not isinstance(found, InDoubt)
    if found is None:
        assert isinstance(await deliver(place, reply), Delivered)
    assert texts(place, thread) == ["before", "Two."]
