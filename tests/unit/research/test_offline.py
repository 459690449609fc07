"""Without a model the research tools are reached by words, and take no question away from the other tools."""

from __future__ import annotations

import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.context import SystemClock
from agent_core.llm.offline import OfflineProvider
from agent_core.llm.types import ModelMessage, ModelRequest, ToolSpec
from agent_core.tools.builtin import register_builtin
from agent_core.tools.registry import ToolRegistry
from bot.settings_tree import ResearchSettings
from bot.storage.base import Store
from bot.tools.databases import register_database_tools
from bot.tools.research.tools import register_research_tools
from bot.tools.targets import Target, Targets
from reading.links import find_links
from tests.evals.scoring import load_cases, score
from tests.evals.toolset import TARGETS, NoStore

RESEARCH = {"web_search", "read_webpage", "search_papers", "generate_report"}


def build_specs(*, research: bool) -> tuple[ToolSpec, ...]:
    registry = ToolRegistry()
    register_builtin(registry)
    targets = Targets([Target.from_url(name, f"postgresql://reader@localhost/{name}") for name in TARGETS])
    register_database_tools(registry, targets, cast("Store", NoStore()), SystemClock())
    register_research_tools(registry, ResearchSettings(enabled=research), SystemClock())
    return registry.specs()


async def ask(question: str) -> list[tuple[str, dict[str, object]]]:
    request = ModelRequest(messages=(ModelMessage(role="user", content=question),), tools=build_specs(research=True))
    response = await OfflineProvider(SystemClock()).complete(request)
    return [(call.name, json.loads(call.arguments)) for call in response.message.tool_calls]


@pytest.mark.parametrize(
    ("question", "name", "arguments"),
    [
        ("search the web for pg_stat_statements overhead", "web_search", {"query": "pg_stat_statements overhead"}),
        ("look up online what wal_compression does", "web_search", {"query": "what wal_compression does"}),
        ("上网搜索 postgres 锁 升级", "web_search", {"query": "postgres 锁 升级"}),
        ("read https://a.org/b_c-d.html", "read_webpage", {"url": "https://a.org/b_c-d.html"}),
        ("打开链接 https://example.org/a_b", "read_webpage", {"url": "https://example.org/a_b"}),
        ("read https://a.org/x?id=3&v=4.", "read_webpage", {"url": "https://a.org/x?id=3&v=4"}),
        ("what does https://a.org/p?q=slow+queries say?", "read_webpage", {"url": "https://a.org/p?q=slow+queries"}),
        ("读一下https://a.org/a?b=c。", "read_webpage", {"url": "https://a.org/a?b=c"}),
        ("open the link (https://a.org/x_(y);z?k=v;w)!", "read_webpage", {"url": "https://a.org/x_(y);z?k=v;w"}),
        ("read https://a.org/?q=serch+databse", "read_webpage", {"url": "https://a.org/?q=serch+databse"}),
        (
            "read https://a.org/slow-queries/today?limit=5",
            "read_webpage",
            {"url": "https://a.org/slow-queries/today?limit=5"},
        ),
        ("read the page `https://a.org/x?y=1`", "read_webpage", {"url": "https://a.org/x?y=1"}),
        ("search the web for https://a.org/x?y=1 mirror", "web_search", {"query": "https://a.org/x?y=1 mirror"}),
        ("find papers about cardinality estimation", "search_papers", {"query": "cardinality estimation"}),
        ("search arxiv for bloom filters in 2024", "search_papers", {"query": "bloom filters", "year": 2024}),
        ("查找关于 查询优化 的论文", "search_papers", {"query": "查询优化"}),
    ],
)
async def test_words_reach_the_research_tools(question: str, name: str, arguments: dict[str, object]) -> None:
    assert await ask(question) == [(name, arguments)]


async def test_two_addresses_are_two_pages_and_what_follows_is_asked_too() -> None:
    assert await ask("read https://a.org/a?b=1, https://b.org/?x=1 and then what is 17*23?") == [
        ("read_webpage", {"url": "https://a.org/a?b=1"}),
        ("read_webpage", {"url": "https://b.org/?x=1"}),
        ("calculator", {"expression": "17*23"}),
    ]


async def test_a_target_called_reporting_is_no_word_of_the_tool_that_writes_reports() -> None:
    ((_, arguments),) = await ask("slow queries in the reporting db for the last hour")
    assert arguments == {"time_range": "last_1h", "target": "reporting"}


@pytest.mark.parametrize("name", ["heldout_databases", "heldout"])
async def test_no_question_about_a_database_is_drawn_away(name: str) -> None:
    cases = [case for case in load_cases(name) if case.group != "wide"]
    before, _ = await score(cases, build_specs(research=False))
    after, misses = await score(cases, build_specs(research=True))
    assert after >= before, "\n".join(misses)
    assert not [miss for miss in misses if any(f'"{tool}"' in miss.partition("got")[2] for tool in RESEARCH)]


async def test_switched_off_they_are_not_there() -> None:
    assert not RESEARCH & {spec.name for spec in build_specs(research=False)}


@given(text=st.text(st.sampled_from("https://a.b?=&()[]，。 \n`<>|'\"中*_~"), max_size=60))
def test_an_address_is_a_part_of_the_text_and_ends_before_the_marks_of_the_sentence(text: str) -> None:
    for link in find_links(f"see https://x.org/{text}"):
        assert f"see https://x.org/{text}"[link.start : link.end] == link.url
        assert not any(c in link.url for c in ' \n，。`<>|"中')
        assert link.url[-1] not in ".,;:!?'*_~"
