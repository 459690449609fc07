"""The local web, and the research tools that look at it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from pydantic import SecretStr

from agent_core.context import Clock, Limits, RunContext, SystemClock
from agent_core.llm.types import ToolCall
from agent_core.tools.base import ToolResult
from agent_core.tools.builtin import register_builtin
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from bot.settings_tree import ResearchSettings
from bot.tools.research.tools import register_research_tools
from tests.servers.web import WebServer


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with WebServer() as made:
        yield made


def build_settings(server: WebServer, **changes: object) -> ResearchSettings:
    """Settings under which everything is asked of the local web."""
    values: dict[str, object] = {
        "provider": "searxng",
        "search_url": server.url("/searxng"),
        "allow_hosts": (server.address,),
        "arxiv_url": server.url("/arxiv/api/query"),
        "semantic_scholar_url": server.url("/graph/v1/paper/search"),
        **changes,
    }
    return ResearchSettings.model_validate(values)


@dataclass(slots=True)
class Desk:
    """The research tools in one thread; ``call`` runs one as an agent would."""

    registry: ToolRegistry
    executor: ToolExecutor
    ctx: RunContext
    calls: int = 0

    async def call(self, name: str, arguments: str) -> ToolResult:
        self.calls += 1
        call = ToolCall(id=f"call_{self.calls}", name=name, arguments=arguments)
        (result,) = await self.executor.run(self.ctx, [call])
        return result


BuildDesk = Callable[..., Desk]


@pytest.fixture
def build_desk(server: WebServer) -> BuildDesk:
    def build(*, clock: Clock | None = None, **changes: object) -> Desk:
        clock = clock or SystemClock()
        registry = ToolRegistry()
        register_builtin(registry)
        register_research_tools(registry, build_settings(server, **changes), clock)
        ctx = RunContext(run_id="r1", thread_id="t1", limits=Limits(), deadline=clock.monotonic() + 600, clock=clock)
        return Desk(registry=registry, executor=ToolExecutor(registry), ctx=ctx)

    return build


def keyed(server: WebServer, provider: str) -> dict[str, object]:
    """What changes in the settings for a service with a key."""
    paths = {"brave": "/brave/res/v1/web/search", "tavily": "/tavily/search"}
    return {"provider": provider, "search_url": server.url(paths[provider]), "api_key": SecretStr(server.key)}
