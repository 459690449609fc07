"""What edits and deletions of messages come to, over both ways in which Slack delivers."""

from __future__ import annotations

import pytest

from tests.integration.slack.conftest import Inbox, all_acknowledged
from tests.servers.slack import SlackServer

pytestmark = pytest.mark.usefixtures("adapter")


@pytest.fixture(params=["socket", "http"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_b009_a_mention_added_by_an_edit_wakes_once(server: SlackServer, inbox: Inbox) -> None:
    ts = await server.say("help")
    await server.edit(ts, "help <@U0BOT>")
    await server.edit(ts, "help me <@U0BOT>")
    await server.edit(ts, "help me")
    await all_acknowledged(server, 4)
    assert [(m.id, m.text, m.mentioned, m.thread.thread) for m in inbox.messages if m.mentioned] == [
        (ts, "help", True, ts)
    ]


async def test_b007_an_edited_mention_is_the_same_message_and_long_after_none(
    server: SlackServer, inbox: Inbox
) -> None:
    event = {"type": "app_mention", "user": "U1ALICE", "text": "<@U0BOT> hi", "channel": "C1OPS", "ts": "1000.1"}
    await server.emit(event)
    await server.emit(event | {"edited": {"user": "U1ALICE", "ts": "1000.5"}})
    await server.emit(event | {"edited": {"user": "U1ALICE", "ts": "99000.5"}})
    await all_acknowledged(server, 3)
    assert [m.id for m in inbox.messages] == ["1000.1", "1000.1"]


@pytest.mark.parametrize(
    ("now", "was"),
    [
        pytest.param({"text": "<@U0BOT> x", "bot_id": "B2", "user": "U2BOT"}, {"text": "x"}, id="a bot edits"),
        pytest.param({"text": "<@U0BOT> x"}, {"text": "<@U0BOT> x"}, id="nothing changed (a preview was added)"),
        pytest.param({"text": "<@U0BOT> x", "user": None}, {"text": "x"}, id="nobody wrote it"),
        pytest.param({"text": "<@U0BOT> x"}, None, id="it is not said what was there before"),
        pytest.param({"text": "<@U0BOT> x", "user": "U0BOT"}, {"text": "x"}, id="we edit"),
        pytest.param({"text": "<@U0BOT> x", "subtype": "channel_topic"}, {"text": "x"}, id="a topic"),
        pytest.param({"text": "x"}, {"text": "<@U0BOT> x"}, id="the mention was taken away"),
    ],
)
async def test_b008_b010_edits_that_are_no_new_mention_are_acknowledged_and_ignored(
    server: SlackServer, inbox: Inbox, now: dict[str, object], was: dict[str, object] | None
) -> None:
    event: dict[str, object] = {"type": "message", "subtype": "message_changed", "hidden": True, "channel": "C1OPS"}
    event |= {"ts": "2.2", "message": {"type": "message", "user": "U1ALICE", "ts": "2.1", **now}}
    await server.emit(event | ({} if was is None else {"previous_message": {"ts": "2.1", **was}}))
    await all_acknowledged(server, 1)
    assert inbox.items == []


async def test_a_deleted_message_leaves_with_its_thread_and_id(server: SlackServer, inbox: Inbox) -> None:
    root = await server.mention("hello")
    ts = await server.say("my password is 1234", thread_ts=root)
    event = {
        "type": "message",
        "subtype": "message_deleted",
        "hidden": True,
        "channel": "C1OPS",
        "ts": "3.1",
        "deleted_ts": ts,
        "previous_message": {"user": "U1ALICE", "text": "x", "ts": ts, "thread_ts": root},
    }
    await server.emit(event)
    await inbox.wait_for(lambda: inbox.deletions)
    (deleted,) = inbox.deletions
    assert (deleted.message_id, deleted.thread.thread, deleted.author.id) == (ts, root, "U1ALICE")


async def test_a_deleted_root_that_has_replies_leaves_too(server: SlackServer, inbox: Inbox) -> None:
    """Slack keeps a root with replies as a tombstone, by an edit."""
    event = {
        "type": "message",
        "subtype": "message_changed",
        "hidden": True,
        "channel": "C1OPS",
        "ts": "3.2",
        "message": {"subtype": "tombstone", "user": "USLACKBOT", "text": "gone", "ts": "3.0", "thread_ts": "3.0"},
        "previous_message": {"user": "U1ALICE", "text": "x", "ts": "3.0", "thread_ts": "3.0"},
    }
    await server.emit(event)
    await inbox.wait_for(lambda: inbox.deletions)
    assert (inbox.deletions[0].message_id, inbox.deletions[0].thread.thread) == ("3.0", "3.0")


async def test_our_own_posts_may_be_deleted_without_a_word(server: SlackServer, inbox: Inbox) -> None:
    root = await server.say("root")
    ts = await server.bot_say(root, "draft")
    server._delete("C1OPS", server._find("C1OPS", ts))
    await all_acknowledged(server, 3)
    assert inbox.deletions == []
