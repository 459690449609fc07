"""The documents say what the program has: settings, tools, commands, error codes, dependencies, import rules."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["settings.md", "tools.md", "commands.md"])
def test_the_generated_part_of_a_page_is_up_to_date(name: str) -> None:
    from scripts.write_docs import render_page

    assert render_page(name) == (DOCS / name).read_text(encoding="utf-8"), "run: make docs"


def test_every_setting_is_documented_with_a_description() -> None:
    from bot.settings import describe_settings

    page = read("docs/settings.md")
    for doc in describe_settings():
        assert f"| `{doc.key}` |" in page, doc.key
        assert doc.description.endswith("."), doc.key


def test_every_tool_is_documented_and_has_examples() -> None:
    from scripts.write_docs import load_tools

    page = read("docs/tools.md")
    assert {tool.name for tool in load_tools()} >= {"get_slow_queries", "explain_query", "calculator", "current_time"}
    for tool in load_tools():
        assert f"### {tool.name}\n" in page
        assert tool.examples or tool.name == "read_output", tool.name  # a note in a result asks for that, nobody else


def test_every_command_is_documented_with_a_description() -> None:
    from scripts.write_docs import list_commands

    page = read("docs/commands.md")
    commands = list_commands()
    assert "tools run" in commands
    for name, command in commands.items():
        assert f"`hermod {name}" in page, name
        assert command.help, name


def find_error_codes() -> Iterator[tuple[str, Path]]:
    for folder in ("agent_core", "bot"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    named = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
                    name = node.func.id if isinstance(node.func, ast.Name) else ""
                    for value in named + (node.args[:1] if name in ("_Refused", "render_failure") else []):
                        if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
                            yield value.value, path


def test_every_error_code_of_a_tool_is_documented() -> None:
    codes = dict(find_error_codes())
    assert {"unknown_tool", "unknown_target", "denied"} <= codes.keys()
    documented = set(re.findall(r"`([a-z_]+)`", read("docs/tools.md")))
    assert codes.keys() <= documented, {code: codes[code] for code in codes.keys() - documented}


def test_every_dependency_is_documented_with_reason_and_licence() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    wanted = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ]
    names = {re.split(r"[\[<>=~! ]", line)[0] for line in wanted} - {"hermod-bot"}
    rows = {
        row.split("|")[1].strip().strip("`"): [cell.strip() for cell in row.split("|")[2:-1]]
        for row in read("docs/dependencies.md").splitlines()
        if row.startswith("| `")
    }
    assert rows.keys() == names
    assert all(all(cells) for cells in rows.values())


def test_links_between_documents_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_every_module_of_the_product_is_bound_by_the_rule_on_database_drivers() -> None:
    contracts = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (rule,) = (contract for contract in contracts if contract["name"].startswith("database drivers"))
    modules = [*(ROOT / "bot").glob("*.py"), *(path.parent for path in (ROOT / "bot").glob("*/__init__.py"))]
    own = {f"bot.{path.stem}" for path in modules if not path.stem.startswith("__")}
    assert own - {"bot.storage", "bot.tools", "bot.demo"} <= set(rule["source_modules"])


def test_every_module_of_the_engine_is_bound_by_the_rule_on_model_vendors() -> None:
    contracts = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (rule,) = (contract for contract in contracts if contract["name"].startswith("model vendors"))
    modules = [
        *(ROOT / "agent_core").glob("*.py"),
        *(path.parent for path in (ROOT / "agent_core").glob("*/__init__.py")),
    ]
    own = {f"agent_core.{path.stem}" for path in modules if not path.stem.startswith("__")}
    assert own - {"agent_core.llm"} <= set(rule["source_modules"])


def test_the_changelog_knows_the_version() -> None:
    from bot import __version__

    assert f"## [{__version__}]" in read("CHANGELOG.md")
