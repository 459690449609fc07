"""The zygote that serves a backend's runs, and its successors."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bot.tools.python_sandbox.forked_run import ZygoteBroken
from bot.tools.python_sandbox.types import SandboxUnavailable
from bot.tools.python_sandbox.warm import Scratch, Zygote

RUNS_PER_ZYGOTE = 500


class ZygotePool:
    """One zygote, started at the first use, and replaced after a number of runs or when anything about it is wrong.

    Args:
        start: starts one.
        runs_per_zygote: after how many runs the next one is started; the old one is ended with its last run.
    """

    def __init__(self, start: Callable[[], Awaitable[Zygote]], *, runs_per_zygote: int = RUNS_PER_ZYGOTE) -> None:
        self._start = start
        self._runs_per_zygote = runs_per_zygote
        self._current: Zygote | None = None
        self._holders: dict[Zygote, int] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Lock()
        self._closed = False

    @asynccontextmanager
    async def hold(
        self, *, scratch_bytes: int = 0, scratch_entries: int = 0
    ) -> AsyncIterator[tuple[Zygote, Scratch | None]]:
        """Give a zygote that has just said that it is well, with a scratch file system if one is wanted.

        One that does not answer as it should is replaced, once. While it is held, a zygote is not retired.

        Raises:
            SandboxUnavailable: none can be started; nothing was run.
        """
        zygote, scratch = await self._get(scratch_bytes, scratch_entries)
        try:
            yield zygote, scratch
        finally:
            if scratch is not None:
                with contextlib.suppress(ZygoteBroken):
                    zygote.release(scratch)
                os.close(scratch.fd)
            self._let_go(zygote)

    async def _get(self, scratch_bytes: int, scratch_entries: int) -> tuple[Zygote, Scratch | None]:
        for last in (False, True):
            zygote: Zygote | None = None
            try:
                zygote = await self._find()
                return zygote, await zygote.prepare(scratch_bytes=scratch_bytes, scratch_entries=scratch_entries)
            except BaseException as error:
                if zygote is not None:
                    self._let_go(zygote)
                if not isinstance(error, ZygoteBroken):
                    raise
                if last:
                    raise SandboxUnavailable(f"the sandbox did not start: {error}") from error
        raise AssertionError("the loop ends in its second round")

    async def aclose(self) -> None:
        """End every zygote, with all their runs."""
        self._closed = True
        async with self._starting:
            self._current = None
            for zygote in tuple(self._holders):
                await zygote.aclose()
            if self._ending:
                await asyncio.wait(self._ending)

    async def _find(self) -> Zygote:
        if self._closed:
            raise SandboxUnavailable("the sandbox has been closed; nothing was run")
        async with self._starting:
            current = self._current
            if current is None or not current.usable or current.runs_started >= self._runs_per_zygote:
                self._current = None
                if current is not None:
                    self._retire(current)
                current = self._current = await self._start()
                self._holders[current] = 0
            self._holders[current] += 1
            return current

    def _let_go(self, zygote: Zygote) -> None:
        self._holders[zygote] -= 1
        if zygote is not self._current:
            self._retire(zygote)

    def _retire(self, zygote: Zygote) -> None:
        if self._holders.get(zygote, 0) and zygote.usable:
            return  # the last of its holders comes here again
        # No run waits for that: what is left of a zygote's surroundings can take longer to go than a run took.
        ending = asyncio.create_task(zygote.aclose())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        if not self._holders.get(zygote, 0):
            self._holders.pop(zygote, None)
