"""Claims threads and has them worked on: one worker a thread, threads in parallel."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Protocol

import structlog

from agent_core.context import Clock
from bot.storage.base import Claim, Fenced, Store, StoreError

log = structlog.get_logger("hermod.dispatcher")

LEASE_S = 10.0
POLL_S = 1.0
"""How often to look for work of other processes, and for leases that ended, without being woken."""


class ThreadWork(Protocol):
    """What is done with a claimed thread."""

    async def work(self, claim: Claim) -> None:
        """Do all that the claim holds. Cancelled on shutdown and when the claim is lost."""
        ...

    async def crashed(self, claim: Claim, error: Exception) -> None:
        """Say visibly that ``work`` failed with a defect, so that the thread is not stuck."""
        ...


class Dispatcher:
    """Gives threads that wait to a ``ThreadWork``.

    Args:
        store: holds the claims.
        work: what to do with a thread.
        prefixes: the threads of this process, by beginnings of their keys.
        owner: names this process in leases; unique among all processes.
        clock: for leases.
        max_threads: worked on at once; further ones wait in the store.
        lease_s: a dead process's threads are taken over after this time.
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
    ) -> None:
        self._store = store
        self._work = work
        self._prefixes = tuple(prefixes)
        self._owner = owner
        self._clock = clock
        self._max_threads = max_threads
        self._lease_s = lease_s
        self._wake = asyncio.Event()
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def active(self) -> int:
        """Threads being worked on now."""
        return len(self._tasks)

    def wake(self) -> None:
        """Look for work now."""
        self._wake.set()

    async def run(self) -> None:
        """Claim and hand out threads until ``drain``; cancelling it stops claiming, not the work under way."""
        while not self._stopping:
            self._wake.clear()
            claimed = False
            if len(self._tasks) < self._max_threads:
                claimed = await self._claim_one()
            if not claimed:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(await self._pause_s()):
                        await self._wake.wait()

    async def work_all(self) -> None:
        """Work until nothing waits, without ``run``: for commands that ask one question and end."""
        try:
            while await self._claim_one() or self._tasks:
                if self._tasks:
                    await asyncio.wait(self._tasks)
        except asyncio.CancelledError:
            await self._cut_off(self._tasks)
            raise

    async def _pause_s(self) -> float:
        try:
            now = self._clock.now()
            due = await self._store.next_wake(prefixes=self._prefixes, now=now)
        except StoreError:
            return POLL_S
        return POLL_S if due is None else min(POLL_S, max(0.01, (due - now).total_seconds()))

    async def _claim_one(self) -> bool:
        try:
            claim = await self._store.claim_thread(
                self._owner, prefixes=self._prefixes, lease_s=self._lease_s, now=self._clock.now()
            )
        except StoreError as e:
            log.error("claim_failed", error=str(e))
            return False
        if claim is None:
            return False
        task = asyncio.create_task(self._hold(claim), name=f"thread {claim.thread_key}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return True

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake.set()

    async def _hold(self, claim: Claim) -> None:
        """Work on a claimed thread while its lease is renewed, and give it back at the end."""
        worker = asyncio.create_task(self._work.work(claim))
        renewer = asyncio.create_task(self._renew(claim, worker))
        try:
            await worker
        except asyncio.CancelledError:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
            if asyncio.current_task() is not None and asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
        except Fenced:
            log.warning("claim_lost", thread=claim.thread_key)
        except StoreError as e:
            log.error("thread_stopped", thread=claim.thread_key, error=str(e))
            await self._clock.sleep(POLL_S)
        except Exception as e:  # one of the four marked places: a defect must not end the dispatcher
            log.exception("thread_crashed", thread=claim.thread_key)
            await self._report_crash(claim, e)
        finally:
            renewer.cancel()
            await asyncio.gather(renewer, return_exceptions=True)
            with contextlib.suppress(StoreError):
                await self._store.release_claim(claim)

    async def _report_crash(self, claim: Claim, error: Exception) -> None:
        try:
            await self._work.crashed(claim, error)
        except StoreError as e:
            log.error("crash_not_reported", thread=claim.thread_key, error=str(e))
        await self._clock.sleep(POLL_S)  # whatever broke, the thread is not claimed again at once

    async def _renew(self, claim: Claim, worker: asyncio.Task[None]) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                await self._store.renew_claim(claim, lease_s=self._lease_s, now=self._clock.now())
            except Fenced:
                log.warning("claim_lost", thread=claim.thread_key)
                worker.cancel()
                return
            except StoreError as e:
                log.error("renewal_failed", thread=claim.thread_key, error=str(e))

    async def drain(self, timeout_s: float) -> None:
        """Stop claiming, let the work under way finish, and cut off what takes longer (it is resumed later)."""
        self._stopping = True
        self._wake.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            await self._cut_off(late)

    @staticmethod
    async def _cut_off(tasks: Iterable[asyncio.Task[None]]) -> None:
        late = list(tasks)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
