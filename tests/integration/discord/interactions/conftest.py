from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from adapters.discord.app import DiscordAdapter
from tests.integration.discord.conftest import Inbox
from tests.integration.discord.interactions.desk import Clock, start
from tests.servers.discord import DiscordServer


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def adapter(server: DiscordServer, inbox: Inbox, clock: Clock) -> AsyncIterator[DiscordAdapter]:
    adapter = await start(server, inbox, now=clock)
    yield adapter
    await adapter.stop()
    assert server.violations == []
