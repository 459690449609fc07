"""The floor: a hand loop on the raw SDK. No limits, no counting, no validity, no record: only what must be done."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

import openai
from openai.types.chat import ChatCompletionToolUnionParam

from benchmarks.cells import INSTRUCTIONS, MAX_TOKENS, TEMPERATURE, TOOL, Cell, add
from benchmarks.contenders import Ask


def open_raw(url: str, cell: Cell) -> AbstractAsyncContextManager[Ask]:
    """Loop over the SDK's default transport."""
    return _open(openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0), cell)


def open_aiohttp(url: str, cell: Cell) -> AbstractAsyncContextManager[Ask]:
    """Loop over the SDK's aiohttp transport."""
    http = openai.DefaultAioHttpClient()
    return _open(openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0, http_client=http), cell)


@asynccontextmanager
async def _open(client: openai.AsyncOpenAI, cell: Cell) -> AsyncIterator[Ask]:
    tools = cast("list[ChatCompletionToolUnionParam]", [TOOL])

    async def ask(n: int) -> str:
        messages: list[dict[str, object]] = [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": f"sums please, number {n}"},
        ]
        while True:
            answer = await client.chat.completions.create(
                model=cell.model,
                messages=messages,  # type: ignore[arg-type]
                tools=tools,
                temperature=TEMPERATURE,
                max_tokens=MAX_TOKENS,
            )
            message = answer.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                result = await add(**json.loads(call.function.arguments))  # type: ignore[union-attr]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})

    async def stream(n: int) -> str:
        chunks = await client.chat.completions.create(
            model=cell.model,
            messages=[
                {"role": "system", "content": INSTRUCTIONS},
                {"role": "user", "content": f"a long story please, number {n}"},
            ],
            tools=tools,
            temperature=TEMPERATURE,
            max_tokens=MAX_TOKENS,
            stream=True,
            stream_options={"include_usage": True},
        )
        said: list[str] = []
        async for chunk in chunks:
            if chunk.choices and (text := chunk.choices[0].delta.content):
                said.append(text)
        return "".join(said)

    async with client:
        yield stream if cell.streams else ask
