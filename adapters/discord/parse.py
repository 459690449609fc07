"""From Discord's gateway events to the contract's values. The only place that makes a Discord ``ThreadRef``.

Wire data is read defensively: what is not understood gives None and is left alone. References:
docs.discord.com/developers/events/gateway-events (Message Create, Update, Delete, Delete Bulk, Guild Delete),
docs.discord.com/developers/resources/message and .../channel (types).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from adapters.chat import Author, Deleted, FileRef, Message, Removed, ThreadRef
from adapters.discord.content import ROLE, USER, Names, markup_of, quoted_of, read_markup, read_name, snapshots_of
from adapters.discord.wire import (
    Wire,
    flag_of,
    id_of,
    ids_of,
    number_of,
    parse_time,
    part_of,
    parts_of,
    text_of,
    time_of,
)
from adapters.markdown.bidi import clean_name

PLATFORM = "discord"

DIRECT = "@me"
"""The workspace of a direct message, as Discord's own addresses call it."""

SAID_TYPES = (0, 19)
"""Types of messages that somebody wrote: an ordinary one and a reply. All others are the system's, or a command's."""

EDITED_MENTION_S = 72_000.0
"""An edit of a message that is older than this is not answered: Discord does not tell whether the mention was there
before, and the message may have been answered so long ago that it is not remembered."""

MESSAGE_CONTENT_FLAGS = 1 << 18 | 1 << 19
"""Flags of an application that may read messages which do not mention it: verified for it, or small enough
(docs.discord.com/developers/resources/application, "Application Flags")."""

_DM = 1
_THREADS = (10, 11, 12)

