"""The schema is brought up to date, and what is not ours is left alone."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bot.storage import open_store
from bot.storage.base import StoreError
from bot.storage.migrate import load_migrations, migrate, split_statements

NEWEST = load_migrations()[-1][0]
TABLES = {
    "approval", "audit", "draft", "erased", "feedback", "inbox", "installation", "lease", "message", "outbox", "output",
    "proposal", "run", "schedule", "schedule_run", "schema_version", "sequel", "snapshot", "snapshot_row", "statement",
    "step", "summary", "thread", "usage", "used_nonce",
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "h.db"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as opened:
        yield opened


def _tables(connection: sqlite3.Connection) -> set[str]:
    rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return {row[0] for row in rows}


def test_a_fresh_file_gets_every_table(connection: sqlite3.Connection, path: Path) -> None:
    assert migrate(connection, path, patience_s=1) == NEWEST
    assert _tables(connection) == TABLES


def test_migrating_again_changes_nothing(connection: sqlite3.Connection, path: Path) -> None:
    migrate(connection, path, patience_s=1)
    before = connection.execute("SELECT * FROM schema_version").fetchall()
    assert migrate(connection, path, patience_s=1) == NEWEST
    assert connection.execute("SELECT * FROM schema_version").fetchall() == before


def test_a_database_of_a_newer_hermod_is_refused_and_left_as_it_is(connection: sqlite3.Connection, path: Path) -> None:
    migrate(connection, path, patience_s=1)
    connection.execute("INSERT INTO schema_version VALUES (?, 0)", (NEWEST + 3,))
    with pytest.raises(StoreError, match=rf"newer Hermod \(schema {NEWEST + 3}, this one knows {NEWEST}\)"):
        migrate(connection, path, patience_s=1)
    assert not connection.in_transaction


def test_a_database_of_another_program_is_refused_and_left_as_it_is(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("CREATE TABLE invoices (id)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        migrate(connection, path, patience_s=1)
    assert path.read_bytes() == before


def test_waiting_for_another_process_ends(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA busy_timeout = 0")
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            migrate(connection, path, patience_s=0.1)
    migrate(connection, path, patience_s=1)


def test_a_file_that_another_process_holds_for_a_moment_is_migrated_after_it(
    connection: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute("PRAGMA busy_timeout = 0")
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(time, "sleep", lambda _: holder.in_transaction and holder.execute("COMMIT"))
        assert migrate(connection, path, patience_s=30) == NEWEST


def test_migrations_are_numbered_from_one_without_a_gap() -> None:
    assert [number for number, _ in load_migrations()] == list(range(1, NEWEST + 1))


def test_the_database_itself_refuses_a_second_unfinished_run(connection: sqlite3.Connection, path: Path) -> None:
    migrate(connection, path, patience_s=1)
    connection.execute("INSERT INTO thread (thread_key, last_at) VALUES ('t', 0)")
    add = (
        "INSERT INTO run (run_id, thread_key, agent, state, attempt, started_at, ended_at, error, record)"
        " VALUES (?, 't', 'a', ?, 1, 0, ?, '', '')"
    )
    connection.execute(add, ("r1", "finished", 1))
    connection.execute(add, ("r2", "thinking", None))
    with pytest.raises(sqlite3.IntegrityError, match=r"run\.thread_key"):
        connection.execute(add, ("r3", "init", None))


@pytest.mark.parametrize(
    ("sql", "statements"),
    [
        ("", ()),
        ("-- only a comment\n", ()),
        ("SELECT 1;\nSELECT 2;\n", ("SELECT 1;", "SELECT 2;")),
        ("SELECT ';\n';\n", ("SELECT ';\n';",)),
        ("-- a; b;\nSELECT 1;\n", ("-- a; b;\nSELECT 1;",)),
        (
            "CREATE TRIGGER x AFTER INSERT ON t BEGIN\n  SELECT 1;\n  SELECT 2;\nEND;\n",
            ("CREATE TRIGGER x AFTER INSERT ON t BEGIN\n  SELECT 1;\n  SELECT 2;\nEND;",),
        ),
    ],
)
def test_statements_are_split_where_they_end(sql: str, statements: tuple[str, ...]) -> None:
    assert split_statements(sql) == statements


def test_a_statement_without_an_end_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no end"):
        split_statements("SELECT 1;\nSELECT 2\n")


def test_a_file_of_the_first_schema_keeps_its_steps(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT")
    for statement in split_statements(load_migrations()[0][1]):
        connection.execute(statement)
    connection.execute("INSERT INTO schema_version VALUES (1, 0)")
    connection.execute("INSERT INTO thread (thread_key, last_at) VALUES ('t', 0)")
    connection.execute("INSERT INTO run VALUES ('r', 't', 'ops', 'finished', 1, 0, 1, '', '')")
    connection.execute("INSERT INTO step VALUES ('r', 1, 'model:1', 'model', 'm', 'd', 'read', 'done', 'said', 0, 1)")
    assert migrate(connection, path, patience_s=1) == NEWEST
    assert connection.execute("SELECT key, kind, result FROM step").fetchall() == [("model:1", "model", "said")]
    assert connection.execute("SELECT run_id, reason FROM run").fetchall() == [("r", "")]
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute("INSERT INTO step VALUES ('r', 2, 'x', 'dream', 'm', 'd', 'read', 'done', '', 0, 1)")


def test_a_file_of_the_schema_before_readings_had_rows_keeps_all_else(
    connection: sqlite3.Connection, path: Path
) -> None:
    connection.execute("CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT")
    for number, sql in load_migrations()[:6]:
        for statement in split_statements(sql):
            connection.execute(statement)
        connection.execute("INSERT INTO schema_version VALUES (?, 0)", (number,))
    connection.execute("INSERT INTO thread (thread_key, last_at) VALUES ('t', 0)")
    connection.execute("INSERT INTO snapshot (target, taken_at, payload) VALUES ('shop', 5, 'c-jjs0ss')")
    assert migrate(connection, path, patience_s=1) == NEWEST
    assert _tables(connection) == TABLES
    assert connection.execute("SELECT thread_key FROM thread").fetchall() == [("t",)]
    # a reading of the old form says nothing to the new one: the history begins anew
    assert connection.execute("SELECT count(*) FROM snapshot").fetchall() == [(0,)]
    connection.execute("INSERT INTO snapshot (target, taken_at, chain, head) VALUES ('shop', 6, 1, '{}')")
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


_ROWS = (
    "INSERT INTO thread (thread_key, last_seq, last_message_seq, last_at) VALUES ('t', 2, 1, 5)",
    "INSERT INTO run VALUES ('r', 't', 'ops', 'finished', 1, 0, 1, '', 'trace')",
    "INSERT INTO inbox (event_key, thread_key, seq, kind, payload, received_at, state, run_id)"
    " VALUES ('e1', 't', 1, 'message', '{\"id\": \"m1\"}', 0, 'done', 'r')",
    "INSERT INTO inbox (event_key, thread_key, seq, kind, payload, received_at, state)"
    " VALUES ('e2', 't', 2, 'message', '{}', 0, 'open')",
    "INSERT INTO step VALUES ('r', 1, 'model:1', 'model', 'm', 'd', 'read', 'done', 'said', 0, 1)",
    "INSERT INTO message (thread_key, seq, run_id, role, body, tokens, created_at)"
    " VALUES ('t', 1, 'r', 'user', '{}', 3, 0)",
    "INSERT INTO outbox (key, thread_key, run_id, body, created_at, state, next_at)"
    " VALUES ('k', 't', 'r', 'posted', 0, 'delivered', 0)",
    "INSERT INTO usage (run_id, thread_key, author, provider, model, requests, input_tokens, output_tokens, at)"
    " VALUES ('r', 't', 'slack:U1', 'main', 'm', 1, 2, 3, 4)",
)


@pytest.mark.parametrize("version", range(1, NEWEST))
def test_a_file_of_each_earlier_schema_keeps_its_rows_and_takes_jobs(
    connection: sqlite3.Connection, path: Path, version: int
) -> None:
    connection.execute("PRAGMA foreign_keys = ON")  # as the store has it
    connection.execute("CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT")
    for number, sql in load_migrations()[:version]:
        for statement in split_statements(sql):
            connection.execute(statement)
        connection.execute("INSERT INTO schema_version VALUES (?, 0)", (number,))
    for statement in _ROWS:
        connection.execute(statement)
    kept = {
        table: connection.execute(f"SELECT * FROM {table}").fetchall()
        for table in ("thread", "run", "inbox", "step", "message", "outbox", "usage")
    }
    assert migrate(connection, path, patience_s=1) == NEWEST
    assert _tables(connection) == TABLES
    for table, rows in kept.items():
        now = connection.execute(f"SELECT * FROM {table}").fetchall()
        assert [new[: len(old)] for new, old in zip(now, rows, strict=True)] == rows
    assert connection.execute("SELECT opened_from FROM thread").fetchall() == [(None,)]
    assert connection.execute("SELECT job_id FROM inbox").fetchall() == [("",), ("",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.execute(
        "INSERT INTO schedule VALUES"
        " ('j', 'daily', 'chat', 'slack:T1/C1', '', '', '{}', 'active', '', NULL, '', 0, 0, 1)"
    )
    connection.execute("INSERT INTO schedule_run (schedule_id, run_key, fired_at, thread_key) VALUES ('j', '1', 0, '')")
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        connection.execute("DELETE FROM schedule")


async def test_a_store_of_the_schema_before_jobs_goes_on(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as before:
        before.execute("CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT")
        for number, sql in load_migrations()[:7]:
            for statement in split_statements(sql):
                before.execute(statement)
            before.execute("INSERT INTO schema_version VALUES (?, 0)", (number,))
        for statement in _ROWS:
            before.execute(statement)
    store = open_store(f"sqlite:///{path}")
    await store.open()
    try:
        assert await store.knows_thread("t")
        assert [item.event_key for item in await store.load_open("t")] == ["e2"]
        assert await store.list_jobs() == ()
        assert [row.thread_key for row in await store.list_sessions()] == ["t"]
        assert (await store.forget_thread("t")).texts == 2
    finally:
        await store.close()
