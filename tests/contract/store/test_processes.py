"""Several processes on one database, and processes that die."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from pathlib import Path

from agent_core.context import StepState
from bot.storage import open_store
from bot.storage.base import OutboxState, Store
from tests.contract.store.backends import Backend
from tests.contract.store.makers import A, at, claim, new_entry, new_firing, new_item, new_job, outcome, put
from tests.contract.store.worker import BELOW_REPORTS, REPORTS

ROOT = Path(__file__).parents[3]
THREADS = [f"slack:T1/C1/{n}" for n in range(50)]
MESSAGES = 20
PATIENCE_S = 100


async def _start(*arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.contract.store.worker", *arguments, stdin=PIPE, stdout=PIPE, cwd=ROOT
    )


async def _start_working(url: str, owner: str, stop: Path) -> Process:
    """Start a worker, and wait until it looks for work: one that comes late finds none."""
    process = await _start(url, owner, "until", str(stop))
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            assert await process.stdout.readline() == b"ready\n"
    except BaseException:
        await _kill(process)
        raise
    return process


async def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def _enqueue_all(store: Store, threads: list[str], messages: int) -> None:
    """Eight lanes, each with its own threads, so that order inside a thread is the order of acceptance."""

    async def lane(mine: list[str]) -> None:
        for n in range(1, messages + 1):
            for thread in mine:
                accepted = await store.accept(new_item(f"{thread}/{n}", thread), queue_limit=10**9)
                assert accepted.seq == n

    async with asyncio.TaskGroup() as group:
        for n in range(8):
            group.create_task(lane(threads[n::8]))


async def test_two_workers_under_load_lose_double_reorder_and_overlap_nothing(
    store: Store, url: str, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    workers: list[Process] = []
    try:
        for n in range(2):
            workers.append(await _start_working(url, f"w{n}", stop))
        async with asyncio.timeout(PATIENCE_S):
            async with asyncio.TaskGroup() as group:
                reads = [group.create_task(w.communicate()) for w in workers]
                await _enqueue_all(store, THREADS, MESSAGES)
                stop.touch()
            printed = [read.result()[0] for read in reads]
    finally:
        for worker in workers:
            await _kill(worker)
    assert [w.returncode for w in workers] == [0, 0]
    assert all(printed), "one of the workers never got a thread"
    turns = defaultdict(list)
    for line in b"".join(printed).splitlines():
        turn = json.loads(line)
        turns[turn["thread"]].append(turn)
    assert sorted(turns) == sorted(THREADS)
    for thread, of_thread in turns.items():
        of_thread.sort(key=lambda turn: turn["begun"])
        assert [seq for turn in of_thread for seq in turn["seqs"]] == list(range(1, MESSAGES + 1))
        for earlier, later in itertools.pairwise(of_thread):
            assert earlier["ended"] <= later["begun"], f"two runs at once in {thread}"
        history = await store.load_messages(thread)
        assert [m.body for m in history] == [f"{thread}/{n}" for n in range(1, MESSAGES + 1)]
    counts = await store.count_rows()
    assert (counts.inbox_open, counts.runs_active) == (0, 0)


async def test_a_run_of_a_killed_process_goes_on_from_its_last_finished_step(store: Store, url: str) -> None:
    await put(store, "e1", "e2", received_at=at(0))
    process = await _start(url, "dead", "halt")
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert process.stdout is not None
            assert await process.stdout.readline() == b"halted\n"
    finally:
        await _kill(process)
    assert await store.list_owners() == ("dead",)
    await store.free_owner("dead")
    heir = await claim(store, "heir")
    assert heir.run is not None
    assert (heir.run.run_id, heir.run.attempt) == ("r1", 2)
    assert [i.event_key for i in heir.items] == ["e1", "e2"]
    first = await store.begin_step(heir, "r1", new_entry("s1"), at(1))
    second = await store.begin_step(heir, "r1", new_entry("s2"), at(1))
    assert first is not None
    assert (first.state, first.result) == (StepState.DONE, "one")
    assert second is not None
    assert second.state is StepState.INTENT
    await store.finish_step(heir, "r1", "s2", StepState.UNKNOWN, "", at(1))
    await store.finish_run(heir, "r1", outcome("e1", "e2"))
    assert [m.body for m in await store.load_messages(A)] == ["e1", "e2"]


async def test_workers_killed_at_random_moments_leave_every_message_answered_once_and_in_order(
    store: Store, url: str, tmp_path: Path
) -> None:
    threads, messages, chance = THREADS[:20], 20, random.Random(7)
    stop = tmp_path / "stop"
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(_enqueue_all(store, threads, messages))
        for n in range(5):
            worker = await _start_working(url, f"w{n}", stop)
            try:
                assert worker.stdout is not None
                for _ in range(chance.randrange(1, 20)):
                    assert await worker.stdout.readline()
            finally:
                await _kill(worker)
            await store.free_owner(f"w{n}")
    stop.touch()
    last = await _start_working(url, "last", stop)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await last.communicate()
    finally:
        await _kill(last)
    for thread in threads:
        history = await store.load_messages(thread)
        assert [m.body for m in history] == [f"{thread}/{n}" for n in range(1, messages + 1)]
    assert (await store.count_rows()).inbox_open == 0


async def test_what_was_accepted_before_a_kill_is_there_after_it(url: str) -> None:
    process = await _start(url, "accept")
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert process.stdout is not None
            for _ in range(100):
                last = int(await process.stdout.readline())
    finally:
        process.kill()
        rest = (await process.communicate())[0]
    last = int(rest.splitlines()[-1]) if rest else last
    store = open_store(url)
    await store.open()
    try:
        kept = (await claim(store)).items
    finally:
        await store.close()
    assert [i.event_key for i in kept][:last] == [f"e{n}" for n in range(1, last + 1)]
    assert len(kept) in (last, last + 1)


async def test_processes_that_look_at_the_clock_together_and_die_fire_each_time_once(
    store: Store, url: str, tmp_path: Path
) -> None:
    """APScheduler on one job store fires twice: https://github.com/agronholm/apscheduler/issues/231"""
    jobs, stop, chance = [new_job(f"job-{n}", next_at=at(1)) for n in range(8)], tmp_path / "stop", random.Random(11)
    for job in jobs:
        assert await store.save_job(job, expected=None)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        stays = await _start(url, "fire", str(stop))
        try:
            assert stays.stdout is not None
            first = await stays.stdout.readline()
            printing = group.create_task(stays.communicate())
            printed = [await _kill_while_it_fires(url, stop, lines=chance.randrange(1, 15)) for _ in range(3)]
            stop.touch()
            printed.append(first + (await printing)[0])
        finally:
            if stays.returncode is None:
                stays.kill()
    assert stays.returncode == 0
    assert all(printed), "one of the processes never fired"
    said = [json.loads(line) for line in b"".join(printed).splitlines()]
    assert {tuple(line["outcomes"]) for line in said} == {("fired",)}
    total = 0
    for job in jobs:
        runs = await store.list_job_runs(job.job_id, limit=10**6)
        keys = [str(n + 1) for n in range(len(runs))]
        assert [(run.run_key, run.state) for run in reversed(runs)] == [(key, "waiting") for key in keys]
        assert {str(line["n"]) for line in said if line["job"] == job.job_id} <= set(keys)
        claimed = await claim(store, prefixes=(runs[0].thread_key,))
        assert [i.event_key for i in claimed.items] == [new_firing(job, key).item.event_key for key in keys]
        current = await store.load_job(job.name)
        assert current is not None
        assert current.next_at == at(len(runs) + 1)
        total += len(runs)
    assert len(said) <= total <= len(said) + 3, "of each process that died at most one time is not told of"


