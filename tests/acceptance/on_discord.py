"""What the tests of the shipped process on a local Discord look at."""

from __future__ import annotations

from tests.servers.discord import DiscordServer, Json

PATIENCE_S = 60.0
"""How long to wait for what takes a second or two where nothing else runs."""


def is_draft(message: Json) -> bool:
    """True for an answer that is still written: it bears the stop button."""
    return any(part["custom_id"].startswith("stop:") for row in message["components"] for part in row["components"])


def said(discord: DiscordServer, channel: str) -> list[str]:
    """What the bot has said in a place, the drafts of answers left out."""
    return [str(m["content"]) for m in discord.bot_messages(channel) if not is_draft(m)]


def drafts(discord: DiscordServer, channel: str) -> list[Json]:
    """The unfinished answers that are visible in a place."""
    return [m for m in discord.bot_messages(channel) if is_draft(m)]
