"""The tools that a program offers, by name."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypedDict, TypeVar, Unpack, overload

from pydantic import BaseModel, ValidationError

from agent_core.context import RunContext
from agent_core.errors import ConfigError
from agent_core.llm.types import ToolExample, ToolSpec
from agent_core.tools.base import Effect, Tool
from agent_core.tools.bounded import run_in_thread
from agent_core.tools.schema import (
    Arguments,
    build_arguments,
    build_description,
    build_parameters,
    describe_function,
    forbid_unknown,
)

F = TypeVar("F", bound=Callable[..., object])
Invoke = Callable[[RunContext, BaseModel], Awaitable[object]]

NAME_PATTERN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What OpenAI's and Anthropic's APIs take as a tool name."""

_SPEC_TUPLES = 256


class ToolOptions(TypedDict, total=False):
    """Options of ``ToolRegistry.register``.

    ``name``: default is the function's. ``description``: written for the model; default is the docstring without
    ``Args:`` and ``Raises:``. ``arguments``: a pydantic model; unknown names are refused in any case. ``examples``:
    questions with arguments that have to be valid. The others are fields of ``Tool``: say WRITE or EXEC as ``effect``
    for whatever changes something, ``trusted`` only where no outsider wrote what comes back, and ``private`` where it
    should not be kept beyond the conversation.
    """

    name: str | None
    description: str | None
    arguments: type[BaseModel] | None
    examples: Sequence[ToolExample]
    effect: Effect
    timeout_s: float | None
    exclusive: bool
    cache_ttl_s: float | None
    trusted: bool
    private: bool


