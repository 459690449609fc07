"""Two shards of the shipped process, in one process and in two."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.acceptance.on_discord import PATIENCE_S, said
from tests.acceptance.process import HermodProcess
from tests.servers.discord import DiscordServer
from tests.servers.openai import OpenAIServer, Reply


@pytest.fixture
async def discord() -> AsyncIterator[DiscordServer]:
    async with DiscordServer(strict_rate_limits=True, shards=2) as server:
        yield server


@pytest.fixture
async def model() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        server.on().dynamic(lambda r: Reply(f"heard {r.last_said}"))
        yield server


def add_rooms(discord: DiscordServer) -> list[str]:
    """A channel in a guild of each shard."""
    return [discord.add_channel("room", guild=discord.add_guild(f"of {n}", shard=(n, 2))) for n in (0, 1)]


async def talk(discord: DiscordServer, rooms: list[str], word: str) -> None:
    """Ask in a guild of each shard and directly, and again in the same places."""
    threads = [await discord.mention(f"{word} in {n}", channel=room) for n, room in enumerate(rooms)]
    direct = discord.dm_with(discord.bob)
    earlier = len(said(discord, direct))
    await discord.say(f"{word} direct", channel=direct, user=discord.bob)
    for n, thread in enumerate(threads):
        await discord.wait_until(lambda thread=thread: said(discord, thread), PATIENCE_S)  # type: ignore[misc]
        await discord.say(f"{word} again", channel=thread)
        await discord.wait_until(lambda thread=thread: len(said(discord, thread)) > 1, PATIENCE_S)  # type: ignore[misc]
        assert said(discord, thread) == [f"heard {word} in {n}", f"heard {word} again"]
    await discord.wait_until(lambda: len(said(discord, direct)) > earlier, PATIENCE_S)
    assert said(discord, direct)[earlier:] == [f"heard {word} direct"]


def heard(discord: DiscordServer, shard: int) -> list[str]:
    """What people said that the sessions of a shard were told of."""
    sessions = [session for session in discord.sessions.values() if session.shard == (shard, 2)]
    created = [said for session in sessions for said in session.events("MESSAGE_CREATE")]
    return [str(message["content"]) for message in created if message["author"]["id"] != discord.bot_id]


def accepted(process: HermodProcess) -> list[str]:
    """The guilds (or @me) of the messages that a process took in."""
    keys = [str(e["thread"]) for e in process.events() if e.get("event") == "message_accepted"]
    return [key.partition(":")[2].partition("/")[0] for key in keys]


async def test_one_process_keeps_both_shards_and_each_hears_its_own(
    tmp_path: Path, discord: DiscordServer, model: OpenAIServer
) -> None:
    rooms = add_rooms(discord)
    hermod = HermodProcess(tmp_path, model_url=model.base_url, discord=discord)  # as many as Discord advises
    try:
        await hermod.start()
        await hermod.wait_ready()
        assert {session.shard for session in discord.live()} == {(0, 2), (1, 2)}
        await talk(discord, rooms, "one")
        await discord.kill_sockets(shard=1)  # the other one is not touched
        await talk(discord, rooms, "two")
        assert {session.shard[0]: session.resumes for session in discord.live()} == {0: 0, 1: 1}
        assert [text for text in heard(discord, 0) if "direct" in text] == ["one direct", "two direct"]
        assert not any("direct" in text or "in 0" in text for text in heard(discord, 1))
    finally:
        assert await hermod.stop() == 0
    assert len(model.requests) == 10
    assert discord.violations == []
    assert discord.rate_violations == []


async def test_two_processes_divide_the_shards_and_one_of_them_can_go(
    tmp_path: Path, discord: DiscordServer, model: OpenAIServer
) -> None:
    rooms = add_rooms(discord)
    guilds = [str(discord.channels[room]["guild_id"]) for room in rooms]
    processes = [
        HermodProcess(
            tmp_path,
            model_url=model.base_url,
            discord=discord,
            name=f"shard-{n}",
            environ={
                "HERMOD_DISCORD__SHARD_COUNT": "2",
                "HERMOD_DISCORD__SHARD_IDS": str(n),
                "HERMOD_DISCORD__PROCESSES": "2",
            },
        )
        for n in (0, 1)
    ]
    try:
        for process in processes:
            await process.start()
        for process in processes:
            await process.wait_ready()
        assert sorted(session.shard for session in discord.live()) == [(0, 2), (1, 2)]
        await talk(discord, rooms, "one")
        assert set(accepted(processes[0])) == {guilds[0], "@me"}
        assert set(accepted(processes[1])) == {guilds[1]}
        # one goes and comes again: what was said to its shard meanwhile is answered then
        assert await processes[1].stop() == 0
        threads = [await discord.mention(f"meanwhile {n}", channel=room) for n, room in enumerate(rooms)]
        await discord.wait_until(lambda: said(discord, threads[0]), PATIENCE_S)
        assert said(discord, threads[1]) == []
        await processes[1].start()
        await discord.wait_until(lambda: said(discord, threads[1]), PATIENCE_S)
        assert [said(discord, thread) for thread in threads] == [[f"heard meanwhile {n}"] for n in (0, 1)]
    finally:
        assert [await process.stop() for process in processes] == [0, 0]
    assert len(model.requests) == 7
    assert discord.violations == []
