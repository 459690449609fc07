"""REST: guilds, channels, messages and threads."""

from __future__ import annotations

from aiohttp import web

from tests.servers.discord.model import DM, GUILD_MESSAGES, GUILDS, ApiError, Json, _invalid
from tests.servers.discord.routing import route
from tests.servers.discord.server import DiscordServer


@route("GET", "/users/@me")
def _me(self: DiscordServer, r: web.Request, b: Json) -> Json:
    return self.users[self.bot_id]


@route("GET", "/users/{u}")
def _user(self: DiscordServer, r: web.Request, b: Json) -> Json:
    if r.match_info["u"] not in self.users:
        raise ApiError(404, 10013, "Unknown User")
    return self.users[r.match_info["u"]]


@route("GET", "/gateway")
@route("GET", "/gateway/bot")
def _gateway_bot(self: DiscordServer, r: web.Request, b: Json) -> Json:
    return {
        "url": self.gateway_url,
        "shards": 1,
        "session_start_limit": {"total": 1000, "remaining": 999, "reset_after": 14_400_000, "max_concurrency": 1},
    }


@route("GET", "/applications/@me")
@route("GET", "/oauth2/applications/@me")
def _application(self: DiscordServer, r: web.Request, b: Json) -> Json:
    return {
        "id": self.app_id,
        "name": "hermod",
        "icon": None,
        "description": "",
        "bot_public": False,
        "bot_require_code_grant": False,
        "verify_key": "0" * 64,
        "flags": 1 << 19 | 1 << 15,
        "team": None,
        "owner": self.users[self.alice],
        "summary": "",
        "rpc_origins": [],
        "redirect_uris": [],
        "interactions_endpoint_url": None,
        "approximate_guild_count": 1,
    }


@route("POST", "/users/@me/channels")
def _open_dm(self: DiscordServer, r: web.Request, b: Json) -> Json:
    uid = str(b.get("recipient_id"))
    for c in self.channels.values():
        if c["type"] == DM and c["recipients"][0]["id"] == uid:
            return c
    return self.channels[self.add_channel("", kind=DM, recipients=[self.users[uid]])]


@route("GET", "/guilds/{g}")
def _get_guild(self: DiscordServer, r: web.Request, b: Json) -> Json:
    if r.match_info["g"] != self.guild_id:
        raise ApiError(404, 10004, "Unknown Guild")
    return self._guild()


@route("GET", "/guilds/{g}/channels")
def _guild_channels(self: DiscordServer, r: web.Request, b: Json) -> list[Json]:
    return list(self._guild()["channels"])


@route("GET", "/guilds/{g}/members/{u}")
def _get_member(self: DiscordServer, r: web.Request, b: Json) -> Json:
    if r.match_info["u"] not in self.users:
        raise ApiError(404, 10007, "Unknown Member")
    return self._member(r.match_info["u"])


@route("GET", "/guilds/{g}/threads/active")
def _active_threads(self: DiscordServer, r: web.Request, b: Json) -> Json:
    return {"threads": [t for t in self.threads() if not t["thread_metadata"]["archived"]], "members": []}


@route("GET", "/channels/{c}/threads/archived/public")
def _archived_threads(self: DiscordServer, r: web.Request, b: Json) -> Json:
    found = [t for t in self.threads(r.match_info["c"]) if t["thread_metadata"]["archived"]]
    return {"threads": found, "members": [], "has_more": False}


@route("GET", "/channels/{c}")
def _get_channel(self: DiscordServer, r: web.Request, b: Json) -> Json:
    return self._channel(r.match_info["c"])


@route("PATCH", "/channels/{c}")
async def _edit_channel(self: DiscordServer, r: web.Request, b: Json) -> Json:
    channel = self._channel(r.match_info["c"])
    meta = {k: b[k] for k in ("archived", "locked", "auto_archive_duration") if k in b}
    if "thread_metadata" in channel:
        channel["thread_metadata"].update(meta)
    channel.update({k: b[k] for k in ("name", "topic", "rate_limit_per_user") if k in b})
    await self._dispatch("THREAD_UPDATE" if "thread_metadata" in channel else "CHANNEL_UPDATE", channel, GUILDS)
    return channel


