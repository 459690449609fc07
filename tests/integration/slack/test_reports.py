"""Reports on Slack: their thread, what is shown in the channel as well, and what is looked for in a busy channel."""

from __future__ import annotations

import pytest

from adapters.chat import Button, Delivered, Rejected, Reply, ThreadRef
from adapters.slack.app import SlackAdapter
from adapters.slack.history import ROOT_S
from tests.integration.slack.conftest import Inbox, running
from tests.servers.slack import SlackServer

DIGEST = "command-report-0123456789abcdef"


def root_of(channel: str = "C1OPS", workspace: str = "T0FAKE") -> ThreadRef:
    return ThreadRef(platform="slack", workspace=workspace, channel=channel, thread=DIGEST)


async def begin(adapter: SlackAdapter, root: ThreadRef, key: str = "run1/1") -> ThreadRef:
    """Post a headline; returns the thread below it."""
    posted = await adapter.post(Reply(thread=root, text="Daily: fine", key=key))
    assert isinstance(posted, Delivered)
    return adapter.thread_below(root, posted.remote_id)


async def test_the_thread_is_that_of_the_headline(adapter: SlackAdapter, server: SlackServer) -> None:
    thread = await begin(adapter, root_of())
    await adapter.post(Reply(thread=thread, text="the rest", key="run1/2"))
    headline, rest = server.bot_messages("C1OPS")
    assert thread.key == f"slack:T0FAKE/C1OPS/{headline['ts']}"
    assert (rest["thread_ts"], rest.get("subtype")) == (headline["ts"], None)


@pytest.mark.parametrize("mode", ["socket", "http"])
async def test_a_question_that_is_shown_in_the_channel_too_belongs_to_the_thread(
    adapter: SlackAdapter, server: SlackServer, inbox: Inbox, mode: str
) -> None:
    thread = await begin(adapter, root_of())
    said = await server.say("explain row 3", thread_ts=thread.thread, broadcast=True)
    await inbox.wait_for(lambda: inbox.messages)
    (message,) = inbox.messages
    assert (message.id, message.thread, message.text, message.mentioned) == (said, thread, "explain row 3", False)


async def test_a_report_in_a_direct_conversation_is_asked_about_there(
    adapter: SlackAdapter, server: SlackServer, inbox: Inbox
) -> None:
    thread = await begin(adapter, root_of("D1ALICE"))
    await server.say("why?", channel="D1ALICE", thread_ts=thread.thread)
    await inbox.wait_for(lambda: inbox.messages)
    assert inbox.messages[0].thread == thread


async def test_a_sign_is_asked_for_only_where_a_message_is(adapter: SlackAdapter, server: SlackServer) -> None:
    await adapter.react(root_of(), DIGEST, "seen")
    await adapter.set_status(root_of(), "working")
    asked = {call.method for call in server.calls}
    assert asked <= {"auth.test", "apps.connections.open"}


async def test_what_a_deleted_headline_leaves_is_one_refusal_and_no_try_of_the_rest(
    adapter: SlackAdapter, server: SlackServer
) -> None:
    thread = await begin(adapter, root_of())
    await server.delete(thread.thread)
    outcome = await adapter.post(Reply(thread=thread, text="the rest", key="run1/2"))
    assert isinstance(outcome, Rejected)
    assert outcome.gone
    assert "the message that begins the thread was deleted" in outcome.reason
    assert len(server.calls_to("chat.postMessage")) == 2


@pytest.mark.parametrize("code", ["thread_not_found", "message_not_found", "cannot_reply_to_message"])
async def test_whatever_slack_calls_a_missing_root_it_is_gone(
    adapter: SlackAdapter, server: SlackServer, code: str
) -> None:
    thread = await begin(adapter, root_of())
    server.inject("chat.postMessage", error=code)
    outcome = await adapter.post(Reply(thread=thread, text="the rest", key="run1/2"))
    assert isinstance(outcome, Rejected)
    assert outcome.gone
    assert code in outcome.reason


@pytest.mark.parametrize("missing", ["archived", "left", "deleted"])
async def test_a_channel_that_takes_no_report_is_gone(adapter: SlackAdapter, server: SlackServer, missing: str) -> None:
    match missing:
        case "archived":
            server.archive_channel("C1OPS")
        case "left":
            server.kick_bot("C1OPS")
        case _:
            server.remove_channel("C1OPS")
    outcome = await adapter.post(Reply(thread=root_of(), text="Daily: fine", key="run1/1"))
    assert isinstance(outcome, Rejected)
    assert outcome.gone
    assert outcome.reason


async def test_a_thread_root_of_ours_is_no_post_in_its_thread(adapter: SlackAdapter, server: SlackServer) -> None:
    thread = await begin(adapter, root_of())
    await adapter.post(Reply(thread=thread, text="the rest", key="run1/2"))
    assert await adapter.find_posted(thread, "run1/1") is None
    assert await adapter.find_posted(root_of(), "run1/1") == Delivered(remote_id=thread.thread)
    assert await adapter.find_posted(root_of(), "run1/2") is None


async def test_a_busy_channel_is_looked_through_no_further_than_it_has_to(server: SlackServer, inbox: Inbox) -> None:
    """Of the channel's past, thousands of messages, none can be the one."""
    for n in range(1_200):
        await server.bot_say(None, f"talk {n}")
    server.fast_forward(ROOT_S + 60)
    for n in range(150):
        await server.bot_say(None, f"later {n}")
    async with running(server, inbox) as adapter:
        assert await adapter.find_posted(root_of(), "run1/1") is None
        assert len(server.calls_to("conversations.history")) == 1
        thread = await begin(adapter, root_of())
        assert await adapter.find_posted(root_of(), "run1/1") == Delivered(remote_id=thread.thread)


async def test_b020_what_is_approved_below_a_scheduled_post_is_answered_there(
    server: SlackServer, inbox: Inbox
) -> None:
    """Not at channel level: the thread's address is that of the post, also for a process that came later."""
    async with running(server, inbox) as adapter:
        thread = await begin(adapter, root_of())
        buttons = (Button(name="approve", label="Approve", value="a1"),)
        await adapter.post(Reply(thread=thread, text="May I?", key="run2/1", buttons=buttons))
    async with running(server, inbox) as adapter:
        question = server.bot_messages("C1OPS", thread.thread)[-1]
        await server.click(question["ts"], "approve")
        await inbox.wait_for(lambda: inbox.actions)
        assert inbox.actions[0].thread == thread
        await adapter.post(Reply(thread=inbox.actions[0].thread, text="Done.", key="run2/2"))
    assert server.bot_messages("C1OPS")[-1]["thread_ts"] == thread.thread
