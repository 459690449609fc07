"""The servers, and what the tools need beside them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Literal

import pytest

from bot.storage.snapshots import Snapshot
from tests.servers.postgres import Lab, any_postgres, bare_postgres, postgres

__all__ = ["any_postgres", "bare_postgres", "postgres"]


class MemorySnapshots:
    """Snapshots in memory, in the order of their taking."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    async def find_snapshot(
        self, target: str, *, at: datetime, side: Literal["before", "after"], keys: Collection[str] | None = None
    ) -> Snapshot | None:
        mine = [s for s in self.snapshots if s.target == target]
        if side == "before":
            return next((s for s in reversed(mine) if s.taken_at <= at), None)
        return next((s for s in mine if s.taken_at > at), None)


@pytest.fixture
def store() -> MemorySnapshots:
    """Snapshots of one test."""
    return MemorySnapshots()


def check_no_secret(text: str, lab: Lab) -> None:
    """Fail when a password, or the server's folder shows up in ``text``."""
    for secret in (*lab.passwords.values(), str(lab.server.folder)):
        assert secret not in text
