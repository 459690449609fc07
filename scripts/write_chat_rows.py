"""Write docs/chat-bug-rows.md: public bugs of other chat bots, and the tests that keep them out of Hermod.

Run it as ``python -m scripts.write_chat_rows``. ``tests/unit/docs/test_chat_rows.py`` fails when the page is out of
date, or when a row has neither a test nor a reason. A test belongs to a row when the row's id stands at the beginning
of its name: ``test_b051_...``, or ``test_b038_b042_...`` for two rows.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scripts.chat_rows import ROWS, ChatRow
from scripts.write_bug_table import ROOT, FoundTest, describe_kept, find_named, write_page

PAGE = ROOT / "docs" / "chat-bug-rows.md"
_NAME = re.compile(r"test_((?:b\d{3}_)+)(\w+)")


def find_tests(root: Path = ROOT, *, name: re.Pattern[str] = _NAME) -> Mapping[str, Sequence[FoundTest]]:
    """Find the tests of every row (``B051``) by their names, sorted by file and line.

    ``name`` matches a test's name: first the ids of its rows, each with ``_`` behind it, then what goes wrong.
    """
    found: defaultdict[str, list[FoundTest]] = defaultdict(list)
    for match, test in find_named(name, root):
        for row in match[1].strip("_").split("_"):
            found[row.upper()].append(test)
    return found


def render_page(tests: Mapping[str, Sequence[FoundTest]]) -> str:
    """Return the text of the page."""
    return lay_out(_HEAD, ROWS, tests, name=_NAME)


def lay_out(
    head: Sequence[str], rows: Sequence[ChatRow], tests: Mapping[str, Sequence[FoundTest]], *, name: re.Pattern[str]
) -> str:
    """Lay out a page: its head, how many rows have tests, and the table."""
    tried = sum(1 for row in rows if tests.get(row.id))
    return "\n".join([*head, f"{tried} of {len(rows)} rows have tests.", "", *_TABLE, *_lines(rows, tests, name), ""])


def _lines(rows: Sequence[ChatRow], tests: Mapping[str, Sequence[FoundTest]], name: re.Pattern[str]) -> Iterator[str]:
    for row in rows:
        kept = describe_kept(name, tests.get(row.id, ()), row.why_not)
        yield f"| {row.id} | {row.symptom} | {_links(row)} | {kept} |"


def _links(row: ChatRow) -> str:
    return ", ".join(map(_link, row.links.split()))


def _link(name: str) -> str:
    repository, mark, number = re.fullmatch(r"([^#@]+)([#@]?)(\w*)", name).groups()  # type: ignore[union-attr]
    kind = {"#": f"/issues/{number}", "@": f"/commit/{number}", "": ""}[mark]
    return f"[{repository.rpartition('/')[2]}{mark}{number}](https://github.com/{repository}{kind})"


_HEAD = [
    "# Bugs of other chat bots",
    "",
    "What people reported of other bots on Slack and Discord, and the tests that keep each of it out of Hermod. The",
    "tests run against the local servers of `tests/servers/slack` and `tests/servers/discord`, through the official",
    "clients. A test of row B051 is called `test_b051_...`; `pytest -k test_b051` runs it. This page is written by",
    "`python -m scripts.write_chat_rows`.",
    "",
]
_TABLE = ["| row | what people saw | reported in | tests |", "|--|--|--|--|"]


def main() -> int:
    """Write the page if it changed."""
    return write_page(PAGE, render_page(find_tests()))


if __name__ == "__main__":
    sys.exit(main())
