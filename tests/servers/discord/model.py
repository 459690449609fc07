"""What the Discord server is made of: numbers of the wire, calls, faults, interactions, sessions and errors."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Json = dict[str, Any]  # wire data

EPOCH_MS = 1_420_070_400_000
MIB = 1024 * 1024

# docs.discord.com/developers/events/gateway#list-of-intents
GUILDS, MEMBERS, PRESENCES = 1 << 0, 1 << 1, 1 << 8
GUILD_MESSAGES, GUILD_REACTIONS, GUILD_TYPING = 1 << 9, 1 << 10, 1 << 11
DIRECT_MESSAGES, DIRECT_REACTIONS, DIRECT_TYPING = 1 << 12, 1 << 13, 1 << 14
MESSAGE_CONTENT = 1 << 15
PRIVILEGED = MEMBERS | PRESENCES | MESSAGE_CONTENT
KNOWN_INTENTS = sum(1 << bit for bit in (*range(17), 20, 21, 24, 25))

# docs.discord.com/developers/resources/channel#channel-object-channel-types
TEXT, DM, VOICE, CATEGORY, ANNOUNCEMENT = 0, 1, 2, 4, 5
ANNOUNCEMENT_THREAD, PUBLIC_THREAD, PRIVATE_THREAD, FORUM, MEDIA = 10, 11, 12, 15, 16
THREADS = frozenset({ANNOUNCEMENT_THREAD, PUBLIC_THREAD, PRIVATE_THREAD})

# docs.discord.com/developers/resources/message#message-object-message-flags
SUPPRESS_EMBEDS, HAS_THREAD, EPHEMERAL, LOADING = 1 << 2, 1 << 5, 1 << 6, 1 << 7
SUPPRESS_NOTIFICATIONS, COMPONENTS_V2 = 1 << 12, 1 << 15

# docs.discord.com/developers/resources/message#message-object-message-types
DEFAULT, REPLY, COMMAND_ANSWER, STARTER = 0, 19, 20, 21
WRITTEN = frozenset({DEFAULT, REPLY, COMMAND_ANSWER, 23})  # every other type is a system message

# docs.discord.com/developers/interactions/receiving-and-responding#interaction-object-interaction-type
COMMAND, COMPONENT, AUTOCOMPLETE, MODAL = 2, 3, 4, 5


class ApiError(Exception):
    """A REST error: HTTP status, Discord's numeric code, message and field errors."""

    def __init__(self, status: int, code: int, message: str, errors: Json | None = None) -> None:
        super().__init__(f"{status} {code} {message}")
        self.status, self.code = status, code
        self.headers: dict[str, str] = {}
        self.body: Json = {"message": message, "code": code, **({"errors": errors} if errors else {})}


def invalid(where: str, code: str, message: str) -> ApiError:
    """A form error at a dotted path ("" for the form): docs.discord.com/developers/reference#error-messages."""
    errors: Json = {"_errors": [{"code": code, "message": message}]}
    for key in reversed(where.split(".") if where else []):
        errors = {key: errors}
    return ApiError(400, 50035, "Invalid Form Body", errors)


def too_long(where: str, limit: int) -> ApiError:
    return invalid(where, "BASE_TYPE_MAX_LENGTH", f"Must be {limit} or fewer in length.")


def bad_length(where: str, low: int, high: int) -> ApiError:
    return invalid(where, "BASE_TYPE_BAD_LENGTH", f"Must be between {low} and {high} in length.")


def limited(retry_after_s: float, *, scope: str = "user", code: int = 0) -> ApiError:
    """A 429: docs.discord.com/developers/topics/rate-limits#exceeding-a-rate-limit."""
    whose = "The resource is" if scope == "shared" else "You are"
    error = ApiError(429, code, f"{whose} being rate limited.")
    error.headers = {"Retry-After": str(max(1, int(retry_after_s + 0.999))), "X-RateLimit-Scope": scope}
    if scope == "global":
        error.headers["X-RateLimit-Global"] = "true"
    else:
        error.headers["X-RateLimit-Reset-After"] = f"{retry_after_s:.3f}"
    error.body |= {"retry_after": round(retry_after_s, 3), "global": scope == "global"}
    if not code:
        del error.body["code"]
    return error


