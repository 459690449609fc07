"""A report of sections: one text, one file name, bounds that are told."""

from __future__ import annotations

import pytest

from agent_core.errors import ModelRetry
from bot.tools.research.report import MOST_CHARS, ReportSection, build_report


def section(title: str = "Findings", text: str = "Nothing blocks it [1].") -> ReportSection:
    return ReportSection(title=title, text=text)


def test_sections_stand_below_the_title() -> None:
    made = build_report("Upgrade to 18", [section(), section("Open", "- one\n- two")])
    assert made.markdown == "# Upgrade to 18\n\n## Findings\n\nNothing blocks it [1].\n\n## Open\n\n- one\n- two\n"
    assert (made.file, made.characters) == ("upgrade-to-18.md", len(made.markdown))


def test_headings_inside_a_section_stand_below_its_own() -> None:
    text = "# Big\n## Second\n### Third\n```\n# a comment\n```\n# Again"
    body = build_report("T", [section(text=text)]).markdown.partition("## Findings\n\n")[2]
    assert body == "### Big\n### Second\n### Third\n```\n# a comment\n```\n### Again\n"


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("../../etc/passwd", "etcpasswd.md"),
        ("升级到 18", "升级到-18.md"),
        ("???", "report.md"),
        ("x" * 200, f"{'x' * 60}.md"),
        ("CON", "file-con.md"),
    ],
)
def test_the_file_has_a_name_that_is_safe_everywhere(title: str, name: str) -> None:
    assert build_report(title, [section()]).file == name


def test_a_report_that_is_too_long_is_sent_back() -> None:
    with pytest.raises(ModelRetry, match="shorten"):
        build_report("T", [section(text="x" * (MOST_CHARS // 2)), section(text="x" * (MOST_CHARS // 2))])


def test_empty_parts_are_sent_back() -> None:
    with pytest.raises(ModelRetry, match="no text"):
        build_report("T", [section(text=" \n ")])
    with pytest.raises(ModelRetry, match="no title"):
        build_report("\u200b", [section()])
