"""REST: commands, interaction callbacks and follow-ups."""

from __future__ import annotations

import re
import time

from aiohttp import web

from tests.servers.discord.model import EPHEMERAL, LOADING, ApiError, Interaction, Json, _invalid
from tests.servers.discord.routing import route
from tests.servers.discord.server import DiscordServer


def _scope(r: web.Request) -> str:
    return r.match_info.get("g", "global")


@route("GET", "/applications/{a}/commands")
@route("GET", "/applications/{a}/guilds/{g}/commands")
def _list_commands(self: DiscordServer, r: web.Request, b: Json) -> list[Json]:
    return self.commands.get(_scope(r), [])


@route("PUT", "/applications/{a}/commands")
@route("PUT", "/applications/{a}/guilds/{g}/commands")
def _sync_commands(self: DiscordServer, r: web.Request, b: Json) -> list[Json]:
    made = []
    for i, c in enumerate(b.get("_", [])):
        if (c.get("type", 1) == 1 and not re.fullmatch(r"[-_'\w]{1,32}", c["name"])) or c["name"] != c["name"].lower():
            raise _invalid(f"{i}.name", "APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid")
        if c.get("type", 1) == 1 and not 1 <= len(c.get("description") or "") <= 100:
            raise _invalid(f"{i}.description", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")
        if len(c.get("options") or []) > 25:
            raise _invalid(f"{i}.options", "BASE_TYPE_MAX_LENGTH", "Must be 25 or fewer in length.")
        made.append(
            {
                "default_member_permissions": None,
                "type": 1,
                "nsfw": False,
                **c,
                "id": self.snowflake(),
                "application_id": self.app_id,
                "version": self.snowflake(),
                **({"guild_id": _scope(r)} if _scope(r) != "global" else {}),
            }
        )
    self.commands[_scope(r)] = made
    return made


@route("POST", "/interactions/{i}/{t}/callback")
async def _callback(self: DiscordServer, r: web.Request, b: Json) -> Json | None:
    it = self.interactions.get(r.match_info["t"])
    if it is None or it.id != r.match_info["i"] or time.monotonic() - it.born > self.interaction_deadline:
        raise ApiError(404, 10062, "Unknown interaction")
    if it.response is not None:
        raise ApiError(400, 40060, "Interaction has already been acknowledged.")
    kind, data = b.get("type"), b.get("data") or {}
    msg: Json | None = None
    if kind in (4, 5):
        flags = int(data.get("flags", 0)) | (LOADING if kind == 5 else 0)
        msg = self._new_message(it.channel, self.bot_id, data, r["files"], flags=flags, type=20 if it.kind == 2 else 0)
        it.message = msg["id"]
        await self._announce(msg)
    elif kind in (6, 7) and it.source:
        it.message = it.source
        if kind == 7:
            msg = self._find(it.channel, it.source)
            self._update(msg, data)
            await self._announce(msg, "MESSAGE_UPDATE")
    elif kind == 8:
        it.choices = data.get("choices", [])
    elif kind == 9:
        it.modal = data
    else:
        raise _invalid("type", "BASE_TYPE_CHOICES", "Not a valid callback type here")
    it.response = b
    if r.query.get("with_response", "").lower() not in ("1", "true"):
        return None
    meta = {
        "id": it.id,
        "type": it.kind,
        "response_message_id": it.message,
        "response_message_loading": kind == 5,
        "response_message_ephemeral": bool(int(data.get("flags", 0)) & EPHEMERAL),
    }
    return {"interaction": meta, **({"resource": {"type": kind, "message": msg}} if msg else {})}


def _live_token(self: DiscordServer, r: web.Request) -> Interaction:
    it = self.interactions.get(r.match_info["t"])
    if it is None or r.match_info["a"] != self.app_id:
        raise ApiError(404, 10015, "Unknown Webhook")
    if time.monotonic() - it.born > self.token_ttl:
        raise ApiError(401, 50027, "Invalid Webhook Token")
    return it


@route("POST", "/webhooks/{a}/{t}")
async def _followup(self: DiscordServer, r: web.Request, b: Json) -> Json:
    it = _live_token(self, r)
    if it.response is None:
        raise ApiError(404, 10015, "Unknown Webhook")
    first = self._messages[it.channel].get(it.message or "")
    if first and first["flags"] & LOADING:  # the first follow-up fills a deferred reply
        self._update(first, b)
        first["flags"] &= ~LOADING
        await self._announce(first, "MESSAGE_UPDATE")
        return first
    msg = self._new_message(it.channel, self.bot_id, b, r["files"])
    it.followups.append(msg["id"])
    await self._announce(msg)
    return msg


@route("GET", "/webhooks/{a}/{t}/messages/{m}")
@route("PATCH", "/webhooks/{a}/{t}/messages/{m}")
@route("DELETE", "/webhooks/{a}/{t}/messages/{m}")
async def _followup_message(self: DiscordServer, r: web.Request, b: Json) -> Json | None:
    it = _live_token(self, r)
    msg = self._find(it.channel, it.message or "" if r.match_info["m"] == "@original" else r.match_info["m"])
    if r.method == "DELETE":
        del self._messages[it.channel][msg["id"]]
        return None
    if r.method == "PATCH":
        self._update(msg, b)
        msg["flags"] &= ~LOADING
        await self._announce(msg, "MESSAGE_UPDATE")
    return msg
