"""What a report looks like: a headline of a few lines, and a body with the gaps and the sources behind it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bot.jobs.evidence import MOST_FINGERPRINTS, Evidence, EvidenceCall, find_fingerprints
from bot.jobs.plain import is_partly, list_findings, say_before, say_nothing
from bot.jobs.report_words import Wording

HEADLINE_LINES = 5
"""Of the message in the channel, its title included."""

LINE_CHARS = 400
"""Of one of them; the whole of a longer line stands in the body."""

TASK_CHARS = 120
"""Of an assignment that was not carried out."""

_RULE = re.compile(r" {0,3}([-*_])(?: *\1){2,} *")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_HEADING = re.compile(r"#{1,6} +(.*?)#* *")


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
    zone: str = "UTC",
    dropped: Sequence[str] = (),
    reason: str = "",
) -> Report:
    """Lay a report out.

    Args:
        title: its first line: what it is, of which targets and which time.
        written: what a model wrote: lines for the channel, a line ``---``, and the body; empty where none did.
        evidence: what it stands on.
        chinese: whether the fixed words are Chinese.
        zone: of the times in it, an IANA name.
        dropped: marks that named no finding.
        reason: why nobody wrote it, where that is not for want of any model.
    """
    words = Wording.choose(chinese=chinese, zone=zone)
    gaps = [one for one in evidence if one.gap and not one.expected]
    partly = any(call.result.ok for one in gaps for call in one.calls)
    form = words["gaps_partly" if partly else "gaps_short"]
    notes = [form.format(gaps=len(gaps), all=len(evidence))] if gaps else []
    if written.strip():
        lines, rest = split_written(written)
    else:
        if not reason and not gaps and (quiet := say_nothing(evidence, words)):
            return Report(headline=f"{title}: {quiet}", body="")
        lines, rest = list_findings(evidence, words)
        said = words["unwritten"].format(reason=reason) if reason else words["offline"]
        notes = [" ".join([said, *notes])]
    if not rest and not gaps and len(lines) == 1 and len(lines[0]) <= LINE_CHARS:
        return Report(headline=f"{title}: {lines[0]}", body="")
    shown, cut = _fit(lines, HEADLINE_LINES - 1 - len(notes), words)
    parts = ["\n".join(cut), rest]
    parts += [words["dropped"].format(labels=", ".join(dropped))] if dropped else []
    parts += [_list_gaps([one for one in evidence if one.gap], words), _list_sources(evidence, words)]
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


def _fit(lines: Sequence[str], room: int, words: Wording) -> tuple[list[str], list[str]]:
    """Return the lines that are shown in the channel, and those that have to stand in the body."""
    shown, cut = list(lines[:room]), list(lines[room:])
    if cut:
        cut.insert(0, shown.pop())
        shown.append(words["more_targets"].format(count=len(cut)))
    long = [line for line in shown if len(line) > LINE_CHARS]
    shown = [f"{_cut(line)} …" if line in long else line for line in shown]
    return shown, [*long, *cut]


def _cut(line: str) -> str:
    """Cut a line at a space, and in front of code that would not end."""
    kept = line[:LINE_CHARS].rsplit(" ", 1)[0]
    return kept[: kept.rindex("`")].rstrip("` ") if kept.count("`") % 2 else kept


# -- behind the text -----------------------------------------------------------------------------------


def _list_gaps(gaps: Sequence[Evidence], words: Wording) -> str:
    """List what was not found out; what failed for one reason is one line."""
    by_reason: dict[tuple[str, str], list[Evidence]] = {}
    for one in sorted(gaps, key=lambda one: bool(one.expected)):  # faults first
        reason = words[one.expected] if one.expected else one.gap
        of = "" if one.expected == "no_history" else ", ".join(one.targets)  # one line for all that is not yet stored
        by_reason.setdefault((of, reason), []).append(one)
    lines = []
    for (_, reason), ones in by_reason.items():
        targets = ", ".join(dict.fromkeys(target for one in ones for target in one.targets))
        tools = [f"`{tool}`" for tool in dict.fromkeys(call.tool for one in ones for call in one.calls)]
        waits = ones if ones[0].expected == "no_history" else ()
        days = {say_before(call, words) for one in waits for call in one.calls if call.arguments.get("a")}
        against = words["against"].format(range=", ".join(sorted(days))) if days else ""
        tasks = [_shorten(one.finding.assignment.task) for one in ones if not one.calls]
        what = " ".join(filter(None, [f"**{targets}**" if targets else "", ", ".join([*tools, *tasks]), against]))
        labels = " ".join(f"[{one.label}]" for one in ones)
        lines.append(f"- {what}: {reason} {labels}")
    return "\n".join([f"**{words['gaps']}**", "", *lines]) if lines else ""


def _shorten(task: str) -> str:
    task = " ".join(task.split())
    return task if len(task) <= TASK_CHARS else f"{task[: TASK_CHARS - 1]}…"


def _list_sources(evidence: Sequence[Evidence], words: Wording) -> str:
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


def _describe(call: EvidenceCall, words: Wording) -> str:
    """Name a tool call by tool, target, time and statements."""
    parts = [f"`{call.tool}`{f' {call.target}' if call.target else ''}"]
    ranges = [words.write_range(str(v)) for k in ("a", "b", "time_range") if (v := call.arguments.get(k))]
    if ranges:
        partly = f" ({words['partly']})" if is_partly(call) else ""
        parts.append(f"{' → '.join(ranges)}{partly}")
    prints = find_fingerprints(call)
    if prints:
        more = f" (+{len(prints) - MOST_FINGERPRINTS})" if len(prints) > MOST_FINGERPRINTS else ""
        parts.append(f"{words['statements']} {' '.join(f'`{p}`' for p in prints[:MOST_FINGERPRINTS])}{more}")
    return ", ".join(parts)
