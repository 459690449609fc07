"""What tests of the outgoing side share: an outbound side on the local guild, and addresses in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from adapters.chat import Author, Reply, ThreadRef
from adapters.discord.client import DiscordClient
from adapters.discord.http import DiscordHttp
from adapters.discord.outbound import DiscordOutbound
from adapters.discord.threads import DiscordThreads
from tests.servers.discord import DiscordServer

ALICE = Author(id="1", name="alice")


class Desk:
    """The outgoing side, part by part. ``ahead`` lets its wall clock run before the server's."""

    def __init__(self, server: DiscordServer, *, token: str = "", **options: Any) -> None:
        self.server = server
        self.ahead = timedelta(0)
        self.http = DiscordHttp(api_url=server.base_url, token=token or server.token)
        self.client = DiscordClient(self.http)
        self.threads = DiscordThreads(self.client)
        self.outbound = DiscordOutbound(
            self.client, self.threads, now=lambda: datetime.now(UTC) + self.ahead, **options
        )


@asynccontextmanager
async def open_desk(server: DiscordServer, **options: Any) -> AsyncIterator[Desk]:
    desk = Desk(server, **options)
    try:
        yield desk
    finally:
        await desk.outbound.close()
        await desk.http.close()


def place(server: DiscordServer, thread: str, *, channel: str = "") -> ThreadRef:
    """A thread of the guild; without a channel under the general one."""
    return ThreadRef(platform="discord", workspace=server.guild_id, channel=channel or server.general, thread=thread)


def direct(server: DiscordServer, user: str = "") -> ThreadRef:
    """The direct conversation with a person."""
    channel = server.dm_with(user or server.alice)
    return ThreadRef(platform="discord", workspace="@me", channel=channel, thread=channel)


def reply(thread: ThreadRef, text: str = "The answer.", key: str = "run-1/1", **fields: Any) -> Reply:
    return Reply(thread=thread, text=text, key=key, **fields)


def contents(server: DiscordServer, channel: str) -> list[str]:
    """What the bot posted there."""
    return [message["content"] for message in server.bot_messages(channel)]


def posts(server: DiscordServer, channel: str) -> int:
    """How often the bot tried to post there."""
    return len(server.calls_to(rf"^POST /channels/{channel}/messages$"))
