"""When calls may go out, on a clock that a test turns."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.discord.pace import GLOBAL_CALLS, GLOBAL_SPAN_S, PROGRESS, RECOVERY_S, Pace, Turn, Wait, Window
from tests.unit.adapters.discord.timeline import Timeline


class Bucket:
    """Discord's side: a window that opens with its first call."""

    def __init__(self, time: Timeline, limit: int = 5, span_s: float = 5.0) -> None:
        self.time, self.limit, self.span_s = time, limit, span_s
        self.opened, self.used = -1e9, 0
        self.taken: list[float] = []
        self.refusals = 0

    def call(self) -> Window | float:
        """What the headers tell, or for how long to wait."""
        now = self.time.seconds
        if now - self.opened >= self.span_s:
            self.opened, self.used = now, 0
        left_s = self.opened + self.span_s - now
        if self.used >= self.limit:
            self.refusals += 1
            return left_s
        self.used += 1
        self.taken.append(now)
        return Window(limit=self.limit, remaining=self.limit - self.used, reset_after_s=left_s)


async def call(
    pace: Pace, bucket: Bucket, channel: str = "c", *, priority: int = 0, patience_s: float = 0.0, takes_s: float = 0.0
) -> bool:
    """Make one call; true when it was taken."""
    turn = await pace.turn("message", channel, priority=priority, patience_s=patience_s)
    if isinstance(turn, Wait):
        return False
    answer = bucket.call()
    if takes_s:
        await bucket.time.sleep(takes_s)
    if isinstance(answer, Window):
        turn.answered(answer)
        return True
    turn.refused(answer)
    return False


def _most_within(times: list[float], span_s: float) -> int:
    window: deque[float] = deque()
    most = 0
    for at in sorted(times):
        window.append(at)
        while window[0] + span_s <= at:
            window.popleft()
        most = max(most, len(window))
    return most


def build(time: Timeline) -> Pace:
    return Pace(monotonic=time.monotonic, sleep=time.sleep)


async def test_a_channel_gets_what_its_headers_allow_and_not_a_call_more() -> None:
    time = Timeline()
    pace, bucket = build(time), Bucket(time, limit=3, span_s=2.0)
    assert await call(pace, bucket)
    calls = [asyncio.create_task(call(pace, bucket, patience_s=60.0)) for _ in range(11)]
    await time.advance(8.0)
    assert [task.result() for task in calls] == [True] * 11
    assert bucket.refusals == 0
    assert max(bucket.taken) - bucket.taken[0] < 8.0


async def test_what_cannot_have_its_turn_in_time_is_told_when_to_come_back() -> None:
    time = Timeline()
    pace, bucket = build(time), Bucket(time)
    for _ in range(5):
        assert await call(pace, bucket)
    turn = await pace.turn("message", "c", patience_s=3.0)
    assert isinstance(turn, Wait)
    assert turn.after_s == pytest.approx(5.0, abs=0.1)
    assert time.seconds == 100.0  # nobody waited for nothing


async def test_a_full_channel_delays_no_other_channel() -> None:
    time = Timeline()
    pace = build(time)
    busy, calm = Bucket(time), Bucket(time)
    waiting = [asyncio.create_task(call(pace, busy, "busy", patience_s=60.0)) for _ in range(50)]
    await time.settle()
    assert sum(task.done() for task in waiting) == 5
    assert await call(pace, calm, "calm")
    assert time.seconds == 100.0
    await time.advance(60.0)
    assert all(task.result() for task in waiting)


async def test_a_final_answer_goes_before_a_notice_that_waited_longer() -> None:
    time = Timeline()
    pace, bucket = build(time), Bucket(time, limit=1, span_s=2.0)
    assert await call(pace, bucket)
    order: list[str] = []

    async def say(what: str, priority: int) -> None:
        await call(pace, bucket, priority=priority, patience_s=60.0)
        order.append(what)

    tasks = [asyncio.create_task(say("notice", 1))]
    await time.settle()
    tasks.append(asyncio.create_task(say("answer", 0)))
    await time.advance(10.0)
    await asyncio.gather(*tasks)
    assert order == ["answer", "notice"]


async def test_b058_progress_takes_all_turns_and_the_answer_waits_behind_it() -> None:
    """Sixty updates in ten seconds against five in five; the answer goes at once, whenever it is ready."""
    for ready_s in (0.3, 2.4, 4.9, 5.1, 9.9):
        time = Timeline()
        pace, bucket = build(time), Bucket(time)
        shown = 0
        for n in range(60):
            if n * 10 / 60 >= ready_s:
                break
            shown += await call(pace, bucket, priority=PROGRESS)
            await time.advance(10 / 60)
        begun = time.seconds
        answer = asyncio.create_task(call(pace, bucket, patience_s=60.0))
        await time.settle()
        assert answer.done(), f"ready after {ready_s} s"
        assert answer.result()
        assert time.seconds == begun
        assert shown >= 1
        assert bucket.refusals == 0


