"""The control port: drive a standalone server from another process, with ``POST /_control/<verb>``."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from tests.servers.discord.model import ApiError

if TYPE_CHECKING:
    from tests.servers.discord.server import DiscordServer

VERBS = frozenset(
    {
        "add_channel", "add_guild", "add_role", "add_to_thread", "add_user", "allow", "autocomplete", "bot_messages",
        "change_thread", "click", "delete", "delete_channel", "deny", "dm_with", "drop_acks", "edit", "emit",
        "fail_guild", "fast_forward", "hang_up", "hold_events", "inject", "interaction", "invalidate", "invite_bot",
        "kick_bot", "kill_sockets", "mention", "messages", "open_post", "open_thread", "pinged", "react", "reconnect",
        "release_events", "restore_guild", "say", "set_knobs", "set_role", "signs", "silence", "slash", "submit_modal",
        "threads", "typing_in", "unfurl", "unreact",
    }
)  # fmt: skip
FIELDS = frozenset(
    {
        "alice", "app_id", "bob", "bot_id", "calls", "channels", "command_puts", "commands", "general", "guild_id",
        "identifies_left", "late_answers", "open_sessions", "pings", "rate_violations", "token", "typing", "users",
        "violations",
    }
)  # fmt: skip


async def answer(server: DiscordServer, request: web.Request) -> web.Response:
    """Call a method or read a field; the answer is ``{"result": ...}`` or ``{"error": ...}``."""
    verb, kw = request.match_info["verb"], await request.json() if request.can_read_body else {}
    try:
        if verb in FIELDS:
            result = getattr(server, verb)
        elif verb in VERBS:
            _take_text_files(kw)
            if verb == "submit_modal":
                kw["of"] = server.interaction(kw["of"])
            result = getattr(server, verb)(**kw)
            result = await result if inspect.isawaitable(result) else result
        else:
            return web.json_response({"error": f"unknown verb {verb}"}, status=404)
    except (TypeError, LookupError, ApiError) as e:
        return web.json_response({"error": str(e)}, status=400)
    return web.Response(text=json.dumps({"result": result}, default=_plain), content_type="application/json")


def _take_text_files(arguments: dict[str, object]) -> None:
    """Files come as text, since JSON has no bytes."""
    if isinstance(files := arguments.get("files"), dict):
        arguments["files"] = {name: str(text).encode() for name, text in files.items()}


def _plain(value: object) -> object:
    if isinstance(value, set | frozenset):
        return sorted(value)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
