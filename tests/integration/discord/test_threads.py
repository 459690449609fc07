"""Where an answer goes: threads that are opened when something has to stand in them."""

from __future__ import annotations

import asyncio

import pytest

from adapters.chat import Delivered, Rejected, RetryLater, ThreadRef
from adapters.discord.payload import Payload
from adapters.discord.threads import Place
from tests.integration.discord.outbound_desk import contents, direct, open_desk, place, reply
from tests.servers.discord import DiscordServer
from tests.servers.discord.model import FORUM, VOICE


async def test_nothing_is_opened_before_something_has_to_stand_there(server: DiscordServer) -> None:
    root = await server.mention("why is the disk full?")
    thread = place(server, root)
    async with open_desk(server) as desk:
        desk.threads.remember(thread, exists=False, title="why is the disk full?")
        await desk.outbound.react(thread, root, "seen")
        assert await desk.outbound.fetch_history(thread, limit=10) == ()
        assert await desk.outbound.find_posted(thread, "run-1/1") is None
        assert server.threads() == []
        await desk.outbound.set_status(thread, "working")
        assert [(t["id"], t["name"], t["parent_id"]) for t in server.threads()] == [
            (root, "why is the disk full?", server.general)
        ]
        await desk.outbound.post(reply(thread))
    assert contents(server, root) == ["The answer."]


async def test_b030_only_what_is_needed_is_said_of_a_new_thread(server: DiscordServer) -> None:
    """A slow mode of 0 takes the permission Manage Threads."""
    root = await server.mention("hello")
    async with open_desk(server) as desk:
        assert await desk.threads.place(place(server, root)) == Place(channel_id=root)
    (call,) = server.calls_to(r"POST .*/threads$")
    assert set(call.body) == {"name"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<@{bot}> why is <@{bob}> slow?", "why is @Bob slow?"),
        ("<@{bot}>", "Question from Alice"),
        ("<@{bot}> " + "long " * 60, None),
        ("<@{bot}> # **Disk**\nis full", "Disk"),
    ],
)
async def test_without_a_remembered_title_the_question_gives_the_name(
    server: DiscordServer, text: str, name: str | None
) -> None:
    root = await server.say(text.format(bot=server.bot_id, bob=server.bob))
    async with open_desk(server) as desk:
        await desk.threads.place(place(server, root))
    (thread,) = server.threads()
    assert 1 <= len(thread["name"]) <= 100
    assert name is None or thread["name"] == name


async def test_what_cannot_be_read_leaves_the_thread_without_its_name(server: DiscordServer) -> None:
    root = await server.mention("hello")
    server.inject(rf"GET /channels/{server.general}/messages/{root}", http=403, code=50013)
    async with open_desk(server) as desk:
        assert await desk.threads.place(place(server, root)) == Place(channel_id=root)
    assert server.threads()[0]["name"] == "Hermod"


async def test_b031_a_thread_that_exists_already_is_the_one_to_answer_in(server: DiscordServer) -> None:
    root = await server.mention("hello")
    await server.open_thread("opened by alice", message=root)
    async with open_desk(server) as desk:
        desk.threads.remember(place(server, root), exists=False, title="hello")  # an older event told so
        assert isinstance(await desk.outbound.post(reply(place(server, root))), Delivered)
    (call,) = server.calls_to(r"POST .*/threads$")
    assert call.code == 160004
    assert contents(server, root) == ["The answer."]
    assert contents(server, server.general) == []


async def test_a_thread_is_opened_once_however_many_ask_for_it(server: DiscordServer) -> None:
    root = await server.mention("hello")
    thread = place(server, root)
    async with open_desk(server) as desk:
        found = await asyncio.gather(*(desk.threads.place(thread) for _ in range(20)))
    assert set(found) == {Place(channel_id=root)}
    assert len(server.calls_to(r"POST .*/threads$")) == 1


async def test_who_gives_up_waiting_for_a_thread_keeps_nobody_from_it(server: DiscordServer) -> None:
    root = await server.mention("hello")
    thread = place(server, root)
    server.inject(r"POST .*/threads$", only_delay=True, delay=0.5)
    async with open_desk(server) as desk:
        first = asyncio.create_task(desk.threads.place(thread))
        second = asyncio.create_task(desk.threads.place(thread))
        await server.wait_until(lambda: server.calls_to(r"POST .*/threads$"))
        first.cancel()
        assert await second == Place(channel_id=root)


async def test_a_process_that_remembers_nothing_finds_its_threads_again(server: DiscordServer) -> None:
    root = await server.mention("hello")
    thread = place(server, root)
    async with open_desk(server) as desk:
        await desk.outbound.post(reply(thread))
    async with open_desk(server) as desk:
        await desk.outbound.post(reply(thread, "More.", "run-2/1"))
    assert contents(server, root) == ["The answer.", "More."]
    assert len(server.calls_to(r"POST .*/threads$")) == 1


# -- where there is nothing to open


