"""A plan of Postgres (EXPLAIN, FORMAT JSON) as lines to read, and what stands out in it. No database needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bot.tools.slow_queries.redact_sql import redact_sql, shorten

# From here on a thing is worth a word; estimates of small tables are noise.
_MANY_ROWS = 10_000
_LARGE_SORT_BYTES = 16 * 1024 * 1024
_MOST_LINES = 60
_LONGEST_CONDITION = 160

_NAME = r"(?:[a-z_]\w*|\"[^\"]+\")"
_COLUMN = re.compile(rf"(?<![\w$.'\"])(?:{_NAME}\.)?({_NAME})\s*(?:=|<>|<=|>=|<|>|~~\*?|~\*?|\bIS\b)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """One node. ``depth`` 0 is the top; rows and costs are the planner's estimates, in its own units."""

    depth: int
    text: str
    node: str
    relation: str | None
    estimated_rows: int
    total_cost: float


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of the JSON plan, with what the findings need; ``loops`` counts how often it is estimated to run."""

    body: Mapping[str, object]
    depth: int
    loops: float
    children: tuple[_Node, ...] = field(default=())

    def text(self, key: str) -> str:
        value = self.body.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> float:
        value = self.body.get(key)
        return float(value) if isinstance(value, (int, float)) else 0.0

    def walk(self) -> Iterator[_Node]:
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What ``read_plan`` makes of the JSON. ``left_out``: nodes beyond the lines that are shown."""

    lines: tuple[PlanLine, ...]
    findings: tuple[str, ...]
    total_cost: float
    estimated_rows: int
    left_out: int


def read_plan(body: object, table_rows: Mapping[str, float]) -> Plan:
    """Turn the JSON of EXPLAIN into lines and findings, without any literal of the statement.

    Args:
        body: what the server sent: a list with one object that has ``Plan``.
        table_rows: the tables' estimated rows by name, for what a scan has to read (not only what it returns).

    Raises:
        ValueError: it is not such a list.
    """
    if not (isinstance(body, list) and body and isinstance(body[0], Mapping)):
        raise ValueError("the server sent no plan")
    top = _parse(body[0].get("Plan"), 0, 1.0)
    nodes = list(top.walk())
    findings = [words for node in nodes for words in _judge(node, table_rows)]
    findings.append(
        f"the planner estimates a total cost of {top.number('Total Cost'):,.0f} units and {_rows(top):,} rows"
    )
    return Plan(
        lines=tuple(_line(node) for node in nodes[:_MOST_LINES]),
        findings=tuple(dict.fromkeys(findings)),
        total_cost=top.number("Total Cost"),
        estimated_rows=_rows(top),
        left_out=max(0, len(nodes) - _MOST_LINES),
    )


def list_relations(body: object) -> tuple[tuple[str, str], ...]:
    """The tables that a plan reads, as (schema, name); the schema is there with EXPLAIN's option VERBOSE."""
    if not (isinstance(body, list) and body and isinstance(body[0], Mapping)):
        return ()
    nodes = _parse(body[0].get("Plan"), 0, 1.0).walk()
    return tuple(dict.fromkeys((n.text("Schema"), n.text("Relation Name")) for n in nodes if n.text("Relation Name")))


def _parse(body: object, depth: int, loops: float) -> _Node:
    if not isinstance(body, Mapping):
        raise ValueError("the server sent a plan without nodes")
    plans = body.get("Plans")
    parts: Sequence[object] = plans if isinstance(plans, list) else ()
    children: list[_Node] = []
    outer_rows = 1.0
    for part in parts:
        relation = part.get("Parent Relationship") if isinstance(part, Mapping) else ""
        times = loops
        if relation == "Inner" and body.get("Node Type") == "Nested Loop":
            times = loops * max(1.0, outer_rows)
        elif relation == "SubPlan":
            # A correlated subquery runs once a row of the node that it belongs to.
            times = loops * max(1.0, outer_rows, _number(body.get("Plan Rows")))
        child = _parse(part, depth + 1, times)
        if relation == "Outer":
            outer_rows = child.number("Plan Rows")
        children.append(child)
    return _Node(body, depth, loops, tuple(children))


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _rows(node: _Node) -> int:
    return round(node.number("Plan Rows"))


def _line(node: _Node) -> PlanLine:
    kind, relation = node.text("Node Type"), node.text("Relation Name")
    words = [f"{node.text('Join Type')} {kind}" if node.text("Join Type") not in ("", "Inner") else kind]
    if node.text("Operation") and kind == "ModifyTable":
        words = [node.text("Operation")]
    if node.text("Index Name"):
        words.append(f"using {node.text('Index Name')}")
    if relation:
        words.append(f"on {relation}")
        if node.text("Alias") not in ("", relation):
            words.append(node.text("Alias"))
    if node.text("Subplan Name"):
        words.append(f"({node.text('Subplan Name')})")
    words.append(f"(rows {_rows(node):,}, cost {node.number('Total Cost'):,.0f})")
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
    keys = node.body.get("Sort Key") or node.body.get("Group Key")
    if isinstance(keys, list):
        conditions.append(f"key: {_condition(', '.join(str(key) for key in keys))}")
    return PlanLine(
        depth=node.depth,
        text="  " * node.depth + "-> " * bool(node.depth) + " ".join(words) + "".join(f" [{c}]" for c in conditions),
        node=kind,
        relation=relation or None,
        estimated_rows=_rows(node),
        total_cost=round(node.number("Total Cost"), 2),
    )


def _condition(text: str) -> str:
    return shorten(redact_sql(text), _LONGEST_CONDITION)


def _judge(node: _Node, table_rows: Mapping[str, float]) -> Iterator[str]:
    kind = node.text("Node Type")
    if kind == "Seq Scan":
        yield from _judge_scan(node, table_rows)
    elif kind in ("Sort", "Incremental Sort", "Hash"):
        size = node.number("Plan Rows") * node.number("Plan Width")
        if size >= _LARGE_SORT_BYTES:
            what = "a hash table" if kind == "Hash" else "a sort"
            yield (
                f"{what} of about {_rows(node):,} rows ({size / 1024 / 1024:,.0f} MiB): it spills to disk "
                "where that is more than work_mem"
            )
    elif kind == "Nested Loop":
        inner = [child for child in node.children if child.text("Parent Relationship") == "Inner"]
        for child in inner:
            if child.loops >= _MANY_ROWS:
                yield f"a nested loop runs its inner side about {child.loops:,.0f} times"


def _judge_scan(node: _Node, table_rows: Mapping[str, float]) -> Iterator[str]:
    relation = node.text("Relation Name")
    read = max(table_rows.get(relation, 0.0), node.number("Plan Rows"))
    if read * node.loops < _MANY_ROWS:
        return
    words = f"a sequential scan reads all of {relation} (about {read:,.0f} rows"
    if node.loops > 1:
        words += f", about {node.loops:,.0f} times"
    words += ")"
    condition = redact_sql(node.text("Filter"))
    columns = list(dict.fromkeys(match[1].strip('"') for match in _COLUMN.finditer(condition)))
    if columns:
        words += f" and keeps about {_rows(node):,}, filtering on {', '.join(columns)}"
        if _rows(node) * 20 <= read:
            words += f": an index on {relation}({', '.join(columns)}) may help"
    yield words
