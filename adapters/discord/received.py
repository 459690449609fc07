"""An interaction as Discord delivers it: a command, a pressed button, or a value that somebody types.

docs.discord.com/developers/interactions/receiving-and-responding (interaction object and its data).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import discord

from adapters.chat import Author, ThreadRef
from adapters.discord.content import read_name
from adapters.discord.parse import Channel, parse_thread
from adapters.discord.threads import COMMAND
from adapters.discord.wire import Wire, parts_of, text_of
from adapters.markdown.bidi import clean_name

_ADDRESS = re.compile(
    r"(?P<application>\d{1,20})/(?P<token>[^\s]+?)(?:/(?P<id>\d{1,20})(?P<private>/private)?(?P<button>/button)?)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Responder:
    """Where an interaction can be answered, for fifteen minutes. The token is a secret: whoever has it can post.

    Args:
        application, token: of the webhook.
        id: the interaction's, which tells its age; empty when that is not known.
        private: the answer that was announced is for the one who asked alone.
        button: it is of a pressed button, so the message that it stands under is not its answer.
    """

    application: str
    token: str
    id: str = ""
    private: bool = False
    button: bool = False

    def write(self) -> str:
        """Write it as ``respond_to``; ``parse_responder`` reads it back."""
        kinds = ("/private" if self.private else "") + ("/button" if self.button else "")
        return f"{self.application}/{self.token}/{self.id}{kinds}"


def parse_responder(text: str) -> Responder | None:
    """Read ``respond_to``; None when it is something else."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return None
    return Responder(
        application=match["application"],
        token=match["token"],
        id=match["id"] or "",
        private=bool(match["private"]),
        button=bool(match["button"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What somebody did.

    Args:
        kind: ``command``, ``button`` or ``typing``.
        id: the interaction's.
        thread: where its answer goes.
        name: of the command.
        values: what was filled in, by the option's name, in Discord's order.
        focused: name of the option in which somebody types.
        custom_id: of the button.
    """

    kind: str
    id: str
    application: str
    token: str
    thread: ThreadRef
    author: Author
    sent_at: datetime
    name: str = ""
    values: Mapping[str, object] = field(default_factory=dict)
    focused: str = ""
    custom_id: str = ""


_KINDS: Mapping[discord.InteractionType, str] = {
    discord.InteractionType.application_command: "command",
    discord.InteractionType.component: "button",
    discord.InteractionType.autocomplete: "typing",
}


def read_interaction(interaction: discord.Interaction) -> Received | None:
    """Read an interaction; None for a kind that Hermod never offers, or where nothing tells in which channel it was."""
    kind, channel = _KINDS.get(interaction.type), _read_channel(interaction)
    data: Wire = interaction.data if isinstance(interaction.data, Mapping) else {}
    if kind is None or channel is None or not isinstance(interaction.user, discord.User | discord.Member):
        return None
    root = _find_root(interaction.message) if kind == "button" else f"{COMMAND}{interaction.id}"
    thread = parse_thread(channel, root)
    if thread is None:
        return None
    options = parts_of(data, "options")
    return Received(
        kind=kind,
        id=str(interaction.id),
        application=str(interaction.application_id),
        token=interaction.token,
        thread=thread,
        author=_read_author(interaction.user),
        sent_at=interaction.created_at,
        name=text_of(data, "name"),
        values={text_of(option, "name"): option.get("value") for option in options},
        focused=next((text_of(option, "name") for option in options if option.get("focused") is True), ""),
        custom_id=text_of(data, "custom_id"),
    )


def _read_channel(interaction: discord.Interaction) -> Channel | None:
    found = interaction.channel
    if found is None:
        return None
    guild = "" if interaction.guild_id is None else str(interaction.guild_id)
    if isinstance(found, discord.Thread):
        return Channel(id=str(found.id), guild=guild, parent=str(found.parent_id), name=clean_name(found.name))
    return Channel(id=str(found.id), guild=guild)


def _find_root(message: discord.Message | None) -> str:
    """Return the id of the thread that a message of ours in a channel belongs to.

    It answers a command, or it replies to the question where no thread could be made; else it stands for itself.
    """
    if message is None:
        return ""
    asked = message.interaction_metadata
    if asked is not None and asked.type is discord.InteractionType.application_command:
        return f"{COMMAND}{asked.id}"
    if message.reference is not None and message.reference.message_id is not None:
        return str(message.reference.message_id)
    return str(message.id)


def _read_author(user: discord.User | discord.Member) -> Author:
    account = {"id": str(user.id), "global_name": user.global_name, "username": user.name}
    nick = user.nick if isinstance(user, discord.Member) else None
    return Author(id=str(user.id), name=read_name(account, {"nick": nick}), bot=user.bot)
