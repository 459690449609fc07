"""Slack and Discord in one shipped process: neither knows what was said on the other, nor waits for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.on_discord import PATIENCE_S, said
from tests.acceptance.process import HermodProcess, until
from tests.servers.discord import DiscordServer
from tests.servers.openai import OpenAIServer, Reply, Request
from tests.servers.slack import SlackServer

SOON_S = 15.0
"""An answer takes less than a second where nothing else runs; a call that is not answered is given up after 20 s."""

AT_ONCE = 64
"""So many threads are worked on at once on a platform."""

OTHER = {"slack": "discord", "discord": "slack"}


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with SlackServer(ack_timeout=2.0, retry_delays=(0.2, *(0.5,) * 100)) as server:
        yield server


@pytest.fixture
async def discord() -> AsyncIterator[DiscordServer]:
    async with DiscordServer() as server:
        yield server


@pytest.fixture
async def model() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        server.on().dynamic(lambda r: Reply(f"heard {r.last_said}"))
        yield server


@pytest.fixture
async def hermod(
    tmp_path: Path, slack: SlackServer, discord: DiscordServer, model: OpenAIServer
) -> AsyncIterator[HermodProcess]:
    process = HermodProcess(tmp_path, slack_url=slack.base_url, discord=discord, model_url=model.base_url)
    yield process
    await process.stop()


@dataclass(frozen=True)
class Places:
    """Both platforms, spoken of in the same way."""

    slack: SlackServer
    discord: DiscordServer

    async def mention(self, platform: str, text: str, *, channel: str = "", thread: str = "") -> str:
        """Say something to the bot, in a new thread or in one; returns the message."""
        if platform == "slack":
            return await self.slack.mention(text, channel=channel or "C1OPS", thread_ts=thread or None)
        return await self.discord.mention(text, channel=thread or channel or None)

    def answers(self, platform: str, thread: str, channel: str = "") -> list[str]:
        if platform == "slack":
            return [str(m["text"]) for m in self.slack.replies(channel or "C1OPS", thread)]
        return said(self.discord, thread)

    async def wait_answered(
        self, platform: str, thread: str, count: int = 1, *, channel: str = "", timeout_s: float = PATIENCE_S
    ) -> list[str]:
        server = self.slack if platform == "slack" else self.discord
        await server.wait_until(lambda: len(self.answers(platform, thread, channel)) >= count, timeout_s)
        return self.answers(platform, thread, channel)

    async def stop(self, platform: str) -> None:
        """The whole platform cannot be reached any more."""
        await (self.slack.stop() if platform == "slack" else self.discord.stop())

    async def start(self, platform: str) -> None:
        await (self.slack.start() if platform == "slack" else self.discord.start())

    def hold_all(self, platform: str) -> asyncio.Event:
        """No call is answered from now on until the event is set; who is not known in time gets no answer on Slack, so
        people are.
        """
        hold = asyncio.Event()
        if platform == "slack":
            for method in ("chat.postMessage", "assistant.threads.setStatus", "conversations.replies", "chat.update"):
                self.slack.inject(method, hold=hold, times=1_000_000)
        else:
            self.discord.inject(".", hold=hold, only_delay=True, times=1_000_000)
        return hold


@pytest.fixture
def places(slack: SlackServer, discord: DiscordServer) -> Places:
    return Places(slack, discord)


async def not_connected(hermod: HermodProcess) -> list[str]:
    """The platforms that ``/readyz`` names, empty when it is 200."""
    status, body = await hermod.get("/readyz")
    names = [str(name) for name in json.loads(body)["not_connected"]]
    assert (status == 200) == (not names)
    return names


async def wait_not_connected(hermod: HermodProcess, *names: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await not_connected(hermod) != list(names):  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0.05)


# -- memory ------------------------------------------------------------------------------------------


def tell_word(request: Request) -> Reply:
    words = {word for m in request.messages for word in ("heron", "osprey") if word in str(m["content"])}
    return Reply("and ".join(sorted(words)) if "which" in request.last_said else "noted")


async def test_a_thread_on_one_platform_never_appears_in_the_others_memory(
    slack: SlackServer, discord: DiscordServer, model: OpenAIServer, hermod: HermodProcess, places: Places
) -> None:
    model.rules.clear()
    model.on().dynamic(tell_word)
    slack.add_channel(discord.general, "ops")  # even the channels have the same name and the same id
    await hermod.start()
    await hermod.wait_ready()
    secrets = {"slack": "heron", "discord": "osprey"}
    threads = {p: await places.mention(p, f"the word is {secrets[p]}", channel=discord.general) for p in secrets}
    for platform, thread in threads.items():
        await places.wait_answered(platform, thread, channel=discord.general)
    for count in range(2, 5):
        for platform, thread in threads.items():
            await places.mention(platform, "which word is it?", channel=discord.general, thread=thread)
        for platform, thread in threads.items():
            answers = await places.wait_answered(platform, thread, count, channel=discord.general)
            assert answers == ["noted", *[secrets[platform]] * (count - 1)]
    await slack.say("!forget", channel=discord.general, thread_ts=threads["slack"])
    await places.wait_answered("slack", threads["slack"], 5, channel=discord.general)
    for platform, thread in threads.items():
        await places.mention(platform, "which word is it now?", channel=discord.general, thread=thread)
    assert (await places.wait_answered("slack", threads["slack"], 6, channel=discord.general))[-1] != "osprey"
    assert (await places.wait_answered("discord", threads["discord"], 5))[-1] == "osprey"
    seen = ["".join(str(m["content"]) for m in request.messages) for request in model.requests]
    assert not [text for text in seen if "heron" in text and "osprey" in text]
    assert sum("osprey" in text for text in seen) == 5
    assert model.violations == []
    assert discord.violations == []
    assert slack.violations == []


# -- trouble on one of them --------------------------------------------------------------------------


@pytest.mark.parametrize("slow", ["discord", "slack"])
async def test_a_platform_whose_every_call_is_late_does_not_delay_the_other(
    slack: SlackServer, discord: DiscordServer, model: OpenAIServer, hermod: HermodProcess, places: Places, slow: str
) -> None:
    rooms = [f"C{n}LATE" for n in range(AT_ONCE // 2)]  # a channel takes a few messages at once
    for room in rooms:
        slack.add_channel(room, room.lower())
    if slow == "discord":
        rooms = [discord.add_channel(room.lower()) for room in rooms]
    await hermod.start()
    await hermod.wait_ready()
    hold = places.hold_all(slow)
    late = {
        await places.mention(slow, f"late {n}", channel=room): room
        for n, room in enumerate([*rooms, *rooms, *rooms[: AT_ONCE // 4]])
    }
    await until(lambda: len(model.requests) >= AT_ONCE)  # they are written, and cannot be posted
    quick = {await places.mention(OTHER[slow], f"quick {number}"): f"heard quick {number}" for number in range(3)}
    for thread, text in quick.items():
        # had these to wait for the place of one of those, they would have it when its call is given up
        assert await places.wait_answered(OTHER[slow], thread, timeout_s=SOON_S) == [text]
    assert not any(places.answers(slow, thread, room) for thread, room in late.items())
    assert await not_connected(hermod) == []
    (slack if slow == "slack" else discord).faults.clear()
    hold.set()
    for number, (thread, room) in enumerate(late.items()):
        assert await places.wait_answered(slow, thread, channel=room) == [f"heard late {number}"]


async def test_a_platform_that_asks_to_wait_does_not_delay_the_other_and_is_answered_afterwards(
    discord: DiscordServer, hermod: HermodProcess, places: Places
) -> None:
    await hermod.start()
    await hermod.wait_ready()
    # an answer: the calls that register commands beside it wait for themselves only
    discord.inject("^POST /channels", http=429, retry_after=SOON_S, is_global=True)
    waiting = [await places.mention("discord", f"waiting {number}") for number in range(5)]
    await discord.wait_until(lambda: any(call.status == 429 for call in discord.calls), PATIENCE_S)
    for number in range(3):
        thread = await places.mention("slack", f"quick {number}")
        assert await places.wait_answered("slack", thread) == [f"heard quick {number}"]
    assert not any(said(discord, thread) for thread in waiting)
    assert await not_connected(hermod) == []
    for number, thread in enumerate(waiting):
        assert await places.wait_answered("discord", thread) == [f"heard waiting {number}"]
    assert sum(call.status == 429 for call in discord.calls) <= 3  # it is heard, not tried again and again


@pytest.mark.timeout(180)
@pytest.mark.parametrize("gone", ["discord", "slack"])
async def test_a_platform_that_is_out_of_reach_is_told_by_readyz_and_does_not_delay_the_other(
    hermod: HermodProcess, places: Places, gone: str
) -> None:
    other = OTHER[gone]
    await places.stop(gone)  # before the start ...
    await hermod.start()
    thread = await ask_until_heard(hermod, places, other)
    assert await not_connected(hermod) == [gone]
    await places.start(gone)
    await wait_not_connected(hermod)
    before = await places.mention(gone, "before")
    await places.wait_answered(gone, before)
    await places.stop(gone)  # ... and in the middle
    await wait_not_connected(hermod, gone)
    for number in range(3):
        await places.mention(other, f"quick {number}", thread=thread)
        answers = await places.wait_answered(other, thread, number + 2)
        assert answers[-1] == f"heard quick {number}"
    assert await not_connected(hermod) == [gone]
    assert f'hermod_adapter_connected{{platform="{gone}"}} 0' in (await hermod.get("/metrics"))[1]
    assert f'hermod_adapter_connected{{platform="{other}"}} 1' in (await hermod.get("/metrics"))[1]
    assert (await hermod.get("/healthz"))[0] == 200
    await places.start(gone)
    await wait_not_connected(hermod)
    after = await places.mention(gone, "after")
    assert await places.wait_answered(gone, after) == ["heard after"]
    assert await hermod.stop() == 0


async def ask_until_heard(hermod: HermodProcess, places: Places, platform: str) -> str:
    """Wait for the connection of one platform, and have a question answered there; returns its thread."""
    server = places.slack if platform == "slack" else places.discord
    await server.wait_connected(PATIENCE_S)
    thread = await places.mention(platform, "hello")
    assert await places.wait_answered(platform, thread) == ["heard hello"]
    return thread
