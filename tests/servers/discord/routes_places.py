"""REST: users, applications, the gateway's address, guilds, channels and threads."""

from __future__ import annotations

from tests.servers.discord.model import DM, MEMBERS, PRIVATE_THREAD, THREADS, ApiError, Json, invalid
from tests.servers.discord.routing import Request, route
from tests.servers.discord.server import DiscordServer


@route("GET", "/users/@me")
def me(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/user#get-current-user."""
    return server.users[server.bot_id]


@route("GET", "/users/{u}")
def user(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/user#get-user."""
    if r.path["u"] not in server.users:
        raise ApiError(404, 10013, "Unknown User")
    return server.users[r.path["u"]]


@route("POST", "/users/@me/channels")
def open_dm(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/user#create-dm."""
    uid = str(r.body.get("recipient_id"))
    if uid not in server.users or uid == server.bot_id:
        raise ApiError(400, 50033, "Invalid Recipient(s)")
    return server.channels[server.dm_with(uid)]


@route("GET", "/gateway")
def gateway(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/events/gateway#get-gateway."""
    return {"url": server.gateway_url}


@route("GET", "/gateway/bot")
def gateway_bot(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/events/gateway#get-gateway-bot."""
    oldest = min((at for at, _ in server.identifies), default=server.clock.now())
    reset_ms = max(0, int((oldest + 86_400 - server.clock.now()) * 1000))
    start = {"total": server.identify_limit, "remaining": server.identifies_left, "reset_after": reset_ms}
    return {"url": server.gateway_url, "shards": server.shards, "session_start_limit": start | {"max_concurrency": 1}}


@route("GET", "/applications/@me")
@route("GET", "/oauth2/applications/@me")
def application(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/application#get-current-application; ``flags`` name the enabled intents."""
    return {
        "id": server.app_id, "name": "hermod", "icon": None, "description": "", "bot_public": False,
        "bot_require_code_grant": False, "verify_key": "0" * 64, "flags": server.app_flags, "team": None,
        "owner": server.users[server.alice], "summary": "", "rpc_origins": [], "redirect_uris": [],
        "interactions_endpoint_url": server.interactions_endpoint_url,
        "approximate_guild_count": sum(1 for g in server.guilds.values() if g.bot_in),
        "bot": server.users[server.bot_id],
    }  # fmt: skip


@route("GET", "/users/@me/guilds")
def guilds(server: DiscordServer, r: Request) -> list[Json]:
    """docs.discord.com/developers/resources/user#get-current-user-guilds."""
    limit, after = _number(r, "limit", 200, 1, 200), int(r.query.get("after") or 0)
    mine = [g for g in sorted(server.guilds.values(), key=lambda g: int(g.id)) if g.bot_in and int(g.id) > after]
    return [{"id": g.id, "name": g.name, "icon": None, "owner": False, "permissions": "0", "features": []}
            for g in mine[:limit]]  # fmt: skip


@route("GET", "/guilds/{g}")
def guild(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/guild#get-guild."""
    return server._guild_json(server._guild_of(r.path["g"]).id)


@route("GET", "/guilds/{g}/channels")
def guild_channels(server: DiscordServer, r: Request) -> list[Json]:
    """docs.discord.com/developers/resources/guild#get-guild-channels: threads are left out."""
    gid = server._guild_of(r.path["g"]).id
    return [c for c in server.channels.values() if c.get("guild_id") == gid and c["type"] not in THREADS]


@route("GET", "/guilds/{g}/members")
def members(server: DiscordServer, r: Request) -> list[Json]:
    """docs.discord.com/developers/resources/guild#list-guild-members: restricted by the members intent."""
    home = server._guild_of(r.path["g"])
    if not server.privileged & MEMBERS:
        raise ApiError(403, 50001, "Missing Access")
    limit, after = _number(r, "limit", 1, 1, 1000), int(r.query.get("after") or 0)
    found = [uid for uid in sorted(home.members, key=int) if int(uid) > after]
    return [server._member(uid, home.id) for uid in found[:limit]]


@route("GET", "/guilds/{g}/members/{u}")
def member(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/guild#get-guild-member."""
    home = server._guild_of(r.path["g"])
    if r.path["u"] not in home.members:
        raise ApiError(404, 10007, "Unknown Member")
    return server._member(r.path["u"], home.id)


@route("GET", "/guilds/{g}/roles")
def roles(server: DiscordServer, r: Request) -> list[Json]:
    """docs.discord.com/developers/resources/guild#get-guild-roles."""
    return list(server._guild_of(r.path["g"]).roles.values())


@route("GET", "/guilds/{g}/threads/active")
def active_threads(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/guild#list-active-guild-threads."""
    gid = server._guild_of(r.path["g"]).id
    seen = [
        t for t in server.threads()
        if t["guild_id"] == gid and not t["thread_metadata"]["archived"] and server.allows(t["id"], "VIEW_CHANNEL")
    ]  # fmt: skip
    mine = [server._thread_member(t["id"], server.bot_id) for t in seen
            if server.bot_id in server.thread_members[t["id"]]]  # fmt: skip
    return {"threads": seen, "members": mine}


@route("GET", "/channels/{c}/threads/archived/public")
def archived_threads(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/channel#list-public-archived-threads."""
    parent = server._channel(r.path["c"])
    server._need(parent, "READ_MESSAGE_HISTORY")
    limit = _number(r, "limit", 50, 2, 100)
    found = [
        t for t in server.threads(parent["id"]) if t["thread_metadata"]["archived"] and t["type"] != PRIVATE_THREAD
    ]
    found.sort(key=lambda t: str(t["thread_metadata"]["archive_timestamp"]), reverse=True)
    before = r.query.get("before")
    kept = [t for t in found if before is None or t["thread_metadata"]["archive_timestamp"] < before]
    return {"threads": kept[:limit], "members": [], "has_more": len(kept) > limit}


@route("GET", "/channels/{c}")
def channel(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/channel#get-channel."""
    found = server._channel(r.path["c"])
    server._need(found)
    return server._channel_json(found)


@route("PATCH", "/channels/{c}")
def change_channel(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/channel#modify-channel."""
    return server._change_as_bot(r.path["c"], r.body)


@route("DELETE", "/channels/{c}")
def delete_channel(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/channel#deleteclose-channel: a thread needs MANAGE_THREADS."""
    found = server._channel(r.path["c"])
    if found["type"] != DM:
        server._need(found, "MANAGE_THREADS" if found["type"] in THREADS else "MANAGE_CHANNELS")
        server._delete_place(found)
    return found


@route("POST", "/channels/{c}/messages/{m}/threads")
def thread_from_message(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/channel#start-thread-from-message."""
    return server._thread_from_message(r.path["c"], r.path["m"], r.body)


@route("POST", "/channels/{c}/threads")
def thread_alone(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/channel#start-thread-without-message, and ...-in-forum-or-media-channel."""
    return server._thread_alone(r.path["c"], r.body, r.files)


@route("PUT", "/channels/{c}/thread-members/{u}")
def join_thread(server: DiscordServer, r: Request) -> None:
    """docs.discord.com/developers/resources/channel#join-thread and #add-thread-member."""
    thread, uid = _thread(server, r.path["c"]), _whom(server, r.path["u"])
    server._check_open(thread, writing=False)
    if uid not in server.thread_members[thread["id"]]:
        server.thread_members[thread["id"]].add(uid)
        server._tell_members(thread, added=[uid])


@route("DELETE", "/channels/{c}/thread-members/{u}")
def leave_thread(server: DiscordServer, r: Request) -> None:
    """docs.discord.com/developers/resources/channel#leave-thread and #remove-thread-member."""
    thread, uid = _thread(server, r.path["c"]), _whom(server, r.path["u"])
    server._check_open(thread, writing=False)
    if uid != server.bot_id:
        server._need(thread, "MANAGE_THREADS")
    server.thread_members[thread["id"]].discard(uid)
    server._tell_members(thread, removed=[uid])


@route("POST", "/channels/{c}/typing")
def typing(server: DiscordServer, r: Request) -> None:
    """docs.discord.com/developers/resources/channel#trigger-typing-indicator."""
    found = server._channel(r.path["c"])
    server._need(found, "SEND_MESSAGES_IN_THREADS" if found["type"] in THREADS else "SEND_MESSAGES")
    server.typing.append(found["id"])
    server.typed.append((found["id"], server.clock.wall()))


def _thread(server: DiscordServer, cid: str) -> Json:
    found = server._channel(cid)
    server._need(found)
    if found["type"] not in THREADS:
        raise ApiError(400, 50024, "Cannot execute action on this channel type")
    return found


def _whom(server: DiscordServer, uid: str) -> str:
    if uid == "@me":
        return server.bot_id
    if uid not in server.users:
        raise ApiError(404, 10013, "Unknown User")
    return uid


def _number(r: Request, key: str, default: int, low: int, high: int) -> int:
    text = r.query.get(key, str(default))
    if not text.isdigit():
        raise invalid(key, "NUMBER_TYPE_COERCE", f'Value "{text}" is not int.')
    if not low <= int(text) <= high:
        bound = f"int value should be between {low} and {high}."
        raise invalid(key, "NUMBER_TYPE_MAX" if int(text) > high else "NUMBER_TYPE_MIN", bound)
    return int(text)
