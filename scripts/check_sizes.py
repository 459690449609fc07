"""Fail on functions over 80 lines and modules over 600; warn from 60 and 400 on.

Run it as ``python -m scripts.check_sizes``. Docstrings and blank lines count; so do tests.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("agent_core", "adapters", "bot", "reading", "tests", "benchmarks", "scripts")
FUNCTION_WARN, FUNCTION_MAX = 60, 80
MODULE_WARN, MODULE_MAX = 400, 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A module or function that is large. ``where`` is path and line; ``limit`` is the one it is over."""

    where: str
    name: str
    lines: int
    limit: int
    fatal: bool


def measure_module(path: Path, text: str) -> Iterator[Size]:
    """Yield what is too large in one module, the module itself first."""
    count = len(text.splitlines())
    if count > MODULE_WARN:
        yield _size(f"{path}:1", "module", count, MODULE_WARN, MODULE_MAX)
    for node in ast.walk(ast.parse(text, filename=str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_WARN:
                yield _size(f"{path}:{node.lineno}", node.name, count, FUNCTION_WARN, FUNCTION_MAX)


def _size(where: str, name: str, lines: int, warn: int, most: int) -> Size:
    fatal = lines > most
    return Size(where=where, name=name, lines=lines, limit=most if fatal else warn, fatal=fatal)


def main() -> int:
    """Print every size over a limit; return 1 if one is fatal."""
    paths = sorted(path for folder in FOLDERS for path in Path(folder).rglob("*.py"))
    sizes = [size for path in paths for size in measure_module(path, path.read_text(encoding="utf-8"))]
    for size in sizes:
        word = "error" if size.fatal else "warning"
        sys.stdout.write(f"{size.where}: {word}: {size.name} has {size.lines} lines, more than {size.limit}\n")
    sys.stdout.write(f"sizes: {len(paths)} modules, {len(sizes)} over a limit\n")
    return 1 if any(size.fatal for size in sizes) else 0


if __name__ == "__main__":
    sys.exit(main())
