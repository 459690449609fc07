"""The engine, with all that a real run has switched on.

That is validity pass, guards, token counts, usage, cost, trace as data, and a journal: in memory, or (``open_sqlite``)
the store's, the whole way from the accepted message to the ended run.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

from agent_core.agent import Agent
from agent_core.context import Limits, RunContext, SystemClock
from agent_core.llm.openai_compat import OpenAICompatible
from agent_core.llm.pricing import Price, PriceList
from agent_core.llm.router import Router
from agent_core.llm.tokens import load_counter
from agent_core.llm.types import ModelMessage
from agent_core.llm.wire import dump_message
from agent_core.memory.conversation import Conversation
from agent_core.observe import trace_as_data
from agent_core.runtime.events import RunEvent, TextDelta
from agent_core.runtime.loop import AgentLoop
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from benchmarks.cells import INSTRUCTIONS, MAX_TOKENS, TEMPERATURE, Cell, add
from benchmarks.contenders import Ask
from bot.storage import open_store
from bot.storage.base import Claim, NewInboxItem, NewMessage, RunOutcome, RunRow, Store
from bot.storage.journal import StoreJournal

Turn = Callable[[RunContext, Callable[[RunContext], Awaitable[Conversation]]], Awaitable[None]]
"""Surrounds a run: gives it its context, and keeps what came of it."""


def open_plain(url: str, cell: Cell) -> AbstractAsyncContextManager[Ask]:
    """The engine alone."""
    return _open(url, cell)


@asynccontextmanager
async def _open(url: str, cell: Cell, surround: Turn | None = None) -> AsyncIterator[Ask]:
    registry = ToolRegistry()
    registry.register(add)
    provider = Router([OpenAICompatible(name="bench", model=cell.model, api_key="k", base_url=url)])
    loop = AgentLoop(
        provider=provider,
        executor=ToolExecutor(registry),
        prices=PriceList({"bench": Price(input=1.0, output=2.0)}),
    )
    counter, clock, limits = load_counter(cell.model), SystemClock(), Limits()
    agent = Agent(instructions=INSTRUCTIONS, temperature=TEMPERATURE, max_tokens=MAX_TOKENS, stream=cell.streams)

    async def ask(n: int) -> str:
        shown: list[str] = []

        def emit(event: RunEvent) -> None:
            if isinstance(event, TextDelta):
                shown.append(event.text)

        async def run(ctx: RunContext) -> Conversation:
            conversation = Conversation(counter)
            question = [ModelMessage(role="user", content=f"sums please, number {n}")]
            record = await loop.run(agent, ctx, conversation, question)
            trace_as_data(record)
            answers.append(f"{record.error}" if record.error else record.answer)
            return conversation

        answers: list[str] = []
        ctx = RunContext(
            run_id=f"run{n:012}",
            thread_id=f"t{n}",
            limits=limits,
            deadline=clock.monotonic() + 120,
            clock=clock,
            emit=emit,
        )
        if surround is None:
            await run(ctx)
        else:
            await surround(ctx, run)
        return "".join(shown) if cell.streams else answers[0]

    try:
        yield ask
    finally:
        await provider.aclose()


@asynccontextmanager
async def open_traced(url: str, cell: Cell) -> AsyncIterator[Ask]:
    """The engine with spans for every run, request and tool call, kept by OpenTelemetry's in-memory exporter."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from agent_core.telemetry import Telemetry

    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = Telemetry(tracer_provider=tracers)

    async def traced(ctx: RunContext, run: Callable[[RunContext], Awaitable[Conversation]]) -> None:
        await run(telemetry.follow(ctx))

    async with _open(url, cell, traced) as ask:
        yield ask
    if not exporter.get_finished_spans():
        raise RuntimeError("tracing was on, and there is no span")
    tracers.shutdown()


@asynccontextmanager
async def open_sqlite(url: str, cell: Cell) -> AsyncIterator[Ask]:
    """The engine with its journal in SQLite: message accepted, thread claimed, run begun, steps, run ended."""
    with tempfile.TemporaryDirectory(prefix="hermod-bench-") as folder:
        store = open_store(f"sqlite:///{folder}/bench.db")
        await store.open()

        async def stored(ctx: RunContext, run: Callable[[RunContext], Awaitable[Conversation]]) -> None:
            claim = await _claim(store, ctx)
            journal = StoreJournal(store, claim, ctx.run_id, ctx.clock)
            conversation = await run(replace(ctx, journal=journal))
            await store.finish_run(claim, ctx.run_id, _outcome(conversation))

        try:
            async with _open(url, cell, stored) as ask:
                yield ask
        finally:
            await store.close()


async def _claim(store: Store, ctx: RunContext) -> Claim:
    key, now = f"terminal:bench/b/{ctx.thread_id}", datetime.now(UTC)
    item = NewInboxItem(event_key=key, thread_key=key, kind="message", payload="{}", received_at=now)
    await store.accept(item, queue_limit=50)
    claim = await store.claim_thread("bench", prefixes=[key], lease_s=600, now=now)
    assert claim is not None
    row = RunRow(run_id=ctx.run_id, thread_key=key, agent="bench", state="init", started_at=now)
    await store.begin_run(claim, row, [claim.items[0].id])
    return claim


def _outcome(conversation: Conversation) -> RunOutcome:
    now = datetime.now(UTC)
    rows = zip(conversation.messages, conversation.tokens, strict=True)
    messages = tuple(NewMessage(role=m.role, body=dump_message(m), tokens=t, created_at=now) for m, t in rows)
    return RunOutcome(state="finished", error="", record=json.dumps({}), ended_at=now, messages=messages)