class ToolRegistry:
    """Tools in the order of their registration. Filled at start; reading it is safe from anywhere."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}
        self._specs: dict[str, ToolSpec] = {}
        self._tuples: dict[tuple[str, ...], tuple[ToolSpec, ...]] = {}

    @overload
    def register(self, function: F, /, **options: Unpack[ToolOptions]) -> F: ...

    @overload
    def register(self, function: None = None, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def register(self, function: F | None = None, /, **options: Unpack[ToolOptions]) -> F | Callable[[F], F]:
        """Register ``function`` as a tool; without it, return a decorator that does.

        A coroutine function is awaited; any other function runs in a thread of its own, so it may block.

        Args:
            function: what runs. With the option ``arguments`` it takes ``(ctx, args)`` or ``(args)``, else the
                arguments by name as its signature says (see ``agent_core.tools.schema.build_arguments``).
            options: see ``ToolOptions``.

        Returns:
            The function, unchanged, so that it stays callable.

        Raises:
            ConfigError: the name is taken or illegal, the signature cannot be offered to a model, an example
                does not fit, or the timeout is not positive.
        """
        if function is None:
            return lambda decorated: self.register(decorated, **options)
        given = options.get("name")
        name = given if given is not None else str(getattr(function, "__name__", type(function).__name__))
        derived, invoke = _derive(function, options.get("arguments"), name)
        examples = tuple(options.get("examples", ()))
        _check_examples(name, derived.model, examples)
        description = options.get("description") or build_description(function) or name.replace("_", " ")
        self.add(
            Tool(
                name=name,
                description=description,
                arguments=derived.model,
                parameters=derived.parameters,
                invoke=invoke,
                examples=examples,
                effect=options.get("effect", Effect.READ),
                timeout_s=options.get("timeout_s"),
                exclusive=options.get("exclusive", False),
                cache_ttl_s=options.get("cache_ttl_s"),
                trusted=options.get("trusted", False),
                private=options.get("private", False),
            )
        )
        return function

    def add(self, tool: Tool) -> None:
        """Take a tool that was built elsewhere.

        Raises:
            ConfigError: its name is illegal or already taken, or its timeout is not positive.
        """
        if NAME_PATTERN.fullmatch(tool.name) is None:
            raise ConfigError(f"tool name {tool.name!r} is not 1 to 64 letters, digits, '_' or '-'")
        if tool.timeout_s is not None and not tool.timeout_s > 0:
            raise ConfigError(f"tool {tool.name!r}: timeout_s is {tool.timeout_s}, but has to be more than 0 seconds")
        if tool.name in self._tools:
            raise ConfigError(f"tool {tool.name!r} is registered twice; give one of them another name")
        self._tools[tool.name] = tool
        self._specs[tool.name] = tool.spec

    def get(self, name: str) -> Tool | None:
        """Return the tool with this name, or None."""
        return self._tools.get(name)

    def names(self) -> tuple[str, ...]:
        """Return all names."""
        return tuple(self._tools)

    def tools(self) -> tuple[Tool, ...]:
        """Return all tools."""
        return tuple(self._tools.values())

    def specs(
        self, names: Collection[str] | None = None, visible: Callable[[Tool], bool] | None = None
    ) -> tuple[ToolSpec, ...]:
        """Return what a model is told, in the order of registration.

        The same selection gives the same tuple object, so a provider may keep what it made of it by identity.

        Args:
            names: only these; None means all.
            visible: leaves out the tools for which it returns False.

        Raises:
            ConfigError: ``names`` has one that is not registered.
        """
        if names is not None:
            missing = [name for name in names if name not in self._tools]
            if missing:
                raise ConfigError(f"no tool is registered as {', '.join(map(repr, missing))}")
        chosen = tuple(
            name
            for name, tool in self._tools.items()
            if (names is None or name in names) and (visible is None or visible(tool))
        )
        known = self._tuples.get(chosen)
        if known is None:
            if len(self._tuples) >= _SPEC_TUPLES:  # one for each set of rights; far fewer in practice
                self._tuples.clear()
            known = self._tuples[chosen] = tuple(self._specs[name] for name in chosen)
        return known


# -- how a function is called ----------------------------------------------------------------------


def _derive(function: Callable[..., object], arguments: type[BaseModel] | None, name: str) -> tuple[Arguments, Invoke]:
    if arguments is None:
        derived = build_arguments(function)
        return derived, _invoke_by_name(function, derived, name)
    model = forbid_unknown(arguments)
    return Arguments(model=model, parameters=build_parameters(model)), _invoke_with_model(function, name)


def _invoke_by_name(function: Callable[..., object], derived: Arguments, name: str) -> Invoke:
    call = _as_async(function, name)
    context, renamed = derived.context, derived.renamed

    async def invoke(ctx: RunContext, args: BaseModel) -> object:
        values = {renamed.get(key, key): value for key, value in args.__dict__.items()}
        if context is not None:
            values[context] = ctx
        return await call(**values)

    return invoke


def _invoke_with_model(function: Callable[..., object], name: str) -> Invoke:
    call = _as_async(function, name)
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.KEYWORD_ONLY) for p in parameters):
        raise ConfigError(f"{describe_function(function)}: with an argument model it takes (ctx, args) or (args)")
    match len(parameters):
        case 1:

            async def invoke(ctx: RunContext, args: BaseModel) -> object:
                return await call(args)

        case 2:

            async def invoke(ctx: RunContext, args: BaseModel) -> object:
                return await call(ctx, args)

        case count:
            raise ConfigError(
                f"{describe_function(function)}: with an argument model it takes (ctx, args) or (args), "
                f"not {count} parameters"
            )
    return invoke


def _as_async(function: Callable[..., object], name: str) -> Callable[..., Awaitable[object]]:
    """Give ``function`` back as something to await; what blocks goes to a thread."""
    body = function if inspect.isroutine(function) else type(function).__call__
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise ConfigError(f"{describe_function(function)}: a generator cannot be a tool; return the whole result")
    if inspect.iscoroutinefunction(body):
        return function  # type: ignore[return-value]  # just established

    async def call(*args: object, **kwargs: object) -> object:
        value = await run_in_thread(lambda: function(*args, **kwargs), label=name)
        # a plain wrapper around a coroutine function gives the coroutine back
        return await value if inspect.isawaitable(value) else value

    return call


def _check_examples(name: str, model: type[BaseModel], examples: Sequence[ToolExample]) -> None:
    for example in examples:
        try:
            model.model_validate_json(json.dumps(dict(example.arguments)))
        except (ValidationError, TypeError, ValueError) as error:
            raise ConfigError(f"tool {name!r}: the example {example.question!r} does not fit: {error}") from error
