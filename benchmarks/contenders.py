"""The loops that are compared: each answers one question over three tool rounds, against one base URL.

``python -m benchmarks.contenders NAME URL RUNS CONCURRENT`` runs one of them in a process of its own and prints its CPU
seconds, wall seconds, resident memory and errors as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_core.context import Journal

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
                "additionalProperties": False,
            },
        },
    }
]
ANSWER = "The sums are 1, 2 and 3."
Ask = Callable[[int], Awaitable[str]]


async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return a + b


async def build_raw(url: str, *, aiohttp: bool) -> Ask:
    """The floor: a hand loop on the raw SDK, over its default transport or over aiohttp."""
    import openai

    http = openai.DefaultAioHttpClient() if aiohttp else None
    client = openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0, http_client=http)

    async def ask(n: int) -> str:
        messages: list[dict[str, object]] = [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": f"three sums please, number {n}"},
        ]
        while True:
            answer = await client.chat.completions.create(
                model="bench",
                messages=messages,  # type: ignore[arg-type]
                tools=TOOLS,  # type: ignore[arg-type]
                temperature=0.7,
                max_tokens=4096,
            )
            message = answer.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                result = await add(**json.loads(call.function.arguments))  # type: ignore[union-attr]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})

    return ask


async def build_hermod(url: str, *, sqlite: bool) -> Ask:
    """The engine, with validity pass, guards, counting, usage, cost, trace and a journal switched on."""
    from agent_core.agent import Agent
    from agent_core.context import Limits, MemoryJournal, RunContext, SystemClock
    from agent_core.llm.openai_compat import OpenAICompatible
    from agent_core.llm.pricing import Price, PriceList
    from agent_core.llm.tokens import load_counter
    from agent_core.llm.types import ModelMessage
    from agent_core.memory.conversation import Conversation
    from agent_core.observe import trace_as_data
    from agent_core.runtime.loop import AgentLoop
    from agent_core.tools.executor import ToolExecutor
    from agent_core.tools.registry import ToolRegistry

    registry = ToolRegistry()
    registry.register(add)
    provider = OpenAICompatible(name="bench", model="bench", api_key="k", base_url=url)
    prices = PriceList({"bench": Price(input=1.0, output=2.0)})
    loop = AgentLoop(provider=provider, executor=ToolExecutor(registry), prices=prices)
    counter = load_counter("bench")
    clock, limits = SystemClock(), Limits()
    agent = Agent(instructions="be brief", stream=False)
    journal_of = await _open_journals() if sqlite else lambda n: _memory()

    async def _memory() -> Journal:
        return MemoryJournal()

    async def ask(n: int) -> str:
        ctx = RunContext(
            run_id=f"run{n:012}",
            thread_id=f"t{n}",
            limits=limits,
            deadline=clock.monotonic() + 120,
            clock=clock,
            journal=await journal_of(n),
        )
        question = [ModelMessage(role="user", content=f"three sums please, number {n}")]
        record = await loop.run(agent, ctx, Conversation(counter), question)
        trace_as_data(record)
        return record.answer

    return ask


async def _open_journals() -> Callable[[int], Awaitable[Journal]]:
    from bot.storage import open_store
    from bot.storage.base import NewInboxItem, RunRow
    from bot.storage.journal import StoreJournal

    folder = Path(os.environ["BENCH_FOLDER"])
    store = open_store(f"sqlite:///{folder}/bench.db")
    await store.open()

    async def journal(n: int) -> Journal:
        key, now = f"terminal:bench/b/{n}", datetime.now(UTC)
        item = NewInboxItem(event_key=key, thread_key=key, kind="message", payload="{}", received_at=now)
        await store.accept(item, queue_limit=50)
        claim = await store.claim_thread("bench", prefixes=[key], lease_s=600, now=now)
        assert claim is not None
        run_id = f"run{n:012}"
        row = RunRow(run_id=run_id, thread_key=key, agent="bench", state="init", started_at=now)
        await store.begin_run(claim, row, [claim.items[0].id])
        from agent_core.context import SystemClock

        return StoreJournal(store, claim, run_id, SystemClock())

    return journal


async def run(name: str, url: str, runs: int, concurrent: bool) -> dict[str, float]:
    """Run one contender and measure it, after a short warm-up that is not counted."""
    if name.startswith("raw"):
        ask = await build_raw(url, aiohttp=name == "raw-aiohttp")
    else:
        ask = await build_hermod(url, sqlite=name == "hermod-sqlite")
    for n in range(3):
        await ask(n)
    cpu, wall = time.process_time(), time.perf_counter()
    if concurrent:
        answers = await asyncio.gather(*(ask(n) for n in range(10, 10 + runs)), return_exceptions=True)
    else:
        answers = [await ask(n) for n in range(10, 10 + runs)]
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    errors = sum(answer != ANSWER for answer in answers)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu_ms": cpu / runs * 1000, "wall_ms": wall / runs * 1000, "rss_mib": rss, "errors": errors}


if __name__ == "__main__":
    contender, base_url, count, together = sys.argv[1:5]
    measured = asyncio.run(run(contender, base_url, int(count), together == "1"))
    print(json.dumps(measured), flush=True)
    os._exit(0)  # connections of the warm loop are not worth a clean end
