"""langchain's ``create_agent`` on langgraph over Chat Completions, without LangSmith and without a checkpointer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
from langchain.agents import create_agent  # type: ignore[import-not-found]
from langchain_core.tools import tool  # type: ignore[import-not-found]
from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]

from benchmarks.cells import INSTRUCTIONS, MAX_TOKENS, TEMPERATURE, Cell, add
from benchmarks.contenders import Ask


@asynccontextmanager
async def open_peer(url: str, cell: Cell) -> AsyncIterator[Ask]:
    """Open the loop."""
    http = openai.DefaultAsyncHttpxClient()
    model = ChatOpenAI(
        model=cell.model,
        base_url=url,
        api_key="k",
        max_retries=0,
        temperature=TEMPERATURE,
        max_tokens=MAX_TOKENS,
        use_responses_api=False,
        stream_usage=True,
        http_async_client=http,  # its own default client is shared by all models, and would outlive the cell
    )
    agent = create_agent(model, [tool(add)], system_prompt=INSTRUCTIONS)

    def start(text: str) -> dict[str, object]:
        return {"messages": [{"role": "user", "content": text}]}

    async def ask(n: int) -> str:
        state = await agent.ainvoke(start(f"sums please, number {n}"))
        return str(state["messages"][-1].content)

    async def stream(n: int) -> str:
        parts = agent.astream(start(f"a long story please, number {n}"), stream_mode="messages")
        return "".join([message.content async for message, _ in parts])

    yield stream if cell.streams else ask
    await http.aclose()
