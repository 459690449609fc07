"""What a report looks like: a headline of a few lines, and a body with the gaps and the sources behind it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.jobs.evidence import (
    MOST_FINGERPRINTS,
    Evidence,
    EvidenceCall,
    count_findings,
    find_fingerprints,
    select_rows,
)
from reading.layout import render_result
from reading.phrases import CHINESE as CHINESE_PHRASES
from reading.phrases import ENGLISH as ENGLISH_PHRASES

HEADLINE_LINES = 5
"""Of the message in the channel, its title included."""

LINE_CHARS = 400
"""Of one of them; the whole of a longer line stands in the body."""

TASK_CHARS = 120
"""Of an assignment that was not carried out."""

_RULE = re.compile(r" {0,3}([-*_])(?: *\1){2,} *")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_HEADING = re.compile(r"#{1,6} +(.*?)#* *")
_ENGLISH: Mapping[str, str] = {
    "quiet": "nothing to report",
    "offline": "Written without a language model: these are numbers that nobody has weighed.",
    "offline_short": "written without a language model",
    "unwritten": "The findings are listed as they are, since nobody could put them together: {reason}.",
    "gaps_short": "{gaps} of {all} parts came to nothing; the thread says why.",
    "more_targets": "… and {count} more in the thread.",
    "gaps": "Not found out",
    "dropped": "(Marks that name no finding were removed: {labels}.)",
    "sources": "Sources",
    "rests_on": "written from {labels}",
    "statements": "statements",
    "partly": "partly covered",
    "uncovered": "tool calls: {all}, of which {count} did not cover the whole time",
    "queries": "tool calls: {count}",
    "unusual": "nothing unusual",
    "elsewhere": "Other",
    "against": "against {range}",
    "get_slow_queries": "Slow statements",
    "compare_windows": "What moved",
    "index_health": "Indexes",
    "table_health": "Tables",
    "db_health": "Server",
    "running_queries": "Running now",
    "blocking_tree": "Who waits for whom",
    "n_get_slow_queries": "{n} slow statement(s), the slowest {worst:.3g} s a call",
    "n_compare_windows": "{n} statement(s) moved {against}",
    "n_index_health": "{n} index finding(s)",
    "n_table_health": "{n} table(s) with findings",
    "n_db_health": "{n} server check(s) warn",
    "n_running_queries": "{n} long running statement(s)",
    "n_blocking_tree": "{n} session(s) wait for locks",
}
_CHINESE: Mapping[str, str] = {
    "quiet": "没有需要报告的内容",
    "offline": "以下内容未使用语言模型：仅列出数字，未经评估。",
    "offline_short": "未使用语言模型",
    "unwritten": "无法把各项发现汇总成文，因此原样列出：{reason}。",
    "gaps_short": "{all} 项中有 {gaps} 项没有结果，原因见线程。",
    "more_targets": "……另有 {count} 个见线程。",
    "gaps": "未能查明",
    "dropped": "（已删除不对应任何发现的引用标记：{labels}。）",
    "sources": "来源",
    "rests_on": "依据 {labels}",
    "statements": "语句",
    "partly": "未完全覆盖",
    "uncovered": "工具调用：{all}，其中 {count} 次未覆盖整个时间段",
    "queries": "工具调用：{count}",
    "unusual": "没有异常",
    "elsewhere": "其他",
    "against": "对比 {range}",
    "get_slow_queries": "慢语句",
    "compare_windows": "变化",
    "index_health": "索引",
    "table_health": "表",
    "db_health": "服务器",
    "running_queries": "正在运行",
    "blocking_tree": "锁等待",
    "n_get_slow_queries": "{n} 条慢语句，最慢的每次 {worst:.3g} 秒",
    "n_compare_windows": "{n} 条语句{against}有变化",
    "n_index_health": "{n} 个索引问题",
    "n_table_health": "{n} 张表有问题",
    "n_db_health": "{n} 项服务器检查告警",
    "n_running_queries": "{n} 条长时间运行的语句",
    "n_blocking_tree": "{n} 个会话在等锁",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report as it is posted. ``body`` is empty where the headline says all there is."""

    headline: str
    body: str


