"""What a tool's JSON schema says of each argument, in the terms of a reader."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "time-range",
    "duration",
    "expression",
    "zone",
    "sql",
    "code",
    "fingerprint",
    "url",
    "choice",
    "target",
    "limit",
    "number",
    "boolean",
    "text",
    "other",
]
Value = str | int | float | bool

_BY_FORMAT: dict[str, Kind] = {
    "time-range": "time-range",
    "duration-s": "duration",
    "math-expression": "expression",
    "timezone": "zone",
    "sql": "sql",
    "code": "code",
    "python": "code",
    "fingerprint": "fingerprint",
    "target": "target",
    "uri": "url",
    "name": "text",
}
_STRING_NAMES: dict[str, Kind] = {
    "time_range": "time-range",
    "timerange": "time-range",
    "expression": "expression",
    "timezone": "zone",
    "tz": "zone",
    "sql": "sql",
    "statement": "sql",
    "code": "code",
    "fingerprint": "fingerprint",
    "script": "code",
    "target": "target",
    "database": "target",
    "db": "target",
    "instance": "target",
    "cluster": "target",
}
_TARGET_NAMES = frozenset(name for name, kind in _STRING_NAMES.items() if kind == "target")
_LIMIT_NAME = re.compile(
    r"^(?:limit|top|top_n|n|count|rows|results|max_(?:rows|results|items|count)|limit_.*|.*_limit)$"
)
_SECONDS_IN = {"ms": 0.001, "milliseconds": 0.001, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0}
_SECONDS_IN |= {"min": 60.0, "mins": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0, "days": 86_400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One argument of a tool.

    ``options`` are the allowed values of a choice, or the known targets. ``unit_s`` is the size in seconds of the unit
    that a duration is given in. ``integer`` is true where a fraction is not allowed. ``unless`` names an argument that
    may stand for this required one (``x-needed-unless`` in the schema).
    """

    name: str
    kind: Kind
    required: bool
    options: tuple[Value, ...] = ()
    unit_s: float = 1.0
    integer: bool = False
    description: str = ""
    unless: str = ""

    @property
    def sorts(self) -> bool:
        """True for an argument that says by what the rows are ordered."""
        return bool(re.search(r"(?:^|_)(?:order|sort|by|rank)(?:_|$)", self.name))


def read_slots(parameters: Mapping[str, object]) -> tuple[Slot, ...]:
    """Return the arguments of a JSON schema, in its order. Unknown shapes become kind ``other``."""
    properties = parameters.get("properties")
    if not isinstance(properties, Mapping):
        return ()
    required = parameters.get("required")
    needed = set(required) if isinstance(required, Sequence) else set()
    return tuple(
        _slot(str(name), _resolve(value, parameters), required=name in needed)
        for name, value in properties.items()
        if isinstance(value, Mapping)
    )


def _resolve(schema: Mapping[str, object], root: Mapping[str, object]) -> Mapping[str, object]:
    """Follow ``$ref`` and fold ``anyOf`` (an optional argument is anyOf its type and null) into one flat schema."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found: object = root
        for part in reference.removeprefix("#/").split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping) and found is not schema and "$ref" not in found:
            schema = {**found, **{k: v for k, v in schema.items() if k != "$ref"}}
    for key in ("anyOf", "oneOf", "allOf"):
        branches = schema.get(key)
        if isinstance(branches, Sequence):
            flat: dict[str, object] = {}
            for branch in branches:
                if isinstance(branch, Mapping) and branch.get("type") != "null":
                    flat = _merge(flat, _resolve(branch, root))
            schema = {**flat, **{k: v for k, v in schema.items() if k != key}}
    return schema


def _merge(one: dict[str, object], other: Mapping[str, object]) -> dict[str, object]:
    options = [*_options(one), *_options(other)]
    return {**one, **other} | ({"enum": options} if options else {})


def _options(schema: Mapping[str, object]) -> tuple[Value, ...]:
    if "const" in schema:
        values: object = [schema["const"]]
    else:
        values = schema.get("enum")
    if not isinstance(values, Sequence) or isinstance(values, str):
        return ()
    return tuple(v for v in values if isinstance(v, str | int | float))


def _slot(name: str, schema: Mapping[str, object], *, required: bool) -> Slot:
    kind, unless = _kind(name, schema), schema.get("x-needed-unless")
    return Slot(
        name=name,
        kind=kind,
        required=required or isinstance(unless, str),
        options=_options(schema),
        unit_s=_SECONDS_IN.get(name.rsplit("_", 1)[-1], 1.0) if schema.get("format") != "duration-s" else 1.0,
        integer=schema.get("type") == "integer",
        description=str(schema.get("description", "")),
        unless=unless if isinstance(unless, str) else "",
    )


def _kind(name: str, schema: Mapping[str, object]) -> Kind:
    lowered = name.lower()
    kind = _BY_FORMAT.get(str(schema.get("format", "")))
    if kind is None and _options(schema):
        kind = "target" if lowered in _TARGET_NAMES else "choice"
    return kind or _kind_by_type(lowered, str(schema.get("type", "string")))


def _kind_by_type(name: str, type_: str) -> Kind:
    match type_:
        case "integer" | "number":
            timed = "_" in name and name.rsplit("_", 1)[-1] in _SECONDS_IN
            return "limit" if _LIMIT_NAME.match(name) else "duration" if timed else "number"
        case "boolean":
            return "boolean"
        case "string":
            return _STRING_NAMES.get(name, "text")
        case _:
            return "other"
