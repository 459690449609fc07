"""What the tests of this folder share: the server, a store on disk, a clock, and waiting for a condition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from agent_core.context import SystemClock
from bot.storage.sqlite import SqliteStore
from tests.servers.mariadb import MariaLab, Session, mariadb

__all__ = ["CLOCK", "check_no_secret", "count_running", "mariadb", "wait_until"]

CLOCK = SystemClock()
PATIENCE_S = 30.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """A store of one test."""
    opened = SqliteStore(tmp_path / "hermod.db")
    await opened.open()
    yield opened
    await opened.close()


async def wait_until(condition: Callable[[], Awaitable[bool]], *, patience_s: float = PATIENCE_S) -> None:
    """Ask again and again until it holds; fails after ``patience_s``."""
    async with asyncio.timeout(patience_s):
        while not await condition():  # noqa: ASYNC110 (the server sends no event)
            await asyncio.sleep(0.01)


async def count_running(admin: Session, marker: str) -> int:
    """How many sessions run a statement with ``marker`` in it, this one not counted."""
    found = await admin.value(
        "select count(*) from information_schema.processlist where info like %s and id <> connection_id()",
        [f"%{marker}%"],
    )
    assert isinstance(found, int)
    return found


def check_no_secret(text: str, lab: MariaLab) -> None:
    """Fail when a password, the server's folder or its port shows up in ``text``."""
    for secret in (*lab.passwords.values(), str(lab.server.folder), str(lab.server.port)):
        assert secret not in text
