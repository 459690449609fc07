"""The jobs of a process that serves: their rows are made what the settings say, and the clock is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import structlog

from adapters.chat import ChatAdapter
from bot.http import Metric
from bot.jobs.configured import ConfiguredJobs
from bot.jobs.scheduler import JobScheduler
from bot.storage.base import StoreError

RELEASE_S = 2.0
"""How long ``stop`` waits for the leases to be given back; they end by themselves, too."""

log = structlog.get_logger("hermod.jobs")


class RunningJobs:
    """Starts and ends what fires jobs.

    Args:
        configured: makes the rows of the settings.
        scheduler: fires what is due.
        adapters: by platform; asked for workspaces and channels.
    """

    def __init__(
        self, configured: ConfiguredJobs, scheduler: JobScheduler, *, adapters: Mapping[str, ChatAdapter]
    ) -> None:
        self._configured = configured
        self._scheduler = scheduler
        self._adapters = adapters
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; returns at once. Jobs that were made before fire while those of the settings are looked at."""
        self._task = asyncio.create_task(self._configure(), name="jobs of the settings")
        self._task.add_done_callback(_tell_defect)
        self._scheduler.start()

    async def stop(self) -> None:
        """End; what is due and not decided about is left to the next start. Safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            await self._release()
        await self._scheduler.stop()

    async def _configure(self) -> None:
        await self._configured.run(self._adapters)
        await self._configured.keep()

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(RELEASE_S):
                await self._configured.release()
        except (StoreError, TimeoutError) as error:
            log.warning("reports_not_released", error=str(error) or "it took too long")

    def metrics(self) -> Iterator[Metric]:
        """Counters of this process."""
        yield from self._scheduler.metrics()


def _tell_defect(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("reports_not_configured", error=str(error), exc_info=error)