async def test_a_direct_conversation_a_thread_and_a_forums_post_are_places_already(server: DiscordServer) -> None:
    forum = server.add_channel("help", kind=FORUM)
    post = await server.open_post("slow", "why?", channel=forum)
    inside = await server.open_thread("by alice", channel=server.general)
    async with open_desk(server) as desk:
        for thread, channel_id in (
            (direct(server), server.dm_with(server.alice)),
            (place(server, post, channel=forum), post),
            (place(server, inside), inside),
            (place(server, f"command-{server.snowflake()}"), server.general),
        ):
            assert await desk.threads.place(thread) == Place(channel_id=channel_id)
            assert isinstance(await desk.outbound.post(reply(thread, key=thread.key)), Delivered)
    assert server.calls_to(r"POST .*/threads$") == []


# -- where there can be none


async def test_b080_a_thread_that_may_be_opened_but_not_written_in_loses_no_answer(server: DiscordServer) -> None:
    server.deny(server.general, "SEND_MESSAGES_IN_THREADS")
    root = await server.mention("why?")
    thread = place(server, root)
    async with open_desk(server) as desk:
        for n in (1, 2):
            assert isinstance(await desk.outbound.post(reply(thread, f"part {n}", key=f"run-1/{n}")), Delivered)
        first, second = server.bot_messages(server.general)
        assert first["content"].startswith("part 1\n-# I answer here, since I may not open a thread")
        assert second["content"] == "part 2"
        assert {m["message_reference"]["message_id"] for m in (first, second)} == {root}
        assert len(server.calls_to(f"POST /channels/{root}/messages")) == 1


async def test_what_is_said_in_a_thread_of_others_is_never_answered_in_its_channel(server: DiscordServer) -> None:
    root = await server.open_thread("private talk", private=True)
    await server.add_to_thread(root)
    server.deny(server.general, "SEND_MESSAGES_IN_THREADS")
    async with open_desk(server) as desk:
        desk.threads.remember(place(server, root), exists=True)
        outcome = await desk.outbound.post(reply(place(server, root)))
        assert isinstance(outcome, Rejected)
        assert "permission" in outcome.reason
    assert server.bot_messages(server.general) == []


async def test_b080_without_permission_for_threads_the_answer_is_a_reply_and_says_so_once(
    server: DiscordServer,
) -> None:
    server.deny(server.general, "CREATE_PUBLIC_THREADS")
    root = await server.mention("hello")
    thread = place(server, root)
    async with open_desk(server) as desk:
        await desk.outbound.set_status(thread, "working")
        for n in range(3):
            assert isinstance(await desk.outbound.post(reply(thread, f"Part {n}.", f"run-1/{n}")), Delivered)
        other = await server.mention("and again")
        await desk.outbound.post(reply(place(server, other), "Other.", "run-2/1"))
    first, second, third, fourth = server.bot_messages(server.general)
    assert first["content"].startswith("Part 0.\n-# I answer here")
    assert "Create Public Threads" in first["content"]
    assert [second["content"], third["content"]] == ["Part 1.", "Part 2."]
    assert {m["message_reference"]["message_id"] for m in (first, second, third)} == {root}
    assert fourth["message_reference"]["message_id"] == other
    assert len(server.calls_to(r"POST .*/threads$")) == 1  # not asked again for every question
    assert server.pings == []


async def test_a_notice_that_does_not_fit_waits_for_an_answer_that_leaves_room(server: DiscordServer) -> None:
    server.deny(server.general, "CREATE_PUBLIC_THREADS")
    thread = place(server, await server.mention("hello"))
    async with open_desk(server) as desk:
        await desk.outbound.post(reply(thread, "x" * 1_990, "run-1/1"))
        await desk.outbound.post(reply(thread, "short", "run-1/2"))
    long, short = contents(server, server.general)
    assert long == "x" * 1_990
    assert short.startswith("short\n-# I answer here")


async def test_a_server_with_as_many_threads_as_it_may_have_is_answered_in_the_channel(server: DiscordServer) -> None:
    server.guilds[server.guild_id].max_active_threads = 0
    root = await server.mention("hello")
    async with open_desk(server) as desk:
        await desk.outbound.post(reply(place(server, root)))
    (message,) = server.bot_messages(server.general)
    assert "as many active threads as Discord allows" in message["content"]
    assert message["message_reference"]["message_id"] == root


async def test_a_channel_that_has_no_threads_is_answered_in_itself(server: DiscordServer) -> None:
    voice = server.add_channel("stage", kind=VOICE)
    root = await server.mention("hello", channel=voice)
    async with open_desk(server) as desk:
        await desk.outbound.post(reply(place(server, root, channel=voice)))
    (message,) = server.bot_messages(voice)
    assert "has no threads" in message["content"]


async def test_a_reply_without_permission_to_read_the_past_is_an_ordinary_message(server: DiscordServer) -> None:
    server.deny(server.general, "CREATE_PUBLIC_THREADS", "READ_MESSAGE_HISTORY")
    root = await server.mention("hello")
    async with open_desk(server) as desk:
        assert isinstance(await desk.outbound.post(reply(place(server, root))), Delivered)
    (message,) = server.bot_messages(server.general)
    assert "message_reference" not in message


