from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from tests.servers.slack import SlackServer

Refusal = Callable[..., Any]


@pytest.fixture
async def server() -> AsyncIterator[SlackServer]:
    async with SlackServer() as server:
        yield server


@pytest.fixture
async def client(server: SlackServer) -> AsyncIterator[AsyncWebClient]:
    """Slack's own client, as the bot."""
    async with aiohttp.ClientSession() as session:
        yield AsyncWebClient(token=server.bot_token, base_url=server.base_url, session=session)


async def refusal(client: AsyncWebClient, method: str, /, **arguments: Any) -> str:
    """Call a method by its function of Slack's client; the error's code, or ``ok``."""
    try:
        await getattr(client, method.replace(".", "_"))(**arguments)
    except SlackApiError as error:
        return str(error.response["error"])
    return "ok"
