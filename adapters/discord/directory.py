"""Which place a message stands in, and what channels and roles are called: from the gateway's cache, else asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import discord
from discord.http import Route

from adapters.chat import AdapterError
from adapters.discord.calls import DiscordCalls
from adapters.discord.files import FILE_MAX
from adapters.discord.outcome import UNKNOWN_CHANNEL, Failed
from adapters.discord.parse import Channel, parse_channel
from adapters.discord.wire import wire_of
from adapters.markdown.bidi import clean_name

CALL_S = 10.0

KIND = "place"

_HIDDEN = frozenset({401, 403, 404})


class PlaceUnknown(AdapterError):
    """Discord did not tell what a channel is; it may, a little later."""


@dataclass(frozen=True, slots=True)
class _Entry:
    channel: Channel | None
    until: float


class DiscordDirectory:
    """Knows channels and roles. The gateway tells of all that exist when a session begins, and of every change.

    Asked for are only threads that were archived before, and conversations that began earlier.

    Args:
        calls: for asking.
        monotonic: the clock of the entries' age.
        ttl_s: how long an answer counts.
        most: answers that are kept (the oldest are forgotten).
    """

    def __init__(
        self, calls: DiscordCalls, *, monotonic: Callable[[], float], ttl_s: float = 600.0, most: int = 2_000
    ) -> None:
        self._calls = calls
        self._monotonic = monotonic
        self._ttl_s = ttl_s
        self._most = most
        self._client: discord.Client | None = None
        self._asked: dict[str, _Entry] = {}

    def attach(self, client: discord.Client) -> None:
        """Look into this client's cache from now on."""
        self._client = client

    def find_known(self, channel: str, guild: str) -> Channel | None:
        """Return what is known of a channel without asking; None when that is nothing.

        Args:
            channel: its id.
            guild: the guild it is in, empty for a direct conversation.
        """
        if not guild:
            return Channel(id=channel)
        found = self._cached(channel, guild)
        if found is not None:
            parent, owner = (found.parent_id, found.owner_id) if isinstance(found, discord.Thread) else ("", "")
            return Channel(id=channel, guild=guild, parent=str(parent), name=clean_name(found.name), owner=str(owner))
        entry = self._asked.get(channel)
        return entry.channel if entry is not None and self._monotonic() < entry.until else None

    async def find(self, channel: str, guild: str) -> Channel | None:
        """Return what a channel is; None when it does not exist or is hidden from us.

        Raises:
            PlaceUnknown: Discord did not tell.
        """
        known = self.find_known(channel, guild)
        if known is not None:
            return known
        entry = self._asked.get(channel)
        if entry is not None and self._monotonic() < entry.until:
            return None
        # that it is not there yet is remembered here, and keeps nobody from posting
        answer = await self._calls.call(
            Route("GET", "/channels/{channel_id}", channel_id=channel),
            KIND,
            channel,
            timeout_s=CALL_S,
            again=False,
            passing=UNKNOWN_CHANNEL,
        )
        if isinstance(answer, Failed) and answer.status not in _HIDDEN:
            raise PlaceUnknown(f"discord: channel {channel} could not be looked up ({answer.said})")
        found = None if isinstance(answer, Failed) else parse_channel(wire_of(answer.data), guild)
        self._asked.pop(channel, None)
        self._asked[channel] = _Entry(found, self._monotonic() + self._ttl_s)
        while len(self._asked) > self._most:
            del self._asked[next(iter(self._asked))]
        return found

    def find_own_role(self, guild: str) -> str:
        """Return the role that Discord made for us in a guild, empty when there is none or none is known."""
        there = self._guild(guild)
        role = there.self_role if there is not None else None
        return str(role.id) if role is not None else ""

    def name_channel(self, guild: str, channel: str) -> str:
        """Name a channel or thread of a guild; empty when it is not known."""
        known = self.find_known(channel, guild) if guild else None
        return known.name if known is not None else ""

    def name_role(self, guild: str, role: str) -> str:
        """Name a role of a guild; empty when it is not known."""
        there = self._guild(guild)
        found = there.get_role(int(role)) if there is not None else None
        return clean_name(found.name) if found is not None else ""

    def find_file_max(self, guild: str) -> int:
        """Return how many bytes of one file a guild takes; the least that Discord takes where that is not known."""
        there = self._guild(guild)
        return there.filesize_limit if there is not None else FILE_MAX

    def _guild(self, guild: str) -> discord.Guild | None:
        return self._client.get_guild(int(guild)) if self._client is not None and guild.isdecimal() else None

    def _cached(self, channel: str, guild: str) -> discord.abc.GuildChannel | discord.Thread | None:
        there = self._guild(guild)
        return there.get_channel_or_thread(int(channel)) if there is not None else None
