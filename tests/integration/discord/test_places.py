"""Looking at channels and people of Discord."""

from __future__ import annotations

import asyncio

import pytest

from adapters.chat import Delivered
from adapters.discord.app import DiscordAdapter
from adapters.places import GLANCE_S, HasPlaces
from tests.integration.discord.conftest import Inbox, build_adapter
from tests.integration.discord.outbound_desk import contents, place, reply
from tests.servers.discord import DiscordServer
from tests.servers.discord.model import ANNOUNCEMENT, CATEGORY, FORUM, MEDIA
from tests.servers.discord.permissions import INVITED, mask

NOTHING = "111111111111111111"
VOICE, STAGE = 2, 13


class Hours:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def now(self) -> float:
        return self.at


def test_the_adapter_says_that_it_can_look(server: DiscordServer) -> None:
    assert isinstance(build_adapter(server), HasPlaces)


@pytest.mark.parametrize("kind", [0, ANNOUNCEMENT], ids=["text", "announcements"])
async def test_a_channel_with_all_rights_is_open_and_has_a_name(
    adapter: DiscordAdapter, server: DiscordServer, kind: int
) -> None:
    channel = server.add_channel("news", kind=kind)
    look = await adapter.look_at_channel(server.guild_id, channel)
    assert (look.state, look.name, look.what, look.fix) == ("open", "#news", "", "")


@pytest.mark.parametrize(
    ("bit", "shown"),
    [
        ("SEND_MESSAGES", "Send Messages"),
        ("CREATE_PUBLIC_THREADS", "Create Public Threads"),
        ("SEND_MESSAGES_IN_THREADS", "Send Messages in Threads"),
        ("ATTACH_FILES", "Attach Files"),
        ("EMBED_LINKS", "Embed Links"),
        ("READ_MESSAGE_HISTORY", "Read Message History"),
    ],
)
async def test_a_channel_that_lacks_a_right_is_closed_until_it_is_given(
    adapter: DiscordAdapter, server: DiscordServer, bit: str, shown: str
) -> None:
    server.deny(server.general, bit)
    look = await adapter.look_at_channel(server.guild_id, server.general)
    assert (look.state, look.name) == ("closed", "#ops")
    assert look.what == f"in #ops Hermod may not: {shown}"
    assert shown in look.fix
    server.allow(server.general, bit)
    assert (await adapter.look_at_channel(server.guild_id, server.general)).state == "open"


@pytest.mark.parametrize("bit", ["ADD_REACTIONS", "USE_EXTERNAL_EMOJIS"])
async def test_a_right_that_no_report_needs_closes_nothing(
    adapter: DiscordAdapter, server: DiscordServer, bit: str
) -> None:
    server.deny(server.general, bit)
    assert (await adapter.look_at_channel(server.guild_id, server.general)).state == "open"


async def test_a_right_that_the_whole_server_lacks_is_told_too(adapter: DiscordAdapter, server: DiscordServer) -> None:
    server.set_role(server.guild_id, permissions_=0)
    server.set_role(server.guilds[server.guild_id].bot_role, permissions_=INVITED & ~mask("ATTACH_FILES"))
    look = await adapter.look_at_channel(server.guild_id, server.general)
    assert (look.state, look.what) == ("closed", "in #ops Hermod may not: Attach Files")


async def test_a_hidden_channel_is_closed_until_it_is_shown(adapter: DiscordAdapter, server: DiscordServer) -> None:
    server.deny(server.general, "VIEW_CHANNEL")
    look = await adapter.look_at_channel(server.guild_id, server.general)
    assert (look.state, look.name) == ("closed", "")
    assert "View Channels" in look.fix
    server.allow(server.general, "VIEW_CHANNEL")
    assert (await adapter.look_at_channel(server.guild_id, server.general)).state == "open"


@pytest.mark.parametrize("kind", [VOICE, CATEGORY, STAGE, FORUM, MEDIA])
async def test_a_channel_without_threads_below_posts_is_closed(
    adapter: DiscordAdapter, server: DiscordServer, kind: int
) -> None:
    look = await adapter.look_at_channel(server.guild_id, server.add_channel("place", kind=kind))
    assert (look.state, look.name) == ("closed", "#place")
    assert "text channel" in look.fix


async def test_a_thread_is_closed(adapter: DiscordAdapter, server: DiscordServer) -> None:
    thread = await server.open_thread("talk", message=await server.say("hi"))
    look = await adapter.look_at_channel(server.guild_id, thread)
    assert look.state == "closed"
    assert "thread" in look.what


async def test_a_deleted_channel_and_one_that_never_was_are_gone(
    adapter: DiscordAdapter, server: DiscordServer
) -> None:
    await server.delete_channel(server.general)
    for channel in (server.general, NOTHING, "C1OPS"):
        look = await adapter.look_at_channel(server.guild_id, channel)
        assert look.state == "gone"
        assert look.what
        assert look.fix


async def test_a_channel_of_another_server_is_gone_here(adapter: DiscordAdapter, server: DiscordServer) -> None:
    other = server.add_guild("Other")
    channel = server.add_channel("ops", guild=other)
    assert (await adapter.look_at_channel(other, channel)).state == "open"
    assert (await adapter.look_at_channel(server.guild_id, channel)).state == "gone"


