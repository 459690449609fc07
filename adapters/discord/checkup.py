"""A look at a Discord application from outside, for ``hermod doctor``: what is missing, and what to click."""

from __future__ import annotations

import asyncio
import email.utils
import re
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta

import yarl
from discord.http import Route

from adapters.chat import Problem
from adapters.discord.budget import FREE, GatewayInfo, find_wait, parse_gateway
from adapters.discord.http import API_URL, Answer, DiscordHttp, find_proxy
from adapters.discord.outcome import CALL_ERRORS, NO_ACCESS, UNKNOWN_CHANNEL, Failed, build_broken, build_failed
from adapters.discord.parse import Channel, Identity, parse_channel, parse_identity
from adapters.discord.permissions import INTEGER, Permission, build_invite_url, compute_granted, list_missing
from adapters.discord.wire import Wire, id_of, ids_of, parts_of, text_of, wire_of

PAGES = "discord.com/developers/applications, your application"
FIX_TOKEN = f'{PAGES}, page "Bot", "Reset Token": set the new one as [discord] token'
FIX_INTENT = f'{PAGES}, page "Bot", "Privileged Gateway Intents": switch "Message Content Intent" on'
FIX_ENDPOINT = f'{PAGES}, page "General Information": empty "Interactions Endpoint URL", and save'
FIX_GRANT = f'{PAGES}, page "Bot": switch "Requires OAuth2 Code Grant" off'
FIX_GATEWAY = "let a proxy or firewall pass wss:// to Discord, or check gateway_url"
FIX_STARTS = "find out why Hermod is started so often (its log, the service that restarts it)"
FIX_CLOCK = "let the machine keep its time (timedatectl set-ntp true, or chrony)"

SKEW_WARN_S = 30.0
"""Hermod tells the age of a command by its own clock: after fourteen minutes it answers in another way."""

CALL_S = 15.0
HELLO_S = 5.0
MOST_CHANNELS, MOST_GUILDS = 50, 20

_SECRET = re.compile(r"[A-Za-z0-9_-]{32}")


