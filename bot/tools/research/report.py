"""A report of titled sections, as one Markdown text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_core.errors import ModelRetry
from bot.tools.python_sandbox.files import clean_file_name
from bot.tools.research.answer import ReportAnswer
from bot.tools.research.text import clean_line, clean_lines

MOST_SECTIONS = 20
MOST_CHARS = 16_000
"""Of a report, so that its result is not cut, and its file is the whole."""
TITLE_CHARS = 200
_NAME_CHARS = 60


class ReportSection(BaseModel):
    """One section of a report."""

    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, Field(min_length=1, max_length=TITLE_CHARS, description="Its heading, one line.")]
    text: Annotated[
        str,
        Field(
            min_length=1,
            max_length=MOST_CHARS,
            description="Markdown: statements with their sources, lists, tables. No headings of the first two levels.",
        ),
    ]


def build_report(title: str, sections: Sequence[ReportSection]) -> ReportAnswer:
    """Put a report together.

    Raises:
        ModelRetry: it is longer than ``MOST_CHARS``, or has nothing in it.
    """
    heading = clean_line(title, TITLE_CHARS)
    parts = [f"# {heading}"]
    for section in sections:
        text = clean_lines(section.text).strip()
        if not text:
            raise ModelRetry(f"the section {section.title!r} has no text; write it, or leave the section out")
        parts.append(f"## {clean_line(section.title, TITLE_CHARS)}\n\n{_lower_headings(text)}")
    if not heading:
        raise ModelRetry("the report has no title; pass one line of text")
    markdown = "\n\n".join(parts) + "\n"
    if len(markdown) > MOST_CHARS:
        raise ModelRetry(
            f"the report has {len(markdown):,} characters, and may have {MOST_CHARS:,}; shorten its sections"
        )
    return ReportAnswer(file=_name(heading), characters=len(markdown), markdown=markdown)


def _lower_headings(text: str) -> str:
    """Put the headings of a section below that of the section; what stands in a code block stays."""
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = re.match(r" {0,3}(`{3,}|~{3,})", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1][0] == fence[0] and len(mark[1]) >= len(fence) and not line.strip(" `~"):
            fence = ""
        lines.append(re.sub(r"^(#{1,2})(?= )", "###", line) if not fence else line)
    return "\n".join(lines)


def _name(title: str) -> str:
    stem = re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title.casefold())).strip("-_")[:_NAME_CHARS].rstrip("-_")
    return clean_file_name(f"{stem or 'report'}.md")
