"""Write the generated parts of docs/: settings, tools, commands and names, from what the program itself says.

Run it as ``python -m scripts.write_docs`` (``make docs``). ``tests/unit/docs`` fails when a page is out of date. A
generated part stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``; all else is written by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, cast

from agent_core.context import SystemClock
from agent_core.tools.base import Tool
from agent_core.tools.builtin import register_builtin
from agent_core.tools.registry import ToolRegistry
from bot.sandbox import PythonSandbox
from bot.settings import Settings, describe_settings
from bot.storage import open_store
from bot.tools.databases import register_database_tools
from bot.tools.research.tools import register_research_tools
from bot.tools.slow_logs.tool import register_slow_log_tool
from bot.tools.targets import Targets
from scripts.write_api import build_api

DOCS = Path(__file__).resolve().parents[1] / "docs"


def build_settings() -> str:
    """Every key, one table for each top-level table of the file."""
    lines: list[str] = []
    section = ""
    for doc in describe_settings():
        top = re.split(r"[.\[]", doc.key)[0]
        if top != section:
            section = top
            lines += ["", f"### {top}", "", "| key | type | default | what it does |", "|--|--|--|--|"]
        text = doc.description + (" *Not used yet.*" if doc.later else "")
        lines.append(f"| `{doc.key}` | {doc.type} | `{doc.default}` | {_cell(text)} |")
    return "\n".join(lines).strip()


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def load_tools() -> tuple[Tool, ...]:
    """Every tool that Hermod brings along, in the order of registration."""
    registry = ToolRegistry()
    register_database_tools(registry, Targets([]), open_store("sqlite:///never-opened.db"), SystemClock())
    register_builtin(registry)
    PythonSandbox(Settings(), SystemClock()).register(registry, versions=False)
    register_slow_log_tool(registry, Targets([]), SystemClock())
    register_research_tools(registry, Settings().research, SystemClock())
    return registry.tools()


def build_tools() -> str:
    """One section for each tool: what the model reads, its arguments, its examples."""
    return "\n\n".join("\n".join(_build_tool(tool)) for tool in load_tools())


def _build_tool(tool: Tool) -> Iterator[str]:
    yield f"### {tool.name}"
    yield ""
    yield f"Effect: {tool.effect.value}."
    yield ""
    yield "What the model is told:"
    yield ""
    yield from (f"> {line}".rstrip() for line in tool.description.splitlines())
    yield ""
    properties = cast("Mapping[str, Mapping[str, object]]", tool.parameters.get("properties", {}))
    required = cast("list[str]", tool.parameters.get("required", []))
    if properties:
        yield "| argument | type | default | meaning |"
        yield "|--|--|--|--|"
    for name, schema in properties.items():
        default = "required" if name in required else json.dumps(schema.get("default"))
        yield f"| `{name}` | {_name_type(schema)} | `{default}` | {_cell(str(schema.get('description', '')))} |"
    if tool.examples:
        yield ""
        yield "Examples:"
        yield ""
    for example in tool.examples:
        yield f"- {example.question} → `{json.dumps(dict(example.arguments), ensure_ascii=False)}`"


def _name_type(schema: Mapping[str, object]) -> str:
    if isinstance(choices := schema.get("enum"), list):
        return "one of: " + ", ".join(map(str, choices))
    if isinstance(parts := schema.get("anyOf"), list):
        return " or ".join(_name_type(part) for part in parts if part.get("type") != "null")
    bounds = [f"{word} {schema[key]}" for key, word in _BOUNDS.items() if key in schema]
    return ", ".join([str(schema.get("type", "any")), *bounds])


_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "maxLength": "characters up to",
}


class CommandInfo(Protocol):
    """What is read of a command (typer brings its own, untyped copy of click)."""

    help: str | None
    params: list[ParameterInfo]


class ParameterInfo(Protocol):
    """What is read of a parameter."""

    name: str | None
    metavar: str | None
    param_type_name: str
    opts: list[str]
    required: bool


def list_commands() -> dict[str, CommandInfo]:
    """Every command of ``hermod`` by its words, such as ``tools run``."""
    from typer.main import get_command

    from bot.cli import app

    def walk(group: object, words: str) -> Iterator[tuple[str, CommandInfo]]:
        commands: dict[str, CommandInfo] = getattr(group, "commands", {})
        for name, command in commands.items():
            if hasattr(command, "commands"):
                yield from walk(command, f"{words}{name} ")
            else:
                yield words + name, command

    return dict(walk(get_command(app), ""))


def build_commands() -> str:
    """One line for each command, with its arguments and options."""
    lines = ["| command | what it does |", "|--|--|"]
    for name, command in list_commands().items():
        words = ["hermod", name]
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                label = (parameter.metavar or parameter.name or "").upper()
                words.append(label if parameter.required else f"[{label}]")
            else:
                words.append(f"[{parameter.opts[0]}]")
        lines.append(f"| `{' '.join(words)}` | {_cell(command.help or '')} |")
    return "\n".join(lines)


PAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "settings.md": ("settings", build_settings),
    "tools.md": ("tools", build_tools),
    "commands.md": ("commands", build_commands),
    "api.md": ("api", build_api),
}


def render_page(name: str) -> str:
    """Return the text of a page with its generated part made anew.

    Raises:
        ValueError: the page has no place for it.
    """
    marker, build = PAGES[name]
    begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
    text = (DOCS / name).read_text(encoding="utf-8")
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"docs/{name} has no part between {begin} and {end}")
    return f"{before}{begin}\n\n{build()}\n\n{end}{after}"


def main() -> int:
    """Write every page that changed."""
    for name in PAGES:
        text = render_page(name)
        if text != (DOCS / name).read_text(encoding="utf-8"):
            (DOCS / name).write_text(text, encoding="utf-8")
            sys.stdout.write(f"docs/{name} written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
