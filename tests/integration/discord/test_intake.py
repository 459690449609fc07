"""What people do on Discord, as it reaches Hermod: through the real client, from a local Discord."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from adapters.chat import Delivered, Inbound, Message, Removed, Reply, ThreadRef
from adapters.discord.app import CANNOT_READ, DiscordAdapter
from tests.integration.discord.conftest import Inbox, build_adapter, running, wait_connected
from tests.servers.discord import DiscordServer
from tests.servers.discord.model import MEMBERS


async def heard(server: DiscordServer, inbox: Inbox) -> list[str]:
    """Say something more that is for Hermod, twice, wait for it, and return the ids of all that came before it.

    Places go side by side, so what follows something else in its own place may come after the first of the two.
    """
    own = []
    for _ in range(2):
        last = await server.mention("that is all")
        await inbox.wait_for(lambda last=last: any(m.id == last for m in inbox.messages))  # type: ignore[misc]
        own.append(last)
    return [m.id for m in inbox.messages if m.id not in own]


async def open_thread(server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox) -> str:
    """Let Hermod answer a question, which opens a thread; returns its id."""
    thread = await server.mention("which queries are slow?")
    await inbox.wait_for(lambda: any(m.id == thread for m in inbox.messages))
    question = next(m for m in inbox.messages if m.id == thread)
    assert isinstance(await adapter.post(Reply(thread=question.thread, text="Two.", key=f"{thread}/1")), Delivered)
    return thread


async def test_a_mention_becomes_a_message_and_its_answer_opens_a_thread(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    message_id = await server.mention("which queries are slow?")
    await inbox.wait_for(lambda: inbox.messages)
    (message,) = inbox.messages
    assert message.thread.key == f"discord:{server.guild_id}/{server.general}/{message_id}"
    assert (message.author.name, message.text, message.mentioned) == ("Alice", "which queries are slow?", True)
    assert not server.threads()

    outcome = await adapter.post(Reply(thread=message.thread, text="The one on `orders`.", key="run/1"))
    assert isinstance(outcome, Delivered)
    (thread,) = server.threads()
    assert (thread["id"], thread["name"]) == (message_id, "which queries are slow?")
    assert [m["content"] for m in server.bot_messages(message_id)] == ["The one on `orders`."]
    assert server.violations == []


async def test_what_is_said_in_a_thread_comes_without_mention_and_in_its_order(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    thread = await open_thread(server, adapter, inbox)
    said = [await server.say(f"and {n}?", channel=thread, user=server.bob) for n in range(20)]
    await inbox.wait_for(lambda: len(inbox.messages) == 21)
    assert [m.id for m in inbox.messages[1:]] == said
    assert {m.thread for m in inbox.messages} == {inbox.messages[0].thread}
    assert not any(m.mentioned for m in inbox.messages[1:])


async def test_a_thread_that_others_opened_and_a_post_in_a_forum_are_places_too(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    forum = server.add_channel("help", kind=15)
    theirs = await server.open_thread("incident")
    await server.mention("look", channel=theirs)
    post = await server.open_post("Slow again", f"<@{server.bot_id}> why?", channel=forum)
    await inbox.wait_for(lambda: len(inbox.messages) == 2)
    assert {m.thread.key for m in inbox.messages} == {
        f"discord:{server.guild_id}/{server.general}/{theirs}",
        f"discord:{server.guild_id}/{forum}/{post}",
    }


async def test_a_direct_message_needs_no_mention(server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox) -> None:
    conversation = server.dm_with(server.bob)
    await server.say("hi", channel=conversation, user=server.bob)
    await inbox.wait_for(lambda: inbox.messages)
    (message,) = inbox.messages
    assert message.direct
    assert message.thread.key == f"discord:@me/{conversation}/{conversation}"
    assert isinstance(await adapter.post(Reply(thread=message.thread, text="Hello.", key="run/1")), Delivered)
    assert [m["content"] for m in server.bot_messages(conversation)] == ["Hello."]


async def test_talk_in_a_channel_that_does_not_mention_hermod_leaves_no_trace(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    calls = len(server.calls)
    for n in range(50):
        await server.say(f"lunch {n}?")
    assert await heard(server, inbox) == []
    assert len(server.calls) == calls


async def test_b055_an_announcement_to_everyone_is_not_answered(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    await server.say("@everyone @here deploy at noon", mention_everyone=True)
    assert await heard(server, inbox) == []


async def test_the_role_that_discord_made_for_hermod_stands_for_it(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    role = server.guilds[server.guild_id].bot_role
    other = server.add_role("dba", mentionable=True)
    await server.say(f"<@&{role}> ask <@&{other}>?", mention_roles=[role, other])
    await server.say(f"<@&{other}> anybody?", mention_roles=[other])
    await inbox.wait_for(lambda: inbox.messages)
    await heard(server, inbox)
    assert [m.text for m in inbox.messages][:2] == ["ask @dba?", "that is all"]
    assert inbox.messages[0].mentioned


async def test_b014_b015_only_listed_bots_are_heard_and_only_when_they_write_the_mention(
    server: DiscordServer, inbox: Inbox
) -> None:
    alerts, stranger = server.add_user("alerts", bot=True), server.add_user("stranger", bot=True)
    async with running(server, inbox, bots=(alerts,)) as adapter:
        thread = await open_thread(server, adapter, inbox)
        ours = server.bot_messages(thread)[0]["id"]
        await server.mention("me too", user=stranger)
        await server.say("Ack.", user=alerts, channel=thread)
        await server.say("Thanks!", user=alerts, channel=thread, reply_to=ours)
        await server.mention("by a webhook", webhook_id="77")
        wanted = await server.mention("disk is full", user=alerts)
        assert await heard(server, inbox) == [thread, wanted]
        assert inbox.messages[1].author.bot


async def test_own_posts_and_signs_of_the_system_are_not_heard(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    thread = await open_thread(server, adapter, inbox)
    await server.say("a pinned message", channel=thread, type=6)
    await server.say("renamed", channel=thread, type=4)
    assert await heard(server, inbox) == [thread]


async def test_a_reply_counts_when_it_pings(server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox) -> None:
    said = await server.say("it hangs", user=server.bob)
    ours = await server.say("I see.", user=server.bot_id)
    await server.say("not for you", reply_to=ours, ping=False)
    await server.say("and now?", reply_to=ours)
    await server.mention("what does this mean?", reply_to=said)
    await heard(server, inbox)
    assert [(m.text, m.quoted) for m in inbox.messages][:2] == [
        ("and now?", "In reply to hermod: I see."),
        ("what does this mean?", "In reply to Bob: it hangs"),
    ]


async def test_attached_files_can_be_fetched_when_they_are_needed(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    await server.mention("what is in it?", files={"slow.log": b"# Time: 12\n"})
    await inbox.wait_for(lambda: inbox.messages)
    (file,) = inbox.messages[0].files
    assert (file.name, file.size) == ("slow.log", 11)
    assert await adapter.fetch_file(file, max_bytes=100) == b"# Time: 12\n"


# -- edits and deletions
async def test_b009_a_mention_that_an_edit_adds_is_heard_once(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    message_id = await server.say("help")
    await server.unfurl(message_id)
    await server.edit(message_id, f"<@{server.bot_id}> help")
    await server.edit(message_id, f"<@{server.bot_id}> help me")
    assert await heard(server, inbox) == [message_id]
    assert inbox.messages[0].mentioned


async def test_b007_an_edit_of_a_mention_that_was_heard_is_no_new_message(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    message_id = await server.mention("which querys are slow?")
    await server.edit(message_id, f"<@{server.bot_id}> which queries are slow?")
    await server.unfurl(message_id)
    assert await heard(server, inbox) == [message_id]


async def test_b010_an_update_in_parts_is_left_alone(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    connection = server.live()[0].connection
    message_id = await server.say("help")
    server.emit("MESSAGE_UPDATE", {"id": message_id, "channel_id": server.general, "embeds": []})
    server.emit("MESSAGE_UPDATE", {"id": message_id, "edited_timestamp": "x", "content": None, "author": 7})
    server.emit("MESSAGE_CREATE", {"id": [], "type": [], "author": {"id": "1"}, "mentions": [{"id": server.bot_id}]})
    server.emit("MESSAGE_DELETE", {"ids": "x"})
    server.emit("GUILD_ROLE_UPDATE", {"guild_id": server.guild_id, "role": None})
    assert await heard(server, inbox) == []
    assert adapter.connected
    assert server.live()[0].connection is connection


async def test_a_deletion_is_told_with_the_thread_it_happened_in(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    thread = await open_thread(server, adapter, inbox)
    follow_up = await server.say("and db2?", channel=thread)
    await server.delete(follow_up)
    await server.delete(thread, channel=server.general)
    await inbox.wait_for(lambda: len(inbox.deletions) == 2)
    place = inbox.messages[0].thread
    assert [(d.thread, d.message_id) for d in inbox.deletions] == [(place, follow_up), (place, thread)]


async def test_many_deletions_at_once_are_told_one_by_one(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    body = {"ids": ["101", "102"], "channel_id": server.general, "guild_id": server.guild_id}
    server.emit("MESSAGE_DELETE_BULK", body, guild=server.guild_id)
    await inbox.wait_for(lambda: len(inbox.deletions) == 2)
    assert {d.thread.thread for d in inbox.deletions} == {"101", "102"}


async def test_that_an_own_post_is_deleted_is_no_news(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    thread = await open_thread(server, adapter, inbox)
    (ours,) = [m["id"] for m in server.bot_messages(thread)]
    await server.delete(ours)
    body = {"ids": [ours, "102"], "channel_id": thread, "guild_id": server.guild_id}
    server.emit("MESSAGE_DELETE_BULK", body, guild=server.guild_id)
    await inbox.wait_for(lambda: inbox.deletions)
    await heard(server, inbox)
    assert [d.message_id for d in inbox.deletions] == ["102"]


async def test_b029_a_thread_that_is_deleted_takes_its_question_back(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    thread = await open_thread(server, adapter, inbox)
    await server.delete_channel(thread)
    await inbox.wait_for(lambda: inbox.deletions)
    assert [(d.thread, d.message_id) for d in inbox.deletions] == [(inbox.messages[0].thread, thread)]


async def test_a_guild_that_removes_hermod_is_told_and_an_outage_is_not(server: DiscordServer, inbox: Inbox) -> None:
    removed: list[Removed] = []

    async def note(what: Removed) -> None:
        removed.append(what)

    other = server.add_guild("Other")
    async with running(server, inbox, on_removed=note):
        await server.fail_guild()
        await server.kick_bot(other)
        async with asyncio.timeout(30):
            while not removed:  # noqa: ASYNC110 - a list of the test's own
                await asyncio.sleep(0.005)
    assert removed == [Removed(platform="discord", workspace=other)]


# -- storing
async def test_what_cannot_be_stored_is_handed_over_again_in_order(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    thread = await open_thread(server, adapter, inbox)
    inbox.failures = 3
    said = [await server.say(f"{n}", channel=thread) for n in range(3)]
    await inbox.wait_for(lambda: len(inbox.messages) == 4)
    assert [m.id for m in inbox.messages[1:]] == said


async def test_what_can_never_be_stored_is_given_up_and_holds_up_nothing(server: DiscordServer) -> None:
    tried: list[str] = []
    stored = asyncio.Event()

    async def accept(inbound: Inbound) -> bool:
        assert isinstance(inbound, Message)
        tried.append(inbound.text)
        if inbound.text == "bad":
            raise OSError("the disk is full")
        stored.set()
        return True

    adapter = build_adapter(server, retry_s=0.001)
    try:
        await adapter.start(accept)
        await wait_connected(adapter)
        thread = await server.open_thread("incident")
        await server.say("bad", channel=thread)
        await server.say("good", channel=thread)
        async with asyncio.timeout(30):
            await stored.wait()
    finally:
        await adapter.stop()
    assert tried == [*["bad"] * 7, "good"]


async def test_a_slow_store_holds_up_neither_other_threads_nor_the_heartbeat(inbox: Inbox) -> None:
    async with DiscordServer(heartbeat_ms=300) as server, running(server, inbox):
        (session,) = server.live()
        inbox.gate.clear()
        for n in range(20):
            await server.mention(f"{n}")
        beats = session.heartbeats
        await server.wait_until(lambda: session.heartbeats >= beats + 3)
        inbox.gate.set()
        await inbox.wait_for(lambda: len(inbox.messages) == 20)
        assert len(server.identifies) == 1


async def test_nothing_is_taken_after_stop_and_what_was_taken_is_stored(server: DiscordServer, inbox: Inbox) -> None:
    begun = asyncio.Event()

    async def accept(inbound: Inbound) -> bool:
        begun.set()
        return await inbox.accept(inbound)

    adapter = build_adapter(server)
    await adapter.start(accept)
    session = await server.wait_connected()
    inbox.gate.clear()
    taken = await server.mention("before")
    async with asyncio.timeout(30):
        await begun.wait()
    stopping = asyncio.create_task(adapter.stop())
    await server.wait_until(lambda: session.connection is None)
    await server.mention("after")
    inbox.gate.set()
    await stopping
    assert [m.id for m in inbox.messages] == [taken]
    await adapter.stop()
    assert not adapter.connected


async def test_what_is_said_to_us_alone_while_it_winds_down_is_stored_since_nothing_brings_it_back(
    server: DiscordServer, inbox: Inbox
) -> None:
    adapter = build_adapter(server)
    try:
        await adapter.start(inbox.accept)
        await wait_connected(adapter)
        await adapter.wind_down()
        said = await server.say("and now?", channel=server.dm_with(server.alice))
        await inbox.wait_for(lambda: inbox.messages)
    finally:
        await adapter.stop()
    assert [m.id for m in inbox.messages] == [said]


# -- without the privileged intent
async def test_without_the_content_of_messages_it_works_and_says_once_what_is_missing(inbox: Inbox) -> None:
    async with DiscordServer(privileged=MEMBERS) as server:
        async with running(server, inbox) as adapter:
            thread = await open_thread(server, adapter, inbox)
            for n in range(3):
                await server.say(f"and db{n}?", channel=thread)
            await server.wait_until(lambda: len(server.bot_messages(thread)) == 2)
            assert len(server.calls_to(f"GET /channels/{thread}/messages")) == 1
            asked = await server.mention("and db3?", channel=thread)
            theirs = await server.open_thread("not ours")
            await server.say("hidden", channel=theirs)
            assert await heard(server, inbox) == [thread, asked]
            assert server.bot_messages(thread)[1]["content"] == CANNOT_READ
        server.fast_forward(3600)  # so long does Discord know no nonce
        async with running(server, inbox):
            await server.say("and db4?", channel=thread)
            await server.wait_until(lambda: len(server.calls_to(f"GET /channels/{thread}/messages")) == 2)
            await heard(server, inbox)
        assert [m["content"] for m in server.bot_messages(thread)].count(CANNOT_READ) == 1
        assert server.bot_messages(theirs) == []
        assert server.violations == []


# -- what no event tells
async def test_a_thread_that_was_archived_before_is_asked_for_once(server: DiscordServer, inbox: Inbox) -> None:
    thread = await server.open_thread("old")
    first = await server.say("why?", channel=thread)
    await server.change_thread(thread, archived=True)
    async with running(server, inbox):
        event = server.messages(thread)[-1] | {"guild_id": server.guild_id}
        server.emit("MESSAGE_CREATE", event, guild=server.guild_id)
        server.emit("MESSAGE_CREATE", event | {"id": str(int(first) + 1)}, guild=server.guild_id)
        await inbox.wait_for(lambda: len(inbox.messages) == 2)
        assert {m.thread.key for m in inbox.messages} == {f"discord:{server.guild_id}/{server.general}/{thread}"}
        assert len(server.calls_to(f"GET /channels/{thread}$")) == 1


async def test_a_refusal_of_all_calls_that_a_look_at_a_place_hears_holds_a_message_too(
    server: DiscordServer, inbox: Inbox
) -> None:
    thread = await server.open_thread("old")
    await server.say("why?", channel=thread)
    await server.change_thread(thread, archived=True)
    server.inject(rf"^GET /channels/{thread}$", http=429, retry_after=2.0, is_global=True)
    root = await server.mention("busy?")
    async with running(server, inbox) as adapter:
        event = server.messages(thread)[-1] | {"guild_id": server.guild_id}
        server.emit("MESSAGE_CREATE", event, guild=server.guild_id)
        await server.wait_until(lambda: any(call.status == 429 for call in server.calls))
        place = ThreadRef(platform="discord", workspace=server.guild_id, channel=server.general, thread=root)
        assert isinstance(await adapter.post(Reply(thread=place, text="Yes.", key="run-1/1")), Delivered)
        await inbox.wait_for(lambda: inbox.messages)
    (refused,) = [call for call in server.calls if call.status == 429]
    assert [call.path for call in server.calls if refused.at < call.at < refused.at + 2.0] == []


async def test_what_was_said_shortly_before_a_start_is_heard(server: DiscordServer, inbox: Inbox) -> None:
    thread = await server.open_thread("incident")
    wanted = [
        await server.mention("first"),
        await server.mention("why?", channel=thread),
        await server.say("second", channel=thread),
    ]
    await server.say("no mention")
    async with running(server, inbox, catch_up_s=300.0):
        await inbox.wait_for(lambda: len(inbox.messages) == 3)
        assert sorted(await heard(server, inbox)) == sorted(wanted)


async def test_what_people_said_in_a_thread_before_they_called_hermod_is_no_question_after_a_restart(
    server: DiscordServer, inbox: Inbox
) -> None:
    """It was turned away when it was said; a restart reads it again, and knows the thread meanwhile."""
    thread = await server.open_thread("incident")
    await server.say("the site is slow", channel=thread)
    asked = await server.mention("which queries?", channel=thread)
    followed = await server.say("and yesterday?", channel=thread)
    async with running(server, inbox, catch_up_s=300.0):
        await inbox.wait_for(lambda: len(inbox.messages) == 2)
        assert await heard(server, inbox) == [asked, followed]


async def test_after_an_outage_of_a_server_only_what_was_said_in_it_is_read(
    server: DiscordServer, inbox: Inbox
) -> None:
    thread = await server.open_thread("incident")
    ahead = timedelta(0)
    async with running(server, inbox, catch_up_s=300.0, now=lambda: datetime.now(UTC) + ahead):
        asked = await server.mention("which queries?", channel=thread)
        await inbox.wait_for(lambda: inbox.messages)
        ahead = timedelta(hours=1)
        server.fast_forward(3600)
        reads = len(server.calls_to("GET /channels/.*/messages"))
        await server.fail_guild()
        await server.restore_guild()
        assert await heard(server, inbox) == [asked]
        assert len(server.calls_to("GET /channels/.*/messages")) == reads


async def test_what_was_said_long_before_a_start_is_not(server: DiscordServer, inbox: Inbox) -> None:
    await server.mention("yesterday")
    later = datetime.now(UTC) + timedelta(hours=1)
    async with running(server, inbox, catch_up_s=300.0, now=lambda: later):
        assert await heard(server, inbox) == []
        assert not server.calls_to("GET /channels/.*/messages")


async def test_what_was_said_over_a_dead_connection_is_read_again_once_and_in_order(
    server: DiscordServer, inbox: Inbox
) -> None:
    async with running(server, inbox, catch_up_s=300.0) as adapter:
        thread = await open_thread(server, adapter, inbox)
        before = await server.say("before", channel=thread)
        await inbox.wait_for(lambda: len(inbox.messages) == 2)
        server.silence()
        missed = [await server.say(f"{n}", channel=thread) for n in range(250)]
        asked = await server.mention("and here?")
        reading = server.inject(f"GET /channels/{thread}/messages", delay=0.3, only_delay=True)
        await server.invalidate()
        await server.wait_until(lambda: reading.times == 0)
        after = await server.say("after", channel=thread)  # while what is before it is still read
        await inbox.wait_for(lambda: len(inbox.messages) == 254)
        in_thread = [m.id for m in inbox.messages if m.thread.thread == thread]
        assert in_thread == [thread, before, *missed, after]
        assert [m.id for m in inbox.messages if m.thread.thread != thread] == [asked]
        assert len(server.identifies) == 2


async def test_a_direct_message_that_was_missed_is_read_again(server: DiscordServer, inbox: Inbox) -> None:
    conversation = server.dm_with(server.bob)
    async with running(server, inbox, catch_up_s=300.0):
        first = await server.say("hi", channel=conversation, user=server.bob)
        await inbox.wait_for(lambda: inbox.messages)
        server.silence()
        missed = await server.say("are you there?", channel=conversation, user=server.bob)
        await server.invalidate()
        await inbox.wait_for(lambda: len(inbox.messages) == 2)
        assert [m.id for m in inbox.messages] == [first, missed]
        assert all(m.direct for m in inbox.messages)
