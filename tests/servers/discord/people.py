"""What people and moderators do: write, edit, delete, react, open threads, give and take permissions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.servers.discord import permissions, rules
from tests.servers.discord.interactions import Interactions
from tests.servers.discord.model import (
    DIRECT_REACTIONS,
    DM,
    FORUM,
    GUILD_REACTIONS,
    GUILDS,
    MEDIA,
    MEMBERS,
    PRIVATE_THREAD,
    THREADS,
    Json,
)
from tests.servers.discord.objects import emoji_json
from tests.servers.discord.uploads import Upload


class People(Interactions):
    """The people, as verbs. None of them checks what its author may do, but for what Discord's client cannot send."""

    # ------------------------------------------------------------------ writing
    async def say(
        self,
        content: str = "",
        *,
        channel: str | None = None,
        user: str | None = None,
        files: dict[str, bytes] | None = None,
        reply_to: str | None = None,
        ping: bool = True,
        **extra: Any,
    ) -> str:
        """Write a message and return its id; ``reply_to`` with ``ping`` mentions the one who is answered.

        ``extra`` sets raw fields, ``webhook_id`` makes it a webhook's message.
        """
        body: Json = {"content": content}
        if reply_to:
            body["message_reference"] = {"message_id": reply_to}
            if not ping:
                body["allowed_mentions"] = {"parse": list(("users", "roles", "everyone")), "replied_user": False}
        cid = channel or self.general
        uploads = [Upload(str(n), name, blob) for n, (name, blob) in enumerate((files or {}).items())]
        rules.check_message(body, limit=rules.NITRO_MAX)
        msg = self._store(cid, user or self.alice, body, uploads, via="say", **extra)
        self._unarchive(self.channels[cid])
        self._tell("MESSAGE_CREATE", msg)
        return str(msg["id"])

    async def mention(self, content: str, **place: Any) -> str:
        """Say something to the bot."""
        return await self.say(f"<@{self.bot_id}> {content}", **place)

    async def edit(self, message: str, content: str, *, channel: str | None = None) -> None:
        self._edit(self._find(self.where(message, channel), message), {"content": content}, [], via="say")

    async def unfurl(self, message: str, *, channel: str | None = None) -> None:
        """Discord adds a link's preview to a message: an update without an edit (``edited_timestamp`` stays)."""
        msg = self._find(self.where(message, channel), message)
        msg["embeds"] = [*msg["embeds"], {"type": "link", "url": "http://example.com/", "title": "Example"}]
        self._tell("MESSAGE_UPDATE", msg)

    async def delete(self, message: str, *, channel: str | None = None) -> None:
        self._remove(self._find(self.where(message, channel), message))

    async def react(self, message: str, emoji: str, *, channel: str | None = None, user: str | None = None) -> None:
        self._react(self.where(message, channel), message, emoji, user or self.alice, add=True)

    async def unreact(self, message: str, emoji: str, *, channel: str | None = None, user: str | None = None) -> None:
        self._react(self.where(message, channel), message, emoji, user or self.alice, add=False)

    def _react(self, cid: str, mid: str, emoji: str, uid: str, *, add: bool) -> None:
        """docs.discord.com/developers/events/gateway-events#message-reaction-add."""
        mark = (mid, emoji, uid)
        if add == (mark in self.reactions):
            return
        (self.reactions.add if add else self.reactions.discard)(mark)
        body: Json = {
            "user_id": uid, "channel_id": cid, "message_id": mid, "emoji": emoji_json(emoji), "type": 0, "burst": False,
        }  # fmt: skip
        if guild := self.channels[cid].get("guild_id"):
            body["guild_id"] = guild
        if add:
            body["message_author_id"] = self._find(cid, mid)["author"]["id"]
            if guild:
                body["member"] = self._member(uid, guild)
        event = "MESSAGE_REACTION_ADD" if add else "MESSAGE_REACTION_REMOVE"
        self._tell_of(cid, event, lambda s: body, (GUILD_REACTIONS, DIRECT_REACTIONS))

    def signs(self, message: str) -> set[str]:
        """The bot's own reactions on a message."""
        return {emoji for mid, emoji, uid in self.reactions if mid == message and uid == self.bot_id}

    # ------------------------------------------------------------------ threads
    async def open_thread(
        self,
        name: str,
        *,
        message: str | None = None,
        channel: str | None = None,
        user: str | None = None,
        private: bool = False,
    ) -> str:
        """Open a thread, on a message or without one; its id. The bot is in a private one after `add_to_thread`."""
        parent = self.channels[self.where(message) if message else channel or self.general]
        origin = self._find(parent["id"], message) if message else None
        kind = PRIVATE_THREAD if private else 0
        return str(self._open(parent, {"name": name}, user or self.alice, origin=origin, kind=kind)["id"])

    async def open_post(self, name: str, content: str, *, channel: str, user: str | None = None) -> str:
        """Open a post in a forum; the id is the thread's and its first message's."""
        if self.channels[channel]["type"] not in (FORUM, MEDIA):
            raise LookupError(f"{channel} is no forum")
        uid = user or self.alice
        thread = self._open(self.channels[channel], {"name": name}, uid)
        self._tell(
            "MESSAGE_CREATE", self._store(thread["id"], uid, {"content": content}, [], via="say", id=thread["id"])
        )
        return str(thread["id"])

    async def add_to_thread(self, thread: str, user: str | None = None) -> None:
        """Add somebody, by default the bot, who then sees a private thread."""
        uid = user or self.bot_id
        self.thread_members[thread].add(uid)
        if uid == self.bot_id:
            self._tell_thread("THREAD_CREATE", self.channels[thread])
        self._tell_members(self.channels[thread], added=[uid])

    async def change_thread(self, thread: str, **fields: Any) -> None:
        """As a moderator: ``archived``, ``locked``, ``name``, ``auto_archive_duration``."""
        rules.check_thread_fields(fields)
        self._change_thread(self.channels[thread], fields, by=self.alice)

    async def delete_channel(self, channel: str) -> None:
        """Delete a thread or a channel."""
        self._delete_place(self.channels[channel])

    # ------------------------------------------------------------------ guilds and permissions
    def deny(self, channel: str, *names: str, user: str | None = None, role: str | None = None) -> None:
        """Take permissions in a channel from the bot (or another user, or a role), by an overwrite."""
        self._overwrite(channel, names, (), role or user or self.bot_id, role is not None)

    def allow(self, channel: str, *names: str, user: str | None = None, role: str | None = None) -> None:
        """Give permissions in a channel to the bot (or another user, or a role), by an overwrite."""
        self._overwrite(channel, (), names, role or user or self.bot_id, role is not None)

    def _overwrite(self, cid: str, denied: Iterable[str], allowed: Iterable[str], target: str, is_role: bool) -> None:
        """docs.discord.com/developers/resources/channel#overwrite-object."""
        channel = self.channels[cid]
        if channel["type"] in THREADS or channel["type"] == DM:
            raise LookupError("permissions are set in the parent channel")
        listed = channel["permission_overwrites"]
        own = next((each for each in listed if each["id"] == target), None)
        if own is None:
            own = {"id": target, "type": 0 if is_role else 1, "allow": "0", "deny": "0"}
            listed.append(own)
        deny, allow = permissions.mask(*denied), permissions.mask(*allowed)
        own["deny"] = str(int(own["deny"]) & ~allow | deny)
        own["allow"] = str(int(own["allow"]) & ~deny | allow)
        self._dispatch("CHANNEL_UPDATE", lambda s: channel, GUILDS, guild=channel["guild_id"])

    def set_role(self, role: str, *, permissions_: int | None = None, mentionable: bool | None = None) -> None:
        """Change a role's permissions or whether anybody may mention it."""
        guild = next(g for g in self.guilds.values() if role in g.roles)
        if permissions_ is not None:
            guild.roles[role]["permissions"] = str(permissions_)
        if mentionable is not None:
            guild.roles[role]["mentionable"] = mentionable
        body = {"guild_id": guild.id, "role": guild.roles[role]}
        self._dispatch("GUILD_ROLE_UPDATE", lambda s: body, GUILDS, guild=guild.id)

    def add_role(
        self, name: str, *, guild: str | None = None, members: Iterable[str] = (), mentionable: bool = False
    ) -> str:
        """A new role, with its members; its id."""
        home = self.guilds[guild or self.guild_id]
        role = self._role(self.snowflake(), name, 0, mentionable=mentionable)
        home.roles[role["id"]] = role
        body = {"guild_id": home.id, "role": role}
        self._dispatch("GUILD_ROLE_CREATE", lambda s: body, GUILDS, guild=home.id)
        for uid in members:
            home.members[uid].add(role["id"])
            changed = self._member(uid, home.id) | {"guild_id": home.id}
            self._dispatch("GUILD_MEMBER_UPDATE", lambda s, c=changed: c, MEMBERS, guild=home.id)  # type: ignore[misc]
        return str(role["id"])

    async def invite_bot(self, guild: str) -> None:
        """The bot joins a guild, for the first time or again."""
        self.guilds[guild].bot_in = True
        self._dispatch("GUILD_CREATE", lambda s: self._guild_create(guild, s.intents), GUILDS, guild=guild)

    async def kick_bot(self, guild: str | None = None) -> None:
        """Remove the bot from a guild: it hears nothing more and is refused with 50001."""
        gid = guild or self.guild_id
        self.guilds[gid].bot_in = False
        self._dispatch("GUILD_DELETE", lambda s: {"id": gid}, GUILDS, guild=gid)

    async def fail_guild(self, guild: str | None = None) -> None:
        """A guild becomes unavailable, as in an outage: GUILD_DELETE with ``unavailable``."""
        gid = guild or self.guild_id
        self._dispatch("GUILD_DELETE", lambda s: {"id": gid, "unavailable": True}, GUILDS, guild=gid)

    async def restore_guild(self, guild: str | None = None) -> None:
        """The outage is over: GUILD_CREATE, as at the beginning of a session."""
        gid = guild or self.guild_id
        self._dispatch("GUILD_CREATE", lambda s: self._guild_create(gid, s.intents), GUILDS, guild=gid)

    def fast_forward(self, seconds: float) -> None:
        """Let time pass at once: tokens, buckets, nonces, sessions and addresses grow older."""
        self.clock.advance(seconds)
        self._notify()
