"""What was said in a thread before Hermod came."""

from __future__ import annotations

from datetime import UTC

import pytest

from adapters.chat import Said
from tests.integration.discord.outbound_desk import direct, open_desk, place, reply
from tests.servers.discord import DiscordServer
from tests.servers.discord.model import FORUM


def texts(said: tuple[Said, ...]) -> list[str]:
    return [line.text for line in said]


class Names:
    """What channels and roles are called, as the directory of the adapter knows."""

    def name_channel(self, guild: str, channel: str) -> str:
        return "ops" if guild else ""

    def name_role(self, guild: str, role: str) -> str:
        return "oncall" if guild else ""


async def test_a_thread_is_read_from_its_question_on(server: DiscordServer) -> None:
    root = await server.say(f"<@{server.bot_id}> is the disk full?")
    thread = place(server, root)
    async with open_desk(server) as desk:
        await desk.outbound.post(reply(thread, "**Yes**, 98 %."))
        await server.say(f"thanks <@{server.alice}>", channel=root, user=server.bob)
        said = await desk.outbound.fetch_history(thread, limit=50)
    assert texts(said) == ["is the disk full?", "**Yes**, 98 %.", "thanks @Alice"]
    assert [(line.author.name, line.author.bot, line.own) for line in said] == [
        ("Alice", False, False),
        ("hermod", True, True),
        ("Bob", False, False),
    ]
    assert said[0].id == root
    assert all(line.sent_at.tzinfo is UTC for line in said)
    assert [line.sent_at for line in said] == sorted(line.sent_at for line in said)


async def test_files_that_were_attached_before_can_be_fetched(server: DiscordServer) -> None:
    root = await server.mention("hello")
    await server.open_thread("hello", message=root)
    await server.say("", channel=root, user=server.bob, files={"log.txt": b"x"})
    async with open_desk(server) as desk:
        said = await desk.outbound.fetch_history(place(server, root), limit=5)
        assert [[f.name for f in line.files] for line in said] == [[], ["log.txt"]]
        assert await desk.outbound.fetch_file(said[1].files[0], max_bytes=1_000) == b"x"
    assert "log.txt" in said[1].text


@pytest.mark.parametrize("count", [3, 99, 100, 101, 250])
async def test_only_the_newest_are_read_the_oldest_first(server: DiscordServer, count: int) -> None:
    root = await server.mention("hello")
    await server.open_thread("hello", message=root)
    for n in range(250):
        await server.say(f"line {n}", channel=root)
    async with open_desk(server) as desk:
        said = await desk.outbound.fetch_history(place(server, root), limit=count)
    assert texts(said) == [f"line {n}" for n in range(250 - count, 250)]


async def test_the_whole_of_a_long_thread_includes_its_question(server: DiscordServer) -> None:
    root = await server.mention("hello")
    await server.open_thread("hello", message=root)
    for n in range(199):
        await server.say(f"line {n}", channel=root)
    async with open_desk(server) as desk:
        said = await desk.outbound.fetch_history(place(server, root), limit=500)
        none = await desk.outbound.fetch_history(place(server, root), limit=0)
    assert texts(said) == ["hello", *(f"line {n}" for n in range(199))]
    assert none == ()


async def test_a_forums_post_has_its_question_once(server: DiscordServer) -> None:
    forum = server.add_channel("help", kind=FORUM)
    post = await server.open_post("slow", "why is it slow?", channel=forum)
    await server.say("anybody?", channel=post)
    async with open_desk(server) as desk:
        said = await desk.outbound.fetch_history(place(server, post, channel=forum), limit=50)
    assert texts(said) == ["why is it slow?", "anybody?"]


async def test_a_question_without_a_thread_is_read_alone(server: DiscordServer) -> None:
    root = await server.say("is anybody there?")
    await server.say("other talk of the channel")
    async with open_desk(server) as desk:
        assert texts(await desk.outbound.fetch_history(place(server, root), limit=50)) == ["is anybody there?"]
    assert server.threads() == []


async def test_a_direct_conversation_is_read(server: DiscordServer) -> None:
    thread = direct(server)
    await server.say("hello", channel=thread.channel)
    async with open_desk(server) as desk:
        await desk.outbound.post(reply(thread, "Hi."))
        assert texts(await desk.outbound.fetch_history(thread, limit=50)) == ["hello", "Hi."]


async def test_a_deleted_question_does_not_hide_the_rest(server: DiscordServer) -> None:
    root = await server.mention("hello")
    await server.open_thread("hello", message=root)
    await server.say("still here", channel=root)
    await server.delete(root)
    async with open_desk(server) as desk:
        assert texts(await desk.outbound.fetch_history(place(server, root), limit=50)) == ["still here"]


async def test_names_stand_for_ids_and_files_are_named(server: DiscordServer) -> None:
    root = await server.say(
        f"<#{server.general}> <@&123> <@{server.bob}> look", files={"rows.csv": b"1"}, user=server.bob
    )
    async with open_desk(server, names=Names()) as desk:
        (said,) = await desk.outbound.fetch_history(place(server, root), limit=50)
    assert said.text == f"#ops ({server.general}) @oncall @Bob look\n[attached file: rows.csv]"


async def test_what_nobody_said_is_left_out(server: DiscordServer) -> None:
    """The sign that begins a thread, a name that changed, an answer that has still to come."""
    root = await server.mention("hello")
    await server.open_thread("hello", message=root)
    await server.say("changed the name", channel=root, kind=4)
    server.commands["global"] = [{"id": server.snowflake(), "name": "ask", "type": 1, "options": []}]
    async with open_desk(server) as desk:
        asked = await server.slash("ask", channel=root, wait=False)
        await desk.client.respond(asked.id, asked.token, kind=5)
        await server.say("well?", channel=root)
        assert texts(await desk.outbound.fetch_history(place(server, root), limit=50)) == ["hello", "well?"]


async def test_what_cannot_be_read_is_an_empty_past(server: DiscordServer) -> None:
    root = await server.mention("hello")
    await server.open_thread("hello", message=root)
    server.deny(server.general, "VIEW_CHANNEL")
    async with open_desk(server) as desk:
        assert await desk.outbound.fetch_history(place(server, root), limit=50) == ()
        assert await desk.outbound.fetch_history(place(server, f"command-{root}"), limit=50) == ()


async def test_what_was_read_before_a_failure_is_kept(server: DiscordServer) -> None:
    root = await server.mention("hello")
    await server.open_thread("hello", message=root)
    for n in range(150):
        await server.say(f"line {n}", channel=root)
    server.inject(r"GET .*/messages$", http=403, code=50001, skip=1)
    async with open_desk(server) as desk:
        said = await desk.outbound.fetch_history(place(server, root), limit=150)
    assert texts(said) == [f"line {n}" for n in range(50, 150)]
