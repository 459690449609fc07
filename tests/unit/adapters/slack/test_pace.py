"""When calls may go out, on a clock that a test turns."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.slack.pace import CALM_S, PROGRESS, RATES, Pace, Rate, Turn, Wait


class Timeline:
    """Time that goes to the next sleeper when everybody sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._numbers = count()

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        heapq.heappush(self._sleepers, (self.seconds + seconds, next(self._numbers), woken))
        await woken.wait()

    async def settle(self) -> None:
        """Let everything run that need not wait for time."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def run_until(self, seconds: float) -> None:
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= seconds:
            self.seconds, _, woken = heapq.heappop(self._sleepers)
            woken.set()
            await self.settle()
        self.seconds = seconds


def build_pace(time: Timeline, **rates: Rate) -> Pace:
    return Pace(monotonic=time.monotonic, sleep=time.sleep, rates={**RATES, **rates})


async def call(pace: Pace, method: str, channel: str = "", *, priority: int = 0, patience_s: float = 0.0) -> bool:
    """Take a turn and be answered at once."""
    turn = await pace.turn(method, channel, priority=priority, patience_s=patience_s)
    if isinstance(turn, Turn):
        turn.answered()
    return isinstance(turn, Turn)


async def test_a_method_gets_its_tier_in_a_minute_and_not_a_call_more() -> None:
    time = Timeline()
    pace = build_pace(time)
    assert [await call(pace, "chat.update") for _ in range(51)] == [True] * 50 + [False]
    time.seconds = 59.9
    assert not await call(pace, "chat.update")
    time.seconds = 60.0
    assert await call(pace, "chat.update")
    assert [await call(pace, "users.info") for _ in range(101)] == [True] * 100 + [False]


async def test_a_turn_counts_from_the_answer_because_slack_counted_before_it() -> None:
    time = Timeline()
    pace = build_pace(time, slow=Rate(calls=1, span_s=1.0))
    turn = await pace.turn("slow")
    assert isinstance(turn, Turn)
    time.seconds = 5.0
    assert isinstance(await pace.turn("slow"), Wait)  # the call is still under way
    turn.answered()
    time.seconds = 5.9
    assert isinstance(await pace.turn("slow"), Wait)
    time.seconds = 6.0
    assert isinstance(await pace.turn("slow"), Turn)


async def test_a_turn_that_was_not_used_is_free_again() -> None:
    pace = build_pace(Timeline(), slow=Rate(calls=1, span_s=9.0))
    turn = await pace.turn("slow")
    assert isinstance(turn, Turn)
    turn.unused()
    assert await call(pace, "slow")


async def test_channels_do_not_wait_for_each_other() -> None:
    pace = build_pace(Timeline())
    assert [await call(pace, "chat.postMessage", "C1") for _ in range(4)] == [True, True, True, False]
    assert await call(pace, "chat.postMessage", "C2")


async def test_a_refusal_holds_back_only_its_own_kind_and_ends_bursts_for_a_while() -> None:
    time = Timeline()
    pace = build_pace(time)
    turn = await pace.turn("chat.postMessage", "C1")
    assert isinstance(turn, Turn)
    turn.refused(7.0)
    assert await pace.turn("chat.postMessage", "C1") == Wait(after_s=7.0)
    assert await call(pace, "chat.postMessage", "C2")
    assert await call(pace, "chat.update", "C1")
    time.seconds = 7.0
    assert [await call(pace, "chat.postMessage", "C1") for _ in range(2)] == [True, False]
    time.seconds = 8.0
    assert await call(pace, "chat.postMessage", "C1")
    time.seconds = 7.0 + CALM_S
    assert [await call(pace, "chat.postMessage", "C1") for _ in range(3)] == [True] * 3


async def test_the_final_answer_goes_before_notices_and_those_before_nobody_else() -> None:
    time = Timeline()
    pace = build_pace(time, slow=Rate(calls=1, span_s=1.0))
    order: list[str] = []

    async def one(name: str, priority: int) -> None:
        if await call(pace, "slow", priority=priority, patience_s=60.0):
            order.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(one("first", 0))
        await time.settle()
        for name, priority in (
            ("notice 1", 1),
            ("notice 2", 1),
            ("progress", PROGRESS),
            ("answer 1", 0),
            ("answer 2", 0),
        ):
            group.create_task(one(name, priority))
        await time.run_until(30.0)
    assert order == ["first", "answer 1", "answer 2", "notice 1", "notice 2"]


async def test_b058_progress_leaves_turns_for_the_answer_and_never_waits() -> None:
    """Tool-progress edits ate the budget, and the answer waited behind them."""
    time = Timeline()
    pace = build_pace(time)
    made = [await call(pace, "chat.update", priority=PROGRESS, patience_s=60.0) for _ in range(60)]
    assert made == [True] * 42 + [False] * 18
    assert await call(pace, "chat.update", priority=0)
    assert time.seconds == 0.0


async def test_who_is_cancelled_while_waiting_leaves_no_hole() -> None:
    time = Timeline()
    pace = build_pace(time, slow=Rate(calls=1, span_s=1.0))
    assert await call(pace, "slow")
    waiting = asyncio.create_task(call(pace, "slow", patience_s=60.0))
    await time.settle()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    time.seconds = 1.0
    assert await call(pace, "slow")


async def test_patience_is_never_exceeded() -> None:
    time = Timeline()
    pace = build_pace(time, slow=Rate(calls=1, span_s=10.0))
    assert await call(pace, "slow")
    assert await pace.turn("slow", patience_s=9.0) == Wait(after_s=10.0)
    assert time.seconds == 0.0


async def test_a_lone_writer_is_quick_and_many_share_what_the_rate_sustains() -> None:
    time = Timeline()
    pace = build_pace(time)
    method = "chat.appendStream"
    assert pace.interval(method, writers=1, quick_s=0.8, slow_s=2.6) == 0.8
    assert pace.interval(method, writers=20, quick_s=0.8, slow_s=2.6) == 2.6  # there is still room for a burst
    for _ in range(85):
        assert await call(pace, method, priority=PROGRESS)
    assert pace.interval(method, writers=20, quick_s=0.8, slow_s=2.6) == pytest.approx(20 * 60 / 85)


@given(
    st.lists(
        st.tuples(
            st.floats(min_value=0, max_value=3), st.integers(0, 2), st.floats(min_value=0, max_value=4), st.booleans()
        ),
        max_size=60,
    )
)
async def test_no_window_ever_holds_more_calls_than_the_rate(asked: list[tuple[float, int, float, bool]]) -> None:
    time = Timeline()
    pace = build_pace(time, slow=Rate(calls=3, span_s=3.0))
    made: list[float] = []

    async def one(priority: int, patience_s: float, slow: bool) -> None:
        turn = await pace.turn("slow", priority=priority, patience_s=patience_s)
        if isinstance(turn, Turn):
            made.append(time.seconds)
            if slow:
                await time.sleep(0.4)
            turn.answered()

    async with asyncio.TaskGroup() as group:
        for gap_s, priority, patience_s, slow in asked:
            await time.run_until(time.seconds + gap_s)
            group.create_task(one(priority, patience_s, slow))
        await time.run_until(time.seconds + 30.0)
    assert all(sum(1 for at in made if start <= at < start + 3.0) <= 3 for start in made)


async def test_idle_channels_are_forgotten() -> None:
    time = Timeline()
    pace = build_pace(time)
    for n in range(5_000):
        time.seconds += 10.0
        assert await call(pace, "chat.postMessage", f"C{n}")
    assert len(pace._lanes) <= 2_001
