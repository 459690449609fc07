"""The connection: how it begins, breaks, goes on, and ends."""

from __future__ import annotations

import asyncio

import pytest

from adapters.chat import AdapterNotConfigured, Delivered, Inbound, InDoubt, Rejected, Reply, RetryLater
from tests.contract.chat import unable
from tests.contract.chat.place import PATIENCE_S, Place, arrived, ask, until
from tests.contract.chat.scenario import scenario


@pytest.mark.unstarted
@scenario("connecting")
async def test_it_tells_the_truth_about_being_connected(place: Place) -> None:
    seen = [place.adapter.connected]
    await place.start()
    seen.append(place.adapter.connected)
    await place.adapter.stop()
    seen.append(place.adapter.connected)
    assert seen == [False, True, False]


@scenario("connecting")
async def test_it_can_be_stopped_twice_and_at_once(place: Place) -> None:
    await asyncio.gather(place.adapter.stop(), place.adapter.stop())
    await place.adapter.stop()
    assert not place.adapter.connected


@pytest.mark.unstarted
@scenario("connecting")
async def test_it_can_be_stopped_without_being_started(place: Place) -> None:
    await place.adapter.stop()
    assert not place.adapter.connected


@scenario("connecting")
async def test_it_can_be_started_again(place: Place) -> None:
    await place.restart()
    assert place.adapter.connected
    assert (await ask(place, "still there?")).text == "still there?"


@scenario("reconnecting", unable=unable.never_cut)
async def test_a_broken_connection_is_made_again(place: Place) -> None:
    await place.cut()
    await until(lambda: place.adapter.connected)
    assert (await ask(place, "still there?")).text == "still there?"


@scenario("reconnecting", unable=unable.never_cut)
async def test_what_is_said_while_it_is_broken_arrives_once(place: Place) -> None:
    before = await ask(place, "before")
    await place.cut()
    said = [await place.say(f"q{n}") for n in range(3)]
    for message_id in said:
        await arrived(place, message_id)
    after = await ask(place, "after")
    assert {m.id for m in place.inbox.messages} == {before.id, *said, after.id}
    assert len({(m.id, m.thread) for m in place.inbox.messages}) == 5


@scenario("reconnecting", unable=unable.never_cut)
async def test_an_answer_is_posted_while_events_cannot_come(place: Place) -> None:
    thread = (await ask(place)).thread
    await place.cut()
    assert isinstance(await place.adapter.post(Reply(thread=thread, text="Two.", key="run/1")), Delivered)
    assert [post.text for post in place.posts(thread)] == ["Two."]


@pytest.mark.unstarted
@scenario("token", unable=unable.no_token)
async def test_a_refused_token_is_told_at_the_start_with_where_to_find_one(place: Place) -> None:
    adapter = place.build_other()
    try:
        with pytest.raises(AdapterNotConfigured) as told:
            await adapter.start(place.inbox.accept)
        assert "token" in str(told.value)
        assert "wrong" not in str(told.value)
        assert not adapter.connected
    finally:
        await adapter.stop()


@scenario("stopping")
async def test_a_stop_while_it_posts_ends_in_an_outcome(place: Place) -> None:
    thread = (await ask(place)).thread
    reply = Reply(thread=thread, text="Two.", key="run/1")
    posting = asyncio.create_task(place.adapter.post(reply))
    await asyncio.sleep(0)
    await place.adapter.stop()
    async with asyncio.timeout(15):
        outcome = await posting
    assert isinstance(outcome, Delivered | InDoubt | RetryLater | Rejected)
    standing = [post.text for post in place.posts(thread)]
    assert standing in ([[]] if isinstance(outcome, RetryLater | Rejected) else [["Two."]]) or (
        isinstance(outcome, InDoubt) and standing == []
    )


@scenario("stopping")
async def test_answers_go_out_whole_while_it_winds_down(place: Place) -> None:
    thread = (await ask(place)).thread
    posting = asyncio.create_task(place.adapter.post(Reply(thread=thread, text="One.", key="run/1")))
    await asyncio.sleep(0)
    await asyncio.gather(place.adapter.wind_down(), place.adapter.wind_down())
    assert isinstance(await posting, Delivered)
    assert isinstance(await place.adapter.post(Reply(thread=thread, text="Two.", key="run/2")), Delivered)
    assert [post.text for post in place.posts(thread)] == ["One.", "Two."]


@scenario("stopping")
async def test_what_is_said_while_it_winds_down_is_stored_or_left_to_the_next_one(place: Place) -> None:
    await place.adapter.wind_down()
    if place.way == "terminal":
        with pytest.raises(Exception, match="not started"):
            await place.say("hello?")
        return
    said = await place.say("hello?")
    if place.way == "discord":  # which delivers it only once
        await arrived(place, said)
    await place.restart()
    await arrived(place, said)
    assert {m.id for m in place.inbox.messages} == {said}


@pytest.mark.unstarted
@scenario("stopping")
async def test_it_can_wind_down_without_being_started_and_after_a_stop(place: Place) -> None:
    await place.adapter.wind_down()
    seen = [place.adapter.connected]
    await place.start()
    seen.append(place.adapter.connected)
    await place.adapter.stop()
    await place.adapter.wind_down()
    seen.append(place.adapter.connected)
    assert seen == [False, True, False]


@scenario("stopping")
async def test_what_was_heard_before_a_stop_is_still_stored(place: Place) -> None:
    reached, release = asyncio.Event(), asyncio.Event()

    async def slow(inbound: Inbound) -> bool:
        reached.set()
        await release.wait()
        return await place.inbox.accept(inbound)

    await place.adapter.stop()
    await place.adapter.start(slow)
    await until(lambda: place.adapter.connected)
    asking = asyncio.create_task(place.say("which queries are slow?"))
    await asyncio.wait_for(reached.wait(), PATIENCE_S)
    stopping = asyncio.create_task(place.adapter.stop())
    for _ in range(20):  # let it come as far as it can
        await asyncio.sleep(0)
    release.set()
    await stopping
    said = await asking
    stored = [m.id for m in place.inbox.messages]
    assert set(stored) <= {said}
    if not stored:  # the platform still has it
        await place.restart()
        await arrived(place, said)


@scenario("stopping")
async def test_nothing_is_heard_after_a_stop(place: Place) -> None:
    await place.adapter.stop()
    before = list(place.inbox.items)
    if place.way == "terminal":
        with pytest.raises(Exception, match="not started"):
            await place.say("hello?")
    else:
        await place.say("hello?")
        await place.settle()
    assert place.inbox.items == before


@scenario("checking", unable=unable.nothing_missing)
async def test_the_check_finds_nothing_where_all_is_well(place: Place) -> None:
    assert [p for p in await place.adapter.check() if p.fatal] == []
    assert await place.adapter.check() == ()
    assert place.adapter.connected


@scenario("checking", unable=unable.nothing_missing)
async def test_the_check_names_a_missing_permission_and_its_remedy(place: Place) -> None:
    missing = place.take_permission()
    problems = await place.adapter.check()
    assert any(missing in problem.what for problem in problems)
    assert all(problem.fix for problem in problems)
