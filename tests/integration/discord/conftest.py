from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.discord.app import DiscordAdapter
from tests.integration.slack.conftest import Inbox
from tests.servers.discord import DiscordServer

__all__ = ["Inbox", "build_adapter", "running", "wait_connected"]


@pytest.fixture
async def server() -> AsyncIterator[DiscordServer]:
    async with DiscordServer() as server:
        yield server


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


def build_adapter(server: DiscordServer, **options: Any) -> DiscordAdapter:
    """Build an adapter that is quick to try again."""
    options = {"api_url": server.base_url, "retry_s": 0.05, "identify_gap_s": 0.02, "catch_up_s": 0.0, **options}
    return DiscordAdapter(options.pop("token", server.token), **options)


@asynccontextmanager
async def running(server: DiscordServer, inbox: Inbox, **options: Any) -> AsyncIterator[DiscordAdapter]:
    """A connected adapter."""
    adapter = build_adapter(server, **options)
    try:
        await adapter.start(inbox.accept)
        await wait_connected(adapter)
        yield adapter
    finally:
        await adapter.stop()


@pytest.fixture
async def adapter(server: DiscordServer, inbox: Inbox) -> AsyncIterator[DiscordAdapter]:
    async with running(server, inbox) as adapter:
        yield adapter


async def wait_connected(adapter: DiscordAdapter, timeout_s: float = 30.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not adapter.connected:  # noqa: ASYNC110 - a property tells, nothing calls
            await asyncio.sleep(0.005)