def lay_out(
    title: str,
    written: str,
    evidence: Sequence[Evidence],
    *,
    chinese: bool,
    dropped: Sequence[str] = (),
    reason: str = "",
) -> Report:
    """Lay a report out.

    Args:
        title: its first line: what it is, of which targets and which time.
        written: what a model wrote: lines for the channel, a line ``---``, and the body; empty where none did.
        evidence: what it stands on.
        chinese: whether the fixed words are Chinese.
        dropped: marks that named no finding.
        reason: why nobody wrote it, where that is not for want of any model.
    """
    words = _CHINESE if chinese else _ENGLISH
    gaps = [one for one in evidence if one.gap]
    notes = [words["gaps_short"].format(gaps=len(gaps), all=len(evidence))] if gaps else []
    if written.strip():
        lines, rest = split_written(written)
    else:
        if not reason and not gaps and (quiet := _say_nothing(evidence, words)):
            return Report(headline=f"{title}: {quiet}", body="")
        lines, rest = _list_findings(evidence, words)
        said = words["unwritten"].format(reason=reason) if reason else words["offline"]
        notes = [" ".join([said, *notes])]
    if not rest and not gaps and len(lines) == 1 and len(lines[0]) <= LINE_CHARS:
        return Report(headline=f"{title}: {lines[0]}", body="")
    shown, cut = _fit(lines, HEADLINE_LINES - 1 - len(notes), words)
    parts = ["\n".join(cut), rest]
    parts += [words["dropped"].format(labels=", ".join(dropped))] if dropped else []
    parts += [_list_gaps(gaps, words), _list_sources(evidence, words)]
    return Report(headline="\n".join([title, *shown, *notes]), body="\n\n".join(filter(str.strip, parts)))


# -- what a model wrote --------------------------------------------------------------------------------


def split_written(text: str) -> tuple[list[str], str]:
    """Split a text into lines for the channel and the body: at its first line ``---``, else behind its first lines.

    A table or a fenced block is the body's, wherever it stands. Nothing is lost but empty lines and the rule itself.
    """
    lines = text.strip().splitlines()
    while lines and (_RULE.fullmatch(lines[0]) or not lines[0].strip()):
        del lines[0]
    end, fenced = None, False
    for n, line in enumerate(lines):
        fenced ^= _FENCE.match(line) is not None
        if not fenced and _RULE.fullmatch(line):
            end = n
            break
    head, rest = (lines, []) if end is None else (lines[:end], lines[end + 1 :])
    block = next((n for n, line in enumerate(head) if _FENCE.match(line) or line.lstrip().startswith("|")), len(head))
    head, rest = head[:block], [*head[block:], *([""] if rest else []), *rest]
    if end is None:
        filled = [n for n, line in enumerate(head) if line.strip()]
        if len(filled) > HEADLINE_LINES - 1:  # a text without a rule: a few lines, and the rest of it as it is
            at = filled[HEADLINE_LINES - 2]
            head, rest = head[:at], [*head[at:], *rest]
    return [_as_line(line) for line in head if line.strip()], "\n".join(rest).strip("\n")


def _as_line(line: str) -> str:
    heading = _HEADING.fullmatch(line.strip())
    return f"**{heading[1].strip()}**" if heading is not None and heading[1].strip() else line.strip()


