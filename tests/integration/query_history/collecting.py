"""A process that collects, for tests that kill one: ``collecting.py STORE TARGET_URL``; says ``reading`` for each."""

from __future__ import annotations

import asyncio
import sys

from agent_core.context import SystemClock
from bot.collector import Collector
from bot.owners import name_owner
from bot.storage.sqlite import SqliteStore
from bot.tools.targets import Target, Targets


async def collect(path: str, url: str) -> None:
    """Collect until killed."""
    store = SqliteStore(path)
    await store.open()
    collector = Collector(
        targets=Targets([Target.from_url("lab", url)]),
        store=store,
        clock=SystemClock(),
        owner=name_owner(),
        interval_s=0.2,
        jitter=lambda: 0.0,
    )
    collector.start()
    print("started", flush=True)
    told = 0
    while True:
        (readings,) = [m.value for m in collector.metrics() if m.name == "hermod_collector_readings_total"]
        for _ in range(int(readings) - told):
            print("reading", flush=True)
        told = int(readings)
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(collect(*sys.argv[1:]))
