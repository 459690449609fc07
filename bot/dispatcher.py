"""Claims threads and has them worked on: one worker a thread, threads in parallel."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

import structlog

from agent_core.context import Clock
from bot.storage.base import Claim, Fenced, Store, StoreError

log = structlog.get_logger("hermod.dispatcher")

LEASE_S = 10.0
POLL_S = 1.0
"""How often to look for work of other processes, and for leases that ended, without being woken."""

STOP_GRACE_S = 5.0
"""How long work that was cancelled may take to end."""


class ThreadWork(Protocol):
    """What is done with a claimed thread."""

    async def work(self, claim: Claim) -> None:
        """Do all that the claim holds. Cancelled on shutdown and when the claim is lost."""
        ...

    async def crashed(self, claim: Claim) -> None:
        """Say visibly that ``work`` failed with a defect, so that the thread is not stuck."""
        ...


class Dispatcher:
    """Gives threads that wait to a ``ThreadWork``.

    Args:
        store: holds the claims.
        work: what to do with a thread.
        prefixes: the threads of this process, see ``Store.claim_thread``.
        owner: names this process in leases; unique among all processes.
        clock: for leases.
        max_threads: worked on at once for each prefix, so that a platform that is slow holds up no other one; further
            ones wait in the store.
        lease_s: a dead process's threads are taken over after this time.
        wake: set by whoever puts something into the store; one of its own without it.
    """

    def __init__(
        self,
        *,
        store: Store,
        work: ThreadWork,
        prefixes: Sequence[str],
        owner: str,
        clock: Clock,
        max_threads: int = 64,
        lease_s: float = LEASE_S,
        wake: asyncio.Event | None = None,
    ) -> None:
        self._store = store
        self._work = work
        self._prefixes = tuple(prefixes)
        self._owner = owner
        self._clock = clock
        self._max_threads = max_threads
        self._lease_s = lease_s
        self._wake = wake or asyncio.Event()
        self._stopping = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: Counter[str] = Counter()  # tasks by prefix

    @property
    def active(self) -> int:
        """Threads being worked on now."""
        return len(self._tasks)

    def wake(self) -> None:
        """Look for work now."""
        self._wake.set()

    async def run(self) -> None:
        """Claim and hand out threads until ``drain``; cancelling it stops claiming, not the work under way."""
        while not self._stopping.is_set():
            self._wake.clear()
            if not await self._try_claim():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(await self._pause_s()):
                        await self._wake.wait()

    async def work_all(self) -> None:
        """Work until nothing waits, without ``run``: for commands that ask one question and end.

        Raises:
            StoreError: nothing can be claimed; work under way goes on until ``drain``.
        """
        try:
            while await self._claim_one(self._prefixes) or self._tasks:
                if self._tasks:
                    await asyncio.wait(self._tasks)
        except asyncio.CancelledError:
            if not await _stop(self._tasks, 2 * STOP_GRACE_S):
                # a claim that was interrupted may stand in the store without anybody who works on it
                with contextlib.suppress(StoreError):
                    await self._store.free_owner(self._owner)
            raise

    async def drain(self, timeout_s: float) -> None:
        """Stop claiming, let the work under way finish, and cut off what takes longer (it is resumed later)."""
        self._stopping.set()
        self._wake.set()
        async with self._claiming:  # a claim under way becomes work here, or is given back, before the end
            pass
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            await _stop(late, 2 * STOP_GRACE_S)

    # -- claiming ------------------------------------------------------------------------------------

    async def _try_claim(self) -> bool:
        free = [prefix for prefix in self._prefixes if self._busy[prefix] < self._max_threads]
        if not free:
            return False
        try:
            return await self._claim_one(free)
        except StoreError as e:
            log.error("claim_failed", error=str(e))
            return False

    async def _claim_one(self, prefixes: Sequence[str]) -> bool:
        """Claim a thread and begin its work; false when none waits, or the end has begun."""
        async with self._claiming:
            if self._stopping.is_set():
                return False
            claim = await self._store.claim_thread(
                self._owner, prefixes=prefixes, lease_s=self._lease_s, now=self._clock.now()
            )
            if claim is None:
                return False
            if self._stopping.is_set():
                await self._give_back(claim)
                return False
            task = asyncio.create_task(self._hold(claim), name=f"thread {claim.thread_key}")
            prefix = next((p for p in prefixes if claim.thread_key.startswith(p)), "")
            self._tasks.add(task)
            self._busy[prefix] += 1
            task.add_done_callback(partial(self._ended, prefix))
            return True

    async def _give_back(self, claim: Claim) -> None:
        with contextlib.suppress(StoreError):  # the lease then ends by itself
            await self._store.release_claim(claim)

    async def _pause_s(self) -> float:
        try:
            now = self._clock.now()
            due = await self._store.next_wake(prefixes=self._prefixes, now=now)
        except StoreError:
            return POLL_S
        return POLL_S if due is None else min(POLL_S, max(0.01, (due - now).total_seconds()))

    def _ended(self, prefix: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._busy[prefix] -= 1
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("thread_task_failed", task=task.get_name(), exc_info=error)

    # -- holding a thread ----------------------------------------------------------------------------

    async def _hold(self, claim: Claim) -> None:
        """Work on a claimed thread as long as its lease can be renewed, and give it back at the end."""
        worker = asyncio.create_task(self._work.work(claim), name=f"work on {claim.thread_key}")
        renewer = asyncio.create_task(self._renew(claim), name=f"lease of {claim.thread_key}")
        try:
            await asyncio.wait({worker, renewer}, return_when=asyncio.FIRST_COMPLETED)
            if worker.done():
                await self._conclude(claim, worker)
        finally:
            # whoever does not stop may still change something: then nobody else begins before the lease ends
            if not await _stop({worker, renewer}, STOP_GRACE_S):
                await self._give_back(claim)

    async def _conclude(self, claim: Claim, worker: asyncio.Task[None]) -> None:
        """Look at how the work ended. After a failure the thread is kept for a moment, so that nothing spins."""
        match RuntimeError("the work cancelled itself") if worker.cancelled() else worker.exception():
            case None:
                return
            case Fenced():
                log.warning("claim_lost", thread=claim.thread_key)
                return
            case StoreError() as error:
                log.error("thread_stopped", thread=claim.thread_key, error=str(error))
            case error:
                log.error("thread_crashed", thread=claim.thread_key, exc_info=error)
                await self._report_crash(claim)
        await self._clock.sleep(POLL_S)

    async def _report_crash(self, claim: Claim) -> None:
        try:
            await self._work.crashed(claim)
        except Exception:  # one of the four marked places: a defect must not end the dispatcher
            log.exception("crash_not_reported", thread=claim.thread_key)

    async def _renew(self, claim: Claim) -> None:
        """Renew the lease until it is lost."""
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                await self._store.renew_claim(claim, lease_s=self._lease_s, now=self._clock.now())
            except Fenced:
                log.warning("claim_lost", thread=claim.thread_key)
                return
            except StoreError as e:
                log.error("renewal_failed", thread=claim.thread_key, error=str(e))


async def _stop(tasks: Iterable[asyncio.Task[None]], grace_s: float) -> set[asyncio.Task[None]]:
    """Cancel tasks and wait a moment for their end; returns those that go on all the same."""
    stopping = {task for task in tasks if not task.done()}
    for task in stopping:
        task.cancel()
    if not stopping:
        return stopping
    ended, late = await asyncio.wait(stopping, timeout=grace_s)
    for task in ended:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("task_failed_while_stopping", task=task.get_name(), error=repr(error))
    for task in late:
        log.error("task_did_not_stop", task=task.get_name())
    return late
