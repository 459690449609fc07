"""Who we are, what we may read, and where the gateway is: three calls before the first connection."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp
import structlog
from discord.http import Route

from adapters.chat import AdapterError, AdapterNotConfigured
from adapters.discord.budget import GatewayInfo, parse_gateway
from adapters.discord.http import DiscordHttp
from adapters.discord.parse import Identity, parse_identity
from adapters.discord.wire import Wire, wire_of

log = structlog.get_logger("hermod.discord")

CALL_S = 15.0

TOKEN_PAGE = "discord.com/developers/applications, page Bot"  # noqa: S105 - where people find one


class DiscordUnreachable(AdapterError):
    """Discord did not answer, or not with what was asked for; it may, a little later."""


async def fetch_identity(http: DiscordHttp) -> Identity:
    """Ask who the token belongs to.

    Raises:
        AdapterNotConfigured: the token is refused, or no bot's.
        DiscordUnreachable: there was no answer.
    """
    user, application = await _fetch(http, "/users/@me"), await _fetch(http, "/applications/@me")
    identity = parse_identity(user, application)
    if identity is None:
        raise AdapterNotConfigured(f"discord: the token is no bot's; take one from {TOKEN_PAGE}")
    if application.get("interactions_endpoint_url"):
        log.warning(
            "discord_commands_go_elsewhere",
            fix="empty Interactions Endpoint URL (discord.com/developers/applications, General Information)",
        )
    return identity


async def fetch_gateway(http: DiscordHttp) -> GatewayInfo:
    """Ask where the gateway is, and how often it may be used.

    Raises:
        AdapterNotConfigured: the token is refused.
        DiscordUnreachable: there was no answer.
    """
    info = parse_gateway(await _fetch(http, "/gateway/bot"))
    if info is None:
        raise DiscordUnreachable("discord: GET /gateway/bot named no gateway")
    return info


async def _fetch(http: DiscordHttp, path: str) -> Wire:
    try:
        answer = await http.attempt(Route("GET", path), timeout_s=CALL_S)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise DiscordUnreachable(f"discord: GET {path} failed ({type(error).__name__})") from error
    if answer.status == 401:
        raise AdapterNotConfigured(f"discord: the token is refused; reset it ({TOKEN_PAGE}) and set discord.token")
    if answer.status != 200 or not isinstance(answer.data, Mapping):
        raise DiscordUnreachable(f"discord: GET {path} failed (HTTP {answer.status})")
    return wire_of(answer.data)
