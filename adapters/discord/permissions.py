"""What Hermod may do on a Discord server: what it needs, the invite link that asks for it, and what a channel leaves.

Bits and the order in which roles and overwrites count: docs.discord.com/developers/topics/permissions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from adapters.discord.wire import Wire, id_of, number_of, parts_of

ADMINISTRATOR = 1 << 3
VIEW = 1 << 10
ALL = (1 << 64) - 1

AUTHORIZE_URL = "https://discord.com/oauth2/authorize"
SCOPES = ("bot", "applications.commands")


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """A permission, as Discord's settings name it, and what Hermod does with it."""

    bit: int
    name: str
    use: str


NEEDED: Sequence[Permission] = (
    Permission(bit=VIEW, name="View Channels", use="to see the channel at all"),
    Permission(bit=1 << 11, name="Send Messages", use="to answer in the channel"),
    Permission(bit=1 << 38, name="Send Messages in Threads", use="to answer in a thread"),
    Permission(bit=1 << 35, name="Create Public Threads", use="to begin a thread for a question"),
    Permission(bit=1 << 14, name="Embed Links", use="to lay something out"),
    Permission(bit=1 << 15, name="Attach Files", use="to post long answers and wide tables as files"),
    Permission(bit=1 << 16, name="Read Message History", use="to read a thread that is older than the question"),
    Permission(bit=1 << 6, name="Add Reactions", use="to show that a message was seen, or waits"),
    Permission(bit=1 << 18, name="Use External Emoji", use="to react with the server's own signs"),
)
"""What Hermod asks for when it is invited."""

INTEGER = sum(permission.bit for permission in NEEDED)
"""All of these as the one number that Discord's pages and links take."""


def build_invite_url(application_id: str, guild_id: str = "") -> str:
    """Build the link that lets an admin add Hermod to a server with all it needs; ``guild_id`` preselects the server.

    docs.discord.com/developers/topics/oauth2 (bot authorization flow).
    """
    asked = {"client_id": application_id, "permissions": str(INTEGER), "scope": " ".join(SCOPES)}
    if guild_id:
        asked["guild_id"] = guild_id
    return f"{AUTHORIZE_URL}?{urlencode(asked)}"


def list_missing(granted: int) -> tuple[Permission, ...]:
    """List what of ``NEEDED`` is not granted; without View Channels nothing else is looked at."""
    missing = tuple(permission for permission in NEEDED if not granted & permission.bit)
    return missing[:1] if not granted & VIEW else missing


def compute_granted(
    *, guild_id: str, owner_id: str, user_id: str, role_ids: Collection[str], roles: Sequence[Wire], channel: Wire
) -> int:
    """Compute what somebody may do in a channel of a server, from Discord's JSON.

    Args:
        guild_id, owner_id: the server and its owner; a server's @everyone role has the server's id.
        user_id, role_ids: whose permissions.
        roles: all roles of the server.
        channel: its overwrites count; of a thread, pass the channel that it belongs to.
    """
    if owner_id and owner_id == user_id:
        return ALL
    mine = {guild_id, *role_ids}
    granted = 0
    for role in roles:
        if id_of(role, "id") in mine:
            granted |= _bits(role, "permissions")
    if granted & ADMINISTRATOR:
        return ALL
    overwrites = {id_of(overwrite, "id"): overwrite for overwrite in parts_of(channel, "permission_overwrites")}
    for group in ({guild_id}, set(role_ids) - {guild_id}, {user_id}):
        found = [overwrites[name] for name in group if name in overwrites]
        denied = allowed = 0
        for overwrite in found:
            denied |= _bits(overwrite, "deny")
            allowed |= _bits(overwrite, "allow")
        granted = granted & ~denied | allowed
    return granted


def _bits(wire: Wire, key: str) -> int:
    """Read a bit set: Discord writes it as a decimal text, since it has more bits than a number of JavaScript."""
    value = wire.get(key)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 40:
        return int(value)
    return number_of(wire, key)
