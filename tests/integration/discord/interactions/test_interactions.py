"""Commands, buttons and suggestions, through discord.py."""

from __future__ import annotations

import time

import pytest

from adapters.chat import Action, Button, Delivered, Inbound, Reply, Stop, ThreadRef
from adapters.discord.app import DiscordAdapter
from adapters.discord.client import DiscordClient
from adapters.discord.http import DiscordHttp
from adapters.discord.interactions import (
    NOT_STORED,
    NOT_TAKEN,
    NOTHING_TO_STOP,
    TOKEN_S,
    UNUSED_BUTTON,
)
from adapters.discord.payload import Payload
from bot.messages import dump_inbound, kind_of, load_inbound
from tests.integration.discord.conftest import Inbox, build_adapter, wait_connected
from tests.integration.discord.interactions.desk import (
    CALLBACK,
    EPHEMERAL,
    LOADING,
    OFFERS,
    Clock,
    answer_to,
    give,
    seen_in,
    start,
    suggest,
    texts,
)
from tests.servers.discord import DiscordServer

# -- in --------------------------------------------------------------------------------------------


async def test_a_command_is_announced_before_it_is_stored(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    inbox.gate.clear()
    interaction = await server.slash("slowq", {"limit": 5, "target": 'a "shop"', "system": True, "threshold": 0.5})
    assert interaction.response == {"type": 5}
    assert inbox.items == []
    inbox.gate.set()
    await inbox.wait_for(lambda: inbox.commands)
    (command,) = inbox.commands
    assert command.name == "slowq"
    assert command.text == 'threshold=0.5 limit=5 target="a \\"shop\\"" system=true'
    assert command.thread == ThreadRef(
        platform="discord", workspace=server.guild_id, channel=server.general, thread=f"command-{interaction.id}"
    )
    assert (command.id, command.author.id, command.author.name) == (interaction.id, server.alice, "Alice")
    assert command.respond_to.startswith(f"{server.app_id}/{interaction.token}/")
    assert command.sent_at.tzinfo is not None


async def test_what_one_person_alone_may_see_is_announced_to_that_person(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    interaction = await give(server, inbox, "usage")
    assert interaction.response == {"type": 5, "data": {"flags": EPHEMERAL}}
    assert seen_in(server) == []


async def test_a_command_that_is_given_while_it_winds_down_is_announced_and_stored(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    await adapter.wind_down()
    interaction = await give(server, inbox)
    assert interaction.response == {"type": 5}
    assert [command.id for command in inbox.commands] == [interaction.id]


async def test_a_question_is_passed_on_as_it_was_written(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    await give(server, inbox, "ask", options={"question": 'why is "x" slow, limit=5?'})
    assert inbox.commands[0].text == 'why is "x" slow, limit=5?'


async def test_b067_the_first_word_goes_out_before_any_work_even_when_the_loop_is_busy(
    server: DiscordServer, inbox: Inbox, clock: Clock
) -> None:
    async def busy(inbound: Inbound) -> bool:
        time.sleep(0.15)  # noqa: ASYNC251 - the loop stands still, as it does under load
        return await inbox.accept(inbound)

    adapter = build_adapter(server, now=clock)
    adapter.offer_commands(OFFERS, suggest)
    try:
        await adapter.start(busy)
        await wait_connected(adapter)
        await server.wait_until(lambda: server.commands["global"])
        given = [await server.slash("slowq", wait=False) for _ in range(6)]
        await server.wait_until(lambda: all(i.response for i in given), 10)
        await inbox.wait_for(lambda: len(inbox.commands) == 6, 20)
    finally:
        await adapter.stop()
    assert all(call.status < 300 for call in server.calls_to(CALLBACK))


async def test_what_could_not_be_stored_is_told_and_the_next_one_is_taken(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    inbox.failures = 1
    await server.slash("slowq")
    await server.wait_until(lambda: texts(seen_in(server)) == [NOT_STORED])
    assert not seen_in(server)[0]["flags"] & LOADING
    await give(server, inbox)
    assert len(inbox.commands) == 1


async def test_what_is_not_taken_is_answered_with_a_word(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    inbox.answer = False
    await server.slash("slowq")
    await server.wait_until(lambda: texts(seen_in(server)) == [NOT_TAKEN])


async def test_a_command_that_is_shown_no_more_is_passed_on_too(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    server.commands["global"].append(
        {"id": "5", "name": "old", "type": 1, "options": [{"name": "what", "type": 3, "description": "x"}]}
    )
    interaction = await give(server, inbox, "old", options={"what": "this and that"})
    assert interaction.response == {"type": 5, "data": {"flags": EPHEMERAL}}
    assert (inbox.commands[0].name, inbox.commands[0].text) == ("old", "this and that")


async def test_in_a_thread_a_command_belongs_to_the_thread(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    thread = await server.open_thread("why", message=await server.say("why?"))
    await give(server, inbox, channel=thread)
    assert inbox.commands[0].thread == ThreadRef(
        platform="discord", workspace=server.guild_id, channel=server.general, thread=thread
    )
    for part in (1, 2):
        assert isinstance(await adapter.post(answer_to(inbox, f"part {part}", part=part)), Delivered)
    assert texts(seen_in(server, thread)) == ["part 1", "part 2"]


async def test_in_direct_messages_a_command_belongs_to_the_conversation(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    direct = server.dm_with(server.alice)
    await give(server, inbox, channel=direct)
    assert inbox.commands[0].thread == ThreadRef(platform="discord", workspace="@me", channel=direct, thread=direct)
    assert isinstance(await adapter.post(answer_to(inbox, "here")), Delivered)
    assert texts(seen_in(server, direct)) == ["here"]


async def test_a_token_that_died_before_the_first_word_is_handled_quietly(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter, capsys: pytest.CaptureFixture[str]
) -> None:
    server.inject(CALLBACK, http=404, code=10062, message="Unknown interaction")
    await server.slash("slowq", wait=False)
    await server.wait_until(lambda: [c for c in server.calls_to(CALLBACK) if c.status == 404])
    await give(server, inbox)
    assert len(inbox.commands) == 1, "the person was told by Discord, and gives it again"
    assert "Traceback" not in capsys.readouterr().out


async def test_two_sessions_acknowledge_once_and_hand_over_the_same_command(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter, capsys: pytest.CaptureFixture[str]
) -> None:
    other = await start(server, inbox)
    try:
        await server.slash("slowq")
        await inbox.wait_for(lambda: len(inbox.commands) == 2)
    finally:
        await other.stop()
    first, second = inbox.commands
    assert (first.id, first.thread) == (second.id, second.thread), "so it is stored once"
    assert sorted(call.status for call in server.calls_to(CALLBACK)) == [204, 400]
    assert "Traceback" not in capsys.readouterr().out


# -- suggestions -----------------------------------------------------------------------------------


async def test_suggestions_come_at_once_and_are_never_more_than_discord_takes(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    inbox.gate.clear()
    choices = await server.autocomplete("slowq", "target", "target")
    assert len(choices) == 25
    assert choices[0] == {"name": "target00", "value": "target00"}
    assert [c["name"] for c in await server.autocomplete("slowq", "target", "target39")] == ["target39"]
    assert await server.autocomplete("slowq", "target", "nothing") == []
    assert [call.body["type"] for call in server.calls_to(CALLBACK)] == [8, 8, 8]
    assert inbox.items == []


# -- buttons ---------------------------------------------------------------------------------------


async def with_buttons(server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter) -> str:
    await give(server, inbox)
    reply = answer_to(inbox, "Shall I?", buttons=(Button(name="approve", label="Yes", value="a1b2"),), feedback="run1")
    outcome = await adapter.post(reply)
    assert isinstance(outcome, Delivered)
    return outcome.remote_id


async def test_a_pressed_button_is_acknowledged_and_becomes_an_action(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    message = await with_buttons(server, inbox, adapter)
    pressed = await server.click(message, "approve:a1b2", user=server.bob)
    await inbox.wait_for(lambda: inbox.actions)
    (action,) = inbox.actions
    assert pressed.response == {"type": 6}
    assert (action.name, action.value, action.author.id, action.id) == ("approve", "a1b2", server.bob, pressed.id)
    assert (action.thread.workspace, action.thread.channel) == (server.guild_id, server.general)


async def test_a_button_works_after_a_restart(server: DiscordServer, inbox: Inbox) -> None:
    first = await start(server, inbox)
    message = await with_buttons(server, inbox, first)
    await first.stop()
    second = await start(server, inbox)
    try:
        await server.click(message, "feedback:run1/up")
        await inbox.wait_for(lambda: inbox.actions)
    finally:
        await second.stop()
    assert (inbox.actions[0].name, inbox.actions[0].value) == ("feedback", "run1/up")


async def post_button(server: DiscordServer, custom_id: str) -> str:
    """Post a message with one button, as an older version or a draft may have."""
    http = DiscordHttp(api_url=server.base_url, token=server.token)
    row = {"type": 1, "components": [{"type": 2, "style": 2, "label": "x", "custom_id": custom_id}]}
    outcome = await DiscordClient(http).create_message(server.general, Payload(content="x", components=(row,)))
    await http.close()
    assert isinstance(outcome, Delivered)
    return outcome.remote_id


async def test_an_unknown_button_is_answered_to_the_one_who_pressed_it(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    message = await post_button(server, "Something else")
    await server.click(message, "Something else")
    assert texts(seen_in(server, by_all=False)) == [UNUSED_BUTTON]
    assert inbox.items == []


@pytest.mark.parametrize(("custom_id", "said"), [("stop:", NOTHING_TO_STOP), ("approve:gone", UNUSED_BUTTON)])
async def test_a_button_that_comes_too_late_is_answered_visibly(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter, custom_id: str, said: str
) -> None:
    message = await post_button(server, custom_id)
    inbox.answer = False
    await server.click(message, custom_id)
    await server.wait_until(lambda: texts(seen_in(server, by_all=False)) == [said])


async def test_a_button_that_could_not_be_stored_is_told_to_the_one_who_pressed_it(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    message = await with_buttons(server, inbox, adapter)
    inbox.failures = 1
    await server.click(message, "approve:a1b2")
    await server.wait_until(lambda: texts(seen_in(server, by_all=False)) == [NOT_STORED])
    await server.click(message, "approve:a1b2")
    await inbox.wait_for(lambda: inbox.actions)


async def test_the_stop_button_ends_the_run_of_its_thread(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    message = await post_button(server, "stop:")
    pressed = await server.click(message, "stop:")
    await inbox.wait_for(lambda: inbox.stops)
    (stop,) = inbox.stops
    assert (stop.id, stop.author.id, stop.thread.channel) == (pressed.id, server.alice, server.general)


async def test_a_word_about_a_pressed_button_is_shown_to_the_one_who_pressed_it(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    message = await with_buttons(server, inbox, adapter)
    await server.click(message, "feedback:run1/up", user=server.bob)
    await inbox.wait_for(lambda: inbox.actions)
    action = inbox.actions[0]
    assert isinstance(await adapter.post(word_to(action)), Delivered)
    assert texts(seen_in(server, by_all=False)) == ["Thank you."]
    assert texts(seen_in(server)) == ["Shall I?"]


def word_to(pressed: Action | Stop, text: str = "Thank you.", *, private: bool = True) -> Reply:
    """A word about a pressed button, as it is read back from the store."""
    kept = load_inbound(kind_of(pressed), dump_inbound(pressed))
    assert isinstance(kept, Action | Stop)
    to = kept.author.id if private else ""
    return Reply(thread=kept.thread, text=text, key="r9/1", private_to=to, respond_to=kept.respond_to)


@pytest.mark.parametrize("custom_id", ["approve:a1b2", "stop:"])
async def test_a_word_about_a_pressed_button_survives_a_restart(
    server: DiscordServer, inbox: Inbox, custom_id: str
) -> None:
    first = await start(server, inbox)
    message = await post_button(server, custom_id)
    await server.click(message, custom_id, user=server.bob)
    await inbox.wait_for(lambda: inbox.actions or inbox.stops)
    await first.stop()
    second = await start(server, inbox)
    try:
        (pressed,) = inbox.actions or inbox.stops
        assert isinstance(await second.post(word_to(pressed)), Delivered)
        assert texts(seen_in(server, by_all=False)) == ["Thank you."]
        assert seen_in(server, server.dm_with(server.bob)) == []
    finally:
        await second.stop()


async def test_a_word_about_a_button_that_was_pressed_long_ago_is_a_direct_message(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter, clock: Clock
) -> None:
    message = await with_buttons(server, inbox, adapter)
    await server.click(message, "approve:a1b2", user=server.bob)
    await inbox.wait_for(lambda: inbox.actions)
    clock.ahead_s = TOKEN_S + 1
    assert isinstance(await adapter.post(word_to(inbox.actions[0])), Delivered)
    assert texts(seen_in(server, server.dm_with(server.bob))) == ["Thank you."]
    assert texts(seen_in(server)) == ["Shall I?"]


async def test_what_all_may_read_about_a_button_stands_beside_its_message_and_not_in_its_place(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    message = await with_buttons(server, inbox, adapter)
    await server.click(message, "approve:a1b2", user=server.bob)
    await inbox.wait_for(lambda: inbox.actions)
    assert isinstance(await adapter.post(word_to(inbox.actions[0], "Bob agreed.", private=False)), Delivered)
    assert texts(seen_in(server)) == ["Shall I?", "Bob agreed."]
