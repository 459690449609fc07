"""Without a model the research tools are reached by words, and take no question away from the other tools."""

from __future__ import annotations

import json
from typing import cast

import pytest

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
        ("find papers about cardinality estimation", "search_papers", {"query": "cardinality estimation"}),
        ("search arxiv for bloom filters in 2024", "search_papers", {"query": "bloom filters", "year": 2024}),
        ("查找关于 查询优化 的论文", "search_papers", {"query": "查询优化"}),
    ],
)
async def test_words_reach_the_research_tools(question: str, name: str, arguments: dict[str, object]) -> None:
    assert await ask(question) == [(name, arguments)]


@pytest.mark.parametrize("name", ["heldout_databases", "heldout"])
async def test_no_question_about_a_database_is_drawn_away(name: str) -> None:
    cases = [case for case in load_cases(name) if case.group != "wide"]
    before, _ = await score(cases, build_specs(research=False))
    after, misses = await score(cases, build_specs(research=True))
    assert after >= before, "\n".join(misses)
    assert not [miss for miss in misses if any(f'"{tool}"' in miss.partition("got")[2] for tool in RESEARCH)]


async def test_switched_off_they_are_not_there() -> None:
    assert not RESEARCH & {spec.name for spec in build_specs(research=False)}
