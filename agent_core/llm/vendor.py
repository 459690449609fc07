"""A provider over a vendor's official SDK: what OpenAI's and Anthropic's have in common.

The SDK carries the requests, over its aiohttp transport and without its own retries (the router owns those). Bodies are
built and read by the wire modules, through the SDK's generic ``post``: its typed path would transform and validate the
whole history again for every request.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, ClassVar

from agent_core.context import Clock, SystemClock
from agent_core.llm.profiles import Amendments, amend, find_amendment, find_profile
from agent_core.llm.types import ModelRequest, ModelResponse, StreamItem, TextChunk
from agent_core.llm.vendor_errors import ErrorTranslator, read_refusal
from agent_core.llm.vendor_wire import Assembler, Json


@dataclass(kw_only=True, eq=False)
class VendorProvider(ABC):
    """A provider over one base URL, with one connection pool.

    Args:
        name, model: the configured name, and the server's model name.
        api_key: servers without keys take any text.
        base_url: such as ``http://127.0.0.1:11434/v1``; None is the vendor's own.
        timeout_s: bounds every request, beside the run's deadline.
        max_connections: requests under way at once; more wait for a connection.
        clock: for a ``Retry-After`` that is a date.
    """

    PATH: ClassVar[str]
    WIRE: ClassVar[ModuleType]  # build_request, parse_response and StreamAssembler of the vendor

    name: str
    model: str
    api_key: str = field(repr=False)
    base_url: str | None = None
    timeout_s: float = 60.0
    max_connections: int = 1000
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self._amendments: Amendments = find_profile(self.model)
        self._connection: tuple[Any, ModuleType, ErrorTranslator] | None = None

    @abstractmethod
    def _import(self) -> ModuleType:
        """Import the SDK."""

    @abstractmethod
    def _open(self, sdk: ModuleType, http: object) -> Any:
        """Build the SDK's client over a connection pool."""

    def _connect(self) -> tuple[Any, ModuleType, ErrorTranslator]:
        # on first use: importing the SDK costs more than everything else together
        if self._connection is None:
            sdk = self._import()
            most = self.max_connections
            limits = sdk.DEFAULT_CONNECTION_LIMITS.__class__(max_connections=most, max_keepalive_connections=most)
            client = self._open(sdk, sdk.DefaultAioHttpClient(limits=limits))
            errors = ErrorTranslator(sdk, provider=self.name, secret=self.api_key, clock=self.clock)
            self._connection = client, sdk, errors
        return self._connection

    async def _post(self, path: str, body: Json, deadline: float, **how: object) -> tuple[Any, tuple[str, ...]]:
        """Send a body; where the server names a parameter that it does not take, amend it once and remember that.

        Returns:
            What the SDK answered, and what the refused requests before it were told.
        """
        client, sdk, errors = self._connect()
        loop = asyncio.get_running_loop()
        amend(body, self._amendments)
        failures: tuple[str, ...] = ()
        with errors:
            async with asyncio.timeout_at(deadline):
                while True:
                    options = {"timeout": max(deadline - loop.time(), 0.001)}
                    try:
                        return await client.post(path, cast_to=object, body=body, options=options, **how), failures
                    except sdk.APIStatusError as e:
                        learnt = find_amendment(body, self._amendments, " ".join(read_refusal(e)[1:]))
                        if not learnt or len(failures) > 2:
                            raise
                        self._amendments = {**self._amendments, **learnt}
                        failures = (*failures, str(errors.translate(e)))
                        amend(body, learnt)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Ask and wait for the whole answer."""
        deadline = asyncio.get_running_loop().time() + min(self.timeout_s, request.timeout_s)
        body = self.WIRE.build_request(self.model, request, stream=False)
        data, failures = await self._post(self.PATH, body, deadline)
        with self._connect()[2]:
            response: ModelResponse = self.WIRE.parse_response(data, provider=self.name, model=self.model)
        return replace(response, attempts=1 + len(failures), failures=failures) if failures else response

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        """Ask and yield text as it comes; the last item is the whole response."""
        _, sdk, errors = self._connect()
        now = asyncio.get_running_loop().time
        begun, first_s = now(), None
        deadline = begun + min(self.timeout_s, request.timeout_s)
        body = self.WIRE.build_request(self.model, request, stream=True)
        how = {"stream": True, "stream_cls": sdk.AsyncStream[object]}
        chunks, failures = await self._post(self.PATH, body, deadline, **how)
        assembler: Assembler = self.WIRE.StreamAssembler(provider=self.name, model=self.model)
        try:
            if "application/json" in chunks.response.headers.get("content-type", ""):
                # a server that does not stream: its whole answer, or an error with status 200
                with errors:
                    async with asyncio.timeout_at(deadline):
                        data = json.loads(await chunks.response.aread())
                    response = self.WIRE.parse_response(data, provider=self.name, model=self.model)
                yield TextChunk(text=response.message.content)
            else:
                while True:
                    # the timeout is entered for each chunk, never held across a yield
                    with errors:
                        async with asyncio.timeout_at(deadline):
                            chunk = await anext(chunks, None)
                        text = assembler.add(chunk) if chunk is not None else ""
                    if chunk is None:
                        break
                    first_s = now() - begun if first_s is None else first_s
                    if text:
                        yield TextChunk(text=text)
                with errors:
                    response = assembler.finish()
            yield replace(response, first_chunk_s=first_s, attempts=1 + len(failures), failures=failures)
        finally:
            await chunks.close()

    def prepare(self) -> None:
        """Import the SDK."""
        self._import()

    async def aclose(self) -> None:
        """Close the connection pool."""
        if self._connection is not None:
            await self._connection[0].close()
            self._connection = None
