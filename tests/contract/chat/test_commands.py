"""Commands: given, filled in, answered."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from adapters.chat import Delivered, Reply
from adapters.commands import CommandOffer, CommandOption, Completing, HasCommands, write_text
from tests.contract.chat import unable
from tests.contract.chat.place import PATIENCE_S, Place, arrived, ask, given, until
from tests.contract.chat.scenario import scenario

ASK = CommandOffer(
    name="ask", summary="Ask.", options=(CommandOption(name="question", summary="What?", required=True),), plain=True
)
SLOWQ = CommandOffer(
    name="slowq",
    summary="List slow queries.",
    options=(
        CommandOption(name="threshold", summary="Seconds.", kind="number"),
        CommandOption(name="limit", summary="Rows.", kind="integer", minimum=1),
        CommandOption(name="target", summary="Which.", completes="target"),
        CommandOption(name="system", summary="All.", kind="boolean"),
        CommandOption(name="sort", summary="By what.", choices=("total", "mean")),
    ),
)
USAGE = CommandOffer(name="usage", summary="Show usage.", plain=True, private=True)
OFFERS = (ASK, SLOWQ, USAGE)


def suggest(asked: Completing) -> Sequence[str]:
    return [name for name in ("shop", "shelf", "crm") if name.startswith(asked.typed)]


async def start(place: Place) -> None:
    place.offer(OFFERS, suggest)
    await place.start()


def no(check: unable.Check) -> unable.Check:
    """The check of a place whose adapter is not started yet."""

    async def run(place: Place) -> None:
        await start(place)
        await check(place)

    return run


@pytest.mark.unstarted
@scenario("command", unable=no(unable.no_offers))
async def test_a_command_comes_with_its_words_and_person(place: Place) -> None:
    await start(place)
    command = await given(place, "ask", {"question": "which queries are slow?"})
    assert (command.name, command.text) == ("ask", "which queries are slow?")
    assert command.author.id == place.person("alice")
    assert command.author.name
    assert command.thread.platform == place.adapter.platform


@pytest.mark.unstarted
@scenario("command", unable=no(unable.no_offers))
async def test_what_was_filled_in_comes_as_one_text_as_if_it_had_been_typed(place: Place) -> None:
    await start(place)
    filled = {"threshold": 0.5, "limit": 5, "target": 'a "quoted" \\ name', "system": True}
    command = await given(place, "slowq", filled)
    assert command.name == "slowq"
    assert command.text == write_text(SLOWQ, filled)


@pytest.mark.unstarted
@scenario("command", unable=no(unable.no_offers))
async def test_the_answer_of_a_command_stands_in_its_channel(place: Place) -> None:
    await start(place)
    command = await given(place, "slowq", {"limit": 5})
    reply = Reply(thread=command.thread, text="Two.", key=f"{command.id}/1", respond_to=command.respond_to)
    assert isinstance(await place.adapter.post(reply), Delivered)
    assert [post.text for post in place.posts(command.thread)] == ["Two."]


@pytest.mark.unstarted
@scenario("command", unable=no(unable.no_offers))
async def test_commands_have_addresses_of_their_own(place: Place) -> None:
    await start(place)
    one, two = await given(place, "slowq", {"limit": 5}), await given(place, "slowq", {"limit": 5})
    assert one.thread != two.thread
    assert one.id != two.id


@pytest.mark.unstarted
@scenario("command", unable=no(unable.no_offers))
async def test_an_answer_in_two_parts_stands_in_order(place: Place) -> None:
    await start(place)
    command = await given(place, "slowq", {"limit": 5})
    for n in (1, 2):
        reply = Reply(thread=command.thread, text=f"part {n}", key=f"run/{n}", respond_to=command.respond_to)
        assert isinstance(await place.adapter.post(reply), Delivered)
    assert [post.text for post in place.posts(command.thread)] == ["part 1", "part 2"]


@pytest.mark.unstarted
@scenario("command", unable=no(unable.no_offers))
async def test_a_command_of_before_a_restart_is_answered(place: Place) -> None:
    await start(place)
    command = await given(place, "slowq", {"limit": 5})
    await place.restart()
    reply = Reply(thread=command.thread, text="Two.", key=f"{command.id}/1", respond_to=command.respond_to)
    assert isinstance(await place.adapter.post(reply), Delivered)
    assert [post.text for post in place.posts(command.thread)] == ["Two."]


@pytest.mark.unstarted
@scenario("private", unable=no(unable.open_to_all))
async def test_a_private_answer_to_a_command_is_seen_by_its_giver_alone(place: Place) -> None:
    await start(place)
    command = await given(place, "usage", {})
    reply = Reply(
        thread=command.thread,
        text="You used 3 $.",
        key=f"{command.id}/1",
        respond_to=command.respond_to,
        private_to=command.author.id,
    )
    assert isinstance(await place.adapter.post(reply), Delivered)
    assert place.posts(command.thread) == []
    assert place.shown_to("alice") == ["You used 3 $."]
    assert place.shown_to("bob") == []


@scenario("private", unable=unable.open_to_all)
async def test_a_private_word_in_a_thread_is_seen_by_one_person(place: Place) -> None:
    message = await ask(place)
    await place.adapter.post(Reply(thread=message.thread, text="For all.", key="run/1"))
    reply = Reply(thread=message.thread, text="For you.", key="run/2", private_to=message.author.id)
    assert isinstance(await place.adapter.post(reply), Delivered)
    assert [post.text for post in place.posts(message.thread)] == ["For all."]
    assert place.shown_to("alice") == ["For you."]


@pytest.mark.unstarted
@scenario("command-thread", unable=no(unable.no_command_in_a_thread))
async def test_a_command_in_a_thread_belongs_to_it(place: Place) -> None:
    await start(place)
    thread = (await ask(place)).thread
    command = await given(place, "ask", {"question": "why?"}, thread=thread)
    assert command.thread == thread
    reply = Reply(thread=thread, text="Because.", key=f"{command.id}/1", respond_to=command.respond_to)
    assert isinstance(await place.adapter.post(reply), Delivered)
    assert [post.text for post in place.posts(thread)] == ["Because."]
    follow_up = await arrived(place, await place.say("really?", thread=thread, mention=False))
    assert follow_up.thread == thread


@pytest.mark.unstarted
@scenario("options", unable=no(unable.no_offers))
async def test_a_value_of_the_wrong_kind_cannot_be_entered(place: Place) -> None:
    await start(place)
    for values in ({"limit": "many"}, {"limit": 0}, {"sort": "sideways"}, {"no_such_option": 1}):
        with pytest.raises(LookupError):
            await place.give("slowq", values)
    assert place.inbox.commands == []


@pytest.mark.unstarted
@scenario("options", unable=no(unable.no_offers))
async def test_what_a_command_needs_cannot_be_left_out(place: Place) -> None:
    await start(place)
    with pytest.raises(LookupError):
        await place.give("ask", {})
    assert place.inbox.commands == []


@pytest.mark.unstarted
@scenario("options", unable=no(unable.no_offers))
async def test_a_choice_and_what_was_left_out_are_read_back(place: Place) -> None:
    await start(place)
    assert isinstance(place.adapter, HasCommands)
    command = await given(place, "slowq", {"sort": "mean"})
    assert command.text == 'sort="mean"'


@pytest.mark.unstarted
@scenario("completion", unable=no(unable.no_offers))
async def test_targets_are_suggested_while_somebody_types(place: Place) -> None:
    await start(place)
    assert await place.type("slowq", "target", "sh") == ["shop", "shelf"]
    assert await place.type("slowq", "target", "nothing") == []
    assert place.inbox.commands == []


@pytest.mark.unstarted
@scenario("unknown", unable=no(unable.no_offers))
async def test_a_command_that_nobody_takes_is_answered_with_help(place: Place) -> None:
    await start(place)
    place.inbox.answer = False
    await place.give("usage", {})
    await place.inbox.wait_for(lambda: place.inbox.commands, PATIENCE_S)
    await until(lambda: "".join(place.shown_to("alice")))
    (said,) = place.shown_to("alice")
    assert "/hermod" in said
    assert "Mention me" in said
