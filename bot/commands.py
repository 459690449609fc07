"""Slash commands and ``hermod tools run``: one tool, called by a person, its result laid out for people."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping

from adapters.chat import Command
from agent_core.context import RunContext
from agent_core.llm.types import ToolCall, ToolSpec
from agent_core.tools.base import ToolResult
from agent_core.tools.executor import ToolExecutor
from reading.layout import render_result


class BadArguments(ValueError):
    """The words behind a tool's name cannot be read; the message says how they are written."""


def parse_pairs(spec: ToolSpec, words: list[str]) -> dict[str, object]:
    """Read ``key=value`` words into a tool's arguments; words without a key are its first argument.

    Values are taken as JSON where the schema does not ask for text, so that ``limit=5`` is a number.

    Raises:
        BadArguments: a key is unknown, or comes twice.
    """
    properties = spec.parameters.get("properties")
    fields = dict(properties) if isinstance(properties, Mapping) else {}
    arguments: dict[str, object] = {}
    loose: list[str] = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier() or (key not in fields and loose):
            loose.append(word)
        elif key not in fields:
            raise BadArguments(f"{spec.name} has no argument {key!r}; {describe_usage(spec)}")
        elif key in arguments:
            raise BadArguments(f"{key} is given twice; {describe_usage(spec)}")
        else:
            arguments[key] = _read_value(value, fields[key])
    if loose:
        first = next((name for name in fields if name not in arguments), None)
        if first is None:
            raise BadArguments(f"{spec.name} takes no further argument; {describe_usage(spec)}")
        arguments[first] = _read_value(" ".join(loose), fields[first])
    return arguments


def _read_value(value: str, schema: object) -> object:
    types = json.dumps(schema)
    if '"string"' in types:
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def summarise(spec: ToolSpec) -> str:
    """Return the first sentence of a tool's description, on one line."""
    text = " ".join(spec.description.split())
    return re.split(r"(?<=[.!?:])\s", text, maxsplit=1)[0]


def describe_usage(spec: ToolSpec) -> str:
    """Write how a tool is called, on one line."""
    properties = spec.parameters.get("properties")
    required = spec.parameters.get("required")
    names = list(properties) if isinstance(properties, Mapping) else []
    needed = required if isinstance(required, list) else []
    words = [f"{name}=..." if name in needed else f"[{name}=...]" for name in names]
    return f"write: {' '.join([spec.name, *words])}"


class CommandRunner:
    """Runs ``TOOL key=value ...`` through the same executor as the agent, with the same checks."""

    def __init__(self, executor: ToolExecutor) -> None:
        self._executor = executor

    def find(self, ctx: RunContext, name: str) -> ToolSpec | None:
        """Return the tool of that name, if this run may know of it."""
        return next((s for s in self._executor.specs(ctx) if s.name == name), None)

    async def call(self, ctx: RunContext, spec: ToolSpec, arguments: Mapping[str, object]) -> ToolResult:
        """Run a tool with arguments."""
        return await self._executor.run_one(
            ctx, ToolCall(id=f"{ctx.run_id}_command", name=spec.name, arguments=json.dumps(arguments))
        )

    async def run(self, ctx: RunContext, command: Command) -> tuple[str, bool]:
        """Answer a slash command with Markdown, and say whether it went well."""
        try:
            words = shlex.split(command.text)
        except ValueError as e:
            return f"I cannot read that: {e}. Put a text with blanks between two quotes.", False
        if not words or words[0] == "help":
            return self._help(ctx, command.name), True
        spec = self.find(ctx, words[0])
        if spec is None:
            return f"There is no tool `{words[0]}` here.\n\n{self._help(ctx, command.name)}", False
        try:
            arguments = parse_pairs(spec, words[1:])
        except BadArguments as e:
            return str(e), False
        result = await self.call(ctx, spec, arguments)
        return render_result(result.content, {}), result.ok

    def _help(self, ctx: RunContext, name: str) -> str:
        lines = [f"- `{name} {describe_usage(s).removeprefix('write: ')}`" for s in self._executor.specs(ctx)]
        return "\n".join(["These tools can be run directly:", *lines])
