"""What a Postgres does to its connections, and what becomes of the verbs on them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.storage.base import Fenced, Store, StoreError
from bot.storage.postgres_connection import SILENCE_S, Connections, Row, Tx, build_array
from tests.contract.store.makers import A, B, answer, at, begin, claim, new_entry, new_item, new_post, outcome, put
from tests.integration.storage.conftest import Home, make_home, opened
from tests.servers.pgbouncer import run_pooler
from tests.servers.postgres import FIRST, Lab, start_lab, stop_lab

PATIENCE_S = 60


async def hang_up(home: Home) -> int:
    """End every connection of the store's, as an operator may; return how many there were."""
    rows = await home.run_sql(
        f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = '{home.role}'"
    )
    return len(rows)


@asynccontextmanager
async def locked(home: Home, thread_key: str) -> AsyncIterator[None]:
    """A thread's row, held by somebody else."""
    async with home.lab.admin(home.database) as admin, admin.transaction():
        await admin.execute("SELECT 1 FROM thread WHERE thread_key = %s FOR UPDATE", (thread_key,))
        yield


async def wait_until_one_waits(home: Home) -> None:
    waiting = f"SELECT 1 FROM pg_stat_activity WHERE usename = '{home.role}' AND wait_event_type = 'Lock'"
    async with asyncio.timeout(PATIENCE_S):
        while not await home.run_sql(waiting):  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)


# -- connections that end --------------------------------------------------------------------------


async def test_a_verb_whose_connection_is_ended_fails_and_the_next_one_works(home: Home) -> None:
    async with opened(home.url) as store:
        await put(store, "e1")
        async with locked(home, A):
            under_way = asyncio.create_task(store.accept(new_item("e2"), queue_limit=9))
            await wait_until_one_waits(home)
            assert await hang_up(home)
            with pytest.raises(StoreError, match="the next try makes a new one"):
                await under_way
        await put(store, "e2")
        assert [item.event_key for item in (await claim(store)).items] == ["e1", "e2"]


async def test_connections_that_were_ended_while_they_were_idle_are_replaced_and_nobody_hears_of_it(home: Home) -> None:
    async with opened(home.url) as store:
        async with asyncio.TaskGroup() as group:
            for n in range(20):  # as many connections as there may be
                group.create_task(put(store, f"e{n}", thread=f"slack:T1/C1/{n}"))
        for n in range(3):
            assert await hang_up(home)
            await put(store, f"after {n}")
            await store.ping()


def test_a_restart_of_the_server_loses_nothing_and_stops_nobody_for_good() -> None:
    """As a sweep whose database restarts: https://github.com/dbos-inc/dbos-transact-py/issues/716."""
    lab = start_lab(FIRST.values[0], preload=False)  # type: ignore[arg-type]
    try:
        asyncio.run(_work_through_restarts(lab))
    finally:
        stop_lab(lab)


async def _work_through_restarts(lab: Lab) -> None:
    home = await make_home(lab)
    accepted: list[str] = []
    async with opened(home.url) as store:
        done = asyncio.Event()

        async def ask(lane: int) -> None:
            n = 0
            while not done.is_set():
                key = f"{lane}/{n}"
                try:
                    await store.accept(new_item(key, f"slack:T1/C1/{lane}"), queue_limit=10**9)
                except StoreError:
                    continue  # as a platform does, which was not told that it arrived
                accepted.append(key)
                n += 1

        async def wait_for(count: int) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while len(accepted) < count:  # noqa: ASYNC110 - no event tells it
                    await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            for lane in range(4):
                group.create_task(ask(lane))
            for _ in range(2):
                await wait_for(len(accepted) + 40)
                await lab.server.restart()
            await wait_for(len(accepted) + 40)
            done.set()
        claimed = [await claim(store, now=at(1)) for _ in range(4)]
    stored = sorted(item.event_key for thread in claimed for item in thread.items)
    assert stored == sorted(set(stored))
    assert set(accepted) <= set(stored)
    assert len(stored) - len(accepted) <= 4 * 2, "at most what was under way at a restart may be there besides"


async def test_a_server_that_refuses_more_connections_is_said_and_forgotten_when_it_has_room(home: Home) -> None:
    async with opened(home.url) as store:
        await home.run_sql(f"ALTER ROLE {home.role} CONNECTION LIMIT 0")
        await hang_up(home)
        with pytest.raises(StoreError, match="no free connection for this role"):
            await store.ping()
        await home.run_sql(f"ALTER ROLE {home.role} CONNECTION LIMIT -1")
        await store.ping()


