"""The table of REST routes, filled by the ``routes_`` modules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.servers.discord.model import Json
from tests.servers.discord.uploads import Upload

if TYPE_CHECKING:
    from tests.servers.discord.server import DiscordServer


@dataclass(frozen=True)
class Request:
    """A REST request after reading: parts of its path by letter, query, body and files."""

    method: str
    path: dict[str, str]
    query: dict[str, str]
    body: Json
    files: list[Upload]


Handler = Callable[["DiscordServer", Request], Awaitable[Any] | Any]
ROUTES: list[tuple[str, str, Handler]] = []


def route(method: str, path: str) -> Callable[[Handler], Handler]:
    """Serve a path.

    Its parts: {a} application, {c} channel, {e} emoji, {g} guild, {i} interaction, {m} message, {t} token, {u} user.
    """

    def keep(handler: Handler) -> Handler:
        ROUTES.append((method, path, handler))
        return handler

    return keep
