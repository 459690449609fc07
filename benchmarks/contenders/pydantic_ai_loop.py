"""pydantic-ai's agent over Chat Completions, without instrumentation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
from pydantic_ai import Agent  # type: ignore[import-not-found]
from pydantic_ai.models.openai import OpenAIChatModel  # type: ignore[import-not-found]
from pydantic_ai.providers.openai import OpenAIProvider  # type: ignore[import-not-found]

from benchmarks.cells import INSTRUCTIONS, MAX_TOKENS, TEMPERATURE, Cell, add
from benchmarks.contenders import Ask


@asynccontextmanager
async def open_peer(url: str, cell: Cell) -> AsyncIterator[Ask]:
    """Open the loop."""
    async with openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0) as client:
        agent = Agent(
            OpenAIChatModel(cell.model, provider=OpenAIProvider(openai_client=client)),
            instructions=INSTRUCTIONS,
            tools=[add],
            model_settings={"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS},
        )

        async def ask(n: int) -> str:
            return str((await agent.run(f"sums please, number {n}")).output)

        async def stream(n: int) -> str:
            async with agent.run_stream(f"a long story please, number {n}") as result:
                return "".join([text async for text in result.stream_text(delta=True, debounce_by=None)])

        yield stream if cell.streams else ask
