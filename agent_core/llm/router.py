"""Ask one provider after another until one answers: weights, priorities, retries, breakers, one budget.

Three models that share the load 80/15/5, each the fallback of the others, and one for when all are down::

    models = [Route(main, weight=80, timeout_s=15), Route(b, weight=15, timeout_s=20), Route(c, weight=5, timeout_s=30)]
    router = Router([*models, Route(offline, free=True)])
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, replace

from agent_core.context import Clock, SystemClock
from agent_core.errors import AllProvidersFailed, ConfigError, ProviderError, ProviderTimeout, ProviderUnavailable
from agent_core.llm.breaker import Breaker, BreakerPolicy, BreakerState, Permit
from agent_core.llm.provider import Provider
from agent_core.llm.retry import RETRYABLE, RetryPolicy
from agent_core.llm.types import ModelRequest, ModelResponse, StreamItem, StreamRestarted, TextChunk

FREE_SHARE = 0.1
"""With a free route this part of a request's time is kept for it, so that hanging providers leave it some."""


@dataclass(frozen=True, slots=True)
class Route:
    """A provider and its place in a router.

    Args:
        provider: whom to ask.
        weight: share of the first attempts among the routes of one priority; 0: only as a fallback.
        priority: lower ones are asked first.
        timeout_s: bounds each attempt; None: only the request's time does.
        max_concurrency: requests under way at once; more wait, on the request's time.
        free: needs nothing from outside (the offline provider): it is asked when the others failed, were open or the
            budget is used up; it does not count as an attempt and has no breaker.
    """

    provider: Provider
    _: KW_ONLY
    weight: float = 1.0
    priority: int = 0
    timeout_s: float | None = None
    max_concurrency: int | None = None
    free: bool = False

    def __post_init__(self) -> None:
        bounds = (self.timeout_s, self.max_concurrency)
        if not 0 <= self.weight < math.inf or any(b is not None and b <= 0 for b in bounds):
            raise ConfigError(f"route to {self.provider.name}: weight, timeout_s or max_concurrency is too small")


@dataclass(frozen=True, slots=True)
class ProviderState:
    """How a provider is doing, for people and metrics.

    ``failures``: in a row. ``wait_s``: seconds until it may be asked (open: probed), 0 when it may now. ``errors``: of
    its ``requests``. ``last_error`` is one line without secrets, empty when there was none.
    """

    name: str
    model: str
    state: BreakerState
    failures: int
    wait_s: float
    requests: int
    errors: int
    under_way: int
    last_error: str


class _Lane:
    def __init__(self, route: Route, policy: BreakerPolicy, clock: Clock) -> None:
        self.route, self.name = route, route.provider.name
        self.breaker = Breaker(BreakerPolicy(failure_threshold=sys.maxsize) if route.free else policy, clock)
        self.slots = asyncio.Semaphore(route.max_concurrency or sys.maxsize)
        self.requests = self.errors = self.under_way = 0
        self.last_error = ""

    def leave(self, permit: Permit) -> None:
        self.under_way -= 1
        self.breaker.release(permit)
        self.slots.release()


class _Call:
    """One request under way: whom it may still ask, until when, and what became of those it asked."""

    def __init__(self, request: ModelRequest, lanes: Sequence[_Lane], clock: Clock) -> None:
        self.queue = deque(lane for lane in lanes if not lane.route.free or lane.name == request.model)
        self.free = [lane for lane in lanes if lane not in self.queue]
        self.again: list[_Lane] = []
        self.failures: list[ProviderError] = []
        self.attempts = self.rounds = 0
        share = 1.0 - FREE_SHARE if self.free else 1.0
        now, self.clock = clock.monotonic(), clock
        self.until = (now + request.timeout_s * share, now + request.timeout_s)  # the second: of free routes

    def left_s(self, *, free: bool = False) -> float:
        return self.until[free] - self.clock.monotonic()

    def note(self, lane: _Lane, error: ProviderError) -> None:
        error.provider = error.provider or lane.name
        self.failures.append(error)

    def skip(self, lane: _Lane, left_s: float) -> None:
        """Note that a lane is not asked now; one that only wants a moment's rest is worth waiting for."""
        state, wait_s = lane.breaker.state, lane.breaker.wait_s
        if wait_s and state is not BreakerState.OPEN:
            self.again.append(lane)
        times = f"{wait_s:.1f} s to wait, {max(0.0, left_s):.1f} s left"
        self.note(lane, ProviderUnavailable(f"not asked (breaker {state}, {times})"))


