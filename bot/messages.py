"""How what came in is kept in the inbox: one JSON text, read back exactly."""

from __future__ import annotations

from pydantic import TypeAdapter
from pydantic_core import to_json

from adapters.chat import Action, Command, Deleted, Inbound, Message, Stop

STEER = "steer"
"""The kind of a message that is meant for the run under way (``!steer TEXT``); without one it is a question."""

_KINDS: dict[str, TypeAdapter[Inbound]] = {
    "message": TypeAdapter(Message),
    STEER: TypeAdapter(Message),
    "command": TypeAdapter(Command),
    "action": TypeAdapter(Action),
    "stop": TypeAdapter(Stop),
    "deleted": TypeAdapter(Deleted),
}


def kind_of(inbound: Inbound) -> str:
    """Name the kind of an inbound value, as the inbox stores it."""
    return type(inbound).__name__.lower()


def event_key(inbound: Inbound) -> str:
    """Build the logical id of an event: the same for twins and redeliveries of one message.

    It is made of workspace, channel and the platform's message id, never of a delivery's own id.
    """
    at = inbound.thread
    return f"{at.platform}:{at.workspace}/{at.channel}/{inbound.id}/{kind_of(inbound)}"


def dump_inbound(inbound: Inbound) -> str:
    """Write an inbound value as JSON text."""
    return to_json(inbound).decode()


def load_inbound(kind: str, payload: str) -> Inbound:
    """Read what ``dump_inbound`` wrote.

    Raises:
        KeyError: the kind is unknown.
        ValueError: the payload is not of that kind.
    """
    return _KINDS[kind].validate_json(payload)
