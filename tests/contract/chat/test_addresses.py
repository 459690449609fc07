"""Addresses: one for each conversation, the same for ever."""

from __future__ import annotations

from adapters.chat import Delivered, Reply, ThreadRef
from tests.contract.chat import unable
from tests.contract.chat.place import Place, arrived, ask
from tests.contract.chat.scenario import scenario


@scenario("address")
async def test_an_address_can_be_written_and_read_back(place: Place) -> None:
    for message in (await ask(place), await arrived(place, await place.say_direct("hello"))):
        assert ThreadRef.parse_key(message.thread.key) == message.thread
        assert message.thread.platform == place.adapter.platform


@scenario("address")
async def test_a_thread_has_the_same_address_after_a_restart(place: Place) -> None:
    first = await ask(place)
    await place.adapter.post(Reply(thread=first.thread, text="Two.", key="run/1"))
    await place.restart()
    second = await arrived(place, await place.say("and now?", thread=first.thread, mention=False))
    assert second.thread == first.thread


@scenario("address")
async def test_an_address_of_before_a_restart_is_answered(place: Place) -> None:
    thread = (await ask(place)).thread
    await place.restart()
    assert isinstance(
        await place.adapter.post(Reply(thread=ThreadRef.parse_key(thread.key), text="Two.", key="run/1")), Delivered
    )
    assert [post.text for post in place.posts(thread)] == ["Two."]


@scenario("address")
async def test_a_direct_conversation_is_one_place(place: Place) -> None:
    one = await arrived(place, await place.say_direct("one"))
    public = await ask(place)
    assert public.thread != one.thread
    assert not public.direct or place.way == "terminal"


@scenario("workspaces", unable=unable.one_workspace)
async def test_workspaces_have_addresses_of_their_own(place: Place) -> None:
    await place.open_second()
    here, there = await ask(place), await arrived(place, await place.say_in_second("and here?"))
    assert here.thread.workspace != there.thread.workspace
    assert here.thread != there.thread


@scenario("workspaces", unable=unable.one_workspace)
async def test_each_workspace_gets_its_own_answer(place: Place) -> None:
    await place.open_second()
    here, there = await ask(place), await arrived(place, await place.say_in_second("and here?"))
    for message, text in ((here, "first"), (there, "second")):
        assert isinstance(await place.adapter.post(Reply(thread=message.thread, text=text, key=f"{text}/1")), Delivered)
    assert [post.text for post in place.posts(here.thread)] == ["first"]
    assert [post.text for post in place.posts(there.thread)] == ["second"]
    assert await place.adapter.find_posted(there.thread, "first/1") is None
