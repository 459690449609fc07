"""What a report stands on: the tool calls of its workers, as sources, files and the history of its thread.

All of it comes from results that are in the run's journal, so a resumed run brings exactly the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from adapters.chat import Attachment
from agent_core.context import Redactor, RunContext
from agent_core.llm.types import ModelMessage, ToolCall
from agent_core.memory.validity import make_sendable
from agent_core.runtime.events import RunEvent, ToolFinished
from agent_core.supervisor import Finding
from agent_core.tools.base import ToolResult
from agent_core.tools.executor import MAX_KEPT_CHARS
from agent_core.tools.results import cap_text, mark_untrusted
from bot.result_files import build_result_files
from bot.tools.python_sandbox.show import find_output_id
from reading.layout import read_rows
from reading.past import parse_result

HISTORY_TOKENS = 6_000
"""Of all that a report's thread begins with: together with what is asked there it fits into an agent's memory."""

ROOMS = (14_000, 10_000, 7_000, 5_000, 3_500, 2_500)
"""Characters of all results together, and of the report the half; the largest that keeps to ``HISTORY_TOKENS``."""

LEAST_CHARS = 400
ASSIGNMENT_CHARS = 300
MOST_FINGERPRINTS = 5
LEAST_POINTS = 2
"""Of a trend with numbers, for a chart."""

EXPECTED = ("no_history", "unsupported")
"""Codes of failures that are in the nature of things: too little is stored yet, or a target is of another kind."""

_UNTOLD = frozenset({"read_output", "current_time"})
_TREND = "query_trend"
_PLAIN_STATES = ("ok", "unknown")
_FIRST_FILES = ("get_slow_queries", "compare_windows", "recommend_indexes", "index_health")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceCall:
    """A tool call that a finding stands on.

    ``id`` names it in the report's thread; ``value`` is the parsed result; ``kept`` is what a program printed, by the
    id that the result itself names for ``read_output``.
    """

    id: str
    label: str
    tool: str
    arguments: Mapping[str, object]
    result: ToolResult
    value: object
    kept: tuple[tuple[str, str], ...] = ()

    @property
    def target(self) -> str:
        """The target that it looked at; empty when it names none."""
        said = self.value.get("target") if isinstance(self.value, Mapping) else None
        return str(said or self.arguments.get("target") or "")

    @property
    def failure(self) -> str:
        """Why it failed, in words; empty when it did not."""
        if self.result.ok:
            return ""
        error = self.value.get("error") if isinstance(self.value, Mapping) else None
        return str(error.get("message") or error.get("code")) if isinstance(error, Mapping) else "it failed"

    @property
    def code(self) -> str:
        """The code of its failure; empty when it did not fail, or says none."""
        error = self.value.get("error") if isinstance(self.value, Mapping) and not self.result.ok else None
        return str(error.get("code") or "") if isinstance(error, Mapping) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A finding with its calls; ``offline``: no model wrote its text."""

    finding: Finding
    calls: tuple[EvidenceCall, ...]
    offline: bool

    @property
    def label(self) -> str:
        """How it is cited."""
        return self.finding.assignment.label

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that it looked at, each once."""
        return tuple(dict.fromkeys(call.target for call in self.calls if call.target))

    @property
    def gap(self) -> str:
        """Why it came to nothing, or only to a part; empty when it did not."""
        if self.finding.gap:
            return self.finding.gap
        failures = [call.failure for call in self.calls]
        return failures[0] if failures and all(failures) else ""

    @property
    def expected(self) -> str:
        """The code of a gap that is no fault, one of ``EXPECTED``; empty for others, and where there is no gap."""
        codes = {call.code for call in self.calls}
        only = next(iter(codes)) if len(codes) == 1 else ""
        return only if self.gap and not self.finding.gap and only in EXPECTED else ""


@dataclass(slots=True)
class ResultListener:
    """Collects the results of the runs inside one run; ``on_event`` takes all its events."""

    results: dict[str, list[ToolResult]] = field(default_factory=dict)

    def on_event(self, event: RunEvent) -> None:
        """Take one event."""
        if isinstance(event, ToolFinished):
            self.results.setdefault(event.run_id, []).append(event.result)


async def collect_evidence(
    ctx: RunContext,
    findings: Sequence[Finding],
    heard: ResultListener,
    *,
    is_private: Callable[[str], bool],
    is_offline: Callable[[Finding], bool],
) -> tuple[Evidence, ...]:
    """Put findings together with the whole results that they stand on; private ones and secrets are left out."""
    evidence: list[Evidence] = []
    for finding in findings:
        record, calls = finding.record, list[EvidenceCall]()
        waiting = [] if record is None else list(heard.results.get(record.run_id, ()))
        for step in () if record is None else record.steps:
            if step.kind != "tool" or is_private(step.name) or step.name in _UNTOLD:
                continue
            result = next((r for r in waiting if r.name == step.name and r.content == step.detail), None)
            if result is None:
                continue
            waiting.remove(result)
            if result.truncated and (whole := await ctx.outputs.get(ctx.thread_id, result.call_id)) is not None:
                result = replace(result, content=whole, truncated=False)
            printed = find_output_id(result.content)
            text = await ctx.outputs.get(ctx.thread_id, printed) if printed else None
            calls.append(
                EvidenceCall(
                    id=f"{finding.assignment.id}_{len(calls) + 1}",
                    label=finding.assignment.label,
                    tool=step.name,
                    arguments=_read_object(step.arguments),
                    result=result,
                    value=parse_result(result.content),
                    kept=((printed, text),) if text is not None else (),
                )
            )
        clean = _redact(finding, ctx.redactor)
        evidence.append(Evidence(finding=clean, calls=tuple(calls), offline=is_offline(finding)))
    return tuple(evidence)


def _redact(finding: Finding, redactor: Redactor) -> Finding:
    """Remove secrets from what models wrote, before any of it is shortened: half a secret would not be found."""
    task = finding.assignment.model_copy(update={"task": redactor.redact(finding.assignment.task)})
    return replace(finding, assignment=task, text=redactor.redact(finding.text), gap=redactor.redact(finding.gap))


def _read_object(text: str) -> Mapping[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


# -- rows that say something ---------------------------------------------------------------------------


def select_rows(value: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the rows that say something: checks and tables with a finding, spans of time with numbers, else all."""
    rows = read_rows(value)
    if rows and all("start" in row and "calls" in row for row in rows):
        return [row for row in rows if row["calls"] is not None]
    if rows and all("check" in row and "status" in row for row in rows):
        return [row for row in rows if row["status"] not in _PLAIN_STATES]
    if rows and all("findings" in row for row in rows):
        return [row for row in rows if row["findings"]]
    return rows


