"""What stands out in a plan, in words, without any literal of the statement. No database needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bot.tools.slow_queries.explain_nodes import PlanNode
from bot.tools.slow_queries.redact_sql import redact_sql

# From here on a thing is worth a word; estimates of small tables are noise.
_MANY_ROWS = 10_000
_LARGE_SORT_BYTES = 16 * 1024 * 1024
_MISESTIMATE = 10.0
# A misestimate matters where this many rows are in play.
_NOTABLE_ROWS = 100
_SCANS = frozenset({"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Tid Scan"})

_NAME = r"(?:[a-z_]\w*|\"[^\"]+\")"
_COMPARED = r"\s*(?:=|<>|<=|>=|<|>|~~\*?|~\*?|\bIS\b)"
_COLUMN = re.compile(rf"(?<![\w$.'\"])(?:{_NAME}\.)?({_NAME}){_COMPARED}")
_CALL = re.compile(rf"(?<![\w$.'\"])({_NAME}\()(?:{_NAME}\.)?({_NAME}\)){_COMPARED}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What the server knows of a table.

    Args:
        rows: as the planner estimates them.
        analyzed: whether there are any statistics on its columns; None when that cannot be seen.
        changed_rows: changed since the statistics were made.
    """

    rows: float
    analyzed: bool | None = None
    changed_rows: int = 0


def judge_plan(top: PlanNode, tables: Mapping[str, TableFacts]) -> tuple[str, ...]:
    """Say what stands out.

    Args:
        top: the plan, with or without what was counted while it ran.
        tables: by name.
    """
    findings: list[str] = []
    for node in top.walk():
        findings += _judge(node, tables)
    findings += _judge_tables(top, tables)
    words = (
        f"the planner estimates a total cost of {top.number('Total Cost'):,.0f} units and {top.estimated_rows:,} "
        f"{'row' if top.estimated_rows == 1 else 'rows'}"
    )
    if top.actual_rows is not None:
        words += f"; {top.actual_rows:,.0f} rows came in {top.number('Actual Total Time') / 1000:.3g} s"
    return tuple(dict.fromkeys([*findings, words]))


def _judge(node: PlanNode, tables: Mapping[str, TableFacts]) -> Iterator[str]:
    match node.kind:
        case "Seq Scan":
            yield from _judge_scan(node, tables)
        case "Sort" | "Incremental Sort" | "Hash" | "Aggregate" | "Materialize":
            yield from _judge_memory(node)
        case "Nested Loop":
            for child in node.children:
                if child.text("Parent Relationship") == "Inner":
                    yield from _judge_loops(child)
    yield from _judge_estimate(node)


def _judge_scan(node: PlanNode, tables: Mapping[str, TableFacts]) -> Iterator[str]:
    relation = node.text("Relation Name")
    facts = tables.get(relation)
    removed = node.number("Rows Removed by Filter")
    read = max(0.0 if facts is None else facts.rows, node.number("Plan Rows"))
    kept, loops, about = float(node.estimated_rows), node.loops, "about "
    if (actual := node.actual_rows) is not None:
        read, kept, loops, about = actual + removed, actual, node.number("Actual Loops"), ""
    if read * loops < _MANY_ROWS:
        return
    words = f"a sequential scan reads all of {relation} ({about}{read:,.0f} rows"
    if loops > 1:
        words += f", {about}{loops:,.0f} times"
    words += ")"
    columns = _columns(node.text("Filter"))
    if columns:
        words += f" and keeps {about}{kept:,.0f}, filtering on {', '.join(columns)}"
        if kept * 20 <= read:
            words += f": an index on {relation}({', '.join(columns)}) may help"
    yield words


def _judge_memory(node: PlanNode) -> Iterator[str]:
    what = {"Hash": "a hash table", "Aggregate": "a grouping", "Materialize": "a kept result"}.get(node.kind, "a sort")
    if node.actual_rows is not None:
        spilled_kb = node.number("Disk Usage")
        if node.text("Sort Space Type") == "Disk":
            spilled_kb = node.number("Sort Space Used")
        elif node.kind == "Hash" and node.number("Hash Batches") > 1:
            batches = node.number("Hash Batches")
            yield f"a hash table did not fit work_mem and went to disk in {batches:,.0f} parts"
        if spilled_kb > 0:
            yield f"{what} did not fit work_mem and wrote {spilled_kb / 1024:,.1f} MiB to disk"
        return
    size = node.number("Plan Rows") * node.number("Plan Width")
    if size >= _LARGE_SORT_BYTES and node.kind in ("Sort", "Incremental Sort", "Hash"):
        yield (
            f"{what} of about {node.estimated_rows:,} rows ({size / 1024 / 1024:,.0f} MiB): it spills to disk "
            "where that is more than work_mem"
        )


def _judge_loops(inner: PlanNode) -> Iterator[str]:
    if inner.actual_rows is not None:
        if inner.number("Actual Loops") >= _MANY_ROWS:
            yield f"a nested loop ran its inner side {inner.number('Actual Loops'):,.0f} times"
    elif inner.loops >= _MANY_ROWS:
        yield f"a nested loop runs its inner side about {inner.loops:,.0f} times"


def _judge_estimate(node: PlanNode) -> Iterator[str]:
    """A wrong estimate is told where it arises: at the lowest node that has it."""
    wrong = _misestimate(node)
    if wrong is None or any(_misestimate(child) is not None for child in node.children):
        return
    estimated, actual = max(1.0, node.number("Plan Rows")), node.actual_rows or 0.0
    where = node.text("Relation Name")
    what = f"of {where}" if where else f"from a {node.kind.lower()}"
    direction = "more" if actual > estimated else "fewer"
    words = f"the planner expected {estimated:,.0f} rows {what} and {actual:,.0f} came, {wrong:,.0f} times {direction}"
    if where and node.kind in _SCANS:
        text = " ".join(node.text(key) for key in ("Filter", "Index Cond", "Recheck Cond"))
        columns = ", ".join(_columns(text))
        words += f": ANALYZE {where}"
        if columns.count(","):
            words += f", and if that does not help CREATE STATISTICS on {columns} of it"
    yield words


def _columns(condition: str) -> list[str]:
    """The columns, and calls of a function on one, that a condition compares."""
    text = redact_sql(condition)
    columns = [match[1].strip('"') for match in _COLUMN.finditer(text)]
    return list(dict.fromkeys([*columns, *(match[1] + match[2] for match in _CALL.finditer(text))]))


def _misestimate(node: PlanNode) -> float | None:
    """By what factor the estimate of a node is wrong, when that is worth a word."""
    if (actual := node.actual_rows) is None:
        return None
    estimated = max(1.0, node.number("Plan Rows"))
    if actual < estimated and node.cut_short:
        return None
    low, high = sorted((max(1.0, actual), estimated))
    if high * max(1.0, node.number("Actual Loops")) < _NOTABLE_ROWS or high / low <= _MISESTIMATE:
        return None
    return high / low


def _judge_tables(top: PlanNode, tables: Mapping[str, TableFacts]) -> Iterator[str]:
    used = dict.fromkeys(node.text("Relation Name") for node in top.walk() if node.text("Relation Name"))
    for name in used:
        facts = tables.get(name)
        if facts is None:
            continue
        if facts.analyzed is False:
            yield f"there are no statistics on {name}, so its rows are guessed: ANALYZE {name}"
        elif facts.changed_rows > max(10_000.0, facts.rows / 2):
            yield f"{facts.changed_rows:,} rows of {name} changed since its statistics were made: ANALYZE {name}"