async def _kill_while_it_fires(url: str, stop: Path, *, lines: int) -> bytes:
    """Start a process that fires, kill it after some lines, and return all that it printed."""
    process = await _start(url, "fire", str(stop))
    try:
        assert process.stdout is not None
        printed = b"".join([await process.stdout.readline() for _ in range(lines)])
        process.kill()
        return printed + (await process.communicate())[0]
    finally:
        await _kill(process)


async def test_reports_of_killed_processes_open_their_threads_once(store: Store, url: str) -> None:
    numbers, chance = [str(n) for n in range(60)], random.Random(5)
    for number in numbers:
        await put(store, f"e{number}", thread=f"{REPORTS}{number}")
    async with asyncio.timeout(PATIENCE_S):
        for n in range(5):
            lines = chance.randrange(1, 10)
            worker = await _start(url, f"w{n}", "report")
            try:
                assert worker.stdin is not None
                assert worker.stdout is not None
                worker.stdin.write(b"go\n" * (lines + 1))
                for _ in range(lines):
                    assert await worker.stdout.readline()
            finally:
                await _kill(worker)
            await store.free_owner(f"w{n}")
            await _count_opened(store, numbers)
        last = await _start(url, "last", "report")
        try:
            await last.communicate(b"go\n" * len(numbers))
        finally:
            await _kill(last)
    assert await _count_opened(store, numbers) == len(numbers)


async def _count_opened(store: Store, numbers: list[str]) -> int:
    """A thread is there with all that begins in it once its headline is delivered; until then nothing of it is."""
    opened = 0
    for number in numbers:
        thread, below = f"{REPORTS}{number}", f"{BELOW_REPORTS}{number}"
        delivered = [post.state for post in await store.load_outbox(thread)] == [OutboxState.DELIVERED]
        opened += delivered
        begins = 2 if delivered else 0
        assert await store.knows_thread(below) == delivered
        assert [m.seq for m in await store.load_messages(below)] == list(range(1, begins + 1))
        assert len(await store.load_outbox(below)) == begins
        assert ((await store.load_output(below, "call_1")) is not None) == delivered
        if delivered:
            assert await store.load_sequel(f"{thread}#run") is None
    return opened


async def test_bug_37_eight_processes_may_open_a_fresh_database_at_the_same_moment(
    backend: Backend, tmp_path: Path
) -> None:
    urls = []
    for n in range(20):
        (tmp_path / str(n)).mkdir()
        urls.append(backend.build_url(tmp_path / str(n)))
    processes = [await _start("open", *urls) for _ in range(8)]

    async def hear(process: Process) -> bytes:
        assert process.stdout is not None
        return await process.stdout.readline()

    try:
        async with asyncio.timeout(PATIENCE_S):
            for _ in urls:
                assert [await hear(process) for process in processes] == list(itertools.repeat(b"ready\n", 8))
                for process in processes:
                    assert process.stdin is not None
                    process.stdin.write(b"go\n")
            endings = [await process.communicate() for process in processes]
    finally:
        for process in processes:
            await _kill(process)
    assert [said for said, _ in endings] == list(itertools.repeat(b"done\n", 8))
    assert [process.returncode for process in processes] == list(itertools.repeat(0, 8))
