"""What the Slack server is made of: channels, calls, faults, deliveries, and what people saw."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]  # wire data


#: requests per minute of each documented tier, and the tier of the methods served here
TIERS = {1: 1, 2: 20, 3: 50, 4: 100}
METHOD_TIER = {
    "apps.connections.open": 1,
    "conversations.list": 2,
    "users.list": 2,
    "chat.startStream": 2,
    "chat.stopStream": 2,
    "conversations.history": 3,
    "conversations.replies": 3,
    "chat.update": 3,
    "chat.delete": 3,
    "reactions.add": 3,
    "conversations.info": 3,
    "chat.appendStream": 4,
    "users.info": 4,
    "views.open": 4,
    "files.getUploadURLExternal": 4,
}


#: where the words of a method name meet: chat.postMessage -> api_chat_post_message
METHOD_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|\.")


#: the bot scope that a method needs; conversations.replies and .history depend on the channel's kind
METHOD_SCOPE = {
    "chat.postMessage": "chat:write",
    "chat.postEphemeral": "chat:write",
    "chat.update": "chat:write",
    "chat.delete": "chat:write",
    "chat.startStream": "chat:write",
    "chat.appendStream": "chat:write",
    "chat.stopStream": "chat:write",
    "assistant.threads.setStatus": "chat:write",
    "users.info": "users:read",
    "users.list": "users:read",
    "reactions.add": "reactions:write",
    "reactions.remove": "reactions:write",
    "files.getUploadURLExternal": "files:write",
    "files.completeUploadExternal": "files:write",
    "files.info": "files:read",
    "conversations.join": "channels:join",
}
KIND_SCOPE = {"channel": "channels", "group": "groups", "im": "im", "mpim": "mpim"}


class SlackError(Exception):
    """An ``ok: false`` answer. Slack answers these with HTTP 200, except rate limits."""

    def __init__(self, code: str, **extra: Any) -> None:
        super().__init__(code)
        self.code, self.extra = code, extra


@dataclass
class ApiCall:
    method: str
    args: Json
    token: str
    at: float
    response: Json = field(default_factory=dict)


@dataclass
class Fault:
    """One injected fault: applied to the next ``times`` calls of ``method`` ('*' = any)."""

    method: str
    times: int = 1
    error: str | None = None  # answer ok:false with this code
    http: int | None = None  # answer this status (429 adds Retry-After)
    retry_after: int = 1
    delay: float = 0.0  # sleep before handling
    drop: bool = False  # cut the connection without answering
    after: bool = False  # do the work, then fail: the "did it happen?" ambiguity


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
    id: str
    name: str
    kind: str = "channel"  # channel | group | im
    members: set[str] = field(default_factory=set)
    archived: bool = False
    messages: dict[str, Json] = field(default_factory=dict)
