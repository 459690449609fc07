"""What a long thread costs: counting one more message, and opening the thread from SQLite."""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from agent_core.agent import Agent
from agent_core.context import RunContext, SystemClock
from agent_core.llm.scripted import ScriptedProvider, call, say
from agent_core.llm.tokens import TokenCounter, load_counter
from agent_core.llm.types import ModelMessage, ModelResponse, Usage
from agent_core.llm.wire import dump_message, load_message
from agent_core.memory.budget import select_window
from agent_core.memory.conversation import Conversation
from agent_core.runtime.loop import AgentLoop
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from benchmarks.cells import add
from benchmarks.table import Row, render_ratio
from bot.memory import load_memory
from bot.storage import open_store
from bot.storage.base import NewInboxItem, NewMessage, RunOutcome, RunRow, Store

SHORT, MIDDLE, LONG = 10, 100, 5_000
TURNS = 200
WINDOW_TOKENS = 8_000
COUNT_BOUND = 2.0
OPEN_BOUND_MS = 50.0
THREAD = "terminal:bench/b/long"
TEXT = "the slow query on orders waits for a lock since 09:14 and reads 1,204,551 rows from shard7.db"
USAGE = Usage(input_tokens=100, output_tokens=10, requests=1)


def measure(rounds: int) -> list[Row]:
    """Measure everything here; the rows of the table."""
    counter = load_counter("gpt-4o-mini")
    return [
        *_turn_rows(counter, rounds),
        *asyncio.run(_tokenizer_rows(counter)),
        *asyncio.run(_opening_rows(counter, rounds)),
    ]


def _texts(count: int) -> list[str]:
    draw = random.Random(7)
    return [" ".join(draw.choices(TEXT.split(), k=draw.randint(20, 200))) for _ in range(count)]


