"""Who waits for whom, from who holds and who waits for metadata locks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.tools.activity.mysql_blocking import build_mysql_knots, drop_past_waits
from bot.tools.activity.mysql_locks import Wait, conflicts, find_metadata_waits
from bot.tools.activity.sessions import Session

MODES = (
    "SHARED",
    "SHARED_HIGH_PRIO",
    "SHARED_READ",
    "SHARED_WRITE",
    "SHARED_WRITE_LOW_PRIO",
    "SHARED_UPGRADABLE",
    "SHARED_READ_ONLY",
    "SHARED_NO_WRITE",
    "SHARED_NO_READ_WRITE",
    "EXCLUSIVE",
)


def lock(pid: int, mode: str, status: str = "GRANTED", *, kind: str = "TABLE", name: str = "acct") -> dict[str, object]:
    return {"pid": pid, "type": kind, "in_schema": "shop", "name": name, "mode": mode, "status": status}


def edges(*rows: dict[str, object]) -> set[tuple[int, int]]:
    return {(wait.waiting, wait.blocking) for wait in find_metadata_waits(rows)}


def session(pid: int, state: str = "active") -> Session:
    return Session(
        pid=pid, leader_pid=None, kind="client connection", db="shop", user="app", app="", state=state, wait=None,
        query="select 1", query_id=None, query_s=3.0, xact_s=None, idle_s=None, idle_since=None, backend_start=None,
        hidden=False,
    )  # fmt: skip


@pytest.mark.parametrize("wanted", MODES)
@pytest.mark.parametrize("held", MODES)
def test_modes_conflict_both_ways_or_not_at_all(wanted: str, held: str) -> None:
    assert conflicts("TABLE", wanted, held) is conflicts("TABLE", held, wanted)


@pytest.mark.parametrize(
    ("kind", "wanted", "held", "waits"),
    [
        ("TABLE", "EXCLUSIVE", "SHARED_READ", True),
        ("TABLE", "SHARED_READ", "SHARED_WRITE", False),
        ("TABLE", "SHARED_READ", "SHARED_UPGRADABLE", False),
        ("TABLE", "SHARED_WRITE", "SHARED_NO_WRITE", True),
        ("USER LEVEL LOCK", "SHARED_NO_WRITE", "SHARED_NO_WRITE", True),
        ("GLOBAL", "INTENTION_EXCLUSIVE", "INTENTION_EXCLUSIVE", False),
        ("GLOBAL", "INTENTION_EXCLUSIVE", "SHARED", True),
        ("GLOBAL", "SHARED", "SHARED", False),
        ("BACKUP", "BACKUP_DML", "BACKUP_DDL", False),
        ("BACKUP", "BACKUP_TRANS_DML", "BACKUP_FTWRL2", True),
    ],
)
def test_a_request_waits_only_for_what_does_not_go_with_it(kind: str, wanted: str, held: str, waits: bool) -> None:
    assert conflicts(kind, wanted, held) is waits


def test_a_reader_behind_a_waiting_change_waits_for_the_change_and_not_for_other_readers() -> None:
    found = edges(
        lock(1, "SHARED_READ"),
        lock(2, "SHARED_WRITE"),
        lock(3, "SHARED_UPGRADABLE"),
        lock(3, "EXCLUSIVE", "PENDING"),
        lock(4, "SHARED_READ", "PENDING"),
    )
    assert found == {(3, 1), (3, 2), (4, 3)}


def test_locks_of_other_tables_and_ones_own_are_in_nobodys_way() -> None:
    assert (
        edges(lock(1, "EXCLUSIVE", name="other"), lock(2, "SHARED_UPGRADABLE"), lock(2, "EXCLUSIVE", "PENDING"))
        == set()
    )


rows = st.lists(
    st.builds(
        lock,
        st.integers(1, 5),
        st.sampled_from(MODES),
        st.sampled_from(["GRANTED", "PENDING"]),
        name=st.sampled_from(["a", "b"]),
    ),
    max_size=12,
)


@given(rows)
def test_nobody_waits_for_itself_and_only_who_wants_something_waits(found: list[dict[str, object]]) -> None:
    wanting = {row["pid"] for row in found if row["status"] == "PENDING"}
    for waiting, blocking in edges(*found):
        assert waiting != blocking
        assert waiting in wanting


def waits() -> list[Wait]:
    return find_metadata_waits([lock(1, "SHARED_READ"), lock(2, "EXCLUSIVE", "PENDING")])


@pytest.mark.parametrize(
    ("sessions", "left"),
    [
        ([session(1, "idle in transaction"), session(2)], 1),
        ([session(2)], 0),
        ([session(1)], 0),
        ([session(1), session(2, "idle")], 0),
    ],
    ids=["still there", "blocker gone", "waiter gone", "waiter idle"],
)
def test_waits_that_are_over_by_now_are_left_out(sessions: list[Session], left: int) -> None:
    assert len(drop_past_waits(waits(), {s.pid: s for s in sessions})) == left


def test_a_session_that_the_account_may_not_see_stays_in_the_tree_as_hidden() -> None:
    knots = build_mysql_knots(waits(), {2: session(2)})
    assert knots[1].state == "hidden"
    assert (knots[2].blockers, knots[2].wait_s) == (frozenset({1}), 3.0)
