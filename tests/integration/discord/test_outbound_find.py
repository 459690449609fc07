"""Whether a post is there already: asked after a connection broke, and after a process died."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from adapters.chat import Button, Delivered, Delivery, InDoubt, Reply, ThreadRef
from adapters.discord.buttons import build_stop
from adapters.discord.payload import Payload
from tests.integration.discord.outbound_desk import Desk, contents, direct, open_desk, place, reply
from tests.servers.discord import DiscordServer

BUTTONS = (Button(name="approve", label="Approve", value="a1"),)
KEY = "run-9/1"


@asynccontextmanager
async def restarted(server: DiscordServer, *, after_s: float = 0.0) -> AsyncIterator[Desk]:
    """A process that remembers nothing of what was posted, ``after_s`` seconds later."""
    async with open_desk(server) as desk:
        desk.ahead = timedelta(seconds=after_s)
        yield desk


async def post(server: DiscordServer, thread: ThreadRef, key: str = KEY, *, text: str = "Old.", known: bool) -> str:
    """Post as a process that dies then; ``known`` by its buttons. Returns the id."""
    async with open_desk(server) as desk:
        outcome = await desk.outbound.post(reply(thread, text, key, buttons=BUTTONS if known else ()))
    assert isinstance(outcome, Delivered)
    return outcome.remote_id


async def ask(server: DiscordServer) -> ThreadRef:
    return place(server, await server.mention("hello"))


@pytest.mark.parametrize("after_s", [0.0, 86_400.0])
async def test_a_post_with_buttons_is_found_whenever_it_was_made(server: DiscordServer, after_s: float) -> None:
    thread = await ask(server)
    message = await post(server, thread, known=True)
    async with restarted(server, after_s=after_s) as desk:
        assert await desk.outbound.find_posted(thread, KEY) == Delivered(remote_id=message)
        assert await desk.outbound.find_posted(thread, "run-10/1") is None


async def test_its_files_behind_it_do_not_hide_it(server: DiscordServer) -> None:
    thread = await ask(server)
    message = await post(server, thread, known=True)
    async with open_desk(server) as desk:
        for n in range(5):
            await desk.client.create_message(thread.thread, Payload(content=f"file {n}"))
    for n in range(150):
        await server.say(f"talk {n}", channel=thread.thread)
    async with restarted(server, after_s=3_600.0) as desk:
        assert await desk.outbound.find_posted(thread, KEY) == Delivered(remote_id=message)


@pytest.mark.parametrize("known", [True, False])
async def test_where_discord_tells_nonces_every_post_is_found(*, known: bool) -> None:
    async with DiscordServer(nonce_in_history=True) as server:
        thread = await ask(server)
        message = await post(server, thread, known=known)
        async with restarted(server, after_s=86_400.0) as desk:
            assert await desk.outbound.find_posted(thread, KEY) == Delivered(remote_id=message)
            assert await desk.outbound.find_posted(thread, "run-10/1") is None


async def test_a_post_without_buttons_is_not_made_twice_by_posting_it_again_soon(server: DiscordServer) -> None:
    thread = await ask(server)
    message = await post(server, thread, known=False)
    async with restarted(server, after_s=60.0) as desk:
        assert await desk.outbound.find_posted(thread, KEY) is None
        assert await desk.outbound.post(reply(thread, "Old.", KEY)) == Delivered(remote_id=message)
    assert contents(server, thread.thread) == ["Old."]


async def test_a_post_without_buttons_stays_in_doubt_when_it_may_be_old(server: DiscordServer) -> None:
    """Nobody can tell whether it is the one; posted again it would be there twice."""
    thread = await ask(server)
    await post(server, thread, known=False)
    async with restarted(server, after_s=600.0) as desk:
        assert isinstance(await desk.outbound.find_posted(thread, KEY), InDoubt)


async def test_what_this_process_sent_itself_is_posted_again_without_harm(server: DiscordServer) -> None:
    thread = await ask(server)
    await post(server, thread, "run-1/1", known=False)
    server.inject(r"POST .*/messages$", drop=True, after=True)
    async with restarted(server, after_s=86_400.0) as desk:
        assert isinstance(await desk.outbound.post(reply(thread, "New.", KEY)), InDoubt)
        assert await desk.outbound.find_posted(thread, KEY) is None
        assert isinstance(await desk.outbound.post(reply(thread, "New.", KEY)), Delivered)
    assert contents(server, thread.thread) == ["Old.", "New."]


async def test_an_answer_before_a_known_one_cannot_be_the_one_that_is_looked_for(server: DiscordServer) -> None:
    """What follows in a thread waits until a post in doubt is settled."""
    thread = await ask(server)
    await post(server, thread, "run-1/1", known=False)
    await post(server, thread, "run-1/2", known=True)
    async with restarted(server, after_s=86_400.0) as desk:
        assert await desk.outbound.find_posted(thread, KEY) is None


async def test_a_draft_that_was_left_is_not_taken_for_the_answer(server: DiscordServer) -> None:
    thread = await ask(server)
    async with open_desk(server) as desk:
        await desk.threads.place(thread)
        await desk.client.create_message(thread.thread, Payload(content="so far", components=build_stop()))
    async with restarted(server, after_s=86_400.0) as desk:
        assert await desk.outbound.find_posted(thread, KEY) is None


async def test_a_draft_of_the_next_question_does_not_hide_it(server: DiscordServer) -> None:
    thread = await ask(server)
    message = await post(server, thread, known=True)
    async with open_desk(server) as desk:
        await desk.client.create_message(thread.thread, Payload(content="so far", components=build_stop()))
    async with restarted(server, after_s=86_400.0) as desk:
        assert await desk.outbound.find_posted(thread, KEY) == Delivered(remote_id=message)


async def test_words_of_others_are_never_it(server: DiscordServer) -> None:
    thread = await ask(server)
    await server.open_thread("hello", message=thread.thread)
    for n in range(120):
        await server.say(f"talk {n}", channel=thread.thread)
    async with restarted(server, after_s=86_400.0) as desk:
        assert await desk.outbound.find_posted(thread, KEY) is None


async def test_a_thread_that_was_never_opened_holds_no_post(server: DiscordServer) -> None:
    thread = await ask(server)
    async with restarted(server) as desk:
        assert await desk.outbound.find_posted(thread, KEY) is None
        desk.threads.remember(thread, exists=False, title="hello")
        assert await desk.outbound.find_posted(thread, KEY) is None
    assert server.threads() == []


async def test_a_question_that_comes_once_more_is_still_looked_for_in_its_thread(server: DiscordServer) -> None:
    thread = await ask(server)
    message = await post(server, thread, known=True)
    async with restarted(server, after_s=3_600.0) as desk:
        desk.threads.remember(thread, exists=False, title="hello")
        assert await desk.outbound.find_posted(thread, KEY) == Delivered(remote_id=message)


async def test_a_reply_in_the_channel_is_found_among_replies_to_others(server: DiscordServer) -> None:
    server.deny(server.general, "CREATE_PUBLIC_THREADS")
    thread, other, third = await ask(server), await ask(server), await ask(server)
    message = await post(server, thread, known=True)
    await post(server, other, "run-2/1", known=False)
    async with restarted(server, after_s=86_400.0) as desk:
        assert await desk.outbound.find_posted(thread, KEY) == Delivered(remote_id=message)
        assert isinstance(await desk.outbound.find_posted(other, "run-2/1"), InDoubt)
        assert await desk.outbound.find_posted(third, "run-3/1") is None


async def test_a_post_in_a_direct_conversation_is_found(server: DiscordServer) -> None:
    thread = direct(server)
    message = await post(server, thread, known=True)
    async with restarted(server, after_s=86_400.0) as desk:
        assert await desk.outbound.find_posted(thread, KEY) == Delivered(remote_id=message)


async def test_a_late_answer_to_a_command_is_found_in_the_channel(server: DiscordServer) -> None:
    command = place(server, f"command-{server.snowflake()}")
    message = await post(server, command, known=True)
    await post(server, await ask(server), "run-3/1", known=True)
    async with restarted(server, after_s=3_600.0) as desk:
        assert await desk.outbound.find_posted(command, KEY) == Delivered(remote_id=message)
        assert await desk.outbound.find_posted(command, "run-4/1") is None


async def test_the_first_part_of_a_commands_answer_may_be_given_again(server: DiscordServer) -> None:
    """It becomes the announced message. A further part is a message of its own, and so is a late answer."""
    command = place(server, f"command-{server.snowflake()}")
    await post(server, command, "run-1/1", known=False)

    class Announced:
        async def answer(self, reply: Reply, payload: Payload) -> Delivery | None:
            return None

    async with open_desk(server, answers=Announced()) as desk:
        desk.ahead = timedelta(seconds=600.0)
        assert await desk.outbound.find_posted(command, KEY) is None
        assert isinstance(await desk.outbound.find_posted(command, "run-9/2"), InDoubt)
        desk.ahead = timedelta(seconds=3_600.0)
        assert isinstance(await desk.outbound.find_posted(command, KEY), InDoubt)


@pytest.mark.parametrize("fault", [{"http": 403, "code": 50013}, {"http": 500}, {"drop": True}])
async def test_a_channel_that_cannot_be_read_leaves_it_in_doubt(
    server: DiscordServer, fault: dict[str, object]
) -> None:
    thread = await ask(server)
    await post(server, thread, known=True)
    server.inject(r"GET .*/messages$", times=99, **fault)
    async with restarted(server) as desk:
        assert isinstance(await desk.outbound.find_posted(thread, KEY), InDoubt)


async def test_without_knowing_who_we_are_nothing_is_concluded(server: DiscordServer) -> None:
    thread = await ask(server)
    server.inject(r"GET /users/@me", http=500, times=99)
    async with restarted(server) as desk:
        assert isinstance(await desk.outbound.find_posted(thread, KEY), InDoubt)


async def test_a_thread_that_was_deleted_holds_nothing(server: DiscordServer) -> None:
    thread = await ask(server)
    await post(server, thread, known=True)
    await server.delete_channel(thread.thread)
    async with restarted(server) as desk:
        assert await desk.outbound.find_posted(thread, KEY) is None
