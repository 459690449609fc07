"""Write docs/database-bug-rows.md: public bugs of other database tools, and the tests that keep them out of Hermod.

Run it as ``python -m scripts.write_database_rows``. ``tests/unit/docs/test_database_rows.py`` fails when the page is
out of date, or when a row has neither a test nor a reason. A test of row D12 is called ``test_d12_...``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.database_rows import ROWS
from scripts.write_bug_table import ROOT, FoundTest, write_page
from scripts.write_chat_rows import find_tests as find_rows
from scripts.write_chat_rows import lay_out

PAGE = ROOT / "docs" / "database-bug-rows.md"
_NAME = re.compile(r"test_((?:d\d{2}_)+)(\w+)")


def find_tests(root: Path = ROOT) -> Mapping[str, Sequence[FoundTest]]:
    """Find the tests of every row (``D12``) by their names, sorted by file and line."""
    return find_rows(root, name=_NAME)


def render_page(tests: Mapping[str, Sequence[FoundTest]]) -> str:
    """Return the text of the page."""
    return lay_out(_HEAD, ROWS, tests, name=_NAME)


_HEAD = [
    "# Bugs of other database tools",
    "",
    "What people reported of other tools that read statistics, logs and plans of databases, or that let a model run",
    "SQL, and the tests that keep each of it out of Hermod. They run against real servers wherever one is needed. A",
    "test of row D12 is called `test_d12_...`; `pytest -k test_d12` runs it. This page is written by `python -m",
    "scripts.write_database_rows`.",
    "",
]


def main() -> int:
    """Write the page if it changed."""
    return write_page(PAGE, render_page(find_tests()))


if __name__ == "__main__":
    sys.exit(main())
