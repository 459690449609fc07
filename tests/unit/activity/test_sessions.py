"""Rows of pg_stat_activity, of versions that cannot be run here too, and the folding of parallel workers."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.tools.activity.sessions import Session, columns, fold_workers, read_session
from bot.tools.activity.wording import fit_queries, say_seconds
from bot.tools.slow_queries.redact_sql import redact_sql

PLAIN = Session(
    pid=1, leader_pid=None, kind="client backend", db="shop", user="app", app="", state="active", wait=None,
    query="select 1", query_id=None, query_s=1.0, xact_s=None, idle_s=None, idle_since=None, backend_start=None,
    hidden=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("version", "missing"), [(120_022, {"leader_pid", "query_id"}), (130_020, {"query_id"}), (140_000, set())]
)
def test_columns_that_a_version_does_not_have_are_not_asked_for(version: int, missing: set[str]) -> None:
    """https://www.postgresql.org/docs/14/release-14.html and release-13; from documentation, never run on 12 to 14."""
    asked = set(re.findall(r"\ba\.(leader_pid|query_id)\b", columns(version)))
    assert asked == {"leader_pid", "query_id"} - missing


def test_waiting_for_the_client_is_no_wait_and_bytes_of_other_encodings_are_read() -> None:
    row = {
        "pid": 1,
        "leader_pid": None,
        "kind": "client backend",
        "db": "größe".encode("latin-1"),
        "username": b"app",
        "app": b"",
        "state": "idle in transaction",
        "wait_event_type": "Client",
        "wait_event": "ClientRead",
        "query": "select 'ü'".encode("latin-1"),
        "query_id": None,
        "query_s": -0.000_01,
        "xact_s": 2,
        "idle_s": 1.5,
        "idle_since": "2026-01-31T08:00:00.000000Z",
        "backend_start": "2026-01-31T07:00:00.000000Z",
        "hidden": False,
    }
    session = read_session(row)
    assert (session.wait, session.query_s, session.db) == (None, 0.0, "gr\ufffd\ufffde")
    assert session.is_idle_in_transaction


def test_d37_workers_stand_under_their_leader_and_a_worker_without_one_for_itself() -> None:
    """https://github.com/ankane/pghero/issues/258, https://github.com/dalibo/pg_activity/issues/68."""
    leader = replace(PLAIN, pid=10, leader_pid=10)
    workers = [replace(PLAIN, pid=pid, leader_pid=10, kind="parallel worker") for pid in (11, 12)]
    orphan = replace(PLAIN, pid=20, leader_pid=99, kind="parallel worker")
    folded = fold_workers([workers[0], leader, orphan, workers[1]])
    assert [(session.pid, count) for session, count in folded] == [(10, 2), (20, 0)]


@given(st.lists(st.text(max_size=3_000), max_size=60))
def test_statements_of_an_answer_have_a_bound_together(queries: list[str]) -> None:
    shown, left_out = fit_queries(queries, redact_sql)
    assert len(shown) == len(queries)
    assert sum(map(len, shown)) <= max(10_000, 160 * len(queries))
    assert left_out.bytes >= 0


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.04, "0.0 s"), (3.21, "3.2 s"), (59.6, "60 s"), (3_600, "60 min"), (90_000, "25 h"), (None, "an unknown time")],
)
def test_durations_in_sentences_have_a_unit(value: float | None, said: str) -> None:
    assert say_seconds(value) == said
