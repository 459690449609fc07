"""The sources under an answer: from the results alone, each page once, and no title is more than text."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from adapters.markdown.parse import parse_markdown
from adapters.markdown.tree import Link, ListBlock, Paragraph, Text
from agent_core.tools.base import ToolResult
from bot.tools.research.sources import MOST_SOURCES, list_sources


def result(name: str, **content: object) -> ToolResult:
    at = datetime(2026, 5, 1, tzinfo=UTC)
    return ToolResult(call_id="1", name=name, ok=True, content=json.dumps(content), started_at=at)


def page(url: str, title: str = "A page") -> dict[str, str]:
    return {"url": url, "title": title}


def test_pages_that_were_read_come_first_and_none_comes_twice() -> None:
    listed = list_sources(
        [
            result("web_search", rows=[page("https://a.org/x", "X"), page("https://www.b.org/y/", "Y")]),
            result("read_webpage", **page("http://b.org/y#part", "Y, read")),
            result("search_papers", rows=[page("https://arxiv.org/abs/1", "P"), page("https://a.org/x", "X again")]),
            result("get_slow_queries", rows=[page("https://no.org/")]),
        ]
    )
    assert listed == (
        "**Sources**\n\n1. [Y, read](http://b.org/y#part)\n2. [X](https://a.org/x)\n3. [P](https://arxiv.org/abs/1)"
    )


def test_an_answer_without_research_has_none() -> None:
    assert list_sources([]) == ""
    assert list_sources([result("calculator", result=3)]) == ""
    assert list_sources([result("web_search", rows=[])]) == ""
    assert list_sources([replace(result("read_webpage", **page("https://a.org/")), ok=False)]) == ""


def test_what_is_no_page_is_no_source() -> None:
    turned = ("https://a.org/\u202egro.b", "https://a.org/\u2066x", "https://a.org/\u200bx")
    for url in (
        *turned,
        "javascript:alert(1)",
        "ftp://a.org/x",
        "https://u:p@a.org/",
        "https://a.org/x y",
        "https:///x",
        "x",
    ):
        assert list_sources([result("read_webpage", **page(url))]) == ""


def test_there_are_at_most_ten_and_the_rest_is_counted() -> None:
    rows = [page(f"https://a.org/{n}") for n in range(15)]
    listed = list_sources([result("web_search", rows=rows)])
    assert listed.count("](https://a.org/") == MOST_SOURCES
    assert listed.endswith("and 5 more that were found")


def test_a_broken_result_is_left_out() -> None:
    broken = ToolResult(
        call_id="1", name="web_search", ok=True, content="{", started_at=datetime(2026, 5, 1, tzinfo=UTC)
    )
    assert list_sources([broken, result("web_search", rows="x"), result("web_search", rows=[1, {"url": 3}])]) == ""


TITLES = st.text(st.characters(codec="utf-8"), max_size=60) | st.sampled_from(
    [
        *("](https://evil.example)", "[x](y)", "<https://evil.example|Deploy>", "**bold**", "a\n\n# b", "`", "![x](y)"),
        *("\\", "&lt;", "http://a.b", "www.evil.example", "a@b.example", "pg_stat_statements", "_x_", "~~y~~", "| a |"),
    ]
)


@given(titles=st.lists(TITLES, min_size=1, max_size=4))
def test_a_title_never_becomes_more_than_the_label_of_its_own_link(titles: list[str]) -> None:
    rows = [page(f"https://a.org/{n}", title) for n, title in enumerate(titles)]
    heading, listed = parse_markdown(list_sources([result("web_search", rows=rows)])).blocks
    assert isinstance(heading, Paragraph)
    assert isinstance(listed, ListBlock)
    for row, item in zip(rows, listed.items, strict=True):
        (paragraph,) = item
        assert isinstance(paragraph, Paragraph)
        (link,) = paragraph.children
        assert isinstance(link, Link)
        assert link.url == row["url"]
        assert all(isinstance(part, Text) for part in link.children)
