"""What the running timer costs while no job is due: ``python -m benchmarks.jobs_idle [--jobs N] [--seconds S]``.

Spans with the timer, over a database of ten thousand jobs that all wait, take turns with spans without it, so that
what the loop and the machine cost is seen beside it. Counted is the CPU time of this process, all threads. The minimum
of the rounds stands for each.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
import time
from datetime import UTC, datetime, timedelta

import structlog

from agent_core.context import SystemClock
from bot.jobs.job import JobSpec, dump_spec
from bot.jobs.keeping import JobKeeper
from bot.jobs.scheduler import INTERVAL_S, JobScheduler
from bot.storage import open_store
from bot.storage.base import Store
from bot.storage.jobs import JobRow, JobState

BOUND = 0.01
"""Of one CPU."""

ROUNDS = 3


async def fill(store: Store, jobs: int) -> None:
    """Save jobs that are due tomorrow."""
    now = datetime.now(UTC)
    spec = dump_spec(JobSpec(cron="0 9 * * *", zone="Europe/Berlin", task="what is slow?"))
    for n in range(jobs):
        row = JobRow(
            job_id=f"j-{n}",
            name=f"job-{n}",
            origin="chat",
            place="slack:T1/C1",
            owner="slack:U1",
            owner_name="Anna",
            spec=spec,
            state=JobState.ACTIVE,
            reason="",
            next_at=now + timedelta(days=1, seconds=n),
            thread_key="",
            created_at=now,
            updated_at=now,
        )
        await store.save_job(row, expected=None)


async def measure_span(seconds: float) -> float:
    """Return the CPU time of this process in a span, as a share of it."""
    began, cpu = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    return (time.process_time() - cpu) / (time.monotonic() - began)


async def measure(jobs: int, seconds: float) -> tuple[float, float]:
    """Return the shares of a CPU with and without the timer."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/hermod.db")
        await store.open()
        await fill(store, jobs)
        keeper = JobKeeper(store, clock, adapters={}, targets=(), workers=(), templates=(), wake=lambda: None)
        with_timer, without = [], []
        for _ in range(ROUNDS):
            scheduler = JobScheduler(store, clock, keeper=keeper, wake=lambda: None)
            scheduler.start()
            await asyncio.sleep(1)  # the first look, and the library's import, are no idling
            with_timer.append(await measure_span(seconds))
            await scheduler.stop()
            without.append(await measure_span(seconds))
        await store.close()
    return min(with_timer), min(without)


def main() -> int:
    """Measure, print, and return 1 where the bound is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=3 * INTERVAL_S)
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    timer, control = asyncio.run(measure(asked.jobs, asked.seconds))
    print(f"{asked.jobs} jobs wait, a look every {INTERVAL_S:g} s, spans of {asked.seconds:g} s")
    print(f"with the timer {timer:.3%} of a CPU, without {control:.3%}; bound {BOUND:.0%}")
    return 0 if timer < BOUND else 1


if __name__ == "__main__":
    raise SystemExit(main())
