"""A plan of Postgres (EXPLAIN, FORMAT JSON) as lines to read, and what stands out in it. No database needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.tools.slow_queries.explain_findings import TableFacts, judge_plan
from bot.tools.slow_queries.explain_nodes import PlanNode, parse_plan
from bot.tools.slow_queries.redact_sql import redact_sql, shorten

_MOST_LINES = 60
_LONGEST_CONDITION = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """One node. ``depth`` 0 is the top; estimates and costs are the planner's, in its own units.

    ``actual_rows`` and ``actual_s`` are of all its runs together, null when the statement was not run.
    """

    depth: int
    text: str
    node: str
    relation: str | None
    estimated_rows: int
    total_cost: float
    actual_rows: int | None = None
    actual_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What ``read_plan`` makes of the JSON. ``left_out``: nodes beyond the lines that are shown."""

    lines: tuple[PlanLine, ...]
    findings: tuple[str, ...]
    total_cost: float
    estimated_rows: int
    left_out: int


def read_plan(body: object, tables: Mapping[str, TableFacts]) -> Plan:
    """Turn the JSON of EXPLAIN into lines and findings, without any literal of the statement.

    Args:
        body: what the server sent: a list with one object that has ``Plan``; auto_explain logs the object itself.
            Plans of statements that were run (ANALYZE) may be passed as well.
        tables: by name, for what a scan has to read (not only what it returns).

    Raises:
        ValueError: it is not such a list.
    """
    top = parse_plan(body)
    nodes = list(top.walk())
    return Plan(
        lines=tuple(_line(node) for node in nodes[:_MOST_LINES]),
        findings=judge_plan(top, tables),
        total_cost=top.number("Total Cost"),
        estimated_rows=top.estimated_rows,
        left_out=max(0, len(nodes) - _MOST_LINES),
    )


def list_relations(body: object) -> tuple[tuple[str, str], ...]:
    """The tables that a plan reads, as (schema, name); the schema is there with EXPLAIN's option VERBOSE."""
    try:
        nodes = parse_plan(body).walk()
    except ValueError:
        return ()
    return tuple(dict.fromkeys((n.text("Schema"), n.text("Relation Name")) for n in nodes if n.text("Relation Name")))


def _line(node: PlanNode) -> PlanLine:
    relation, actual = node.text("Relation Name"), node.actual_rows
    loops = node.number("Actual Loops")
    return PlanLine(
        depth=node.depth,
        text="  " * node.depth + "-> " * bool(node.depth) + " ".join(_words(node)) + "".join(_conditions(node)),
        node=node.kind,
        relation=relation or None,
        estimated_rows=node.estimated_rows,
        total_cost=round(node.number("Total Cost"), 2),
        actual_rows=None if actual is None else round(actual * loops),
        actual_s=None if actual is None else round(node.number("Actual Total Time") * loops / 1000, 6),
    )


def _words(node: PlanNode) -> list[str]:
    relation, join = node.text("Relation Name"), node.text("Join Type")
    words = [f"{join} {node.kind}" if join not in ("", "Inner") else node.kind]
    if node.text("Operation") and node.kind == "ModifyTable":
        words = [node.text("Operation")]
    if node.text("Index Name"):
        words.append(f"using {node.text('Index Name')}")
    if relation:
        words.append(f"on {relation}")
        if node.text("Alias") not in ("", relation):
            words.append(node.text("Alias"))
    if node.text("Subplan Name"):
        words.append(f"({node.text('Subplan Name')})")
    words.append(f"(rows {node.estimated_rows:,}, cost {node.number('Total Cost'):,.0f})")
    if (actual := node.actual_rows) is not None:
        loops = node.number("Actual Loops")
        times = f", {loops:,.0f} times" if loops > 1 else ""
        words.append(f"(came {actual:,.0f} in {node.number('Actual Total Time') / 1000:.3g} s{times})")
    elif "Actual Loops" in node.body:
        words.append("(never run)")
    return words


def _conditions(node: PlanNode) -> list[str]:
    conditions = [
        f"{label}: {_condition(node.text(key))}"
        for key, label in (
            ("Index Cond", "index"),
            ("Hash Cond", "join"),
            ("Merge Cond", "join"),
            ("Join Filter", "join filter"),
            ("Filter", "filter"),
        )
        if node.text(key)
    ]
    keys = node.texts("Sort Key") or node.texts("Group Key")
    if keys:
        conditions.append(f"key: {_condition(', '.join(keys))}")
    return [f" [{condition}]" for condition in conditions]


def _condition(text: str) -> str:
    return shorten(redact_sql(text), _LONGEST_CONDITION)