@dataclass
class Call:
    """A REST request as it arrived, and the HTTP status it got (0: still under way, or dropped)."""

    method: str
    path: str
    body: Json
    at: float
    status: int = 0
    files: tuple[str, ...] = ()
    code: int = 0


@dataclass
class Fault:
    """Applied to REST calls whose 'METHOD /path' matches ``pattern``: to ``times`` of them after ``skip`` others.

    ``hold`` keeps the call waiting until it is set.
    """

    pattern: str
    times: int = 1
    http: int = 500
    retry_after: float = 0.5
    is_global: bool = False
    delay: float = 0.0
    after: bool = False  # do the work, then fail
    drop: bool = False  # cut the connection instead of answering
    code: int = 0  # Discord's numeric code, with http
    message: str = ""
    skip: int = 0
    only_delay: bool = False  # late, but successful
    hold: asyncio.Event | None = None

    def strikes(self, call: str) -> bool:
        """Whether this call gets it; counts down."""
        if self.times <= 0 or not re.search(self.pattern, call):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True

    def error(self) -> ApiError:
        if self.http == 429:
            return limited(self.retry_after, scope="global" if self.is_global else "user", code=self.code)
        return ApiError(self.http, self.code, self.message or f"{self.http}: injected")


@dataclass
class Interaction:
    """An interaction as its human sees it."""

    id: str
    token: str
    kind: int
    channel: str
    user: str
    born: float
    source: str | None = None  # message of a component interaction
    response: Json | None = None  # callback body as sent
    message: str | None = None  # id of the original response
    modal: Json | None = None
    choices: list[Json] | None = None
    followups: list[str] = field(default_factory=list)
    error: str = ""
    option_type: int = 0  # of the focused option
    command: str = ""


@dataclass
class Connection:
    """One websocket: what it still has to be sent, and what the client sent over it."""

    ws: web.WebSocketResponse
    deflate: Any  # the zlib context of zlib-stream, or None
    last_beat: float
    frames: deque[str | tuple[int, str]] = field(default_factory=deque)  # JSON, or a close code and its reason
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    heartbeats: int = 0
    received: deque[float] = field(default_factory=deque)  # times, for the limit of 120 a minute
    closing: bool = False  # by the server

    def push(self, frame: str | tuple[int, str]) -> None:
        self.frames.append(frame)
        self.wake.set()


@dataclass
class Session:
    """A gateway session of one shard. Without a connection it waits to be resumed."""

    id: str
    intents: int
    shard: tuple[int, int]
    connection: Connection | None
    seq: int = 0
    log: list[Json] = field(default_factory=list)  # every event's frame, as it was when it was sent
    heartbeats: int = 0
    resumes: int = 0
    silent: bool = False  # events are kept from the client, as on a dead connection
    held: list[tuple[str, Json]] | None = None  # events kept back, to come later in another order
    lost_at: float = 0.0

    @property
    def ws(self) -> web.WebSocketResponse | None:
        """The open websocket."""
        return self.connection.ws if self.connection else None

    def events(self, name: str) -> list[Json]:
        """The data of every event of this name, in order."""
        return [frame["d"] for frame in self.log if frame["t"] == name]

    def sees(self, guild: str | None) -> bool:
        """docs.discord.com/developers/events/gateway#sharding: ``(guild_id >> 22) % num_shards``, DMs to shard 0."""
        return (int(guild) >> 22 if guild else 0) % self.shard[1] == self.shard[0]


@dataclass(frozen=True)
class Ping:
    """Whom one call of the bot would have notified (or, by an edit, highlighted)."""

    message: str
    channel: str
    via: str  # create, edit, callback, followup, post
    users: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    everyone: frozenset[str] = frozenset()  # of "everyone" and "here"

    def __bool__(self) -> bool:
        return bool(self.users or self.roles or self.everyone)
