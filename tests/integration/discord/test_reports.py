"""Reports on Discord: the name of their thread, channels without threads, and what is looked for a day later."""

from __future__ import annotations

from datetime import timedelta

import pytest

from adapters.chat import Attachment, Button, Delivered, InDoubt, Rejected, ThreadRef
from adapters.discord.app import DiscordAdapter
from adapters.discord.places import thread_below
from tests.integration.discord.conftest import Inbox
from tests.integration.discord.outbound_desk import Desk, contents, open_desk, place, reply
from tests.servers.discord import DiscordServer
from tests.servers.discord.model import ANNOUNCEMENT, ANNOUNCEMENT_THREAD, FORUM, VOICE

ROOT = "command-report-0123456789abcdef"
KEY = "run-9/1"
DAY_S = 86_400.0


def root_of(server: DiscordServer, *, channel: str = "") -> ThreadRef:
    return place(server, ROOT, channel=channel)


async def begin(desk: Desk, root: ThreadRef, text: str = "Daily: fine", key: str = KEY) -> ThreadRef:
    """Post a headline; returns the thread below it."""
    posted = await desk.outbound.post(reply(root, text, key))
    assert isinstance(posted, Delivered)
    return thread_below(root, posted.remote_id)


@pytest.mark.parametrize(
    ("headline", "name"),
    [
        ("Daily database report\nall is well", "Daily database report"),
        ("**Daily report**: 3 *slow* queries in `shop_eu`\nmore", "Daily report: 3 slow queries in shop_eu"),
        ("Daily: p95_ms <= 2*3 ~ 1 [a] (b)", "Daily: p95_ms <= 2*3 ~ 1 [a] (b)"),
        ("# Wochenbericht \u00b7 \u6bcf\u5468\u62a5\u544a\n- one", "Wochenbericht \u00b7 \u6bcf\u5468\u62a5\u544a"),
    ],
)
async def test_the_thread_is_opened_late_and_bears_the_first_line(
    server: DiscordServer, headline: str, name: str
) -> None:
    async with open_desk(server) as desk:
        thread = await begin(desk, root_of(server), headline)
        assert await desk.outbound.find_posted(thread, "run-9/2") is None
        assert server.threads() == []
        await desk.outbound.post(reply(thread, "the rest", "run-9/2"))
    (opened,) = server.threads()
    assert (opened["name"], opened["parent_id"], opened["owner_id"]) == (name, server.general, server.bot_id)
    assert opened["id"] == thread.thread


