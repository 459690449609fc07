"""What the Slack server is made of: workspaces, channels, calls, faults, deliveries, and what people saw."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any

from tests.servers.slack.rates import METHOD_TIER, TIERS

__all__ = [
    "KIND_SCOPE",
    "METHOD_SCOPE",
    "METHOD_TIER",
    "METHOD_WORDS",
    "TIERS",
    "ApiCall",
    "Channel",
    "Copies",
    "Delivery",
    "Fault",
    "Json",
    "Outcome",
    "SlackError",
    "Workspace",
]

Json = dict[str, Any]  # wire data


#: where the words of a method name meet: chat.postMessage -> api_chat_post_message
METHOD_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|\.")


#: the bot scope that a method needs; conversations.replies, .history and .info depend on the channel's kind
METHOD_SCOPE = {
    "chat.postMessage": "chat:write",
    "chat.postEphemeral": "chat:write",
    "chat.update": "chat:write",
    "chat.delete": "chat:write",
    "chat.startStream": "chat:write",
    "chat.appendStream": "chat:write",
    "chat.stopStream": "chat:write",
    "assistant.threads.setStatus": "chat:write",
    "assistant.threads.setTitle": "assistant:write",
    "assistant.threads.setSuggestedPrompts": "assistant:write",
    "agents.sessions.setStatus": "chat:write",
    "agents.sessions.rename": "chat:write",
    "users.info": "users:read",
    "users.list": "users:read",
    "reactions.add": "reactions:write",
    "reactions.remove": "reactions:write",
    "files.getUploadURLExternal": "files:write",
    "files.completeUploadExternal": "files:write",
    "files.info": "files:read",
    "conversations.join": "channels:join",
    "conversations.open": "im:write",
}
KIND_SCOPE = {"channel": "channels", "group": "groups", "im": "im", "mpim": "mpim"}


class SlackError(Exception):
    """An ``ok: false`` answer. Slack answers these with HTTP 200, except rate limits."""

    def __init__(self, code: str, **extra: Any) -> None:
        super().__init__(code)
        self.code, self.extra = code, extra


@dataclass
class Workspace:
    """A team in which the app is, or may be, installed. ``scopes`` None: everything is granted."""

    id: str
    name: str
    bot_user: str
    bot_id: str
    bot_token: str
    scopes: tuple[str, ...] | None = None
    enterprise_id: str = ""
    installed: bool = True


@dataclass
class ApiCall:
    method: str
    args: Json
    token: str
    at: float
    response: Json = field(default_factory=dict)
    status: int = 200


@dataclass
class Fault:
    """One injected fault: applied to the next ``times`` calls of ``method`` ('*' = any) that match.

    ``channel`` and ``args`` narrow it down; ``every`` takes only each so-manieth of the matching calls. ``hold`` keeps
    the call waiting until it is set, with ``after`` once its work is done; ``reached`` tells that it waits.
    """

    method: str
    times: int = 1
    error: str | None = None  # answer ok:false with this code, HTTP 200
    http: int | None = None  # answer this status (429 adds Retry-After)
    retry_after: int = 1
    delay: float = 0.0  # sleep before handling
    drop: bool = False  # cut the connection without answering
    after: bool = False  # do the work, then fail: the "did it happen?" ambiguity
    channel: str | None = None
    args: Json = field(default_factory=dict)
    every: int = 1
    hold: asyncio.Event | None = None
    seen: int = 0
    reached: bool = False

    def strikes(self, method: str, args: Json) -> bool:
        """Whether this call meets the fault; counts it."""
        place = args.get("channel") or args.get("channel_id")
        if self.times <= 0 or self.method not in ("*", method) or self.channel not in (None, place):
            return False
        if any(args.get(name) != value for name, value in self.args.items()):
            return False
        self.seen += 1
        if self.seen % self.every:
            return False
        self.times -= 1
        return True


@dataclass
class Delivery:
    """One delivery attempt of an event, command or interaction to the app."""

    kind: str
    body: Json
    attempt: int
    reason: str
    via: str
    envelope_id: str = ""
    sent_at: float = 0.0  # monotonic seconds
    acked_at: float | None = None
    acked: bool = False
    ack: Json | None = None
    error: str = ""
    status: int = 0  # of the HTTP answer
    socket: int = 0  # number of the connection that got it


@dataclass(frozen=True, kw_only=True)
class Copies:
    """How often one message reaches the app, and in which disguise.

    ``mention`` and ``message`` count the deliveries of the two twins (0 leaves one out). What goes beyond the
    first is a redelivery: the same ``event_id`` in another envelope, with a retry number; or, with
    ``same_envelope``, the same envelope again with retry number 0 (bolt-js issue 2487).
    """

    mention: int = 1
    message: int = 1
    same_envelope: bool = False
    mention_first: bool = False


@dataclass
class Outcome:
    """What a human saw after a slash command or interaction."""

    trigger_id: str
    response_url: str
    ack: Json | None = None
    error: str = ""  # operation_timeout | dispatch_failed | http_<status>
    responses: list[Json] = field(default_factory=list)  # posted to response_url


@dataclass
class Channel:
    """A conversation. ``shared_with`` names the other organisation's team of a Slack Connect channel."""

    id: str
    name: str
    kind: str = "channel"  # channel | group | im | mpim
    members: set[str] = field(default_factory=set)
    archived: bool = False
    messages: dict[str, Json] = field(default_factory=dict)
    team: str = ""
    shared_with: str = ""
