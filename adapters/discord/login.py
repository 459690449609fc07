"""Who we are, what we may read, and where the gateway is: three calls before the first connection."""

from __future__ import annotations

from collections.abc import Mapping

import structlog
from discord.http import Route

from adapters.chat import AdapterError, AdapterNotConfigured
from adapters.discord.budget import GatewayInfo, parse_gateway
from adapters.discord.calls import DiscordCalls
from adapters.discord.outcome import Failed
from adapters.discord.parse import Identity, parse_identity
from adapters.discord.wire import Wire, wire_of

log = structlog.get_logger("hermod.discord")

CALL_S = 15.0

KIND = "login"

TOKEN_PAGE = "discord.com/developers/applications, page Bot"  # noqa: S105 - where people find one


class DiscordUnreachable(AdapterError):
    """Discord did not answer, or not with what was asked for; it may, a little later."""


async def fetch_identity(calls: DiscordCalls) -> Identity:
    """Ask who the token belongs to.

    Raises:
        AdapterNotConfigured: the token is refused, or no bot's.
        DiscordUnreachable: there was no answer.
    """
    user, application = await _fetch(calls, "/users/@me"), await _fetch(calls, "/applications/@me")
    identity = parse_identity(user, application)
    if identity is None:
        raise AdapterNotConfigured(f"discord: the token is no bot's; take one from {TOKEN_PAGE}")
    if application.get("interactions_endpoint_url"):
        log.warning(
            "discord_commands_go_elsewhere",
            fix="empty Interactions Endpoint URL (discord.com/developers/applications, General Information)",
        )
    return identity


async def fetch_gateway(calls: DiscordCalls) -> GatewayInfo:
    """Ask where the gateway is, and how often it may be used.

    Raises:
        AdapterNotConfigured: the token is refused.
        DiscordUnreachable: there was no answer.
    """
    info = parse_gateway(await _fetch(calls, "/gateway/bot"))
    if info is None:
        raise DiscordUnreachable("discord: GET /gateway/bot named no gateway")
    return info


async def _fetch(calls: DiscordCalls, path: str) -> Wire:
    answer = await calls.call(Route("GET", path), KIND, path, timeout_s=CALL_S, again=False)
    if isinstance(answer, Failed):
        if answer.status == 401:
            raise AdapterNotConfigured(f"discord: the token is refused; reset it ({TOKEN_PAGE}) and set discord.token")
        raise DiscordUnreachable(f"discord: GET {path} failed ({answer.said})")
    if answer.status != 200 or not isinstance(answer.data, Mapping):
        raise DiscordUnreachable(f"discord: GET {path} failed (HTTP {answer.status})")
    return wire_of(answer.data)
