"""From a Python function, or a pydantic model, to what a model may send: validation and JSON schema.

The schemas keep to the subset that OpenAI-compatible servers accept without ``strict`` mode: the root is
an object, ``$defs`` are allowed, every array says its ``items`` (a server answers 400 "array schema
missing items" otherwise, also for ``prefixItems``), and no object takes unknown names.
Titles are left out: they cost tokens and say nothing that the names do not say.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Annotated, TypeGuard

from docstring_parser import Docstring, DocstringStyle, ParseError, parse
from pydantic import BaseModel, ConfigDict, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError

from agent_core.context import RunContext
from agent_core.errors import ConfigError

_SCHEMA_ERRORS = (PydanticUserError, PydanticSchemaGenerationError, PydanticUndefinedAnnotation, NameError, TypeError)
_SCHEMAS_BY_NAME = ("properties", "$defs", "patternProperties")
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE_SCHEMAS = ("items", "additionalProperties", "not", "propertyNames", "contains")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The arguments of one function, as derived from its signature.

    Args:
        model: validates a call's arguments; unknown names are refused.
        parameters: the JSON schema that the model is shown.
        context: name of the parameter that receives the ``RunContext``, or None.
        renamed: field of ``model`` -> parameter, only for parameters whose name pydantic keeps for itself.
    """

    model: type[BaseModel]
    parameters: Mapping[str, object]
    context: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)


def build_arguments(function: Callable[..., object]) -> Arguments:
    """Derive the argument model of ``function`` from its signature, type hints and docstring.

    Whatever pydantic can validate is allowed: Optional, Literal, Enum, collections, nested models,
    dataclasses, ``Annotated[..., Field(...)]``. Defaults are kept. Descriptions come from the google style
    ``Args:`` section where ``Field`` gives none. A parameter annotated ``RunContext`` is left out of the
    model; the executor fills it in.

    Raises:
        ConfigError: a parameter is ``*args``, ``**kwargs``, positional-only, private, without type hint, or of a
            type that has no JSON schema; the message names it.
    """
    label = describe_function(function)
    hints = _resolve_hints(function, label)
    fields: dict[str, tuple[object, object]] = {}
    renamed: dict[str, str] = {}
    context: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        _check_kind(parameter, label)
        if parameter.name not in hints:
            raise ConfigError(f"{label}: parameter {parameter.name!r} has no type hint; add one")
        hint = hints[parameter.name]
        if _is_context(hint):
            if context is not None:
                raise ConfigError(f"{label}: parameter {parameter.name!r} is a second RunContext; one is enough")
            context = parameter.name
            continue
        if parameter.name.startswith("_"):
            raise ConfigError(f"{label}: parameter {parameter.name!r} is private; a model cannot be asked for it")
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        key = parameter.name
        while hasattr(BaseModel, key) or key in fields:
            key += "_"
        if key != parameter.name:
            renamed[key] = parameter.name
        fields[key] = (hint, default)
    model, parameters = _create_model(function, fields, renamed, label)
    _add_descriptions(parameters, _parse_docstring(function))
    return Arguments(model=model, parameters=parameters, context=context, renamed=renamed)


def build_parameters(model: type[BaseModel]) -> dict[str, object]:
    """Build the JSON schema of ``model`` as a model vendor accepts it (see the module's text).

    ``format``, ``enum``, ``examples``, ``default``, bounds and descriptions are kept.

    Raises:
        ConfigError: the model is not an object, allows unknown names, or has a type without JSON schema.
    """
    try:
        schema: dict[str, object] = model.model_json_schema()
    except _SCHEMA_ERRORS as error:
        raise ConfigError(f"arguments {model.__name__}: no JSON schema can be made ({error})") from error
    definitions = schema.get("$defs")
    reference = schema.pop("$ref", None)
    if isinstance(reference, str) and isinstance(definitions, dict):  # a model that contains itself
        schema = {**definitions[reference.rpartition("/")[2]], **schema}
    if schema.get("type") != "object":
        raise ConfigError(f"arguments {model.__name__}: the arguments of a tool are an object with named fields")
    enums = {}
    if isinstance(definitions, dict):
        enums = {f"#/$defs/{name}": body for name, body in definitions.items() if "enum" in body}
        kept = {name: body for name, body in definitions.items() if "enum" not in body}
        schema = {**schema, "$defs": kept} if kept else {k: v for k, v in schema.items() if k != "$defs"}
    tidied = _tidy(schema, enums, model.__name__)
    tidied.pop("description", None)  # the tool has its own
    return tidied


