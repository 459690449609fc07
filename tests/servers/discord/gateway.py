"""The gateway: sessions, events, resume. docs.discord.com/developers/events/gateway and .../events/gateway-events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import zlib
from collections.abc import Callable

from aiohttp import WSMsgType, web

from tests.servers.discord.model import (
    GUILDS,
    KNOWN_INTENTS,
    MEMBERS,
    PRIVILEGED,
    THREADS,
    Connection,
    Json,
    Session,
)
from tests.servers.discord.objects import Objects

DAY_S = 86_400.0
RECEIVE_LIMIT, RECEIVE_SPAN_S, PAYLOAD_MAX = 120, 60.0, 4096
VERSIONS = ("9", "10")

#: docs.discord.com/developers/topics/opcodes-and-status-codes#gateway-gateway-close-event-codes
REASONS = {
    4000: "Unknown error.",
    4001: "Unknown opcode.",
    4002: "Error while decoding payload.",
    4003: "Not authenticated.",
    4004: "Authentication failed.",
    4005: "Already authenticated.",
    4007: "Invalid seq.",
    4008: "Rate limited.",
    4009: "Session timed out.",
    4010: "Invalid shard.",
    4011: "Sharding required.",
    4012: "Invalid API version.",
    4013: "Invalid intent(s).",
    4014: "Disallowed intent(s).",
}
#: after these, and after the client's own 1000 and 1001, nothing can be resumed
ENDS_SESSION = frozenset({1000, 1001, 4004, 4007, 4009, 4010, 4011, 4012, 4013, 4014})


class Gateway(Objects):
    """Sessions of the bot, one or several a shard; each of a shard's sessions gets all of its events."""

    ack_drops = 0  # so many heartbeats stay without an answer

    # ------------------------------------------------------------------ looking and faults
    def live(self, shard: int | None = None) -> list[Session]:
        """The connected sessions, of one shard or of all."""
        return [s for s in self.sessions.values() if s.connection and shard in (None, s.shard[0])]

    @property
    def open_sessions(self) -> int:
        """How many sessions are connected."""
        return len(self.live())

    async def wait_connected(self, timeout: float = 30.0, *, sessions: int = 1) -> Session:
        """Wait until so many sessions are connected; the newest."""
        await self.wait_until(lambda: len(self.live()) >= sessions, timeout)
        return self.live()[-1]

    async def reconnect(self, *, shard: int | None = None) -> None:
        """Op 7: the client should drop this connection and resume."""
        for s in self.live(shard):
            self._push(s.connection, {"op": 7, "d": None})

    async def invalidate(self, *, resumable: bool = False, shard: int | None = None) -> None:
        """Op 9: the session may be resumed, or is gone and the client must identify again."""
        for s in self.live(shard):
            if not resumable:
                self.sessions.pop(s.id)
            self._push(s.connection, {"op": 9, "d": resumable})

    async def kill_sockets(self, *, shard: int | None = None) -> None:
        """Cut the TCP connections without a close frame; missed events are replayed on resume."""
        for s in self.live(shard):
            connection = s.connection
            self._lose(s)
            if connection and connection.ws._req is not None and connection.ws._req.transport is not None:
                connection.ws._req.transport.abort()

    async def hang_up(self, code: int, *, shard: int | None = None) -> None:
        """Close the connections with a close code."""
        for s in self.live(shard):
            self._close(s.connection, code)
            if code in ENDS_SESSION:
                self.sessions.pop(s.id)

    def drop_acks(self, times: int = 1_000_000) -> None:
        """Leave so many heartbeats unanswered, as a connection that is dead but open does."""
        self.ack_drops = times

    def silence(self, silent: bool = True, *, shard: int | None = None) -> None:
        """Keep events from the connected sessions; they come with the next resume."""
        for s in self.live(shard):
            s.silent = silent

    def hold_events(self, *, shard: int | None = None) -> None:
        """Keep back events until `release_events`."""
        for s in self.live(shard):
            s.held = []

    def release_events(self, *, backwards: bool = False) -> None:
        """Deliver what was kept back; ``backwards``: the newest first."""
        for s in self.sessions.values():
            held, s.held = s.held or [], None
            for event, data in reversed(held) if backwards else held:
                self._deliver(s, event, data)

    def emit(self, event: str, data: Json, *, guild: str | None = None) -> None:
        """Send a raw event to the sessions of a guild's shard, or of shard 0."""
        self._dispatch(event, lambda s: data, 0, guild=guild)

    # ------------------------------------------------------------------ events
    def _dispatch(self, event: str, build: Callable[[Session], Json], intent: int, *, guild: str | None) -> None:
        """Send an event to every session that may see it; ``build`` makes its data for one session."""
        for s in list(self.sessions.values()):
            if s.sees(guild) and (not intent or s.intents & intent):
                for _ in range(self.copies):
                    if s.held is not None:
                        s.held.append((event, json.loads(json.dumps(build(s)))))
                    else:
                        self._deliver(s, event, build(s))
        self._notify()

    def _deliver(self, s: Session, event: str, data: Json) -> None:
        s.seq += 1
        frame = json.dumps({"op": 0, "t": event, "s": s.seq, "d": data})
        s.log.append(json.loads(frame))
        if s.connection and not s.silent:
            s.connection.push(frame)

    def _announce_channel(self, channel: Json) -> None:
        if channel["type"] in THREADS or "guild_id" not in channel:
            return
        self._dispatch("CHANNEL_CREATE", lambda s: channel, GUILDS, guild=channel["guild_id"])

    @staticmethod
    def _push(connection: Connection | None, frame: Json) -> None:
        if connection is not None:
            connection.push(json.dumps({"t": None, "s": None} | frame))

    @staticmethod
    def _close(connection: Connection | None, code: int) -> None:
        if connection is not None:
            connection.closing = True
            connection.push((code, REASONS.get(code, "")))

    def _lose(self, s: Session) -> None:
        s.connection, s.lost_at = None, self.clock.now()

    # ------------------------------------------------------------------ one connection
    async def _gateway(self, request: web.Request) -> web.WebSocketResponse:
        """docs.discord.com/developers/events/gateway#connecting: version, encoding, compression, Hello.

        ``zstd-stream`` is answered without compression, which clients take (UNDOCUMENTED).
        """
        ws = web.WebSocketResponse(max_msg_size=4 * PAYLOAD_MAX)
        await ws.prepare(request)
        deflate = zlib.compressobj() if request.query.get("compress") == "zlib-stream" else None
        connection = Connection(ws, deflate, self.clock.now())
        writer = asyncio.create_task(self._write(connection))
        if request.query.get("v", "10") not in VERSIONS:
            self._close(connection, 4012)
        elif request.query.get("encoding", "json") != "json":
            self._close(connection, 4002)
        else:
            self._push(connection, {"op": 10, "d": {"heartbeat_interval": self.heartbeat_ms, "_trace": []}})
        try:
            await self._read(connection)
        finally:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await writer
            if (s := self._session_of(connection)) is not None:
                self._lose(s)
                if not connection.closing and ws.close_code in (1000, 1001):
                    self.sessions.pop(s.id)  # gateway#initiating-a-disconnect
            self._notify()
        return ws

    def _session_of(self, connection: Connection) -> Session | None:
        return next((s for s in self.sessions.values() if s.connection is connection), None)

    async def _write(self, connection: Connection) -> None:
        """Send what is pushed, and close when no heartbeat came (gateway#sending-heartbeats)."""
        patience = self.heartbeat_ms / 1000 * 1.5
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(connection.wake.wait(), patience)
            if self.clock.now() - connection.last_beat > patience:
                self._close(connection, 4000)  # UNDOCUMENTED: the code; the session can be resumed
            connection.wake.clear()
            while connection.frames:
                frame = connection.frames.popleft()
                if isinstance(frame, tuple):
                    await connection.ws.close(code=frame[0], message=frame[1].encode())
                    return
                if connection.deflate is None:
                    await connection.ws.send_str(frame)
                else:
                    packed = connection.deflate.compress(frame.encode())
                    await connection.ws.send_bytes(packed + connection.deflate.flush(zlib.Z_SYNC_FLUSH))

    async def _read(self, connection: Connection) -> None:
        async for msg in connection.ws:
            if msg.type is not WSMsgType.TEXT:
                continue
            now = self.clock.now()
            connection.received.append(now)
            while now - connection.received[0] >= RECEIVE_SPAN_S:
                connection.received.popleft()
            try:
                if len(msg.data.encode()) > PAYLOAD_MAX:
                    raise ValueError
                frame = json.loads(msg.data)
                op, data = frame["op"], frame.get("d")
            except (ValueError, KeyError, TypeError):
                self._close(connection, 4002)
                continue
            if len(connection.received) > RECEIVE_LIMIT:
                self.violations.append("gateway: more than 120 events sent within 60 seconds")
                self._close(connection, 4008)
            elif not connection.closing:
                self._take(connection, op, data)
            self._notify()

    def _take(self, connection: Connection, op: int, data: Json) -> None:
        s = self._session_of(connection)
        match op:
            case 1:
                self._heartbeat(connection, s)
            case 2 | 6 if s is not None:
                self._close(connection, 4005)
            case 2:
                self._identify(connection, data)
            case 6:
                self._resume(connection, data)
            case _ if s is None:
                self._close(connection, 4003)
            case 8:
                self._request_members(s, data)
            case 3 | 4 | 31 | 43:
                pass
            case _:
                self._close(connection, 4001)

    def _heartbeat(self, connection: Connection, s: Session | None) -> None:
        connection.last_beat = self.clock.now()
        connection.heartbeats += 1
        if s is not None:
            s.heartbeats += 1
        if self.ack_drops > 0:
            self.ack_drops -= 1
        else:
            self._push(connection, {"op": 11, "d": None})

    # ------------------------------------------------------------------ starting and resuming sessions
    @property
    def identifies_left(self) -> int:
        """docs.discord.com/developers/events/gateway#session-start-limit-object: ``remaining`` of the last 24 hours."""
        recent = [at for at, _ in self.identifies if self.clock.now() - at < DAY_S]
        return max(0, self.identify_limit - len(recent))

    def _refusal(self, data: Json) -> int:
        """The close code for an identify that cannot be served, or 0."""
        if data.get("token") != self.token:
            return 4004
        shard = data.get("shard") or [0, 1]
        whole = isinstance(shard, list) and len(shard) == 2 and all(isinstance(n, int) for n in shard)
        if not whole or not 0 <= shard[0] < shard[1]:
            return 4010
        probe = Session("", 0, (shard[0], shard[1]), None)
        if sum(1 for g in self.guilds.values() if g.bot_in and probe.sees(g.id)) > self.max_guilds_per_shard:
            return 4011
        intents = data.get("intents")
        if not isinstance(intents, int) or intents & ~KNOWN_INTENTS:
            return 4013
        return 4014 if intents & PRIVILEGED & ~self.privileged else 0

    def _identify(self, connection: Connection, data: Json) -> None:
        """docs.discord.com/developers/events/gateway#identifying."""
        if code := self._refusal(data):
            self._close(connection, code)
            return
        now, shard = self.clock.now(), tuple(data.get("shard") or (0, 1))
        if self.identifies_left == 0:
            self._reset_token()
            return
        last = max((at for at, key in self.identifies if key == 0), default=float("-inf"))
        self.identifies.append((now, 0))
        if now - last < self.identify_window:  # max_concurrency 1: gateway#rate-limiting
            self._push(connection, {"op": 9, "d": False})
            return
        s = Session(secrets.token_hex(16), data["intents"], (shard[0], shard[1]), connection)
        self.sessions[s.id] = s
        mine = [g for g in self.guilds.values() if g.bot_in and s.sees(g.id)]
        ready: Json = {
            "v": 10, "user": self.users[self.bot_id] | {"verified": True, "mfa_enabled": False, "email": None},
            "guilds": [{"id": g.id, "unavailable": True} for g in mine], "session_id": s.id, "session_type": "normal",
            "resume_gateway_url": self.gateway_url, "shard": list(shard), "private_channels": [],
            "application": {"id": self.app_id, "flags": self.app_flags},
        }  # fmt: skip
        self._deliver(s, "READY", ready)
        for guild in mine:
            if s.intents & GUILDS:
                self._deliver(s, "GUILD_CREATE", self._guild_create(guild.id, s.intents))

    def _reset_token(self) -> None:
        """What happens above the limit of identifies: every session ends and the token is worth nothing any more."""
        self.violations.append(f"more than {self.identify_limit} identifies within 24 hours: the token was reset")
        self.token = secrets.token_urlsafe(24)
        for s in list(self.sessions.values()):
            self._close(s.connection, 4004)
        self.sessions.clear()

    @property
    def app_flags(self) -> int:
        """docs.discord.com/developers/resources/application#application-object-application-flags, the LIMITED ones."""
        return sum(flag for intent, flag in ((MEMBERS, 1 << 15), (1 << 15, 1 << 19), (1 << 8, 1 << 13))
                   if self.privileged & intent)  # fmt: skip

    def _resume(self, connection: Connection, data: Json) -> None:
        """docs.discord.com/developers/events/gateway#resuming."""
        if data.get("token") != self.token:
            self._close(connection, 4004)
            return
        s = self.sessions.get(str(data.get("session_id")))
        if s is None or (s.connection is None and self.clock.now() - s.lost_at > self.resume_window):
            if s is not None:
                self.sessions.pop(s.id)
            self._push(connection, {"op": 9, "d": False})
            return
        seq = data.get("seq")
        if not isinstance(seq, int) or seq > s.seq:
            self.sessions.pop(s.id)
            self._close(connection, 4007)
            return
        self._close(s.connection, 4000)  # UNDOCUMENTED: what becomes of a connection that is still open
        s.connection, s.silent = connection, False
        s.resumes += 1
        for frame in s.log:
            if frame["s"] > seq:
                connection.push(json.dumps(frame))
        self._deliver(s, "RESUMED", {"_trace": []})

    def _request_members(self, s: Session, data: Json) -> None:
        """docs.discord.com/developers/events/gateway-events#request-guild-members."""
        gid = str(data.get("guild_id"))
        wanted = [str(each) for each in data.get("user_ids") or []]
        if gid not in self.guilds or not s.sees(gid):
            self._close(s.connection, 4001)
            return
        if not wanted and not s.intents & MEMBERS:
            self.violations.append("gateway: the whole member list was asked for without the members intent")
            return
        known = self.guilds[gid].members
        found = [uid for uid in wanted or known if uid in known]
        chunk: Json = {
            "guild_id": gid, "members": [self._member(uid, gid) for uid in found], "chunk_index": 0, "chunk_count": 1,
            "nonce": data.get("nonce"), "presences": [], "not_found": [uid for uid in wanted if uid not in known],
        }  # fmt: skip
        self._deliver(s, "GUILD_MEMBERS_CHUNK", chunk)