def _fit(lines: Sequence[str], room: int, words: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the lines that are shown in the channel, and those that have to stand in the body."""
    shown, cut = list(lines[:room]), list(lines[room:])
    if cut:
        cut.insert(0, shown.pop())
        shown.append(words["more_targets"].format(count=len(cut)))
    long = [line for line in shown if len(line) > LINE_CHARS]
    shown = [f"{line[:LINE_CHARS].rsplit(' ', 1)[0]} …" if line in long else line for line in shown]
    return shown, [*long, *cut]


# -- what nobody wrote ---------------------------------------------------------------------------------


def _say_nothing(evidence: Sequence[Evidence], words: Mapping[str, str]) -> str:
    """Say that all is as usual, and what that rests on; empty where something was found."""
    calls = [call for one in evidence for call in one.calls]
    if not all(one.offline for one in evidence) or any(count_findings(call) for call in calls):
        return ""
    facts = [words["queries"].format(count=len(calls)), words["offline_short"]]
    if partly := sum(_is_partly(call) for call in calls):
        facts[0] = words["uncovered"].format(all=len(calls), count=partly)
    return f"{words['quiet']} ({'; '.join(facts)})"


def _list_findings(evidence: Sequence[Evidence], words: Mapping[str, str]) -> tuple[list[str], str]:
    """Return lines for the channel, and the body: what models said as it is, and what tools returned by target."""
    told = [one for one in evidence if not one.offline and one.finding.text]
    sections = [f"**[{one.label}]**\n\n{one.finding.text}" for one in told]
    by_target: dict[str, list[EvidenceCall]] = {}
    for call in (call for one in evidence if one.offline for call in one.calls if call.result.ok):
        by_target.setdefault(call.target, []).append(call)
    failed = {target: one.gap for one in evidence if one.gap for target in one.targets if target not in by_target}
    lines = [f"- **{target}**: {reason}" for target, reason in failed.items()]
    for target, theirs in by_target.items():
        found = [text for call in theirs if (text := _summarise(call, words))]
        lines.append(f"- **{target or words['elsewhere']}**: {'; '.join(found) or words['unusual']}")
        sections.append(f"## {target or words['elsewhere']}")
        sections += [_render(call, words) for call in theirs if count_findings(call)]
        quiet = [f"{_name(call, words)} [{call.label}]" for call in theirs if not count_findings(call)]
        sections += [f"{', '.join(quiet)}: {words['unusual']}"] if quiet else []
    return lines, "\n\n".join(filter(None, sections))


def _is_partly(call: EvidenceCall) -> bool:
    coverage = call.value.get("coverage") if isinstance(call.value, Mapping) else None
    return isinstance(coverage, Mapping) and coverage.get("complete") is False


def _summarise(call: EvidenceCall, words: Mapping[str, str]) -> str:
    n = count_findings(call)
    if not n:
        return ""
    if (form := words.get(f"n_{call.tool}")) is None or not isinstance(call.value, Mapping):
        return f"{_name(call, words)}: {n} [{call.label}]"
    rows = [*select_rows(call.value), *_list_rows(call.value.get("may_have_exceeded"))]
    durations = [d for row in rows if isinstance(d := row.get("duration", row.get("max_s")), int | float)]
    against = words["against"].format(range=_first_day(call)) if call.arguments.get("a") else ""
    text = form.format(n=n, worst=max(durations, default=0.0), against=against)
    return f"{text.replace('(s)', '' if n == 1 else 's').rstrip()} [{call.label}]"


def _list_rows(value: object) -> list[Mapping[str, object]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _name(call: EvidenceCall, words: Mapping[str, str]) -> str:
    name = words.get(call.tool, f"`{call.tool}`")
    return f"{name} {words['against'].format(range=_first_day(call))}" if call.arguments.get("a") else name


def _first_day(call: EvidenceCall) -> str:
    return str(call.arguments["a"]).partition("T")[0]


def _render(call: EvidenceCall, words: Mapping[str, str]) -> str:
    content = call.result.content
    if isinstance(call.value, Mapping) and not isinstance(call.value.get("columns"), list):
        shown = dict(call.value)
        if isinstance(shown.get("rows"), list):
            shown["rows"] = select_rows(call.value)
        content = json.dumps(shown, ensure_ascii=False)
    labels = (CHINESE_PHRASES if words is _CHINESE else ENGLISH_PHRASES).labels
    return f"### {_name(call, words)} [{call.label}]\n\n{render_result(content, labels)}"


# -- behind the text -----------------------------------------------------------------------------------


def _list_gaps(gaps: Sequence[Evidence], words: Mapping[str, str]) -> str:
    """List what was not found out; what failed for one reason is one line."""
    by_reason: dict[tuple[str, str], list[Evidence]] = {}
    for one in gaps:
        by_reason.setdefault((", ".join(one.targets), one.gap), []).append(one)
    lines = []
    for (targets, reason), ones in by_reason.items():
        tools = [f"`{tool}`" for tool in dict.fromkeys(call.tool for one in ones for call in one.calls)]
        tasks = [_shorten(one.finding.assignment.task) for one in ones if not one.calls]
        what = " ".join(filter(None, [f"**{targets}**" if targets else "", ", ".join([*tools, *tasks])]))
        labels = " ".join(f"[{one.label}]" for one in ones)
        lines.append(f"- {what}: {reason} {labels}")
    return "\n".join([f"**{words['gaps']}**", "", *lines]) if lines else ""


def _shorten(task: str) -> str:
    task = " ".join(task.split())
    return task if len(task) <= TASK_CHARS else f"{task[: TASK_CHARS - 1]}…"


def _list_sources(evidence: Sequence[Evidence], words: Mapping[str, str]) -> str:
    labels = {one.finding.assignment.id: one.label for one in evidence}
    lines = []
    for one in evidence:
        calls = [_describe(call, words) for call in one.calls if call.result.ok]
        given = [f"[{labels[id]}]" for id in one.finding.assignment.depends_on if id in labels]
        if given and one.finding.text:
            calls.append(words["rests_on"].format(labels=" ".join(given)))
        if calls:
            lines.append(f"- [{one.label}]: {'; '.join(calls)}")
    return "\n".join([f"**{words['sources']}**", "", *lines]) if lines else ""


def _describe(call: EvidenceCall, words: Mapping[str, str]) -> str:
    """Name a tool call by tool, target, time and statements."""
    parts = [f"`{call.tool}`{f' {call.target}' if call.target else ''}"]
    ranges = [str(v) for k in ("a", "b", "time_range") if (v := call.arguments.get(k))]
    if ranges:
        partly = f" ({words['partly']})" if _is_partly(call) else ""
        parts.append(f"{' → '.join(ranges)}{partly}")
    prints = find_fingerprints(call)
    if prints:
        more = f" (+{len(prints) - MOST_FINGERPRINTS})" if len(prints) > MOST_FINGERPRINTS else ""
        parts.append(f"{words['statements']} {' '.join(f'`{p}`' for p in prints[:MOST_FINGERPRINTS])}{more}")
    return ", ".join(parts)