def forbid_unknown(model: type[BaseModel]) -> type[BaseModel]:
    """Return ``model``, or a subclass of it that refuses unknown names where the author left that open.

    Raises:
        ConfigError: ``model`` explicitly allows them.
    """
    match model.model_config.get("extra"):
        case "forbid":
            return model
        case "allow":
            raise ConfigError(
                f"arguments {model.__name__}: extra='allow' would hide a model's mistakes; "
                "use a field of type dict for free names"
            )
        case _:
            return create_model(
                model.__name__, __base__=model, __doc__=model.__doc__, __cls_kwargs__={"extra": "forbid"}
            )


def build_description(function: Callable[..., object]) -> str:
    """Build what a model reads of the tool: the docstring without ``Args:`` and ``Raises:``.

    Returns:
        Text, empty when the function has no docstring.
    """
    doc = _parse_docstring(function)
    parts = [doc.short_description, doc.long_description]
    if doc.returns is not None and doc.returns.description:
        kind = f"{doc.returns.type_name}: " if doc.returns.type_name else ""
        parts.append(f"Returns: {kind}{doc.returns.description}")
    parts.extend(f"Example: {example.description}" for example in doc.examples if example.description)
    return "\n\n".join(part.strip() for part in parts if part)


def describe_function(function: Callable[..., object]) -> str:
    """Name a function for an error message."""
    return f"tool function {getattr(function, '__qualname__', type(function).__qualname__)}"


# -- parts -----------------------------------------------------------------------------------------


def _resolve_hints(function: Callable[..., object], label: str) -> dict[str, object]:
    """Resolve the parameters' annotations, also those that are strings; the return type is of no interest."""
    target = inspect.unwrap(function if inspect.isroutine(function) else type(function).__call__)
    annotations = {k: v for k, v in getattr(target, "__annotations__", {}).items() if k != "return"}
    names: dict[str, object] = getattr(target, "__globals__", {})
    # Linters move an import that only annotations use under TYPE_CHECKING; this one we know ourselves.
    known: dict[str, object] = {} if "RunContext" in names else {"RunContext": RunContext}
    try:
        return typing.get_type_hints(
            SimpleNamespace(__annotations__=annotations), globalns=names, localns=known, include_extras=True
        )
    except (NameError, SyntaxError, TypeError, AttributeError) as error:
        broken = ", ".join(repr(name) for name in _unresolved(annotations, names, known))
        raise ConfigError(
            f"{label}: the type hint of parameter {broken} cannot be resolved ({error}); "
            "its types have to be importable at module level"
        ) from error


def _unresolved(annotations: Mapping[str, object], names: dict[str, object], known: dict[str, object]) -> Iterator[str]:
    for name, annotation in annotations.items():
        try:
            typing.get_type_hints(SimpleNamespace(__annotations__={name: annotation}), names, known)
        except (NameError, SyntaxError, TypeError, AttributeError):
            yield name


def _check_kind(parameter: inspect.Parameter, label: str) -> None:
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL:
            said = f"*{parameter.name}"
        case inspect.Parameter.VAR_KEYWORD:
            said = f"**{parameter.name}"
        case inspect.Parameter.POSITIONAL_ONLY:
            said = f"positional-only {parameter.name}"
        case _:
            return
    raise ConfigError(f"{label}: parameter {said!r} is not allowed; a model sends arguments by name, one by one")


