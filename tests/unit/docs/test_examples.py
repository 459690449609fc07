"""What the pages show can be used: TOML is loaded as settings, named files are there, and tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_core.prompts import load_prompts
from agent_core.telemetry import names
from agent_core.workers import load_built_in
from bot.settings import load_settings
from bot.words import HELP

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{n}")
    for page in PAGES
    for n, block in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL), 1)
]
TREES = ("adapters", "agent_core", "benchmarks", "bot", "docs", "reading", "scripts", "tests")
SECRETS = {
    "bot_token": "xoxb-1-of-an-example",
    "app_token": "xapp-1-of-an-example",
    "TAVILY_API_KEY": "tvly-of-an-example",
}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_of_settings_can_be_loaded(block: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of-an-example")
    block = re.sub(r'(_file = )"[^"]+"', rf'\1"{secret}"', block)
    named = re.findall(r'^ *(\w+)_env = "(\w+)"', block, flags=re.MULTILINE)
    environ = {variable: SECRETS.get(key, SECRETS.get(variable, "of-an-example")) for key, variable in named}
    if "channel_targets" in block and "[targets" not in block:
        block += '\n[targets.shop]\nurl = "postgresql://u@h/d"\n[targets.billing]\nurl = "postgresql://u@h/d"\n'
    if "[reports." in block and "[slack]" not in block:
        block += '\n[slack]\nbot_token = "xoxb-1"\napp_token = "xapp-1"\n[access]\nworkspaces = ["slack:T0123ABCD"]\n'
    path = tmp_path / "hermod.toml"
    path.write_text(block, encoding="utf-8")
    settings = load_settings(path, environ, installed=lambda module: True)
    assert settings.notices == ()


def test_there_are_examples_of_every_table_that_has_a_page() -> None:
    shown = "".join(str(block.values[0]) for block in BLOCKS)
    for table in ("[[models]]", "[router]", "[cache]", "[workers.", "[prompts]", "[otel]", "[slack]", "[targets."):
        assert table in shown, table


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    for name in re.findall(rf"`((?:{'|'.join(TREES)})/[\w./-]+)`", page.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_every_template_and_every_worker_has_a_row() -> None:
    page = read("docs/workers.md")
    rows = "\n".join(row for row in page.splitlines() if row.startswith("|"))
    for name, template in load_prompts().items():
        (row,) = (row for row in rows.splitlines() if f"`{name}`" in row and "`{" in row)
        shown = set(re.findall(r"`\{(\w+)\}`", row))
        assert template.placeholders <= shown <= template.allowed, name
    for worker in load_built_in():
        (row,) = (row for row in rows.splitlines() if row.startswith(f"| `{worker.name}` |"))
        assert f"| `{worker.template}` |" in row
        assert tuple(re.findall(r"`(\w+)`", row.rsplit("|", 2)[1])) == worker.agent.tools


def test_every_metric_has_a_row() -> None:
    page = read("docs/observability.md")
    for convention in names.METRICS.values():
        for name, _, _ in convention.values():
            assert f"`{name}`" in page, name
    sources = "".join((ROOT / "bot" / name).read_text(encoding="utf-8") for name in ("app.py", "http.py", "models.py"))
    for name in set(re.findall(r'"(hermod_[a-z_]+)"', sources)):
        assert f"`{name}`" in page, name


def test_every_word_about_a_thread_is_documented() -> None:
    page = read("docs/memory.md")
    for word in re.findall(r"`(![a-z]+)", HELP):
        assert f"`{word}" in page, word
