from __future__ import annotations

import pytest

from adapters.chat import ThreadRef
from adapters.slack.app import SlackAdapter
from tests.integration.slack.conftest import Inbox, all_acknowledged, build_adapter, wait_connected
from tests.servers.slack import Copies, SlackServer

pytestmark = pytest.mark.usefixtures("adapter")


async def test_a_mention_at_top_level_opens_a_thread_at_itself(server: SlackServer, inbox: Inbox) -> None:
    ts = await server.mention("which queries were slow?")
    await inbox.wait_for(lambda: len(inbox.messages) == 2)  # both twins
    assert {(m.thread, m.id, m.text, m.mentioned, m.direct) for m in inbox.messages} == {
        (
            ThreadRef(platform="slack", workspace="T0FAKE", channel="C1OPS", thread=ts),
            ts,
            "which queries were slow?",
            True,
            False,
        )
    }
    assert {m.author.name for m in inbox.messages} == {"alice"}
    assert abs(inbox.messages[0].sent_at.timestamp() - float(ts)) < 0.001
    await all_acknowledged(server, 2)
    assert server.violations == []


async def test_a_mention_inside_a_thread_stays_in_it(server: SlackServer, inbox: Inbox) -> None:
    root = await server.say("the shop is slow today")
    ts = await server.mention("why?", thread_ts=root)
    await inbox.wait_for(lambda: [m for m in inbox.messages if m.id == ts])
    assert {m.thread.thread for m in inbox.messages if m.id == ts} == {root}


async def test_a_follow_up_without_a_mention_arrives_as_such(server: SlackServer, inbox: Inbox) -> None:
    root = await server.mention("hello")
    ts = await server.say("and yesterday?", thread_ts=root, user="U2BOB")
    await inbox.wait_for(lambda: [m for m in inbox.messages if m.id == ts])
    (message,) = [m for m in inbox.messages if m.id == ts]
    assert (message.mentioned, message.thread.thread, message.author.id, message.author.name) == (
        False,
        root,
        "U2BOB",
        "bob",
    )


async def test_a_direct_message_is_direct(server: SlackServer, inbox: Inbox) -> None:
    ts = await server.say("hi", channel="D1ALICE")
    await inbox.wait_for(lambda: inbox.messages)
    (message,) = inbox.messages
    assert (message.direct, message.mentioned, message.thread.thread) == (True, False, ts)


@pytest.mark.parametrize(
    "copies",
    [
        Copies(mention=2, message=2),
        Copies(mention=1, message=3, mention_first=True),
        Copies(mention=0, message=4),
        Copies(mention=4, message=0),
        Copies(mention=2, message=2, same_envelope=True),
    ],
)
async def test_every_delivery_of_a_message_has_the_same_identity(
    server: SlackServer, inbox: Inbox, copies: Copies
) -> None:
    ts = await server.mention("hello", copies=copies)
    await inbox.wait_for(lambda: len(inbox.messages) == 4)
    assert {(m.thread.key, m.id, m.mentioned, m.text) for m in inbox.messages} == {
        (f"slack:T0FAKE/C1OPS/{ts}", ts, True, "hello")
    }
    assert len({m.delivery_id for m in inbox.messages}) == bool(copies.mention) + bool(copies.message)
    await all_acknowledged(server, 4)


async def test_a_mention_without_ts_is_known_by_its_event_ts(server: SlackServer, inbox: Inbox) -> None:
    event = {
        "type": "app_mention",
        "user": "U1ALICE",
        "text": "<@U0BOT> hi",
        "channel": "C1OPS",
        "event_ts": "1700000000.000100",
    }
    await server.emit(event)
    await inbox.wait_for(lambda: inbox.messages)
    assert (inbox.messages[0].id, inbox.messages[0].thread.thread) == ("1700000000.000100", "1700000000.000100")


