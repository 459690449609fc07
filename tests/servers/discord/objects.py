"""Guilds, members, users and messages as they go over the wire."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Any

from tests.servers.discord import permissions
from tests.servers.discord.model import DM, EPHEMERAL, MESSAGE_CONTENT, PRESENCES, THREADS, Json
from tests.servers.discord.world import World

#: what the message content intent hides: docs.discord.com/developers/events/gateway#message-content-intent
HIDDEN: Json = {"content": "", "embeds": [], "attachments": [], "components": []}


class Objects(World):
    """The world, written as JSON."""

    def _member(self, uid: str, gid: str) -> Json:
        guild = self.guilds[gid]
        return {
            "user": self.users[uid], "nick": None, "avatar": None, "banner": None,
            "roles": sorted(guild.members.get(uid, ())), "joined_at": "2024-01-01T00:00:00+00:00", "deaf": False,
            "mute": False, "flags": 0, "pending": False, "premium_since": None,
            "communication_disabled_until": None,
        }  # fmt: skip

    def _thread_member(self, tid: str, uid: str) -> Json:
        return {"id": tid, "user_id": uid, "join_timestamp": self.now(), "flags": 0}

    def _channel_json(self, channel: Json) -> Json:
        """A channel for the bot, with its own thread member where it has joined."""
        joined = channel["type"] in THREADS and self.bot_id in self.thread_members.get(channel["id"], ())
        return channel | ({"member": self._thread_member(channel["id"], self.bot_id)} if joined else {})

    def _guild_json(self, gid: str) -> Json:
        guild = self.guilds[gid]
        return {
            "id": gid, "name": guild.name, "icon": None, "splash": None, "discovery_splash": None,
            "owner_id": guild.owner, "afk_channel_id": None, "afk_timeout": 300, "verification_level": 0,
            "default_message_notifications": 1, "explicit_content_filter": 0, "roles": list(guild.roles.values()),
            "emojis": guild.emojis, "stickers": [], "features": [], "mfa_level": 0, "application_id": None,
            "system_channel_id": None, "system_channel_flags": 0, "rules_channel_id": None, "vanity_url_code": None,
            "description": None, "banner": None, "premium_tier": guild.premium_tier, "preferred_locale": "en-US",
            "public_updates_channel_id": None, "nsfw_level": 0, "premium_progress_bar_enabled": False,
            "safety_alerts_channel_id": None,
        }  # fmt: skip

    def _guild_create(self, gid: str, intents: int) -> Json:
        """docs.discord.com/developers/events/gateway-events#guild-create: only the bot without GUILD_PRESENCES."""
        guild = self.guilds[gid]
        seen = [c for c in self.channels.values() if c.get("guild_id") == gid and self.allows(c["id"], "VIEW_CHANNEL")]
        rooms = [c for c in self.channels.values() if c.get("guild_id") == gid and c["type"] not in THREADS]
        active = [c for c in seen if c["type"] in THREADS and not c["thread_metadata"]["archived"]]
        members = guild.members if intents & PRESENCES else [self.bot_id]
        return self._guild_json(gid) | {
            "joined_at": "2024-01-01T00:00:00+00:00", "large": False, "unavailable": False,
            "member_count": len(guild.members), "voice_states": [],
            "members": [self._member(uid, gid) for uid in members], "channels": rooms,
            "threads": [self._channel_json(c) for c in active], "presences": [], "stage_instances": [],
            "guild_scheduled_events": [], "soundboard_sounds": [],
        }  # fmt: skip

    # ------------------------------------------------------------------ messages
    def attachment_url(self, channel: str, attachment: str, name: str) -> str:
        """A signed address: docs.discord.com/developers/reference#signed-attachment-cdn-urls."""
        issued = int(self.clock.wall())
        until = issued + int(self.cdn_ttl)
        sign = self.sign_attachment(attachment, f"{until:x}", f"{issued:x}")
        place = f"http://{self.host}:{self.port}/attachments/{channel}/{attachment}/{name}"
        return f"{place}?ex={until:x}&is={issued:x}&hm={sign}&"

    def sign_attachment(self, attachment: str, until: str, issued: str) -> str:
        return hmac.new(b"fake cdn", f"{attachment}/{until}/{issued}".encode(), hashlib.sha256).hexdigest()

    def _wire(self, msg: Json, *, content: bool = True, stored: bool = False) -> Json:
        """A message with addresses that work now.

        Args:
            msg: as kept here.
            content: the reader has the message content intent; else what people wrote is hidden, but for the
                exceptions.
            stored: read back later: then the nonce is missing (github.com/Rapptz/discord.py/issues/2451), unless
                ``nonce_in_history``. The pages say nothing about it.
        """
        out = {k: v for k, v in msg.items() if not k.startswith("_")}
        files = [
            each
            | dict.fromkeys(("url", "proxy_url"), self.attachment_url(msg["channel_id"], each["id"], each["filename"]))
            for each in msg["attachments"]
        ]
        out["attachments"] = files
        out["reactions"] = self._reactions_of(msg["id"])
        if stored and not self.nonce_in_history:
            out.pop("nonce", None)
        if isinstance(target := msg.get("referenced_message"), dict):
            out["referenced_message"] = self._wire(target, content=content, stored=True)
        if "thread" in out:
            out["thread"] = self.channels.get(msg["id"], out["thread"])
        own = msg["author"]["id"] == self.bot_id or self.channels.get(msg["channel_id"], {}).get("type") == DM
        if not content and not own and not any(user["id"] == self.bot_id for user in msg["mentions"]):
            out |= HIDDEN
        return out

    def _reactions_of(self, mid: str) -> list[Json]:
        by_emoji: dict[str, set[str]] = {}
        for emoji, user in sorted((emoji, user) for message, emoji, user in self.reactions if message == mid):
            by_emoji.setdefault(emoji, set()).add(user)
        return [
            {
                "emoji": emoji_json(emoji), "count": len(users), "me": self.bot_id in users, "me_burst": False,
                "burst_colors": [], "count_details": {"burst": 0, "normal": len(users)},
            }
            for emoji, users in by_emoji.items()
        ]  # fmt: skip

    def _event_json(self, msg: Json, intents: int) -> Json:
        """docs.discord.com/developers/events/gateway-events#message-create, with its extra fields."""
        out = self._wire(msg, content=bool(intents & MESSAGE_CONTENT))
        channel = self.channels.get(msg["channel_id"], {})
        out["channel_type"] = channel.get("type", 0)
        if "guild_id" in channel and not msg["flags"] & EPHEMERAL:
            out["guild_id"] = gid = channel["guild_id"]
            if not msg.get("webhook_id"):
                whole = self._member(msg["author"]["id"], gid)
                out["member"] = {k: v for k, v in whole.items() if k != "user"}
        return out

    def _app_permissions(self, cid: str) -> str:
        bits = self.permissions_of(self.bot_id, cid)
        if self.channels[cid]["type"] == DM:
            bits |= permissions.mask("ATTACH_FILES", "EMBED_LINKS", "MENTION_EVERYONE", "USE_EXTERNAL_EMOJIS")
        return str(bits)


def emoji_json(emoji: str) -> Json:
    """A reaction's emoji: itself, or ``name:id`` for a guild's own."""
    name, _, eid = emoji.partition(":")
    custom: dict[str, Any] = {"id": eid, "name": name} if eid else {"id": None, "name": emoji}
    return custom


def is_emoji(emoji: str) -> bool:
    """Whether a text can be a unicode emoji: no letters, and nothing plain (UNDOCUMENTED how Discord decides)."""
    return bool(emoji) and not re.search(r"[A-Za-z\s_]", emoji) and any(ord(char) > 0xFF for char in emoji)
