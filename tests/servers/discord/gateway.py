"""The gateway: sessions, events, resume."""

from __future__ import annotations

import contextlib
import json
import secrets
import zlib
from typing import Any

from aiohttp import WSMsgType, web

from tests.servers.discord.model import (
    DIRECT_MESSAGES,
    EPHEMERAL,
    GUILD_MESSAGES,
    GUILDS,
    HAS_THREAD,
    MEMBERS,
    MESSAGE_CONTENT,
    PUBLIC_THREAD,
    Json,
    Session,
    _invalid,
)
from tests.servers.discord.world import World, _now


class Gateway(World):
    async def reconnect(self) -> None:
        """Op 7: the client should drop this connection and resume."""
        for s in self._live():
            await self._send(s, {"op": 7, "d": None})

    async def invalidate(self, *, resumable: bool = False) -> None:
        """Op 9: the session is gone; the client must identify again."""
        for s in self._live():
            if not resumable:
                self.sessions.pop(s.id)
            await self._send(s, {"op": 9, "d": resumable})

    async def kill_sockets(self) -> None:
        """Cut the TCP connections without a close frame; missed events are replayed on resume."""
        for s in self._live():
            if s.ws is not None and s.ws._req is not None and s.ws._req.transport is not None:
                s.ws._req.transport.abort()
                s.ws = None

    # ------------------------------------------------------------------ gateway
    def _live(self) -> list[Session]:
        return [s for s in self.sessions.values() if s.ws is not None]

    async def _send(self, s: Session, frame: Json) -> None:
        if s.ws is None or s.ws.closed:
            return
        raw = json.dumps(frame)
        with contextlib.suppress(ConnectionError):
            if s.inflate is None:
                await s.ws.send_str(raw)
            else:
                await s.ws.send_bytes(s.inflate.compress(raw.encode()) + s.inflate.flush(zlib.Z_SYNC_FLUSH))

    async def _dispatch(self, event: str, data: Json, intent: int, only: Session | None = None) -> None:
        for s in [only] if only else list(self.sessions.values()):
            if intent and not s.intents & intent:
                continue
            s.seq += 1
            frame = {"op": 0, "t": event, "s": s.seq, "d": self._redact(event, data, s)}
            s.log.append(frame)
            await self._send(s, frame)
        await self._notify()

    def _redact(self, event: str, data: Json, s: Session) -> Json:
        """Without MESSAGE_CONTENT a bot sees content only of its own messages, DMs and mentions of it."""
        if event not in ("MESSAGE_CREATE", "MESSAGE_UPDATE") or s.intents & MESSAGE_CONTENT:
            return data
        if (
            data["author"]["id"] == self.bot_id
            or "guild_id" not in data
            or any(u["id"] == self.bot_id for u in data["mentions"])
        ):
            return data
        return data | {"content": "", "embeds": [], "attachments": [], "components": []}

    async def _gateway(self, request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(max_msg_size=4096 * 4)
        await ws.prepare(request)
        inflate = zlib.compressobj() if request.query.get("compress") == "zlib-stream" else None
        guest = Session("", 0, ws, inflate)
        await self._send(
            guest, {"op": 10, "s": None, "t": None, "d": {"heartbeat_interval": self.heartbeat_ms, "_trace": []}}
        )
        s: Session | None = None
        try:
            async for msg in ws:
                if msg.type is not WSMsgType.TEXT:
                    continue
                try:
                    frame = json.loads(msg.data)
                    op, d = frame["op"], frame.get("d")
                except (ValueError, KeyError, TypeError):
                    await ws.close(code=4002, message=b"Error while decoding payload")
                    break
                if op == 1:
                    (s or guest).heartbeats += 1
                    await self._send(s or guest, {"op": 11, "d": None})
                elif op == 2 and s is None:
                    s = await self._identify(ws, inflate, d)
                elif op == 6 and s is None:
                    s = await self._resume(ws, inflate, d)
                elif s is None:
                    await ws.close(code=4003, message=b"Not authenticated")
                elif op in (2, 6):
                    await ws.close(code=4005, message=b"Already authenticated")
                elif op == 8:
                    wanted = d.get("user_ids") or list(self.users)
                    await self._dispatch(
                        "GUILD_MEMBERS_CHUNK",
                        {
                            "guild_id": self.guild_id,
                            "members": [self._member(u) for u in wanted if u in self.users],
                            "chunk_index": 0,
                            "chunk_count": 1,
                            "nonce": d.get("nonce"),
                            "presences": [],
                            "not_found": [],
                        },
                        0,
                        s,
                    )
                elif op not in (3, 4):
                    await ws.close(code=4001, message=b"Unknown opcode")
        finally:
            if s is not None and s.ws is ws:
                s.ws = None
            await self._notify()
        return ws

    async def _identify(self, ws: web.WebSocketResponse, inflate: Any, d: Json) -> Session | None:
        if d.get("token") != self.token:
            await ws.close(code=4004, message=b"Authentication failed")
            return None
        intents = int(d.get("intents", 0))
        if intents & (MEMBERS | MESSAGE_CONTENT | 1 << 8) & ~(self.privileged | 1 << 8):
            await ws.close(code=4014, message=b"Disallowed intent(s)")
            return None
        s = Session(secrets.token_hex(16), intents, ws, inflate)
        await self._dispatch(
            "READY",
            {
                "v": 10,
                "user": self.users[self.bot_id] | {"verified": True, "mfa_enabled": False, "email": None},
                "guilds": [{"id": self.guild_id, "unavailable": True}],
                "session_id": s.id,
                "resume_gateway_url": self.gateway_url,
                "application": {"id": self.app_id, "flags": 0},
                "private_channels": [],
                "shard": d.get("shard") or [0, 1],
            },
            0,
            s,
        )
        self.sessions[s.id] = s
        await self._dispatch("GUILD_CREATE", self._guild(), GUILDS, s)
        return s

    async def _resume(self, ws: web.WebSocketResponse, inflate: Any, d: Json) -> Session | None:
        s = self.sessions.get(str(d.get("session_id")))
        if s is None or d.get("token") != self.token:
            await self._send(Session("", 0, ws, inflate), {"op": 9, "d": False})
            return None
        s.ws, s.inflate = ws, inflate
        for frame in [f for f in s.log if f["s"] > int(d.get("seq") or 0)]:
            await self._send(s, frame)
        await self._dispatch("RESUMED", {"_trace": []}, 0, s)
        return s

    async def _announce(self, msg: Json, event: str = "MESSAGE_CREATE") -> None:
        if msg["flags"] & EPHEMERAL:
            return await self._notify()
        guild = "guild_id" in msg
        member = {k: v for k, v in self._member(msg["author"]["id"]).items() if k != "user"}
        await self._dispatch(
            event, msg | ({"member": member} if guild else {}), GUILD_MESSAGES if guild else DIRECT_MESSAGES
        )

    async def _open_thread(self, parent: str, body: Json, origin: Json | None) -> Json:
        name = str(body.get("name", ""))
        if not 1 <= len(name) <= 100:
            raise _invalid("name", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")
        tid = self.add_channel(
            name,
            kind=PUBLIC_THREAD,
            id=origin["id"] if origin else None,
            parent_id=parent,
            owner_id=self.bot_id,
            message_count=0,
            member_count=1,
            total_message_sent=0,
            rate_limit_per_user=0,
            thread_metadata={
                "archived": False,
                "locked": False,
                "archive_timestamp": _now(),
                "auto_archive_duration": int(body.get("auto_archive_duration") or 1440),
                "create_timestamp": _now(),
            },
        )
        me = {"id": tid, "user_id": self.bot_id, "join_timestamp": _now(), "flags": 0}
        await self._dispatch("THREAD_CREATE", self.channels[tid] | {"newly_created": True, "member": me}, GUILDS)
        if origin:
            origin["flags"] |= HAS_THREAD
            origin["thread"] = self.channels[tid]
            await self._announce(origin, "MESSAGE_UPDATE")
        return self.channels[tid] | {"member": me}