@route("GET", "/channels/{c}/messages")
def _history(self: DiscordServer, r: web.Request, b: Json) -> list[Json]:
    self._channel(r.match_info["c"])
    q, found = r.query, self.messages(r.match_info["c"])
    limit = int(q.get("limit", 50))
    if not 1 <= limit <= 100:
        raise _invalid("limit", "NUMBER_TYPE_MAX", "int value should be less than or equal to 100.")
    if "after" in q:
        return [m for m in found if int(m["id"]) > int(q["after"])][:limit][::-1]
    if "before" in q:
        found = [m for m in found if int(m["id"]) < int(q["before"])]
    return found[::-1][:limit]


@route("GET", "/channels/{c}/messages/{m}")
def _get_message(self: DiscordServer, r: web.Request, b: Json) -> Json:
    return self._find(r.match_info["c"], r.match_info["m"])


@route("POST", "/channels/{c}/messages")
async def _send_message(self: DiscordServer, r: web.Request, b: Json) -> Json:
    channel = r.match_info["c"]
    if b.get("enforce_nonce") and b.get("nonce"):
        for old in self._messages.get(channel, {}).values():
            if old["nonce"] == b["nonce"] and old["author"]["id"] == self.bot_id:
                return old
    msg = self._new_message(channel, self.bot_id, b, r["files"])
    await self._announce(msg)
    return msg


@route("PATCH", "/channels/{c}/messages/{m}")
async def _edit_message(self: DiscordServer, r: web.Request, b: Json) -> Json:
    msg = self._find(r.match_info["c"], r.match_info["m"])
    if msg["author"]["id"] != self.bot_id:
        raise ApiError(403, 50005, "Cannot edit a message authored by another user")
    self._update(msg, b)
    await self._announce(msg, "MESSAGE_UPDATE")
    return msg


@route("DELETE", "/channels/{c}/messages/{m}")
async def _delete_message(self: DiscordServer, r: web.Request, b: Json) -> None:
    msg = self._find(r.match_info["c"], r.match_info["m"])
    del self._messages[msg["channel_id"]][msg["id"]]
    await self._dispatch(
        "MESSAGE_DELETE", {k: msg[k] for k in ("id", "channel_id", "guild_id") if k in msg}, GUILD_MESSAGES
    )


@route("POST", "/channels/{c}/typing")
def _typing(self: DiscordServer, r: web.Request, b: Json) -> None:
    self._channel(r.match_info["c"])
    self.typing.append(r.match_info["c"])


@route("PUT", "/channels/{c}/messages/{m}/reactions/{e}/@me")
async def _add_reaction(self: DiscordServer, r: web.Request, b: Json) -> None:
    self._find(r.match_info["c"], r.match_info["m"])
    await self.react(r.match_info["m"], r.match_info["e"], channel=r.match_info["c"], user=self.bot_id)


@route("DELETE", "/channels/{c}/messages/{m}/reactions/{e}/@me")
def _drop_reaction(self: DiscordServer, r: web.Request, b: Json) -> None:
    self.reactions.discard((r.match_info["m"], r.match_info["e"], self.bot_id))


@route("POST", "/channels/{c}/messages/{m}/threads")
async def _thread_on_message(self: DiscordServer, r: web.Request, b: Json) -> Json:
    origin = self._find(r.match_info["c"], r.match_info["m"])
    if origin["id"] in self.channels:
        raise ApiError(400, 160004, "A thread has already been created for this message")
    return await self._open_thread(r.match_info["c"], b, origin)


@route("POST", "/channels/{c}/threads")
async def _thread(self: DiscordServer, r: web.Request, b: Json) -> Json:
    self._channel(r.match_info["c"])
    return await self._open_thread(r.match_info["c"], b, None)


@route("PUT", "/channels/{c}/thread-members/{u}")
@route("DELETE", "/channels/{c}/thread-members/{u}")
def _thread_member(self: DiscordServer, r: web.Request, b: Json) -> None:
    self._channel(r.match_info["c"])
