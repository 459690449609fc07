from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.discord.budget import RESERVE, GatewayInfo, StartBudget, find_wait, parse_gateway

DAY_S = 86_400.0
FULL = GatewayInfo(url="wss://gateway.example", total=1000, remaining=1000, reset_after_s=DAY_S)


class Discord:
    """Counts starts as Discord does; its clock goes on only while somebody sleeps."""

    def __init__(self, info: GatewayInfo) -> None:
        self.info = info
        self.at_s = 0.0
        self.slept: list[float] = []
        self.lowest = info.remaining

    async def fetch(self) -> GatewayInfo:
        return self.info

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at_s += seconds
        left_s = self.info.reset_after_s - seconds
        if left_s <= 0:
            self.info = replace(self.info, remaining=self.info.total, reset_after_s=DAY_S)
        else:
            self.info = replace(self.info, reset_after_s=left_s)

    def start(self) -> None:
        self.info = replace(self.info, remaining=self.info.remaining - 1)
        self.lowest = min(self.lowest, self.info.remaining)

    def build(self) -> StartBudget:
        return StartBudget(self.fetch, gap_s=5.0, monotonic=lambda: self.at_s, sleep=self.sleep)


def test_nobody_waits_while_more_than_half_of_the_starts_are_left() -> None:
    assert find_wait(FULL) == 0
    assert find_wait(replace(FULL, remaining=501)) == 0
    assert find_wait(replace(FULL, remaining=500)) == pytest.approx(DAY_S / 450)


def test_the_reserve_waits_for_the_count_to_begin_anew() -> None:
    assert find_wait(replace(FULL, remaining=50, reset_after_s=7200.0)) == 7200.0
    assert find_wait(replace(FULL, remaining=0, reset_after_s=7200.0)) == 7200.0
    assert find_wait(replace(FULL, remaining=50, reset_after_s=0.0)) == 60.0
    assert find_wait(GatewayInfo(url="x", total=0, remaining=0, reset_after_s=0.0)) == 0.0


@given(
    total=st.integers(20, 2000), used=st.floats(0, 1), reset_after_s=st.floats(60, DAY_S), starts=st.integers(1, 400)
)
@settings(max_examples=60, deadline=None)
def test_a_crash_loop_never_uses_up_the_reserve(total: int, used: float, reset_after_s: float, starts: int) -> None:
    async def crash() -> None:
        discord = Discord(GatewayInfo(url="x", total=total, remaining=int(total * used), reset_after_s=reset_after_s))
        floor = min(discord.info.remaining, round(total * RESERVE))
        for _ in range(starts):
            await discord.build().take_start(0)  # a new process every time: nothing but Discord remembers
            discord.start()
        assert discord.lowest >= floor

    asyncio.run(crash())


async def test_two_starts_in_one_lane_keep_their_distance_and_lanes_go_side_by_side() -> None:
    discord = Discord(replace(FULL, lanes=2))
    budget = discord.build()
    for shard in (0, 1):
        await budget.take_start(shard)
    assert discord.slept == []
    await budget.take_start(2)
    assert discord.slept == [5.0]


async def test_after_an_ended_session_the_next_start_waits_for_a_moment() -> None:
    discord = Discord(FULL)
    budget = discord.build()
    for _ in range(50):
        await budget.wait_after_refusal()
    assert all(1.0 <= pause <= 5.0 for pause in discord.slept)
    assert len(set(discord.slept)) > 1


async def test_the_wait_is_known_while_it_lasts() -> None:
    discord, known = Discord(replace(FULL, remaining=10, reset_after_s=3600.0)), list[float]()

    async def sleep(seconds: float) -> None:
        known.append(budget.waiting_s)
        await discord.sleep(seconds)

    budget = StartBudget(discord.fetch, monotonic=lambda: discord.at_s, sleep=sleep)
    await budget.take_start(0)
    assert known == [3600.0]
    assert budget.waiting_s == 0.0


def test_what_the_gateway_tells_is_read_defensively() -> None:
    limit = {"total": 1000, "remaining": 7, "reset_after": 14_400_000, "max_concurrency": 16}
    info = parse_gateway({"url": "wss://g", "shards": 9, "session_start_limit": limit})
    assert info == GatewayInfo(url="wss://g", shards=9, total=1000, remaining=7, reset_after_s=14_400.0, lanes=16)
    assert parse_gateway({"url": "wss://g"}) == GatewayInfo(url="wss://g")
    assert parse_gateway({"shards": 1}) is None
