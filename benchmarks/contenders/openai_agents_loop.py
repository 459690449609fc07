"""openai-agents' runner over Chat Completions, its tracing switched off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
from agents import (  # type: ignore[import-not-found]
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)

from benchmarks.cells import INSTRUCTIONS, MAX_TOKENS, TEMPERATURE, Cell, add
from benchmarks.contenders import Ask


@asynccontextmanager
async def open_peer(url: str, cell: Cell) -> AsyncIterator[Ask]:
    """Open the loop."""
    set_tracing_disabled(True)
    async with openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0) as client:
        agent = Agent(
            name="bench",
            instructions=INSTRUCTIONS,
            model=OpenAIChatCompletionsModel(cell.model, client),
            model_settings=ModelSettings(temperature=TEMPERATURE, max_tokens=MAX_TOKENS, include_usage=True),
            tools=[function_tool(add)],
        )

        async def ask(n: int) -> str:
            return str((await Runner.run(agent, f"sums please, number {n}")).final_output)

        async def stream(n: int) -> str:
            result = Runner.run_streamed(agent, f"a long story please, number {n}")
            said: list[str] = []
            async for event in result.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    said.append(event.data.delta)
            return "".join(said)

        yield stream if cell.streams else ask
