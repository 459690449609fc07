"""REST: messages and reactions of a channel."""

from __future__ import annotations

from urllib.parse import unquote

from tests.servers.discord.model import EPHEMERAL, MESSAGE_CONTENT, WRITTEN, ApiError, Json, invalid
from tests.servers.discord.objects import is_emoji
from tests.servers.discord.routes_places import _number
from tests.servers.discord.routing import Request, route
from tests.servers.discord.server import DiscordServer


@route("GET", "/channels/{c}/messages")
def history(server: DiscordServer, r: Request) -> list[Json]:
    """docs.discord.com/developers/resources/message#get-channel-messages: newest first."""
    channel = server._channel(r.path["c"])
    server._need(channel)
    limit = _number(r, "limit", 50, 1, 100)
    bounds = [key for key in ("before", "after", "around") if key in r.query]
    if len(bounds) > 1:  # "mutually exclusive"; how it is refused is UNDOCUMENTED
        raise invalid(bounds[1], "BASE_TYPE_BAD_TYPE", "Only one of before, after and around may be passed.")
    for key in bounds:
        if not r.query[key].isdigit():
            raise invalid(key, "NUMBER_TYPE_COERCE", f'Value "{r.query[key]}" is not snowflake.')
    if "guild_id" in channel and not server.allows(channel["id"], "READ_MESSAGE_HISTORY"):
        return []
    found = sorted(server._messages[channel["id"]].values(), key=lambda m: int(m["id"]))
    found = [m for m in found if not m["flags"] & EPHEMERAL]
    if "around" in r.query:
        older = sum(1 for m in found if int(m["id"]) < int(r.query["around"]))
        first = max(0, older - limit // 2)
        page = found[first : first + limit][::-1]
    elif "after" in r.query:
        page = [m for m in found if int(m["id"]) > int(r.query["after"])][:limit][::-1]
    else:
        before = int(r.query.get("before") or 2**63)
        page = [m for m in found if int(m["id"]) < before][::-1][:limit]
    return [server._wire(m, content=bool(server.privileged & MESSAGE_CONTENT), stored=True) for m in page]


@route("GET", "/channels/{c}/messages/{m}")
def message(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/message#get-channel-message."""
    channel = server._channel(r.path["c"])
    server._need(channel, "READ_MESSAGE_HISTORY")
    found = server._public(channel["id"], r.path["m"])
    return server._wire(found, content=bool(server.privileged & MESSAGE_CONTENT), stored=True)


@route("POST", "/channels/{c}/messages")
def create(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/message#create-message."""
    return server._wire(server._create(r.path["c"], r.body, r.files))


@route("PATCH", "/channels/{c}/messages/{m}")
def edit(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/resources/message#edit-message."""
    return server._wire(server._edit_as_bot(r.path["c"], r.path["m"], r.body, r.files))


@route("DELETE", "/channels/{c}/messages/{m}")
def delete(server: DiscordServer, r: Request) -> None:
    """docs.discord.com/developers/resources/message#delete-message.

    Archived threads allow it, locked ones only while they are active.
    """
    channel = server._channel(r.path["c"])
    server._need(channel)
    found = server._public(channel["id"], r.path["m"])
    if found["author"]["id"] != server.bot_id:
        if "guild_id" not in channel:
            raise ApiError(403, 50003, "Cannot execute action on a DM channel")
        server._need(channel, "MANAGE_MESSAGES")
    if found["type"] not in WRITTEN:
        raise ApiError(403, 50021, "Cannot execute action on a system message")
    meta = channel.get("thread_metadata")
    if meta and meta["archived"] and meta["locked"] and not server.allows(channel["id"], "MANAGE_THREADS"):
        raise ApiError(400, 50083, "Thread is archived")
    server._remove(found)


@route("PUT", "/channels/{c}/messages/{m}/reactions/{e}/@me")
def add_reaction(server: DiscordServer, r: Request) -> None:
    """docs.discord.com/developers/resources/message#create-reaction: ADD_REACTIONS for an emoji nobody used yet."""
    channel = server._channel(r.path["c"])
    server._need(channel, "READ_MESSAGE_HISTORY")
    found = server._public(channel["id"], r.path["m"])
    server._check_open(channel, writing=False)
    emoji = _emoji(server, channel, r.path["e"])
    used = {each for mid, each, _ in server.reactions if mid == found["id"]}
    if emoji not in used:
        server._need(channel, "ADD_REACTIONS")
        if len(used) >= 20:
            raise ApiError(400, 30010, "Maximum number of reactions reached (20)")
    server._react(channel["id"], found["id"], emoji, server.bot_id, add=True)


@route("DELETE", "/channels/{c}/messages/{m}/reactions/{e}/@me")
def drop_reaction(server: DiscordServer, r: Request) -> None:
    """docs.discord.com/developers/resources/message#delete-own-reaction."""
    channel = server._channel(r.path["c"])
    server._need(channel)
    found = server._public(channel["id"], r.path["m"])
    server._check_open(channel, writing=False)
    server._react(channel["id"], found["id"], _emoji(server, channel, r.path["e"]), server.bot_id, add=False)


def _emoji(server: DiscordServer, channel: Json, text: str) -> str:
    """docs.discord.com/developers/resources/emoji: unicode, or ``name:id`` of a known one; 10014 otherwise."""
    emoji = unquote(text)
    own = server.guilds[channel["guild_id"]].emojis if "guild_id" in channel else []
    if ":" in emoji and any(emoji == f"{each['name']}:{each['id']}" for each in own):
        return emoji
    if ":" in emoji or not is_emoji(emoji):
        raise ApiError(400, 10014, "Unknown Emoji")
    return emoji