@pytest.mark.parametrize(
    "event",
    [
        {"type": "reaction_added", "user": "U1ALICE", "reaction": "eyes", "item": {}},
        {"type": "some_event_of_next_year", "payload": [1, 2]},
        {"type": "message", "subtype": "channel_join", "user": "U1ALICE", "ts": "1.1", "channel": "C1OPS", "text": "x"},
        {
            "type": "message",
            "subtype": "message_changed",
            "ts": "1.2",
            "channel": "C1OPS",
            "message": {"text": "<@U0BOT>"},
        },
        {"type": "message", "subtype": "message_deleted", "deleted_ts": "1.1", "ts": "1.3", "channel": "C1OPS"},
        {
            "type": "message",
            "user": "U1ALICE",
            "ts": "1.4",
            "thread_ts": "1.1",
            "channel": "C1OPS",
            "message": {"text": "m"},
        },
        {"type": "message", "channel": "C1OPS", "text": "nobody wrote this", "ts": "1.5"},
        {"type": "message", "user": "U1ALICE", "channel": "C1OPS", "text": "no time", "ts": "soon"},
        {"type": "message", "user": "USLACKBOT", "channel": "C1OPS", "text": "a reminder", "ts": "1.6"},
        {"type": "message", "bot_id": "B9", "user": "U9BOT", "channel": "C1OPS", "text": "<@U0BOT> go", "ts": "1.7"},
        {
            "type": "message",
            "subtype": "bot_message",
            "bot_id": "B9",
            "channel": "C1OPS",
            "text": "<@U0BOT>",
            "ts": "1.8",
        },
        {"type": "app_mention", "bot_id": "B9", "user": "U9BOT", "channel": "C1OPS", "text": "<@U0BOT>", "ts": "1.9"},
        {"type": "message", "user": "U0BOT", "channel": "C1OPS", "text": "<@U0BOT> my own words", "ts": "2.0"},
        {"type": "message", "bot_id": "B0FAKE", "channel": "C1OPS", "text": "my own words", "ts": "2.1"},
        {"type": "app_uninstalled"},
        {"type": "function_executed", "function": {}},
    ],
)
async def test_what_no_person_said_is_acknowledged_and_ignored(
    server: SlackServer, inbox: Inbox, event: dict[str, object]
) -> None:
    await server.emit(event)
    await all_acknowledged(server, 1)
    assert inbox.items == []


async def test_our_own_posts_do_not_come_in(server: SlackServer, inbox: Inbox, adapter: SlackAdapter) -> None:
    root = await server.mention("hello")
    await inbox.wait_for(lambda: len(inbox.messages) == 2)
    await server.bot_say(root, "hello <@U0BOT>")
    await all_acknowledged(server, 3)
    assert len(inbox.messages) == 2


async def test_a_bot_on_the_list_is_heard(server: SlackServer) -> None:
    inbox = Inbox()
    adapter = build_adapter(server, bots={"B9"})
    await adapter.start(inbox.accept)
    await wait_connected(adapter)
    alert = {"title": "CPU high", "text": "db-1 at 99 %", "fallback": "x"}
    event = {"type": "message", "subtype": "bot_message", "bot_id": "B9", "channel": "C1OPS", "text": "", "ts": "1.1"}
    for _ in range(2):  # whichever of the two connections gets it
        await server.emit(event | {"attachments": [alert]})
    await inbox.wait_for(lambda: inbox.messages)
    await adapter.stop()
    assert inbox.messages[0].text == "CPU high\ndb-1 at 99 %"
    assert inbox.messages[0].author.bot


async def test_a_file_with_text_is_a_message(server: SlackServer, inbox: Inbox) -> None:
    await server.mention("look at this", files={"plan.txt": b"Seq Scan"})
    await inbox.wait_for(lambda: inbox.messages)
    assert inbox.messages[0].text == "look at this\n[attached file: plan.txt]"


async def test_markup_becomes_readable_text(server: SlackServer, inbox: Inbox) -> None:
    await server.mention(
        "ask <@U2BOB> or <@U7NOONE> in <#C1|general> <!subteam^S1|@dbas> <!here> "
        "<https://ex.test/?a=1&amp;b=2|the page> <http://ex.test|ex.test> <mailto:a@b.test|a@b.test> "
        "1 &lt; 2 &amp;&amp; `x`"
    )
    await inbox.wait_for(lambda: inbox.messages)
    assert inbox.messages[0].text == (
        "ask @bob or @U7NOONE in #general @dbas @here the page (https://ex.test/?a=1&b=2) http://ex.test "
        "a@b.test 1 < 2 && `x`"
    )


async def test_an_empty_mention_arrives_empty(server: SlackServer, inbox: Inbox) -> None:
    await server.mention("")
    await inbox.wait_for(lambda: inbox.messages)
    assert inbox.messages[0].text == ""


async def test_guests_and_people_of_other_organisations_are_marked(server: SlackServer, inbox: Inbox) -> None:
    server.add_user("U3GUEST", "gus", is_restricted=True)
    server.add_user("U4OTHER", "otto", team_id="T9OTHER")
    server.add_user("U5STRANGER", "sam", is_stranger=True)
    for user in ("U1ALICE", "U3GUEST", "U4OTHER", "U5STRANGER"):
        await server.mention("hi", user=user, copies=Copies(mention=0))
    await inbox.wait_for(lambda: len(inbox.messages) == 4)
    marks = {m.author.id: (m.author.external, m.author.guest) for m in inbox.messages}
    assert marks == {
        "U1ALICE": (False, False),
        "U3GUEST": (False, True),
        "U4OTHER": (True, False),
        "U5STRANGER": (True, False),
    }


async def test_somebody_of_another_team_is_external_even_when_nobody_tells_more(
    server: SlackServer, inbox: Inbox
) -> None:
    server.add_user("U4OTHER", "otto", team_id="T9OTHER")
    server.inject("users.info", error="user_not_visible", times=9)
    await server.mention("hi", user="U4OTHER", copies=Copies(mention=0))
    await inbox.wait_for(lambda: inbox.messages)
    assert (inbox.messages[0].author.external, inbox.messages[0].author.name) == (True, "U4OTHER")


