"""What Discord suggests while somebody types comes from the whole program: here the jobs of the channel."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bot.app import open_app
from bot.settings import load_settings
from tests.integration.discord.conftest import build_adapter, wait_connected
from tests.servers.discord import DiscordServer

SETTINGS = """
[storage]
url = "sqlite:///{folder}/hermod.db"
[discord]
token = "t"
[sandbox]
enabled = false
[[models]]
name = "main"
kind = "offline"
[reports.daily]
cron = "0 9 * * *"
channel = "discord:{guild}/{channel}"
task = "What got slower?"
[reports.elsewhere]
cron = "0 9 * * *"
channel = "discord:{guild}/{other}"
task = "What got slower?"
"""


async def suggested(server: DiscordServer, command: str, option: str, typed: str, *, until: str) -> list[str]:
    """Type until the name of a job is suggested: the rows of the settings are made a moment after the start."""
    async with asyncio.timeout(60):
        while True:
            found = [str(choice["value"]) for choice in await server.autocomplete(command, option, typed)]
            if until in found:
                return found
            await asyncio.sleep(0.05)


async def test_options_that_name_a_job_complete_the_jobs_of_the_channel(server: DiscordServer, tmp_path: Path) -> None:
    other = server.add_channel("other")
    path = tmp_path / "hermod.toml"
    path.write_text(
        SETTINGS.format(folder=tmp_path, guild=server.guild_id, channel=server.general, other=other), encoding="utf-8"
    )
    adapter = build_adapter(server)
    async with open_app(load_settings(path, {}), {}, adapters={"discord": adapter}, prefixes=["discord:"]) as app:
        try:
            await app.start()
            await wait_connected(adapter)
            await server.wait_until(lambda: {c["name"] for c in server.commands["global"]} >= {"report", "jobs"})
            assert await suggested(server, "report", "name", "d", until="daily") == ["daily"]
            assert await suggested(server, "jobs", "words", "pause", until="pause daily") == ["pause daily"]
            before = asyncio.all_tasks()
        finally:
            await app.stop(5)
        left = {task.get_name() for task in before if not task.done()} & {"job-names"}
    assert left == set()
    assert server.violations == []
