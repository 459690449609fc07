"""What the shipped process writes down on Discord, also when it is asked to write all."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.process import HermodProcess
from tests.acceptance.secrecy import find_secrets
from tests.servers.discord import DiscordServer


async def test_no_log_level_shows_tokens_signed_addresses_or_what_people_say(tmp_path: Path) -> None:
    """discord.py can write every event whole: with it the tokens by which anybody could answer in Hermod's name."""
    async with DiscordServer() as discord:
        process = HermodProcess(tmp_path, model_url=None, discord=discord, verbose=True)
        try:
            await process.start()
            await process.wait_ready()
            await discord.wait_until(lambda: discord.commands["global"])
            question = await discord.mention("what is 2**10?", files={"notes.txt": b"kept between us"})
            await discord.wait_until(lambda: discord.bot_messages(question))
            given = await discord.slash("hermod", {"command": "calculator", "arguments": "2**11"})
            await discord.wait_until(lambda: any("2048" in shown["content"] for shown in discord.shown(given)))
            (answer,) = discord.bot_messages(question)
            pressed = await discord.click(answer["id"], answer["components"][0]["components"][0]["custom_id"])
            await discord.wait_until(lambda: len(discord.shown(pressed)) == 2)
        finally:
            await process.stop()
    log = {"log": process.log_path.read_bytes()}
    assert b"message_accepted" in log["log"]
    secrets = [discord.token, given.token, pressed.token, "2**10", "2**11", "&hm="]
    assert find_secrets(secrets, log) == []
