"""Links of messages and threads: ``https://discord.com/channels/GUILD/CHANNEL/MESSAGE``, as *Copy Link* gives them."""

from __future__ import annotations

import re

from adapters.chat import ThreadRef
from adapters.discord.parse import DIRECT, Channel, parse_thread

_LINK = re.compile(
    r"<?https?://(?:(?:www|ptb|canary)\.)?discord(?:app)?\.com/channels/"
    r"(?P<guild>@me|\d{1,20})/(?P<channel>\d{1,20})(?:/(?P<message>\d{1,20}))?(?![\w@/-])"
)


def parse_permalink(text: str, place: ThreadRef) -> ThreadRef | None:
    """Read the link of a message, or of a thread, as the thread that it is in.

    A link does not tell to which channel a thread belongs. One that leads elsewhere than to ``place.channel`` is taken
    for a thread of that channel; if it is none, there is no thread of this address, so nothing is found there.

    Args:
        text: the link, perhaps in angle brackets.
        place: where it was given.

    Returns:
        None when it is no such link, or leads to a channel as a whole.
    """
    match = _LINK.match(text.strip())
    if match is None:
        return None
    guild, channel, message = match["guild"], match["channel"], match["message"] or ""
    if guild == DIRECT:
        return parse_thread(Channel(id=channel), message)
    if guild == place.workspace and channel != place.channel:
        return parse_thread(Channel(id=channel, guild=guild, parent=place.channel), message)
    # a thread has the id of the message that it was begun from; without one it is the channel as a whole
    return parse_thread(Channel(id=channel, guild=guild), message)
