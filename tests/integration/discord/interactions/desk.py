"""What tests of commands share: commands that are offered, an adapter that offers them, and what is seen of answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from adapters.chat import Reply
from adapters.commands import CommandOffer, CommandOption, Completing
from adapters.discord.app import DiscordAdapter
from tests.integration.discord.conftest import Inbox, build_adapter, wait_connected
from tests.servers.discord import DiscordServer

EPHEMERAL, LOADING = 1 << 6, 1 << 7
SLOWQ = CommandOffer(
    name="slowq",
    summary="List slow queries.",
    options=(
        CommandOption(name="threshold", summary="Seconds.", kind="number"),
        CommandOption(name="limit", summary="Rows.", kind="integer"),
        CommandOption(name="target", summary="Which.", completes="target"),
        CommandOption(name="system", summary="All.", kind="boolean"),
    ),
)
ASK = CommandOffer(
    name="ask",
    summary="Ask.",
    options=(CommandOption(name="question", summary="What?", required=True),),
    plain=True,
)
USAGE = CommandOffer(name="usage", summary="Show usage.", plain=True, private=True)
OFFERS = (ASK, SLOWQ, USAGE)
CALLBACK, WEBHOOK = r"^POST /interactions/", r"/webhooks/"


class Clock:
    """The time of day, which can be set forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.ahead_s)


def suggest(asked: Completing) -> list[str]:
    names = [f"{asked.completes}{n:02}" for n in range(40)]
    return [name for name in names if name.startswith(asked.typed)]


async def start(server: DiscordServer, inbox: Inbox, **options: Any) -> DiscordAdapter:
    adapter = build_adapter(server, **options)
    adapter.offer_commands(OFFERS, suggest)
    await adapter.start(inbox.accept)
    await wait_connected(adapter)
    await server.wait_until(lambda: {"ask", "slowq", "usage"} <= {c["name"] for c in server.commands["global"]})
    return adapter


async def give(server: DiscordServer, inbox: Inbox, name: str = "slowq", **kw: Any) -> Any:
    """Give a command and wait until it is stored."""
    before = len(inbox.commands)
    interaction = await server.slash(name, **kw)
    await inbox.wait_for(lambda: len(inbox.commands) > before)
    return interaction


def answer_to(inbox: Inbox, text: str, *, part: int = 1, private: bool = False, **fields: Any) -> Reply:
    command = inbox.commands[-1]
    return Reply(
        thread=command.thread,
        text=text,
        key=f"run{command.id}/{part}",
        respond_to=command.respond_to,
        private_to=command.author.id if private else "",
        **fields,
    )


def seen_in(server: DiscordServer, channel: str | None = None, *, by_all: bool = True) -> list[dict[str, Any]]:
    """Our messages in a channel; those that all see, or those that one person sees."""
    return [m for m in server.bot_messages(channel or server.general) if bool(m["flags"] & EPHEMERAL) is not by_all]


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [m["content"] for m in messages]
