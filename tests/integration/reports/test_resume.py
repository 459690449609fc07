"""A report whose process died goes on with the first step that is missing."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from agent_core.context import JournalEntry, MemoryJournal, StepState
from agent_core.llm.openai_compat import OpenAICompatible
from bot.storage.sqlite import SqliteStore
from tests.integration.reports.stage import DIVIDES, WRITES, Desk, Stage, plan_call, read_body, wait_for
from tests.servers.openai import OpenAIServer

OPTIMIZER = "^You are sql_optimizer"
ROWS: list[dict[str, object]] = [{"sql": f"select {n}", "duration": 2.0, "fingerprint": f"fp{n}"} for n in range(30)]


class Death(BaseException):
    """The process ends here."""


class DyingJournal(MemoryJournal):
    """Dies at its n-th call; before that it keeps everything, as a database would."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1
        self.calls = 0

    async def begin(self, entry: JournalEntry) -> JournalEntry | None:
        self._live()
        return await super().begin(entry)

    async def finish(self, key: str, state: StepState, result: str) -> None:
        self._live()
        await super().finish(key, state, result)

    def _live(self) -> None:
        self.calls += 1
        if self.left == 0:
            raise Death
        self.left -= 1


def play(server: OpenAIServer) -> None:
    server.on(system=DIVIDES).tools(
        plan_call(("a1", "sql_optimizer", "slow statements of shop"), ("a2", "sql_optimizer", "health of crm"))
    )
    server.on(system=OPTIMIZER, user="slow statements", step=0).tools(("get_slow_queries", {"target": "shop"}))
    server.on(system=OPTIMIZER, user="health of crm", step=0).tools(("db_health", {"target": "crm"}))
    server.on(system=OPTIMIZER).text("looked")
    server.on(system=WRITES).text("Slow [sql_optimizer:a1].\n---\nThe body [sql_optimizer:a2].")


PARTS = {
    "decomposition/model:1": ("You divide a task", 0),
    "w1/model:1": ("slow statements of shop", 0),
    "w1/model:2": ("slow statements of shop", 1),
    "w2/model:1": ("health of crm", 0),
    "w2/model:2": ("health of crm", 1),
    "synthesis/model:1": ("You write the answer", 0),
}
"""The model steps of the report, and how their requests are known."""


def name_asked(server: OpenAIServer) -> Counter[tuple[str, int]]:
    """How often each step's question was asked."""
    known = {words for words, _ in PARTS.values()}
    found = Counter[tuple[str, int]]()
    for request in server.requests:
        said = request.last_said if request.system.startswith("You are sql_optimizer") else request.system
        found[next(words for words in known if said.startswith(words)), request.step] += 1
    return found


async def test_a_report_that_was_stopped_before_its_text_asks_no_worker_again(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    hanging = server.on(system=WRITES).hang().times(1)
    play(server)
    journal, desk = MemoryJournal(), Desk(rows={"get_slow_queries": list(ROWS)})
    first = asyncio.create_task(Stage(store, model, desk=desk).run(journal=journal))
    await wait_for(lambda: hanging.used == 1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    before = len(server.requests)
    answer = await Stage(store, model, desk=desk).run(journal=journal)
    assert [r.system[:20] for r in server.requests[before:]] == ["You write the answer"]
    assert sorted(desk.asked) == [("db_health", "crm"), ("get_slow_queries", "shop")]
    assert answer.text.splitlines()[1] == "Slow [sql_optimizer:a1]."


async def test_a_resumed_report_brings_the_same_text_files_and_evidence(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    play(server)
    journal, desk = MemoryJournal(), Desk(rows={"get_slow_queries": list(ROWS)})
    first = await Stage(store, model, desk=desk).run(journal=journal)
    asked = len(server.requests)
    second = await Stage(store, model, desk=desk).run(journal=journal)
    assert (second.text, second.sequel) == (first.text, first.sequel)
    assert len(server.requests) == asked
    files = [file for reply in read_body(second)[1] for file in reply.files]
    assert [file.name for file in files] == ["slow-queries-shop.csv"]
    assert files[0].content.count("\n") == len(ROWS) + 1


async def test_a_report_that_dies_at_any_step_is_the_same_in_the_end_and_no_finished_step_is_done_twice(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    play(server)
    whole = DyingJournal()
    expected = await Stage(store, model).run(journal=whole)
    assert whole.calls >= 12
    for moment in range(whole.calls):
        server.requests.clear()
        journal, desk = DyingJournal(), Desk()
        journal.left = moment
        with pytest.raises(Death):
            await Stage(store, model, desk=desk).run(journal=journal)
        done = {key for key, entry in journal.entries.items() if entry.state is StepState.DONE}
        tools = Counter(desk.asked)
        server.requests.clear()  # what was under way may still arrive; it is of a step that is not finished
        journal.left = -1
        answer = await Stage(store, model, desk=desk).run(journal=journal)
        assert (answer.text, answer.sequel) == (expected.text, expected.sequel), moment
        finished = {PARTS[key] for key in done & PARTS.keys()}
        assert not finished & name_asked(server).keys(), moment
        assert set(PARTS.values()) - finished <= name_asked(server).keys(), moment
        finished_tools = sum("tool:" in key for key in done)
        assert sum((Counter(desk.asked) - tools).values()) == 2 - finished_tools, moment
