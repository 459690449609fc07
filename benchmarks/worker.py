"""One contender in a process of its own: ``python -m benchmarks.worker NAME URL``.

It prints one JSON line when it is ready, and then, for each line of standard input that names a cell and a number of
runs, one with what they cost. Nothing happens in between, so the contenders can take turns.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from dataclasses import replace
from importlib.metadata import version
from typing import TextIO

from benchmarks.cells import CELLS, Cell, peak_rss_mib, warm_up
from benchmarks.contenders import CONTENDERS, Ask, Open

TICK_S = 0.005
FIRST_RUN = 10


async def _tick(lags: list[float]) -> None:
    """Note by how much each wake-up of a ticker is late."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + TICK_S
        await asyncio.sleep(TICK_S)
        lags.append(loop.time() - due)


async def measure(opening: Open, url: str, cell: Cell) -> dict[str, object]:
    """Make the runs of a cell, after a short warm-up, and return what they cost and how they ended."""
    async with opening(url, cell) as ask:
        for n in range(warm_up(cell)):
            await ask(n)
        gc.collect()
        lags: list[float] = []
        ticker = asyncio.create_task(_tick(lags)) if cell.together else None
        cpu, wall = time.process_time(), time.perf_counter()
        answers = await _make_runs(ask, cell)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        if ticker is not None:
            ticker.cancel()
    wrong = [answer for answer in answers if answer != cell.answer]
    return {
        "cpu_ms": cpu / cell.runs * 1000,
        "wall_ms": wall / cell.runs * 1000,
        "lags_ms": [round(1000 * lag, 3) for lag in lags],
        "rss_mib": peak_rss_mib(),
        "errors": len(wrong),
        "first_error": repr(wrong[0])[:200] if wrong else "",
    }


async def _make_runs(ask: Ask, cell: Cell) -> list[str | BaseException]:
    numbers = range(FIRST_RUN, FIRST_RUN + cell.runs)
    if cell.together:
        return await asyncio.gather(*(ask(n) for n in numbers), return_exceptions=True)
    return [await ask(n) for n in numbers]


def serve(name: str, url: str, out: TextIO) -> None:
    """Answer each line of standard input until it ends."""

    def say(data: object) -> None:
        out.write(json.dumps(data) + "\n")
        out.flush()

    contender = CONTENDERS[name]
    opening = contender.load()
    say({"versions": {library: version(library) for library in contender.libraries}})
    cells = {cell.name: cell for cell in CELLS}
    for line in sys.stdin:
        wanted = json.loads(line)
        cell = replace(cells[wanted["cell"]], runs=wanted["runs"])
        say(asyncio.run(measure(opening, url, cell)))


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # whatever a library prints is no answer
        serve(sys.argv[1], sys.argv[2], answers)
