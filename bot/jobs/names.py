"""The names of jobs in memory, for suggestions while somebody types: no keystroke may wait for the storage."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog

from agent_core.context import Clock
from bot.jobs.desk import Asking, is_open_to
from bot.storage.base import Store, StoreError
from bot.storage.jobs import JobRow

log = structlog.get_logger("hermod.jobs")

FRESH_S = 2.0
"""Names are read again when somebody asks for them, and not more often than this."""


class JobNames:
    """Names that were read a moment ago: what was made just now comes with the next keystroke.

    Args:
        store: keeps the jobs; other processes change them too.
        clock: time.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._rows: tuple[JobRow, ...] = ()
        self._asked = asyncio.Event()

    def find(self, asking: Asking) -> tuple[str, ...]:
        """The jobs of the channel, and the person's own in others, by name; returns at once."""
        self._asked.set()
        return tuple(row.name for row in self._rows if is_open_to(row, asking))

    async def keep(self) -> None:
        """Read the names now, and again whenever somebody asked for some; ends only by being cancelled."""
        while True:
            read_at = self._clock.monotonic()
            self._asked.clear()
            await self._read()
            await self._asked.wait()
            await self._clock.sleep(max(0.0, read_at + FRESH_S - self._clock.monotonic()))

    async def _read(self) -> None:
        try:
            rows = await self._store.list_jobs()
        except StoreError as error:
            log.warning("job_names_not_read", error=str(error))  # those of before are still suggested
            return
        self._rows = tuple(replace(row, spec="", reason="") for row in rows)
