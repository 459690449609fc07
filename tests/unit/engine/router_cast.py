"""Providers that play outcomes, and a router over them whose time is turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from agent_core.errors import (
    AllProvidersFailed,
    ProviderError,
    ProviderUnavailable,
)
from agent_core.llm.router import Router
from agent_core.llm.scripted import ScriptedProvider, say
from agent_core.llm.types import ModelRequest, ModelResponse, StreamItem, TextChunk

Outcome = str | ProviderError | Callable[[], None]
DOWN = "down"


def ask(*, timeout_s: float = 120.0, model: str = "") -> ModelRequest:
    return ModelRequest(messages=(), timeout_s=timeout_s, model=model)


def down(times: int = 100) -> list[Outcome]:
    return [ProviderUnavailable("down") for _ in range(times)]


class Actor(ScriptedProvider):
    """Plays outcomes, the last one for ever: a text to answer (streamed by words), an error, or ``hang``.

    ``journal`` is shared between actors: who was asked, in order. ``breaks`` ends each stream after one word.
    """

    def __init__(self, name: str, *outcomes: Outcome, journal: list[str] | None = None) -> None:
        super().__init__([])
        self.name, self.model = name, f"model-{name}"
        self.outcomes = list(outcomes) or ["ok"]
        self.journal = [] if journal is None else journal
        self.breaks: ProviderError | None = None
        self.open_streams = 0
        self.gate: asyncio.Event | None = None

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self.requests.append(request)
        self.journal.append(self.name)
        outcome = self.outcomes[min(len(self.requests), len(self.outcomes)) - 1]
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(outcome, ProviderError):
            raise outcome
        assert isinstance(outcome, str)
        return say(outcome)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        self.open_streams += 1
        try:
            response = await self.complete(request)
            for word in response.message.content.split():
                yield TextChunk(text=word)
                if self.breaks is not None:
                    raise self.breaks
            yield response
        finally:
            self.open_streams -= 1


def hanging(name: str) -> Actor:
    actor = Actor(name)
    actor.gate = asyncio.Event()
    return actor


async def collect(router: Router, request: ModelRequest | None = None) -> list[StreamItem]:
    return [item async for item in router.stream(request or ask())]


async def answer(router: Router, request: ModelRequest | None = None) -> str:
    return (await router.complete(request or ask())).message.content


async def fail(router: Router, request: ModelRequest | None = None) -> AllProvidersFailed:
    with pytest.raises(AllProvidersFailed) as caught:
        await router.complete(request or ask())
    return caught.value
