"""The parent's own limits of one run: the clock, the output, the folder, and for kept interpreters the processor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from bot.tools.python_sandbox.process import EMPTY, FolderUse, measure_deleted, measure_folder
from bot.tools.python_sandbox.types import RunStatus, SandboxLimits

LOOK_INTERVAL_S = 0.02
"""Between two looks at a folder. Where files are memory a program makes 160,000 a second: 3,200 until the next look."""
LONGEST_INTERVAL_S = 0.1
"""Between two looks at the processor time alone, and at most between two at a folder."""
REST = 9
"""After a look that took more than usual the watch rests this many times as long: a tenth of a core at most."""


class Limiter:
    """Ends a program that oversteps a limit, and remembers the first one that it overstepped.

    Args:
        limits: of the run.
    """

    def __init__(self, limits: SandboxLimits) -> None:
        self._limits = limits
        self._kill: Callable[[], None] | None = None
        self._read_bytes = 0
        self.cause: RunStatus | None = None

    def attach(self, kill: Callable[[], None]) -> None:
        """Say what ends the program; it is called at once if it has overstepped already."""
        self._kill = kill
        if self.cause is not None:
            kill()

    def end(self, cause: RunStatus) -> None:
        """Kill it for this reason, unless it was killed for another before."""
        if self.cause is None:
            self.cause = cause
        if self._kill is not None:
            self._kill()

    def count_output(self, size_bytes: int) -> None:
        """Count what was read; more than the limit ends the program."""
        self._read_bytes += size_bytes
        if self._read_bytes > self._limits.output_read_bytes:
            self.end(RunStatus.OUTPUT_CAP)

    @asynccontextmanager
    async def watch(
        self, *, folder: str = "", before: FolderUse = EMPTY, pid: int = 0, watch_cpu: bool = False
    ) -> AsyncIterator[None]:
        """Keep the limits for as long as the block takes.

        Args:
            folder: whose growth is bounded, with what is deleted but kept open; empty: the kernel does it.
            before: what the folder held before the program began.
            pid: the program's process.
            watch_cpu: bound the processor time from here, because the process lives longer than the run.
        """
        deadline = asyncio.get_running_loop().call_later(self._limits.wall_s, self.end, RunStatus.TIMEOUT)
        watchdog = (
            asyncio.create_task(self._keep_watch(folder, before, pid, watch_cpu)) if folder or watch_cpu else None
        )
        try:
            yield
        finally:
            deadline.cancel()
            if watchdog is not None:
                watchdog.cancel()
                await asyncio.wait({watchdog})

    async def _keep_watch(self, folder: str, before: FolderUse, pid: int, watch_cpu: bool) -> None:
        cpu_before = read_cpu(pid) if watch_cpu else 0.0
        pause_s = LOOK_INTERVAL_S if folder else LONGEST_INTERVAL_S
        while True:
            await asyncio.sleep(pause_s)
            if watch_cpu and read_cpu(pid) - cpu_before > self._limits.cpu_s:
                self.end(RunStatus.CPU)
            if not folder:
                continue
            over, look_cpu_s = await asyncio.to_thread(self._look, folder, before, pid)
            if over:
                self.end(RunStatus.DISK)
            pause_s = min(LONGEST_INTERVAL_S, max(LOOK_INTERVAL_S, REST * look_cpu_s))

    def _look(self, folder: str, before: FolderUse, pid: int) -> tuple[bool, float]:
        """Tell whether the folder has grown too much, and the processor seconds that the look took."""
        began = time.thread_time()
        now = measure_folder(folder, max_entries=before.entries + self._limits.scratch_files)
        deleted_bytes = measure_deleted(pid, file_bytes=self._limits.file_bytes) if pid else 0
        over = is_over(self._limits, before, replace(now, size_bytes=now.size_bytes + deleted_bytes))
        return over, time.thread_time() - began


def is_over(limits: SandboxLimits, before: FolderUse, now: FolderUse) -> bool:
    """Tell whether a folder grew by more than a run may make it grow."""
    grown_bytes, grown_entries = now.size_bytes - before.size_bytes, now.entries - before.entries
    return grown_bytes > limits.scratch_bytes or grown_entries > limits.scratch_files


def read_cpu(pid: int) -> float:
    """Return the processor seconds of another process; infinite when it has ended.

    The clock's number is made as clock_getcpuclockid(3) makes it.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return float("inf")
