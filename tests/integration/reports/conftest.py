"""A store, a model server with the official client, and database servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_core.llm.openai_compat import OpenAICompatible
from bot.storage.sqlite import SqliteStore
from tests.integration.reports.stage import openai
from tests.servers.openai import OpenAIServer
from tests.servers.postgres import any_postgres

__all__ = ["any_postgres"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """An open store of one test."""
    opened = SqliteStore(tmp_path / "hermod.db")
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    """A model server; it checks the protocol."""
    async with OpenAIServer() as running:
        yield running
        assert running.violations == []


@pytest.fixture
async def model(server: OpenAIServer) -> AsyncIterator[OpenAICompatible]:
    """The official client on that server."""
    made = openai(server)
    yield made
    await made.aclose()