NOBODY = Author(id="unknown", name="unknown", unknown=True)
"""Discord does not tell who deleted a message, nor who had written it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who we are. ``reads_all``: messages that do not mention us come with their content."""

    user: str
    application: str
    name: str = ""
    reads_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A place where messages stand.

    Args:
        id: its id.
        guild: the guild it belongs to, empty for a direct conversation.
        parent: of a thread: the channel that holds it; else empty.
        name: as people see it.
        owner: of a thread: who opened it; for one that we opened, ourselves.
    """

    id: str
    guild: str = ""
    parent: str = ""
    name: str = ""
    owner: str = ""

    @property
    def is_thread(self) -> bool:
        """True for a thread, a post in a forum included."""
        return bool(self.parent)


def parse_identity(user: Wire, application: Wire) -> Identity | None:
    """Read ``GET /users/@me`` and ``GET /applications/@me``; None when they name no bot."""
    own, app = id_of(user, "id"), id_of(application, "id")
    if not (own and app):
        return None
    reads_all = bool(number_of(application, "flags") & MESSAGE_CONTENT_FLAGS)
    return Identity(user=own, application=app, name=read_name(user, {}), reads_all=reads_all)


def parse_channel(wire: Wire, guild: str = "") -> Channel | None:
    """Read a channel object; None when it is none."""
    channel, kind = id_of(wire, "id"), wire.get("type")
    if not channel or not isinstance(kind, int):
        return None
    parent = id_of(wire, "parent_id") if kind in _THREADS else ""
    return Channel(
        id=channel,
        guild="" if kind == _DM else id_of(wire, "guild_id") or guild,
        parent=parent,
        name=clean_name(text_of(wire, "name")),
        owner=id_of(wire, "owner_id"),
    )


def parse_thread(channel: Channel, message: str) -> ThreadRef | None:
    """Make the address of what belongs to ``message`` in ``channel``, or None when a part is missing.

    A thread that is opened on a message has the message's id, so the address is known before there is a thread.
    """
    if not channel.guild:
        workspace, parent, thread = DIRECT, channel.id, channel.id
    elif channel.is_thread:
        workspace, parent, thread = channel.guild, channel.parent, channel.id
    else:
        workspace, parent, thread = channel.guild, channel.id, message
    try:
        return ThreadRef(platform=PLATFORM, workspace=workspace, channel=parent, thread=thread)
    except ValueError:
        return None


def is_ours(said: Wire, identity: Identity) -> bool:
    """True for our own words, also those that answer a command."""
    return id_of(part_of(said, "author"), "id") == identity.user or (
        id_of(said, "application_id") == identity.application != ""
    )


def mentions_us(said: Wire, identity: Identity, own_role: str) -> bool:
    """Tell whether a message mentions us or the role that Discord made for us; @everyone and @here do not.

    ``mentions`` leaves out what stands in code; a reply that pings us is in it. Only where it is missing the content
    is looked at.
    """
    if isinstance(said.get("mentions"), list):
        named = any(id_of(user, "id") == identity.user for user in parts_of(said, "mentions"))
    else:
        named = identity.user in USER.findall(text_of(said, "content"))
    return named or (own_role != "" and own_role in ids_of(said, "mention_roles"))


def is_for_us(said: Wire, identity: Identity, own_role: str, bots: Collection[str]) -> bool:
    """Tell whether a message can count at all, whoever it addresses.

    Own words, the system's and webhooks' do not. Another bot has to be one of ``bots`` and to write our mention
    itself: a reply that pings us does not suffice, or two bots would thank each other for ever.
    """
    author = part_of(said, "author")
    who = id_of(author, "id")
    if not who or said.get("type", 0) not in SAID_TYPES or is_ours(said, identity):
        return False
    if not (flag_of(author, "bot") or id_of(said, "webhook_id") or flag_of(author, "system")):
        return True
    if who not in bots or not mentions_us(said, identity, own_role):
        return False
    content = text_of(said, "content")
    return identity.user in USER.findall(content) or (own_role != "" and own_role in ROLE.findall(content))


def is_readable(said: Wire) -> bool:
    """False for a message that came without anything in it, as it does where its content is kept from us."""
    parts = ("content", "attachments", "embeds", "components", "sticker_items", "poll", "message_snapshots")
    return any(said.get(part) for part in parts)


def parse_message(said: Wire, channel: Channel, identity: Identity, names: Names, own_role: str = "") -> Message | None:
    """Read a message; see ``is_for_us`` for whether it counts.

    Args:
        said: a message object.
        channel: where it stands.
        identity: who we are.
        names: of channels and roles.
        own_role: the role that Discord made for us in this guild.
    """
    message, author = id_of(said, "id"), part_of(said, "author")
    thread = parse_thread(channel, message)
    if thread is None or not message or not id_of(author, "id"):
        return None
    bot = flag_of(author, "bot") or bool(id_of(said, "webhook_id"))

    def read(text: str) -> str:
        return read_markup(text, said, names, guild=channel.guild, own=identity.user, own_role=own_role)

    return Message(
        thread=thread,
        id=message,
        author=Author(id=id_of(author, "id"), name=read_name(author, part_of(said, "member")), bot=bot),
        text=read(markup_of(said, bot=bot)),
        mentioned=mentions_us(said, identity, own_role),
        direct=not channel.guild,
        sent_at=parse_time(text_of(said, "timestamp")) or time_of(message),
        files=tuple(parse_files(said, channel.id, message)),
        quoted=read(quoted_of(said, bot=bot, own=identity.user, inside=channel.is_thread)),
    )


def is_edited(said: Wire, now: datetime) -> bool:
    """Tell whether an update is an edit by its author that may count: previews and threads that appear are none."""
    message = id_of(said, "id")
    if not message or not text_of(said, "edited_timestamp") or not isinstance(said.get("content"), str):
        return False
    return (now - time_of(message)).total_seconds() <= EDITED_MENTION_S


def parse_deleted(wire: Wire, channel: Channel, now: datetime) -> tuple[Deleted, ...]:
    """Read a deletion, of one message or of many."""
    ids = ids_of(wire, "ids") or tuple(filter(None, [id_of(wire, "id")]))
    gone = ((message, parse_thread(channel, message)) for message in ids)
    return tuple(
        Deleted(thread=thread, id=message, message_id=message, author=NOBODY, sent_at=now)
        for message, thread in gone
        if thread is not None
    )


def parse_removed(wire: Wire) -> Removed | None:
    """Read GUILD_DELETE: we were removed. None for an outage, in which Discord says that the guild is unavailable."""
    guild = id_of(wire, "id")
    return Removed(platform=PLATFORM, workspace=guild) if guild and "unavailable" not in wire else None


def parse_files(said: Wire, channel: str, message: str) -> list[FileRef]:
    """Read attachments, those of forwarded messages too. Their URLs end soon, so the address is where to ask again."""
    attached = [*parts_of(said, "attachments"), *(a for s in snapshots_of(said) for a in parts_of(s, "attachments"))]
    return [
        FileRef(
            id=id_of(file, "id"),
            name=clean_name(text_of(file, "filename")) or id_of(file, "id"),
            size=number_of(file, "size"),
            media_type=text_of(file, "content_type"),
            address=f"{channel}/{message}/{id_of(file, 'id')}",
        )
        for file in attached
        if id_of(file, "id")
    ]
