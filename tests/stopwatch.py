"""Stopwatches for tests with a bound in seconds: slow is what is slow each time, not what the machine did meanwhile."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

ATTEMPTS = 3


def least_cpu_s(work: Callable[[], object], *, enough_s: float) -> float:
    """Measure the CPU seconds of this thread that work needs: the least of up to three attempts.

    Args:
        work: what is measured. It runs in this thread, and may be run again.
        enough_s: no further attempt is made once one took no longer than this.
    """
    taken: list[float] = []
    while _is_open(taken, enough_s):
        with _note(time.thread_time, taken):
            work()
    return min(taken)


async def least_wall_s(work: Callable[[], Awaitable[object]], *, enough_s: float) -> float:
    """Measure the seconds that pass while work is awaited: the least of up to three attempts.

    Args:
        work: what is measured; it may be awaited again.
        enough_s: no further attempt is made once one took no longer than this.
    """
    taken: list[float] = []
    while _is_open(taken, enough_s):
        with _note(time.monotonic, taken):
            await work()
    return min(taken)


async def hold_at_best(check: Callable[[int], Awaitable[None]]) -> None:
    """Check what compares durations with a stopwatch of its own, up to three times.

    Args:
        check: gets the number of the attempt, from 0 on, and makes its own database and store each time.

    Raises:
        AssertionError: of the last attempt.
    """
    for attempt in range(ATTEMPTS):
        try:
            await check(attempt)
        except AssertionError:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return


def _is_open(taken: Sequence[float], enough_s: float) -> bool:
    return len(taken) < ATTEMPTS and min(taken, default=float("inf")) > enough_s


@contextmanager
def _note(clock: Callable[[], float], taken: list[float]) -> Iterator[None]:
    """Note how long a block takes. Garbage waits: late in a run of all tests it takes longer than what is measured."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        begun = clock()
        yield
        taken.append(clock() - begun)
    finally:
        if collecting:
            gc.enable()
