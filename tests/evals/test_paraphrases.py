"""At least 85 % of the paraphrases reach the right tool with the right arguments, and the rest say what can be done.

``development`` was used to tune the offline provider. ``heldout`` was written before its code, ``heldout_second`` and
``heldout_third`` after it; each was scored before anything was changed for it (the first scores are in the docstring
of ``test_held_out_questions_reach_the_right_tool``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from agent_core.context import SystemClock
from agent_core.llm.types import ToolSpec
from agent_core.tools.builtin import register_builtin
from agent_core.tools.registry import ToolRegistry
from bot.jobs.desk import JobDesk
from bot.settings_tree import ResearchSettings
from bot.storage.base import Store
from bot.tools.databases import register_database_tools
from bot.tools.jobs.tools import register_job_tools
from bot.tools.research.tools import register_research_tools
from bot.tools.targets import Target, Targets
from tests.evals.scoring import Case, ask, load_cases, score
from tests.evals.toolset import CORE, TARGETS, WIDE, NoStore

REQUIRED = 0.85


def shipped_tools() -> tuple[ToolSpec, ...]:
    registry = ToolRegistry()
    register_builtin(registry)
    targets = Targets([Target.from_url(name, f"postgresql://reader@localhost/{name}") for name in TARGETS])
    register_database_tools(registry, targets, cast("Store", NoStore()), SystemClock())
    register_research_tools(registry, ResearchSettings(), SystemClock())
    register_job_tools(registry, cast("JobDesk", None), templates=("daily-database", "weekly-regression"))
    return registry.specs()


SHIPPED = shipped_tools()
SHIPPED_NAMES = frozenset(tool.name for tool in SHIPPED)
TOOLSETS: dict[str, tuple[Sequence[ToolSpec], str]] = {
    "core": (CORE, "wide"),
    "wide": (WIDE, "core"),
    "shipped": (SHIPPED, "wide"),
    "shipped and wide": ((*SHIPPED, *(t for t in WIDE[len(CORE) :] if t.name not in SHIPPED_NAMES)), "core"),
}
"""Name -> the tools, and the group of questions that does not fit them."""


async def test_held_out_questions_about_databases_reach_the_right_tool() -> None:
    """Written after the tools, and scored once before anything was changed for it: 85 %."""
    share, misses = await score(load_cases("heldout_databases"), SHIPPED)
    assert share >= REQUIRED, "\n".join(misses)


async def check(name: str, toolset: str) -> None:
    tools, left_out = TOOLSETS[toolset]
    cases = [case for case in load_cases(name) if case.group != left_out]
    share, misses = await score(cases, tools)
    print(f"{name} against {toolset}: {share:.1%} of {len(cases)}", *misses, sep="\n")
    assert share >= REQUIRED, f"{len(misses)} of {len(cases)} missed:\n" + "\n".join(misses)


@pytest.mark.parametrize("toolset", TOOLSETS)
async def test_development_questions_reach_the_right_tool(toolset: str) -> None:
    await check("development", toolset)


@pytest.mark.parametrize("toolset", TOOLSETS)
@pytest.mark.parametrize("name", ["heldout", "heldout_second", "heldout_third"])
async def test_held_out_questions_reach_the_right_tool(name: str, toolset: str) -> None:
    """First scores, core / wide tools: heldout 98 / 96 %, heldout_second 85 / 78 %, heldout_third 94 / 96 %."""
    await check(name, toolset)


def test_the_sets_are_as_large_as_promised_and_share_no_question() -> None:
    development = load_cases("development")
    assert len(development) >= 150
    assert len(load_cases("heldout")) >= 80
    seen = {(c.after, c.question.casefold()) for c in development}
    for name in ("heldout", "heldout_second", "heldout_third"):
        assert not [c.question for c in load_cases(name) if (c.after, c.question.casefold()) in seen]


@pytest.mark.parametrize(
    "case", [c for c in load_cases("heldout") if not c.calls and "thanks" not in c.question], ids=lambda c: c.question
)
async def test_what_reaches_no_tool_is_told_what_can_be_done(case: Case) -> None:
    made, text = await ask(case, CORE)
    assert made == []
    assert all(f"`{tool.name}`" in text for tool in CORE)
    assert all(tool.examples[0].question in text for tool in CORE)


def test_a_wrong_argument_counts_as_a_miss() -> None:
    from tests.evals.scoring import same_calls

    wanted = [["get_slow_queries", {"time_range": "last_1h"}]]
    assert same_calls([["get_slow_queries", {"time_range": "last_60min"}]], wanted)
    assert not same_calls([["get_slow_queries", {"time_range": "last_2h"}]], wanted)
    assert not same_calls([["get_slow_queries", {"time_range": "last_1h", "limit": 5}]], wanted)
    assert not same_calls([["running_queries", {"time_range": "last_1h"}]], wanted)
    assert not same_calls([], wanted)
