"""What tools found, in numbers: the lines and the tables of a report that nobody wrote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from bot.jobs.evidence import Evidence, EvidenceCall, count_findings, select_rows
from bot.jobs.report_words import Wording
from reading.cells import write_code, write_duration
from reading.layout import render_result

SQL_CHARS = 70
"""Of a statement in the channel."""

_CHANGES = ("regressed", "new", "improved", "gone")
_COMPARED = ("change", "ratio", "mean_a_s", "mean_b_s", "calls_b", "sql")
"""Of a movement: what a reader needs of it; the file has the rest."""

_SIDES = ("a", "b", "common_factor", "tested")


def say_nothing(evidence: Sequence[Evidence], words: Wording) -> str:
    """Say that all is as usual, and what that rests on; empty where something was found, or nothing was looked at."""
    calls = [call for one in evidence for call in one.calls if not one.expected]
    if not calls or not all(one.offline for one in evidence) or any(count_findings(call) for call in calls):
        return ""
    facts = [words["queries"].format(count=len(calls)), words["offline_short"]]
    if partly := sum(is_partly(call) for call in calls):
        facts[0] = words["uncovered"].format(all=len(calls), count=partly)
    if any(one.expected == "no_history" for one in evidence):
        facts.insert(1, words["no_history"])
    return f"{words['quiet']} ({'; '.join(facts)})"


def list_findings(evidence: Sequence[Evidence], words: Wording) -> tuple[list[str], str]:
    """Return lines for the channel, worst first, and the body.

    The body has what models said as it is, and what tools returned by target.
    """
    told = [one for one in evidence if _is_told(one)]
    sections = [f"**[{one.label}]**\n\n{one.finding.text}" for one in told]
    by_target: dict[str, list[tuple[Evidence, EvidenceCall]]] = {}
    for one in evidence:
        for call in (call for call in one.calls if call.result.ok):
            by_target.setdefault(call.target, []).append((one, call))
    faults = {target for one in evidence if one.gap and not one.expected for target in one.targets}
    found, quiet, known = list[str](), list[str](), by_target.keys() - faults
    for target, theirs in by_target.items():
        name = target or words["elsewhere"]
        if said := [text for _, call in theirs if (text := _summarise(call, words))]:
            found.append(f"- **{name}**: {'; '.join(said)}")
            known |= {target}
        elif target not in faults and not any(one in told for one, _ in theirs):
            quiet.append(name)
        bare = [call for one, call in theirs if one not in told]
        sections += [f"## {name}"] if bare else []
        sections += [_render(call, words) for call in bare if count_findings(call)]
        usual = [f"{_name(call, words)} [{call.label}]" for call in bare if not count_findings(call)]
        sections += [f"{', '.join(usual)}: {words['unusual']}"] if usual else []
    failed, left_out = _list_failed(evidence, known, words)
    rest = [f"- **{', '.join(quiet)}**: {words['unusual']}"] if quiet else []
    return [*failed, *found, *rest, *left_out], "\n\n".join(filter(None, sections))


def _is_told(one: Evidence) -> bool:
    """Tell whether a model came to an end with it; of what was broken off, the tables say more."""
    return not one.offline and bool(one.finding.text) and not (one.finding.gap and one.calls)


def _list_failed(evidence: Sequence[Evidence], known: Collection[str], words: Wording) -> tuple[list[str], list[str]]:
    """List the targets of which nothing is known: those that failed, and those that nothing here is for."""
    reasons: dict[str, tuple[str, str]] = {}
    for one in evidence:
        for target in one.targets if one.gap else ():
            if target not in reasons or (reasons[target][0] and not one.expected):  # a fault tells more
                reasons[target] = (one.expected, one.gap)
    mine = {target: reason for target, reason in reasons.items() if target not in known}
    failed = [f"- **{target}**: {reason}" for target, (code, reason) in mine.items() if not code]
    said: dict[str, list[str]] = {}
    for target, (code, _) in mine.items():
        if code:
            said.setdefault(words["nothing_for" if code == "unsupported" else code], []).append(target)
    return failed, [f"- **{', '.join(targets)}**: {text}" for text, targets in said.items()]


def is_partly(call: EvidenceCall) -> bool:
    """Tell whether a result does not cover the whole time that was asked for."""
    coverage = call.value.get("coverage") if isinstance(call.value, Mapping) else None
    return isinstance(coverage, Mapping) and coverage.get("complete") is False


def _summarise(call: EvidenceCall, words: Wording) -> str:
    n = count_findings(call)
    if not n:
        return ""
    if f"n_{call.tool}" not in words.words or not isinstance(call.value, Mapping):
        return f"{_name(call, words)}: {n} [{call.label}]"
    rows = select_rows(call.value)
    if call.tool == "get_slow_queries":
        text = _say_slow(rows, _list_rows(call.value.get("may_have_exceeded")), words)
    elif call.tool == "compare_windows":
        text = _say_moved(rows, _say_against(call, words), words)
    else:
        text = words.say(f"n_{call.tool}", n)
    return f"{text} [{call.label}]"


def _say_slow(rows: Sequence[Mapping[str, object]], maybe: Sequence[Mapping[str, object]], words: Wording) -> str:
    """Say how many statements were slow, and which one most; what may have been slow is told apart."""
    parts = []
    for key, ones, field in (("n_get_slow_queries", rows, "duration"), ("n_maybe_slow", maybe, "max_s")):
        if ones:
            worst = max(ones, key=lambda row: _read_number(row.get(field)))
            text = words.say(key, len(ones), worst=write_duration(_read_number(worst.get(field))))
            parts.append(f"{text}{_show_sql(worst)}")
    return "; ".join(parts)


def _say_moved(rows: Sequence[Mapping[str, object]], against: str, words: Wording) -> str:
    counted = Counter(str(row.get("change")) for row in rows)
    said = [words.say(change, counted[change]) for change in _CHANGES if counted[change]]
    if not said:
        return words.say("n_compare_windows", len(rows), against=against).rstrip()
    slower = [row for row in rows if row.get("change") == "regressed"]
    worst = max(slower, key=lambda row: _read_number(row.get("extra_s")), default=None)
    text = " ".join(filter(None, [", ".join(said), against]))
    if worst is None:
        return text
    before, after = (write_duration(_read_number(worst.get(key))) for key in ("mean_a_s", "mean_b_s"))
    return f"{text}, {words['a_call'].format(before=before, after=after)}{_show_sql(worst)}"


def _show_sql(row: Mapping[str, object]) -> str:
    sql = row.get("sql")
    return f" {write_code(sql, SQL_CHARS)}" if isinstance(sql, str) and sql.strip() else ""


def _read_number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _list_rows(value: object) -> list[Mapping[str, object]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _name(call: EvidenceCall, words: Wording) -> str:
    name = words.words.get(call.tool, f"`{call.tool}`")
    return " ".join(filter(None, [name, _say_against(call, words)]))


def _say_against(call: EvidenceCall, words: Wording) -> str:
    """Say with what a call compares; empty where it does not compare."""
    return words["against"].format(range=say_before(call, words)) if call.arguments.get("a") else ""


def say_before(call: EvidenceCall, words: Wording) -> str:
    """Say which time a call compares with: of whole days the first one, else all of it."""
    before = words.write_range(str(call.arguments.get("a") or ""))
    first, _, last = before.partition(" – ")
    return first.partition(" ")[0] if first.partition(" ")[2] == last.partition(" ")[2] else before


def _render(call: EvidenceCall, words: Wording) -> str:
    content = call.result.content
    if isinstance(call.value, Mapping) and not isinstance(call.value.get("columns"), list):
        shown = dict(call.value)
        if isinstance(shown.get("rows"), list):
            shown["rows"] = select_rows(call.value)
        if call.tool == "compare_windows":
            shown = {key: part for key, part in shown.items() if key not in _SIDES}
            shown["rows"] = [{k: row[k] for k in _COMPARED if k in row} for row in _list_rows(shown.get("rows"))]
        content = json.dumps(words.convert("", shown), ensure_ascii=False)
    return f"### {_name(call, words)} [{call.label}]\n\n{render_result(content, words.labels)}"
