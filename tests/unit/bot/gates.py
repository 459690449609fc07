"""A tool and a model that wait until a test lets them go on, and waits for what a test has to be sure of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

from adapters.chat import Author, Deleted, Stop
from agent_core.llm.scripted import ScriptedProvider
from agent_core.llm.types import ModelRequest, ModelResponse, StreamItem
from agent_core.tools.registry import ToolRegistry
from bot.storage.base import Store
from tests.unit.bot.recording import ALICE, message

THREAD = message("").thread
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def stop(*, author: Author = ALICE, number: int = 90, at: datetime = T0) -> Stop:
    return Stop(thread=THREAD, id=f"s{number}", author=author, sent_at=at)


def deleted(number: int, *, author: Author = ALICE) -> Deleted:
    return Deleted(thread=THREAD, id=f"x{number}", message_id=f"id{number}", author=author, sent_at=T0)


class Hanging:
    """A tool that hangs until it is cancelled, and knows what became of it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cancelled = False
        self.registry = ToolRegistry()

        async def hang() -> str:
            """Hang."""
            self.begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
            return "never"

        self.registry.register(hang)


class Gate(ScriptedProvider):
    """Waits before the answer of one call until it is opened."""

    def __init__(self, turns: list[ModelResponse], *, at: int = 1) -> None:
        super().__init__(turns)
        self._at = at
        self.asked = asyncio.Event()
        self.open = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelResponse:
        response = await super().complete(request)
        if len(self.requests) == self._at:
            self.asked.set()
            await self.open.wait()
        return response

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        yield await self.complete(request)


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while True:
            held = condition()
            if held if isinstance(held, bool) else await held:
                return
            await asyncio.sleep(0.005)


async def no_open_items(store: Store) -> bool:
    return not await store.load_open(THREAD.key)