class Router:
    """A provider made of providers. Safe for many calls at once, on one event loop.

    ``request.model`` is asked first when it names a provider, then priority decides; within one priority the weights
    draw the first, and the rest of the draw is the order of fallback. A failure goes to the next provider at once.
    When all were asked, those that may recover (rate limit, timeout, unavailable) are asked again after the backoff,
    or when the first of them may be, whichever is later. Nothing is begun that the budget of attempts or
    ``request.timeout_s`` does not allow.

    Args:
        routes: at least one (else ``ConfigError``); a bare provider is a route whose priority is its position.
        policy: budget of attempts, and backoff.
        breaker: when a provider is left alone.
        clock: for waits and breakers; an attempt's timeout runs on the event loop's.
        rng: draws by weight, and jitter.
        restart_streams: whether a failure after the first text begins the answer anew (``StreamRestarted`` says so)
            or is raised. Before the first text it is silent.
    """

    def __init__(
        self,
        routes: Sequence[Route | Provider],
        *,
        policy: RetryPolicy | None = None,
        breaker: BreakerPolicy | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        restart_streams: bool = True,
    ) -> None:
        if not routes:
            raise ConfigError("a router needs at least one provider")
        self._clock = clock or SystemClock()
        self._policy = policy or RetryPolicy()
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._restart_streams = restart_streams
        made = [r if isinstance(r, Route) else Route(r, priority=n) for n, r in enumerate(routes)]
        self._lanes = tuple(_Lane(route, breaker or BreakerPolicy(), self._clock) for route in made)

    @property
    def name(self) -> str:
        """The names of the providers."""
        return ",".join(lane.name for lane in self._lanes)

    @property
    def model(self) -> str:
        """The model that is asked first most often (token counts follow it)."""
        routes = [lane.route for lane in self._lanes]
        return min(routes, key=lambda r: (r.free, r.priority, -r.weight)).provider.model

    def states(self) -> tuple[ProviderState, ...]:
        """How each provider is doing, in the configured order."""

        def state(lane: _Lane) -> ProviderState:
            b, counts = lane.breaker, (lane.requests, lane.errors, lane.under_way, lane.last_error)
            return ProviderState(lane.name, lane.route.provider.model, b.state, b.failures, b.wait_s, *counts)

        return tuple(map(state, self._lanes))

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Ask until one answers; ``AllProvidersFailed`` tells every failure, in order."""
        async with aclosing(self._answer(request, _ask_whole)) as items:
            response = await anext(items)
        assert isinstance(response, ModelResponse)
        return response

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        """Ask until one answers, streaming; errors as in ``complete``. Close it (``aclosing``) when leaving early."""
        return self._answer(request, lambda provider, r: provider.stream(r))

    def prepare(self) -> None:
        """Prepare every provider."""
        for lane in self._lanes:
            lane.route.provider.prepare()

    async def aclose(self) -> None:
        """Close every provider."""
        for lane in self._lanes:
            await lane.route.provider.aclose()

    async def _answer(
        self, request: ModelRequest, ask: Callable[[Provider, ModelRequest], AsyncIterator[StreamItem]]
    ) -> AsyncGenerator[StreamItem, None]:
        call = _Call(request, self._order(request), self._clock)
        void = ""  # why the text that was shown counts no more
        while entered := await self._next(call):
            lane, permit, limit_s = entered
            response, shown = None, False
            try:
                if void:
                    yield StreamRestarted(reason=void)
                    void = ""
                ends_at = asyncio.get_running_loop().time() + limit_s
                items = ask(lane.route.provider, replace(request, timeout_s=limit_s))
                async with aclosing(items):  # type: ignore[type-var]
                    while response is None:
                        # entered for each item, never held across a yield: another task may close this generator
                        async with asyncio.timeout_at(ends_at):
                            item = await anext(items, None)
                        if item is None:
                            raise ProviderUnavailable("ended its stream without a response")
                        if isinstance(item, ModelResponse):
                            response = item
                        else:
                            shown = isinstance(item, TextChunk)
                            yield item
                lane.breaker.succeed(permit)
            except (ProviderError, TimeoutError) as e:
                self._fail(call, lane, permit, limit_s, e)
                void = lane.last_error if shown else void
                if void and not self._restart_streams:
                    break
            finally:
                lane.leave(permit)
            if response is not None:
                attempts = call.attempts - (not lane.route.free) + response.attempts
                failures = (*map(_line, call.failures), *response.failures)
                yield replace(response, attempts=attempts, failures=failures)
                return
        raise AllProvidersFailed(tuple(call.failures))

    def _order(self, request: ModelRequest) -> list[_Lane]:
        # exponential races: by weight is drawn who comes home first, and among the others who comes next
        race = {lane: self._rng.expovariate(lane.route.weight or 1e-300) for lane in self._lanes}
        return sorted(self._lanes, key=lambda lane: (lane.name != request.model, lane.route.priority, race[lane]))

    async def _next(self, call: _Call) -> tuple[_Lane, Permit, float] | None:
        """Enter the next lane that lets the call in, with the seconds it may take; None when none is left."""
        while call.queue or await self._refill(call):
            lane = call.queue.popleft()
            free = lane.route.free
            if not free and call.attempts >= self._policy.max_attempts:
                continue
            if not lane.breaker.admits():  # or it would wait for a slot in vain
                call.skip(lane, call.left_s())
                continue
            try:
                async with asyncio.timeout(call.left_s(free=free)):
                    await lane.slots.acquire()
            except TimeoutError:
                call.note(lane, ProviderTimeout("no slot was free in time"))
                continue
            limit_s = min(call.left_s(free=free), lane.route.timeout_s or math.inf)
            if limit_s > 0 and (permit := lane.breaker.admit(limit_s)):
                lane.requests += 1
                lane.under_way += 1
                call.attempts += not free
                return lane, permit, limit_s
            lane.slots.release()
            call.skip(lane, limit_s)
        return None

    @staticmethod
    def _fail(call: _Call, lane: _Lane, permit: Permit, limit_s: float, error: ProviderError | TimeoutError) -> None:
        """Note a failed attempt in its call, its lane and the breaker."""
        cut = False
        if isinstance(error, TimeoutError):
            # the request's own end was nearer than the route's timeout: not the provider's fault, and no time is left
            if cut := limit_s < (lane.route.timeout_s or math.inf):
                call.until = (-math.inf, call.until[1])
            error = ProviderTimeout(f"no answer within {limit_s:.3g} s")
        call.note(lane, error)
        lane.errors += 1
        lane.last_error = _line(error)
        if isinstance(error, RETRYABLE) and not lane.route.free:
            call.again.append(lane)
        if not cut:
            lane.breaker.fail(permit, error)

    async def _refill(self, call: _Call) -> bool:
        """Wait, then queue those that are worth asking again; without any, the free routes."""
        spent = call.attempts >= self._policy.max_attempts
        ready = [] if spent else [lane for lane in call.again if lane.breaker.state is not BreakerState.OPEN]
        call.again = []
        if ready:
            call.rounds += 1
            first_s = min(lane.breaker.wait_s for lane in ready)
            wait_s = max(first_s, self._policy.backoff_s(call.rounds, self._rng))
            if wait_s < call.left_s():
                await self._clock.sleep(wait_s)
                call.queue.extend(ready)
                return True
        call.queue.extend(call.free)
        call.free = []
        return bool(call.queue)


async def _ask_whole(provider: Provider, request: ModelRequest) -> AsyncIterator[StreamItem]:
    yield await provider.complete(request)


def _line(error: ProviderError) -> str:
    return " ".join(f"{error.provider}: {error}".split())
