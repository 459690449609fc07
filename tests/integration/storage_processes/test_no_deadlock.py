"""Verbs at random on a few rows, from several stores at once: rows are locked in one order, and none is refused."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from agent_core.context import StepState
from bot.storage import open_store
from bot.storage.base import (
    Claim,
    FeedbackRow,
    Fenced,
    NewInboxItem,
    NewMessage,
    OutboxState,
    RunOutcome,
    Store,
    StoreError,
    SummaryRow,
)
from bot.storage.installations import NewInstallationRow
from bot.storage.jobs import NewFiring, Opening, Proposal
from bot.storage.snapshots import Snapshot, Statement
from tests.contract.store.makers import T0, at, new_entry, new_post, new_run, new_usage
from tests.integration.storage_processes.jobs import new_job
from tests.servers.postgres import Lab

STORES = 3
TASKS = 24
VERBS = 50
"""Of each task."""
THREADS = [f"slack:T1/C1/{n}" for n in range(4)]
REPORTS = [f"slack:T1/C1/command-report-{n}" for n in range(3)]
TARGETS = ["shop", "crm"]
SECRETS = ["m1", "m2", "m3"]


@dataclass(kw_only=True)
class Hand:
    """One of those who use the store, with dice of its own."""

    store: Store
    name: str
    dice: random.Random
    done: Counter[str]
    numbers: int = 0

    def number(self) -> str:
        self.numbers += 1
        return f"{self.name}-{self.numbers}"

    @property
    def thread(self) -> str:
        return self.dice.choice(THREADS)

    # what comes in, and what people do to a thread

    async def accept(self) -> None:
        item = NewInboxItem(
            event_key=f"e{self.dice.randrange(400)}",
            thread_key=self.dice.choice(THREADS + REPORTS),
            kind="message",
            payload="{}",
            received_at=T0,
            said_id=self.dice.choice(SECRETS),
        )
        await self.store.accept(item, queue_limit=3, refusal=new_post(self.number(), item.thread_key))

    async def erase(self) -> None:
        item = NewInboxItem(
            event_key=self.number(),
            thread_key=self.thread,
            kind="deleted",
            payload="{}",
            received_at=T0,
            said_id=self.dice.choice(SECRETS),
        )
        await self.store.erase_message(item, now=T0)

    async def forget(self) -> None:
        await self.store.forget_thread(self.dice.choice(THREADS + REPORTS))

    async def summarise(self) -> None:
        await self.store.save_summary(self._summary(self.thread))

    async def keep(self) -> None:
        await self.store.save_output(self.thread, "call_1", "x", T0)

    async def notify(self) -> None:
        await self.store.add_outbox(new_post(self.number(), self.thread))

    async def judge(self) -> None:
        runs = await self.store.list_runs(limit=3)
        if runs:
            run = self.dice.choice(runs)
            await self.store.save_feedback(
                FeedbackRow(run_id=run.run_id, thread_key=run.thread_key, author="slack:U1", value="up", at=T0)
            )

    def _summary(self, thread: str) -> SummaryRow:
        return SummaryRow(
            thread_key=thread, text="s", through_seq=1, tokens_before=2, tokens_after=1, author="model", updated_at=T0
        )

    # work on a thread

    async def work(self) -> None:
        now = at(self.dice.randrange(100))  # the leases of the others are over, or not
        claimed = await self.store.claim_thread(self.name, prefixes=("slack:",), lease_s=30, now=now)
        if claimed is None:
            return
        await self._send(claimed)
        run_id = self.number() if claimed.run is None else claimed.run.run_id
        if claimed.run is None:
            run = new_run(run_id, claimed.thread_key)
            await self.store.begin_run(claimed, run, [i.id for i in claimed.items[:2]])
        key = self.number()
        await self.store.begin_step(claimed, run_id, new_entry(key), T0)
        await self.store.save_draft(claimed, run_id, "1", T0)
        await self.store.finish_step(claimed, run_id, key, StepState.DONE, "", T0)
        await self.store.renew_claim(claimed, lease_s=30, now=now)
        await self._finish(claimed, run_id)
        if claimed.thread_key in REPORTS:
            await self._open(claimed, run_id)
        if self.dice.random() < 0.8:
            await self.store.release_claim(claimed)

    async def _finish(self, claimed: Claim, run_id: str) -> None:
        said = [NewMessage(role="user", body='{"content": ""}', tokens=1, created_at=T0, said_id=s) for s in SECRETS]
        where = [claimed.thread_key, self.thread, self.dice.choice(REPORTS)]  # a report may go elsewhere
        posts = [new_post(f"{run_id}/{n}", thread, run_id=run_id) for n, thread in enumerate(where)]
        outcome = RunOutcome(
            state="finished",
            error="",
            record="{}",
            ended_at=T0,
            messages=tuple(said),
            outbox=tuple(posts),
            usage=(new_usage(run_id),),
            summary=self._summary(claimed.thread_key),
            answered=tuple(i.id for i in claimed.items[2:]),
            sequel="{}",
        )
        await self.store.finish_run(claimed, run_id, outcome)

    async def _send(self, claimed: Claim) -> None:
        for post in claimed.outbox[:2]:
            await self.store.begin_send(claimed, post.id, now=T0)
            if self.dice.random() < 0.3:
                await self.store.split_outbox(claimed, post.id, [new_post(self.number(), claimed.thread_key)] * 2)
            state = self.dice.choice([OutboxState.DELIVERED, OutboxState.FAILED, OutboxState.PENDING])
            await self.store.finish_send(claimed, post.id, state, remote_id="1", reason="", next_at=T0)

    async def _open(self, claimed: Claim, run_id: str) -> None:
        due = await self.store.load_due(claimed.thread_key, now=at(999))
        if due:
            thread = self.thread
            opening = Opening(
                thread_key=thread,
                messages=(NewMessage(role="user", body="{}", tokens=1, created_at=T0),),
                outbox=(new_post(self.number(), thread),),
                outputs=(("call_1", "x"),),
            )
            await self.store.open_thread(claimed, due[0].id, run_id, opening, remote_id="1", now=T0)

    async def bury(self) -> None:
        await self.store.free_owner(self.dice.choice(await self.store.list_owners() or ("nobody",)))

    # what stands beside threads

    async def audit(self) -> None:
        await self.store.add_audit(at=T0, actor="", action="a", thread_key=self.thread, run_id="", detail="")

    async def read_counters(self, most: int = 40) -> None:
        rows = {f"k{n}": str(self.dice.randrange(3)) for n in range(self.dice.randrange(most // 2, most))}
        target = self.dice.choice(TARGETS)
        taken_at = at(self.dice.randrange(1000))
        await self.store.save_snapshot(Snapshot(target=target, taken_at=taken_at, head="", rows=rows))
        keys = self.dice.sample(sorted(rows), len(rows))
        texts = [Statement(key=k, fingerprint="f", sql="s", db="d", user="u", own=False) for k in keys]
        await self.store.save_statements(target, texts)

    async def drop_counters(self) -> None:
        await self.store.drop_snapshots(before=at(self.dice.randrange(500)))

    async def lead(self) -> None:
        if await self.store.hold_lease("collect", self.name, lease_s=1, now=at(self.numbers)) == self.name:
            await self.store.end_lease("collect", self.name)

    async def install(self) -> None:
        new = NewInstallationRow(
            platform="slack",
            workspace="T1",
            name="",
            bot_user="",
            bot="",
            scopes=frozenset(),
            token="sealed",
            installed_at=T0,
        )
        await self.store.save_installation(new, unless_known=self.dice.random() < 0.5)
        await self.store.use_nonce(f"n{self.dice.randrange(9)}", now=at(self.dice.randrange(99)), expires_at=at(50))
        if self.dice.random() < 0.3:
            await self.store.remove_installation("slack", "T1", reason="r", now=T0)

    # jobs

    async def schedule(self) -> None:
        jobs = await self.store.list_jobs()
        job = new_job(self.dice.randrange(3))
        known = next((j for j in jobs if j.job_id == job.job_id), None)
        if known is None or self.dice.random() < 0.5:
            await self.store.save_job(job, expected=None if known is None else known.revision)
        elif self.dice.random() < 0.2:
            await self.store.delete_job(job.job_id)

    async def fire(self) -> None:
        for job in await self.store.list_due_jobs(now=at(999)):
            threads = self.dice.sample(REPORTS, 2)
            firings = [
                NewFiring(
                    run_key=key,
                    item=NewInboxItem(event_key=key, thread_key=t, kind="firing", payload="", received_at=T0),
                )
                for t in threads
                for key in (self.number(),)
            ]
            await self.store.fire_job(
                job, firings, next_at=at(self.numbers), now=T0, overlap=self.dice.choice(["skip", "queue"])
            )

    async def propose(self) -> None:
        thread = self.thread
        await self.store.save_proposal(Proposal(thread_key=thread, author="slack:U1", body="{}", created_at=T0))
        await self.store.take_proposal(thread, "slack:U1", after=T0)

    async def play(self, verbs: int) -> None:
        """Use verbs at random; what the store refuses in its own words is no concern here."""
        moves: list[Callable[[], Awaitable[None]]] = [
            *(
                self.accept,
                self.work,
                self.work,
                self.work,
                self.forget,
                self.erase,
                self.forget,
                self.summarise,
                self.keep,
                self.notify,
            ),
            *(self.judge, self.bury, self.audit, self.read_counters, self.drop_counters, self.lead, self.install),
            *(self.schedule, self.fire, self.propose),
        ]
        for _ in range(verbs):
            move = self.dice.choice(moves)
            name = getattr(move, "__name__", "")
            try:
                await move()
            except Fenced:
                self.done["fenced"] += 1
            except StoreError as error:
                if error.__cause__ is not None:  # the database's own: a deadlock that was retried in vain, a time-out
                    raise
                self.done[f"{name} refused"] += 1
            self.done[name] += 1


async def count_deadlocks(lab: Lab, database: str) -> int:
    """What the server counted, once every session of the database has ended and said what it knows."""
    async with lab.admin() as admin, asyncio.timeout(60):
        while True:
            asked = await admin.execute("select 1 from pg_stat_activity where datname = %s", [database])
            if await asked.fetchone() is None:
                break
            await asyncio.sleep(0.05)
        asked = await admin.execute("select deadlocks from pg_stat_database where datname = %s", [database])
        row = await asked.fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.timeout(180)
async def test_random_verbs_at_once_over_few_threads_all_succeed_and_lock_rows_in_one_order(any_postgres: Lab) -> None:
    database = await any_postgres.create_database(extension=False)
    stores = [open_store(any_postgres.server.url(database)) for _ in range(STORES)]
    done: Counter[str] = Counter()
    try:
        for store in stores:
            await store.open()
        for thread in THREADS:
            await stores[0].add_outbox(new_post(f"first of {thread}", thread))
        hands = [Hand(store=stores[n % STORES], name=f"h{n}", dice=random.Random(n), done=done) for n in range(TASKS)]
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            for hand in hands:
                group.create_task(hand.play(VERBS))
        lines, misfit = await stores[0].verify_audit()
        assert (lines, misfit) == (done["audit"], None)
    finally:
        for store in stores:
            await store.close()
    assert await count_deadlocks(any_postgres, database) == 0
    assert done["work"] > done["work refused"] + done["fenced"], done


@pytest.mark.timeout(120)
async def test_readings_and_texts_of_one_target_written_at_once_never_wait_in_a_circle(any_postgres: Lab) -> None:
    """Each writes the same few hundred entries, in an order of its own."""
    database = await any_postgres.create_database(extension=False)
    stores = [open_store(any_postgres.server.url(database)) for _ in range(STORES)]
    done: Counter[str] = Counter()
    try:
        for store in stores:
            await store.open()
        async with asyncio.timeout(90), asyncio.TaskGroup() as group:
            for n in range(TASKS):
                hand = Hand(store=stores[n % STORES], name=f"h{n}", dice=random.Random(n), done=done)
                group.create_task(hand.read_counters(most=400))
                group.create_task(hand.drop_counters())
    finally:
        for store in stores:
            await store.close()
    assert await count_deadlocks(any_postgres, database) == 0
