"""What is kept of a thread is told in numbers, and forgetting it leaves a receipt and a line of the audit chain."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from agent_core.context import SystemClock
from agent_core.llm.cache import AnswerCache, CacheQuestion, MemoryExact
from agent_core.llm.scripted import ScriptedProvider, call, say
from agent_core.tools.registry import ToolRegistry
from bot.answer import Answer
from bot.audit import AuditLog
from bot.forget import NOTHING, NOTHING_FORGOTTEN, STAYS, ThreadMemory
from bot.storage.base import AuditRow, StoreError
from bot.storage.sqlite import SqliteStore
from tests.unit.bot.desk import Desk, desk
from tests.unit.bot.recording import ALICE, BOB, message
from tests.unit.bot.test_reports import BODY, WrittenReports, fire, put

KEY = message("").thread.key


def build_tools() -> ToolRegistry:
    registry = ToolRegistry()

    async def look() -> str:
        """Look."""
        return "Nemo"

    registry.register(look)
    return registry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hermod.db"  # where the store of this folder's tests is


def read_audit(path: Path) -> list[tuple[str, str, dict[str, int]]]:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT actor, thread_key, detail FROM audit WHERE action = 'thread.forgotten'")
        return [(actor, thread, json.loads(detail)) for actor, thread, detail in rows]


async def test_a_thread_is_shown_then_forgotten_and_nothing_of_it_is_left(store: SqliteStore, path: Path) -> None:
    made, provider = desk(
        store, [call(("look", {})), say("Nemo is fine"), say("I know nothing")], registry=build_tools()
    )
    await made.inbox.accept(message("how is Nemo?", number=1))
    await made.dispatcher.work_all()
    for number, word in enumerate(("memory", "forget", "memory", "!memory", "!forget"), 2):
        await made.inbox.accept(message(word, number=number, author=BOB))
        await made.dispatcher.work_all()
    shown, receipt, *empty = made.texts[1:]
    assert shown.startswith("I keep of this thread:\n- 4 messages of its history (")
    assert "- 1 trace of runs\n- 3 steps of runs\n- 2 texts of questions and answers" in shown
    assert receipt.startswith("I have forgotten this thread:\n- 4 messages of its history (")
    assert receipt.endswith(STAYS)
    assert all("its history" not in text for text in empty)
    assert "Nemo" not in "".join(closing_dump(path))
    ((actor, thread, detail), *_) = read_audit(path)
    assert (actor, thread, detail["messages"], detail["steps"]) == ("memory:W1/U2", KEY, 4, 3)
    await made.inbox.accept(message("and now?", number=9))
    await made.dispatcher.work_all()
    assert [m.content for m in provider.requests[-1].messages[1:]] == ["and now?"]


def closing_dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


async def test_a_thread_of_which_nothing_is_kept_says_so_and_leaves_no_line(store: SqliteStore, path: Path) -> None:
    memory = ThreadMemory(store, AuditLog(store, SystemClock()))
    assert await memory.show(KEY) == NOTHING
    assert await memory.forget(message("").thread, ALICE) == NOTHING_FORGOTTEN
    assert read_audit(path) == []


async def test_answers_in_the_cache_are_counted_and_forgotten(store: SqliteStore, path: Path) -> None:
    cache = AnswerCache(exact=MemoryExact(), wait_s=30.0)
    for text, origin in (("one?", KEY), ("two?", KEY), ("three?", "memory:W1/C1/other")):
        await cache.keep(CacheQuestion(scope="s", text=text, context="c", origin=origin), "answer")
    memory = ThreadMemory(store, AuditLog(store, SystemClock()), cache=cache)
    assert "- 2 answers in the cache" in await memory.show(KEY)
    assert "- 2 answers in the cache" in await memory.forget(message("").thread, ALICE)
    assert await cache.count("memory:W1/C1/other") == 1
    assert [detail["answers"] for _, _, detail in read_audit(path)] == [2]


class NoAudit(SqliteStore):
    async def add_audit(
        self, *, at: datetime, actor: str, action: str, thread_key: str, run_id: str, detail: str
    ) -> AuditRow:
        raise StoreError("the disk is full")


async def test_what_cannot_be_written_into_the_audit_chain_is_not_done(tmp_path: Path) -> None:
    store = NoAudit(tmp_path / "other.db")
    await store.open()
    made, _ = desk(store, [say("hello")])
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    memory = ThreadMemory(store, AuditLog(store, SystemClock()))
    with pytest.raises(StoreError):
        await memory.forget(message("").thread, ALICE)
    assert len(await store.load_messages(KEY)) == 2
    await store.close()


class KeptFilesOfThreads:
    """Counts of files by thread."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts

    async def count(self, thread_key: str) -> int:
        return self.counts.get(thread_key, 0)

    async def forget(self, thread_key: str) -> int:
        return self.counts.pop(thread_key, 0)


async def test_files_of_a_report_are_forgotten_with_the_thread_below_it(store: SqliteStore) -> None:
    """They are kept where the report was made, which is not the thread that people see."""
    reports = WrittenReports(Answer(text="3 slow queries", sequel=BODY))
    made = Desk(store, ScriptedProvider([]), reports=reports)
    await put(store, fire())
    await made.dispatcher.work_all()
    below = replace(fire().thread, thread="m1")
    files = KeptFilesOfThreads({fire().thread.key: 2, below.key: 1, KEY: 5})
    memory = ThreadMemory(store, AuditLog(store, SystemClock()), files=files)
    assert "3 files" in await memory.show(below.key)
    assert "3 files" in await memory.forget(below, ALICE)
    assert files.counts == {KEY: 5}
