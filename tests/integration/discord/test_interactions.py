"""Commands, buttons and suggestions, through discord.py and back by the interaction's token."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from adapters.chat import Action, Attachment, Button, Delivered, Inbound, Reply, Stop, ThreadRef
from adapters.commands import CommandOffer, CommandOption, Completing
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
from tests.servers.discord import DiscordServer

EPHEMERAL, LOADING = 1 << 6, 1 << 7
SLOWQ = CommandOffer(
    name="slowq",
    summary="List slow queries.",
    options=(
        CommandOption(name="threshold", summary="Seconds.", kind="number"),
        CommandOption(name="limit", summary="Rows.", kind="integer"),
        CommandOption(name="target", summary="Which.", completes="target"),
        CommandOption(name="system", summary="All.", kind="boolean"),
    ),
)
ASK = CommandOffer(
    name="ask",
    summary="Ask.",
    options=(CommandOption(name="question", summary="What?", required=True),),
    plain=True,
)
USAGE = CommandOffer(name="usage", summary="Show usage.", plain=True, private=True)
OFFERS = (ASK, SLOWQ, USAGE)
CALLBACK, WEBHOOK = r"^POST /interactions/", r"/webhooks/"


class Clock:
    """The time of day, which can be set forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.ahead_s)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def suggest(asked: Completing) -> list[str]:
    names = [f"{asked.completes}{n:02}" for n in range(40)]
    return [name for name in names if name.startswith(asked.typed)]


async def start(server: DiscordServer, inbox: Inbox, **options: Any) -> DiscordAdapter:
    adapter = build_adapter(server, **options)
    adapter.offer_commands(OFFERS, suggest)
    await adapter.start(inbox.accept)
    await wait_connected(adapter)
    await server.wait_until(lambda: {"ask", "slowq", "usage"} <= {c["name"] for c in server.commands["global"]})
    return adapter


@pytest.fixture
async def adapter(server: DiscordServer, inbox: Inbox, clock: Clock) -> AsyncIterator[DiscordAdapter]:
    adapter = await start(server, inbox, now=clock)
    yield adapter
    await adapter.stop()
    assert server.violations == []


async def give(server: DiscordServer, inbox: Inbox, name: str = "slowq", **kw: Any) -> Any:
    """Give a command and wait until it is stored."""
    before = len(inbox.commands)
    interaction = await server.slash(name, **kw)
    await inbox.wait_for(lambda: len(inbox.commands) > before)
    return interaction


def answer_to(inbox: Inbox, text: str, *, part: int = 1, private: bool = False, **fields: Any) -> Reply:
    command = inbox.commands[-1]
    return Reply(
        thread=command.thread,
        text=text,
        key=f"run{command.id}/{part}",
        respond_to=command.respond_to,
        private_to=command.author.id if private else "",
        **fields,
    )


def seen_in(server: DiscordServer, channel: str | None = None, *, by_all: bool = True) -> list[dict[str, Any]]:
    """Our messages in a channel; those that all see, or those that one person sees."""
    return [m for m in server.bot_messages(channel or server.general) if bool(m["flags"] & EPHEMERAL) is not by_all]


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [m["content"] for m in messages]


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


# -- out -------------------------------------------------------------------------------------------


