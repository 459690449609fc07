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
    assert "1 statement may have been slow, 3 s at most `select 1`" in report.headline
    assert "slowest" not in report.headline


def test_sources_name_times_and_statements() -> None:
    rows = [{"fingerprint": f"f{n}"} for n in range(8)]
    value = {"ok": True, "target": "shop", "rows": rows, "coverage": {"complete": False}}
    one = call("a1", "compare_windows", value, a="A/B", b="C/D", target="shop")
    report = lay_out(TITLE, "x\n---\ny", [found("a1", one)], chinese=True)
    assert "**来源**" in report.body
    assert "`compare_windows` shop, A/B → C/D (未完全覆盖), 语句 `f0` `f1` `f2` `f3` `f4` (+3)" in report.body


def fails(id: str, tool: str, target: str, code: str, **arguments: object) -> Evidence:
    error = {"code": code, "message": f"{tool} cannot do that on {target}"}
    return found(id, call(id, tool, {"ok": False, "error": error}, target=target, **arguments), offline=True)


def before(day: int) -> str:
    """A day of March, as tools read it."""
    return f"2026-03-0{day + 1}T08:00:00Z/2026-03-0{day + 2}T08:00:00Z"


def test_what_is_not_stored_yet_is_one_plain_line_and_no_part_that_failed() -> None:
    evidence = [
        found("a1", SLOW, offline=True),
        *(
            fails(f"a{n}", "compare_windows", "shop" if n < 4 else "crm", "no_history", a=before(n % 2))
            for n in range(2, 6)
        ),
    ]
    report = lay_out(TITLE, "", evidence, chinese=False)
    assert "came to nothing" not in report.headline
    (line,) = [line for line in report.body.splitlines() if "nothing to compare with yet" in line]
    assert line.startswith("- **shop, crm** `compare_windows` against 2026-03-01, 2026-03-02: ")
    assert all(f"[sql_optimizer:a{n}]" in line for n in range(2, 6))
    assert "cannot do that" not in report.body


def test_a_first_day_on_which_all_is_as_usual_is_one_line_that_says_what_is_missing() -> None:
    quiet = call("a1", "index_health", {"ok": True, "target": "shop", "rows": []})
    evidence = [found("a1", quiet, offline=True), fails("a2", "compare_windows", "shop", "no_history")]
    report = lay_out(TITLE, "", evidence, chinese=False)
    assert report.body == ""
    (line,) = report.headline.splitlines()
    assert "nothing to report (tool calls: 1; nothing to compare with yet" in line


def test_a_target_that_tools_are_not_for_is_one_line_behind_those_with_findings() -> None:
    tools = ("get_slow_queries", "compare_windows", "db_health")
    evidence = [
        *(fails(f"a{n}", tool, "lite", "unsupported", a=before(1)) for n, tool in enumerate(tools, 2)),
        found("a1", SLOW, offline=True),
        fails("a9", "db_health", "crm", "connection_failed"),
    ]
    report = lay_out(TITLE, "", evidence, chinese=False)
    lines = report.headline.splitlines()
    assert lines[1] == "- **crm**: db_health cannot do that on crm"
    assert lines[2].startswith("- **shop**: 1 slow statement")
    assert lines[3] == "- **lite**: nothing in this report is for this kind of target"
    assert lines[4].endswith("1 of 5 parts came to nothing; the thread says why.")
    labels = "[sql_optimizer:a2] [sql_optimizer:a3] [sql_optimizer:a4]"
    told = "`get_slow_queries`, `compare_windows`, `db_health`: not for this kind of target"
    assert f"- **lite** {told} {labels}" in report.body
    alone = lay_out(TITLE, "", evidence[:3], chinese=False)
    assert "nothing to report" not in alone.headline
    assert "- **lite**: nothing in this report is for this kind of target" in alone.headline


def test_targets_that_are_as_usual_take_one_line_behind_those_with_findings() -> None:
    quiet = [
        found(f"a{n}", call(f"a{n}", "db_health", {"ok": True, "target": f"db{n}", "rows": []}), offline=True)
        for n in range(2, 9)
    ]
    report = lay_out(TITLE, "", [*quiet, found("a1", SLOW, offline=True)], chinese=False)
    assert report.headline.splitlines()[1].startswith("- **shop**: 1 slow statement")
    assert report.headline.splitlines()[2] == "- **db2, db3, db4, db5, db6, db7, db8**: nothing unusual"


