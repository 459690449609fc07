"""Journal form of a model response: one JSON text, read back exactly."""

from __future__ import annotations

import re

from pydantic import TypeAdapter
from pydantic_core import to_json

from agent_core.llm.types import ModelMessage, ModelResponse

_RESPONSE = TypeAdapter(ModelResponse)
_MESSAGE = TypeAdapter(ModelMessage)
_HALF = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Return ``text`` as it can be sent and stored: half a surrogate pair (a broken escape) becomes U+FFFD."""
    return _HALF.sub("\ufffd", text)


def escape_halves(json_text: str) -> str:
    """Return JSON text that can be stored and means the same: half a surrogate pair is written as its escape.

    So whoever reads it strictly still refuses it; replaced by another character it would have been repaired.
    """
    return _HALF.sub(lambda half: f"\\u{ord(half.group()):04x}", json_text)


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
