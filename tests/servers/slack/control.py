"""The control port: drive a standalone server from another process, with ``POST /_control/<verb>``."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from aiohttp import web

from tests.servers.slack.model import SlackError

if TYPE_CHECKING:
    from tests.servers.slack.server import SlackServer

VERBS = frozenset(
    {
        "add_channel", "add_user", "add_workspace", "archive_channel", "bot_messages", "bot_say", "click", "click_home",
        "delete", "disconnect", "drop_ack", "edit", "emit", "expire_stream", "fast_forward", "forge", "home_view",
        "inject", "install", "kick_bot", "kill_sockets", "mention", "message_shortcut", "messages", "open_home",
        "other_bot_says", "pinged", "press_stop", "react", "redeliver", "redirect_file", "refuse_sockets",
        "remove_channel", "rotate_token", "say", "session", "set_knobs", "shown_status", "signs", "silence", "slash",
        "stop_stream_as_user", "submit_view", "tell_replied", "unfurl", "uninstall", "verify_url",
    }
)  # fmt: skip
FIELDS = frozenset(
    {
        "calls", "deliveries", "ephemerals", "files", "open_sockets", "prompts", "rate_violations", "statuses",
        "streams", "views", "violations",
    }
)  # fmt: skip


async def answer(server: SlackServer, request: web.Request) -> web.Response:
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
    except (TypeError, LookupError, SlackError) as e:
        return web.json_response({"error": str(e)}, status=400)
    return web.Response(text=json.dumps({"result": result}, default=_plain), content_type="application/json")


def _plain(value: object) -> object:
    if isinstance(value, set | frozenset):
        return sorted(value)
    return asdict(value) if hasattr(value, "__dataclass_fields__") else str(value)  # type: ignore[call-overload]
