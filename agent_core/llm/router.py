"""Ask one provider after another until one answers.

This first form keeps the configured order. A failure before the first piece of text is silent; after it the
error is raised, so that two half answers are never glued together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from agent_core.errors import AllProvidersFailed, ConfigError, ProviderError
from agent_core.llm.provider import Provider
from agent_core.llm.types import ModelRequest, ModelResponse, StreamItem


class Router:
    """A provider made of providers, tried in order.

    Args:
        providers: at least one; the last is often the offline provider, which needs nothing from outside.
    """

    def __init__(self, providers: Sequence[Provider]) -> None:
        if not providers:
            raise ConfigError("a router needs at least one provider")
        self._providers = tuple(providers)

    @property
    def name(self) -> str:
        """The names of the chain."""
        return ",".join(p.name for p in self._providers)

    @property
    def model(self) -> str:
        """The model of the first provider (token counts follow it)."""
        return self._providers[0].model

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Ask in order; the first answer counts.

        Raises:
            AllProvidersFailed: with one error for each provider.
        """
        failures: list[ProviderError] = []
        for provider in self._providers:
            try:
                return await provider.complete(request)
            except ProviderError as e:
                failures.append(e)
        raise AllProvidersFailed(tuple(failures))

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        """Ask in order, streaming; after the first piece of text there is no second provider."""
        failures: list[ProviderError] = []
        for provider in self._providers:
            begun = False
            try:
                async with aclosing(provider.stream(request)) as items:  # type: ignore[type-var]
                    async for item in items:
                        begun = True
                        yield item
                return
            except ProviderError as e:
                failures.append(e)
                if begun:
                    break
        raise AllProvidersFailed(tuple(failures))

    def prepare(self) -> None:
        """Prepare every provider."""
        for provider in self._providers:
            provider.prepare()

    async def aclose(self) -> None:
        """Close every provider."""
        for provider in self._providers:
            await provider.aclose()
