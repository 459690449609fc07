"""What a report looks like: five lines at most, nothing lost, and one line where there is nothing to say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from agent_core.runtime.state import RunRecord
from agent_core.supervisor import Assignment, Finding
from agent_core.tools.base import ToolResult
from bot.jobs.evidence import Evidence, EvidenceCall
from bot.jobs.layout import HEADLINE_LINES, LINE_CHARS, lay_out, split_written

NOW = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
TITLE = "**Daily: morning** · shop"


def call(id: str, tool: str, value: Mapping[str, object], **arguments: object) -> EvidenceCall:
    content = json.dumps(value)
    result = ToolResult(call_id=id, name=tool, ok=value.get("ok") is not False, content=content, started_at=NOW)
    return EvidenceCall(
        id=f"{id}_1", label=f"sql_optimizer:{id}", tool=tool, arguments=arguments, result=result, value=value
    )


def found(id: str, *calls: EvidenceCall, text: str = "looked", gap: str = "", offline: bool = False) -> Evidence:
    assignment = Assignment(id=id, worker="sql_optimizer", task=f"task of {id}")
    record = RunRecord(run_id=f"r-{id}", agent="sql_optimizer", query="", started_at=NOW)
    finding = Finding(assignment=assignment, text=text, gap=gap, record=record)
    return Evidence(finding=finding, calls=calls, offline=offline)


SLOW = call("a1", "get_slow_queries", {"ok": True, "target": "shop", "rows": [{"duration": 2.0, "fingerprint": "f1"}]})
LINES = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=30).map(lambda t: f"w{t}w"),
        st.sampled_from(["---", "***", "```", "# Title", "| a | b |", "| - | - |", "- item", "", "  ", "x" * 900]),
        st.sampled_from(["word " * 200, "- [sql_optimizer:a1] point"]),
    ),
    max_size=14,
)


def words_of(text: str) -> list[str]:
    """The words of a text without marks of headings and emphasis, in any order."""
    return sorted(text.replace("*", " ").replace("#", " ").split())


@given(LINES, st.booleans())
@example(["---"], False)
@example(["```", "---", "```", "---", "end"], False)
def test_no_line_is_lost_and_the_headline_has_five_at_most(lines: list[str], gap: bool) -> None:
    evidence = [found("a1", SLOW), found("a2", gap="it broke" if gap else "", text="" if gap else "fine")]
    text = "\n".join(["Begin.", *lines])
    report = lay_out(TITLE, text, evidence, chinese=False)
    assert len(report.headline.splitlines()) <= HEADLINE_LINES
    assert all(len(line) <= LINE_CHARS + 2 for line in report.headline.splitlines())
    everything = words_of(f"{report.headline}\n{report.body}")
    for word in words_of(text):
        assert word in everything or set(word) <= set("-_") or word == "*" * len(word)
    assert "```" not in report.headline
    assert "1 of 2 parts" in report.headline or not gap


@given(LINES)
def test_a_text_is_split_at_its_first_rule_outside_of_code(lines: list[str]) -> None:
    head, rest = split_written("\n".join(["one", "two", "---", *lines]))
    assert head == ["one", "two"]
    assert words_of(rest) == words_of("\n".join(lines))


def test_a_text_without_a_rule_shows_its_first_lines() -> None:
    head, rest = split_written("\n\n".join(f"Line {n}." for n in range(9)))
    assert head == ["Line 0.", "Line 1.", "Line 2."]
    assert rest.split("\n\n")[0] == "Line 3."


def test_a_table_never_stands_in_the_channel() -> None:
    head, rest = split_written("Slow.\n| a |\n| - |\n| 1 |\n---\nBody.")
    assert head == ["Slow."]
    assert rest == "| a |\n| - |\n| 1 |\n\nBody."


def test_one_line_with_a_gap_is_not_nothing_to_say() -> None:
    report = lay_out(
        TITLE, "Fine [sql_optimizer:a1].", [found("a1", SLOW), found("a2", text="", gap="it broke")], chinese=False
    )
    assert report.headline.splitlines() == [
        TITLE,
        "Fine [sql_optimizer:a1].",
        "1 of 2 parts came to nothing; the thread says why.",
    ]
    assert "- task of a2: it broke [sql_optimizer:a2]" in report.body


def test_gaps_of_one_reason_are_one_line() -> None:
    down = {"ok": False, "error": {"code": "connection_failed", "message": "nothing answers"}}
    evidence = [
        found(f"a{n}", call(f"a{n}", tool, down, target="crm"), offline=True)
        for n, tool in enumerate(("db_health", "index_health"), 1)
    ]
    report = lay_out(TITLE, "", evidence, chinese=False)
    assert "- **crm** `db_health`, `index_health`: nothing answers [sql_optimizer:a1] [sql_optimizer:a2]" in report.body
    assert "- **crm**: nothing answers" in report.headline.splitlines()


def test_nothing_to_report_says_what_it_rests_on() -> None:
    quiet = call("a1", "index_health", {"ok": True, "target": "shop", "coverage": {"complete": True}, "rows": []})
    partly = call("a2", "compare_windows", {"ok": True, "target": "shop", "coverage": {"complete": False}, "rows": []})
    one = [found("a1", quiet, offline=True)]
    assert lay_out(TITLE, "", one, chinese=False).headline == (
        f"{TITLE}: nothing to report (tool calls: 1; written without a language model)"
    )
    both = [*one, found("a2", partly, offline=True)]
    assert "tool calls: 2, of which 1 did not cover the whole time" in lay_out(TITLE, "", both, chinese=False).headline


def test_more_targets_than_lines_are_counted_and_stand_in_the_body() -> None:
    evidence = [
        found(
            f"a{n}",
            call(f"a{n}", "get_slow_queries", {"ok": True, "target": f"db{n}", "rows": [{"duration": n}]}),
            offline=True,
        )
        for n in range(1, 10)
    ]
    report = lay_out(TITLE, "", evidence, chinese=False)
    assert len(report.headline.splitlines()) == HEADLINE_LINES
    assert "… and 7 more in the thread." in report.headline
    assert all(f"**db{n}**" in report.headline + report.body for n in range(1, 10))


def test_statements_that_only_may_have_been_slow_are_not_nothing() -> None:
    value = {"ok": True, "target": "shop", "rows": [], "may_have_exceeded": [{"sql": "select 1", "max_s": 3.0}]}
    report = lay_out(TITLE, "", [found("a1", call("a1", "get_slow_queries", value), offline=True)], chinese=False)
    assert "1 slow statement, the slowest 3 s a call" in report.headline


def test_sources_name_times_and_statements() -> None:
    rows = [{"fingerprint": f"f{n}"} for n in range(8)]
    value = {"ok": True, "target": "shop", "rows": rows, "coverage": {"complete": False}}
    one = call("a1", "compare_windows", value, a="A/B", b="C/D", target="shop")
    report = lay_out(TITLE, "x\n---\ny", [found("a1", one)], chinese=True)
    assert "**来源**" in report.body
    assert "`compare_windows` shop, A/B → C/D (未完全覆盖), 语句 `f0` `f1` `f2` `f3` `f4` (+3)" in report.body