async def test_the_thread_of_an_announcement_is_one_like_others(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    channel = server.add_channel("news", kind=ANNOUNCEMENT)
    root = root_of(server, channel=channel)
    posted = await adapter.post(reply(root, "Daily: fine", KEY))
    assert isinstance(posted, Delivered)
    thread = adapter.thread_below(root, posted.remote_id)
    await adapter.post(reply(thread, "the rest", "run-9/2"))
    assert [t["type"] for t in server.threads()] == [ANNOUNCEMENT_THREAD]
    said = await server.say("explain row 3", channel=thread.thread)
    await inbox.wait_for(lambda: inbox.messages)
    assert [(m.id, m.thread, m.mentioned) for m in inbox.messages] == [(said, thread, False)]


@pytest.mark.parametrize("why", ["may not", "voice", "too many"])
async def test_where_no_thread_can_be_opened_the_rest_replies_to_the_headline_and_says_so_once(
    server: DiscordServer, why: str
) -> None:
    channel = server.add_channel("voice", kind=VOICE) if why == "voice" else server.general
    if why == "may not":
        server.deny(channel, "CREATE_PUBLIC_THREADS")
    if why == "too many":
        server.guilds[server.guild_id].max_active_threads = 0
    table = Attachment(name="rows.csv", content="a,b\n1,2\n")
    async with open_desk(server) as desk:
        thread = await begin(desk, root_of(server, channel=channel))
        assert isinstance(await desk.outbound.post(reply(thread, "part 1", "run-9/2")), Delivered)
        assert isinstance(await desk.outbound.post(reply(thread, "part 2", "run-9/3", files=(table,))), Delivered)
        found = await desk.outbound.find_posted(thread, "run-9/3")
        assert not isinstance(found, InDoubt)
    headline, first, second = server.bot_messages(channel)
    assert first["content"].startswith("part 1\n-# I answer here")
    assert second["content"] == "part 2"
    assert [f["filename"] for f in second["attachments"]] == ["rows.csv"]
    assert {m["message_reference"]["message_id"] for m in (first, second)} == {headline["id"]}
    assert server.threads() == []


async def test_a_forum_takes_no_report(server: DiscordServer) -> None:
    forum = server.add_channel("posts", kind=FORUM)
    async with open_desk(server) as desk:
        for _ in range(2):
            outcome = await desk.outbound.post(reply(root_of(server, channel=forum), "Daily: fine", KEY))
            assert isinstance(outcome, Rejected)
            assert outcome.reason


async def test_a_direct_conversation_holds_headline_and_rest(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    channel = server.dm_with(server.alice)
    root = ThreadRef(platform="discord", workspace="@me", channel=channel, thread=ROOT)
    posted = await adapter.post(reply(root, "Daily: fine", KEY))
    assert isinstance(posted, Delivered)
    thread = adapter.thread_below(root, posted.remote_id)
    await adapter.post(reply(thread, "the rest", "run-9/2"))
    assert contents(server, channel) == ["Daily: fine", "the rest"]
    await server.say("explain row 3", channel=channel)
    await inbox.wait_for(lambda: inbox.messages)
    assert inbox.messages[0].thread == thread


async def test_a_channel_without_the_right_to_post_is_refused_with_its_remedy(server: DiscordServer) -> None:
    server.deny(server.general, "SEND_MESSAGES")
    async with open_desk(server) as desk:
        outcome = await desk.outbound.post(reply(root_of(server), "Daily: fine", KEY))
    assert isinstance(outcome, Rejected)
    assert "permission" in outcome.reason


async def test_a_thread_that_was_deleted_takes_nothing_more(server: DiscordServer) -> None:
    async with open_desk(server) as desk:
        thread = await begin(desk, root_of(server))
        assert isinstance(await desk.outbound.post(reply(thread, "part 1", "run-9/2")), Delivered)
        await server.delete_channel(thread.thread)
        for n in (3, 4):
            outcome = await desk.outbound.post(reply(thread, f"part {n}", f"run-9/{n}"))
            assert isinstance(outcome, Rejected)
            assert outcome.gone
    assert contents(server, server.general) == ["Daily: fine"]


# -- what a process that takes over long after can know
async def settle(server: DiscordServer, *, after_s: float) -> Delivered | InDoubt | None:
    """Look for the headline of ``KEY`` as a process that remembers nothing."""
    async with open_desk(server) as desk:
        desk.ahead = timedelta(seconds=after_s)
        return await desk.outbound.find_posted(root_of(server), KEY)


async def test_reports_of_other_days_and_replies_to_questions_are_never_it(server: DiscordServer) -> None:
    async with open_desk(server) as desk:
        old = await begin(desk, root_of(server), "Yesterday", "run-8/1")
        await desk.outbound.post(reply(old, "the rest", "run-8/2"))
    server.deny(server.general, "CREATE_PUBLIC_THREADS")
    async with open_desk(server) as desk:
        await desk.outbound.post(reply(place(server, await server.mention("hello")), "An answer.", "run-7/1"))
    assert await settle(server, after_s=600.0) is None


async def test_a_headline_with_nothing_below_it_leaves_doubt_for_twenty_hours(server: DiscordServer) -> None:
    async with open_desk(server) as desk:
        await begin(desk, root_of(server), "Yesterday: nothing to say", "run-8/1")
    assert await settle(server, after_s=60.0) is None  # posted again, Discord itself would answer with the first
    assert isinstance(await settle(server, after_s=600.0), InDoubt)
    assert await settle(server, after_s=DAY_S) is None


@pytest.mark.parametrize("below", [True, False], ids=["with a thread", "without a thread"])
async def test_a_headline_with_buttons_is_found_however_late(server: DiscordServer, below: bool) -> None:
    buttons = (Button(name="again", label="Run again", value="j1"),)
    async with open_desk(server) as desk:
        posted = await desk.outbound.post(reply(root_of(server), "Daily: fine", KEY, buttons=buttons))
        assert isinstance(posted, Delivered)
        if below:
            await desk.outbound.post(reply(thread_below(root_of(server), posted.remote_id), "the rest", "run-9/2"))
    assert await settle(server, after_s=3_600.0) == posted


async def test_a_busy_channel_is_looked_through_no_further_than_it_has_to(server: DiscordServer) -> None:
    for n in range(1_100):
        await server.say(f"talk {n}")
    assert await settle(server, after_s=DAY_S) is None
    assert len(server.calls_to(rf"^GET /channels/{server.general}/messages$")) == 1


@pytest.mark.parametrize("remote_id", ["", "response-1", "@original", "12 34", "a/b"])
def test_what_has_no_id_of_a_message_has_no_thread_below(server: DiscordServer, remote_id: str) -> None:
    assert thread_below(root_of(server), remote_id) == root_of(server)
