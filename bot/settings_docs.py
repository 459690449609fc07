"""The settings as a table for people: what ``docs/settings.md`` holds and its test compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from bot.settings_sources import read_shape
from bot.settings_tree import LATER, Section, SettingsTree


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDoc:
    """One key as the documents show it.

    Args:
        key: ``limits.max_steps``, ``models[].api_key``, ``targets.NAME.url``.
        type: for people, such as ``whole number`` or ``one of: socket, http``.
        default: as it would be written in the file; ``required`` or ``none`` where there is none.
        description: one or two sentences.
        later: this release reads and checks it, and does not use it.
    """

    key: str
    type: str
    default: str
    description: str
    later: bool


def describe_settings() -> Iterator[SettingDoc]:
    """Yield every key of the settings, in the order of the file."""
    yield from _describe_section(SettingsTree, "", later=False)


def is_later(section: type[Section], name: str) -> bool:
    """Tell whether this release does not use the key yet (``x_env`` and ``x_file`` follow ``x``)."""
    stem = section.model_fields.get(name.removesuffix("_env").removesuffix("_file"))
    return LATER in (section.model_fields[name].json_schema_extra, stem and stem.json_schema_extra)


def _describe_section(section: type[Section], prefix: str, *, later: bool) -> Iterator[SettingDoc]:
    for name, field in section.model_fields.items():
        shape = read_shape(field.annotation)
        unused = later or is_later(section, name)
        if shape.section is not None:
            yield from _describe_section(shape.section, f"{prefix}{name}.", later=unused)
            continue
        key = {"array": f"{prefix}{name}[]", "table": f"{prefix}{name}.NAME"}.get(shape.kind, prefix + name)
        item = read_shape(shape.item)
        if item.section is not None:
            yield from _describe_section(item.section, f"{key}.", later=unused)
            continue
        yield SettingDoc(
            key=key.removesuffix("[]"),
            type=_describe_type(field.annotation),
            default=_describe_default(field, shape.kind),
            description=field.description or "",
            later=unused,
        )


_WORDS: dict[object, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    SecretStr: "secret text",
}


def _describe_type(annotation: object) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "one of: " + ", ".join(str(arg) for arg in args)
    if origin is tuple:
        return f"list of {_describe_type(args[0])}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _describe_type(args[1])
    if origin is not None:  # Annotated, and X | None
        return _describe_type(args[0])
    return _WORDS[annotation]


def _describe_default(field: FieldInfo, kind: str) -> str:
    default: object = field.default
    if field.is_required():
        return "required"
    if kind == "table" or default is None:
        return "none"
    match default:
        case bool():
            return str(default).lower()
        case tuple():
            return "[]"
        case str():
            return f'"{default}"'
        case _:
            return f"{default:g}" if isinstance(default, float) else str(default)