def count_findings(call: EvidenceCall) -> int:
    """Count what a result says: its rows that say something, also those that only may; 1 for what has no rows."""
    if not isinstance(call.value, Mapping):
        return int(bool(str(call.value).strip()))
    maybe = call.value.get("may_have_exceeded")
    if not isinstance(call.value.get("rows"), list):
        return 1
    return len(select_rows(call.value)) + (len(maybe) if isinstance(maybe, list) else 0)


def trim_value(value: Mapping[str, object]) -> tuple[dict[str, object], int]:
    """Return a result with the rows that say something and without empty fields, and how many rows were left out."""
    rows = read_rows(value)
    kept = select_rows(value)
    trimmed = {key: part for key, part in value.items() if part not in (None, "", [], {}) and key != "took_ms"}
    if isinstance(value.get("rows"), list):
        trimmed.pop("columns", None)
        trimmed["rows"] = [{k: v for k, v in row.items() if v not in (None, "", [], {})} for row in kept]
    return trimmed, len(rows) - len(kept)


def find_fingerprints(call: EvidenceCall) -> tuple[str, ...]:
    """Return the fingerprints of the statements that a result is about, in its order."""
    found: dict[str, None] = {}
    if isinstance(said := call.arguments.get("fingerprint"), str):
        found[said] = None
    value = call.value if isinstance(call.value, Mapping) else {}
    maybe = value.get("may_have_exceeded")
    for row in (*read_rows(value), *(maybe if isinstance(maybe, list) else ())):
        queries = row.get("queries") if isinstance(row, Mapping) else None
        for holder in (row, *(queries if isinstance(queries, list) else ())):
            if isinstance(holder, Mapping) and isinstance(one := holder.get("fingerprint"), str):
                found[one] = None
    return tuple(found)


# -- the history of the thread -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a report's thread remembers: a sendable history with its tokens, and whole results by id."""

    messages: tuple[tuple[ModelMessage, int], ...]
    outputs: tuple[tuple[str, str], ...]


def build_history(
    task: str,
    evidence: Sequence[Evidence],
    report: str,
    *,
    count: Callable[[ModelMessage], int],
) -> History:
    """Build what a report's thread remembers: the task, the workers' calls with their results, and the report.

    Results that are long, or have rows that say nothing, are shortened, on whole rows where they have some; those are
    kept whole for ``read_output``. Where even that is too much, calls that found nothing are left out first. May take
    seconds: call it in a thread.

    Args:
        task, report: what was asked for, and what came of it.
        evidence: what it stands on.
        count: tokens of a message.
    """
    while True:
        for room in ROOMS:
            messages, outputs = _build_within(task, evidence, report, room)
            counted = tuple((message, count(message)) for message in messages)
            if sum(tokens for _, tokens in counted) <= HISTORY_TOKENS:
                return History(messages=counted, outputs=outputs)
        narrower = _narrow(evidence)
        if narrower == evidence:
            return History(messages=counted, outputs=outputs)
        evidence = narrower


