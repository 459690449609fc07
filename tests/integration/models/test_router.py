"""The router over real connections; the servers' request journals are the witness of who was asked, and how often."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from agent_core.errors import AllProvidersFailed
from agent_core.llm.breaker import BreakerState
from agent_core.llm.openai_compat import OpenAICompatible
from agent_core.llm.retry import RetryPolicy
from agent_core.llm.router import Route, Router
from agent_core.llm.types import ModelMessage, ModelRequest, ModelResponse, StreamItem, StreamRestarted, TextChunk
from tests.servers.openai import OpenAIServer
from tests.unit.engine.running import HandClock

Pair = tuple[OpenAIServer, OpenAIServer]
TEXT = "one two three four five"


def ask(*, timeout_s: float = 20.0) -> ModelRequest:
    return ModelRequest(messages=(ModelMessage(role="user", content="hi"),), timeout_s=timeout_s)


@pytest.fixture
async def servers() -> AsyncIterator[Pair]:
    async with OpenAIServer() as first, OpenAIServer() as second:
        yield first, second


@pytest.fixture
async def providers(servers: Pair) -> AsyncIterator[tuple[OpenAICompatible, OpenAICompatible]]:
    async with AsyncExitStack() as stack:
        made = [
            OpenAICompatible(name=name, model="fake-large", api_key="sk-test", base_url=server.base_url)
            for name, server in zip(("first", "second"), servers, strict=True)
        ]
        for provider in made:
            stack.push_async_callback(provider.aclose)
        yield made[0], made[1]


Providers = tuple[OpenAICompatible, OpenAICompatible]


async def collect(router: Router) -> list[StreamItem]:
    return [item async for item in router.stream(ask())]


async def test_bug_32_fifty_waiters_at_half_open_send_exactly_one_probe(servers: Pair, providers: Providers) -> None:
    servers[0].on().fail(500, times=3)
    servers[0].on().text("back")
    servers[1].on().text("from the second")
    clock = HandClock()
    router = Router(providers, clock=clock)
    for _ in range(5):
        await router.complete(ask())
    assert (len(servers[0].requests), router.states()[0].state) == (3, BreakerState.OPEN)
    clock.seconds = 60.0
    answers = await asyncio.gather(*(router.complete(ask()) for _ in range(50)))
    assert len(servers[0].requests) == 4
    assert sorted(r.message.content for r in answers) == ["back"] + ["from the second"] * 49
    assert router.states()[0].state is BreakerState.CLOSED


async def test_bug_32_a_probe_that_fails_keeps_fifty_waiters_away_for_another_minute(
    servers: Pair, providers: Providers
) -> None:
    servers[0].on().fail(503)
    clock = HandClock()
    router = Router([providers[0]], clock=clock)
    with pytest.raises(AllProvidersFailed):
        await router.complete(ask())
    assert len(servers[0].requests) == 3
    for minute in (1, 2):
        clock.seconds += 60.0
        errors = await asyncio.gather(*(router.complete(ask()) for _ in range(50)), return_exceptions=True)
        assert {type(e) for e in errors} == {AllProvidersFailed}
        assert len(servers[0].requests) == 3 + minute
        assert router.states()[0].wait_s == pytest.approx(60.0)


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_primary_that_hangs_costs_its_timeout_and_then_the_secondary_answers(
    servers: Pair, providers: Providers, streaming: bool
) -> None:
    servers[0].on().hang()
    servers[1].on().text("from the second")
    router = Router([Route(providers[0], timeout_s=3.0), Route(providers[1], priority=1)])
    providers[0].prepare()
    async with asyncio.timeout(60):  # the journals below show that one timeout passed and no wait; benchmarks time it
        response = (await collect(router))[-1] if streaming else await router.complete(ask())
    assert isinstance(response, ModelResponse)
    assert (response.message.content, response.attempts) == ("from the second", 2)
    assert [len(s.requests) for s in servers] == [1, 1]
    assert router.states()[0].last_error == "first: no answer within 3 s"


async def test_bug_28_a_retry_after_over_the_wire_is_waited_for_or_opens_the_breaker(
    servers: Pair, providers: Providers
) -> None:
    servers[0].on().fail(429, retry_after=5, times=1)
    servers[0].on().fail(429, retry_after=600, times=1)
    servers[0].on().text("back")
    clock = HandClock()
    router = Router([providers[0]], clock=clock)
    with pytest.raises(AllProvidersFailed):
        await router.complete(ask())
    assert (clock.seconds, router.states()[0].wait_s, len(servers[0].requests)) == (5.0, 600.0, 2)
    clock.seconds = 604.0
    with pytest.raises(AllProvidersFailed):
        await router.complete(ask())
    clock.seconds = 605.0
    assert (await router.complete(ask())).message.content == "back"
    assert len(servers[0].requests) == 3


async def test_no_more_requests_arrive_than_the_budget_allows(servers: Pair, providers: Providers) -> None:
    for server in servers:
        server.on().fail(500)
    with pytest.raises(AllProvidersFailed) as caught:
        await Router(providers, clock=HandClock(), policy=RetryPolicy(max_attempts=3)).complete(ask())
    assert [len(s.requests) for s in servers] == [2, 1]
    assert len(caught.value.failures) == 3


@pytest.mark.parametrize("quirk", ["cut", "garbage"])
async def test_bug_33_a_stream_that_breaks_after_text_is_begun_anew_by_the_second(
    servers: Pair, providers: Providers, quirk: str
) -> None:
    servers[0].on().text(TEXT, quirk=quirk)
    servers[1].on().text(TEXT)
    router = Router(providers)
    items = await collect(router)
    restart = next(n for n, item in enumerate(items) if isinstance(item, StreamRestarted))
    assert restart > 0
    assert "".join(i.text for i in items[restart:] if isinstance(i, TextChunk)) == TEXT
    assert isinstance(items[-1], ModelResponse)
    assert items[-1].message.content == TEXT
    assert router.states()[0].failures == 1


async def test_bug_33_without_restarts_the_second_is_not_asked(servers: Pair, providers: Providers) -> None:
    servers[0].on().text(TEXT, quirk="cut")
    servers[1].on().text(TEXT)
    with pytest.raises(AllProvidersFailed):
        await collect(Router(providers, restart_streams=False))
    assert servers[1].requests == []


async def test_bug_33_a_failure_before_the_first_text_is_silent(servers: Pair, providers: Providers) -> None:
    servers[0].on().drop()
    servers[1].on().text(TEXT)
    items = await collect(Router(providers))
    assert not any(isinstance(item, StreamRestarted) for item in items)
    assert "".join(i.text for i in items if isinstance(i, TextChunk)) == TEXT


async def test_a_stream_that_another_task_closes_ends_at_the_server_too(servers: Pair, providers: Providers) -> None:
    servers[0].on().text(TEXT, quirk="stall")
    router = Router([Route(providers[0], max_concurrency=1)])
    for n in range(1, 4):
        items = router.stream(ask())
        assert isinstance(await anext(items), TextChunk)
        await asyncio.create_task(items.aclose())  # type: ignore[attr-defined]
        async with asyncio.timeout(60):
            while servers[0].in_flight:  # noqa: ASYNC110 - the server has no event to wait for
                await asyncio.sleep(0.01)
        assert (servers[0].cancelled, router.states()[0].under_way) == (n, 0)
    assert router.states()[0].failures == 0


async def test_a_route_keeps_its_number_of_requests_at_the_server(servers: Pair, providers: Providers) -> None:
    servers[0].on().text("ok").after(0.1)
    router = Router([Route(providers[0], max_concurrency=3)])
    await asyncio.gather(*(router.complete(ask()) for _ in range(30)))
    assert (servers[0].peak, len(servers[0].requests)) == (3, 30)


async def test_faults_on_both_sides_leave_no_request_without_an_end(servers: Pair, providers: Providers) -> None:
    rng = random.Random(7)
    for server in servers:
        for _ in range(40):
            rule = server.on()
            match rng.randrange(5):
                case 0:
                    rule.fail(500)
                case 1:
                    rule.fail(429, retry_after=rng.choice([1, 5]))
                case 2:
                    rule.drop()
                case 3:
                    rule.hang()
                case _:
                    rule.text("one two three four five", quirk="cut")
            rule.once()
        server.on().text("ok")
    routes = [Route(p, timeout_s=0.3, weight=w) for p, w in zip(providers, (80, 20), strict=True)]
    router = Router(routes, clock=HandClock(), rng=rng)
    async with asyncio.timeout(100):
        results = await asyncio.gather(
            *(router.complete(ask(timeout_s=60.0)) for _ in range(60)), return_exceptions=True
        )
    assert {type(r) for r in results} <= {ModelResponse, AllProvidersFailed}
    # one that ran out of time while it connected was sent, but did not arrive
    assert sum(len(s.requests) for s in servers) <= sum(s.requests for s in router.states()) <= 60 * 3
    assert [s.under_way for s in router.states()] == [0, 0]
