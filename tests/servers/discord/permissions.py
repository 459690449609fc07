"""Permission bits by name, and what a member may do in a channel.

docs.discord.com/developers/topics/permissions: the bits, how roles and overwrites add up, what threads inherit.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.servers.discord.model import Json

BITS = {
    "CREATE_INSTANT_INVITE": 0,
    "ADMINISTRATOR": 3,
    "MANAGE_CHANNELS": 4,
    "MANAGE_GUILD": 5,
    "ADD_REACTIONS": 6,
    "VIEW_CHANNEL": 10,
    "SEND_MESSAGES": 11,
    "SEND_TTS_MESSAGES": 12,
    "MANAGE_MESSAGES": 13,
    "EMBED_LINKS": 14,
    "ATTACH_FILES": 15,
    "READ_MESSAGE_HISTORY": 16,
    "MENTION_EVERYONE": 17,
    "USE_EXTERNAL_EMOJIS": 18,
    "CONNECT": 20,
    "SPEAK": 21,
    "CHANGE_NICKNAME": 26,
    "MANAGE_ROLES": 28,
    "USE_APPLICATION_COMMANDS": 31,
    "MANAGE_THREADS": 34,
    "CREATE_PUBLIC_THREADS": 35,
    "CREATE_PRIVATE_THREADS": 36,
    "SEND_MESSAGES_IN_THREADS": 38,
    "SEND_POLLS": 49,
    "USE_EXTERNAL_APPS": 50,
    "PIN_MESSAGES": 51,
    "BYPASS_SLOWMODE": 52,
}

#: of @everyone in a new guild (UNDOCUMENTED which they are): people write, read, react, ping and open threads
EVERYONE = (
    "ADD_REACTIONS", "VIEW_CHANNEL", "SEND_MESSAGES", "EMBED_LINKS", "ATTACH_FILES", "READ_MESSAGE_HISTORY",
    "MENTION_EVERYONE", "USE_EXTERNAL_EMOJIS", "CONNECT", "SPEAK", "CHANGE_NICKNAME", "USE_APPLICATION_COMMANDS",
    "CREATE_PUBLIC_THREADS", "CREATE_PRIVATE_THREADS", "SEND_MESSAGES_IN_THREADS", "USE_EXTERNAL_APPS",
)  # fmt: skip

#: of the role that an invite link makes: view, send, embed, attach, history, emoji, reactions, public threads
INVITED = 309_238_025_280

#: not explicitly denied, but ignored: docs.discord.com/developers/topics/permissions#implicit-permissions
NEEDS_SENDING = ("MENTION_EVERYONE", "SEND_TTS_MESSAGES", "ATTACH_FILES", "EMBED_LINKS")


def mask(*names: str) -> int:
    """The bits of these names; raises KeyError for a name that Discord does not have."""
    return sum(1 << BITS[name] for name in set(names))


def has(permissions: int, name: str) -> bool:
    return bool(permissions >> BITS[name] & 1)


def compute(user: str, guild: str, roles: Iterable[Json], overwrites: Iterable[Json], *, thread: bool) -> int:
    """What ``user`` with ``roles`` (the guild's @everyone among them) may do where these overwrites stand."""
    held = list(roles)
    total = 0
    for role in held:
        total |= int(role["permissions"])
    if has(total, "ADMINISTRATOR"):
        return sum(1 << bit for bit in range(53))
    found = {str(each["id"]): each for each in overwrites}
    if (each := found.get(guild)) is not None:
        total = total & ~int(each["deny"]) | int(each["allow"])
    of_roles = [found[role["id"]] for role in held if role["id"] in found and role["id"] != guild]
    for each in of_roles:
        total &= ~int(each["deny"])
    for each in of_roles:
        total |= int(each["allow"])
    if (each := found.get(user)) is not None:
        total = total & ~int(each["deny"]) | int(each["allow"])
    if not has(total, "VIEW_CHANNEL"):
        return 0
    if not has(total, "SEND_MESSAGES_IN_THREADS" if thread else "SEND_MESSAGES"):
        total &= ~mask(*NEEDS_SENDING)
    return total
