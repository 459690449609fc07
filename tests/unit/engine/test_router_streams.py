"""What the router makes of streams that break, are closed, or fall back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from agent_core.errors import (
    AllProvidersFailed,
    ProviderUnavailable,
)
from agent_core.llm.breaker import BreakerState
from agent_core.llm.retry import RetryPolicy
from agent_core.llm.router import Route, Router
from agent_core.llm.types import ModelRequest, ModelResponse, StreamItem, StreamRestarted, TextChunk
from tests.unit.engine.router_cast import Actor, answer, ask, collect, down, fail
from tests.unit.engine.running import HandClock

# -- streams -------------------------------------------------------------------------------------------


async def test_bug_33_a_failure_before_the_first_text_is_silent() -> None:
    items = await collect(Router([Actor("a", *down()), Actor("b", "one two")], clock=HandClock()))
    assert [i.text for i in items if isinstance(i, TextChunk)] == ["one", "two"]
    assert [type(i) for i in items] == [TextChunk, TextChunk, ModelResponse]
    assert items[-1].attempts == 2  # type: ignore[union-attr]


async def test_bug_33_a_failure_after_it_restarts_the_answer_and_no_halves_are_glued() -> None:
    a, b = Actor("a", "never whole"), Actor("b", *down(1), "one two")
    a.breaks = ProviderUnavailable("broke off")
    c = Actor("c", "one two")
    items = await collect(Router([a, b, c], clock=HandClock()))
    assert items[:4] == [
        TextChunk(text="never"),
        StreamRestarted(reason="a: broke off"),
        TextChunk(text="one"),
        TextChunk(text="two"),
    ]
    last = items[4]
    assert isinstance(last, ModelResponse)
    assert (last.message.content, last.attempts, last.failures) == ("one two", 3, ("a: broke off", "b: down"))
    assert a.open_streams == b.open_streams == c.open_streams == 0


async def test_bug_33_without_restarts_a_failure_after_the_first_text_is_raised() -> None:
    a, b = Actor("a", "never whole"), Actor("b", "one two")
    a.breaks = ProviderUnavailable("broke off")
    router = Router([a, b, Route(Actor("offline"), free=True)], restart_streams=False)
    with pytest.raises(AllProvidersFailed, match="broke off"):
        await collect(router)
    assert (b.requests, router.states()[0].failures) == ([], 1)


async def test_bug_33_a_stream_without_a_response_at_its_end_is_a_failure_of_its_provider() -> None:
    class Short(Actor):
        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
            yield TextChunk(text="never")

    router = Router([Short("a"), Actor("b", "one")], clock=HandClock())
    kinds = [type(i) for i in await collect(router)]
    assert kinds == [TextChunk, StreamRestarted, TextChunk, ModelResponse]
    assert router.states()[0].failures == 1


async def test_the_stream_of_the_provider_that_answered_is_closed_before_the_response_is_handed_on() -> None:
    a = Actor("a", "one two")
    router = Router([Route(a, max_concurrency=1)])
    async with aclosing(router.stream(ask())) as items:  # type: ignore[type-var]
        async for item in items:
            if isinstance(item, ModelResponse):
                assert (a.open_streams, router.states()[0].under_way) == (0, 0)


async def test_a_stream_that_another_task_closes_leaves_slot_breaker_and_connection_free() -> None:
    clock = HandClock()
    a = Actor("a", *down(3), "one two three")
    router = Router([Route(a, max_concurrency=1, timeout_s=20.0)], clock=clock)
    await fail(router)
    clock.seconds = 100.0
    for _ in range(3):
        items = router.stream(ask())
        assert await anext(items) == TextChunk(text="one")
        assert router.states()[0].under_way == a.open_streams == 1
        await asyncio.create_task(items.aclose())  # type: ignore[attr-defined]
        assert router.states()[0].under_way == a.open_streams == 0
    assert router.states()[0].state is BreakerState.HALF_OPEN, "a stream that was left proves nothing"
    assert await answer(router) == "one two three"


async def test_a_stream_read_by_two_tasks_in_turn_keeps_its_timeout() -> None:
    class Stalls(Actor):
        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
            yield TextChunk(text="one")
            await asyncio.Event().wait()

    items = Router([Route(Stalls("a"), timeout_s=1.0)], policy=RetryPolicy(max_attempts=1)).stream(ask())

    async def read() -> StreamItem:
        return await anext(items)

    async with asyncio.timeout(30):
        assert await asyncio.create_task(read()) == TextChunk(text="one")
        with pytest.raises(AllProvidersFailed, match="no answer within"):
            await asyncio.create_task(read())
