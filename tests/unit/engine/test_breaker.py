"""The circuit breaker, on a clock that is turned by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.errors import (
    ContextOverflow,
    ProviderError,
    ProviderRefused,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
)
from agent_core.llm.breaker import Breaker, BreakerPolicy, BreakerState, Permit
from tests.unit.engine.running import HandClock

DOWN = ProviderUnavailable("down")


def build(clock: HandClock, *, threshold: int = 3) -> Breaker:
    return Breaker(BreakerPolicy(failure_threshold=threshold), clock)


def take(breaker: Breaker) -> Permit:
    permit = breaker.admit(30.0)
    assert permit is not None
    return permit


def end(breaker: Breaker, permit: Permit, error: ProviderError | None) -> None:
    """What a router does at the end of a request."""
    if error is None:
        breaker.succeed(permit)
    else:
        breaker.fail(permit, error)
    breaker.release(permit)


def open_it(breaker: Breaker) -> None:
    for _ in range(3):
        end(breaker, take(breaker), DOWN)
    assert breaker.state is BreakerState.OPEN


def test_three_failures_in_a_row_open_it_for_60_seconds() -> None:
    clock = HandClock()
    breaker = build(clock)
    for error in (DOWN, ProviderTimeout("slow"), None, DOWN, RateLimited("no word how long")):
        end(breaker, take(breaker), error)
    assert (breaker.state, breaker.failures) == (BreakerState.CLOSED, 2)
    end(breaker, take(breaker), DOWN)
    assert (breaker.state, breaker.wait_s) == (BreakerState.OPEN, 60.0)
    clock.seconds = 59.9
    assert breaker.admit(1.0) is None
    clock.seconds = 60.0
    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.admit(1.0) is not None


def test_bug_32_fifty_at_the_half_open_breaker_get_one_probe() -> None:
    clock = HandClock()
    breaker = build(clock)
    open_it(breaker)
    clock.seconds = 60.0
    permits = [breaker.admit(30.0) for _ in range(50)]
    assert [p is not None for p in permits] == [True] + [False] * 49


@pytest.mark.parametrize(
    ("error", "state"), [(None, BreakerState.CLOSED), (DOWN, BreakerState.OPEN)], ids=["answered", "failed"]
)
def test_a_probe_decides(error: ProviderError | None, state: BreakerState) -> None:
    clock = HandClock()
    breaker = build(clock)
    open_it(breaker)
    clock.seconds = 60.0
    end(breaker, take(breaker), error)
    assert breaker.state is state
    assert breaker.wait_s == (60.0 if error else 0.0)


@pytest.mark.parametrize(
    "error", [ProviderRefused("HTTP 400"), ContextOverflow("too long"), None], ids=["400", "overflow", "cancelled"]
)
def test_bug_32_a_probe_that_is_refused_or_cancelled_leaves_its_place(error: ProviderError | None) -> None:
    clock = HandClock()
    breaker = build(clock)
    open_it(breaker)
    clock.seconds = 60.0
    probe = take(breaker)
    if error is not None:
        breaker.fail(probe, error)
    breaker.release(probe)
    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.admit(1.0) is not None
    assert breaker.admit(1.0) is None


def test_bug_32_refusals_neither_count_nor_hide_an_outage() -> None:
    breaker = build(HandClock())
    for _ in range(10):
        end(breaker, take(breaker), ProviderRefused("HTTP 401"))
    assert breaker.failures == 0
    for error in (DOWN, DOWN, ProviderRefused("HTTP 400"), DOWN):
        end(breaker, take(breaker), error)
    assert breaker.state is BreakerState.OPEN


def test_bug_28_a_long_retry_after_opens_it_for_exactly_that_long() -> None:
    clock = HandClock()
    breaker = build(clock)
    end(breaker, take(breaker), RateLimited("later", retry_after_s=600.0))
    assert (breaker.state, breaker.wait_s) == (BreakerState.OPEN, 600.0)
    clock.seconds = 599.9
    assert not breaker.admits()
    clock.seconds = 600.0
    assert breaker.state is BreakerState.HALF_OPEN


def test_one_failed_probe_opens_it_again_also_where_a_retry_after_had_opened_it() -> None:
    clock = HandClock()
    breaker = build(clock)
    end(breaker, take(breaker), RateLimited("later", retry_after_s=600.0))
    clock.seconds = 600.0
    end(breaker, take(breaker), DOWN)
    assert (breaker.state, breaker.wait_s, breaker.failures) == (BreakerState.OPEN, 60.0, 1)


def test_a_short_retry_after_only_pauses_it_and_counts_nothing() -> None:
    clock = HandClock()
    breaker = build(clock)
    end(breaker, take(breaker), RateLimited("soon", retry_after_s=5.0))
    assert (breaker.state, breaker.failures, breaker.wait_s) == (BreakerState.CLOSED, 0, 5.0)
    assert not breaker.admits()
    clock.seconds = 5.0
    take(breaker), take(breaker)


@pytest.mark.parametrize(
    ("waits", "expected"), [((600.0, 90.0), 600.0), ((90.0, 600.0), 600.0), ((30.0, 5.0), 30.0), ((5.0, 30.0), 30.0)]
)
def test_bug_31_a_second_wait_never_shortens_the_first_nor_is_lost(waits: tuple[float, float], expected: float) -> None:
    breaker = build(HandClock())
    permits = [take(breaker), take(breaker)]
    for permit, wait in zip(permits, waits, strict=True):
        end(breaker, permit, RateLimited("later", retry_after_s=wait))
    assert breaker.wait_s == expected


def test_answers_to_requests_from_before_it_opened_change_nothing() -> None:
    clock = HandClock()
    breaker = build(clock)
    late = [take(breaker) for _ in range(5)]
    open_it(breaker)
    clock.seconds = 30.0
    end(breaker, late[0], DOWN)
    end(breaker, late[1], None)
    assert (breaker.state, breaker.wait_s) == (BreakerState.OPEN, 30.0)
    clock.seconds = 60.0
    probe = take(breaker)
    end(breaker, late[2], DOWN)
    assert not breaker.admits(), "the probe is still under way"
    end(breaker, probe, None)
    assert breaker.state is BreakerState.CLOSED


def test_a_probe_that_nobody_ends_blocks_only_for_its_own_time() -> None:
    clock = HandClock()
    breaker = build(clock)
    open_it(breaker)
    clock.seconds = 60.0
    assert breaker.admit(15.0) is not None
    clock.seconds = 74.9
    assert not breaker.admits()
    clock.seconds = 75.0
    assert breaker.admits()


ERRORS = st.sampled_from(
    [
        None,
        DOWN,
        ProviderTimeout("slow"),
        ProviderRefused("400"),
        RateLimited("?"),
        RateLimited("soon", retry_after_s=7.0),
        RateLimited("later", retry_after_s=90.0),
        "cancelled",
    ]
)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.none()),
        st.tuples(st.just("end"), ERRORS),
        st.tuples(st.just("turn"), st.sampled_from([1.0, 10.0, 60.0])),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(MOVES)
def test_whatever_happens_an_open_breaker_admits_nobody_and_a_half_open_one_a_single_probe(
    moves: list[tuple[str, object]],
) -> None:
    clock = HandClock()
    breaker = build(clock)
    under_way: list[Permit] = []
    promised = 0.0  # nothing may be sent before this instant
    for move, what in moves:
        if move == "turn":
            assert isinstance(what, float)
            clock.seconds += what
        elif move == "admit":
            state = breaker.state
            permit = breaker.admit(1e9)
            if permit is None:
                continue
            assert state is not BreakerState.OPEN
            assert clock.seconds >= promised
            if state is BreakerState.HALF_OPEN:
                assert breaker.admit(1e9) is None
            under_way.append(permit)
        elif under_way:
            permit = under_way.pop(0)
            if isinstance(what, RateLimited) and what.retry_after_s is not None:
                promised = max(promised, clock.seconds + what.retry_after_s)
            if isinstance(what, ProviderError):
                breaker.fail(permit, what)
            elif what is None:
                breaker.succeed(permit)
            breaker.release(permit)
        assert breaker.wait_s >= promised - clock.seconds
    for permit in under_way:
        breaker.release(permit)
    clock.seconds += 1000.0
    assert breaker.admits(), "nothing keeps it shut for ever"
