"""The seam between the engine and a model vendor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from agent_core.llm.types import ModelRequest, ModelResponse, StreamItem

OFFLINE = "offline"
"""Name and model of the provider that uses no language model: it cannot summarise, plan or judge."""


class Provider(Protocol):
    """A model that can be asked. Implementations are safe to call concurrently.

    Errors: only the ``ProviderError`` family of ``agent_core.errors`` (the router acts on it);
    cancellation passes through and ends the request at the vendor.
    """

    @property
    def name(self) -> str:
        """The configured name, for traces and errors."""
        ...

    @property
    def model(self) -> str:
        """The vendor's model name, for prices and token counts."""
        ...

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Ask and wait for the whole answer."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        """Ask and yield text as it comes; the last item is the whole ``ModelResponse``."""
        ...

    def prepare(self) -> None:
        """Import and build what the first request needs.

        It may take a second of CPU, so a program calls it in a thread before it serves. Optional: the first
        request does it otherwise.
        """
        ...

    async def aclose(self) -> None:
        """Release connections; afterwards the provider is not used again."""
        ...
