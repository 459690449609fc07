"""How Postgres finds the rows of the verbs that are used all the time: along indexes, however much lies there.

What is asserted are the server's plans, with statistics and without: no table that grows is read whole.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace

import psycopg
import pytest
from psycopg.rows import DictRow, dict_row

from agent_core.context import StepState
from bot.storage import open_store
from bot.storage import postgres_claims as claims
from bot.storage import postgres_jobs as jobs
from bot.storage import postgres_ledger as ledger
from bot.storage import postgres_memory as memory
from bot.storage import postgres_runs as runs
from bot.storage.base import NewInboxItem, OutboxState
from bot.storage.jobs import NewFiring
from bot.storage.postgres_connection import Row, Tx
from bot.storage.rows import build_micros
from tests.contract.store.makers import ALL, T0, at, new_entry, new_item, new_post, new_run, new_usage, outcome
from tests.servers.postgres import Lab

THREADS = MESSAGES = 100_000
JOBS = 10_000
OTHERS = 20_000
SMALL = 50
"""Tables with fewer pages are read whole by any planner."""

FILL = f"""
SET session_replication_role = replica;
INSERT INTO thread (thread_key, last_seq, last_message_seq, last_at)
  SELECT 'slack:T1/C1/' || n, 1, 1, n FROM generate_series(1, {THREADS}) n;
INSERT INTO run (run_id, thread_key, agent, state, attempt, started_at, ended_at, error, record)
  SELECT 'old' || n, 'slack:T1/C1/' || n, 'ops', 'finished', 1, n, n, '', '' FROM generate_series(1, {OTHERS}) n;
INSERT INTO inbox (event_key, thread_key, seq, kind, payload, received_at, state, run_id, said_id)
  SELECT 'e' || n, 'slack:T1/C1/' || n, 1, 'message', '', n, 'done', 'old' || n, 'm' || n
  FROM generate_series(1, {MESSAGES}) n;
INSERT INTO message (thread_key, seq, run_id, role, body, tokens, created_at, said_id)
  SELECT 'slack:T1/C1/' || n, 1, 'old' || n, 'user', '{{}}', 1, n, 'm' || n FROM generate_series(1, {MESSAGES}) n;
INSERT INTO outbox (key, thread_key, run_id, body, created_at, state, next_at)
  SELECT 'k' || n, 'slack:T1/C1/' || n, 'old' || n, '', n, 'delivered', n FROM generate_series(1, {OTHERS}) n;
INSERT INTO usage (run_id, thread_key, author, provider, model, requests, input_tokens, output_tokens, at)
  SELECT 'old' || n, 'slack:T1/C1/' || n, 'slack:U' || n, 'p', 'm', 1, 1, 1, n FROM generate_series(1, {OTHERS}) n;
INSERT INTO step (run_id, n, key, kind, name, digest, effect, state, result, begun_at)
  SELECT 'old' || n, 1, 's', 'tool', '', '', '', 'done', '', n FROM generate_series(1, {OTHERS}) n;
INSERT INTO schedule (id, name, origin, place, owner, owner_name, spec, state, reason, next_at, thread_key,
                      created_at, updated_at, revision)
  SELECT 'j' || n, 'job-' || n, 'chat', 'slack:T1/C2', '', '', '', 'active', '', 9e17::bigint + n, '', 0, 0, 1
  FROM generate_series(1, {JOBS}) n;
INSERT INTO schedule_run (schedule_id, run_key, fired_at, thread_key, inbox_id)
  SELECT 'j' || n % {JOBS} + 1, n::text, n, '', n FROM generate_series(1, {OTHERS}) n;