async def test_b065_an_answer_after_the_three_seconds_becomes_the_announced_message(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    await give(server, inbox)
    server.interaction_deadline = 0.0  # the three seconds are over
    assert isinstance(await adapter.post(answer_to(inbox, "5 queries.")), Delivered)
    (message,) = seen_in(server)
    assert (message["content"], message["flags"] & LOADING) == ("5 queries.", 0)
    assert server.threads() == []


async def test_the_same_answer_twice_is_one_message(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    await give(server, inbox)
    for _ in range(2):
        for part in (1, 2, 3):
            file = (Attachment(name="rows.csv", content="a,b\n"),) if part == 3 else ()
            outcome = await adapter.post(answer_to(inbox, f"part {part}", part=part, files=file))
            assert isinstance(outcome, Delivered)
    assert texts(seen_in(server)) == ["part 1", "part 2", "part 3"]
    assert [a["filename"] for a in seen_in(server)[-1]["attachments"]] == ["rows.csv"]


async def test_after_a_restart_the_answer_still_becomes_the_announced_message(
    server: DiscordServer, inbox: Inbox
) -> None:
    first = await start(server, inbox)
    await give(server, inbox)
    await first.stop()
    second = await start(server, inbox)
    try:
        assert isinstance(await second.post(answer_to(inbox, "here it is")), Delivered)
    finally:
        await second.stop()
    assert texts(seen_in(server)) == ["here it is"]


async def test_b050_nobody_is_pinged_by_any_way_an_answer_can_take(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    loud = f"@everyone @here <@&9> <@{server.bob}>"
    await give(server, inbox)
    await adapter.post(answer_to(inbox, loud))
    await adapter.post(answer_to(inbox, loud, part=2))
    await adapter.post(answer_to(inbox, loud, part=3, files=(Attachment(name="a.txt", content=loud),)))
    await give(server, inbox, "usage")
    await adapter.post(answer_to(inbox, loud, private=True))
    await adapter.post(answer_to(inbox, loud, part=2, private=True))
    await give(server, inbox)
    await adapter.post(answer_to(inbox, loud, private=True))
    inbox.answer = False
    await server.slash("slowq")
    await server.wait_until(lambda: NOT_TAKEN in texts(seen_in(server)))
    calls = [c for c in server.calls_to(rf"{WEBHOOK}|/messages") if c.method in ("POST", "PATCH")]
    assert len(calls) == 7
    assert server.pinged() == set()
    for call in calls:
        assert call.body["allowed_mentions"] == {"parse": [], "users": [], "roles": [], "replied_user": False}


async def test_an_answer_may_ping_whom_it_names(server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter) -> None:
    await give(server, inbox)
    await adapter.post(answer_to(inbox, f"done, <@{server.bob}>", mentions=frozenset({server.bob})))
    (call,) = server.calls_to(r"^PATCH .*/@original$")
    assert call.body["allowed_mentions"]["users"] == [server.bob]


async def test_a_private_answer_stays_with_the_one_who_asked(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    await give(server, inbox, "usage")
    for part in (1, 2):
        outcome = await adapter.post(answer_to(inbox, f"secret {part}", part=part, private=True))
        assert isinstance(outcome, Delivered)
    assert seen_in(server) == []
    assert texts(seen_in(server, by_all=False)) == ["secret 1", "secret 2"]


async def test_a_private_answer_to_a_public_announcement_takes_that_back_first(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    await give(server, inbox)
    assert isinstance(await adapter.post(answer_to(inbox, "only for you", private=True)), Delivered)
    assert seen_in(server) == [], "not even the announcement stays"
    assert texts(seen_in(server, by_all=False)) == ["only for you"]
    order = [call.method for call in server.calls_to(WEBHOOK)]
    assert order == ["DELETE", "POST"]


async def test_a_private_answer_waits_while_the_announcement_cannot_be_taken_back(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    await give(server, inbox)
    server.inject(r"^DELETE /webhooks/", times=9, http=500)
    outcome = await adapter.post(answer_to(inbox, "only for you", private=True))
    assert not isinstance(outcome, Delivered)
    assert not server.calls_to(r"^POST /webhooks/")
    server.faults.clear()
    assert isinstance(await adapter.post(answer_to(inbox, "only for you", private=True)), Delivered)
    assert texts(seen_in(server, by_all=False)) == ["only for you"]


@pytest.mark.parametrize("how", ["old", "refused"])
async def test_without_the_token_the_answer_is_posted_as_the_bot(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter, clock: Clock, how: str
) -> None:
    await give(server, inbox)
    if how == "old":
        clock.ahead_s = TOKEN_S + 1
    else:
        server.token_ttl = 0.0
    for _ in range(2):
        assert isinstance(await adapter.post(answer_to(inbox, "late but here")), Delivered)
    assert texts([m for m in seen_in(server) if not m["flags"] & LOADING]) == ["late but here"]
    assert bool(server.calls_to(r"^PATCH /webhooks/")) == (how == "refused")


@pytest.mark.parametrize("name", ["usage", "slowq"])
@pytest.mark.parametrize("how", ["old", "refused"])
async def test_without_the_token_a_private_answer_is_a_direct_message(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter, clock: Clock, how: str, name: str
) -> None:
    await give(server, inbox, name)
    if how == "old":
        clock.ahead_s = TOKEN_S + 1
    else:
        server.token_ttl = 0.0
    assert isinstance(await adapter.post(answer_to(inbox, "secret", private=True)), Delivered)
    assert "secret" not in texts(server.messages(server.general))
    direct = next(c for c in server.channels.values() if c["type"] == 1)
    assert texts(server.bot_messages(direct["id"])) == ["secret"]


async def test_an_answer_that_stands_already_is_not_posted_again_when_the_token_is_old(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter, clock: Clock
) -> None:
    await give(server, inbox)
    first = await adapter.post(answer_to(inbox, "once"))
    clock.ahead_s = TOKEN_S + 1
    assert await adapter.post(answer_to(inbox, "once")) == first
    assert texts(seen_in(server)) == ["once"]


async def test_an_announcement_that_was_removed_costs_no_answer(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    interaction = await give(server, inbox)
    del server._messages[server.general][interaction.message]
    assert isinstance(await adapter.post(answer_to(inbox, "still here")), Delivered)
    assert texts(seen_in(server)) == ["still here"]


async def test_where_the_bot_may_not_post_further_parts_follow_the_first(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    await give(server, inbox)
    await adapter.post(answer_to(inbox, "part 1"))
    server.inject(r"^POST /channels/\d+/messages$", times=9, http=403, code=50013, message="Missing Permissions")
    assert isinstance(await adapter.post(answer_to(inbox, "part 2", part=2)), Delivered)
    assert texts(seen_in(server)) == ["part 1", "part 2"]


async def test_no_token_of_an_interaction_is_logged(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter, capsys: pytest.CaptureFixture[str]
) -> None:
    server.inject(CALLBACK, http=500)
    interaction = await server.slash("slowq", wait=False)
    await inbox.wait_for(lambda: inbox.commands)
    server.inject(WEBHOOK, times=9, http=400)
    await adapter.post(answer_to(inbox, "x"))
    await adapter.post(answer_to(inbox, "x", part=2, private=True))
    said = capsys.readouterr()
    assert interaction.token not in said.out + said.err
