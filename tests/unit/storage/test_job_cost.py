"""A look at the clock costs the same however many jobs wait and however much they have done; counted, not timed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bot.storage.jobs import Proposal
from bot.storage.migrate import migrate
from bot.storage.sqlite_claims import begin_send, claim_thread, knows_thread
from bot.storage.sqlite_connection import Tx
from bot.storage.sqlite_jobs import (
    delete_job,
    fire_job,
    list_due_jobs,
    list_job_runs,
    list_jobs,
    load_job,
    load_sequel,
    open_thread,
    save_job,
    save_proposal,
    take_proposal,
)
from bot.storage.sqlite_memory import count_kept, forget_thread
from bot.storage.sqlite_runs import begin_run, finish_run, list_sessions
from tests.contract.store.makers import ALL, T0, at, new_firing, new_job, new_opening, new_post, new_run, outcome

DUE = 10
A_TENTH = 1.1


@contextmanager
def _open(path: Path) -> Iterator[tuple[sqlite3.Connection, Tx]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        migrate(connection, path, patience_s=1)
        yield connection, Tx(connection)


def _count_steps(connection: sqlite3.Connection, work: Callable[[], None]) -> int:
    """Return the steps of SQLite's machine that some work takes."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, 1)
    work()
    connection.set_progress_handler(None, 1)
    return steps


def _count_tick(path: Path, *, waiting: int, done: int) -> int:
    """Return the steps of one look and of firing ten jobs that are due, each of which fired ``done`` times before."""
    with _open(path) as (connection, tx):
        connection.execute("BEGIN")
        for n in range(waiting):
            save_job(tx, new_job(f"waits-{n}", next_at=at(1 + n)), None)
        for n in range(DUE):
            job = replace(new_job(f"due-{n}"), next_at=at(-1))
            save_job(tx, job, None)
            firings = [new_firing(job, f"old-{key}") for key in range(done)]
            assert fire_job(tx, job, firings, job.next_at, T0, "queue") == ("fired",) * done
        tx.do("UPDATE inbox SET state = 'done'")
        connection.execute("COMMIT")

        def tick() -> None:
            jobs = list_due_jobs(tx, T0, 100)
            assert len(jobs) == DUE
            for job in jobs:
                following = T0 + timedelta(days=1)
                assert fire_job(tx, job, [new_firing(job, "new")], following, T0, "skip") == ("fired",)

        return _count_steps(connection, tick)


def test_a_tick_costs_the_same_with_ten_and_with_ten_thousand_jobs_that_wait(tmp_path: Path) -> None:
    few = _count_tick(tmp_path / "few.db", waiting=10, done=1)
    many = _count_tick(tmp_path / "many.db", waiting=10_000, done=1)
    assert 0 < many <= few * A_TENTH


def test_a_tick_costs_the_same_after_a_thousand_times_of_each_job(tmp_path: Path) -> None:
    few = _count_tick(tmp_path / "few.db", waiting=10, done=1)
    many = _count_tick(tmp_path / "many.db", waiting=10, done=1_000)
    assert 0 < many <= few * A_TENTH


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Tx]:
    """A transaction none of whose statements may read a table from one end to the other, or sort."""
    statements: list[str] = []
    with _open(tmp_path / "h.db") as (connection, tx):
        connection.set_trace_callback(statements.append)
        yield tx
        connection.set_trace_callback(None)
        plans = {sql: [row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")] for sql in statements}
    assert plans, "nothing was looked at"
    found = [
        f"{line} in {sql}"
        for sql, plan in plans.items()
        for line in plan
        if line.startswith("SCAN") or "TEMP B-TREE" in line
    ]
    assert found == []


def test_no_verb_for_jobs_reads_a_table_from_end_to_end(watched: Tx) -> None:
    tx = watched
    job = new_job()
    assert save_job(tx, job, None)
    assert save_job(tx, job, 1)
    (due,) = list_due_jobs(tx, T0, 100)
    assert fire_job(tx, due, [new_firing(job, key) for key in "ab"], T0, T0, "skip") == ("fired", "skipped")
    assert load_job(tx, job.name) == due
    assert list_jobs(tx, job.place) == (due,)
    assert len(list_job_runs(tx, job.job_id, 20)) == 2
    save_proposal(tx, Proposal(thread_key="t", author="slack:U1", body="{}", created_at=T0))
    assert take_proposal(tx, "t", "slack:U1", at(-1)) is not None
    assert delete_job(tx, job.job_id)


def test_nothing_about_a_reports_thread_reads_a_table_from_end_to_end(watched: Tx) -> None:
    tx = watched
    job, below = new_job(), "slack:T1/C1/1800.5"
    assert save_job(tx, job, None)
    assert fire_job(tx, job, [new_firing(job, "a")], None, T0, "skip") == ("fired",)
    claimed = claim_thread(tx, "p1", ALL, 30.0, T0)
    assert claimed is not None
    begin_run(tx, claimed, new_run("r1", claimed.thread_key), [item.id for item in claimed.items])
    post = new_post("r1/1", claimed.thread_key, run_id="r1")
    finish_run(tx, claimed, "r1", replace(outcome(posts=(post,)), sequel="body"))
    assert load_sequel(tx, "r1") == "body"
    (headline,) = tx.all("SELECT id FROM outbox WHERE key = 'r1/1'")
    begin_send(tx, claimed, headline["id"], T0)
    open_thread(tx, claimed, headline["id"], "r1", new_opening(below), "1800.5", T0)
    assert knows_thread(tx, below)
    assert count_kept(tx, below).messages == 2
    assert forget_thread(tx, below).messages == 2


def _count_listing(path: Path, reports: int) -> int:
    """Return the steps of listing the sessions of so many reports, each with a thread below it."""
    with _open(path) as (connection, tx):
        connection.execute("BEGIN")
        for n in range(reports):
            tx.do("INSERT INTO thread (thread_key, last_seq, last_at) VALUES (?, 1, 0)", f"report-{n}")
            tx.do("INSERT INTO thread (thread_key, last_at, opened_from) VALUES (?, 1, ?)", f"below-{n}", f"report-{n}")
        connection.execute("COMMIT")
        return _count_steps(connection, lambda: _check_listed(tx, reports))


def _check_listed(tx: Tx, reports: int) -> None:
    assert len(list_sessions(tx, 10**6, "")) == reports


def test_listing_sessions_costs_the_same_for_each_however_many_reports_there_are(tmp_path: Path) -> None:
    few, many = _count_listing(tmp_path / "few.db", 100), _count_listing(tmp_path / "many.db", 1_000)
    assert 0 < many <= 10 * few * A_TENTH
