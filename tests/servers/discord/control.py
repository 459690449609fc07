"""The control port: drive a standalone server from another process, with ``POST /_control/<verb>``."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from aiohttp import web

from tests.servers.discord.model import ApiError

if TYPE_CHECKING:
    from tests.servers.discord.server import DiscordServer

VERBS = frozenset(
    {
        "add_channel", "add_user", "autocomplete", "bot_messages", "click", "edit", "inject", "invalidate",
        "kill_sockets", "mention", "messages", "react", "reconnect", "say", "slash", "threads",
    }
)  # fmt: skip
FIELDS = frozenset(
    {"alice", "bob", "bot_id", "calls", "channels", "commands", "general", "guild_id", "users", "violations"}
)


async def answer(server: DiscordServer, request: web.Request) -> web.Response:
    """Call a method or read a field; the answer is ``{"result": ...}`` or ``{"error": ...}``."""
    verb, kw = request.match_info["verb"], await request.json() if request.can_read_body else {}
    try:
        if verb in FIELDS:
            result = getattr(server, verb)
        elif verb in VERBS:
            result = getattr(server, verb)(**kw)
            result = await result if inspect.isawaitable(result) else result
        else:
            return web.json_response({"error": f"unknown verb {verb}"}, status=404)
    except (TypeError, LookupError, ApiError) as e:
        return web.json_response({"error": str(e)}, status=400)
    return web.Response(text=json.dumps({"result": result}, default=_plain), content_type="application/json")


def _plain(value: object) -> object:
    if isinstance(value, set | frozenset):
        return sorted(value)
    return asdict(value) if hasattr(value, "__dataclass_fields__") else str(value)  # type: ignore[call-overload]