async def test_people_are_asked_for_once(server: SlackServer, inbox: Inbox) -> None:
    for _ in range(5):
        await server.mention("hi")
    await inbox.wait_for(lambda: len(inbox.messages) == 10)
    assert len(server.calls_to("users.info")) == 1


async def test_nobody_is_looked_up_for_talk_that_is_not_for_us(server: SlackServer, inbox: Inbox) -> None:
    await server.say("lunch?")
    await inbox.wait_for(lambda: inbox.messages)
    assert server.calls_to("users.info") == []


# -- acknowledgements ------------------------------------------------------------------------------


async def test_an_event_is_acknowledged_only_when_it_was_accepted(server: SlackServer, inbox: Inbox) -> None:
    inbox.gate.clear()
    await server.mention("hello", copies=Copies(mention=0))
    await server.wait_until(lambda: server.calls_to("users.info"))
    await server.emit({"type": "reaction_added"})  # overtakes: what is behind it on the same socket was sent before
    await server.wait_until(lambda: server.deliveries[-1].acked)
    assert not server.deliveries[0].acked
    inbox.gate.set()
    await all_acknowledged(server, 2)


async def test_what_could_not_be_stored_is_delivered_again(server: SlackServer, inbox: Inbox) -> None:
    server.ack_timeout = 0.3
    inbox.failures = 1
    ts = await server.mention("hello", copies=Copies(mention=0))
    await inbox.wait_for(lambda: inbox.messages)
    await server.wait_until(lambda: len(server.deliveries) == 2 and server.deliveries[1].acked)
    assert [d.acked for d in server.deliveries] == [False, True]
    assert server.deliveries[1].attempt == 1
    assert [m.id for m in inbox.messages] == [ts]


async def test_a_first_delivery_that_calls_itself_a_retry_counts(server: SlackServer, inbox: Inbox) -> None:
    server.lose_acks["message"] = 1
    await server.say("hi", channel="D1ALICE")
    await inbox.wait_for(lambda: len(inbox.messages) == 2)
    assert inbox.messages[0].delivery_id == inbox.messages[1].delivery_id


async def test_slow_look_ups_do_not_delay_acknowledgements(server: SlackServer, inbox: Inbox) -> None:
    server.inject("auth.test", delay=4.0, times=99)
    server.inject("users.info", delay=4.0, times=99)
    for n in range(5):
        server.add_user(f"U1{n}", f"user{n}")
        await server.mention("hi", user=f"U1{n}", copies=Copies(mention=0))
    await inbox.wait_for(lambda: len(inbox.messages) == 5)
    await all_acknowledged(server, 5)
    assert max((d.acked_at or 0) - d.sent_at for d in server.deliveries) < 2.0
    assert {m.author.name for m in inbox.messages} == {f"U1{n}" for n in range(5)}
    assert len(server.calls_to("auth.test")) == 1  # at the start, never again


# -- commands and buttons --------------------------------------------------------------------------


async def test_a_command_arrives_with_a_thread_of_its_own(server: SlackServer, inbox: Inbox) -> None:
    outcome = await server.slash("/hermod", "slow queries")
    (command,) = inbox.commands
    assert outcome.error == ""
    assert server.ephemerals == []
    assert (command.name, command.text, command.author.name) == ("hermod", "slow queries", "alice")
    assert command.thread.thread == f"command-{outcome.trigger_id}"
    assert command.thread.channel == "C1OPS"
    assert command.id == outcome.trigger_id


async def test_an_unknown_command_gets_a_friendly_answer_that_only_its_author_sees(
    server: SlackServer, inbox: Inbox
) -> None:
    inbox.answer = False
    outcome = await server.slash("/nonsense")
    assert outcome.error == ""
    assert "I do not know `/nonsense`" in server.ephemerals[0]["text"]


async def test_a_command_that_could_not_be_stored_is_not_acknowledged(server: SlackServer, inbox: Inbox) -> None:
    server.ack_timeout = 0.3
    inbox.failures = 1
    outcome = await server.slash("/hermod", "x")
    assert outcome.error == "operation_timeout"


async def test_a_pressed_button_arrives_with_its_thread_and_value(server: SlackServer, inbox: Inbox) -> None:
    root = await server.say("root")
    button = {"type": "button", "action_id": "approve", "value": "ask-1", "text": {"type": "plain_text", "text": "Yes"}}
    ts = await server.bot_say(root, "sure?", blocks=[{"type": "actions", "elements": [button]}])
    outcome = await server.click(ts, "approve", user="U2BOB")
    assert outcome.error == ""
    (action,) = inbox.actions
    assert (action.name, action.value, action.author.id, action.thread.thread) == ("approve", "ask-1", "U2BOB", root)


async def test_a_shortcut_that_nobody_listens_to_is_acknowledged(server: SlackServer, inbox: Inbox) -> None:
    ts = await server.say("root")
    outcome = await server.message_shortcut(ts, "no_such_shortcut")
    assert outcome.error == ""
