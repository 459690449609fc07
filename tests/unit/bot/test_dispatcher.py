"""The dispatcher outlives whatever its work and its store do, and never spins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from agent_core.context import Clock, SystemClock
from bot.dispatcher import POLL_S, Dispatcher
from bot.inbox import Inbox
from bot.storage.base import Claim, Fenced, RunOutcome, RunRow, Store, StoreError
from bot.storage.sqlite import SqliteStore
from tests.unit.bot.recording import message
from tests.unit.engine.running import HandClock

KEY = message("").thread.key


class Work:
    """Does what a test says with each claim, and counts."""

    def __init__(self, do: Callable[[Claim], Awaitable[None]]) -> None:
        self._do = do
        self.tries = 0
        self.crashes = 0
        self.tried = asyncio.Event()
        self.report: Exception | None = None

    async def work(self, claim: Claim) -> None:
        self.tries += 1
        self.tried.set()
        await self._do(claim)

    async def crashed(self, claim: Claim) -> None:
        self.crashes += 1
        if self.report is not None:
            raise self.report


def build_dispatcher(store: Store, work: Work, *, clock: Clock | None = None, lease_s: float = 5.0) -> Dispatcher:
    return Dispatcher(
        store=store, work=work, prefixes=["memory:"], owner="p1", clock=clock or SystemClock(), lease_s=lease_s
    )


async def accept_one(store: Store, *, thread: str = "t1") -> None:
    inbox = Inbox(store=store, clock=SystemClock(), redactor=Plain(), queue_limit=9, wake=lambda: None)
    await inbox.accept(message("hi", thread=thread, number=int(thread[1:])))


class Plain:
    def redact(self, text: str) -> str:
        return text


async def answer(store: Store, claim: Claim) -> None:
    """End the thread's work, as a session would."""
    now = SystemClock().now()
    run = RunRow(
        run_id=f"{claim.thread_key} {claim.epoch}", thread_key=claim.thread_key, agent="a", state="init", started_at=now
    )
    await store.begin_run(claim, run, [item.id for item in claim.items])
    await store.finish_run(claim, run.run_id, RunOutcome(state="finished", error="", record="", ended_at=now))


async def is_free(store: Store) -> bool:
    """Tell whether the thread can be claimed at once."""
    now = SystemClock().now()
    return await store.claim_thread("other", prefixes=["memory:"], lease_s=5, now=now) is not None


async def raise_error(error: BaseException) -> None:
    raise error


# -- nothing spins ---------------------------------------------------------------------------------


async def test_a_crash_that_cannot_be_reported_is_not_tried_again_at_once(store: Store) -> None:
    clock = HandClock()
    work = Work(lambda claim: raise_error(RuntimeError("a defect")))
    work.report = KeyError("no adapter for this platform")
    dispatcher = build_dispatcher(store, work, clock=clock)
    await accept_one(store)
    running = asyncio.create_task(dispatcher.run())
    async with asyncio.timeout(30):
        while work.tries < 5:
            work.tried.clear()
            await work.tried.wait()
    await dispatcher.drain(1)
    await running
    assert clock.seconds >= POLL_S * (work.tries - 1)


async def test_work_that_cancels_itself_is_reported_instead_of_being_tried_again_at_once(store: Store) -> None:
    clock = HandClock()
    work = Work(lambda claim: raise_error(asyncio.CancelledError()))
    dispatcher = build_dispatcher(store, work, clock=clock)
    await accept_one(store)
    running = asyncio.create_task(dispatcher.run())
    async with asyncio.timeout(30):
        while work.tries < 3:
            work.tried.clear()
            await work.tried.wait()
    await dispatcher.drain(1)
    await running
    assert work.crashes >= 2
    assert clock.seconds >= POLL_S * (work.tries - 1)


# -- a store that fails ----------------------------------------------------------------------------


