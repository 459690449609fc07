"""Fail on functions over 80 lines and modules over 600, warn from 60 and 400 on; and keep the engine small.

Run it as ``python -m scripts.check_sizes``. In functions and modules docstrings and blank lines count, and tests are
looked at too. The engine as a whole may have 6,000 lines of code; there blank lines, comments and docstrings do not
count, so that nobody saves on these.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("agent_core", "adapters", "bot", "reading", "tests", "benchmarks", "scripts")
FUNCTION_WARN, FUNCTION_MAX = 60, 80
MODULE_WARN, MODULE_MAX = 400, 600
ENGINE, ENGINE_MAX = "agent_core", 6_000

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


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


def count_code(text: str) -> int:
    """Return the lines of a module that hold code: neither blank, nor only a comment, nor a part of a docstring.

    A docstring is any string that stands alone, so the one below a constant is one too. A line that continues a
    statement counts, as does each line of a string that is a value.
    """
    alone = (
        n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
    )
    documents = {(n.lineno, n.col_offset) for n in alone if isinstance(n.value, str)}
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        begin = (token.start[0], len(token.line[: token.start[1]].encode()))  # ast counts bytes
        if token.type not in _NO_CODE and begin not in documents:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def main() -> int:
    """Print every size over a limit; return 1 if one is fatal."""
    paths = sorted(path for folder in FOLDERS for path in Path(folder).rglob("*.py"))
    sizes = [size for path in paths for size in measure_module(path, path.read_text(encoding="utf-8"))]
    for size in sizes:
        word = "error" if size.fatal else "warning"
        sys.stdout.write(f"{size.where}: {word}: {size.name} has {size.lines} lines, more than {size.limit}\n")
    sys.stdout.write(f"sizes: {len(paths)} modules, {len(sizes)} over a limit\n")
    code = sum(count_code(path.read_text(encoding="utf-8")) for path in Path(ENGINE).rglob("*.py"))
    word = "error: the engine" if code > ENGINE_MAX else ENGINE
    sys.stdout.write(f"sizes: {word} has {code:,} lines of code, at most {ENGINE_MAX:,}\n")
    return 1 if code > ENGINE_MAX or any(size.fatal for size in sizes) else 0


if __name__ == "__main__":
    sys.exit(main())
