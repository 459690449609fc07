"""A model's arguments: read strictly, and explained when they are wrong. Nothing is ever repaired.

A repaired call is a call that nobody asked for: ``DELETE ... WHERE created_at < now() - interval '90`` closed
by a program deletes other rows than the model meant.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ValidationError

from agent_core.errors import AgentError
from agent_core.tools.base import Tool

_MISTAKES_SHOWN = 8
_VALUE_CHARS = 80
_UNKNOWN_NAME = ("extra_forbidden", "unexpected_keyword_argument")


class MalformedArguments(AgentError):
    """The arguments are not a JSON object; the message says where."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    read = dict(pairs)
    if len(read) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise MalformedArguments(f"the arguments name {_shorten(twice)} twice")
    return read


def _refuse_constant(word: str) -> object:
    raise MalformedArguments(f"{word} is not JSON; use a finite number or null")


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)
_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse_arguments(text: str) -> tuple[dict[str, object], str]:
    """Read the JSON text of a call.

    Returns:
        The arguments, and the same as canonical JSON (sorted names, no spaces, ASCII).

    Raises:
        MalformedArguments: it is not one whole JSON object with distinct names and finite numbers.
    """
    try:
        read = _decoder.decode(text)
        if not isinstance(read, dict):
            raise MalformedArguments(f"the arguments are a JSON {_kind(read)}, but have to be an object")
        return read, _encoder.encode(read)
    except json.JSONDecodeError as error:
        if not text.strip():
            raise MalformedArguments("the arguments are empty; without arguments send {}") from error
        raise MalformedArguments(
            f"the arguments are not JSON: {error.msg} at character {error.pos} of {len(text)}; nothing was run"
        ) from error
    except RecursionError as error:
        raise MalformedArguments("the arguments are nested too deeply") from error
    except ValueError as error:  # a number of thousands of digits, or one too large for a float
        raise MalformedArguments(f"the arguments hold a number that is too large ({error})") from error


def describe_mistakes(error: ValidationError, tool: Tool) -> str:
    """Say what is wrong with each argument, in one line."""
    details = error.errors(include_url=False, include_context=False)
    said = []
    for detail in details[:_MISTAKES_SHOWN]:
        where = ".".join(str(part) for part in detail["loc"]) or "arguments"
        if detail["type"] in _UNKNOWN_NAME:
            near = difflib.get_close_matches(where, _properties(tool), n=1)
            said.append(f"{where}: no such argument" + (f" (did you mean {near[0]}?)" if near else ""))
        elif detail["type"] == "missing":
            said.append(f"{where}: is required")
        else:
            said.append(f"{where}: {detail['msg']} (got {_shorten(detail['input'])})")
    if len(details) > _MISTAKES_SHOWN:
        said.append(f"and {len(details) - _MISTAKES_SHOWN} more")
    return "; ".join(said)


def describe_fields(tool: Tool) -> str:
    """Say which arguments the tool takes."""
    required = tool.parameters.get("required")
    needed = required if isinstance(required, list) else []
    fields = [
        f"{name} ({_type_word(schema)}{', required' if name in needed else ''})"
        for name, schema in _properties(tool).items()
    ]
    return f"{tool.name} takes " + (", ".join(fields) if fields else "no arguments: {}")


def list_arguments(args: BaseModel) -> Mapping[str, object]:
    """Return validated arguments by the names that the model knows; values are not copied."""
    fields = type(args).model_fields
    return {field.alias or name: getattr(args, name) for name, field in fields.items()}


def _properties(tool: Tool) -> Mapping[str, object]:
    properties = tool.parameters.get("properties")
    return properties if isinstance(properties, dict) else {}


def _type_word(schema: object) -> str:
    match schema:
        case {"enum": list(values)}:
            return "one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in values)
        case {"anyOf": list(parts)}:
            return " or ".join(_type_word(part) for part in parts)
        case {"type": str(kind), **rest}:
            return f"{kind}, {rest['format']}" if "format" in rest else kind
        case {"$ref": _}:
            return "object"
        case _:
            return "any"


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case Sequence():
            return "array"
        case _:
            return type(value).__name__


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _VALUE_CHARS else text[: _VALUE_CHARS - 3] + "..."