async def test_progress_never_waits() -> None:
    time = Timeline()
    pace, bucket = build(time), Bucket(time)
    while await call(pace, bucket, priority=PROGRESS):
        pass
    assert isinstance(await pace.turn("message", "c", priority=PROGRESS, patience_s=60.0), Wait)
    assert time.seconds == 100.0
    assert bucket.used == 4  # one turn is left for the answer


async def test_a_refusal_blocks_its_lane_for_as_long_as_discord_says() -> None:
    time = Timeline()
    pace = build(time)
    turn = await pace.turn("message", "c")
    assert isinstance(turn, Turn)
    turn.refused(7.5)
    again = await pace.turn("message", "c")
    assert isinstance(again, Wait)
    assert again.after_s == pytest.approx(7.5, abs=0.1)
    assert isinstance(await pace.turn("reaction", "c"), Turn)
    assert isinstance(await pace.turn("message", "d"), Turn)
    await time.advance(7.6)
    assert isinstance(await pace.turn("message", "c"), Turn)


async def test_a_refusal_of_everything_blocks_all_lanes() -> None:
    time = Timeline()
    pace = build(time)
    turn = await pace.turn("message", "c")
    assert isinstance(turn, Turn)
    turn.refused(2.0, everywhere=True)
    again = await pace.turn("reaction", "d")
    assert isinstance(again, Wait)
    assert again.after_s == pytest.approx(2.0, abs=0.1)
    await time.advance(2.1)
    assert isinstance(await pace.turn("reaction", "d"), Turn)


async def test_all_channels_together_stay_below_discords_fifty_a_second() -> None:
    time = Timeline()
    pace = build(time)
    begun: list[float] = []

    async def one(channel: str) -> None:
        turn = await pace.turn("message", channel, patience_s=60.0)
        assert isinstance(turn, Turn)
        begun.append(time.seconds)
        turn.answered(Window(limit=5, remaining=4, reset_after_s=5.0))

    tasks = [asyncio.create_task(one(str(n))) for n in range(200)]
    await time.advance(10.0)
    await asyncio.gather(*tasks)
    assert _most_within(begun, GLOBAL_SPAN_S) <= GLOBAL_CALLS
    assert begun[-1] - begun[0] <= 5.0


async def test_thousands_that_want_to_call_at_once_wait_for_their_place_and_no_longer_than_they_can() -> None:
    time = Timeline()
    pace = build(time)
    sleeps = 0

    async def sleep(seconds: float) -> None:
        nonlocal sleeps
        sleeps += 1
        await time.sleep(seconds)

    pace = Pace(monotonic=time.monotonic, sleep=sleep)
    began: list[float] = []
    waits: list[float] = []

    async def one(channel: str) -> None:
        turn = await pace.turn("message", channel, patience_s=6.0)
        if isinstance(turn, Wait):
            waits.append(turn.after_s)
            return
        began.append(time.seconds)
        await time.sleep(0.1)
        turn.answered(Window(limit=5, remaining=4, reset_after_s=5.0))

    tasks = [asyncio.create_task(one(str(n))) for n in range(2_000)]
    await time.advance(10.0)
    await asyncio.gather(*tasks)
    assert len(began) + len(waits) == 2_000
    assert len(began) >= 5 * GLOBAL_CALLS
    assert _most_within(began, GLOBAL_SPAN_S) <= GLOBAL_CALLS
    assert min(waits) > 0.0
    assert sleeps < 20_000  # two thousand times two thousand, if everybody woke for everybody


async def test_a_refusal_of_everything_also_holds_those_that_wait_for_their_slot() -> None:
    time = Timeline()
    pace = build(time)
    turns = [await pace.turn("message", str(n)) for n in range(GLOBAL_CALLS)]
    patient = asyncio.create_task(pace.turn("message", "patient", patience_s=60.0))
    hasty = asyncio.create_task(pace.turn("message", "hasty", patience_s=2.0))
    await time.settle()
    first = turns[0]
    assert isinstance(first, Turn)
    first.refused(10.0, everywhere=True)
    await time.advance(5.0)
    assert not patient.done()
    assert hasty.done()
    assert isinstance(hasty.result(), Wait)
    for turn in turns:
        assert isinstance(turn, Turn)
        turn.answered()
    await time.advance(5.1)
    assert isinstance(patient.result(), Turn)
    # what was not used is free again
    assert isinstance(await pace.turn("message", "hasty"), Turn)