class FailingStore(SqliteStore):
    """Fails in the verbs that a test names, as often as it says."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.failures: dict[str, int] = {}
        self.failed = asyncio.Event()

    def _fail(self, verb: str) -> None:
        if self.failures.get(verb, 0) > 0:
            self.failures[verb] -= 1
            self.failed.set()
            raise StoreError(f"{verb} failed")

    async def claim_thread(self, owner: str, *, prefixes: Sequence[str], lease_s: float, now: datetime) -> Claim | None:
        self._fail("claim_thread")
        return await super().claim_thread(owner, prefixes=prefixes, lease_s=lease_s, now=now)

    async def next_wake(self, *, prefixes: Sequence[str], now: datetime) -> datetime | None:
        self._fail("next_wake")
        return await super().next_wake(prefixes=prefixes, now=now)

    async def renew_claim(self, claim: Claim, *, lease_s: float, now: datetime) -> None:
        self._fail("renew_claim")
        await super().renew_claim(claim, lease_s=lease_s, now=now)

    async def release_claim(self, claim: Claim) -> None:
        self._fail("release_claim")
        await super().release_claim(claim)

    async def begin_run(self, claim: Claim, run: RunRow, item_ids: Sequence[int]) -> None:
        self._fail("begin_run")
        await super().begin_run(claim, run, item_ids)


@pytest.fixture
async def failing(tmp_path: Path) -> AsyncIterator[FailingStore]:
    opened = FailingStore(tmp_path / "failing.db")
    await opened.open()
    yield opened
    await opened.close()


@pytest.mark.parametrize("verb", ["claim_thread", "next_wake", "renew_claim", "release_claim", "begin_run"])
async def test_a_store_that_fails_for_a_while_does_not_end_the_dispatcher(failing: FailingStore, verb: str) -> None:
    answered = asyncio.Event()

    async def do(claim: Claim) -> None:
        if verb == "renew_claim":
            await asyncio.wait_for(failing.failed.wait(), 30)
        await answer(failing, claim)
        answered.set()

    work = Work(do)
    failing.failures = {verb: 1}
    dispatcher = build_dispatcher(failing, work, lease_s=0.3)
    running = asyncio.create_task(dispatcher.run())
    await accept_one(failing)
    await asyncio.wait_for(answered.wait(), 30)
    await dispatcher.drain(2)
    await running
    assert work.crashes == 0


async def test_a_command_that_cannot_claim_says_so_instead_of_answering_nothing(failing: FailingStore) -> None:
    dispatcher = build_dispatcher(failing, Work(lambda claim: answer(failing, claim)))
    await accept_one(failing)
    failing.failures = {"claim_thread": 1}
    with pytest.raises(StoreError, match="claim_thread failed"):
        await dispatcher.work_all()


# -- stopping --------------------------------------------------------------------------------------


class SlowStore(SqliteStore):
    """Its claims take until a test lets them go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.claiming = asyncio.Event()
        self.go_on = asyncio.Event()

    async def claim_thread(self, owner: str, *, prefixes: Sequence[str], lease_s: float, now: datetime) -> Claim | None:
        claim = await super().claim_thread(owner, prefixes=prefixes, lease_s=lease_s, now=now)
        if claim is not None and owner == "p1":
            self.claiming.set()
            await self.go_on.wait()
        return claim


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[SlowStore]:
    opened = SlowStore(tmp_path / "slow.db")
    await opened.open()
    yield opened
    await opened.close()


async def test_a_thread_that_is_being_claimed_when_the_process_stops_is_given_back(slow: SlowStore) -> None:
    work = Work(lambda claim: asyncio.sleep(60))
    dispatcher = build_dispatcher(slow, work)
    await accept_one(slow)
    running = asyncio.create_task(dispatcher.run())
    await slow.claiming.wait()
    draining = asyncio.create_task(dispatcher.drain(0.2))
    await asyncio.sleep(0)
    slow.go_on.set()
    await draining
    assert dispatcher.active == 0  # whoever drains closes the store next
    assert await is_free(slow)
    await running