def _thread(counter: TokenCounter, messages: int) -> Conversation:
    """A thread as it comes from the store: with its counts."""
    conversation = Conversation(counter)
    for n, text in enumerate(_texts(messages)):
        conversation.append(ModelMessage(role="assistant" if n % 2 else "user", content=text), len(text) // 4)
    return conversation


def _cpu_ms(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1000


# -- one turn --------------------------------------------------------------------------------------


def _turn_rows(counter: TokenCounter, rounds: int) -> list[Row]:
    sizes = (SHORT, MIDDLE, LONG)
    counting: dict[int, list[float]] = {size: [] for size in sizes}
    choosing: dict[int, list[float]] = {size: [] for size in sizes}
    new = [ModelMessage(role="user", content=text) for text in _texts(TURNS)]
    for _ in range(max(rounds, 3)):
        for size in sizes:
            thread = _thread(counter, size)
            choosing[size].append(_cpu_ms(lambda t=thread: [select_window(t, WINDOW_TOKENS) for _ in new]) / TURNS)  # type: ignore[misc]
            counting[size].append(_cpu_ms(lambda t=thread: [t.append(m) for m in new]) / TURNS)  # type: ignore[misc]
    rows = [_turn_row("memory: counting a turn's message", size, counting, SHORT) for size in sizes]
    rows += [_turn_row("memory: choosing what is sent", size, choosing, MIDDLE) for size in sizes]
    ratios = [a / b for a, b in zip(counting[LONG], counting[SHORT], strict=True)]
    rows[2] = replace(rows[2], bound=f"<= {COUNT_BOUND:.0f} x", holds=statistics.median(ratios) <= COUNT_BOUND)
    return rows


def _turn_row(what: str, size: int, found: dict[int, list[float]], control: int) -> Row:
    ratios = [a / b for a, b in zip(found[size], found[control], strict=True)]
    return Row(
        cell=what,
        who=f"after {size:,} messages",
        value=f"{min(found[size]) * 1000:.1f} us",
        ratio=f"{render_ratio(ratios)} of {control}",
    )


# -- calls of the tokenizer ------------------------------------------------------------------------


class _CountedCounter:
    """Counts how often it is asked."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self.exact = counter.exact
        self.calls = 0

    def count(self, text: str) -> int:
        self.calls += 1
        return self._counter.count(text)


async def _tokenizer_rows(counter: TokenCounter) -> list[Row]:
    reported = await _count_calls(counter, USAGE)
    silent = await _count_calls(counter, None)
    what = "memory: tokenizer calls a new message"
    return [
        Row(cell=what, who="server reports usage", value=f"{reported:.2f}", bound="= 1", holds=reported == 1),
        Row(cell=what, who="server reports none", value=f"{silent:.2f}"),
    ]


async def _count_calls(counter: TokenCounter, usage: Usage | None) -> float:
    """Answer a named person's question with three rounds of four tool calls, late in a long thread."""
    counted = _CountedCounter(counter)
    thread = _thread(counted, LONG)
    registry = ToolRegistry()
    registry.register(add)
    rounds = [call(*(("add", {"a": r, "b": n}) for n in range(4))) for r in range(3)]
    script: list[ModelResponse] = [replace(answer, usage=usage) for answer in (*rounds, say("done"))]
    loop = AgentLoop(provider=ScriptedProvider(script), executor=ToolExecutor(registry))
    clock = SystemClock()
    ctx = RunContext(run_id="run", thread_id="t", deadline=clock.monotonic() + 60, clock=clock)
    question = ModelMessage(role="user", content="twelve sums please", speaker="Ada")
    record = await loop.run(Agent(stream=False), ctx, thread, [question])
    if record.answer != "done":
        raise SystemExit(f"bench: the run did not end as scripted: {record.error}")
    return counted.calls / (len(thread) - LONG)


# -- opening a thread ------------------------------------------------------------------------------


async def _opening_rows(counter: TokenCounter, rounds: int) -> list[Row]:
    shipped: list[float] = []
    whole: list[float] = []
    with tempfile.TemporaryDirectory(prefix="hermod-bench-") as folder:
        store = open_store(f"sqlite:///{folder}/bench.db")
        await store.open()
        try:
            await _fill(store, counter)
            for _ in range(max(rounds, 5)):
                begun = time.process_time()
                opened = (await load_memory(store, THREAD, counter)).conversation
                shipped.append((time.process_time() - begun) * 1000)
                begun = time.process_time()
                full = await _open_whole(store, counter)
                whole.append((time.process_time() - begun) * 1000)
        finally:
            await store.close()
    if len(full) != LONG:
        raise SystemExit(f"bench: {len(full)} of {LONG} messages came back")
    what = f"memory: opening a thread of {LONG:,} from SQLite, CPU"
    return [
        Row(
            cell=what,
            who=f"as shipped ({len(opened)} rows)",
            value=f"{min(shipped):.1f} ms",
            ratio=f"[{min(shipped):.1f}-{max(shipped):.1f} ms]",
            bound=f"<= {OPEN_BOUND_MS:.0f} ms",
            holds=min(shipped) <= OPEN_BOUND_MS,
        ),
        Row(
            cell=what,
            who="every row",
            value=f"{min(whole):.1f} ms",
            ratio=f"[{min(whole):.1f}-{max(whole):.1f} ms]",
            bound=f"<= {OPEN_BOUND_MS:.0f} ms",
            holds=min(whole) <= OPEN_BOUND_MS,
        ),
    ]


async def _fill(store: Store, counter: TokenCounter) -> None:
    now = datetime.now(UTC)
    item = NewInboxItem(event_key=THREAD, thread_key=THREAD, kind="message", payload="{}", received_at=now)
    await store.accept(item, queue_limit=50)
    claim = await store.claim_thread("bench", prefixes=[THREAD], lease_s=600, now=now)
    assert claim is not None
    row = RunRow(run_id="long", thread_key=THREAD, agent="bench", state="init", started_at=now)
    await store.begin_run(claim, row, [claim.items[0].id])
    thread = _thread(counter, LONG)
    messages = tuple(
        NewMessage(role=m.role, body=dump_message(m), tokens=tokens, created_at=now)
        for m, tokens in zip(thread.messages, thread.tokens, strict=True)
    )
    await store.finish_run(
        claim, "long", RunOutcome(state="finished", error="", record="{}", ended_at=now, messages=messages)
    )


async def _open_whole(store: Store, counter: TokenCounter) -> Conversation:
    conversation = Conversation(counter)
    for row in await store.load_messages(THREAD):
        conversation.append(load_message(row.body), row.tokens)
    return conversation
