"""Looks at Discord's channels and people, before something is promised for later.

docs.discord.com/developers/resources/channel#get-channel, .../guild#get-guild, .../guild#get-guild-member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

from adapters.chat import COMMAND_THREAD, Author, ThreadRef
from adapters.discord.client import DiscordClient
from adapters.discord.content import read_name
from adapters.discord.outcome import NO_ACCESS, UNKNOWN_CHANNEL, UNKNOWN_MEMBER, UNKNOWN_USER, Failed
from adapters.discord.parse import DIRECT, Channel, parse_channel, parse_thread
from adapters.discord.permissions import NEEDED, compute_granted, list_missing
from adapters.discord.wire import Wire, flag_of, id_of, ids_of, part_of, parts_of
from adapters.places import ChannelLook, Glance, PersonLook

LOOK_S = 10.0
"""The longest time of a look, whatever it has to wait for."""

UNNEEDED = frozenset({"Add Reactions", "Use External Emoji"})
"""Of ``NEEDED``: what a post, its thread and the answers in it can do without."""

NO_THREADS: Mapping[int, str] = MappingProxyType(
    {
        2: "it is a voice channel, which has no threads",
        4: "it is a category, which holds channels and no messages",
        10: "it is a thread, in which no further one can be opened",
        11: "it is a thread, in which no further one can be opened",
        12: "it is a thread, in which no further one can be opened",
        13: "it is a stage, which has no threads",
        14: "it is a directory of servers",
        15: "it is a forum, in which every message is a post of its own",
        16: "it is a media channel, in which every message is a post of its own",
    }
)
"""Types of channels that take no post with a thread below it
(docs.discord.com/developers/resources/channel#channel-object-channel-types)."""

_OTHER = "choose a text channel or an announcement channel"
_LATER = "try again later"
_LATE = "Discord did not answer in time"


class DiscordPlaces:
    """See ``adapters.places.HasPlaces``. A channel that is open, and a person who is here, are known for a moment.

    Args:
        client: the REST API, with its turns.
        monotonic: the clock, seconds.
    """

    def __init__(self, client: DiscordClient, *, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._channels: Glance[ChannelLook] = Glance(monotonic)
        self._people: Glance[PersonLook] = Glance(monotonic)

    async def look_at_channel(self, workspace: str, channel: str) -> ChannelLook:
        """Tell whether Hermod can post in a channel, with files and with a thread below."""
        if (known := self._channels.find(workspace, channel)) is not None:
            return known
        if not channel.isdecimal():
            return ChannelLook(state="gone", what=f"{channel} is no id of a channel", fix="copy the channel's id")
        try:
            async with asyncio.timeout(LOOK_S):
                look = await self._ask_channel(workspace, channel)
        except TimeoutError:
            return ChannelLook(state="unknown", what=_LATE, fix=_LATER)
        if look.state == "open":
            self._channels.keep(workspace, channel, look)
        return look

    async def look_at_person(self, workspace: str, user: str) -> PersonLook:
        """Tell whether a person is still in a server, and what they are, as of the messages that they write."""
        if (known := self._people.find(workspace, user)) is not None:
            return known
        if not user.isdecimal():
            return PersonLook(state="gone")
        try:
            async with asyncio.timeout(LOOK_S):
                look = await self._ask_person(workspace, user)
        except TimeoutError:
            return PersonLook(state="unknown")
        if look.state == "here":
            self._people.keep(workspace, user, look)
        return look

    async def _ask_channel(self, workspace: str, channel_id: str) -> ChannelLook:
        wire = await self._client.look_at_channel(channel_id)
        if isinstance(wire, Failed):
            return _read_failed(wire, name="")
        channel = parse_channel(wire)
        if channel is None:
            return ChannelLook(state="unknown", what="Discord's answer could not be read", fix=_LATER)
        if (channel.guild or DIRECT) != workspace:
            what = "the channel is not in this server"
            return ChannelLook(state="gone", what=what, fix="copy the ids of the channel and of its own server")
        if not channel.guild:
            return ChannelLook(state="open")
        kind = wire.get("type")
        if isinstance(kind, int) and kind in NO_THREADS:
            name = f"#{channel.name}"
            return ChannelLook(state="closed", name=name, what=f"{name}: {NO_THREADS[kind]}", fix=_OTHER)
        return await self._ask_rights(channel, wire)

    async def _ask_rights(self, channel: Channel, wire: Wire) -> ChannelLook:
        name, own = f"#{channel.name}", await self._client.fetch_own_id()
        guild = await self._client.fetch_guild(channel.guild)
        if isinstance(guild, Failed):
            return _read_failed(guild, name=name)
        member = await self._client.fetch_member(channel.guild, own) if own else None
        if member is None or isinstance(member, Failed):
            what = member.said if member is not None else "Discord does not tell who Hermod is now"
            return ChannelLook(state="unknown", name=name, what=what, fix=_LATER)
        granted = compute_granted(
            guild_id=channel.guild,
            owner_id=id_of(guild, "owner_id"),
            user_id=own,
            role_ids=ids_of(member, "roles"),
            roles=parts_of(guild, "roles"),
            channel=wire,
        )
        missing = ", ".join(p.name for p in list_missing(granted) if p.name not in UNNEEDED)
        if not missing:
            return ChannelLook(state="open", name=name)
        fix = f"in the settings of {name}, Permissions, allow Hermod's role: {missing}"
        return ChannelLook(state="closed", name=name, what=f"in {name} Hermod may not: {missing}", fix=fix)

    async def _ask_person(self, workspace: str, user: str) -> PersonLook:
        direct = workspace == DIRECT
        answer = await (self._client.fetch_user(user) if direct else self._client.fetch_member(workspace, user))
        if isinstance(answer, Failed):
            return PersonLook(state="gone" if answer.code in (UNKNOWN_MEMBER, UNKNOWN_USER) else "unknown")
        person = answer if direct else part_of(answer, "user")
        if id_of(person, "id") != user:
            return PersonLook(state="unknown")
        author = Author(id=user, name=read_name(person, {} if direct else answer), bot=flag_of(person, "bot"))
        return PersonLook(state="here", author=author)


def thread_below(thread: ThreadRef, remote_id: str) -> ThreadRef:
    """Return the thread below a post that stands in the channel itself; what stands in a thread is below it already.

    It has the post's id, and is opened when something has to stand in it. A direct conversation has no threads.
    """
    if not thread.thread.startswith(COMMAND_THREAD) or not remote_id.isdecimal():
        return thread
    guild = "" if thread.workspace == DIRECT else thread.workspace
    return parse_thread(Channel(id=thread.channel, guild=guild), remote_id) or thread


def _read_failed(failed: Failed, *, name: str) -> ChannelLook:
    if failed.is_gone:
        what = "there is no such channel" if failed.code == UNKNOWN_CHANNEL else "there is no such server"
        return ChannelLook(state="gone", name=name, what=what, fix="check its id, or choose another channel")
    if failed.code == NO_ACCESS:
        what = "the channel is hidden from Hermod, or Hermod is not in its server"
        fix = f"in the channel's settings, Permissions, allow Hermod's role: {NEEDED[0].name}"
        return ChannelLook(state="closed", name=name, what=what, fix=fix)
    return ChannelLook(state="unknown", name=name, what=failed.said, fix=_LATER)
