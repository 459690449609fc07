"""A process for the tests: looks at the jobs of one database day by day, as fast as it can.

``python -m tests.integration.jobs.worker URL DAYS`` says ``ready``, waits for a line, and
prints last how many times it fired.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from bot.storage import open_store
from tests.integration.jobs.desk import NOW, Desk


async def look(url: str, days: int) -> None:
    store = open_store(url)
    await store.open()
    desk = Desk(store)
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(days):
        desk.clock.at = NOW + timedelta(days=n + 1)
        await desk.scheduler.tick()
    await store.close()
    fired = next(m.value for m in desk.scheduler.metrics() if dict(m.labels) == {"outcome": "fired"})
    print(f"fired {fired:g}", flush=True)


if __name__ == "__main__":
    asyncio.run(look(sys.argv[1], int(sys.argv[2])))
