"""The table of REST routes, filled by the ``routes_`` modules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.servers.discord.model import Json

if TYPE_CHECKING:
    from tests.servers.discord.server import DiscordServer

Handler = Callable[["DiscordServer", web.Request, Json], Awaitable[Any] | Any]
ROUTES: list[tuple[str, str, Handler]] = []


def route(verb: str, path: str) -> Callable[[Handler], Handler]:
    def keep(fn: Handler) -> Handler:
        ROUTES.append((verb, path, fn))
        return fn

    return keep