# -- limits ----------------------------------------------------------------------------------------


@asynccontextmanager
async def connections(home: Home, *, silence_s: float = SILENCE_S) -> AsyncIterator[Connections]:
    async with opened(home.url):
        pass
    made = Connections(home.url, silence_s=silence_s)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def test_every_transaction_has_limits_and_leaves_no_setting_behind(home: Home) -> None:
    async def look(tx: Tx) -> Row | None:
        return await tx.one(
            "SELECT current_setting('statement_timeout') AS statement, current_setting('lock_timeout') AS lock,"
            " current_setting('idle_in_transaction_session_timeout') AS idle,"
            " current_setting('transaction_read_only') AS read_only, pg_backend_pid() AS pid"
        )

    async with connections(home) as made:
        for row, read_only in ((await made.run(look), "off"), (await made.read(look), "on")):
            assert row is not None
            assert (row["statement"], row["lock"], row["idle"], row["read_only"]) == ("30s", "10s", "5s", read_only)
        outside = await made.connect()
        async with outside:
            plain = await (await outside.execute("SHOW statement_timeout")).fetchone()
    assert plain == {"statement_timeout": "0"}


async def test_a_lock_that_is_not_free_in_time_is_said_and_nothing_is_changed(home: Home) -> None:
    async def wait_shortly(tx: Tx) -> None:
        await tx.do("INSERT INTO lease VALUES ('l', 'p', 1)")
        await tx.do("SET LOCAL lock_timeout = '20ms'")
        await tx.one("SELECT 1 FROM thread WHERE thread_key = %s FOR UPDATE", A)

    async with opened(home.url) as store, connections(home) as made:
        await put(store, "e1")
        async with locked(home, A):
            with pytest.raises(StoreError, match="was locked by another session for too long"):
                await made.run(wait_shortly)
    assert await home.run_sql("SELECT count(*) FROM lease") == [(0,)]


async def test_whoever_stands_still_in_a_transaction_lets_go_of_its_rows_before_others_give_up(any_lab: Lab) -> None:
    """As a process that is stopped, or whose machine sleeps; what it was doing is done anew when it wakes up."""
    home = await make_home(any_lab)
    locked_it, may_go_on, tries = asyncio.Event(), asyncio.Event(), 0

    async def stand_still(tx: Tx) -> int:
        nonlocal tries
        tries += 1
        row = await tx.one("SELECT last_seq FROM thread WHERE thread_key = %s FOR UPDATE", A)
        assert row is not None
        locked_it.set()
        await may_go_on.wait()
        await tx.do("INSERT INTO lease VALUES ('l', 'p', %s)", row["last_seq"])
        return int(row["last_seq"])

    async with opened(home.url) as store, connections(home) as made:
        await put(store, "e1")
        standing = asyncio.create_task(made.run(stand_still))
        await locked_it.wait()
        assert (await store.accept(new_item("e2"), queue_limit=9)).seq == 2
        may_go_on.set()
        assert (await standing, tries) == (2, 2)
    assert await home.run_sql("SELECT lease_until FROM lease") == [(2,)]


async def test_a_statement_that_takes_too_long_is_ended_on_the_server_and_said(home: Home) -> None:
    async def sleep(tx: Tx) -> None:
        await tx.do("SET LOCAL statement_timeout = '20ms'")
        await tx.one("SELECT pg_sleep(60)")

    async with connections(home) as made:
        with pytest.raises(StoreError, match="took too long with a statement, which was ended"):
            await made.read(sleep)


async def test_a_server_that_stops_answering_is_hung_up_on(home: Home) -> None:
    """A backend that is stopped keeps no time limit, and hears no cancel."""
    stopped: list[int] = []

    async def stop(tx: Tx) -> None:
        row = await tx.one("SELECT pg_backend_pid() AS pid")
        assert row is not None
        stopped.append(row["pid"])
        os.kill(row["pid"], signal.SIGSTOP)
        await tx.one("SELECT 1")

    async with connections(home, silence_s=3.0) as made:  # longer than this process may stand still itself
        try:
            for use in (made.run, made.read):
                async with asyncio.timeout(PATIENCE_S):
                    with pytest.raises(StoreError, match="stopped answering"):
                        await use(stop)
            given_up = asyncio.create_task(made.run(stop))
            async with asyncio.timeout(PATIENCE_S):
                while len(stopped) < 3:  # noqa: ASYNC110 - no event tells it
                    await asyncio.sleep(0.01)
                given_up.cancel()
                await asyncio.wait({given_up})
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        assert await made.read(lambda tx: tx.one("SELECT 1 AS one")) == {"one": 1}


