"""A process for the tests: accepts what comes in, fires jobs, and carries out whatever is open, beside others like it.

``python -m tests.integration.storage_processes.actor URL NUMBER THREADS EFFECTS [STUCK]`` does its part and ends when
nothing is left anywhere. Each lane prints one JSON line for what it did. With STUCK, each working lane stops after
so many steps between the effect of one and its record, says so, and goes on when a line is read.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

from agent_core.context import StepState, SystemClock
from bot.storage import open_store
from bot.storage.base import Claim, Fenced, InboxItem, NewInboxItem, Store
from bot.storage.jobs import JobRow, NewFiring
from tests.contract.store.makers import T0, at, new_entry, new_item, new_run, outcome

MESSAGES = 20
"""In each thread."""
TIMES = 4
"""Of each job, a minute apart."""
PROCESSES = 3
TWICE = 10
"""So many threads are heard of by two processes."""
LEASE_S = 3.0
LANES = 2
"""Working ones of a process."""

_POLL_S = 0.05
_TURN_MAX = 5


def name_thread(n: int) -> str:
    return f"slack:T1/C1/{n}"


def tell(**said: object) -> None:
    print(json.dumps(said), flush=True)


# -- what comes in ---------------------------------------------------------------------------------


async def accept_all(store: Store, number: int, threads: int) -> None:
    """Accept what this process hears of: a third of the messages, and of the first ``TWICE`` threads two thirds.

    So each of theirs is delivered to two processes; whoever is first has it accepted.
    """
    for n in range(1, MESSAGES + 1):
        heard = [
            t
            for t in range(threads)
            if (t + n) % PROCESSES in (number, *([(number + 1) % PROCESSES] if t < TWICE else []))
        ]
        random.Random(f"{number} {n}").shuffle(heard)
        for thread in map(name_thread, heard):
            accepted = await store.accept(new_item(f"{thread}/{n}", thread), queue_limit=10**9)
            if accepted.outcome == "new":
                tell(accepted=f"{thread}/{n}")


async def fire_all(store: Store, number: int) -> None:
    """Fire every time of every job, in an order of one's own."""
    dice = random.Random(number)
    while due := list(await store.list_due_jobs(now=at(86_400))):
        dice.shuffle(due)
        for job in due:
            firing, following = build_firing(job)
            decided = await store.fire_job(job, [firing], next_at=following, now=T0, overlap="queue")
            if decided is not None:
                tell(fired=f"{job.job_id}/{firing.run_key}", outcome=decided[0])


def build_firing(job: JobRow) -> tuple[NewFiring, datetime | None]:
    assert job.next_at is not None
    minute = (job.next_at - T0) // timedelta(minutes=1)
    key = f"job:{job.job_id}/{minute}"
    item = NewInboxItem(
        event_key=key, thread_key=f"slack:T1/C2/{job.job_id}-{minute}", kind="firing", payload="{}", received_at=T0
    )
    following = job.next_at + timedelta(minutes=1) if minute + 1 < TIMES else None
    return NewFiring(run_key=str(minute), item=item), following


# -- what is done about it -------------------------------------------------------------------------


class Lane:
    """Claims threads, one after the other."""

    def __init__(self, store: Store, owner: str, effects: int, stuck: int | None, go: asyncio.Event) -> None:
        self._store = store
        self._owner = owner
        self._effects = effects
        self._steps_left = stuck
        self._go = go

    async def work(self, busy: asyncio.Event) -> None:
        """Work until nothing is left; ``busy`` is set while this process still brings new work."""
        while True:
            finishing = not busy.is_set()
            claimed = await self._store.claim_thread(
                self._owner, prefixes=("slack:",), lease_s=LEASE_S, now=SystemClock().now()
            )
            if claimed is None:
                counts = await self._store.count_rows()
                if finishing and not counts.inbox_open and not counts.runs_active:
                    break
                await asyncio.sleep(_POLL_S)
                continue
            try:
                await self._answer(claimed)
            except Fenced:
                tell(fenced=claimed.thread_key)

    async def _answer(self, claimed: Claim) -> None:
        begun, now, store = time.monotonic_ns(), SystemClock().now(), self._store
        if claimed.run is None:
            run_id = f"{claimed.thread_key}#{claimed.items[0].seq}"
            taken = claimed.items[:_TURN_MAX]
            await store.begin_run(claimed, new_run(run_id, claimed.thread_key, started_at=now), [i.id for i in taken])
        else:
            run_id = claimed.run.run_id
            taken = tuple(i for i in claimed.items if i.run_id == run_id)
        for item in taken:
            await self._step(claimed, run_id, item)
        await store.finish_run(claimed, run_id, outcome(*(i.event_key for i in taken), ended_at=now))
        ended = time.monotonic_ns()
        await store.add_audit(
            at=now, actor=self._owner, action="answered", thread_key=claimed.thread_key, run_id=run_id, detail=""
        )
        tell(thread=claimed.thread_key, seqs=[i.seq for i in taken], run=run_id, begun=begun, ended=ended)
        await store.release_claim(claimed)

    async def _step(self, claimed: Claim, run_id: str, item: InboxItem) -> None:
        """Have one effect, once: what was begun before and never ended is not done again."""
        now = SystemClock().now()
        known = await self._store.begin_step(claimed, run_id, new_entry(item.event_key), now)
        if known is None:
            os.write(self._effects, f"{item.event_key}\n".encode())
            if self._steps_left is not None:
                self._steps_left -= 1
                if self._steps_left < 0:
                    self._steps_left = None
                    tell(stuck=claimed.thread_key)
                    await self._go.wait()
            await self._store.finish_step(claimed, run_id, item.event_key, StepState.DONE, "", now)
        elif known.state is StepState.INTENT:
            await self._store.finish_step(claimed, run_id, item.event_key, StepState.UNKNOWN, "", now)


async def _wait_for_line(go: asyncio.Event) -> None:
    await asyncio.to_thread(sys.stdin.readline)
    go.set()


async def act(url: str, number: int, threads: int, effects: Path, stuck: int | None) -> None:
    store = open_store(url)
    await store.open()
    busy, go = asyncio.Event(), asyncio.Event()
    busy.set()
    log = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with asyncio.TaskGroup() as group:
        if stuck is not None:
            group.create_task(_wait_for_line(go))
        for _ in range(LANES):
            group.create_task(Lane(store, f"p{number}", log, stuck, go).work(busy))
        bringing = [
            group.create_task(accept_all(store, number, threads)),
            group.create_task(fire_all(store, number)),
        ]
        await asyncio.wait(bringing)
        busy.clear()
        tell(brought=number)
    await store.close()


if __name__ == "__main__":
    url, number, threads, effects, *stuck = sys.argv[1:]
    asyncio.run(act(url, int(number), int(threads), Path(effects), int(stuck[0]) if stuck else None))