"""


class ExplainingTx(Tx):
    """A transaction that asks for the plan of each statement before it is carried out."""

    def __init__(self, connection: psycopg.AsyncConnection[DictRow]) -> None:
        super().__init__(connection)
        self.whole: set[tuple[str, str]] = set()
        self._verb = ""

    def enter(self, verb: str) -> None:
        self._verb = verb

    async def all(self, sql: str, *values: object) -> list[Row]:
        await self._explain(sql, values)
        return await super().all(sql, *values)

    async def one(self, sql: str, *values: object) -> Row | None:
        await self._explain(sql, values)
        return await super().one(sql, *values)

    async def do(self, sql: str, *values: object) -> int:
        await self._explain(sql, values)
        return await super().do(sql, *values)

    async def _explain(self, sql: str, values: tuple[object, ...]) -> None:
        (row,) = await super().all(f"EXPLAIN (FORMAT JSON) {sql}", *values)
        plan = row["QUERY PLAN"]
        for node in walk((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]):
            if node["Node Type"] == "Seq Scan":
                self.whole.add((self._verb, str(node["Relation Name"])))


def walk(node: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    yield node
    below = node.get("Plans", [])
    assert isinstance(below, list)
    for child in below:
        yield from walk(child)


@pytest.fixture
async def connection(any_postgres: Lab) -> AsyncIterator[psycopg.AsyncConnection[DictRow]]:
    """A database that was used for years."""
    url = any_postgres.server.url(await any_postgres.create_database(extension=False))
    store = open_store(url)
    await store.open()
    await store.close()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, row_factory=dict_row) as filled:
        await filled.execute(FILL.encode())
        yield filled


async def use_hot_verbs(tx: ExplainingTx, round_: str, job_id: str) -> None:
    """One message from its arrival to its answer, and a look at the clock with one job that is due."""
    thread, now = f"slack:T1/C1/{OTHERS // 2}", build_micros(T0)
    tx.enter("accept")
    item = replace(new_item(f"new {round_}", thread), said_id=f"new {round_}")
    assert (await claims.accept(tx, item, 50, None)).outcome == "new"
    tx.enter("claim_thread")
    assert await claims.find_waiting(tx, ALL, now)
    claimed = await claims.claim_thread(tx, "p1", ALL, 30.0, T0)
    assert claimed is not None
    assert claimed.thread_key == thread
    tx.enter("next_wake")
    assert await claims.find_next_wake(tx, ALL, now) is not None
    tx.enter("run")
    run_id = f"run {round_}"
    await runs.begin_run(tx, claimed, new_run(run_id, thread), [i.id for i in claimed.items])
    assert await claims.load_open(tx, thread, 0) == ()
    assert await memory.load_messages(tx, thread, 100, 0)
    assert await memory.load_summary(tx, thread) is None
    await runs.begin_step(tx, claimed, run_id, new_entry("s1"), T0)
    await runs.finish_step(tx, claimed, run_id, "s1", StepState.DONE, "", T0)
    await claims.renew_claim(tx, claimed, 30.0, T0)
    tx.enter("finish_run")
    ended = outcome("hi", "hello", posts=(new_post(f"post {round_}", thread, run_id=run_id),), usage=(new_usage("r"),))
    said = tuple(replace(m, said_id=f"{m.body} {round_}") for m in ended.messages)
    await runs.finish_run(tx, claimed, run_id, replace(ended, messages=said))
    tx.enter("send")
    (post,) = await claims.load_due(tx, thread, now)
    await claims.begin_send(tx, claimed, post.id, T0)
    await claims.finish_send(tx, claimed, post.id, OutboxState.DELIVERED, "1", "", T0)
    await claims.release_claim(tx, claimed)
    tx.enter("fire_job")
    await tx.do("UPDATE schedule SET next_at = %s::bigint WHERE id = %s", now, job_id)
    (due,) = await jobs.list_due_jobs(tx, T0, 100)
    firing = NewFiring(
        run_key=round_,
        item=NewInboxItem(
            event_key=f"job {round_}", thread_key=f"t {round_}", kind="firing", payload="", received_at=T0
        ),
    )
    assert await jobs.fire_job(tx, due, [firing], at(9e6), T0, "skip") == ("fired",)
    tx.enter("look")
    await runs.load_run(tx, run_id)
    await memory.count_kept(tx, thread)
    await ledger.load_usage(tx, at(-60), "slack:U1")
    await jobs.list_job_runs(tx, job_id, 20)
    await runs.erase_message(tx, replace(item, said_id="m5", event_key=f"deleted {round_}"), T0)


@pytest.mark.timeout(180)
async def test_no_hot_verb_reads_a_table_that_grows_from_end_to_end(
    connection: psycopg.AsyncConnection[DictRow],
) -> None:
    tx = ExplainingTx(connection)
    await use_hot_verbs(tx, "without statistics", "j77")
    await connection.execute("VACUUM ANALYZE")
    await use_hot_verbs(tx, "with statistics", "j78")
    sizes = await (await connection.execute("SELECT relname, relpages FROM pg_class WHERE relkind = 'r'")).fetchall()
    large = {row["relname"] for row in sizes if row["relpages"] > SMALL}
    assert {"thread", "inbox", "message", "outbox", "run", "schedule", "schedule_run", "step"} <= large
    assert {one for one in tx.whole if one[1] in large} == set()
