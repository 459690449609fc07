from __future__ import annotations

import inspect
import json
import keyword
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel
from pydantic_core import to_jsonable_python

from agent_core.errors import ConfigError
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from agent_core.tools.schema import build_arguments, build_description, build_parameters, forbid_unknown
from tests.unit.tools.setting import Run, call

if TYPE_CHECKING:
    from agent_core.context import RunContext


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    title: str
    floor: int = 0


@dataclass
class Span:
    start: int
    end: int = 9


class Node(BaseModel):
    name: str
    children: list[Node] = []


def find_rooms(
    ctx: RunContext,
    place: Place,
    colours: list[Colour],
    order: Literal["name", "size"] = "name",
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
    owner: str | None = None,
    span: Optional[Span] = None,  # noqa: UP045  # the old spelling has to work too
    corner: tuple[int, str] = (1, "a"),
    points: tuple[float, ...] = (),
    tags: set[str] = set(),  # noqa: B006  # pydantic copies it
    extra: dict[str, int] | None = None,
    window: Annotated[str, Field(json_schema_extra={"format": "time-range", "examples": ["last_2h"]})] = "last_30min",
    price: Decimal = Decimal("1.5"),
) -> list[str]:
    """Find rooms.

    It looks everywhere.

    Args:
        place: where to
            look.
        limit (int): how many at most.
        window: when.

    Returns:
        The names.

    Raises:
        ToolFailed: never.

    Example:
        find_rooms(place={"title": "HQ"}, colours=["red"])
    """
    return []


def properties(function: Callable[..., object]) -> dict[str, dict[str, object]]:
    found = build_arguments(function).parameters["properties"]
    assert isinstance(found, dict)
    return found


def assert_acceptable(schema: object, definitions: object = None, *, root: bool = True) -> None:
    """Check a schema the way an OpenAI-compatible server does, and that it carries no titles."""
    assert isinstance(schema, dict)
    if root:
        assert schema["type"] == "object"
        definitions = schema.get("$defs", {})
    assert isinstance(definitions, dict)
    assert not isinstance(schema.get("title"), str)
    assert "prefixItems" not in schema
    if "$ref" in schema:
        assert schema["$ref"].removeprefix("#/$defs/") in definitions
    if schema.get("type") == "array":
        assert_acceptable(schema["items"], definitions, root=False)
    if "properties" in schema:
        assert schema["additionalProperties"] is False
        assert set(schema.get("required", [])) <= set(schema["properties"])
    for part in [
        *schema.get("properties", {}).values(),
        *schema.get("$defs", {}).values(),
        *schema.get("anyOf", []),
    ]:
        assert_acceptable(part, definitions, root=False)
    json.dumps(schema)


def test_a_schema_follows_the_signature() -> None:
    derived = build_arguments(find_rooms)
    assert_acceptable(derived.parameters)
    assert derived.context == "ctx"
    assert derived.parameters["required"] == ["place", "colours"]
    found = properties(find_rooms)
    assert "ctx" not in found
    assert found["order"] == {"default": "name", "enum": ["name", "size"], "type": "string"}
    assert found["colours"] == {"items": {"enum": ["red", "blue"], "type": "string"}, "type": "array"}
    assert found["owner"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert found["corner"]["items"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert found["limit"] == {
        "default": 20,
        "description": "how many at most.",
        "maximum": 100,
        "minimum": 1,
        "type": "integer",
    }


def test_markers_for_readers_of_the_schema_are_kept() -> None:
    window = properties(find_rooms)["window"]
    assert window == {
        "default": "last_30min",
        "description": "when.",
        "examples": ["last_2h"],
        "format": "time-range",
        "type": "string",
    }


def test_a_field_called_title_is_not_taken_for_a_title() -> None:
    definitions = build_arguments(find_rooms).parameters["$defs"]
    assert isinstance(definitions, dict)
    assert definitions["Place"]["properties"]["title"] == {"type": "string"}
    assert "Colour" not in definitions


def test_the_description_is_the_docstring_without_arguments_and_errors() -> None:
    text = build_description(find_rooms)
    assert text.startswith("Find rooms.\n\nIt looks everywhere.")
    assert "Returns: The names." in text
    assert 'find_rooms(place={"title": "HQ"}, colours=["red"])' in text
    assert "how many" not in text
    assert "never" not in text


def test_wrapped_lines_of_an_argument_become_one() -> None:
    assert properties(find_rooms)["place"]["description"] == "where to look."


def test_a_description_in_field_wins_over_the_docstring() -> None:
    def tool(a: Annotated[int, Field(description="mine")]) -> None:
        """Do.

        Args:
            a: theirs.
        """

    assert properties(tool)["a"]["description"] == "mine"


def test_defaults_are_applied_and_mutable_ones_are_not_shared() -> None:
    model = build_arguments(find_rooms).model
    first = model.model_validate({"place": {"title": "HQ"}, "colours": []})
    second = model.model_validate({"place": {"title": "HQ"}, "colours": []})
    assert first.model_dump()["corner"] == (1, "a")
    tags = first.__dict__["tags"]
    tags.add("x")
    assert second.__dict__["tags"] == set()


def args_tool(*numbers: int) -> None: ...


def kwargs_tool(**numbers: int) -> None: ...


def positional_tool(a: int, /, b: int) -> None: ...


def bare_tool(a: int, b) -> None:  # type: ignore[no-untyped-def]
    ...


def private_tool(_a: int) -> None: ...


def odd_tool(a: int, b: object, thing: ToolRegistry) -> None: ...


def callback_tool(a: int, thing: Callable[[], int]) -> None: ...


def unresolved_tool(a: int, thing: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
    ...


def twice_tool(ctx: RunContext, again: RunContext) -> None: ...


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (args_tool, "'*numbers'"),
        (kwargs_tool, "'**numbers'"),
        (positional_tool, "'positional-only a'"),
        (bare_tool, "'b'"),
        (private_tool, "'_a'"),
        (odd_tool, "'thing'"),
        (callback_tool, "'thing'"),
        (unresolved_tool, "'thing'"),
        (twice_tool, "'again'"),
    ],
)
def test_a_parameter_that_no_model_can_fill_is_refused_by_name(function: Callable[..., object], named: str) -> None:
    with pytest.raises(ConfigError, match="tool function") as refused:
        build_arguments(function)
    assert f"parameter {named}" in str(refused.value)


def test_a_return_type_that_only_type_checkers_see_does_no_harm() -> None:
    def tool(a: int) -> Missing:  # type: ignore[name-defined]  # noqa: F821
        return a

    assert list(properties(tool)) == ["a"]


class Recorder:
    """Tools may also be methods and callable objects."""

    def __call__(self, a: int, ctx: RunContext | None = None) -> int:
        """Take it."""
        return a

    async def method(self, a: int) -> int:
        """Take it too."""
        return a


def test_methods_and_callable_objects_are_read_without_self() -> None:
    assert build_arguments(Recorder()).context == "ctx"
    assert list(properties(Recorder())) == ["a"]
    assert list(properties(Recorder().method)) == ["a"]
    assert build_description(Recorder()) == "Take it."


def test_names_that_pydantic_keeps_for_itself_can_be_parameters() -> None:
    def tool(schema: str, model_dump: int = 1, copy: bool = False) -> None: ...

    derived = build_arguments(tool)
    assert list(properties(tool)) == ["schema", "model_dump", "copy"]
    assert derived.model.model_validate({"schema": "public"}).model_dump(by_alias=True)["schema"] == "public"


def test_a_model_that_contains_itself_has_an_object_at_the_root() -> None:
    schema = build_parameters(Node)
    assert_acceptable(schema)
    assert schema["required"] == ["name"]


def test_a_root_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="named fields"):
        build_parameters(RootModel[list[int]])


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 1


