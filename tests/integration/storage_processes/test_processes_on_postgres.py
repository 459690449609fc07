"""Three processes on one Postgres: everything that comes in is carried out once, whoever dies or stands still."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.storage import open_store
from bot.storage.base import Store
from tests.integration.storage_processes.actor import LANES, MESSAGES, PROCESSES, TIMES, name_thread
from tests.integration.storage_processes.jobs import new_job
from tests.servers.postgres import Lab

ROOT = Path(__file__).parents[3]
PATIENCE_S = 120
JOBS = 10


@dataclass(kw_only=True)
class Actor:
    """One of the processes, and what it said so far."""

    process: Process
    said: list[dict[str, object]] = field(default_factory=list)

    async def hear(self) -> bool:
        """Wait for its next line; false when it has ended."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if line.endswith(b"\n"):  # else it was killed while it wrote
            self.said.append(json.loads(line))
        return bool(line)

    async def wait_stuck(self) -> None:
        """Wait until every working lane stands in the middle of a run, and the others are through."""
        while sum("stuck" in line or "brought" in line for line in self.said) < LANES + 1:
            assert await self.hear(), "it ended before it was stuck"

    async def wait_ended(self) -> int:
        while await self.hear():
            pass
        return await self.process.wait()

    async def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go on\n")
        await self.process.stdin.drain()


class Scene:
    """A database with jobs in it, and the processes that work on it."""

    def __init__(self, url: str, store: Store, folder: Path, threads: int) -> None:
        self._url = url
        self._effects = folder / "effects"
        self._threads = threads
        self.store = store
        self.actors: list[Actor] = []

    async def add(self, *, stuck: int | None = None) -> Actor:
        words = [self._url, str(len(self.actors)), str(self._threads), str(self._effects)]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.storage_processes.actor"),
            *(*words, *([] if stuck is None else [str(stuck)])),
            stdin=PIPE,
            stdout=PIPE,
            cwd=ROOT,
        )
        self.actors.append(Actor(process=process))
        return self.actors[-1]

    def collect(self, key: str) -> list[dict[str, object]]:
        """What all of them said about one thing."""
        return [line for actor in self.actors for line in actor.said if key in line]

    async def check_everything_was_carried_out_once(self, *, recorded_by_all: bool) -> None:
        """``recorded_by_all``: nobody was killed or fenced, so that each line about a thread is there."""
        threads = [name_thread(n) for n in range(self._threads)]
        messages = {f"{thread}/{n}" for thread in threads for n in range(1, MESSAGES + 1)}
        firings = {f"job:j{n}/{minute}" for n in range(JOBS) for minute in range(TIMES)}
        done = Counter(self._effects.read_text().split())
        assert set(done) == messages | firings
        assert max(done.values()) == 1
        for thread in threads:
            events = [m.body for m in await self.store.load_messages(thread)]
            assert sorted(events) == sorted(e for e in messages if e.rpartition("/")[0] == thread)
            runs = await self.store.list_runs(thread_key=thread, limit=99)
            assert {run.state for run in runs} == {"finished"}
        for n in range(JOBS):
            rows = await self.store.list_job_runs(f"j{n}", limit=99)
            assert [(row.run_key, row.state) for row in rows] == [(str(m), "done") for m in reversed(range(TIMES))]
        counts = await self.store.count_rows()
        assert (counts.inbox_open, counts.runs_active) == (0, 0)
        lines, misfit = await self.store.verify_audit()
        assert misfit is None
        if recorded_by_all:
            assert lines == len(self.collect("seqs"))
            assert Counter(str(line["accepted"]) for line in self.collect("accepted")) == Counter(messages)
            assert Counter(str(line["fired"]) for line in self.collect("fired")) == {
                key.removeprefix("job:"): 1 for key in firings
            }
            self._check_order()

    def _check_order(self) -> None:
        turns = defaultdict(list)
        for line in self.collect("seqs"):
            turns[line["thread"]].append(line)
        for n in range(self._threads):
            of_thread = sorted(turns[name_thread(n)], key=lambda turn: int(str(turn["begun"])))
            seqs = [seq for turn in of_thread for seq in json.loads(str(turn["seqs"]))]
            assert seqs == list(range(1, MESSAGES + 1))
            for earlier, later in itertools.pairwise(of_thread):
                assert int(str(earlier["ended"])) <= int(str(later["begun"])), "two runs at once in one thread"


