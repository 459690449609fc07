"""The strict model server, and a thread that talks to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.bugs.stage import Stage
from tests.servers.openai import OpenAIServer


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as running:
        yield running


@pytest.fixture
async def stage(server: OpenAIServer) -> AsyncIterator[Stage]:
    async with Stage(server) as made:
        yield made