class Holder(BaseModel):
    inner: Open


def test_models_that_allow_unknown_names_are_refused_also_inside() -> None:
    with pytest.raises(ConfigError, match="extra='allow'"):
        forbid_unknown(Open)
    with pytest.raises(ConfigError, match="unknown names"):
        build_parameters(Holder)


def test_a_model_that_leaves_it_open_is_closed_and_stays_its_own_kind() -> None:
    closed = forbid_unknown(Place)
    assert issubclass(closed, Place)
    assert build_parameters(closed)["additionalProperties"] is False
    with pytest.raises(ValueError, match="Extra inputs"):
        closed.model_validate({"title": "x", "flor": 1})


# -- whatever the signature, what the model sends is what the function gets ---------------------------

_KINDS: list[tuple[object, st.SearchStrategy[object]]] = [
    (int, st.integers(-(2**70), 2**70)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (str, st.text(max_size=8)),
    (int | None, st.none() | st.integers()),
    (Literal["x", "y", 3], st.sampled_from(["x", "y", 3])),
    (Colour, st.sampled_from(["red", "blue"])),
    (list[Colour], st.lists(st.sampled_from(["red", "blue"]), max_size=3)),
    (tuple[int, str], st.tuples(st.integers(), st.text(max_size=3)).map(list)),
    (set[int], st.sets(st.integers(0, 9), max_size=1).map(list)),
    (dict[str, int], st.dictionaries(st.text(max_size=3), st.integers(), max_size=3)),
    (Place, st.fixed_dictionaries({"title": st.text(max_size=3), "floor": st.integers()})),
    (Span, st.fixed_dictionaries({"start": st.integers(), "end": st.integers()})),
    (Node, st.just({"name": "a", "children": [{"name": "b", "children": []}]})),
    (list[Place] | None, st.none() | st.just([{"title": "t", "floor": 1}])),
]

_identifiers = st.one_of(
    st.sampled_from(
        ["schema", "json", "dict", "copy", "title", "type", "model_fields", "validate", "self_", "default"]
    ),
    st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True),
).filter(lambda name: not keyword.iskeyword(name))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
async def test_arguments_go_round_through_schema_and_call(data: st.DataObject) -> None:
    names = data.draw(st.lists(_identifiers, unique=True, max_size=5))
    kinds = [data.draw(st.sampled_from(_KINDS)) for _ in names]
    sent = {name: data.draw(values) for name, (_, values) in zip(names, kinds, strict=True)}
    got: dict[str, object] = {}

    async def tool(**arguments: object) -> str:
        got.update(arguments)
        return "done"

    tool.__annotations__ = {name: kind for name, (kind, _) in zip(names, kinds, strict=True)}
    tool.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    )
    registry = ToolRegistry()
    registry.register(tool)
    registered = registry.get("tool")
    assert registered is not None
    assert_acceptable(registered.parameters)
    result = await ToolExecutor(registry).run_one(Run().ctx, call("tool", "c1", **sent))
    assert result.content == "done"
    assert to_jsonable_python(got) == sent
