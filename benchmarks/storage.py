"""Messages a second through the store: accepted, claimed, begun, ended, released; SQLite and Postgres in turns.

``python -m benchmarks.storage [--rounds N] [--messages N] [--lanes N]``. Each round gives either storage a fresh
database. Postgres is the embedded server with its usual durability (``fsync`` and ``synchronous_commit`` on), SQLite
flushes what was accepted, as shipped. Lanes work in one process; each message is in a thread of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime

from bot.demo.postgres import EmbeddedPostgres
from bot.storage import open_store
from bot.storage.base import NewInboxItem, NewMessage, RunOutcome, RunRow, Store

DURABLE: Mapping[str, str] = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
ROUNDS, MESSAGES, LANES = 3, 400, 8
LEASE_S = 30.0


async def accept_all(store: Store, messages: int, lanes: int) -> float:
    """Accept each message in a thread of its own; returns the seconds that it took."""

    async def lane(first: int) -> None:
        for n in range(first, messages, lanes):
            item = NewInboxItem(
                event_key=f"e{n}",
                thread_key=f"slack:T1/C1/{n}",
                kind="message",
                payload='{"text": "why is it slow?"}',
                received_at=datetime.now(UTC),
            )
            await store.accept(item, queue_limit=50)

    return await _time(lane, lanes)


async def work_off(store: Store, lanes: int) -> float:
    """Claim, begin, end and release until nothing is left; returns the seconds that it took."""

    async def lane(number: int) -> None:
        while True:
            now = datetime.now(UTC)
            claimed = await store.claim_thread(f"p{number}", prefixes=("slack:",), lease_s=LEASE_S, now=now)
            if claimed is None:
                return
            run = RunRow(
                run_id=claimed.items[0].event_key,
                thread_key=claimed.thread_key,
                agent="ops",
                state="init",
                started_at=now,
            )
            await store.begin_run(claimed, run, [item.id for item in claimed.items])
            said = tuple(NewMessage(role=role, body="{}", tokens=9, created_at=now) for role in ("user", "assistant"))
            outcome = RunOutcome(state="finished", error="", record="{}", ended_at=now, messages=said)
            await store.finish_run(claimed, run.run_id, outcome)
            await store.release_claim(claimed)

    return await _time(lane, lanes)


async def _time(lane: Callable[[int], Coroutine[None, None, None]], lanes: int) -> float:
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(lanes):
            group.create_task(lane(number))
    return time.perf_counter() - begun


async def measure(url: str, messages: int, lanes: int) -> tuple[float, float, float]:
    """Return messages a second: accepted, worked off, and both together."""
    store = open_store(url)
    await store.open()
    try:
        accepting = await accept_all(store, messages, lanes)
        working = await work_off(store, lanes)
        counts = await store.count_rows()
        if counts.inbox_open or counts.runs_active or counts.threads != messages:
            raise RuntimeError(f"not everything was worked off: {counts}")
    finally:
        await store.close()
    return messages / accepting, messages / working, messages / (accepting + working)


async def run_rounds(rounds: int, messages: int, lanes: int) -> dict[str, list[tuple[float, float, float]]]:
    """Measure both storages, one after the other in each round."""
    measured: dict[str, list[tuple[float, float, float]]] = {"SQLite": [], "Postgres": []}
    async with EmbeddedPostgres(preload=(), settings=DURABLE) as server:
        import psycopg

        for number in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                measured["SQLite"].append(await measure(f"sqlite:///{folder}/hermod.db", messages, lanes))
            async with await psycopg.AsyncConnection.connect(server.url(), autocommit=True) as admin:
                await admin.execute(f"CREATE DATABASE round{number}".encode())
            measured["Postgres"].append(await measure(server.url(f"round{number}"), messages, lanes))
    return measured


def main() -> int:
    """Measure and print one line a storage."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--lanes", type=int, default=LANES)
    args = parser.parse_args()
    measured = asyncio.run(run_rounds(args.rounds, args.messages, args.lanes))
    print(f"| messages a second, {args.lanes} lanes | accepted | claimed, ended, released | both |")
    print("|--|--|--|--|")
    for name, rounds in measured.items():
        cells = [f"{statistics.median(c):.0f} [{min(c):.0f}-{max(c):.0f}]" for c in zip(*rounds, strict=True)]
        print(f"| {name} | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
