"""A worker process for the tests: claims threads of one database, answers what is open there, and tells what it did.

``python -m tests.contract.store.worker URL OWNER until STOP_FILE`` says ``ready``, works until the file exists and
nothing is left, and prints one JSON line for each turn. ``... halt`` stops for ever in the middle of its first run,
and says so. ``URL accept`` accepts until it is killed; ``open URL...`` opens and closes one fresh database after the
other. ``URL fire STOP_FILE`` fires one time of each job after the other until the file exists. ``URL OWNER report``
makes a report up to its thread for each line that it reads. Both print a line for each.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from agent_core.context import StepState, SystemClock
from bot.storage import open_store
from bot.storage.base import Claim, Store
from bot.storage.jobs import JobRow
from tests.contract.store.makers import T0, at, new_entry, new_firing, new_item, new_opening, new_post, new_run, outcome

LEASE_S = 30.0
POLL_S = 0.005
REPORTS, BELOW_REPORTS = "slack:T1/C2/", "slack:T1/C3/"
TURN_MAX = 2


async def _answer(store: Store, claimed: Claim) -> list[int]:
    """Finish one run, of at most ``TURN_MAX`` items when it is a new one; return their numbers."""
    now = SystemClock().now()
    if claimed.run is None:
        run_id = f"{claimed.thread_key}#{claimed.items[0].seq}"
        taken = list(claimed.items[:TURN_MAX])
        await store.begin_run(claimed, new_run(run_id, claimed.thread_key, started_at=now), [i.id for i in taken])
    else:
        run_id = claimed.run.run_id
        taken = [i for i in claimed.items if i.run_id == run_id]
    for item in taken:
        if await store.begin_step(claimed, run_id, new_entry(item.event_key), now) is None:
            await store.finish_step(claimed, run_id, item.event_key, StepState.DONE, "", now)
    await store.finish_run(claimed, run_id, outcome(*(i.event_key for i in taken), ended_at=now))
    return [item.seq for item in taken]


async def work(url: str, owner: str, stop: Path) -> None:
    store = open_store(url)
    await store.open()
    print("ready", flush=True)
    while True:
        asked_to_stop = stop.exists()  # noqa: ASYNC240 - a look at a local file
        claimed = await store.claim_thread(owner, prefixes=("slack:",), lease_s=LEASE_S, now=SystemClock().now())
        if claimed is None:
            if asked_to_stop:
                break
            await asyncio.sleep(POLL_S)
            continue
        begun = time.monotonic_ns()
        seqs = await _answer(store, claimed)
        ended = time.monotonic_ns()
        await store.release_claim(claimed)
        turn = {"thread": claimed.thread_key, "seqs": seqs, "begun": begun, "ended": ended}
        print(json.dumps(turn), flush=True)
    await store.close()


async def halt(url: str, owner: str) -> None:
    store = open_store(url)
    await store.open()
    now = SystemClock().now()
    claimed = await store.claim_thread(owner, prefixes=("slack:",), lease_s=LEASE_S, now=now)
    if claimed is None:
        raise SystemExit("nothing to claim")
    await store.begin_run(claimed, new_run("r1", claimed.thread_key, started_at=now), [i.id for i in claimed.items])
    await store.begin_step(claimed, "r1", new_entry("s1"), now)
    await store.finish_step(claimed, "r1", "s1", StepState.DONE, "one", now)
    await store.begin_step(claimed, "r1", new_entry("s2"), now)
    print("halted", flush=True)
    await asyncio.Event().wait()


async def accept_until_killed(url: str) -> None:
    store = open_store(url)
    await store.open()
    n = 0
    while True:
        n += 1
        await store.accept(new_item(f"e{n}"), queue_limit=10**9)
        print(n, flush=True)


async def fire(url: str, stop: Path) -> None:
    """The n-th time of a job is n seconds after ``T0``; its key is n."""
    store = open_store(url)
    await store.open()
    while not stop.exists():  # noqa: ASYNC240 - a look at a local file
        for job in await store.list_due_jobs(now=at(10**6), limit=5):
            if job.next_at is None:
                raise SystemExit("a job without a time is due")
            n = round((job.next_at - T0).total_seconds())
            firing = new_firing(job, str(n), thread=find_report(job))
            fired = await store.fire_job(job, [firing], next_at=at(n + 1), now=at(n), overlap="queue")
            if fired is not None:
                print(json.dumps({"job": job.job_id, "n": n, "outcomes": fired}), flush=True)
    await store.close()


def find_report(job: JobRow) -> str:
    """All times of a job are carried out in one thread, so that their order shows."""
    return f"{job.place}/{job.name}"


async def report(url: str, owner: str) -> None:
    store = open_store(url)
    await store.open()
    while sys.stdin.readline():
        claimed = await store.claim_thread(owner, prefixes=(REPORTS,), lease_s=LEASE_S, now=SystemClock().now())
        if claimed is not None:
            await _report(store, claimed)
            await store.release_claim(claimed)
            print(claimed.thread_key, flush=True)
    await store.close()


async def _report(store: Store, claimed: Claim) -> None:
    """Go on with a report from wherever its last owner left it."""
    thread, now = claimed.thread_key, SystemClock().now()
    run_id, number = f"{thread}#run", thread.removeprefix(REPORTS)
    if claimed.items:
        if claimed.run is None:
            await store.begin_run(claimed, new_run(run_id, thread, started_at=now), [i.id for i in claimed.items])
        headline = new_post(f"{run_id}/1", thread, run_id=run_id)
        await store.finish_run(claimed, run_id, replace(outcome(posts=(headline,), ended_at=now), sequel=number))
    for post in await store.load_due(thread, now=now):
        await store.begin_send(claimed, post.id, now=now)
        opening = new_opening(f"{BELOW_REPORTS}{number}")
        await store.open_thread(claimed, post.id, run_id, opening, remote_id=number, now=now)


async def open_each(urls: list[str]) -> None:
    for url in urls:
        print("ready", flush=True)
        sys.stdin.readline()
        store = open_store(url)
        await store.open()
        await store.ping()
        await store.add_audit(at=SystemClock().now(), actor="", action="opened", thread_key="", run_id="", detail="")
        await store.close()
    print("done", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [url, owner, "until", stop]:
            asyncio.run(work(url, owner, Path(stop)))
        case [url, owner, "halt"]:
            asyncio.run(halt(url, owner))
        case ["open", *urls]:
            asyncio.run(open_each(urls))
        case [url, "fire", stop]:
            asyncio.run(fire(url, Path(stop)))
        case [url, owner, "report"]:
            asyncio.run(report(url, owner))
        case [url, "accept"]:
            asyncio.run(accept_until_killed(url))
        case _:
            raise SystemExit(__doc__)
