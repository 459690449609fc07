"""The guild's state, and what a test sees and sets up."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from tests.servers.discord.model import (
    ALL_PERMISSIONS,
    DM,
    EPOCH_MS,
    LOADING,
    MEMBERS,
    MESSAGE_CONTENT,
    PUBLIC_THREAD,
    TEXT,
    ApiError,
    Call,
    Fault,
    Interaction,
    Json,
    Session,
    _invalid,
)
from tests.servers.discord.rules import _check


def _now() -> str:
    return datetime.now(UTC).isoformat()


class World:
    """An in-memory guild with one bot application."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "fake.discord.token",
        heartbeat_ms: int = 41_250,
        interaction_deadline: float = 3.0,
        token_ttl: float = 900.0,
        bucket: tuple[int, float] = (50, 1.0),
        privileged: int = MEMBERS | MESSAGE_CONTENT,
    ) -> None:
        self.host, self.port, self.token = host, port, token
        self.heartbeat_ms, self.interaction_deadline, self.token_ttl = heartbeat_ms, interaction_deadline, token_ttl
        self.bucket = bucket  # (limit, window in s) of each route; Discord's message route is about (5, 5.0)
        self.privileged = privileged  # privileged intents enabled in the portal
        self._count = itertools.count()
        self._changed = asyncio.Condition()
        self.users: dict[str, Json] = {}
        self.channels: dict[str, Json] = {}
        self._messages: dict[str, dict[str, Json]] = {}
        self.blobs: dict[str, bytes] = {}
        self.commands: dict[str, list[Json]] = {"global": []}
        self.interactions: dict[str, Interaction] = {}
        self.sessions: dict[str, Session] = {}
        self.reactions: set[tuple[str, str, str]] = set()
        self.typing: list[str] = []
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.violations: list[str] = []
        self._windows: dict[str, deque[float]] = defaultdict(deque)
        self._runner: web.AppRunner | None = None
        self.app_id = self.bot_id = self.add_user("hermod", bot=True)
        self.alice, self.bob = self.add_user("alice"), self.add_user("bob")
        self.guild_id = self.snowflake()
        self.general = self.add_channel("ops")

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}/api/v10"

    @property
    def gateway_url(self) -> str:
        return f"ws://{self.host}:{self.port}/gateway"

    # ------------------------------------------------------------------ world and observation
    def snowflake(self) -> str:
        return str(((int(time.time() * 1000) - EPOCH_MS) << 22) | (next(self._count) & 0x3FFFFF))

    def add_user(self, name: str, *, bot: bool = False) -> str:
        uid = self.snowflake()
        self.users[uid] = {
            "id": uid,
            "username": name,
            "global_name": name.title(),
            "discriminator": "0",
            "avatar": None,
            "bot": bot,
            "public_flags": 0,
            "flags": 0,
        }
        return uid

    def add_channel(self, name: str, *, kind: int = TEXT, **extra: Any) -> str:
        cid = extra.pop("id", None) or self.snowflake()
        base: Json = {
            "id": cid,
            "type": kind,
            "name": name,
            "position": 0,
            "permission_overwrites": [],
            "parent_id": None,
            "nsfw": False,
            "topic": None,
            "rate_limit_per_user": 0,
            "last_message_id": None,
            "flags": 0,
        }
        if kind != DM:
            base["guild_id"] = self.guild_id
        self.channels[cid] = base | extra
        self._messages.setdefault(cid, {})
        return str(cid)

    def messages(self, channel: str) -> list[Json]:
        return sorted(self._messages[channel].values(), key=lambda m: int(m["id"]))

    def bot_messages(self, channel: str) -> list[Json]:
        return [m for m in self.messages(channel) if m["author"]["id"] == self.bot_id]

    def threads(self, parent: str | None = None) -> list[Json]:
        return [c for c in self.channels.values() if c["type"] == PUBLIC_THREAD and parent in (None, c["parent_id"])]

    def calls_to(self, pattern: str) -> list[Call]:
        return [c for c in self.calls if re.search(pattern, f"{c.method} {c.path}")]

    async def wait_until(self, predicate: Callable[[], Any], timeout: float = 5.0) -> Any:
        async def poll() -> Any:
            async with self._changed:
                while not (value := predicate()):
                    await self._changed.wait()
                return value

        return await asyncio.wait_for(poll(), timeout)

    async def wait_connected(self, timeout: float = 10.0) -> Session:
        """Wait for an identified (or resumed) gateway session."""
        found: Session = await self.wait_until(
            lambda: next((s for s in self.sessions.values() if s.ws is not None), None), timeout
        )
        return found

    def inject(self, pattern: str, **kw: Any) -> Fault:
        self.faults.append(fault := Fault(pattern, **kw))
        return fault

    # ------------------------------------------------------------------ objects
    def _member(self, uid: str) -> Json:
        return {
            "user": self.users[uid],
            "nick": None,
            "avatar": None,
            "roles": [],
            "joined_at": _now(),
            "deaf": False,
            "mute": False,
            "flags": 0,
            "pending": False,
            "premium_since": None,
            "communication_disabled_until": None,
        }

    def _guild(self) -> Json:
        everyone = {
            "id": self.guild_id,
            "name": "@everyone",
            "color": 0,
            "hoist": False,
            "position": 0,
            "managed": False,
            "mentionable": False,
            "permissions": ALL_PERMISSIONS,
            "flags": 0,
            "icon": None,
            "unicode_emoji": None,
            "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
        }
        rooms = [c for c in self.channels.values() if "guild_id" in c]
        return {
            "id": self.guild_id,
            "name": "Fake",
            "icon": None,
            "splash": None,
            "discovery_splash": None,
            "owner_id": self.alice,
            "afk_channel_id": None,
            "afk_timeout": 300,
            "verification_level": 0,
            "default_message_notifications": 1,
            "explicit_content_filter": 0,
            "roles": [everyone],
            "emojis": [],
            "stickers": [],
            "features": [],
            "mfa_level": 0,
            "application_id": None,
            "system_channel_id": None,
            "system_channel_flags": 0,
            "rules_channel_id": None,
            "vanity_url_code": None,
            "description": None,
            "banner": None,
            "premium_tier": 0,
            "preferred_locale": "en-US",
            "public_updates_channel_id": None,
            "nsfw_level": 0,
            "premium_progress_bar_enabled": False,
            "safety_alerts_channel_id": None,
            "joined_at": _now(),
            "large": False,
            "unavailable": False,
            "member_count": len(self.users),
            "voice_states": [],
            "members": [self._member(u) for u in self.users],
            "channels": [c for c in rooms if c["type"] != PUBLIC_THREAD],
            "threads": [c for c in rooms if c["type"] == PUBLIC_THREAD and not c["thread_metadata"]["archived"]],
            "presences": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
            "soundboard_sounds": [],
        }

    def _channel(self, cid: str) -> Json:
        if cid not in self.channels:
            raise ApiError(404, 10003, "Unknown Channel")
        return self.channels[cid]

    def _find(self, cid: str, mid: str) -> Json:
        found = self._messages.get(cid, {}).get(mid)
        if found is None:
            raise ApiError(404, 10008, "Unknown Message")
        return found

    def _new_message(self, cid: str, uid: str, body: Json, files: dict[str, bytes], **extra: Any) -> Json:
        channel = self._channel(cid)
        if channel.get("thread_metadata", {}).get("locked"):
            raise ApiError(400, 50083, "Thread is archived")
        _check(body, bool(files), partial=bool(extra.get("flags", 0) & LOADING))
        content = str(body.get("content") or "")
        msg: Json = {
            "id": self.snowflake(),
            "channel_id": cid,
            "author": self.users[uid],
            "content": content,
            "timestamp": _now(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": "@everyone" in content,
            "mentions": [self.users[u] for u in re.findall(r"<@!?(\d+)>", content) if u in self.users],
            "mention_roles": [],
            "attachments": [],
            "embeds": body.get("embeds", []),
            "pinned": False,
            "type": 0,
            "flags": int(body.get("flags", 0)),
            "components": body.get("components", []),
            "nonce": body.get("nonce"),
            **extra,
        }
        for name, blob in files.items():
            aid = self.snowflake()
            self.blobs[aid] = blob
            url = f"http://{self.host}:{self.port}/attachments/{aid}/{name}"
            msg["attachments"].append({"id": aid, "filename": name, "size": len(blob), "url": url, "proxy_url": url})
        if ref := body.get("message_reference"):
            target = self._messages.get(cid, {}).get(str(ref.get("message_id")))
            if target is None and ref.get("fail_if_not_exists", True):
                raise _invalid("message_reference", "MESSAGE_REFERENCE_UNKNOWN_MESSAGE", "Unknown message")
            msg |= {
                "type": 19,
                "message_reference": {"channel_id": cid, "message_id": ref.get("message_id"), "type": 0},
                "referenced_message": target,
            }
            if (
                target
                and body.get("allowed_mentions", {}).get("replied_user", True)
                and target["author"] not in msg["mentions"]
            ):
                msg["mentions"].append(target["author"])
        if "guild_id" in channel:
            msg["guild_id"] = self.guild_id
        if channel.get("thread_metadata", {}).get("archived"):
            channel["thread_metadata"]["archived"] = False  # posting unarchives
        self._messages[cid][msg["id"]] = msg
        channel["last_message_id"] = msg["id"]
        if "message_count" in channel:
            channel["message_count"] += 1
        return msg

    def _update(self, msg: Json, body: Json) -> None:
        _check(body, True, partial=True)
        msg.update({k: body[k] for k in ("content", "embeds", "components", "flags") if body.get(k) is not None})
        msg["edited_timestamp"] = _now()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