async def _use_all(pace: Pace, time: Timeline, seconds: float) -> list[float]:
    """Want more calls than there are, each in a channel of its own; returns when each went out."""
    began: list[float] = []

    async def one(channel: str) -> None:
        turn = await pace.turn("message", channel, patience_s=seconds)
        if isinstance(turn, Turn):
            began.append(time.monotonic())
            turn.answered()

    tasks = [asyncio.create_task(one(f"{time.monotonic()}/{n}")) for n in range(int(seconds * 100))]
    await time.advance(seconds + 1.0)
    await asyncio.gather(*tasks)
    return began


async def test_calls_that_nobody_waits_for_any_more_may_be_counted_later_so_they_count_for_longer() -> None:
    time = Timeline()
    pace = build(time)
    for n in range(GLOBAL_CALLS):
        turn = await pace.turn("message", str(n))
        assert isinstance(turn, Turn)
        turn.left() if n % 2 else turn.answered()
    await time.advance(GLOBAL_SPAN_S + 0.1)
    turns = [await pace.turn("message", f"later {n}") for n in range(GLOBAL_CALLS)]
    assert sum(isinstance(turn, Turn) for turn in turns) == GLOBAL_CALLS - GLOBAL_CALLS // 2
    await time.advance(GLOBAL_SPAN_S)
    assert isinstance(await pace.turn("message", "at last"), Turn)


@pytest.mark.parametrize("processes", [2, 3])
async def test_processes_that_share_a_bot_divide_its_calls(processes: int) -> None:
    time = Timeline()
    pace = build(time)
    pace.share(processes)
    assert _most_within(await _use_all(pace, time, 3.0), GLOBAL_SPAN_S) == GLOBAL_CALLS // processes


async def test_whoever_is_refused_because_of_others_takes_half_and_comes_back_slowly() -> None:
    time = Timeline()
    pace = build(time)
    for turn in [await pace.turn("message", "c") for _ in range(3)]:  # at the same moment: that is one refusal
        assert isinstance(turn, Turn)
        turn.refused(0.5, everywhere=True)
    soon = await _use_all(pace, time, 4.0)
    assert GLOBAL_CALLS // 2 <= _most_within(soon, GLOBAL_SPAN_S) <= GLOBAL_CALLS // 2 + 3
    await time.advance(RECOVERY_S * GLOBAL_CALLS)
    assert _most_within(await _use_all(pace, time, 4.0), GLOBAL_SPAN_S) == GLOBAL_CALLS


async def test_who_gives_up_its_slot_gives_its_turn_back() -> None:
    time = Timeline()
    pace = build(time)
    for n in range(GLOBAL_CALLS):
        turn = await pace.turn("message", str(n))
        assert isinstance(turn, Turn)
        turn.answered()
    waiting = [asyncio.create_task(pace.turn("message", "c", patience_s=60.0)) for _ in range(5)]
    await time.settle()
    for task in waiting:
        task.cancel()
    await time.advance(2.0)
    again = [await pace.turn("message", "c") for _ in range(5)]
    assert all(isinstance(turn, Turn) for turn in again)


async def test_who_gives_up_waiting_holds_nobody_back() -> None:
    time = Timeline()
    pace, bucket = build(time), Bucket(time, limit=1, span_s=2.0)
    assert await call(pace, bucket)
    first = asyncio.create_task(call(pace, bucket, patience_s=60.0))
    second = asyncio.create_task(call(pace, bucket, patience_s=60.0))
    await time.settle()
    first.cancel()
    await time.advance(2.1)
    assert second.done()
    assert second.result()
    assert first.cancelled()


async def test_calls_that_were_not_answered_yet_hold_their_turns() -> None:
    time = Timeline()
    pace, bucket = build(time), Bucket(time)
    calls = [asyncio.create_task(call(pace, bucket, patience_s=60.0, takes_s=1.0)) for _ in range(12)]
    await time.advance(0.5)
    assert len(bucket.taken) == 5
    await time.advance(20.0)
    assert [task.result() for task in calls] == [True] * 12
    assert bucket.refusals == 0


@settings(deadline=None)
@given(
    limit=st.integers(1, 7),
    span_s=st.floats(0.25, 10.0),
    gaps=st.lists(st.floats(0.0, 2.0), min_size=1, max_size=25),
    takes_s=st.sampled_from([0.0, 0.0, 0.1, 0.7]),
)
async def test_one_writer_is_never_refused_and_always_served(
    limit: int, span_s: float, gaps: list[float], takes_s: float
) -> None:
    time = Timeline()
    pace, bucket = build(time), Bucket(time, limit, span_s)

    async def write() -> int:
        taken = 0
        for gap in gaps:
            await time.sleep(gap)
            taken += await call(pace, bucket, patience_s=1_000.0, takes_s=takes_s)
        return taken

    writer = asyncio.create_task(write())
    await time.advance(1_000.0)
    assert writer.done()
    assert writer.result() == len(gaps)
    assert bucket.refusals == 0
    assert all(later >= earlier for earlier, later in pairwise(bucket.taken))