def test_the_headline_names_the_worst_statement_with_units() -> None:
    slow = [{"sql": "select a", "duration": 0.176}, {"sql": "select b", "duration": 2.51}]
    moved = [
        {"change": "regressed", "extra_s": 2.9, "mean_a_s": 0.0458, "mean_b_s": 0.0869, "sql": f"select {'c' * 200}"},
        {"change": "new", "extra_s": 9.0, "mean_b_s": 0.5, "sql": "select d"},
    ]
    range_before = "2026-03-01T23:30:00Z/2026-03-02T23:30:00Z"
    evidence = [
        found("a1", call("a1", "get_slow_queries", {"ok": True, "target": "shop", "rows": slow}), offline=True),
        found("a2", call("a2", "compare_windows", {"ok": True, "target": "shop", "rows": moved}, a=range_before)),
    ]
    evidence = [found(one.finding.assignment.id, *one.calls, offline=True) for one in evidence]
    headline = lay_out(TITLE, "", evidence, chinese=False, zone="Europe/Berlin").headline
    assert "2 slow statements, the slowest 2.51 s a call `select b` [sql_optimizer:a1]" in headline
    assert "1 regressed, 1 new against 2026-03-02, 45.8 ms → 86.9 ms a call `select ccc" in headline
    assert len(headline.splitlines()[1]) < LINE_CHARS
    chinese = lay_out(TITLE, "", evidence, chinese=True, zone="Europe/Berlin").headline
    assert "2 条慢语句，最慢的每次 2.51 s `select b`" in chinese
    assert "1 条变慢, 1 条新出现 对比 2026-03-02" in chinese


def test_times_are_those_of_the_jobs_zone() -> None:
    window = {"asked_start": "2026-03-01T08:00:00Z", "start": "2026-03-01T08:00:07Z"}
    window |= {"asked_end": "2026-03-02T08:00:00Z", "end": "2026-03-02T08:00:00Z"}
    value = {
        "ok": True,
        "target": "shop",
        "window": window,
        "coverage": {"complete": False, "reasons": ["nothing is known of the time before 2026-03-01T08:00:07Z"]},
        "rows": [{"sql": "select '2026-03-01T08:00:07Z'", "duration": 1.0}],
    }
    asked = "2026-03-01T08:00:00Z/2026-03-02T08:00:00Z"
    one = found("a1", call("a1", "get_slow_queries", value, time_range=asked), offline=True)
    body = lay_out(TITLE, "", [one], chinese=False, zone="Asia/Shanghai").body
    assert "Window: 2026-03-01 16:00 → 2026-03-02 16:00" in body
    assert "before 2026-03-01 16:00:07" in body
    assert "UTC" not in body
    assert "`get_slow_queries` shop, 2026-03-01 16:00 – 2026-03-02 16:00 (partly covered)" in body
    assert "select '2026-03-01T08:00:07Z'" in body


def test_a_shift_is_compared_with_the_hours_before_it() -> None:
    value = {"ok": True, "target": "shop", "rows": [{"change": "new", "sql": "select 1"}]}
    hours = "2026-03-01T20:00:00Z/2026-03-02T08:00:00Z"
    one = found("a1", call("a1", "compare_windows", value, a=hours), offline=True)
    report = lay_out(TITLE, "", [one], chinese=False, zone="Europe/Berlin")
    assert "1 new against 2026-03-01 21:00 – 2026-03-02 09:00 [sql_optimizer:a1]" in report.headline


def test_a_line_is_not_cut_inside_of_code() -> None:
    line = f"{'word ' * 75}`select a, b, c from orders where customer_id = $1` is slow"
    headline = lay_out(TITLE, f"{line}\n---\nbody", [found("a1", SLOW)], chinese=False).headline
    assert headline.splitlines()[1] == f"{'word ' * 75}…"


def test_what_nobody_put_together_stands_in_the_channel_in_numbers() -> None:
    fine = call("a2", "db_health", {"ok": True, "target": "crm", "rows": []})
    broken_off = found("a2", fine, text='raw: {"ok": true}', gap="the limit of 10 tokens was reached")
    report = lay_out(TITLE, "", [found("a1", SLOW), broken_off], chinese=False, reason="it is down")
    assert report.headline.splitlines()[1:] == [
        "- **crm**: the limit of 10 tokens was reached",
        "- **shop**: 1 slow statement, the slowest 2 s a call [sql_optimizer:a1]",
        "The findings are listed as they are, since nobody could put them together: it is down. "
        "1 of 2 parts came to nothing or broke off; the thread says why.",
    ]
    assert "**[sql_optimizer:a1]**\n\nlooked" in report.body
    assert "Server [sql_optimizer:a2]: nothing unusual" in report.body
    assert "raw:" not in report.body


def test_a_target_of_which_a_look_failed_is_not_said_to_be_as_usual() -> None:
    quiet = call("a1", "db_health", {"ok": True, "target": "crm", "rows": []})
    evidence = [found("a1", quiet, offline=True), fails("a2", "get_slow_queries", "crm", "permission_denied")]
    headline = lay_out(TITLE, "", evidence, chinese=False).headline
    assert headline.splitlines()[1] == "- **crm**: get_slow_queries cannot do that on crm"
    assert "nothing unusual" not in headline
