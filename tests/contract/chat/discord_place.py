"""Discord: a local guild, reached through discord.py and Hermod's own calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.chat import ChatAdapter, ThreadRef
from adapters.commands import CommandOffer, Complete
from adapters.discord.app import DiscordAdapter
from tests.contract.chat.features import Way
from tests.contract.chat.place import PATIENCE_S, Place, Post, Who, until
from tests.integration.discord.conftest import build_adapter, wait_connected
from tests.integration.slack.conftest import Inbox
from tests.servers.discord import DiscordServer
from tests.servers.discord.components import BUTTON, flatten
from tests.servers.discord.model import EPHEMERAL, SUPPRESS_EMBEDS
from tests.servers.discord.permissions import INVITED, mask

SIGNS = {"\u23f3": "queued", "\U0001f440": "seen", "\U0001f6d1": "stopped"}
THUMBS = {True: "\U0001f44d", False: "\U0001f44e"}


class DiscordPlace(Place):
    """See ``Place``."""

    way: Way = "discord"

    def __init__(self, server: DiscordServer) -> None:
        self.server = server
        self.inbox = Inbox()
        self._offers: Sequence[CommandOffer] = ()
        self._complete: Complete = lambda asked: ()
        self.adapter: ChatAdapter = self._build()
        self._second = ""
        self._frozen: list[ChatAdapter] = []

    def _build(self, **options: Any) -> DiscordAdapter:
        adapter = build_adapter(self.server, **options)
        if self._offers:
            adapter.offer_commands(self._offers, self._complete)
        return adapter

    # ------------------------------------------------------------------ life
    async def start(self) -> None:
        await self.adapter.start(self.inbox.accept)
        assert isinstance(self.adapter, DiscordAdapter)
        await wait_connected(self.adapter, PATIENCE_S)
        await self.server.wait_until(lambda: len(self._shown_commands()) >= len(self._offers), PATIENCE_S)

    def _shown_commands(self) -> list[Any]:
        return self.server.commands["global"]

    async def restart(self) -> None:
        await self.adapter.stop()
        self.adapter = self._build()
        await self.start()

    async def take_over(self) -> None:
        self._frozen.append(self.adapter)
        self.adapter = self._build()
        await self.start()

    async def close(self) -> None:
        for adapter in (*self._frozen, self.adapter):
            await adapter.stop()

    def build_other(self) -> ChatAdapter:
        return self._build(token="wrong.token")

    async def open_second(self) -> None:
        self._second = self.server.add_guild("Other")
        self.server.add_channel("ops", guild=self._second)
        await self.server.invite_bot(self._second)

    def offer(self, offers: Sequence[CommandOffer], complete: Complete) -> None:
        self._offers, self._complete = tuple(offers), complete
        assert isinstance(self.adapter, DiscordAdapter)
        self.adapter.offer_commands(self._offers, self._complete)

    # ------------------------------------------------------------------ people
    def person(self, who: Who) -> str:
        return {"alice": self.server.alice, "bob": self.server.bob}[who]

    def channel(self) -> tuple[str, str, str]:
        return "discord", self.server.guild_id, self.server.general

    def _named(self, text: str) -> str:
        return f"<@{self.server.bot_id}> {text}"

    async def _find_channel(self, thread: ThreadRef | None) -> str:
        """The channel to speak in; somebody opens the thread where the bot has not done so."""
        if thread is None:
            return self.server.general
        if thread.workspace != "@me" and thread.thread not in self.server.channels:
            await self.server.open_thread("talk", message=thread.thread)
        return thread.thread

    async def say(
        self,
        text: str,
        *,
        thread: ThreadRef | None = None,
        mention: bool = True,
        who: Who = "alice",
        files: Mapping[str, bytes] | None = None,
    ) -> str:
        return await self.server.say(
            self._named(text) if mention else text,
            channel=await self._find_channel(thread),
            user=self.person(who),
            files=dict(files) if files else None,
        )

    async def say_direct(self, text: str, *, who: Who = "alice") -> str:
        user = self.person(who)
        return await self.server.say(text, channel=self.server.dm_with(user), user=user)

    async def say_in_second(self, text: str) -> str:
        (channel,) = [c["id"] for c in self.server.channels.values() if c.get("guild_id") == self._second]
        return await self.server.mention(text, channel=channel)

    async def say_twice(self, text: str) -> str:
        self.server.copies = 3
        try:
            return await self.server.mention(text)
        finally:
            self.server.copies = 1

    async def say_as_bot(self, text: str, *, thread: ThreadRef | None = None) -> str:
        other = self.server.add_user("alerts", bot=True)
        return await self.server.say(self._named(text), user=other, channel=await self._find_channel(thread))

    async def say_as_us(self, text: str) -> str:
        return await self.server.say(self._named(text), user=self.server.bot_id)

    async def call_everyone(self, text: str) -> str:
        return await self.server.say(f"@everyone @here {text}")

    async def call_group(self, text: str) -> str:
        return await self.server.say(f"<@&{self.server.guilds[self.server.guild_id].bot_role}> {text}")

    async def quote(self, text: str, quoted: str) -> str:
        embed = {"type": "rich", "author": {"name": "Carol"}, "description": quoted}
        return await self.server.mention(text, embeds=[embed])

    async def answer_to(self, message: str, text: str, *, mention: bool, thread: ThreadRef | None = None) -> str:
        channel = await self._find_channel(thread)
        return await self.server.say(text, channel=channel, reply_to=message, ping=mention)

    async def edit(self, message: str, text: str, *, mention: bool = False) -> None:
        await self.server.edit(message, self._named(text) if mention else text)

    async def preview(self, message: str) -> None:
        await self.server.unfurl(message)

    async def delete(self, message: str) -> None:
        await self.server.delete(message)

    async def _click(self, thread: ThreadRef, key: str, label: str, who: Who = "alice") -> None:
        for message in reversed(self._written(thread)):
            for part in flatten(message["components"]):
                shown = part.get("label") if key == "label" else (part.get("emoji") or {}).get("name")
                if shown == label and "custom_id" in part:
                    used = await self.server.click(message["id"], part["custom_id"], user=self.person(who))
                    assert used.error == ""
                    return
        raise LookupError(f"no button {label!r}")

    async def press(self, thread: ThreadRef, label: str, *, who: Who = "alice") -> None:
        await self._click(thread, "label", label, who)

    async def rate(self, thread: ThreadRef, *, up: bool) -> None:
        await self._click(thread, "emoji", THUMBS[up])

    async def press_stop(self, thread: ThreadRef) -> None:
        await self._click(thread, "label", "Stop")

    async def give(
        self, name: str, values: Mapping[str, object], *, thread: ThreadRef | None = None, who: Who = "alice"
    ) -> str:
        channel = await self._find_channel(thread)
        used = await self.server.slash(name, dict(values), channel=channel, user=self.person(who))
        assert used.error == ""
        return used.id

    async def type(self, name: str, option: str, typed: str) -> list[str]:
        return [str(choice["value"]) for choice in await self.server.autocomplete(name, option, typed)]

    # ------------------------------------------------------------------ what people see
    def _written(self, thread: ThreadRef) -> list[dict[str, Any]]:
        channel = thread.channel if thread.thread.startswith("command-") else thread.thread
        if channel not in self.server.channels:
            return []
        return [m for m in self.server.bot_messages(channel) if not m["flags"] & EPHEMERAL]

    def posts(self, thread: ThreadRef) -> list[Post]:
        return [
            Post(
                id=m["id"],
                text=m["content"],
                buttons=tuple(c["label"] for c in flatten(m["components"]) if c["type"] == BUTTON and c.get("label")),
                files={f["filename"]: self.server.blobs[f["id"]] for f in m["attachments"]},
                previews=not m["flags"] & SUPPRESS_EMBEDS,
            )
            for m in self._written(thread)
        ]

    def shown_to(self, who: Who) -> list[str]:
        user = self.person(who)
        alone = [
            m
            for channel in self.server.channels
            for m in self.server.bot_messages(channel)
            if m["flags"] & EPHEMERAL and self.server._private.get(m["id"]) == user
        ]
        return [str(m["content"]) for m in [*alone, *self.server.bot_messages(self.server.dm_with(user))]]

    def pinged(self) -> set[str]:
        return self.server.pinged()

    def works(self, thread: ThreadRef) -> bool:
        return thread.thread in self.server.channels and self.server.typing_in(thread.thread)

    def signs(self, message: str) -> set[str]:
        return {SIGNS[emoji] for emoji in self.server.signs(message)}

    def violations(self) -> list[str]:
        return [*self.server.violations, *self.server.rate_violations]

    # ------------------------------------------------------------------ what goes wrong
    async def cut(self) -> None:
        (session,) = self.server.live()
        before = session.connection
        await self.server.kill_sockets()
        await until(lambda: not self.adapter.connected or any(s.connection is not before for s in self.server.live()))

    def limit_posts(self, wait_s: float) -> None:
        self.server.inject(r"^POST /channels/\d+/messages$", http=429, retry_after=wait_s)

    def break_post(self, *, arrives: bool) -> None:
        self.server.inject(r"^POST /channels/\d+/messages$", drop=True, after=arrives)

    def forbid_posting(self) -> None:
        self.server.deny(self.server.general, "SEND_MESSAGES", "SEND_MESSAGES_IN_THREADS")

    def forbid_seeing(self) -> None:
        self.server.deny(self.server.general, "VIEW_CHANNEL")

    def forbid_files(self) -> None:
        self.server.deny(self.server.general, "ATTACH_FILES")

    async def remove(self, thread: ThreadRef) -> None:
        await self.server.delete_channel(thread.thread)

    def take_permission(self) -> str:
        role = self.server.guilds[self.server.guild_id].bot_role
        self.server.set_role(self.server.guild_id, permissions_=0)
        self.server.set_role(role, permissions_=INVITED & ~mask("ADD_REACTIONS"))
        return "Add Reactions"