def _is_context(hint: object) -> bool:
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    return hint is RunContext or RunContext in typing.get_args(hint)


def _create_model(
    function: Callable[..., object], fields: dict[str, tuple[object, object]], renamed: dict[str, str], label: str
) -> tuple[type[BaseModel], dict[str, object]]:
    name = "".join(part.capitalize() for part in getattr(function, "__name__", "tool").strip("<>").split("_"))
    try:
        model: type[BaseModel] = create_model(
            f"{name}Arguments",
            __config__=ConfigDict(
                extra="forbid",
                protected_namespaces=(),
                alias_generator=(lambda key: renamed.get(key, key)) if renamed else None,
            ),
            __module__=getattr(function, "__module__", None) or __name__,
            **fields,  # type: ignore[call-overload]  # the stubs know only literal field names
        )
        return model, build_parameters(model)
    except (*_SCHEMA_ERRORS, ConfigError) as error:
        broken = [renamed.get(key, key) for key, (hint, _) in fields.items() if not _has_schema(hint)]
        named = ", ".join(repr(name) for name in broken or [renamed.get(key, key) for key in fields])
        raise ConfigError(f"{label}: parameter {named} has a type that no model can fill in ({error})") from error


def _has_schema(hint: object) -> bool:
    try:
        probe: type[BaseModel] = create_model("Probe", **{"probe": (hint, ...)})  # type: ignore[call-overload]
        build_parameters(probe)
    except (*_SCHEMA_ERRORS, ConfigError):
        return False
    return True


def _parse_docstring(function: Callable[..., object]) -> Docstring:
    text = inspect.getdoc(function if inspect.isroutine(function) else type(function).__call__) or ""
    try:
        return parse(text, style=DocstringStyle.GOOGLE)
    except ParseError:  # odd sections: the whole text is still worth reading
        doc = Docstring(style=DocstringStyle.GOOGLE)
        doc.short_description = text
        return doc


def _add_descriptions(parameters: dict[str, object], doc: Docstring) -> None:
    properties = parameters["properties"]
    if not _is_schema(properties):
        return
    for documented in doc.params:
        schema = properties.get(documented.arg_name)
        if _is_schema(schema) and documented.description:
            schema.setdefault("description", " ".join(documented.description.split()))


def _is_schema(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _tidy(schema: dict[str, object], enums: Mapping[str, dict[str, object]], label: str) -> dict[str, object]:
    """Copy ``schema`` without titles, with enums in place, closed objects and typed array items.

    It walks only where schemas stand, so that a property, an example or a default called "title" stays.
    """
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference in enums:
        rest = {k: v for k, v in schema.items() if k != "$ref"}
        schema = {**enums[reference], **rest}
    done: dict[str, object] = {}
    for key, value in schema.items():
        if key == "title":
            continue
        if key in _SCHEMAS_BY_NAME and _is_schema(value):
            done[key] = {name: _tidy(part, enums, label) if _is_schema(part) else part for name, part in value.items()}
        elif key in _LISTS_OF_SCHEMAS and isinstance(value, list):
            done[key] = [_tidy(part, enums, label) if _is_schema(part) else part for part in value]
        elif key in _SINGLE_SCHEMAS and _is_schema(value):
            done[key] = _tidy(value, enums, label)
        else:
            done[key] = value
    if "properties" in done:
        if done.get("additionalProperties", False) is not False:
            raise ConfigError(f"arguments {label}: an object in it allows unknown names; use a field of type dict")
        done["additionalProperties"] = False
    if done.get("type") == "array" and "items" not in done:
        done["items"] = _items_of(done.pop("prefixItems", []))
    return done


def _items_of(parts: object) -> dict[str, object]:
    """Say what a fixed tuple holds in the words of ``items``; pydantic still checks each place."""
    distinct: list[object] = []
    for part in parts if isinstance(parts, list) else []:
        if part not in distinct:
            distinct.append(part)
    match distinct:
        case []:
            return {}
        case [dict() as only]:
            return only
        case _:
            return {"anyOf": distinct}
