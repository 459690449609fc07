"""What work costs, whatever else the process and the machine are doing."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

ATTEMPTS = 3


def least_cpu_s(work: Callable[[], object], *, enough_s: float) -> float:
    """Measure the CPU seconds of this thread that work needs: the least of up to three attempts.

    Work that is slow is slow each time; what only happens during one attempt is not its cost. Garbage is not collected
    meanwhile: late in a run of all tests a full collection takes longer than most of what is measured.

    Args:
        work: what is measured. It runs in this thread, and may be run again.
        enough_s: no further attempt is made once one took no longer than this.
    """
    collecting = gc.isenabled()
    least = float("inf")
    for _ in range(ATTEMPTS):
        gc.disable()
        try:
            begun = time.thread_time()
            work()
            least = min(least, time.thread_time() - begun)
        finally:
            if collecting:
                gc.enable()
        if least <= enough_s:
            break
    return least
