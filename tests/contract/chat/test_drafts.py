"""Answers that people see while they are written."""

from __future__ import annotations

from adapters.chat import Button, Delivered, Draft, Message, PlanStep, Reply
from tests.contract.chat import unable
from tests.contract.chat.place import PATIENCE_S, Place, ask, until
from tests.contract.chat.scenario import scenario
from tests.contract.chat.test_posting import texts

WORDS = "The primary is healthy. Two queries were slow. "


async def begin(place: Place, *states: str) -> tuple[Message, Draft]:
    """A draft that has shown each of ``states``, one after the other."""
    message = await ask(place)
    draft = place.adapter.open_draft(message.thread, asker=message.author)
    assert draft is not None
    for state in states:
        await draft.show(state)
        await until(lambda state=state: state.strip() in "".join(texts(place, message.thread)))  # type: ignore[misc]
    return message, draft


@scenario("draft", unable=unable.no_drafts)
async def test_a_draft_grows_before_the_eyes_of_the_asker(place: Place) -> None:
    assert place.adapter.capabilities.drafts
    message, draft = await begin(place, "One ", "One two ", "One two three ")
    assert draft.remote_id
    assert len(texts(place, message.thread)) == 1


@scenario("draft", unable=unable.no_drafts)
async def test_a_finished_draft_is_exactly_the_answer(place: Place) -> None:
    message, draft = await begin(place, WORDS)
    reply = Reply(thread=message.thread, text=WORDS + "It is the **index** on `orders`.", key="run/1", feedback="run")
    outcome = await draft.finish(reply)
    assert isinstance(outcome, Delivered)
    (post,) = place.posts(message.thread)
    assert post.id == outcome.remote_id
    assert post.text.replace("**", "") == (WORDS + "It is the index on `orders`.")
    assert "Stop" not in post.buttons
    assert await place.adapter.find_posted(message.thread, "run/1") == outcome


@scenario("draft", unable=unable.no_drafts)
async def test_a_draft_goes_on_to_be_seen_while_its_writer_winds_down(place: Place) -> None:
    message, draft = await begin(place, "One ")
    await place.adapter.wind_down()
    await draft.show("One two ")
    await until(lambda: "One two" in "".join(texts(place, message.thread)))
    outcome = await draft.finish(Reply(thread=message.thread, text="One two three.", key="run/1"))
    assert isinstance(outcome, Delivered)
    assert texts(place, message.thread) == ["One two three."]


@scenario("draft", unable=unable.no_drafts)
async def test_a_draft_becomes_an_answer_with_buttons(place: Place) -> None:
    message, draft = await begin(place, "May ")
    buttons = (Button(name="approve", label="Approve", value="a1"),)
    assert await draft.finish(Reply(thread=message.thread, text="May I?", key="run/1", buttons=buttons))
    (post,) = place.posts(message.thread)
    assert (post.text.strip().partition("\n")[0], post.buttons) == ("May I?", ("Approve",))


@scenario("draft", unable=unable.no_drafts)
async def test_a_draft_that_took_another_turn_leaves_nothing_of_the_first(place: Place) -> None:
    message, draft = await begin(place, "Wrong track ")
    reply = Reply(thread=message.thread, text="Something else.", key="run/1")
    if await draft.finish(reply) is None:
        assert texts(place, message.thread) == []
        assert isinstance(await place.adapter.post(reply), Delivered)
    assert texts(place, message.thread) == ["Something else."]


@scenario("draft", unable=unable.no_drafts)
async def test_a_draft_that_showed_nothing_is_posted_instead(place: Place) -> None:
    message, draft = await begin(place)
    assert await draft.finish(Reply(thread=message.thread, text="Two.", key="run/1")) is None
    assert texts(place, message.thread) == []
    assert draft.remote_id == ""


@scenario("draft", unable=unable.no_drafts)
async def test_an_abandoned_draft_disappears_for_good(place: Place) -> None:
    message, draft = await begin(place, "One two ")
    await draft.abandon()
    assert texts(place, message.thread) == []
    await draft.show("One two three ")
    await draft.abandon()
    assert texts(place, message.thread) == []


