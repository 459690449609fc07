"""docs/adding-a-tool.md is run: its module is loaded as a user's would be, its test file by pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HERMOD = "from bot.cli import main; main()"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder with the page's files in it."""
    page = (ROOT / "docs" / "adding-a-tool.md").read_text(encoding="utf-8")
    for block in re.findall(r"```(?:python|toml)\n(.*?)```", page, flags=re.DOTALL):
        named = re.match(r"# ([\w/]+\.py)\n", block)
        path = tmp_path / (named.group(1) if named else "hermod.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block, encoding="utf-8")
    return tmp_path


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HERMOD_", "OPENAI_"))}
    environ["PYTHONPATH"] = environ["MYPYPATH"] = f"{project}:{ROOT}"
    return subprocess.run(
        [sys.executable, *words],
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_page_has_its_three_files(project: Path) -> None:
    files = {str(path.relative_to(project)) for path in project.rglob("*.*")}
    assert files == {"my_ops/tools.py", "hermod.toml", "test_my_ops.py"}


def test_the_test_of_the_page_passes(project: Path) -> None:
    done = run(
        project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "test_my_ops.py"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_tool_of_the_page_is_listed_and_runs_by_its_settings(project: Path) -> None:
    listed = run(project, "-c", HERMOD, "tools", "list")
    assert "disk_space" in listed.stdout, listed.stdout + listed.stderr
    done = run(project, "-c", HERMOD, "tools", "run", "disk_space", "path=/", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"free_bytes"' in done.stdout


def test_the_code_of_the_page_passes_the_type_checker(project: Path) -> None:
    options = ("--strict", "--explicit-package-bases", "--cache-dir", os.devnull, "--follow-imports", "silent")
    done = run(project, "-m", "mypy", *options, "my_ops/tools.py", "test_my_ops.py")
    assert done.returncode == 0, done.stdout + done.stderr