async def test_what_is_accepted_is_on_the_disk_whatever_the_server_is_set_to(home: Home) -> None:
    async with opened(home.url) as store:
        await home.run_sql(
            "CREATE TABLE seen (at serial, setting text);"
            " CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
            " INSERT INTO seen (setting) VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;"
            " CREATE TRIGGER note AFTER INSERT ON inbox EXECUTE FUNCTION note()"
        )
        for setting in ("off", "local", "remote_apply"):
            await home.run_sql(f"ALTER ROLE {home.role} SET synchronous_commit = {setting}")
            await hang_up(home)
            await put(store, setting)
    assert await home.run_sql("SELECT setting FROM seen ORDER BY at") == [("on",), ("on",), ("remote_apply",)]


async def test_text_that_postgres_has_no_room_for_is_kept_without_it(home: Home) -> None:
    async with opened(home.url) as store:
        await put(store, "e1")
        claimed = await claim(store)
        await begin(store, claimed, "r1")
        await store.finish_run(claimed, "r1", outcome("a\0b", "c\ud800d", posts=(new_post("k\0"),)))
        assert [message.body for message in await store.load_messages(A)] == ["a\ufffdb", "c\ufffdd"]
        await store.accept(new_item("e\0"), queue_limit=9)
        assert (await store.accept(new_item("e\0"), queue_limit=9)).outcome == "duplicate"


# -- a pooler in between ---------------------------------------------------------------------------


@pytest.mark.service("pgbouncer")
@pytest.mark.parametrize("server_connections", [1, 3])
async def test_everything_works_through_a_pooler_in_transaction_mode(any_lab: Lab, server_connections: int) -> None:
    home = await make_home(any_lab)
    with run_pooler(any_lab, server_connections=server_connections) as pooler:
        url = pooler.url(home.database, home.role)
        async with opened(url) as store, opened(url) as other:
            await asyncio.gather(*(_use(one, thread) for one in (store, other) for thread in ("1", "2", "3")))
            for n in range(3):
                await answer(store, f"r{n}", now=at(n))
            assert await store.claim_thread("p", prefixes=("",), lease_s=1, now=at(9)) is not None  # posts
            assert await other.verify_audit() == (6, None)


async def _use(store: Store, thread: str) -> None:
    await put(store, f"{thread} of {id(store)}", thread=f"slack:T1/C1/{thread}")
    await store.add_outbox(new_post(f"post {thread} of {id(store)}", f"slack:T1/C1/{thread}"))
    await store.add_audit(at=at(0), actor="U1", action="a", thread_key=A, run_id="", detail="")
    await store.ping()


# -- order and locks -------------------------------------------------------------------------------


async def test_a_thread_that_is_locked_is_passed_over_for_the_next_one(home: Home) -> None:
    async with opened(home.url) as store:
        await put(store, "e1", thread=A, received_at=at(0))
        await put(store, "e2", thread=B, received_at=at(1))
        async with locked(home, A):
            assert (await claim(store, now=at(2))).thread_key == B
        assert (await claim(store, now=at(2))).thread_key == A


async def test_the_only_thread_that_waits_is_waited_for_while_somebody_adds_to_it(home: Home) -> None:
    async with opened(home.url) as store:
        await put(store, "e1")
        async with locked(home, A):
            claiming = asyncio.create_task(claim(store))
            await wait_until_one_waits(home)
        assert (await claiming).thread_key == A


async def test_a_verb_waits_for_a_claim_that_is_just_being_taken_over_and_is_fenced_then(home: Home) -> None:
    async with opened(home.url) as store:
        await put(store, "e1")
        claimed = await claim(store)
        await begin(store, claimed, "r1")
        async with home.lab.admin(home.database) as admin, admin.transaction():
            await admin.execute("UPDATE thread SET owner = 'thief', epoch = epoch + 1")
            late = asyncio.create_task(store.begin_step(claimed, "r1", new_entry("s1"), at(1)))
            await wait_until_one_waits(home)
        with pytest.raises(Fenced):
            await late
        loaded = await store.load_run("r1")
        assert loaded is not None
        assert loaded[1] == ()