@scenario("draft", unable=unable.no_drafts)
async def test_a_draft_that_outgrows_a_message_loses_nothing(place: Place) -> None:
    message, draft = await begin(place, WORDS)
    text = WORDS + " ".join(f"w{n:04}" for n in range(500))
    await draft.show(text + " ")
    await until(lambda: "w0499" in "".join(texts(place, message.thread)))
    reply = Reply(thread=message.thread, text=text, key="run/1")
    if await draft.finish(reply) is not None:
        assert " ".join(texts(place, message.thread)).split() == text.split()
    else:  # whoever posts it cuts it
        assert texts(place, message.thread) == []


@scenario("draft", unable=unable.no_drafts)
async def test_drafts_of_two_questions_do_not_mix(place: Place) -> None:
    one, first = await begin(place, "first ")
    two, second = await begin(place, "second ")
    await first.finish(Reply(thread=one.thread, text="first answer", key="run1/1"))
    await second.finish(Reply(thread=two.thread, text="second answer", key="run2/1"))
    assert texts(place, one.thread) == ["first answer"]
    assert texts(place, two.thread) == ["second answer"]


@scenario("plan", unable=unable.no_drafts)
async def test_steps_are_seen_before_the_first_word(place: Place) -> None:
    message, draft = await begin(place)
    step = PlanStep(id="1", title="get_slow_queries", state="running", detail="target=shop")
    await draft.show("", [step])
    await until(lambda: place.posts(message.thread))
    await draft.show("Found ", [PlanStep(id="1", title="get_slow_queries", state="done")])
    await until(lambda: "Found" in "".join(texts(place, message.thread)))
    assert isinstance(await draft.finish(Reply(thread=message.thread, text="Found two.", key="run/1")), Delivered)
    assert texts(place, message.thread) == ["Found two."]


@scenario("left", unable=unable.no_drafts)
async def test_a_draft_of_a_dead_process_is_removed_by_its_id(place: Place) -> None:
    message, draft = await begin(place, "Half of ")
    left = draft.remote_id
    await place.take_over()
    await place.adapter.discard_draft(message.thread, left)
    assert texts(place, message.thread) == []


@scenario("left", unable=unable.no_drafts)
async def test_a_draft_of_a_dead_process_is_found_without_its_id_and_answers_stay(place: Place) -> None:
    message = await ask(place)
    earlier = Reply(thread=message.thread, text="Another answer.", key="run0/1", feedback="f")
    assert isinstance(await place.adapter.post(earlier), Delivered)
    draft = place.adapter.open_draft(message.thread, asker=message.author)
    assert draft is not None
    await draft.show("Half of ")
    await until(lambda: len(texts(place, message.thread)) == 2)
    await place.take_over()
    await place.adapter.discard_draft(message.thread, "")
    assert texts(place, message.thread) == ["Another answer."]


@scenario("left", unable=unable.no_drafts)
async def test_a_draft_that_was_finished_is_not_removed_any_more(place: Place) -> None:
    message, draft = await begin(place, WORDS)
    left = draft.remote_id
    reply = Reply(thread=message.thread, text=WORDS + "Done.", key="run/1", feedback="run")
    assert isinstance(await draft.finish(reply), Delivered)
    await place.take_over()
    await place.adapter.discard_draft(message.thread, left)
    await place.adapter.discard_draft(message.thread, "")
    assert texts(place, message.thread) == [WORDS + "Done."]


@scenario("stop", unable=unable.no_stop)
async def test_a_pressed_stop_names_the_thread_and_the_person(place: Place) -> None:
    message = await ask(place)
    await place.adapter.set_status(message.thread, "working")
    draft = place.adapter.open_draft(message.thread, asker=message.author)
    assert draft is not None
    await draft.show("Half of ")
    await until(lambda: texts(place, message.thread))
    await place.press_stop(message.thread)
    await place.inbox.wait_for(lambda: place.inbox.stops, PATIENCE_S)
    (stop,) = place.inbox.stops
    assert stop.thread == message.thread
    assert stop.author.id == place.person("alice")
    await draft.abandon()
    assert texts(place, message.thread) == []
