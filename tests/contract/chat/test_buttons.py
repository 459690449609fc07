"""Buttons and thumbs: they come back with what they carried, whoever presses them, also after a restart."""

from __future__ import annotations

from adapters.chat import Action, Button, Delivered, Reply, ThreadRef
from tests.contract.chat import unable
from tests.contract.chat.place import PATIENCE_S, Place, ask
from tests.contract.chat.scenario import scenario

APPROVE = Button(name="approve", label="Approve", value="a1-0123456789abcdef", style="primary")
REJECT = Button(name="reject", label="Reject", value="a1-0123456789abcdef", style="danger")


async def pressed(place: Place, thread: ThreadRef, label: str) -> Action:
    before = len(place.inbox.actions)
    await place.press(thread, label)
    await place.inbox.wait_for(lambda: len(place.inbox.actions) > before, PATIENCE_S)
    return place.inbox.actions[-1]


async def post(place: Place, *buttons: Button, feedback: str = "") -> ThreadRef:
    thread = (await ask(place)).thread
    reply = Reply(thread=thread, text="May I?", key="k", buttons=buttons, feedback=feedback)
    assert isinstance(await place.adapter.post(reply), Delivered)
    return thread


@scenario("buttons", unable=unable.plain_text)
async def test_buttons_stand_under_the_words(place: Place) -> None:
    thread = await post(place, APPROVE, REJECT)
    (shown,) = place.posts(thread)
    assert (shown.text, shown.buttons) == ("May I?", ("Approve", "Reject"))


@scenario("buttons", unable=unable.plain_text)
async def test_a_pressed_button_comes_back_with_its_name_and_value(place: Place) -> None:
    thread = await post(place, APPROVE, REJECT)
    for button in (REJECT, APPROVE):
        action = await pressed(place, thread, button.label)
        assert (action.name, action.value, action.thread) == (button.name, button.value, thread)
        assert action.author.id == place.person("alice")
        assert action.id


@scenario("buttons", unable=unable.plain_text)
async def test_a_button_of_before_a_restart_works(place: Place) -> None:
    thread = await post(place, APPROVE)
    await place.restart()
    action = await pressed(place, thread, "Approve")
    assert (action.name, action.value, action.thread) == (APPROVE.name, APPROVE.value, thread)


@scenario("buttons", unable=unable.plain_text)
async def test_the_longest_value_of_a_button_comes_back(place: Place) -> None:
    longest = Button(name="approve", label="Approve", value="v" * 64)
    action = await pressed(place, await post(place, longest), "Approve")
    assert action.value == longest.value


@scenario("buttons", unable=unable.plain_text)
async def test_a_button_that_is_named_stop_is_a_button_like_others(place: Place) -> None:
    thread = await post(place, Button(name="stop", label="Stop the export", value="export-1"))
    action = await pressed(place, thread, "Stop the export")
    assert (action.name, action.value) == ("stop", "export-1")
    assert place.inbox.stops == []
    await place.adapter.discard_draft(thread, "")
    assert len(place.posts(thread)) == 1


@scenario("feedback", unable=unable.plain_text)
async def test_thumbs_come_back_as_feedback(place: Place) -> None:
    thread = await post(place, feedback="run-1")
    for n, (up, value) in enumerate(((True, "run-1/up"), (False, "run-1/down")), start=1):
        await place.rate(thread, up=up)
        await place.inbox.wait_for(lambda n=n: len(place.inbox.actions) == n, PATIENCE_S)  # type: ignore[misc]
        assert (place.inbox.actions[-1].name, place.inbox.actions[-1].value) == ("feedback", value)
        assert place.inbox.actions[-1].thread == thread


@scenario("feedback", unable=unable.plain_text)
async def test_thumbs_and_buttons_stand_beside_each_other(place: Place) -> None:
    thread = await post(place, APPROVE, feedback="run-1")
    assert (await pressed(place, thread, "Approve")).name == "approve"
    await place.rate(thread, up=True)
    await place.inbox.wait_for(lambda: len(place.inbox.actions) == 2, PATIENCE_S)
    assert place.inbox.actions[-1].value == "run-1/up"