async def test_the_database_itself_allows_a_thread_one_unfinished_run(home: Home) -> None:
    async with opened(home.url) as store:
        await put(store, "e1")
        claimed = await claim(store)
        await begin(store, claimed, "r1")
        with pytest.raises(psycopg.errors.UniqueViolation, match="run_unfinished"):
            await home.run_sql(
                "INSERT INTO run (run_id, thread_key, agent, state, attempt, started_at, error, record)"
                f" VALUES ('r2', '{A}', 'ops', 'init', 1, 0, '', '')"
            )


async def test_verbs_of_one_thread_never_wait_for_each_other_in_a_circle(home: Home) -> None:
    async def change(store: Store, n: str) -> None:
        said = new_item(f"e{n}", payload='{"content": "x"}')
        await asyncio.gather(
            store.accept(said, queue_limit=2, refusal=new_post(f"full {n}")),
            store.add_outbox(new_post(f"post {n}")),
            store.erase_message(replace(new_item(f"gone {n}"), said_id=n), now=at(1)),
            store.save_output(A, n, "text", at(1)),
            store.forget_thread(A),
            store.free_owner("p1"),
        )

    async def work(store: Store, n: str) -> None:
        """Take a run over whose lease is always over already, and go on with it for as long as it is ours."""
        claimed = await store.claim_thread(n, prefixes=("slack:",), lease_s=0, now=at(100))
        if claimed is None:
            return  # somebody was faster
        with suppress(StoreError):
            if claimed.run is None:
                await begin(store, claimed, f"r{n}")
                return
            for step in range(3):
                await store.begin_step(claimed, claimed.run.run_id, new_entry(f"s{n}/{step}"), at(100))
            await store.renew_claim(claimed, lease_s=0, now=at(100))

    async with opened(home.url) as store, opened(home.url) as other:
        await put(store, "first")
        for n in range(15):
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(
                    *(change(one, f"{side}{n}") for side, one in (("a", store), ("b", other))),
                    *(work(one, f"{side}{n}") for one in (store, other) for side in "cdef"),
                )
        counted = f"SELECT deadlocks FROM pg_stat_database WHERE datname = '{home.database}'"
    assert await home.run_sql(counted) == [(0,)]


# -- cost ------------------------------------------------------------------------------------------


async def test_idle_threads_are_not_looked_at_by_those_who_look_for_work(home: Home) -> None:
    from bot.storage.postgres_claims import find_next_wake, find_waiting, list_owners

    async def look(tx: Tx) -> Row | None:
        now = 10**15
        assert await find_waiting(tx, ("slack:", "discord:"), now) == [1]
        await find_next_wake(tx, ("slack:", "discord:"), now)
        await list_owners(tx)
        return await tx.one(
            "SELECT seq_tup_read + idx_tup_fetch AS rows FROM pg_stat_xact_user_tables WHERE relname = 'thread'"
        )

    async with opened(home.url) as store, connections(home) as made:
        await put(store, "e1")
        await home.run_sql(
            "INSERT INTO thread (thread_key, last_seq, last_at) SELECT 'slack:T1/C1/' || n, 1, n"
            " FROM generate_series(1, 20000) n"
        )
        await home.run_sql("ANALYZE thread")
        seen = await made.run(look)
    assert seen is not None
    assert seen["rows"] < 20


# -- lists -----------------------------------------------------------------------------------------


def test_a_list_arrives_as_it_was(any_lab: Lab) -> None:
    with psycopg.connect(any_lab.server.url()) as connection:

        def send(values: Sequence[object], kind: str) -> object:
            row = connection.execute(f"SELECT %s::{kind}[]".encode(), [build_array(values)]).fetchone()
            return None if row is None else row[0]

        @given(st.lists(st.none() | st.just("NULL") | st.text(st.characters(exclude_characters="\0", codec="utf-8"))))
        def check_texts(values: list[str | None]) -> None:
            assert send(values, "text") == values

        check_texts()
        numbers = [0, -1, 2**63 - 1, -(2**63), None]
        assert send(numbers, "bigint") == numbers
        assert send([True, False, None], "boolean") == [True, False, None]
