"""The servers, a real store, and a clock whose hours pass in seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from bot.storage.sqlite import SqliteStore
from tests.clocks import NoonClock
from tests.servers.postgres import any_postgres, bare_postgres, postgres

__all__ = ["any_postgres", "bare_postgres", "postgres"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """An open store of one test."""
    opened = SqliteStore(tmp_path / "hermod.db")
    await opened.open()
    yield opened
    await opened.close()


class LeapClock(NoonClock):
    """Real databases, but no waiting for minutes to pass: from noon on, so that buckets of an hour begin with a test.

    The hours that a test lets pass are all of one day.
    """

    def leap(self, **span: float) -> None:
        """Let time pass."""
        self.ahead += timedelta(**span)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@pytest.fixture
def clock() -> LeapClock:
    """Time of one test."""
    return LeapClock()