async def test_an_interrupted_command_leaves_no_lease_behind(slow: SlowStore) -> None:
    dispatcher = build_dispatcher(slow, Work(lambda claim: answer(slow, claim)))
    await accept_one(slow)
    working = asyncio.create_task(dispatcher.work_all())
    await slow.claiming.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await is_free(slow)


async def test_work_that_does_not_stop_when_cancelled_cannot_hold_up_the_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.dispatcher.STOP_GRACE_S", 0.05)
    go_on = asyncio.Event()

    async def stubborn(claim: Claim) -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    work = Work(stubborn)
    dispatcher = build_dispatcher(store, work, lease_s=60)
    await accept_one(store)
    running = asyncio.create_task(dispatcher.run())
    await work.tried.wait()
    async with asyncio.timeout(30):
        await dispatcher.drain(0.01)
        await running
    go_on.set()
    assert not await is_free(store)  # it may still do something, so nobody else begins before its lease ends
    await asyncio.sleep(0)


async def test_a_drain_waits_for_the_work_under_way_and_begins_no_other(store: Store) -> None:
    go_on = asyncio.Event()

    async def do(claim: Claim) -> None:
        await go_on.wait()
        await answer(store, claim)

    work = Work(do)
    dispatcher = build_dispatcher(store, work)
    await accept_one(store)
    running = asyncio.create_task(dispatcher.run())
    await work.tried.wait()
    draining = asyncio.create_task(dispatcher.drain(5))
    await asyncio.sleep(0)
    await accept_one(store, thread="t2")
    dispatcher.wake()
    go_on.set()
    await draining
    await running
    assert work.tries == 1
    assert (await store.count_rows()).inbox_open == 1


async def test_a_platform_with_all_its_work_stuck_leaves_room_for_the_others(store: Store) -> None:
    stuck, heard = asyncio.Event(), asyncio.Event()

    async def do(claim: Claim) -> None:
        if claim.thread_key.startswith("slow:"):
            await stuck.wait()
        else:
            heard.set()
        await answer(store, claim)

    work = Work(do)
    dispatcher = Dispatcher(
        store=store, work=work, prefixes=["slow:", "memory:"], owner="p1", clock=SystemClock(), max_threads=2
    )
    inbox = Inbox(store=store, clock=SystemClock(), redactor=Plain(), queue_limit=9, wake=dispatcher.wake)
    slow = [message("hi", number=n, thread=f"t{n}") for n in range(1, 5)]
    for said in slow:
        await inbox.accept(replace(said, thread=replace(said.thread, platform="slow")))
    running = asyncio.create_task(dispatcher.run())
    async with asyncio.timeout(30):
        while dispatcher.active < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await inbox.accept(message("hi", number=9, thread="t9"))
        await heard.wait()
    assert dispatcher.active <= 3
    stuck.set()
    async with asyncio.timeout(30):
        while (await store.count_rows()).inbox_open:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await dispatcher.drain(5)
    await running
    assert work.tries == 5


async def test_work_whose_claim_was_lost_is_cancelled_and_is_no_crash(store: Store) -> None:
    ended = asyncio.Event()

    async def do(claim: Claim) -> None:
        await store.free_owner("p1")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    work = Work(do)
    dispatcher = build_dispatcher(store, work, lease_s=0.1)
    await accept_one(store)
    running = asyncio.create_task(dispatcher.run())
    await asyncio.wait_for(ended.wait(), 30)
    await dispatcher.drain(0.0)
    await running
    assert work.crashes == 0


async def test_work_that_is_fenced_stops_quietly(store: Store) -> None:
    async def do(claim: Claim) -> None:
        if work.tries == 1:
            raise Fenced("somebody else works on it")
        await answer(store, claim)

    work = Work(do)
    await accept_one(store)
    await build_dispatcher(store, work).work_all()
    assert (work.tries, work.crashes) == (2, 0)