@asynccontextmanager
async def set_scene(lab: Lab, folder: Path, threads: int) -> AsyncIterator[Scene]:
    url = lab.server.url(await lab.create_database(extension=False))
    store = open_store(url)
    await store.open()
    scene = Scene(url, store, folder, threads)
    for n in range(JOBS):
        assert await store.save_job(new_job(n), expected=None)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield scene
    finally:
        for actor in scene.actors:
            if actor.process.returncode is None:
                actor.process.kill()
            await actor.process.communicate()
        await store.close()


@pytest.mark.timeout(180)
async def test_three_processes_that_do_everything_at_once_lose_double_and_reorder_nothing(
    any_postgres: Lab, tmp_path: Path
) -> None:
    async with set_scene(any_postgres, tmp_path, threads=50) as scene:
        for _ in range(PROCESSES):
            await scene.add()
        ended = await asyncio.gather(*(actor.wait_ended() for actor in scene.actors))
        assert ended == [0] * PROCESSES
        fenced = bool(scene.collect("fenced"))  # on a machine so busy that a lease ran out in the middle of a turn
        await scene.check_everything_was_carried_out_once(recorded_by_all=not fenced)
        assert all(any("accepted" in line for line in actor.said) for actor in scene.actors)


@pytest.mark.timeout(180)
async def test_what_a_killed_process_was_doing_is_taken_over_after_its_lease_and_not_done_again(
    any_postgres: Lab, tmp_path: Path
) -> None:
    async with set_scene(any_postgres, tmp_path, threads=10) as scene:
        killed = await scene.add(stuck=3)
        others = [await scene.add() for _ in range(PROCESSES - 1)]
        await killed.wait_stuck()
        killed.process.kill()
        ended = await asyncio.gather(*(actor.wait_ended() for actor in (killed, *others)))
        assert ended == [-signal.SIGKILL, 0, 0]
        held = {line["stuck"] for line in killed.said if "stuck" in line}
        assert held <= {line["thread"] for actor in others for line in actor.said if "thread" in line}
        await scene.check_everything_was_carried_out_once(recorded_by_all=False)


@pytest.mark.timeout(180)
async def test_a_process_that_stood_still_for_longer_than_its_lease_is_fenced_and_changes_nothing(
    any_postgres: Lab, tmp_path: Path
) -> None:
    async with set_scene(any_postgres, tmp_path, threads=10) as scene:
        frozen = await scene.add(stuck=3)
        others = [await scene.add() for _ in range(PROCESSES - 1)]
        await frozen.wait_stuck()
        os.kill(frozen.process.pid, signal.SIGSTOP)
        assert await asyncio.gather(*(actor.wait_ended() for actor in others)) == [0, 0]
        held = [line["stuck"] for line in frozen.said if "stuck" in line]
        before = [await scene.store.list_runs(thread_key=str(thread), limit=99) for thread in held]
        os.kill(frozen.process.pid, signal.SIGCONT)
        await frozen.go_on()
        assert await frozen.wait_ended() == 0
        assert sorted(str(line["fenced"]) for line in frozen.said if "fenced" in line) == sorted(map(str, held))
        after = [await scene.store.list_runs(thread_key=str(thread), limit=99) for thread in held]
        assert [r for rows in after for r in rows if r in [b for bs in before for b in bs]] == [
            r for rows in before for r in rows
        ]
        await scene.check_everything_was_carried_out_once(recorded_by_all=False)
