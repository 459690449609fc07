"""Each scenario on every platform."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapters.slack.manifest import BOT_SCOPES
from tests.contract.chat.discord_place import DiscordPlace
from tests.contract.chat.features import WAYS, Way
from tests.contract.chat.place import Place
from tests.contract.chat.slack_place import SlackPlace
from tests.contract.chat.terminal_place import TerminalPlace
from tests.servers.discord import DiscordServer
from tests.servers.slack import SlackServer

# what Slack does after a minute and after five has to come within a test
RETRIES_S = (0.1, 0.3, 0.6, 1.2, *(2.4,) * 10)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "feature(id): a scenario of this feature, see tests/contract/chat/features.py")
    config.addinivalue_line("markers", "unstarted: the adapter of the place is not started yet")


@asynccontextmanager
async def open_place(way: Way, folder: Path) -> AsyncIterator[Place]:
    match way:
        case "terminal":
            yield TerminalPlace()
        case "discord":
            async with DiscordServer() as guild:
                discord = DiscordPlace(guild)
                try:
                    yield discord
                finally:
                    await discord.close()
        case _:
            async with SlackServer(scopes=tuple(BOT_SCOPES), retry_delays=RETRIES_S) as workspace:
                slack = SlackPlace(workspace, way, folder)
                try:
                    yield slack
                finally:
                    await slack.close()


@pytest.fixture(params=WAYS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """A platform with a connected adapter, which objects to nothing that was done there."""
    async with open_place(request.param, tmp_path) as place:
        if request.node.get_closest_marker("unstarted") is None:
            await place.start()
        yield place
        assert place.violations() == []
