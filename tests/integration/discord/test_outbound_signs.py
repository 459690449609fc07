"""What shows that work goes on: typing and signs. None of it raises, insists, or gets in the way."""

from __future__ import annotations

import asyncio

import pytest

from adapters.discord.outbound import SIGNS
from tests.integration.discord.outbound_desk import contents, direct, open_desk, place, reply
from tests.servers.discord import DiscordServer
from tests.servers.discord.model import FORUM

EYES = SIGNS["seen"]


def typing(server: DiscordServer) -> int:
    return len(server.calls_to(r"POST .*/typing$"))


# -- typing


async def test_typing_shows_in_the_thread_of_the_question(server: DiscordServer) -> None:
    root = await server.mention("hello")
    async with open_desk(server) as desk:
        await desk.outbound.set_status(place(server, root), "is thinking")
        assert server.typing_in(root)
        await desk.outbound.set_status(place(server, root), "")
        await desk.outbound.set_status(direct(server), "is thinking")
        assert server.typing_in(server.dm_with(server.alice))
    assert typing(server) == 2


async def test_a_command_announces_its_answer_itself(server: DiscordServer) -> None:
    async with open_desk(server) as desk:
        await desk.outbound.set_status(place(server, f"command-{server.snowflake()}"), "is thinking")
    assert server.calls == []


async def test_b057_a_refusal_for_a_while_ends_and_one_for_good_stops_the_typing(server: DiscordServer) -> None:
    root = await server.mention("hello")
    thread = place(server, root)
    server.inject(r"POST .*/typing$", http=429, retry_after=3.0)  # longer than this process may stand still itself
    async with open_desk(server) as desk:
        for _ in range(5):
            await desk.outbound.set_status(thread, "is thinking")
        assert typing(server) == 1  # it is not asked again before Discord said so

        async with asyncio.timeout(30):
            while not server.typing_in(root):
                await desk.outbound.set_status(thread, "is thinking")
                await asyncio.sleep(0.01)
        assert typing(server) == 2
        server.inject(r"POST .*/typing$", http=403, times=99)
        for _ in range(5):
            await desk.outbound.set_status(thread, "is thinking")
        assert typing(server) == 3
        other = place(server, await server.mention("and here"))
        server.faults.clear()
        await desk.outbound.set_status(other, "is thinking")
        assert typing(server) == 4  # another place is not concerned


@pytest.mark.parametrize("fault", [{"http": 500}, {"drop": True}, {"http": 404, "code": 10003}, {"http": 401}])
async def test_typing_and_signs_never_raise(server: DiscordServer, fault: dict[str, object]) -> None:
    root = await server.mention("hello")
    server.inject(".*", times=99, **fault)
    async with open_desk(server) as desk:
        await desk.outbound.set_status(place(server, root), "is thinking")
        await desk.outbound.react(place(server, root), root, "seen")
        await desk.outbound.discard_draft(place(server, root), "")


async def test_typing_does_not_hold_up_the_answer() -> None:
    async with DiscordServer(strict_rate_limits=True) as server, open_desk(server) as desk:
        root = await server.mention("hello")
        thread = place(server, root)
        for _ in range(80):
            await desk.outbound.set_status(thread, "is thinking")
        await desk.outbound.post(reply(thread))
        assert contents(server, root) == ["The answer."]
        assert server.rate_violations == []


# -- signs


async def test_signs_come_and_go(server: DiscordServer) -> None:
    root = await server.mention("hello")
    thread = place(server, root)
    async with open_desk(server) as desk:
        for sign in ("queued", "seen", "stopped", "nonsense", ""):
            await desk.outbound.react(thread, root, sign)
        assert server.signs(root) == set(SIGNS.values())
        for sign in ("-queued", "-seen", "-stopped", "-nonsense", "-seen"):
            await desk.outbound.react(thread, root, sign)
    assert server.signs(root) == set()
    assert server.violations == []


async def test_b026_the_message_a_thread_was_opened_on_stands_in_the_parent(server: DiscordServer) -> None:
    root = await server.mention("hello")
    thread = place(server, root)
    async with open_desk(server) as desk:
        await desk.outbound.post(reply(thread))
        await desk.outbound.react(thread, root, "seen")
        inside = await server.say("and?", channel=root)
        await desk.outbound.react(thread, inside, "seen")
    assert server.signs(root) == server.signs(inside) == {EYES}
    assert [call.status for call in server.calls_to(r"PUT .*/reactions/")] == [204, 204]


async def test_b026_in_a_forum_it_stands_in_the_thread(server: DiscordServer) -> None:
    forum = server.add_channel("help", kind=FORUM)
    post = await server.open_post("slow", "why?", channel=forum)
    thread = place(server, post, channel=forum)
    async with open_desk(server) as desk:
        desk.threads.remember(thread, exists=True)
        await desk.outbound.react(thread, post, "seen")
        assert server.signs(post) == {EYES}
        await desk.outbound.react(thread, post, "-seen")
    assert server.signs(post) == set()


async def test_signs_in_a_direct_conversation(server: DiscordServer) -> None:
    thread = direct(server)
    message = await server.say("hello", channel=thread.channel)
    async with open_desk(server) as desk:
        await desk.outbound.react(thread, message, "seen")
    assert server.signs(message) == {EYES}


async def test_a_sign_on_a_message_that_is_gone_is_left_alone(server: DiscordServer) -> None:
    root = await server.mention("hello")
    thread = place(server, root)
    await server.delete(root)
    async with open_desk(server) as desk:
        await desk.outbound.react(thread, root, "seen")
        assert not desk.client.calls.refusals.is_gone(root)  # a thread that was not opened is not a lost one


async def test_without_permission_signs_are_not_asked_for_again(server: DiscordServer) -> None:
    server.deny(server.general, "ADD_REACTIONS")
    root = await server.mention("hello")
    async with open_desk(server) as desk:
        for _ in range(5):
            await desk.outbound.react(place(server, root), root, "seen")
    assert len(server.calls_to(r"PUT .*/reactions/")) == 1


async def test_a_command_has_no_message_for_a_sign(server: DiscordServer) -> None:
    command = server.snowflake()
    async with open_desk(server) as desk:
        await desk.outbound.react(place(server, f"command-{command}"), command, "seen")
    assert server.calls == []
