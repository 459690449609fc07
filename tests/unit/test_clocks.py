from __future__ import annotations

import asyncio
import gc

import pytest

from tests.clocks import ATTEMPTS, hold_at_best, least_wall_s


async def test_work_that_takes_long_each_time_is_told_as_slow() -> None:
    attempts: list[float] = []

    async def work() -> None:
        attempts.append(0.02)
        await asyncio.sleep(attempts[-1])

    assert await least_wall_s(work, enough_s=0.01) >= 0.02
    assert len(attempts) == ATTEMPTS


async def test_a_pause_during_one_attempt_is_not_the_time_of_the_work() -> None:
    pauses = iter([0.5])
    assert await least_wall_s(lambda: asyncio.sleep(next(pauses, 0.0)), enough_s=0.4) < 0.4


async def test_garbage_is_collected_again_after_work_that_failed() -> None:
    async def work() -> None:
        assert not gc.isenabled()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await least_wall_s(work, enough_s=1)
    assert gc.isenabled()


async def test_what_is_wrong_in_one_attempt_only_was_the_machine_and_what_is_wrong_in_each_is_a_defect() -> None:
    attempts: list[int] = []

    async def check(attempt: int) -> None:
        attempts.append(attempt)
        assert attempt >= right_from

    right_from = 1
    await hold_at_best(check)
    assert attempts == [0, 1]
    attempts.clear()
    right_from = ATTEMPTS
    with pytest.raises(AssertionError):
        await hold_at_best(check)
    assert attempts == list(range(ATTEMPTS))
