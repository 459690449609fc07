"""A thousand mentions through two shipped processes, with everything that Discord does to a bot on a bad day.

Both processes have a session on the same shard and the same storage, so each message comes twice. Fifty threads, in ten
channels of three guilds, talk at the same time; in a thread the next question comes when the last one is answered and
read, as people do, since what arrives during a run is taken together and answered once.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.acceptance.on_discord import PATIENCE_S, drafts, said
from tests.acceptance.process import HermodProcess
from tests.servers.discord import DiscordServer
from tests.servers.openai import OpenAIServer, Reply, Request

THREADS, ROUNDS = 50, 20
QUESTIONS = THREADS * ROUNDS
GUILDS, CHANNELS = 3, 10
BOUND_S = 100.0
"""On a machine of two cores that does nothing else; what is enforced is twice as long."""

MESSAGES = r"^POST /channels/\d+/messages$"


@pytest.fixture
async def discord() -> AsyncIterator[DiscordServer]:
    async with DiscordServer(strict_rate_limits=True) as server:
        yield server


@pytest.fixture
async def model() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        yield server


@pytest.fixture
async def processes(tmp_path: Path, discord: DiscordServer, model: OpenAIServer) -> AsyncIterator[list[HermodProcess]]:
    made = [
        HermodProcess(
            tmp_path,
            model_url=model.base_url,
            discord=discord,
            name=name,
            environ={"HERMOD_DISCORD__PROCESSES": "2"},
        )
        for name in ("first", "second")
    ]
    yield made
    for process in made:
        await process.stop()


def answer(number: int) -> str:
    """What the model says to a question; one answer in each thread is long enough to be watched while it is written."""
    return f"answer {number}" + (" in many words" * 20 if number % ROUNDS == ROUNDS // 2 else "")


def echo(request: Request) -> Reply:
    """Answer the number that the newest question ends with."""
    number = int(re.findall(r"[0-9]+", request.last_user)[-1])
    return Reply(answer(number), pace=0.05 if number % ROUNDS == ROUNDS // 2 else 0.0)


async def converse(discord: DiscordServer, number: int, channel: str, people: list[str], rng: random.Random) -> str:
    """Ask twenty questions in a thread, one after the other; returns the thread."""
    thread = ""
    for n in range(ROUNDS):
        # somebody reads and thinks; a channel takes five messages in five seconds, of which each process knows its own
        await asyncio.sleep(rng.uniform(1.2, 2.0) if n != ROUNDS // 2 + 1 else 4.0)
        question = f"question {number * ROUNDS + n}"
        said_at = await discord.mention(question, channel=thread or channel, user=rng.choice(people))
        thread = thread or said_at  # a thread has the id of the message that it was opened on
        async with asyncio.timeout(2 * BOUND_S):
            while len(said(discord, thread)) <= n:  # noqa: ASYNC110 - asked now and then, there are fifty of these
                await asyncio.sleep(0.05)
    return thread


def break_calls(discord: DiscordServer) -> None:
    """Let calls fail in every way, spread over the whole time."""
    for n in range(25):
        discord.inject(MESSAGES, http=429, retry_after=1.0, skip=31 * n + 7)
    for n in range(8):
        discord.inject(MESSAGES, http=503, skip=97 * n + 20)
        discord.inject(MESSAGES, http=502, after=True, skip=97 * n + 45)
        discord.inject(MESSAGES, drop=True, skip=97 * n + 60)
        discord.inject(MESSAGES, drop=True, after=True, skip=97 * n + 80)
    for n in range(5):
        discord.inject(r"POST /channels/\d+/messages/\d+/threads$", http=(500, 429)[n % 2], skip=7 * n + 2)
        discord.inject("^PATCH /channels", http=429, retry_after=2.0, skip=2 * n)
        discord.inject(r"/typing$", http=(429, 500)[n % 2], retry_after=1.0, skip=15 * n)


async def disturb(discord: DiscordServer, rng: random.Random) -> None:
    """End connections and sessions, each time when both are back."""
    for kind in ("reconnect", "kill", "resumable", "invalid", "reconnect", "hang up", "kill"):
        await asyncio.sleep(rng.uniform(2, 5))
        await discord.wait_connected(PATIENCE_S, sessions=2)
        match kind:
            case "reconnect":
                await discord.reconnect()
            case "kill":
                await discord.kill_sockets()
            case "hang up":
                await discord.hang_up(4000)
            case _:
                await discord.invalidate(resumable=kind == "resumable")


@pytest.mark.timeout(300)
async def test_1000_mentions_heard_by_two_sessions_get_1000_answers_in_order_and_no_call_goes_above_its_rate(
    discord: DiscordServer, model: OpenAIServer, processes: list[HermodProcess]
) -> None:
    model.on().dynamic(echo)
    guilds = [discord.guild_id, *(discord.add_guild(f"guild {n}") for n in range(1, GUILDS))]
    channels = [discord.add_channel(f"load-{n}", guild=guilds[n % GUILDS]) for n in range(CHANNELS)]
    people = [discord.add_user(f"asker{n}") for n in range(10)]
    for process in processes:
        await process.start()
        await process.wait_ready()
    await discord.wait_connected(PATIENCE_S, sessions=2)
    break_calls(discord)
    async with asyncio.timeout(2 * BOUND_S):
        disturber = asyncio.create_task(disturb(discord, random.Random(4)))
        async with asyncio.TaskGroup() as group:
            talks = [
                group.create_task(converse(discord, n, channels[n % CHANNELS], people, random.Random(1000 + n)))
                for n in range(THREADS)
            ]
        await disturber
    threads = [talk.result() for talk in talks]
    await discord.wait_until(lambda: not any(drafts(discord, thread) for thread in threads), PATIENCE_S)
    await asyncio.sleep(2)  # anything doubled would come now

    for number, thread in enumerate(threads):
        assert said(discord, thread) == [answer(number * ROUNDS + n) for n in range(ROUNDS)]
    assert [discord.bot_messages(channel) for channel in channels] == [[]] * CHANNELS  # nothing beside the threads
    assert len(model.requests) == QUESTIONS
    assert [fault for fault in discord.faults if fault.times and fault.pattern == MESSAGES] == []
    assert sum(session.resumes for session in discord.sessions.values()) >= 3
    heard = Counter(str(d["id"]) for s in discord.sessions.values() for d in s.events("MESSAGE_CREATE"))
    assert heard.most_common(1)[0][1] == 2
    for process in processes:  # both had a part in it
        assert any(e.get("event") == "run_ended" for e in process.events())
        assert [e for e in process.events() if e["level"] in ("error", "critical")] == []
    assert discord.rate_violations == []
    assert discord.violations == []
    assert discord.pinged() == set()
    assert model.violations == []
