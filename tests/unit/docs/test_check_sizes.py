"""The engine's size is counted in lines of code, and a larger one fails the check."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.check_sizes import ENGINE_MAX, count_code, main

MODULE = '''"""The module's docstring.

It has a blank line inside.
"""

from os import (  # a statement of three lines
    path,
)

# a comment

LIMIT = 3
"""A string that stands alone documents the constant above it."""

TEXT = """a string that is a value

counts with its blank line"""


class Some:
    """One line."""

    def work(self) -> str:
        """Two
        lines."""
        # a comment
        return f"{LIMIT} # no comment"


ünïcode = 1; """alone, behind a statement with signs of two bytes"""
def inline() -> None: """On the line of its def."""
'''


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (MODULE, 12),
        ("", 0),
        ('"""Only a docstring."""\n', 0),
        ("# only a comment\n\n", 0),
        ("x = 1  # with a comment\n", 1),
        ("x = [\n    # why\n    1,\n\n]\n", 3),
        ("x = 1 + \\\n    2\n", 2),
    ],
)
def test_only_lines_of_code_count(text: str, lines: int) -> None:
    assert count_code(text) == lines


@pytest.mark.parametrize(("lines", "code", "said"), [(0, 0, "agent_core has"), (1, 1, "error: the engine has")])
def test_an_engine_that_grew_over_its_bound_fails_the_check(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lines: int,
    code: int,
    said: str,
) -> None:
    folder = tmp_path / "agent_core" / "llm"
    folder.mkdir(parents=True)
    for n in range(ENGINE_MAX // 500):
        (folder / f"m{n}.py").write_text('"""Text."""\n\n# why\n' + "x = 1\n" * 500)
    (tmp_path / "agent_core" / "more.py").write_text("x = 1\n" * lines)
    monkeypatch.chdir(tmp_path)
    assert main() == code
    assert f"{said} {ENGINE_MAX + lines:,} lines of code, at most {ENGINE_MAX:,}" in capsys.readouterr().out


def test_the_engine_is_within_its_bound() -> None:
    modules = (Path(__file__).parents[3] / "agent_core").rglob("*.py")
    assert 1_000 < sum(count_code(path.read_text(encoding="utf-8")) for path in modules) <= ENGINE_MAX
