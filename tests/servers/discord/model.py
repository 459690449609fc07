"""What the Discord server is made of: calls, faults, interactions, sessions and errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Json = dict[str, Any]
EPOCH_MS = 1_420_070_400_000
GUILDS, MEMBERS, GUILD_MESSAGES, GUILD_REACTIONS, DIRECT_MESSAGES, MESSAGE_CONTENT = (
    1 << 0,
    1 << 1,
    1 << 9,
    1 << 10,
    1 << 12,
    1 << 15,
)
ALL_PERMISSIONS = str((1 << 50) - 1)
TEXT, DM, PUBLIC_THREAD = 0, 1, 11
EPHEMERAL, LOADING, HAS_THREAD = 1 << 6, 1 << 7, 1 << 5


class ApiError(Exception):
    """A REST error: HTTP status, Discord's numeric code, message and field errors."""

    def __init__(self, status: int, code: int, message: str, errors: Json | None = None) -> None:
        super().__init__(f"{status} {code} {message}")
        self.status = status
        self.headers: dict[str, str] = {}
        self.body: Json = {"message": message, "code": code, **({"errors": errors} if errors else {})}


@dataclass
class Call:
    method: str
    path: str
    body: Json
    at: float
    status: int = 0


@dataclass
class Fault:
    """Applied to the next ``times`` REST calls whose 'METHOD /path' matches ``pattern``."""

    pattern: str
    times: int = 1
    http: int = 500
    retry_after: float = 0.5
    is_global: bool = False
    delay: float = 0.0
    after: bool = False  # do the work, then fail


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


@dataclass
class Session:
    id: str
    intents: int
    ws: web.WebSocketResponse | None
    inflate: Any
    seq: int = 0
    log: list[Json] = field(default_factory=list)
    heartbeats: int = 0


def _invalid(where: str, code: str, message: str) -> ApiError:
    return ApiError(400, 50035, "Invalid Form Body", {where: {"_errors": [{"code": code, "message": message}]}})


def _limited(retry_after: float, is_global: bool) -> ApiError:
    error = ApiError(429, 0, "You are being rate limited.")
    error.headers = {
        "Retry-After": str(max(1, round(retry_after + 0.5))),
        "X-RateLimit-Scope": "global" if is_global else "user",
        **({"X-RateLimit-Global": "true"} if is_global else {"X-RateLimit-Reset-After": str(retry_after)}),
    }
    error.body = {"message": "You are being rate limited.", "retry_after": retry_after, "global": is_global}
    return error
