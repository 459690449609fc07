"""Whom the router asks, how often, how long, and what it makes of failures. Time is turned by hand."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.errors import (
    AllProvidersFailed,
    ConfigError,
    ContextOverflow,
    ProviderRefused,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
)
from agent_core.llm.breaker import BreakerPolicy, BreakerState
from agent_core.llm.retry import RetryPolicy
from agent_core.llm.router import Route, Router
from agent_core.llm.types import ModelRequest, ModelResponse
from tests.unit.engine.router_cast import Actor, Outcome, answer, ask, collect, down, fail, hanging
from tests.unit.engine.running import HandClock

# -- order -------------------------------------------------------------------------------------------


async def test_weights_are_the_shares_of_first_attempts_within_two_percent() -> None:
    journal: list[str] = []
    weights = {"main": 80, "second": 15, "third": 5}
    routes = [Route(Actor(name, journal=journal), weight=w) for name, w in weights.items()]
    router = Router(routes, rng=random.Random(1))
    for _ in range(10_000):
        await router.complete(ask())
    shares = {name: n / 100 for name, n in Counter(journal).items()}
    assert shares == {name: pytest.approx(w, abs=2.0) for name, w in weights.items()}


async def test_the_rest_of_the_draw_is_the_order_of_fallback() -> None:
    journal: list[str] = []
    first = Actor("main", ProviderRefused("no"), journal=journal)
    routes = [
        Route(first, priority=-1),
        Route(Actor("b", journal=journal), weight=75),
        Route(Actor("c", journal=journal), weight=25),
    ]
    router = Router(routes, rng=random.Random(2))
    for _ in range(2_000):
        await router.complete(ask())
    assert Counter(journal)["main"] == 2_000
    assert Counter(journal)["b"] / 20 == pytest.approx(75, abs=3)


async def test_priority_comes_before_weight_and_weight_zero_is_only_a_fallback() -> None:
    journal: list[str] = []
    routes = [
        Route(Actor("last", journal=journal), weight=1000, priority=2),
        Route(Actor("zero", ProviderRefused("no"), journal=journal), weight=0, priority=1),
        Route(Actor("first", ProviderRefused("no"), journal=journal), weight=0.001, priority=1),
    ]
    assert await answer(Router(routes, rng=random.Random(3))) == "ok"
    assert journal == ["first", "zero", "last"]


async def test_bare_providers_are_asked_in_their_order() -> None:
    for seed in range(20):
        journal: list[str] = []
        a, b = Actor("a", ProviderRefused("no"), journal=journal), Actor("b", journal=journal)
        await answer(Router([a, b], rng=random.Random(seed)))
        assert journal == ["a", "b"]


async def test_the_model_that_a_request_names_is_asked_first_unless_its_breaker_is_open() -> None:
    clock, journal = HandClock(), list[str]()
    a = Actor("a", journal=journal)
    b = Actor("b", "b", RateLimited("later", retry_after_s=600.0), journal=journal)
    router = Router([a, b], clock=clock)
    await router.complete(ask(model="b"))
    await router.complete(ask(model="b"))
    await router.complete(ask(model="b"))
    await router.complete(ask(model="nobody"))
    assert journal == ["b", "b", "a", "a", "a"]


async def test_a_route_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        Router([])
    for bad in ({"weight": -1.0}, {"weight": float("nan")}, {"timeout_s": 0.0}, {"max_concurrency": 0}):
        with pytest.raises(ConfigError, match="route to a"):
            Route(Actor("a"), **bad)


# -- one budget for retries and fallbacks --------------------------------------------------------------


async def test_a_fallback_is_asked_at_once() -> None:
    clock = HandClock()
    router = Router([Actor("a", *down()), Actor("b", "from b")], clock=clock)
    response = await router.complete(ask())
    assert (response.message.content, clock.seconds) == ("from b", 0.0)
    assert (response.attempts, response.failures) == (2, ("a: down",))


async def test_only_when_all_failed_it_waits_and_goes_round_again() -> None:
    clock, journal = HandClock(), list[str]()
    a = Actor("a", ProviderUnavailable("down"), journal=journal)
    b = Actor("b", ProviderUnavailable("down"), "better", journal=journal)
    policy = RetryPolicy(max_attempts=4)
    response = await Router([a, b], clock=clock, policy=policy).complete(ask())
    assert (journal, response.attempts, response.message.content) == (["a", "b", "a", "b"], 4, "better")
    assert 1.0 <= clock.seconds <= 2.0


async def test_retries_and_fallbacks_share_one_budget() -> None:
    clock, journal = HandClock(), list[str]()
    actors = [Actor(name, *down(), journal=journal) for name in "ab"]
    error = await fail(Router(actors, clock=clock))
    assert journal == ["a", "b", "a"]
    assert clock.seconds <= 2.0, "it waited although nothing may follow"
    assert [e.provider for e in error.failures] == ["a", "b", "a"]


async def test_waits_grow_from_round_to_round() -> None:
    clock = HandClock()
    await fail(Router([Actor("a", *down())], clock=clock, policy=RetryPolicy(max_attempts=3), rng=random.Random(4)))
    assert 3.0 <= clock.seconds <= 6.0
    assert clock.seconds not in (3.0, 6.0), "no jitter"


async def test_what_a_provider_refused_is_not_sent_to_it_again_but_to_the_next_one() -> None:
    journal: list[str] = []
    a = Actor("a", ContextOverflow("too long"), journal=journal)
    b = Actor("b", ProviderRefused("HTTP 401"), journal=journal)
    error = await fail(Router([a, b], clock=HandClock()))
    assert journal == ["a", "b"]
    assert [type(e) for e in error.failures] == [ContextOverflow, ProviderRefused]


async def test_with_one_provider_the_error_is_of_the_same_kind_and_tells_every_failure() -> None:
    a = Actor("a", ProviderUnavailable("one"), RateLimited("two"), ProviderTimeout("three"))
    error = await fail(Router([a], clock=HandClock()))
    assert [str(e) for e in error.failures] == ["one", "two", "three"]
    assert "a: one; a: two; a: three" in str(error)


# -- Retry-After ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked_s", [5.0, 60.0])
async def test_bug_28_a_short_retry_after_is_waited_for(asked_s: float) -> None:
    clock = HandClock()
    a = Actor("a", RateLimited("soon", retry_after_s=asked_s), "ok")
    assert await answer(Router([a], clock=clock)) == "ok"
    assert clock.seconds == asked_s


async def test_bug_28_a_long_retry_after_falls_back_now_and_opens_the_breaker_for_exactly_that_long() -> None:
    clock, journal = HandClock(), list[str]()
    a = Actor("a", RateLimited("later", retry_after_s=600.0), "ok", journal=journal)
    b = Actor("b", journal=journal)
    router = Router([a, b], clock=clock)
    await router.complete(ask())
    assert (clock.seconds, router.states()[0].state, router.states()[0].wait_s) == (0.0, BreakerState.OPEN, 600.0)
    for clock.seconds in (1.0, 599.0):
        await router.complete(ask())
    clock.seconds = 600.0
    await router.complete(ask())
    assert journal == ["a", "b", "b", "b", "a"]


async def test_bug_29_the_wait_follows_the_header_and_not_a_fixed_time() -> None:
    waits = []
    for asked_s in (3.0, 17.0, 42.0):
        clock = HandClock()
        await answer(Router([Actor("a", RateLimited("soon", retry_after_s=asked_s), "ok")], clock=clock))
        waits.append(clock.seconds)
    assert waits == [3.0, 17.0, 42.0]


async def test_it_waits_for_the_first_that_may_be_asked_again() -> None:
    clock, journal = HandClock(), list[str]()
    a = Actor("a", RateLimited("soon", retry_after_s=40.0), "ok", journal=journal)
    b = Actor("b", RateLimited("soon", retry_after_s=10.0), "ok", journal=journal)
    await answer(Router([a, b], clock=clock))
    assert (journal, clock.seconds) == (["a", "b", "b"], 10.0)


async def test_a_provider_that_asked_another_request_to_wait_is_waited_for_without_costing_an_attempt() -> None:
    clock = HandClock()
    a = Actor("a", RateLimited("soon", retry_after_s=20.0), "ok")
    router = Router([a], clock=clock, policy=RetryPolicy(max_attempts=1))
    await fail(router)
    response = await router.complete(ask())
    assert (response.attempts, clock.seconds, len(a.requests)) == (1, 20.0, 2)


# -- deadlines -------------------------------------------------------------------------------------------


async def test_a_wait_that_would_pass_the_deadline_is_not_begun() -> None:
    clock = HandClock()
    a = Actor("a", RateLimited("soon", retry_after_s=30.0))
    error = await fail(Router([a], clock=clock), ask(timeout_s=30.0))
    assert (clock.seconds, len(a.requests), len(error.failures)) == (0.0, 1, 1)


async def test_no_attempt_begins_after_the_deadline() -> None:
    clock = HandClock()

    class Slow(Actor):
        async def complete(self, request: ModelRequest) -> ModelResponse:
            clock.seconds += 10.0
            return await super().complete(request)

    a, b = Slow("a", *down()), Slow("b", *down())
    await fail(Router([a, b], clock=clock), ask(timeout_s=10.0))
    assert (len(a.requests), len(b.requests)) == (1, 0)


async def test_an_attempt_is_told_the_nearer_of_its_timeout_and_the_time_that_is_left() -> None:
    a, b = Actor("a", ProviderRefused("no")), Actor("b")
    routes = [Route(a, timeout_s=15.0), Route(b, timeout_s=90.0, priority=1)]
    await answer(Router(routes, clock=HandClock()), ask(timeout_s=40.0))
    assert (a.requests[0].timeout_s, b.requests[0].timeout_s) == (15.0, 40.0)


@pytest.mark.parametrize("streaming", [False, True])
async def test_bug_17_the_timeout_of_a_route_ends_a_provider_that_ignores_it_with_an_error_of_its_own(
    streaming: bool,
) -> None:
    a, b = hanging("a"), Actor("b", "from b")
    router = Router([Route(a, timeout_s=0.02), Route(b, priority=1)])
    async with asyncio.timeout(30):
        response = (await collect(router))[-1] if streaming else await router.complete(ask())
    assert isinstance(response, ModelResponse)
    assert (response.message.content, response.failures) == ("from b", ("a: no answer within 0.02 s",))
    state = router.states()[0]
    assert (state.failures, state.under_way, a.open_streams) == (1, 0, 0)


async def test_a_deadline_that_is_nearer_than_the_timeout_is_not_the_providers_fault() -> None:
    a, b = hanging("a"), Actor("b")
    router = Router([Route(a, timeout_s=30.0), Route(b, priority=1)], clock=HandClock())
    async with asyncio.timeout(30):
        error = await fail(router, ask(timeout_s=0.02))
    assert b.requests == [], "the deadline has passed, whatever the injected clock says"
    assert isinstance(error.failures[0], ProviderTimeout)
    assert (router.states()[0].failures, router.states()[0].errors) == (0, 1)


# -- breakers --------------------------------------------------------------------------------------------


async def test_bug_30_every_provider_that_fails_in_one_request_is_counted() -> None:
    router = Router([Actor(name, *down()) for name in "abc"], clock=HandClock())
    for _ in range(3):
        await fail(router)
    assert [s.state for s in router.states()] == [BreakerState.OPEN] * 3


async def test_an_open_breaker_is_told_and_costs_neither_time_nor_an_attempt() -> None:
    clock = HandClock()
    a = Actor("a", *down(3), "back")
    router = Router([a], clock=clock)
    await fail(router)
    clock.seconds = begun = 10.0
    error = await fail(router)
    assert (clock.seconds, len(a.requests)) == (begun, 3)
    assert isinstance(error.failures[0], ProviderUnavailable)
    assert "breaker open" in str(error)
    clock.seconds = 70.0
    assert await answer(router) == "back"
    assert router.states()[0].state is BreakerState.CLOSED


async def test_a_breaker_that_opens_within_a_request_ends_its_retries() -> None:
    clock, a = HandClock(), Actor("a", *down())
    router = Router([a], clock=clock, policy=RetryPolicy(max_attempts=10))
    await fail(router)
    assert len(a.requests) == 3


async def test_bug_32_fifty_waiters_at_half_open_send_one_probe_and_the_others_fall_back() -> None:
    clock = HandClock()
    a, b = Actor("a", *down(3), "back"), Actor("b", "from b")
    router = Router([a, b], clock=clock)
    for _ in range(3):
        await router.complete(ask())
    assert router.states()[0].state is BreakerState.OPEN
    clock.seconds = 60.0
    a.gate = asyncio.Event()
    tasks = [asyncio.create_task(answer(router)) for _ in range(50)]
    async with asyncio.timeout(30):
        while sum(task.done() for task in tasks) < 49:  # noqa: ASYNC110 - the fiftieth waits for the gate
            await asyncio.sleep(0)
    done, pending = await asyncio.wait(tasks, timeout=0)
    assert (len(a.requests), [t.result() for t in done], len(pending)) == (4, ["from b"] * 49, 1)
    a.gate.set()
    assert await pending.pop() == "back"


async def test_bug_32_a_cancelled_probe_frees_its_place_and_counts_nothing() -> None:
    clock = HandClock()
    a = Actor("a", *down(3), "back")
    router = Router([a], clock=clock)
    await fail(router)
    clock.seconds = 100.0
    a.gate = asyncio.Event()
    for _ in range(5):
        task = asyncio.create_task(router.complete(ask()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    state = router.states()[0]
    assert (state.state, state.failures, state.errors, state.under_way) == (BreakerState.HALF_OPEN, 3, 3, 0)
    a.gate.set()
    assert await answer(router) == "back"


async def test_states_show_how_each_provider_is_doing() -> None:
    clock = HandClock()
    router = Router(
        [Actor("a", ProviderUnavailable("HTTP 503:\nbusy")), Actor("b")],
        clock=clock,
        breaker=BreakerPolicy(failure_threshold=2, recovery_timeout_s=7.0),
    )
    await router.complete(ask())
    await router.complete(ask())
    clock.seconds = 3.0
    a, b = router.states()
    assert (a.name, a.model, a.state, a.failures, a.wait_s) == ("a", "model-a", BreakerState.OPEN, 2, 4.0)
    assert (a.requests, a.errors, a.under_way, a.last_error) == (2, 2, 0, "a: HTTP 503: busy")
    assert (b.state, b.requests, b.errors, b.last_error) == (BreakerState.CLOSED, 2, 0, "")


# -- free routes and slots -----------------------------------------------------------------------------


async def test_a_free_route_answers_when_all_others_failed_and_does_not_count() -> None:
    journal: list[str] = []
    offline = Actor("offline", "by rule", journal=journal)
    a = Actor("a", *down(), journal=journal)
    router = Router([Route(offline, free=True, priority=-5), Route(a)], clock=HandClock())
    response = await router.complete(ask())
    assert (journal, response.message.content) == (["a", "a", "a", "offline"], "by rule")
    assert (response.attempts, len(response.failures)) == (4, 3)
    assert await answer(router) == "by rule"
    assert journal[4:] == ["offline"], "the breaker of the other one is open"


async def test_a_free_route_has_no_breaker_and_is_asked_once() -> None:
    offline = Actor("offline", *down())
    router = Router([Route(offline, free=True)], clock=HandClock())
    for _ in range(10):
        await fail(router)
    assert len(offline.requests) == 10
    assert router.states()[0].state is BreakerState.CLOSED


async def test_a_free_route_that_the_request_names_is_asked_first() -> None:
    a = Actor("a")
    assert await answer(Router([a, Route(Actor("offline", "by rule"), free=True)]), ask(model="offline")) == "by rule"
    assert a.requests == []


async def test_hanging_providers_leave_a_free_route_its_time() -> None:
    router = Router([hanging("a"), Route(Actor("offline", "by rule"), free=True)])
    async with asyncio.timeout(30):
        assert await answer(router, ask(timeout_s=2.0)) == "by rule"


async def test_no_more_requests_are_under_way_than_a_route_allows() -> None:
    a = Actor("a")
    a.gate = asyncio.Event()
    router = Router([Route(a, max_concurrency=2)])
    tasks = [asyncio.create_task(answer(router)) for _ in range(5)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert (len(a.requests), router.states()[0].under_way) == (2, 2)
    a.gate.set()
    assert await asyncio.gather(*tasks) == ["ok"] * 5


async def test_waiting_for_a_slot_ends_with_the_request_and_is_not_the_providers_fault() -> None:
    a = hanging("a")
    router = Router([Route(a, max_concurrency=1)])
    first = asyncio.create_task(answer(router))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        error = await fail(router, ask(timeout_s=0.02))
    assert "no slot was free" in str(error)
    assert (router.states()[0].failures, len(a.requests)) == (0, 1)
    assert a.gate is not None
    a.gate.set()
    assert await first == "ok"


async def test_a_request_that_waits_for_a_slot_when_the_breaker_opens_gives_it_back_and_does_not_wait_longer() -> None:
    clock = HandClock()
    a = Actor("a", *down(3), "back")
    router = Router([Route(a, max_concurrency=1)], clock=clock, policy=RetryPolicy(max_attempts=1))
    a.gate = asyncio.Event()
    tasks = [asyncio.create_task(router.complete(ask())) for _ in range(6)]
    await asyncio.sleep(0)
    a.gate.set()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(e) for e in errors} == {AllProvidersFailed}
    assert len(a.requests) == 3
    clock.seconds = 60.0
    assert await answer(router) == "back"


async def test_nobody_waits_for_a_slot_of_a_provider_whose_breaker_is_open() -> None:
    a = Actor("a", ProviderUnavailable("down"), "slow")
    clock = HandClock()
    breaker = BreakerPolicy(failure_threshold=1)
    router = Router(
        [Route(a, max_concurrency=1), Route(Actor("b", "from b"), priority=1)], clock=clock, breaker=breaker
    )
    await router.complete(ask())
    clock.seconds, a.gate = 60.0, asyncio.Event()
    probe = asyncio.create_task(answer(router))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        assert await answer(router) == "from b"
    a.gate.set()
    assert await probe == "slow"


# -- whatever happens ------------------------------------------------------------------------------------

FAULTS = st.sampled_from(
    ["ok", "ok", "down", "refused", "limited", "soon", "later", "timeout"],
)


def play(fault: str) -> Outcome:
    match fault:
        case "ok":
            return "one two"
        case "refused":
            return ProviderRefused("400")
        case "limited":
            return RateLimited("429")
        case "soon":
            return RateLimited("429", retry_after_s=9.0)
        case "later":
            return RateLimited("429", retry_after_s=99.0)
        case "timeout":
            return ProviderTimeout("slow")
        case _:
            return ProviderUnavailable("down")


@settings(max_examples=150, deadline=None)
@given(
    scripts=st.lists(st.lists(FAULTS, min_size=1, max_size=6), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
    budget=st.integers(1, 6),
    streaming=st.booleans(),
    timeout_s=st.sampled_from([1.0, 12.0, 120.0]),
)
def test_every_call_ends_in_time_within_its_budget_and_leaves_nothing_behind(
    scripts: list[list[str]], seed: int, budget: int, streaming: bool, timeout_s: float
) -> None:
    async def run() -> None:
        clock, journal = HandClock(), list[str]()
        actors = [Actor(f"p{n}", *map(play, script), journal=journal) for n, script in enumerate(scripts)]
        policy = RetryPolicy(max_attempts=budget)
        router = Router([Route(a) for a in actors], clock=clock, rng=random.Random(seed), policy=policy)
        for _ in range(8):
            begun, sent = clock.seconds, len(journal)
            try:
                response = (await collect(router, ask(timeout_s=timeout_s)))[-1] if streaming else None
                response = response or await router.complete(ask(timeout_s=timeout_s))
                assert isinstance(response, ModelResponse)
                assert response.attempts == len(journal) - sent
                told = len(response.failures) + 1
            except AllProvidersFailed as e:
                told = len(e.failures)
            assert told >= max(1, len(journal) - sent), "a failure is not told"
            assert len(journal) - sent <= budget
            assert clock.seconds - begun < timeout_s
            refused = [a.name for a in actors if isinstance(a.outcomes[-1], ProviderRefused) and len(a.outcomes) == 1]
            assert all(journal[sent:].count(name) <= 1 for name in refused)
            assert sum(s.under_way for s in router.states()) == 0
            clock.seconds += 5.0

    asyncio.run(run())
