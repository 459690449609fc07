"""Clocks for tests that compare days, hours or minutes, and a stopwatch for those with a bound in seconds."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from agent_core.context import SystemClock


class NoonClock(SystemClock):
    """The machine's clock, set ahead to tomorrow's noon when it is made; from there it runs as the machine's does.

    What a test does is all of one day and begins at a full hour, at whatever moment the test is run.
    """

    def __init__(self) -> None:
        now = super().now()
        self.ahead = now.replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=1) - now

    def now(self) -> datetime:
        return super().now() + self.ahead


ATTEMPTS = 3


async def hold_at_best(check: Callable[[int], Awaitable[None]]) -> None:
    """Check what compares durations with a stopwatch, up to three times.

    What is wrong is wrong each time; a machine that was busy with something else for a moment is not.

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


async def least_wall_s(work: Callable[[], Awaitable[object]], *, enough_s: float) -> float:
    """Measure the seconds that pass while work is awaited: the least of up to three attempts.

    What is slow is slow each time; what the machine did meanwhile, or a collection of garbage, is not its time.

    Args:
        work: what is measured; it may be awaited again.
        enough_s: no further attempt is made once one took less than this.
    """
    collecting = gc.isenabled()
    least = float("inf")
    for _ in range(ATTEMPTS):
        gc.disable()
        try:
            begun = time.monotonic()
            await work()
            least = min(least, time.monotonic() - begun)
        finally:
            if collecting:
                gc.enable()
        if least < enough_s:
            break
    return least
