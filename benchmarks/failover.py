"""How late an answer is when the first provider hangs: wall seconds of one request through the router."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

from agent_core.llm.openai_compat import OpenAICompatible
from agent_core.llm.router import Route, Router
from agent_core.llm.types import ModelMessage, ModelRequest, ModelResponse
from benchmarks.cells import DONE
from benchmarks.fleet import open_server
from benchmarks.table import Row

TIMEOUT_S = 1.0
SLACK = 0.10
FAILURES = 3
REQUEST = ModelRequest(messages=(ModelMessage(role="user", content="hello"),))


def measure() -> list[Row]:
    """Ask a router whose first provider hangs; the rows of the table."""
    with open_server() as url:
        return [*asyncio.run(_measure(url, stream=False)), *asyncio.run(_measure(url, stream=True))]


async def _measure(url: str, *, stream: bool) -> list[Row]:
    """Ask as often as opens the first provider's breaker, and then once more."""
    router = Router(
        [
            Route(OpenAICompatible(name=name, model=name, api_key="k", base_url=url), priority=n, timeout_s=TIMEOUT_S)
            for n, name in enumerate(("hang", "now"))
        ]
    )
    router.prepare()
    try:
        waits = [await _ask(router, stream=stream) for _ in range(FAILURES)]
        avoided = await _ask(router, stream=stream)
    finally:
        await router.aclose()
    what, who = "primary hangs: answered by the second", "streamed" if stream else "whole"
    most = TIMEOUT_S * (1 + SLACK)
    return [
        Row(
            cell=what,
            who=f"{who}, time-out {TIMEOUT_S:.1f} s",
            value=f"{max(waits):.3f} s at most",
            ratio=f"[{min(waits):.3f}-{max(waits):.3f} s]",
            bound=f"<= {most:.2f} s",
            holds=max(waits) <= most,
        ),
        Row(cell=what, who=f"{who}, breaker open", value=f"{avoided * 1000:.1f} ms"),
    ]


async def _ask(router: Router, *, stream: bool) -> float:
    """Ask once; wall seconds."""
    begun = time.perf_counter()
    response = await (_last_of_stream(router) if stream else router.complete(REQUEST))
    waited = time.perf_counter() - begun
    if response.message.content != DONE or response.provider != "now":
        raise SystemExit(f"bench: {response.provider} answered {response.message.content!r}")
    return waited


async def _last_of_stream(router: Router) -> ModelResponse:
    async with aclosing(router.stream(REQUEST)) as items:  # type: ignore[type-var]
        *_, last = [item async for item in items]
    assert isinstance(last, ModelResponse)
    return last
