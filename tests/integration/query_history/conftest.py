"""The servers, a real store, and a clock whose hours pass in seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from agent_core.context import SystemClock
from bot.storage.sqlite import SqliteStore
from tests.servers.postgres import any_postgres, bare_postgres, postgres

__all__ = ["any_postgres", "bare_postgres", "postgres"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """An open store of one test."""
    opened = SqliteStore(tmp_path / "hermod.db")
    await opened.open()
    yield opened
    await opened.close()


class LeapClock(SystemClock):
    """The machine's clock, set ahead by a test: real databases, but no waiting for minutes to pass.

    It begins at noon, so that buckets of an hour begin where a test begins, and the hours that a test lets pass are
    all of one day, at whatever time of day it is run.
    """

    def __init__(self) -> None:
        now = super().now()
        self.ahead = now.replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=1) - now

    def now(self) -> datetime:
        return super().now() + self.ahead

    def leap(self, **span: float) -> None:
        """Let time pass."""
        self.ahead += timedelta(**span)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@pytest.fixture
def clock() -> LeapClock:
    """Time of one test."""
    return LeapClock()
