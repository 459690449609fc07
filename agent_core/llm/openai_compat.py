"""Any server that speaks OpenAI's Chat Completions: OpenAI, DeepSeek, Qwen, vLLM, Ollama, proxies.

The official SDK carries the requests, over its aiohttp transport and without its own retries (the router owns
those). Bodies are built and read by ``openai_wire``, through the SDK's generic ``post``: its typed path would transform
and validate the whole history again for every request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from agent_core.errors import (
    ContextOverflow,
    ProviderRefused,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
)
from agent_core.llm.openai_wire import StreamAssembler, WireError, build_request, parse_response
from agent_core.llm.types import ModelRequest, ModelResponse, StreamItem, TextChunk

if TYPE_CHECKING:
    import openai

PATH = "/chat/completions"


class OpenAICompatible:
    """A provider over one base URL, with one connection pool.

    Args:
        name: the configured name.
        model: the server's model name.
        api_key: sent as a bearer token; servers without keys take any text.
        timeout_s: bounds every request, beside the run's deadline.
        base_url: such as ``http://127.0.0.1:11434/v1``; None is OpenAI's own.
        max_connections: requests under way at once; more wait for a connection.
    """

    def __init__(
        self,
        *,
        name: str,
        model: str,
        api_key: str,
        base_url: str | None = None,
        timeout_s: float = 60.0,
        max_connections: int = 1000,
    ) -> None:
        self.name = name
        self.model = model
        self._api_key = api_key
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._client: openai.AsyncOpenAI | None = None

    def _connect(self) -> openai.AsyncOpenAI:
        # built on first use: importing the SDK costs more than everything else together
        if self._client is None:
            import openai
            from openai import DefaultAioHttpClient

            http = DefaultAioHttpClient(
                limits=openai.DEFAULT_CONNECTION_LIMITS.__class__(
                    max_connections=self._max_connections, max_keepalive_connections=self._max_connections
                )
            )
            self._client = openai.AsyncOpenAI(
                api_key=self._api_key, base_url=self._base_url, max_retries=0, http_client=http
            )
        return self._client

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Ask and wait for the whole answer."""
        client = self._connect()
        body = build_request(self.model, request, stream=False)
        timeout_s = min(self._timeout_s, request.timeout_s)
        with self._translated():
            async with asyncio.timeout(timeout_s):
                data = await client.post(PATH, cast_to=object, body=body, options={"timeout": timeout_s})
            return parse_response(data, provider=self.name, model=self.model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        """Ask and yield text as it comes; the last item is the whole response."""
        from openai import AsyncStream

        client = self._connect()
        body = build_request(self.model, request, stream=True)
        assembler = StreamAssembler(provider=self.name, model=self.model)
        loop = asyncio.get_running_loop()
        timeout_s = min(self._timeout_s, request.timeout_s)
        deadline = loop.time() + timeout_s
        with self._translated():
            async with asyncio.timeout_at(deadline):
                chunks = await client.post(
                    PATH,
                    cast_to=object,
                    body=body,
                    options={"timeout": timeout_s},
                    stream=True,
                    stream_cls=AsyncStream[object],
                )
        try:
            while True:
                # the timeout is entered for each chunk, never held across a yield
                with self._translated():
                    async with asyncio.timeout_at(deadline):
                        chunk = await anext(chunks, None)
                    text = "" if chunk is None else assembler.add(chunk)
                if chunk is None:
                    break
                if text:
                    yield TextChunk(text=text)
            with self._translated():
                response = assembler.finish()
            yield response
        finally:
            await chunks.close()

    def prepare(self) -> None:
        """Import the SDK."""
        import openai.resources.chat  # noqa: F401

    async def aclose(self) -> None:
        """Close the connection pool."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn whatever the SDK and the wire raise into the provider errors of the engine."""
        import openai

        try:
            yield
        except TimeoutError as e:
            raise ProviderTimeout("no answer in time", provider=self.name) from e
        except openai.APITimeoutError as e:
            if _was_timeout(e):
                raise ProviderTimeout("no answer in time", provider=self.name) from e
            raise ProviderUnavailable(f"not reachable ({_cause(e)})", provider=self.name) from e
        except openai.APIStatusError as e:
            raise self._status_error(e) from e
        except openai.APIConnectionError as e:
            raise ProviderUnavailable(f"not reachable ({_cause(e)})", provider=self.name) from e
        except (openai.APIError, WireError, ValueError) as e:
            raise ProviderUnavailable(f"unusable answer: {self._clean(str(e))}", provider=self.name) from e
        except OSError as e:
            raise ProviderUnavailable(f"connection broke ({type(e).__name__})", provider=self.name) from e

    def _status_error(self, error: openai.APIStatusError) -> Exception:
        said = self._clean(error.message)
        status = error.status_code
        if status == 429:
            return RateLimited(said, provider=self.name, retry_after_s=_retry_after_s(error))
        if status in (408, 409) or status >= 500:
            return ProviderUnavailable(f"HTTP {status}: {said}", provider=self.name)
        if error.code == "context_length_exceeded":
            return ContextOverflow(said, provider=self.name)
        return ProviderRefused(f"HTTP {status}: {said}{_remedy(status)}", provider=self.name)

    def _clean(self, text: str) -> str:
        text = text.replace(self._api_key, "[redacted]") if self._api_key else text
        return " ".join(text.split())[:300]


def _was_timeout(error: BaseException) -> bool:
    """Look behind the SDK's word: its aiohttp transport reports every broken connection as a timeout."""
    cause: BaseException | None = error.__cause__
    while cause is not None:
        if isinstance(cause, TimeoutError):
            return True
        cause = cause.__cause__
    return False


def _cause(error: BaseException) -> str:
    """Name the innermost error; the outer ones only say that something failed."""
    while error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__


def _remedy(status: int) -> str:
    return {
        401: " (check the provider's api_key)",
        403: " (the key may not use this model)",
        404: " (check the provider's model and base_url)",
    }.get(status, "")


def _retry_after_s(error: openai.APIStatusError) -> float | None:
    """Seconds that the server asks to wait, from ``retry-after-ms`` or ``Retry-After`` in seconds."""
    for header, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        with contextlib.suppress(ValueError):
            if value := error.response.headers.get(header):
                return max(0.0, float(value) / unit)
    return None
