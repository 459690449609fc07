"""A question about one row of a report is answered from what its thread holds, also without a language model."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from agent_core.llm.types import ModelMessage, ToolCall
from agent_core.tools.registry import ToolRegistry
from reading.reply import Reader, Reply

ROWS = [{"sql": f"select {n} from t where a = $1", "duration": n / 10, "fingerprint": f"fp{n}"} for n in range(1, 5)]
CHECKS = [{"check": f"c{n}", "status": "warning", "value": n} for n in range(1, 7)]


def ask(text: str, *, explain: bool = False) -> Reply:
    """Ask in a thread that holds four statements and then six checks."""
    registry = ToolRegistry()

    async def table_health(target: str | None = None) -> str:
        """Look at tables: rows, size, bloat."""
        return ""

    async def explain_query(sql: str, target: str | None = None) -> str:
        """Explain how a statement would run: its plan."""
        return ""

    registry.register(table_health)
    if explain:
        registry.register(explain_query)
    calls = [
        ("a1_1", "get_slow_queries", {"ok": True, "target": "shop", "rows": ROWS}),
        ("a2_1", "db_health", {"ok": True, "target": "shop", "rows": CHECKS}),
    ]
    messages = [ModelMessage(role="user", content="**Daily** report")]
    for id, tool, result in calls:
        call = ToolCall(id=id, name=tool, arguments='{"target": "shop"}')
        messages.append(ModelMessage(role="assistant", content="", tool_calls=(call,)))
        messages.append(ModelMessage(role="tool", content=json.dumps(result), tool_call_id=id))
    messages += [ModelMessage(role="assistant", content="The report."), ModelMessage(role="user", content=text)]
    return Reader(lambda: datetime(2026, 3, 2, 8, 0, tzinfo=UTC)).reply(messages, registry.specs())


@pytest.mark.parametrize(
    "question",
    [
        "what is row 3?",
        "Explain row 3",
        "show me the third one",
        "第3行是什么",
        "解释一下第三行",
        "what does line 3 mean",
    ],
)
def test_a_row_is_shown_without_a_new_call(question: str) -> None:
    reply = ask(question)
    assert reply.calls == ()
    assert "`select 3 from t where a = $1`" in reply.text
    assert "300 ms" in reply.text
    assert "`get_slow_queries` (shop)" in reply.text
    assert "select 2" not in reply.text


def test_a_row_that_no_list_of_statements_has_is_that_of_another_list() -> None:
    assert "c6" in ask("what is row 6?").text


@pytest.mark.parametrize(
    ("question", "said"), [("what is row 9?", "There is no row 9"), ("第9行是什么", "没有第 9 行")]
)
def test_a_row_that_is_not_there_is_said(question: str, said: str) -> None:
    reply = ask(question)
    assert (reply.calls, said in reply.text) == ((), True)


def test_what_a_tool_can_do_with_a_row_is_done() -> None:
    (call,) = ask("explain row 3", explain=True).calls
    assert (call.name, call.arguments["sql"]) == ("explain_query", "select 3 from t where a = $1")


def test_a_question_about_something_else_is_not_taken_for_one_about_a_row() -> None:
    (call,) = ask("table health, please, and what of row 3").calls
    assert call.name == "table_health"
