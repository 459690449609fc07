"""How what came in is kept in the inbox: one JSON text, read back exactly."""

from __future__ import annotations

from pydantic import TypeAdapter
from pydantic_core import to_json

from adapters.chat import Action, Command, Deleted, Inbound, Message, Stop
from bot.jobs.job import Firing

Heard = Inbound | Firing
"""What a row of the inbox may hold: what a platform brought, or a time of a job that came."""

STEER = "steer"
"""The kind of a message that is meant for the run under way (``!steer TEXT``); without one it is a question."""

_KINDS: dict[str, TypeAdapter[Heard]] = {
    "message": TypeAdapter(Message),
    STEER: TypeAdapter(Message),
    "command": TypeAdapter(Command),
    "action": TypeAdapter(Action),
    "stop": TypeAdapter(Stop),
    "deleted": TypeAdapter(Deleted),
    "firing": TypeAdapter(Firing),
}


def kind_of(heard: Heard) -> str:
    """Name the kind of a value, as the inbox stores it."""
    return type(heard).__name__.lower()


def event_key(heard: Heard) -> str:
    """Build the logical id of an event: the same for twins and redeliveries of one message.

    It is made of workspace, channel and the platform's message id, never of a delivery's own id; that of a firing of
    its job and the occurrence.
    """
    if isinstance(heard, Firing):
        return f"job:{heard.job_id}/{heard.run_key}"
    at = heard.thread
    return f"{at.platform}:{at.workspace}/{at.channel}/{heard.id}/{kind_of(heard)}"


def dump_inbound(heard: Heard) -> str:
    """Write a value as JSON text."""
    return to_json(heard).decode()


def load_inbound(kind: str, payload: str) -> Heard:
    """Read what ``dump_inbound`` wrote.

    Raises:
        KeyError: the kind is unknown.
        ValueError: the payload is not of that kind.
    """
    return _KINDS[kind].validate_json(payload)
