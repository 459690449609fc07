"""A message as it is sent to Discord, before it is JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from adapters.chat import Attachment

Wire = Mapping[str, object]
"""A piece of Discord's JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What one message holds. Nobody but ``mentions`` can be pinged by it, whatever its text says.

    Args:
        content: Discord's Markdown, at most 2,000 characters.
        mentions: ids of users who may be pinged.
        components: rows of buttons, as Discord's JSON; their custom ids hold a name and an opaque id only.
        files: uploaded beside the text.
        reply_to: id of the message in the same channel that this one replies to; empty for none.
        private: for the one who gave the command only; as an answer to an interaction only.
    """

    content: str = ""
    mentions: frozenset[str] = frozenset()
    components: tuple[Wire, ...] = ()
    files: tuple[Attachment, ...] = ()
    reply_to: str = ""
    private: bool = False
