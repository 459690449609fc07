"""Programs that only take time hold up nobody: a command is answered beside five of them as without any."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tests.acceptance.on_discord import PATIENCE_S
from tests.acceptance.process import HermodProcess, until
from tests.needs import need
from tests.sandbox.sandboxes import KINDS, NAME_ITSELF, find_named, why_missing
from tests.servers.discord import DiscordServer, Interaction

SLEEPING = 5
TRIES = 9
LOADING = 1 << 7  # docs.discord.com/developers/resources/message#message-object-message-flags


@pytest.fixture
async def discord() -> AsyncIterator[DiscordServer]:
    async with DiscordServer() as server:
        yield server


@pytest.fixture
async def hermod(tmp_path: Path, discord: DiscordServer) -> AsyncIterator[HermodProcess]:
    reasons = [why_missing(kind) for kind in KINDS]
    need("" if "" in reasons else reasons[0])
    process = HermodProcess(tmp_path, model_url=None, discord=discord, sandbox=True)
    yield process
    await process.kill()


def is_answered(discord: DiscordServer, used: Interaction) -> bool:
    """Tell whether the answer stands where the command was announced."""
    shown = discord.shown(used)
    return bool(shown) and not shown[0]["flags"] & LOADING


async def measure(discord: DiscordServer) -> float:
    """Give a command several times; return the shortest time to its answer, in seconds: others' work only adds."""
    times = []
    for _ in range(TRIES):
        began = time.monotonic()
        used = await discord.slash("hermod", {"command": "calculator", "arguments": "2**10"})
        await discord.wait_until(partial(is_answered, discord, used), PATIENCE_S)
        times.append(time.monotonic() - began)
        assert "1024" in discord.shown(used)[0]["content"]
    return min(times)


async def end_all(name: str) -> None:
    """End each of the programs as soon as it sleeps."""
    ended: set[int] = set()
    async with asyncio.timeout(PATIENCE_S):
        while len(ended) < SLEEPING:
            for pid in find_named(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    ended.add(pid)
            await asyncio.sleep(0.02)


@pytest.mark.timeout(180)
async def test_a_command_waits_for_none_of_five_programs_that_sleep(
    discord: DiscordServer, hermod: HermodProcess
) -> None:
    await hermod.start()
    await hermod.wait_ready()
    await discord.wait_until(lambda: "py" in {c["name"] for c in discord.commands["global"]}, PATIENCE_S)
    alone_s = await measure(discord)
    name = f"asleep{os.getpid()}"
    code = f"{NAME_ITSELF.format(name=name).strip()}; import time; time.sleep(50)"
    for _ in range(SLEEPING):
        await discord.slash("py", {"code": code, "timeout_s": 55})
    at_once = min(SLEEPING, 2 * (os.cpu_count() or 1))  # the others wait for their place
    await until(lambda: len(find_named(name)) == at_once)
    beside_s = await measure(discord)
    assert len(find_named(name)) == at_once
    await end_all(name)
    alone_s = max(alone_s, await measure(discord))  # the machine may be busier now than it was before
    print(f"alone {alone_s * 1000:.0f} ms, beside {SLEEPING} that sleep {beside_s * 1000:.0f} ms")
    assert beside_s - alone_s < 5 * 0.05
