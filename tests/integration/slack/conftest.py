from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from adapters.chat import Action, Command, Inbound, Message
from adapters.slack.app import BOT_SCOPES, SlackAdapter
from tests.servers.slack import SlackServer


class Inbox:
    """Stands where Hermod's inbox stands: takes what comes in, and may be told to fail or to wait."""

    def __init__(self) -> None:
        self.items: list[Inbound] = []
        self.failures = 0
        self.answer = True
        self.gate = asyncio.Event()
        self.gate.set()
        self._changed = asyncio.Condition()

    async def accept(self, inbound: Inbound) -> bool:
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise OSError("the disk is full")
        self.items.append(inbound)
        async with self._changed:
            self._changed.notify_all()
        return self.answer

    @property
    def messages(self) -> list[Message]:
        return [i for i in self.items if isinstance(i, Message)]

    @property
    def commands(self) -> list[Command]:
        return [i for i in self.items if isinstance(i, Command)]

    @property
    def actions(self) -> list[Action]:
        return [i for i in self.items if isinstance(i, Action)]

    async def wait_for(self, predicate: Callable[[], Any], timeout_s: float = 5.0) -> None:
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: bool(predicate()))


@pytest.fixture
async def server() -> AsyncIterator[SlackServer]:
    """A workspace that grants exactly the scopes that the manifest asks for."""
    async with SlackServer(scopes=tuple(BOT_SCOPES), ack_timeout=3.0) as server:
        yield server


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


def build_adapter(server: SlackServer, **options: Any) -> SlackAdapter:
    options = {"ping_interval_s": 0.2, "watch_s": 0.05, "stall_s": 1.0, **options}
    return SlackAdapter(server.bot_token, server.app_token, server.base_url, **options)


@pytest.fixture
async def adapter(server: SlackServer, inbox: Inbox) -> AsyncIterator[SlackAdapter]:
    """A connected adapter."""
    adapter = build_adapter(server)
    await adapter.start(inbox.accept)
    await wait_connected(adapter)
    yield adapter
    await adapter.stop()


async def wait_connected(adapter: SlackAdapter, timeout_s: float = 5.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not adapter.connected:  # noqa: ASYNC110 - a property tells, nothing calls
            await asyncio.sleep(0.005)


async def all_acknowledged(server: SlackServer, count: int, timeout_s: float = 5.0) -> None:
    """Wait until ``count`` deliveries were made and every one is acknowledged."""
    await server.wait_until(
        lambda: len(server.deliveries) >= count and all(d.acked for d in server.deliveries), timeout_s
    )
