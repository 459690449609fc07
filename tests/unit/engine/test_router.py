"""One provider after another; nothing is left open behind the one that answered."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent_core.errors import AllProvidersFailed, ConfigError, ProviderUnavailable
from agent_core.llm.router import Router
from agent_core.llm.scripted import ScriptedProvider, say
from agent_core.llm.types import ModelRequest, ModelResponse, TextChunk
from tests.unit.engine.running import Bench

REQUEST = ModelRequest(messages=())


class Streaming(ScriptedProvider):
    """Says whether its stream was closed."""

    def __init__(self, *, breaks: bool = False) -> None:
        super().__init__([say("one two")])
        self.breaks = breaks
        self.open = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextChunk | ModelResponse]:
        self.open += 1
        try:
            yield TextChunk(text="one")
            if self.breaks:
                raise ProviderUnavailable("broke off", provider="streaming")
            yield await self.complete(request)
        finally:
            self.open -= 1


async def test_the_stream_of_the_provider_that_answered_is_closed_before_the_run_goes_on() -> None:
    provider = Streaming()
    record = await Bench(Router([provider])).ask("hi")
    assert (record.answer, provider.open) == ("one two", 0)


async def test_a_failure_before_the_first_text_is_silent_and_one_after_it_is_not() -> None:
    down = ScriptedProvider([ProviderUnavailable("down", provider="a")])
    assert [type(item) async for item in Router([down, Streaming()]).stream(REQUEST)] == [TextChunk, ModelResponse]
    second = ScriptedProvider([say("never")])
    with pytest.raises(AllProvidersFailed, match="broke off"):
        _ = [item async for item in Router([Streaming(breaks=True), second]).stream(REQUEST)]
    assert second.requests == []


async def test_every_failure_is_told_when_nobody_answered() -> None:
    providers = [ScriptedProvider([ProviderUnavailable(f"down {n}", provider=f"p{n}")]) for n in range(2)]
    with pytest.raises(AllProvidersFailed, match="p0: down 0; p1: down 1"):
        await Router(providers).complete(REQUEST)
    with pytest.raises(ConfigError):
        Router([])
