"""Journal form of a model response: one JSON text, read back exactly."""

from __future__ import annotations

from pydantic import TypeAdapter
from pydantic_core import to_json

from agent_core.llm.types import ModelMessage, ModelResponse

_RESPONSE = TypeAdapter(ModelResponse)
_MESSAGE = TypeAdapter(ModelMessage)


def dump_response(response: ModelResponse) -> str:
    """Write a response as JSON text."""
    return to_json(response).decode()


def load_response(text: str) -> ModelResponse:
    """Read what ``dump_response`` wrote.

    Raises:
        ValueError: it is something else.
    """
    return _RESPONSE.validate_json(text)


def dump_message(message: ModelMessage) -> str:
    """Write a message as JSON text."""
    return to_json(message).decode()


def load_message(text: str) -> ModelMessage:
    """Read what ``dump_message`` wrote.

    Raises:
        ValueError: it is something else.
    """
    return _MESSAGE.validate_json(text)
