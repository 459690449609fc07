"""Threads and forum posts: docs.discord.com/developers/topics/threads."""

from __future__ import annotations

from typing import Any

from tests.servers.discord import rules
from tests.servers.discord.messages import Messages
from tests.servers.discord.model import (
    ANNOUNCEMENT,
    ANNOUNCEMENT_THREAD,
    DM,
    FORUM,
    GUILDS,
    HAS_THREAD,
    MEDIA,
    PRIVATE_THREAD,
    PUBLIC_THREAD,
    STARTER,
    TEXT,
    THREADS,
    WRITTEN,
    ApiError,
    Json,
)
from tests.servers.discord.uploads import Upload


class Threads(Messages):
    """Threads: opened by the bot and by people, changed and deleted."""

    def _check_room(self, guild_id: str) -> None:
        """docs.discord.com/developers/topics/threads#active-archived-threads: a guild's active threads are capped."""
        active = [t for t in self.threads() if t["guild_id"] == guild_id and not t["thread_metadata"]["archived"]]
        if len(active) >= self.guilds[guild_id].max_active_threads:
            raise ApiError(400, 160006, "Maximum number of active threads reached")

    def _check_thread(self, parent: Json, body: Json, permission: str) -> None:
        """What every way to open a thread checks, for the bot."""
        if parent["type"] == DM:
            raise ApiError(400, 50003, "Cannot execute action on a DM channel")
        self._need(parent, permission)
        rules.check_thread(body)
        if body.get("rate_limit_per_user") is not None:
            self._need(parent, "MANAGE_THREADS")  # 0 needs it as well: github.com/discord/discord-api-docs/issues/5573
        self._check_room(parent["guild_id"])

    def _thread_from_message(self, cid: str, mid: str, body: Json) -> Json:
        """docs.discord.com/developers/resources/channel#start-thread-from-message."""
        parent = self._channel(cid)
        if parent["type"] not in (TEXT, ANNOUNCEMENT, DM):
            raise ApiError(400, 50024, "Cannot execute action on this channel type")
        self._need(parent)
        origin = self._public(cid, mid)
        self._check_thread(parent, body, "CREATE_PUBLIC_THREADS")
        if origin["type"] not in WRITTEN:
            raise ApiError(400, 50068, "Invalid message type")
        if mid in self.channels:
            raise ApiError(400, 160004, "A thread has already been created for this message")
        return self._open(parent, body, self.bot_id, origin=origin)

    def _thread_alone(self, cid: str, body: Json, uploads: list[Upload]) -> Json:
        """docs.discord.com/developers/resources/channel#start-thread-without-message, and the next section."""
        parent = self._channel(cid)
        if parent["type"] in (FORUM, MEDIA):
            return self._post_in_forum(parent, body, uploads)
        kind = body.get("type", PRIVATE_THREAD)
        if parent["type"] not in (TEXT, ANNOUNCEMENT, DM) or kind not in THREADS:
            raise ApiError(400, 50024, "Cannot execute action on this channel type")
        private = kind == PRIVATE_THREAD
        self._check_thread(parent, body, "CREATE_PRIVATE_THREADS" if private else "CREATE_PUBLIC_THREADS")
        if private and parent["type"] != TEXT:
            raise ApiError(400, 50024, "Cannot execute action on this channel type")
        return self._open(parent, body, self.bot_id, kind=kind)

    def _post_in_forum(self, parent: Json, body: Json, uploads: list[Upload]) -> Json:
        self._check_thread(parent, body, "SEND_MESSAGES")
        message = body.get("message") or {}
        rules.check_message(message)
        self._check_uploads(parent, uploads)
        known = {tag["id"] for tag in parent.get("available_tags", [])}
        tags = [str(tag) for tag in body.get("applied_tags") or []]
        if not known >= set(tags) or (parent["flags"] & 1 << 4 and not tags):
            raise ApiError(400, 40067, "A tag is required to create a forum post in this channel")
        if not (message.get("content") or message.get("embeds") or message.get("components") or uploads):
            raise ApiError(400, 50006, "Cannot send an empty message")  # before the thread stands
        thread = self._open(parent, body, self.bot_id, applied_tags=tags)
        starter = self._store(thread["id"], self.bot_id, message, uploads, via="post", id=thread["id"])
        self._tell("MESSAGE_CREATE", starter)
        return thread | {"message": self._wire(starter)}

    def _open(
        self, parent: Json, body: Json, owner: str, *, origin: Json | None = None, kind: int = 0, **extra: Any
    ) -> Json:
        """Make a thread and tell of it; ``origin`` gives it its id."""
        kind = kind or (ANNOUNCEMENT_THREAD if parent["type"] == ANNOUNCEMENT else PUBLIC_THREAD)
        meta = {
            "archived": False, "locked": False, "archive_timestamp": self.now(), "create_timestamp": self.now(),
            "auto_archive_duration": int(body.get("auto_archive_duration") or 1440),
        } | ({"invitable": bool(body.get("invitable", True))} if kind == PRIVATE_THREAD else {})  # fmt: skip
        thread = self._new_channel(
            str(body["name"]).strip(), kind, parent["guild_id"], id=origin["id"] if origin else None,
            parent_id=parent["id"], owner_id=owner, message_count=0, member_count=1, total_message_sent=0,
            rate_limit_per_user=int(body.get("rate_limit_per_user") or 0), thread_metadata=meta, **extra,
        )  # fmt: skip
        self.thread_members[thread["id"]] = {owner}
        self._tell_thread("THREAD_CREATE", thread, newly_created=True)
        if owner == self.bot_id:
            self._tell_members(thread, added=[owner])
        if origin is not None:
            origin["flags"] |= HAS_THREAD
            origin["thread"] = thread
            self._keep_starter(thread, origin, owner)
            self._tell("MESSAGE_UPDATE", origin)
        return self._channel_json(thread)

    def _keep_starter(self, thread: Json, origin: Json, owner: str) -> None:
        """The thread's first message, which only refers to the one in the parent: threads#new-message-types.

        UNDOCUMENTED: its id and author, and whether an event tells of it (here none does; history has it).
        """
        place = {
            "type": 0,
            "channel_id": origin["channel_id"],
            "message_id": origin["id"],
            "guild_id": thread["guild_id"],
        }
        mid = self.snowflake()
        self._messages[thread["id"]][mid] = {
            "id": mid, "channel_id": thread["id"], "author": self.users[owner], "content": "", "timestamp": self.now(),
            "edited_timestamp": None, "tts": False, "mention_everyone": False, "mentions": [], "mention_roles": [],
            "attachments": [], "embeds": [], "pinned": False, "type": STARTER, "flags": 0, "components": [],
            "message_reference": place, "referenced_message": origin,
        }  # fmt: skip

    def _tell_members(self, thread: Json, *, added: list[str] = (), removed: list[str] = ()) -> None:  # type: ignore[assignment]
        """docs.discord.com/developers/events/gateway-events#thread-members-update."""
        body = {
            "id": thread["id"], "guild_id": thread["guild_id"], "member_count": len(self.thread_members[thread["id"]]),
            "added_members": [self._thread_member(thread["id"], uid) for uid in added],
            "removed_member_ids": list(removed),
        }  # fmt: skip
        self._dispatch("THREAD_MEMBERS_UPDATE", lambda s: body, GUILDS, guild=thread["guild_id"])

    # ------------------------------------------------------------------ changing and deleting
    def _change_thread(self, thread: Json, body: Json, *, by: str) -> Json:
        """Apply checked fields, as people and the bot do."""
        meta = thread["thread_metadata"]
        for key in ("archived", "locked", "auto_archive_duration", "invitable"):
            if key in body:
                meta[key] = body[key]
        if {"archived", "auto_archive_duration"} & set(body):
            meta["archive_timestamp"] = self.now()
        for key in ("name", "rate_limit_per_user", "applied_tags"):
            if key in body:
                thread[key] = body[key]
        self._tell_thread("THREAD_UPDATE", thread)
        return thread

    def _change_as_bot(self, cid: str, body: Json) -> Json:
        """docs.discord.com/developers/resources/channel#modify-channel.

        Threads: docs.discord.com/developers/topics/threads#editing-deleting-threads.
        """
        channel = self._channel(cid)
        self._need(channel)
        if "thread_metadata" not in channel:
            self._need(channel, "MANAGE_CHANNELS")
            channel.update({k: body[k] for k in ("name", "topic", "rate_limit_per_user") if k in body})
            self._dispatch("CHANNEL_UPDATE", lambda s: channel, GUILDS, guild=channel["guild_id"])
            return channel
        rules.check_thread_fields(body)
        meta = channel["thread_metadata"]
        moderates = self.allows(cid, "MANAGE_THREADS")
        owner = channel["owner_id"] == self.bot_id
        member = self.bot_id in self.thread_members.get(cid, ())
        opening = body.get("archived") is False and set(body) == {"archived"} and not meta["locked"]
        if not moderates and ({"locked", "rate_limit_per_user"} & set(body) or not (owner or (opening and member))):
            raise ApiError(403, 50013, "Missing Permissions")
        if meta["archived"] and body.get("archived") is not False:
            raise ApiError(400, 50083, "Thread is archived")  # github.com/discord/discord-api-docs/issues/6928
        return self._change_thread(channel, body, by=self.bot_id)

    def _delete_place(self, channel: Json) -> None:
        """Take away a thread or a channel, with the threads in it."""
        for thread in [t for t in self.threads(channel["id"]) if channel["type"] not in THREADS]:
            self._delete_place(thread)
        cid = channel["id"]
        seen = self.allows(cid, "VIEW_CHANNEL")
        del self.channels[cid], self._messages[cid]
        self.deleted.add(cid)
        if not seen:
            return
        if channel["type"] in THREADS:
            gone = {key: channel[key] for key in ("id", "guild_id", "parent_id", "type")}
            self._dispatch("THREAD_DELETE", lambda s: gone, GUILDS, guild=channel["guild_id"])
        else:
            self._dispatch("CHANNEL_DELETE", lambda s: channel, GUILDS, guild=channel.get("guild_id"))