async def test_the_answer_to_a_question_that_was_deleted_has_no_place(server: DiscordServer) -> None:
    root = await server.mention("hello")
    await server.delete(root)
    async with open_desk(server) as desk:
        outcome = await desk.outbound.post(reply(place(server, root)))
    assert isinstance(outcome, Rejected)
    assert outcome.gone
    assert "was deleted" in outcome.reason
    assert contents(server, server.general) == []


async def test_a_channel_that_was_deleted_is_gone(server: DiscordServer) -> None:
    channel = server.add_channel("old")
    root = await server.mention("hello", channel=channel)
    await server.delete_channel(channel)
    async with open_desk(server) as desk:
        outcome = await desk.outbound.post(reply(place(server, root, channel=channel)))
    assert isinstance(outcome, Rejected)
    assert outcome.gone


async def test_a_thread_that_cannot_be_opened_now_is_opened_later(server: DiscordServer) -> None:
    root = await server.mention("hello")
    thread = place(server, root)
    server.inject(r"POST .*/threads$", drop=True, after=True)  # it was opened, and nobody heard of it
    async with open_desk(server) as desk:
        desk.threads.remember(thread, exists=False, title="hello")
        assert isinstance(await desk.outbound.post(reply(thread)), RetryLater)
        assert isinstance(await desk.outbound.post(reply(thread)), Delivered)
    assert contents(server, root) == ["The answer."]


# -- archived, locked, hidden


async def test_an_archived_thread_is_revived_by_an_answer(server: DiscordServer) -> None:
    root = await server.mention("hello")
    thread = place(server, root)
    async with open_desk(server) as desk:
        first = await desk.outbound.post(reply(thread))
        assert isinstance(first, Delivered)
        await server.change_thread(root, archived=True)
        assert isinstance(await desk.outbound.post(reply(thread, "More.", "run-2/1")), Delivered)
    assert contents(server, root) == ["The answer.", "More."]
    assert not server.channels[root]["thread_metadata"]["archived"]


async def test_a_message_in_an_archived_thread_can_be_edited_and_deleted(server: DiscordServer) -> None:
    root = await server.mention("hello")
    async with open_desk(server) as desk:
        first = await desk.outbound.post(reply(place(server, root)))
        assert isinstance(first, Delivered)
        await server.change_thread(root, archived=True)
        assert isinstance(await desk.client.edit_message(root, first.remote_id, _payload("Better.")), Delivered)
        assert contents(server, root) == ["Better."]
        await desk.client.delete_message(root, first.remote_id)
    assert contents(server, root) == []


async def test_a_locked_thread_refuses_and_says_who_can_help(server: DiscordServer) -> None:
    root = await server.mention("hello")
    thread = place(server, root)
    async with open_desk(server) as desk:
        await desk.outbound.post(reply(thread))
        await server.change_thread(root, locked=True, archived=True)
        for n in range(3):
            outcome = await desk.outbound.post(reply(thread, "More.", f"run-2/{n}"))
            assert isinstance(outcome, Rejected)
            assert "moderator can unlock" in outcome.reason
            assert not outcome.gone
    assert len([c for c in server.calls_to(f"POST /channels/{root}/messages") if c.status == 400]) == 1


async def test_a_private_thread_that_hermod_left_is_told_as_such(server: DiscordServer) -> None:
    hidden = await server.open_thread("secret", channel=server.general, private=True)
    async with open_desk(server) as desk:
        outcome = await desk.outbound.post(reply(place(server, hidden)))
    assert isinstance(outcome, Rejected)
    assert "View Channel" in outcome.reason


# -- memory


async def test_memory_of_threads_is_bounded_and_what_it_lost_is_asked_again(server: DiscordServer) -> None:
    root = await server.mention("hello")
    thread = place(server, root)
    async with open_desk(server) as desk:
        await desk.outbound.post(reply(thread))
        for n in range(6_000):
            desk.threads.remember(_other(server, n), exists=True)
        assert desk.threads.find(thread) is None
        assert desk.threads.find(_other(server, 5_999)) == Place(channel_id="5999")
        assert isinstance(await desk.outbound.post(reply(thread, "More.", "run-2/1")), Delivered)
    assert contents(server, root) == ["The answer.", "More."]


async def test_a_thread_that_people_open_later_is_answered_in(server: DiscordServer) -> None:
    server.deny(server.general, "CREATE_PUBLIC_THREADS")
    root = await server.mention("hello")
    thread = place(server, root)
    async with open_desk(server) as desk:
        await desk.outbound.post(reply(thread))
        await server.open_thread("by alice", message=root)
        desk.threads.remember(thread, exists=True)
        await desk.outbound.post(reply(thread, "Here now.", "run-2/1"))
    assert contents(server, root) == ["Here now."]


def _other(server: DiscordServer, n: int) -> ThreadRef:
    return place(server, str(n))


def _payload(text: str) -> Payload:
    return Payload(content=text)
