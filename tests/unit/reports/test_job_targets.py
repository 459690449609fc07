"""A job's run reaches its targets, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent_core.context import RunContext
from agent_core.tools.approval import Denial
from agent_core.tools.base import Tool
from agent_core.tools.registry import ToolRegistry
from bot.access import Caller
from bot.jobs.job_targets import JobAuthorizer, JobDeps

ANA = Caller(platform="slack", workspace="T1", channel="C1", user_id="U1")


class Program:
    """The program's own authorizer; it allows what it is told to, and keeps what it was asked."""

    def __init__(self, denial: Denial | None = None) -> None:
        self.denial, self.asked = denial, 0

    def visible(self, ctx: RunContext, tool: Tool) -> bool:
        return self.denial is None

    async def authorize(self, ctx: RunContext, tool: Tool, arguments: Mapping[str, object]) -> Denial | None:
        self.asked += 1
        return self.denial


def tools() -> Mapping[str, Tool]:
    registry = ToolRegistry()

    async def look(target: str | None = None) -> str:
        """Look."""
        return ""

    async def add(n: int) -> str:
        """Add."""
        return ""

    registry.register(look)
    registry.register(add)
    return {tool.name: tool for tool in registry.tools()}


LOOK, ADD = tools()["look"], tools()["add"]


def context(*targets: str) -> RunContext:
    return RunContext.create(deps=JobDeps(callers=(ANA,), targets=frozenset(targets)))


@pytest.mark.parametrize("name", ["shop", "SHOP"])
async def test_the_jobs_target_is_allowed_where_the_program_allows_it(name: str) -> None:
    program = Program()
    assert await JobAuthorizer(program, ["shop", "crm"]).authorize(context("shop"), LOOK, {"target": name}) is None
    assert program.asked == 1
    refusing = JobAuthorizer(Program(Denial(reason="no")), ["shop"])
    assert await refusing.authorize(context("shop"), LOOK, {"target": name}) == Denial(reason="no")


@pytest.mark.parametrize("target", ["crm", "", None, "shop ", 3])
async def test_every_other_target_is_refused_and_the_audit_chain_never_hears_that_it_was_allowed(
    target: object,
) -> None:
    program = Program()
    denial = await JobAuthorizer(program, ["shop", "crm"]).authorize(context("shop"), LOOK, {"target": target})
    assert denial is not None
    assert program.asked == 0


async def test_a_call_without_a_name_means_the_only_configured_target() -> None:
    assert await JobAuthorizer(Program(), ["shop"]).authorize(context("shop"), LOOK, {"target": None}) is None
    assert await JobAuthorizer(Program(), ["shop"]).authorize(context("crm"), LOOK, {"target": None}) is not None
    assert await JobAuthorizer(Program(), ["shop"]).authorize(context(), LOOK, {"target": "shop"}) is not None


async def test_a_tool_without_targets_is_the_programs_business() -> None:
    assert await JobAuthorizer(Program(), ["shop", "crm"]).authorize(context("shop"), ADD, {"n": 1}) is None


async def test_a_run_that_is_no_jobs_may_do_nothing() -> None:
    authorizer, ctx = JobAuthorizer(Program(), ["shop"]), RunContext.create(deps=None)
    assert not authorizer.visible(ctx, LOOK)
    assert await authorizer.authorize(ctx, ADD, {"n": 1}) is not None
    assert authorizer.visible(context("shop"), LOOK)