async def test_a_server_that_removed_hermod_is_closed(adapter: DiscordAdapter, server: DiscordServer) -> None:
    await server.kick_bot()
    look = await adapter.look_at_channel(server.guild_id, server.general)
    assert look.state == "closed"
    assert "not in its server" in look.what


async def test_a_direct_conversation_is_open(adapter: DiscordAdapter, server: DiscordServer) -> None:
    assert (await adapter.look_at_channel("@me", server.dm_with(server.alice))).state == "open"
    assert (await adapter.look_at_channel(server.guild_id, server.dm_with(server.alice))).state == "gone"


@pytest.mark.parametrize(
    "path",
    [r"^GET /channels/\d+$", r"^GET /guilds/\d+$", r"^GET /guilds/\d+/members/\d+$"],
    ids=["channel", "server", "own"],
)
@pytest.mark.parametrize(
    "fault",
    [{"http": 500, "times": 3}, {"http": 429, "retry_after": 60}, {"drop": True, "times": 2}],
    ids=["failed", "too many calls", "cut"],
)
async def test_what_discord_fails_at_is_unknown(
    adapter: DiscordAdapter, server: DiscordServer, path: str, fault: dict[str, object]
) -> None:
    server.inject(path, **fault)
    look = await adapter.look_at_channel(server.guild_id, server.general)
    assert look.state == "unknown"
    assert look.what


async def test_a_failure_is_not_remembered(adapter: DiscordAdapter, server: DiscordServer) -> None:
    server.inject(r"^GET /guilds/\d+/members/\d+$", drop=True, times=2)
    assert (await adapter.look_at_person(server.guild_id, server.alice)).state == "unknown"
    server.faults.clear()  # of a connection that was cut aiohttp itself may have asked once more
    assert (await adapter.look_at_person(server.guild_id, server.alice)).state == "here"


async def test_what_discord_does_not_answer_is_unknown_after_a_while(
    adapter: DiscordAdapter, server: DiscordServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.discord.places.LOOK_S", 0.2)
    server.inject(r"^GET /channels/\d+$", delay=60)
    server.inject(r"^GET /guilds/\d+/members/\d+$", delay=60)
    async with asyncio.timeout(20):
        assert (await adapter.look_at_channel(server.guild_id, server.general)).state == "unknown"
        assert (await adapter.look_at_person(server.guild_id, server.alice)).state == "unknown"


async def test_a_person_is_what_their_messages_say(
    adapter: DiscordAdapter, server: DiscordServer, inbox: Inbox
) -> None:
    for user in (server.alice, server.bob):
        look = await adapter.look_at_person(server.guild_id, user)
        assert look.state == "here"
        said = await server.mention("hi", user=user)
        await inbox.wait_for(lambda said=said: any(m.id == said for m in inbox.messages))  # type: ignore[misc]
        (message,) = [m for m in inbox.messages if m.id == said]
        assert message.author == look.author
    other = await adapter.look_at_person(server.guild_id, server.add_user("alerts", bot=True))
    assert other.author is not None
    assert other.author.bot


async def test_who_left_the_server_or_never_was_there_is_gone(adapter: DiscordAdapter, server: DiscordServer) -> None:
    del server.guilds[server.guild_id].members[server.bob]
    for user in (server.bob, NOTHING, "U1ALICE"):
        look = await adapter.look_at_person(server.guild_id, user)
        assert (look.state, look.author) == ("gone", None)
    assert (await adapter.look_at_person("@me", server.bob)).state == "here"
    assert (await adapter.look_at_person("@me", NOTHING)).state == "gone"


async def test_what_was_well_is_asked_again_after_a_moment_only(server: DiscordServer) -> None:
    hours = Hours()
    adapter = build_adapter(server, monotonic=hours.now)
    try:
        for _ in range(3):
            assert (await adapter.look_at_channel(server.guild_id, server.general)).state == "open"
            assert (await adapter.look_at_person(server.guild_id, server.bob)).state == "here"
        assert len(server.calls_to(r"^GET /channels/\d+$")) == 1
        server.deny(server.general, "SEND_MESSAGES")
        del server.guilds[server.guild_id].members[server.bob]
        hours.at += GLANCE_S
        assert (await adapter.look_at_channel(server.guild_id, server.general)).state == "closed"
        assert (await adapter.look_at_person(server.guild_id, server.bob)).state == "gone"
    finally:
        await adapter.stop()


async def test_a_look_says_nothing_about_posts(adapter: DiscordAdapter, server: DiscordServer) -> None:
    """A message's id is looked at as a channel before its thread is there: the thread can be opened all the same."""
    message = await server.mention("hi")
    assert (await adapter.look_at_channel(server.guild_id, message)).state == "gone"
    assert isinstance(await adapter.post(reply(place(server, message))), Delivered)
    assert contents(server, message) == ["The answer."]


async def test_many_looks_keep_discords_rates(adapter: DiscordAdapter, server: DiscordServer) -> None:
    channels = [server.add_channel(f"n{n}") for n in range(30)]
    async with asyncio.timeout(60):
        looks = await asyncio.gather(*(adapter.look_at_channel(server.guild_id, channel) for channel in channels))
    assert {look.state for look in looks} <= {"open", "unknown"}
    assert looks[0].state == "open"
    assert server.rate_violations == []
