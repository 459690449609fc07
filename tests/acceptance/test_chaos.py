"""1,000 runs over three providers that fail every fifth request: each run ends, in time, and nothing happens twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import openai
import pytest
from openai import AsyncOpenAI

from agent_core.agent import Agent
from agent_core.context import Limits, RunContext, SystemClock
from agent_core.errors import RunError
from agent_core.llm.breaker import BreakerPolicy
from agent_core.llm.openai_compat import OpenAICompatible
from agent_core.llm.retry import RetryPolicy
from agent_core.llm.router import Route, Router
from agent_core.llm.tokens import EstimatingCounter
from agent_core.llm.types import ModelMessage, ToolCall
from agent_core.memory.conversation import Conversation
from agent_core.memory.validity import is_sendable, make_sendable
from agent_core.runtime.loop import AgentLoop
from agent_core.runtime.state import RunRecord, RunState
from agent_core.tools.approval import Decision
from agent_core.tools.base import Effect, Tool
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from tests.servers.openai import FAULTS, Chaos, OpenAIServer, Request

RUNS = 1_000
AT_ONCE = 50
EVERY_S = 0.02
"""A run begins this often: if they followed on each other, one moment with all breakers open would fail them all."""
SEED = "20261130"
FAULT_RATE = 0.2
ATTEMPTS = 4
ATTEMPT_TIMEOUT_S = 1.0
DEADLINE_S = 10.0
SHORT_DEADLINE_S = 0.4
"""Every tenth run has this one, so that hangs and waits run into it."""
GRACE_S = 0.25
BEAT_S = 0.01


class Yes:
    async def approve(self, ctx: RunContext, tool: Tool, call: ToolCall) -> Decision:
        return Decision(approved=True)


@dataclass
class Ended:
    """What is known of a run that is over; ``late_s``: after its deadline, without what the machine itself lost."""

    n: int
    record: RunRecord
    late_s: float
    conversation: Conversation


class Heart:
    """Beats on the event loop; a beat that comes late is time that a busy machine, not the engine, has taken."""

    def __init__(self) -> None:
        self._beats: list[tuple[float, float]] = []

    async def beat(self) -> None:
        while True:
            due = time.monotonic() + BEAT_S
            await asyncio.sleep(BEAT_S)
            now = time.monotonic()
            self._beats.append((now, now - due))

    async def lost_s(self, since: float) -> float:
        """Seconds lost from ``since`` to now."""
        await asyncio.sleep(BEAT_S)  # so that a beat which is late right now is counted
        return sum(lag for at, lag in self._beats if at >= since)


@dataclass
class World:
    """Three servers, a router over them, and tools whose effects are counted."""

    servers: list[OpenAIServer]
    loop: AgentLoop
    heart: Heart = field(default_factory=Heart)
    effects: Counter[str] = field(default_factory=Counter)

    async def run(self, n: int) -> Ended:
        clock = SystemClock()
        limit_s = SHORT_DEADLINE_S if n % 10 == 0 else DEADLINE_S
        deadline = clock.monotonic() + limit_s
        ctx = RunContext(
            run_id=f"run-{n}", thread_id=f"t{n}", deadline=deadline, limits=Limits(run_deadline_s=limit_s), deps=n
        )
        conversation = Conversation(EstimatingCounter())
        question = [ModelMessage(role="user", content=f"run {n}")]
        record = await self.loop.run(Agent(stream=n % 3 != 0), ctx, conversation, question)
        late_s = clock.monotonic() - deadline
        if late_s > 0:
            late_s -= await self.heart.lost_s(deadline - BEAT_S)
        return Ended(n, record, late_s, conversation)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    registry = ToolRegistry()
    executor = ToolExecutor(registry, approver=Yes())
    async with AsyncExitStack() as stack:
        servers = []
        routes = []
        for n in range(3):
            server = OpenAIServer(models=("chaotic",), chaos=Chaos(rate=FAULT_RATE, seed=f"{SEED}-{n}"))
            server.on(step=0).tools(("look", {"where": "here"}), ("restart", {"host": "a"}), text="I look")
            server.on(step=1).tools(("restart", {"host": "b"}))
            server.on(step=2).text("both were restarted")
            servers.append(await stack.enter_async_context(server))
            provider = OpenAICompatible(name=f"p{n}", model="chaotic", api_key="k", base_url=server.base_url)
            stack.push_async_callback(provider.aclose)
            routes.append(Route(provider, timeout_s=ATTEMPT_TIMEOUT_S, weight=(80, 15, 5)[n]))
        router = Router(
            routes,
            policy=RetryPolicy(max_attempts=ATTEMPTS, backoff_base_s=0.02, backoff_cap_s=0.1),
            breaker=BreakerPolicy(failure_threshold=3, recovery_timeout_s=0.1),
            rng=random.Random(SEED),
        )
        await asyncio.to_thread(router.prepare)  # the vendor's SDK takes longer to import than an attempt may last
        made = World(servers, AgentLoop(provider=router, executor=executor))

        async def look(where: str) -> str:
            """Look."""
            return f"looked {where}"

        async def restart(ctx: RunContext, host: str) -> str:
            """Restart a host."""
            made.effects[f"{ctx.deps} {host}"] += 1
            await asyncio.sleep(0)
            return f"{host} restarted"

        registry.register(look)
        registry.register(restart, effect=Effect.EXEC)
        yield made


async def run_all(world: World) -> list[Ended]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(n: int) -> Ended:
        await asyncio.sleep(n * EVERY_S)
        async with gate:
            return await world.run(n)

    beating = asyncio.create_task(world.heart.beat())
    try:
        return await asyncio.gather(*(one(n) for n in range(RUNS)))
    finally:
        beating.cancel()


def count_attempts(servers: list[OpenAIServer]) -> Counter[tuple[str, int]]:
    """Requests of every run and step, over all providers: their journals are the witness."""
    return Counter((r.last_user, r.step) for server in servers for r in server.requests)


def has_orphans(request: Request) -> bool:
    asked = [c["id"] for m in request.messages for c in m.get("tool_calls") or []]
    answered = [m["tool_call_id"] for m in request.messages if m["role"] == "tool"]
    return asked != answered


@pytest.mark.timeout(180)
async def test_1000_runs_with_every_fifth_request_failing_end_in_time_and_do_nothing_twice(world: World) -> None:
    begun = time.monotonic()
    ended = await run_all(world)
    took_s = time.monotonic() - begun

    # the chaos was what it is meant to be
    drawn = sum((server.chaos.drawn for server in world.servers if server.chaos), Counter[str]())
    requests = sum(len(server.requests) for server in world.servers)
    assert set(drawn) == {"429", "500", "hang", "reset", "cut", "bad_json"}
    assert 0.15 < drawn.total() / requests < 0.25
    assert all(server.requests for server in world.servers)

    # every run ends FINISHED, or in ERROR with a typed reason, inside its deadline
    states = Counter(e.record.state for e in ended)
    assert set(states) <= {RunState.FINISHED, RunState.ERROR}
    for e in ended:
        assert (e.record.error is None) is (e.record.state is RunState.FINISHED)
        assert e.record.error is None or isinstance(e.record.error, RunError)
        assert e.late_s < GRACE_S, (e.n, e.late_s, e.record.error)
        if e.record.state is RunState.FINISHED:
            assert e.record.answer == "both were restarted"
    assert states[RunState.FINISHED] > RUNS / 2  # mostly more than 0.9; a busy machine makes true timeouts

    # no orphan tool call, and no history that the strict servers refused
    assert [server.violations for server in world.servers] == [[], [], []]
    assert not any(has_orphans(r) for server in world.servers for r in server.requests)
    assert all(is_sendable(make_sendable(e.conversation.messages)) for e in ended)

    # what has an effect ran at most once, and exactly once where the run finished
    assert max(world.effects.values()) == 1
    for e in ended:
        if e.record.state is RunState.FINISHED:
            assert world.effects[f"{e.n} a"] == world.effects[f"{e.n} b"] == 1

    # retries and fallbacks share one budget
    assert max(count_attempts(world.servers).values()) <= ATTEMPTS
    print(f"\n{RUNS} runs, {requests} requests, {drawn.total()} faults, {dict(states)}, {took_s:.1f} s")


async def outcomes(seed: str, order: list[int]) -> dict[str, str]:
    """What each question met; one that hangs is given up as soon as the server says that it does."""
    async with OpenAIServer(chaos=Chaos(rate=0.5, seed=seed)) as server:
        server.on().text("one two three four five")
        async with AsyncOpenAI(api_key="k", base_url=server.base_url, max_retries=0, timeout=60.0) as client:
            for sent, n in enumerate(order):
                asking = client.chat.completions.create(
                    model="fake-large", messages=[{"role": "user", "content": f"question {n}"}]
                )
                call = asyncio.create_task(asking)
                # the client itself would have to guess how long an answer may take here
                while not call.done() and [r.outcome for r in server.requests[sent:]] != ["hang"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                call.cancel()
                with contextlib.suppress(openai.OpenAIError, ValueError, asyncio.CancelledError):
                    await call
            return {r.last_user: r.outcome for r in server.requests}


async def test_chaos_draws_the_same_faults_from_a_seed_in_any_order() -> None:
    first = await outcomes("a", list(range(40)))
    assert await outcomes("a", list(reversed(range(40)))) == first
    assert 8 <= sum(outcome != "answered" for outcome in first.values()) <= 32
    assert await outcomes("b", list(range(40))) != first
    kinds = {"failed 429", "failed 500", "hang", "drop", "cut", "garbage", "bare_error"}
    assert set(first.values()) - {"answered"} <= kinds
    assert len(FAULTS) == 6
