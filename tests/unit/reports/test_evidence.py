"""What a report's thread remembers: valid, bounded, and whole where it matters."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from agent_core.context import MemoryOutputs, RunContext
from agent_core.memory.conversation import Conversation
from agent_core.memory.validity import is_sendable
from agent_core.runtime.events import ToolFinished
from agent_core.runtime.state import RunRecord, Step
from agent_core.supervisor import Assignment, Finding
from agent_core.tools.base import ToolResult
from bot.jobs.evidence import (
    HISTORY_TOKENS,
    Evidence,
    EvidenceCall,
    ResultListener,
    build_evidence_files,
    build_history,
    collect_evidence,
    select_rows,
    trim_value,
)
from reading.past import parse_result

NOW = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
COUNT = Conversation().count


def make(id: str, tool: str, *contents: str, ok: bool = True) -> Evidence:
    """A finding over calls that returned these texts."""
    calls = tuple(
        EvidenceCall(
            id=f"{id}_{n}",
            label=f"analyst:{id}",
            tool=tool,
            arguments={"target": "shop"},
            result=ToolResult(call_id=f"c{n}", name=tool, ok=ok, content=content, started_at=NOW),
            value=parse_result(content),
        )
        for n, content in enumerate(contents, 1)
    )
    record = RunRecord(run_id=f"r-{id}", agent="analyst", query="", started_at=NOW)
    finding = Finding(assignment=Assignment(id=id, worker="analyst", task="look"), text="t", record=record)
    return Evidence(finding=finding, calls=calls, offline=False)


CELLS = st.one_of(
    st.none(), st.integers(-5, 5), st.text(max_size=30), st.just("x" * 900), st.just([]), st.just("表" * 300)
)
ROWS = st.lists(st.dictionaries(st.sampled_from(["sql", "calls", "findings", "start"]), CELLS, max_size=4), max_size=30)
CONTENTS = st.one_of(
    ROWS.map(lambda rows: json.dumps({"ok": True, "rows": rows}, ensure_ascii=False)),
    st.text(max_size=200),
    st.sampled_from(["", "{", "[1, 2]", "null", '{"rows": 3}', "y" * 30_000]),
)


@given(st.lists(st.lists(CONTENTS, max_size=4), max_size=6), st.sampled_from(["short", "long " * 9_000]))
def test_the_history_is_sendable_and_small_whatever_the_tools_returned(made: list[list[str]], report: str) -> None:
    evidence = [make(f"a{n}", "get_slow_queries", *contents) for n, contents in enumerate(made, 1)]
    history = build_history("the task", evidence, report, count=COUNT)
    messages = [message for message, _ in history.messages]
    assert is_sendable(messages)
    assert (messages[0].role, messages[0].content) == ("user", "the task")
    assert messages[-1].role == "assistant"
    assert messages[-1].content.startswith(report[:100])
    assert sum(tokens for _, tokens in history.messages) <= HISTORY_TOKENS
    outputs = dict(history.outputs)
    for one in evidence:
        for call in one.calls:
            shown = next((m.content for m in messages if m.tool_call_id == call.id), "")
            if "characters left out" in shown or "rows_left_out" in shown:
                assert outputs[call.id] == call.result.content


def test_rows_that_say_nothing_are_left_out_and_kept_whole() -> None:
    checks = [{"check": f"c{n}", "status": "ok" if n else "critical", "value": n} for n in range(5)]
    one = make("a1", "db_health", json.dumps({"ok": True, "rows": checks}))
    history = build_history("task", [one], "report", count=COUNT)
    (shown,) = [m.content for m, _ in history.messages if m.role == "tool"]
    assert '"rows_left_out":4' in shown
    assert '"critical"' in shown
    assert dict(history.outputs)["a1_1"] == one.calls[0].result.content


def test_rows_are_cut_from_their_end_so_that_numbers_of_rows_stay() -> None:
    rows = [{"sql": f"select {n}", "note": "n" * 600} for n in range(200)]
    history = build_history("task", [make("a1", "q", json.dumps({"ok": True, "rows": rows}))], "report", count=COUNT)
    (shown,) = [m.content for m, _ in history.messages if m.role == "tool"]
    kept = json.loads(shown)["rows"]
    assert kept == rows[: len(kept)]
    assert len(kept) >= 3
    assert json.loads(shown)["rows_left_out"] == 200 - len(kept)


def test_of_too_many_calls_those_that_found_nothing_are_left_out_first() -> None:
    quiet = [
        make(f"a{n}", "index_health", json.dumps({"ok": True, "rows": [], "note": "n" * 300})) for n in range(1, 70)
    ]
    loud = make("a70", "get_slow_queries", json.dumps({"ok": True, "rows": [{"fingerprint": "f1"}]}))
    history = build_history("task", [*quiet, loud], "report", count=COUNT)
    assert [m.tool_call_id for m, _ in history.messages if m.role == "tool"] == ["a70_1"]


def test_spans_without_numbers_and_empty_fields_are_left_out() -> None:
    rows = [{"start": n, "end": n + 1, "calls": n or None, "mean_s": None} for n in range(3)]
    value, left_out = trim_value({"ok": True, "rows": rows, "warnings": [], "took_ms": 3})
    assert value == {"ok": True, "rows": [{"start": 1, "end": 2, "calls": 1}, {"start": 2, "end": 3, "calls": 2}]}
    assert left_out == 1
    assert select_rows({"rows": 3}) == []


async def test_results_are_matched_to_their_steps_and_private_ones_are_left_out() -> None:
    outputs = MemoryOutputs()
    ctx = RunContext.create("t1", outputs=outputs)
    await outputs.put("t1", "c2", "the whole of it")
    heard = ResultListener()

    def step(name: str, detail: str) -> Step:
        return Step(
            n=1, kind="tool", name=name, started_at=NOW, duration_s=0.0, detail=detail, arguments='{"target": "shop"}'
        )

    def hear(call_id: str, name: str, content: str, *, truncated: bool = False) -> None:
        result = ToolResult(call_id=call_id, name=name, ok=True, content=content, started_at=NOW, truncated=truncated)
        heard.on_event(ToolFinished(run_id="r-w1", result=result))

    hear("c2", "q", "a part", truncated=True)  # they end in another order than they were asked for
    hear("c1", "q", "first")
    hear("c3", "secret", "rows")
    hear("c4", "read_output", "more")
    steps = (
        step("q", "first"),
        step("q", "a part"),
        step("secret", "rows"),
        step("read_output", "more"),
        step("q", "refused"),
    )
    record = RunRecord(run_id="r-w1", agent="analyst", query="", started_at=NOW, steps=steps)
    finding = Finding(assignment=Assignment(id="a1", worker="analyst", task="t"), text="t", record=record)
    (one,) = await collect_evidence(
        ctx, [finding], heard, is_private=lambda name: name == "secret", is_offline=lambda finding: False
    )
    assert [(call.id, call.result.content) for call in one.calls] == [("a1_1", "first"), ("a1_2", "the whole of it")]
    assert one.targets == ("shop",)


def test_of_equal_results_one_file_is_made_and_statements_come_first() -> None:
    slow = json.dumps(
        {"ok": True, "target": "shop", "rows": [{"sql": f"select {n}", "duration": 1.0} for n in range(30)]}
    )
    tables = json.dumps(
        {"ok": True, "target": "shop", "rows": [{"table": f"t{n}", "size_bytes": n} for n in range(30)]}
    )
    evidence = [
        make("a1", "table_health", tables),
        make("a2", "get_slow_queries", slow),
        make("a3", "get_slow_queries", slow),
    ]
    assert [file.name for file in build_evidence_files(evidence)] == ["slow-queries-shop.csv", "table-health-shop.csv"]
    many = [make(f"a{n}", "other", tables.replace("shop", f"db{n}")) for n in range(1, 9)]
    names = [file.name for file in build_evidence_files([*many, *evidence])]
    assert "slow-queries-shop.csv" in names
    assert len(names) == 4
