from __future__ import annotations

import asyncio
import gc
import time

import pytest

from tests.stopwatch import ATTEMPTS, hold_at_best, least_cpu_s, least_wall_s


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_work_that_is_slow_each_time_is_told_as_slow() -> None:
    attempts: list[float] = []

    def work() -> None:
        attempts.append(0.02)
        burn(attempts[-1])

    assert least_cpu_s(work, enough_s=0.01) >= 0.02
    assert len(attempts) == ATTEMPTS


def test_what_happens_during_one_attempt_only_is_not_the_cost_of_the_work() -> None:
    pauses = iter([0.1])
    assert least_cpu_s(lambda: burn(next(pauses, 0.0)), enough_s=0.05) < 0.05


def test_a_collection_of_garbage_is_not_the_cost_of_the_work() -> None:
    collections: list[str] = []

    def note(phase: str, _: dict[str, int]) -> None:
        collections.append(phase)

    gc.callbacks.append(note)
    try:
        least_cpu_s(lambda: [[n] for n in range(100_000)], enough_s=60)
        assert collections == []
    finally:
        gc.callbacks.remove(note)
    assert gc.isenabled()


def test_garbage_is_collected_again_after_work_that_failed() -> None:
    with pytest.raises(ZeroDivisionError):
        least_cpu_s(lambda: 1 // 0, enough_s=1)
    assert gc.isenabled()


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


async def test_garbage_is_collected_again_after_awaited_work_that_failed() -> None:
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