def _narrow(evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Leave out calls that found nothing; where there are none of these, the later half of all."""
    calls = [call for one in evidence for call in one.calls]
    kept = [call.id for call in calls if call.result.ok and count_findings(call)]
    kept = kept if len(kept) < len(calls) else kept[: len(kept) // 2]
    return tuple(replace(one, calls=tuple(call for call in one.calls if call.id in kept)) for one in evidence)


def _build_within(
    task: str, evidence: Sequence[Evidence], report: str, room: int
) -> tuple[tuple[ModelMessage, ...], tuple[tuple[str, str], ...]]:
    calls = [call for one in evidence for call in one.calls]
    trimmed = {call.id: _write_trimmed(call) for call in calls}
    share = _share(room, [len(text) for text in trimmed.values()])
    outputs: list[tuple[str, str]] = []
    messages = [ModelMessage(role="user", content=task)]
    for one in evidence:
        if not one.calls:
            continue
        said = f"[{one.label}] {cap_text(one.finding.assignment.task, ASSIGNMENT_CHARS)[0]}"
        asked = tuple(
            ToolCall(id=c.id, name=c.tool, arguments=json.dumps(dict(c.arguments), ensure_ascii=False))
            for c in one.calls
        )
        messages.append(ModelMessage(role="assistant", content=said, tool_calls=asked))
        for call in one.calls:
            text, whole = _shorten(call, trimmed[call.id], share)
            if not whole:
                outputs.append((call.id, call.result.content[:MAX_KEPT_CHARS]))
            outputs.extend(call.kept)
            content = text if call.result.trusted else mark_untrusted(text)
            messages.append(ModelMessage(role="tool", content=content or "{}", tool_call_id=call.id))
    if len(report) > room // 2:
        outputs.append(("report", report[:MAX_KEPT_CHARS]))
        report, _ = cap_text(report, room // 2, where=_where("report"))
    messages.append(ModelMessage(role="assistant", content=report))
    return make_sendable(messages), tuple(outputs)


def _where(output_id: str) -> str:
    return f'; read_output(output_id="{output_id}", start=..., end=...) reads them'


def _write(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _write_trimmed(call: EvidenceCall) -> str:
    if not isinstance(call.value, Mapping) or not call.result.ok:
        return call.result.content
    return _write(trim_value(call.value)[0])


def _shorten(call: EvidenceCall, text: str, limit: int) -> tuple[str, bool]:
    """Shorten a result to ``limit`` characters, on whole rows where it has rows; true when nothing is missing."""
    value = call.value
    if not isinstance(value, Mapping) or not call.result.ok:
        return cap_text(text, limit, where=_where(call.id))[0], len(text) <= limit
    trimmed, hidden = trim_value(value)
    rows = trimmed.get("rows")
    if not isinstance(rows, list):
        return cap_text(text, limit, where=_where(call.id))[0], len(text) <= limit
    kept = list(rows)
    while len(kept) > 1 and len(_write(trimmed | {"rows": kept})) > limit:
        kept.pop()
    left_out = len(rows) - len(kept) + hidden
    if not left_out:
        capped, cut = cap_text(text, max(limit, LEAST_CHARS), where=_where(call.id))
        return capped, not cut
    note = {"rows_left_out": left_out, "whole_result": f'read_output(output_id="{call.id}")'}
    written = _write(trimmed | {"rows": kept} | note)
    return cap_text(written, max(limit, LEAST_CHARS) + len(_write(note)), where=_where(call.id))[0], False


def _share(room: int, sizes: Sequence[int]) -> int:
    """The largest size at which all ``sizes``, each cut to it, fit into ``room``; never under ``LEAST_CHARS``."""
    for n, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - n)
        if size > share:
            return max(share, LEAST_CHARS)
        room -= size
    return max([LEAST_CHARS, *sizes])


# -- files ---------------------------------------------------------------------------------------------


def build_evidence_files(evidence: Sequence[Evidence]) -> tuple[Attachment, ...]:
    """Build the charts and tables of a report. May take seconds: call it in a thread.

    Equal results make one file; of too many tables those of statements stay.
    """
    results: dict[tuple[str, str], ToolResult] = {}
    for call in (call for one in evidence for call in one.calls):
        if call.result.ok and count_findings(call) >= (LEAST_POINTS if call.tool == _TREND else 1):
            results.setdefault((call.tool, call.result.content), call.result)
    charts = [result for (tool, _), result in results.items() if tool == _TREND]
    tables = [result for (tool, _), result in results.items() if tool != _TREND]
    tables.sort(key=lambda result: _FIRST_FILES.index(result.name) if result.name in _FIRST_FILES else 99, reverse=True)
    drawn = [file for file in build_result_files(charts, whole=False) if file.name.endswith(".png")]
    return (*drawn, *reversed(build_result_files(tables, whole=True)))