class DiscordCheckup:
    """Looks at one application with its bot token. ``check`` never raises; ``stop`` closes the connections.

    Args:
        token: of ``[discord]``; empty where it is not set.
        api_url: base of the REST API, with its version.
        gateway_url: of the settings; None for where Discord says.
        guild_ids: servers that alone get the commands.
        shard_count: of the settings.
        channels: ids of channels that the settings name, each with the setting's name.
        now, monotonic: the clock.
    """

    def __init__(
        self,
        token: str,
        api_url: str = API_URL,
        *,
        gateway_url: str | None = None,
        guild_ids: Collection[str] = (),
        shard_count: int | None = None,
        channels: Mapping[str, str] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token = token.strip()
        self._http = DiscordHttp(api_url=api_url, token=self._token)
        self._gateway_url = gateway_url or ""
        self._guild_ids = tuple(guild_ids)
        self._shard_count = shard_count
        self._channels = dict(channels or {})
        self._now = now
        self._monotonic = monotonic
        self._guilds: dict[str, _Guild | Failed] = {}
        self.invite_url = ""

    @property
    def fine(self) -> str:
        """What is as it should be, with the link that adds Hermod to a further server."""
        link = f"; it is added to a server, with the permissions {INTEGER}, by {self.invite_url}"
        return f"token, intents, gateway, clock, channels and permissions are as they should be{link}"

    async def check(self) -> tuple[Problem, ...]:
        """Look at token, clock, application, gateway, servers and channels, in this order."""
        if not self._token:
            return (Problem(what="discord: token is missing", fix=FIX_TOKEN),)
        begun, before = self._monotonic(), self._now()
        user = await self._get("/users/@me")
        if isinstance(user, Failed):
            return (self._judge_first(user),)
        problems = [*_check_clock(user, before, self._monotonic() - begun)]
        application = await self._get("/applications/@me")
        if isinstance(application, Failed) and application.status not in (401, 403, 404):
            what = f"discord: the application could not be looked at: {application.said}"
            return (*problems, Problem(what=what, fix="try again in a moment", fatal=False))
        told = {} if isinstance(application, Failed) else wire_of(application.data)
        identity = parse_identity(wire_of(user.data), told)
        if identity is None:
            return (*problems, Problem(what="discord: the token belongs to no bot", fix=FIX_TOKEN))
        self.invite_url = build_invite_url(identity.application)
        problems += _check_application(identity, told)
        problems += await self._check_gateway()
        problems += await self._check_guilds(identity)
        for channel, where in list(self._channels.items())[:MOST_CHANNELS]:
            problems += await self._check_channel(identity, channel, where)
        return tuple(problems)

    async def stop(self) -> None:
        """Close every connection. Safe to call twice."""
        await self._http.close()

    def _judge_first(self, failed: Failed) -> Problem:
        if failed.status == 401:
            return Problem(what=f"discord: the token is refused{_guess(self._token)}", fix=FIX_TOKEN)
        return Problem(what=f"discord: {failed.said}", fix="check api_url and the network", fatal=False)

    # -- the gateway
    async def _check_gateway(self) -> list[Problem]:
        answer = await self._get("/gateway/bot")
        info = None if isinstance(answer, Failed) else parse_gateway(wire_of(answer.data))
        if info is None:
            said = answer.said if isinstance(answer, Failed) else "it names no gateway"
            return [Problem(what=f"discord: GET /gateway/bot: {said}", fix="try again later", fatal=False)]
        problems = [*_check_starts(info)]
        if self._shard_count is not None and self._shard_count < info.shards:
            what = f"discord: Discord advises {info.shards} shards, discord.shard_count is {self._shard_count}"
            problems.append(Problem(what=what, fix="raise it, or leave it out", fatal=False))
        return [*problems, *await self._check_socket(self._gateway_url or info.url)]

    async def _check_socket(self, url: str) -> list[Problem]:
        """Open one connection for a moment, without saying who we are: that costs no start."""
        try:
            target = yarl.URL(url).update_query({"v": "10", "encoding": "json"})
            async with (
                asyncio.timeout(HELLO_S),
                self._http.session.ws_connect(
                    target,
                    proxy=find_proxy(url.replace("ws", "http", 1)),
                    headers={"User-Agent": self._http.user_agent},
                ) as socket,
            ):
                greeting = await socket.receive_json()
        except (*CALL_ERRORS, TypeError, ValueError) as error:
            what = f"discord: the gateway could not be reached ({type(error).__name__})"
            return [Problem(what=what, fix=FIX_GATEWAY)]
        if wire_of(greeting).get("op") != 10:
            return [Problem(what="discord: what answers at the gateway's address is no gateway", fix=FIX_GATEWAY)]
        return []

    # -- servers and channels
    async def _check_guilds(self, identity: Identity) -> list[Problem]:
        """Look at the servers where the commands are to be, else at those where Hermod is."""
        problems: list[Problem] = []
        for guild in self._guild_ids:
            if isinstance(await self._find_guild(identity, guild), Failed):
                what = f"discord: Hermod is not in the server {guild} of discord.guild_ids"
                fix = f"add it: {build_invite_url(identity.application, guild)}"
                problems.append(Problem(what=what, fix=fix, fatal=False))
        answer = await self._get("/users/@me/guilds")
        if isinstance(answer, Failed):
            return problems
        joined = [id_of(wire_of(guild), "id") for guild in answer.data] if isinstance(answer.data, list) else []
        if not joined:
            what = "discord: Hermod is in no server yet"
            problems.append(Problem(what=what, fix=f"add it: {self.invite_url}", fatal=False))
        for guild in joined[:MOST_GUILDS]:
            problems += await self._check_guild(identity, guild)
        return problems

    async def _check_guild(self, identity: Identity, guild_id: str) -> list[Problem]:
        guild = await self._find_guild(identity, guild_id)
        if isinstance(guild, Failed):
            return []
        problems = []
        link = build_invite_url(identity.application, guild_id)
        if missing := list_missing(guild.granted(identity.user, {})):
            what = f"discord: in the server {guild.name} Hermod may not: {_name(missing)}"
            problems.append(Problem(what=what, fix=f"add it once more with all it needs: {link}", fatal=False))
        path = f"/applications/{identity.application}/guilds/{guild_id}/commands"
        commands = await self._get(path)
        if isinstance(commands, Failed) and commands.code == NO_ACCESS:
            what = f"discord: in the server {guild.name} Hermod may have no commands"
            problems.append(Problem(what=what, fix=f"add it once more with this scope: {link}", fatal=False))
        return problems

    async def _check_channel(self, identity: Identity, channel_id: str, where: str) -> list[Problem]:
        answer = await self._get(f"/channels/{channel_id}")
        if isinstance(answer, Failed):
            if answer.code not in (UNKNOWN_CHANNEL, NO_ACCESS):
                return []
            why = "does not exist" if answer.code == UNKNOWN_CHANNEL else "is hidden from Hermod"
            fix = f"take it out of {where}, or let Hermod see it: its settings, Permissions, View Channel"
            return [Problem(what=f"discord: the channel {channel_id} of {where} {why}", fix=fix, fatal=False)]
        wire = wire_of(answer.data)
        channel = parse_channel(wire)
        if channel is None or not channel.guild:
            return []
        guild = await self._find_guild(identity, channel.guild)
        if isinstance(guild, Failed):
            return []
        missing = list_missing(guild.granted(identity.user, await self._find_rules(channel, wire)))
        # what the whole server lacks was told already
        missing = tuple(p for p in missing if p not in list_missing(guild.granted(identity.user, {})))
        if not missing:
            return []
        what = f"discord: in #{channel.name} ({channel_id}) of {where} Hermod may not: {_name(missing)}"
        fix = "in the channel's settings, Permissions, allow this for Hermod's role"
        return [Problem(what=what, fix=fix, fatal=False)]

    async def _find_rules(self, channel: Channel, wire: Wire) -> Wire:
        """Return the channel whose overwrites count: of a thread the one that holds it."""
        if not channel.is_thread:
            return wire
        parent = await self._get(f"/channels/{channel.parent}")
        return {} if isinstance(parent, Failed) else wire_of(parent.data)

    async def _find_guild(self, identity: Identity, guild_id: str) -> _Guild | Failed:
        known = self._guilds.get(guild_id)
        if known is None:
            known = self._guilds[guild_id] = await self._fetch_guild(identity, guild_id)
        return known

    async def _fetch_guild(self, identity: Identity, guild_id: str) -> _Guild | Failed:
        guild, member = (
            await self._get(f"/guilds/{guild_id}"),
            await self._get(f"/guilds/{guild_id}/members/{identity.user}"),
        )
        if isinstance(guild, Failed):
            return guild
        return member if isinstance(member, Failed) else _Guild(wire_of(guild.data), wire_of(member.data))

    async def _get(self, path: str) -> Answer | Failed:
        try:
            answer = await self._http.attempt(Route("GET", path), timeout_s=CALL_S)
        except CALL_ERRORS as error:
            return build_broken(error)
        return answer if answer.status == 200 else build_failed(answer)


class _Guild:
    """A server, and what Hermod is there."""

    def __init__(self, guild: Wire, member: Wire) -> None:
        self._guild = guild
        self._role_ids = ids_of(member, "roles")
        self.name = text_of(guild, "name") or id_of(guild, "id")

    def granted(self, user: str, channel: Wire) -> int:
        """Return what Hermod may do in a channel; in the server as a whole where it is empty."""
        return compute_granted(
            guild_id=id_of(self._guild, "id"),
            owner_id=id_of(self._guild, "owner_id"),
            user_id=user,
            role_ids=self._role_ids,
            roles=parts_of(self._guild, "roles"),
            channel=channel,
        )


def _guess(token: str) -> str:
    """Say what else was copied, as far as its form tells; never the token itself."""
    if token.lower().startswith("bot "):
        return '; leave out the word "Bot" before it'
    if _SECRET.fullmatch(token):
        return "; it looks like the application's client secret"
    return "" if token.count(".") == 2 else "; it has not the form of a bot token"


def _name(missing: Collection[Permission]) -> str:
    return ", ".join(f"{permission.name} ({permission.use})" for permission in missing)


def _check_application(identity: Identity, told: Wire) -> list[Problem]:
    problems = []
    if not identity.reads_all:
        what = "discord: the Message Content Intent is off: in a thread Hermod reads only what mentions it"
        problems.append(Problem(what=what, fix=FIX_INTENT, fatal=False))
    if told.get("interactions_endpoint_url"):
        what = "discord: commands and buttons go to the application's Interactions Endpoint URL, not to Hermod"
        problems.append(Problem(what=what, fix=FIX_ENDPOINT))
    if told.get("bot_require_code_grant") is True:
        what = "discord: the invite link does not work, since the application requires a code grant"
        problems.append(Problem(what=what, fix=FIX_GRANT, fatal=False))
    return problems


def _check_starts(info: GatewayInfo) -> list[Problem]:
    if info.remaining > info.total * FREE:
        return []
    wait_s = find_wait(info)
    what = (
        f"discord: {info.remaining} of the {info.total} starts of a day are left, "
        f"so a start waits for {timedelta(seconds=round(wait_s))} (h:mm:ss)"
    )
    return [Problem(what=what, fix=FIX_STARTS, fatal=wait_s >= info.reset_after_s)]


def _check_clock(answer: Answer, before: datetime, took_s: float) -> list[Problem]:
    """Compare the Date of Discord's answer with our clock, as of the middle of the call."""
    try:
        theirs = email.utils.parsedate_to_datetime(answer.headers.get("date", ""))
    except ValueError:
        return []
    # the header has whole seconds, so half a second is added to what it says
    skew_s = theirs.timestamp() + 0.5 - (before.timestamp() + took_s / 2)
    if abs(skew_s) - (took_s / 2 + 0.5) < SKEW_WARN_S:
        return []
    side = "behind" if skew_s > 0 else "ahead of"
    what = f"discord: this machine's clock is {abs(skew_s):.0f} s {side} Discord's"
    return [Problem(what=what, fix=FIX_CLOCK, fatal=False)]
