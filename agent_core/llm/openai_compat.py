"""Any server that speaks OpenAI's Chat Completions: OpenAI, DeepSeek, Qwen, vLLM, Ollama, proxies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

from agent_core.errors import ProviderRefused
from agent_core.llm import openai_wire
from agent_core.llm.vendor import VendorProvider
from agent_core.llm.vendor_wire import Json


@dataclass(kw_only=True, eq=False)
class OpenAICompatible(VendorProvider):
    """Chat Completions, and embeddings with ``embedding_model``; the other arguments are ``VendorProvider``'s."""

    PATH: ClassVar[str] = "/chat/completions"
    WIRE: ClassVar[ModuleType] = openai_wire

    embedding_model: str = ""

    def _import(self) -> ModuleType:
        import openai

        return openai

    def _open(self, sdk: ModuleType, http: object) -> Any:
        return sdk.AsyncOpenAI(api_key=self.api_key or "none", base_url=self.base_url, max_retries=0, http_client=http)

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """Return one vector a text, in order. Texts must not be empty; how many fit one request is the server's rule.

        Raises:
            ProviderError: as for a question; ``ProviderRefused`` where no ``embedding_model`` is configured.
        """
        if not self.embedding_model:
            raise ProviderRefused("no embedding_model is configured", provider=self.name)
        if not texts:
            return ()
        _, _, errors = self._connect()
        body: Json = {"model": self.embedding_model, "input": list(texts), "encoding_format": "float"}
        data, _ = await self._post("/embeddings", body, asyncio.get_running_loop().time() + self.timeout_s)
        with errors:
            return openai_wire.parse_embeddings(data, len(texts))
