"""The servers, a real store, and a clock whose hours pass in seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from bot.storage.sqlite import SqliteStore
from tests.clocks import NoonClock
from tests.servers.postgres import any_postgres, bare_postgres, postgres
from tests.stopwatch import hold_at_best

__all__ = ["any_postgres", "bare_postgres", "postgres"]


class LeapClock(NoonClock):
    """Real databases, but no waiting for minutes to pass: from noon on, so that buckets of an hour begin with a test.

    The hours that a test lets pass are all of one day.
    """

    def leap(self, **span: float) -> None:
        """Let time pass."""
        self.ahead += timedelta(**span)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


Check = Callable[[SqliteStore, LeapClock], Awaitable[None]]


async def check_at_best(check: Check, folder: Path) -> None:
    """Check what compares durations; each attempt has a store and a clock of its own."""

    async def attempt(number: int) -> None:
        store = SqliteStore(folder / f"attempt-{number}.db")
        await store.open()
        try:
            await check(store, LeapClock())
        finally:
            await store.close()

    await hold_at_best(attempt)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """An open store of one test."""
    opened = SqliteStore(tmp_path / "hermod.db")
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> LeapClock:
    """Time of one test."""
    return LeapClock()
