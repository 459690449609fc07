from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from pydantic import BaseModel

from agent_core.context import RunContext
from agent_core.errors import ConfigError
from agent_core.llm.types import ToolExample
from agent_core.tools.base import Effect, Tool
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from tests.unit.tools.setting import Run, call


class Sum(BaseModel):
    a: int
    b: int = 2


async def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


async def with_args(args: Sum) -> int:
    """Add."""
    return args.a + args.b


async def with_both(ctx: RunContext, args: Sum) -> str:
    """Add."""
    return f"{ctx.run_id}: {args.a + args.b}"


def blocking(args: Sum) -> int:
    """Add."""
    return args.a + args.b


def test_a_function_is_registered_by_call_and_stays_callable() -> None:
    registry = ToolRegistry()
    assert registry.register(add) is add
    tool = registry.get("add")
    assert tool is not None
    assert (tool.description, tool.effect, tool.timeout_s, tool.exclusive) == (
        "Add two numbers.",
        Effect.READ,
        None,
        False,
    )


def test_the_decorator_takes_options_or_none() -> None:
    registry = ToolRegistry()

    @registry.register
    async def first() -> str:
        return "1"

    @registry.register(name="zweite", description="Say two.", effect=Effect.WRITE, timeout_s=5, exclusive=True)
    async def second() -> str:
        return "2"

    assert registry.names() == ("first", "zweite")
    tool = registry.tools()[1]
    assert (tool.description, tool.effect, tool.timeout_s, tool.exclusive) == ("Say two.", Effect.WRITE, 5, True)
    assert registry.tools()[0].description == "first"


@pytest.mark.parametrize(
    ("function", "said"), [(with_args, "5"), (with_both, "run-1: 5"), (blocking, "5")], ids=lambda v: str(v)[:20]
)
async def test_a_tool_with_an_argument_model_gets_it_validated(function: Callable[..., object], said: str) -> None:
    registry = ToolRegistry()
    registry.register(function, name="tool", arguments=Sum)
    result = await ToolExecutor(registry).run_one(Run().ctx, call("tool", a=3))
    assert result.content == said
    result = await ToolExecutor(registry).run_one(Run().ctx, call("tool", a=3, c=4))
    assert result.error_code == "invalid_arguments"


def test_both_ways_of_registering_give_the_same_schema() -> None:
    registry = ToolRegistry()
    registry.register(add)
    registry.register(with_args, arguments=Sum)
    by_signature, by_model = registry.specs()
    assert by_signature.parameters == by_model.parameters


def too_many(ctx: RunContext, args: Sum, more: int) -> None: ...


def by_keyword(*, args: Sum) -> None: ...


@pytest.mark.parametrize("function", [too_many, by_keyword, lambda: None])
def test_a_function_that_cannot_take_an_argument_model_is_refused(function: Callable[..., object]) -> None:
    with pytest.raises(ConfigError, match=r"\(ctx, args\) or \(args\)"):
        ToolRegistry().register(function, name="tool", arguments=Sum)


@pytest.mark.parametrize("name", ["", "a b", "größe", "a.b", "x" * 65, "tool\n"])
def test_an_illegal_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="tool name"):
        ToolRegistry().register(add, name=name)


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan")])
def test_a_timeout_that_is_none_is_refused(timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="more than 0 seconds"):
        ToolRegistry().register(add, timeout_s=timeout_s)


def test_an_example_has_to_fit_the_arguments() -> None:
    with pytest.raises(ConfigError, match="add 1 and x"):
        ToolRegistry().register(add, examples=[ToolExample(question="add 1 and x", arguments={"a": 1, "x": 2})])


async def stream() -> AsyncIterator[int]:
    yield 1


def lines() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("function", [stream, lines])
def test_a_generator_is_refused(function: Callable[..., object]) -> None:
    with pytest.raises(ConfigError, match="generator"):
        ToolRegistry().register(function)


def test_specs_are_the_same_object_until_a_tool_comes() -> None:
    registry = ToolRegistry()
    registry.register(add)
    registry.register(with_args, arguments=Sum)
    everything, one = registry.specs(), registry.specs(["add"])
    assert registry.specs() is everything
    assert registry.specs(visible=lambda tool: True) is everything
    assert registry.specs(("with_args", "add")) is everything
    assert registry.specs(visible=lambda tool: tool.name == "add") is one
    registry.register(blocking, arguments=Sum)
    assert [spec.name for spec in registry.specs()] == ["add", "with_args", "blocking"]
    assert registry.specs(["add"]) == one


def test_a_name_that_no_tool_has_is_told() -> None:
    with pytest.raises(ConfigError, match="'sub'"):
        ToolRegistry().specs(["sub"])
    assert ToolRegistry().get("sub") is None


def test_a_tool_built_elsewhere_obeys_the_same_rules() -> None:
    async def invoke(ctx: RunContext, args: BaseModel) -> object:
        return "ok"

    tool = Tool(name="remote", description="d", arguments=Sum, parameters={}, invoke=invoke)
    registry = ToolRegistry()
    registry.add(tool)
    assert registry.get("remote") is tool
    with pytest.raises(ConfigError, match="twice"):
        registry.add(tool)


async def test_a_plain_wrapper_around_a_coroutine_function_is_awaited() -> None:
    @functools.wraps(add)
    def wrapper(**arguments: int) -> object:
        return add(**arguments)

    registry = ToolRegistry()
    registry.register(wrapper)
    result = await ToolExecutor(registry).run_one(Run().ctx, call("add", a=1))
    assert result.content == "3"
