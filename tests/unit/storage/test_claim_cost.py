"""Looking for work costs the same however much lies idle; counted in steps of SQLite's machine, not in time."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from bot.storage.migrate import migrate
from bot.storage.rows import build_micros
from bot.storage.sqlite_claims import accept, claim_thread, find_next_wake, find_waiting
from bot.storage.sqlite_connection import Tx
from tests.contract.store.makers import ALL, T0, new_item


def _count_steps(folder: Path, idle_threads: int, old_items: int) -> int:
    """Return the machine steps of one look, one claim and one wake time."""
    path = folder / f"{idle_threads}.db"
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        migrate(connection, path, patience_s=1)
        tx = Tx(connection)
        connection.execute("BEGIN")
        accept(tx, new_item("open"), 10**6, None)
        for n in range(old_items):
            accept(tx, new_item(f"old/{n}"), 10**6, None)
        tx.do("UPDATE inbox SET state = 'done' WHERE event_key LIKE 'old/%'")
        for n in range(idle_threads):
            tx.do("INSERT INTO thread (thread_key, last_at) VALUES (?, 0)", f"slack:T1/C2/{n}")
        connection.execute("COMMIT")
        connection.set_progress_handler(count, 1)
        now = build_micros(T0)
        assert find_waiting(tx, ALL, now) is not None
        claimed = claim_thread(tx, "p1", ALL, 30.0, T0)
        assert claimed is not None
        assert len(claimed.items) == 1
        find_next_wake(tx, ALL, now)
        connection.set_progress_handler(None, 1)
    return steps


def test_a_claim_costs_the_same_with_ten_idle_threads_and_with_five_thousand(tmp_path: Path) -> None:
    few, many = _count_steps(tmp_path, 10, 10), _count_steps(tmp_path, 5000, 1000)
    assert few > 0
    assert many <= few * 1.05
