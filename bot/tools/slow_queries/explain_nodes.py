"""The nodes of a plan of Postgres (EXPLAIN, FORMAT JSON). No database needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

# Below such a node the rows all come, whatever is asked for above it.
_WHOLE = frozenset({"Sort", "Hash", "Aggregate", "Materialize", "WindowAgg", "SetOp", "HashSetOp"})


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One node.

    Args:
        body: its JSON.
        depth: 0 at the top.
        loops: how often it is estimated to run.
        cut_short: it may be stopped before its last row (a LIMIT above), so fewer rows than estimated mean nothing.
        children: below it.
    """

    body: Mapping[str, object]
    depth: int
    loops: float
    cut_short: bool = False
    children: tuple[PlanNode, ...] = field(default=())

    def text(self, key: str) -> str:
        """A text of the JSON; empty when there is none."""
        value = self.body.get(key)
        return value if isinstance(value, str) else ""

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts of the JSON."""
        value = self.body.get(key)
        return tuple(part for part in value if isinstance(part, str)) if isinstance(value, list) else ()

    def number(self, key: str) -> float:
        """A number of the JSON; 0 when there is none."""
        return _number(self.body.get(key))

    @property
    def kind(self) -> str:
        """Its type, for example ``Seq Scan``."""
        return self.text("Node Type")

    @property
    def estimated_rows(self) -> int:
        """Rows of one run of it, as estimated."""
        return round(self.number("Plan Rows"))

    @property
    def actual_rows(self) -> float | None:
        """Rows of one run of it, as counted; None when it was not run."""
        if "Actual Rows" not in self.body or self.number("Actual Loops") == 0:
            return None
        return self.number("Actual Rows")

    def walk(self) -> Iterator[PlanNode]:
        """This node and all below it, from the top."""
        yield self
        for child in self.children:
            yield from child.walk()


def parse_plan(body: object) -> PlanNode:
    """Return the top node of what the server (or auto_explain) wrote: a list with an object, or the object itself.

    Raises:
        ValueError: it has no plan.
    """
    head = body[0] if isinstance(body, list) and body else body
    if not isinstance(head, Mapping):
        raise ValueError("the server sent no plan")
    return _parse(head.get("Plan"), 0, 1.0, cut_short=False)


def _parse(body: object, depth: int, loops: float, *, cut_short: bool) -> PlanNode:
    if not isinstance(body, Mapping):
        raise ValueError("the server sent a plan without nodes")
    plans = body.get("Plans")
    parts: Sequence[object] = plans if isinstance(plans, list) else ()
    kind = body.get("Node Type")
    below = (cut_short or kind == "Limit") and kind not in _WHOLE
    children: list[PlanNode] = []
    outer_rows = 1.0
    for part in parts:
        relation = part.get("Parent Relationship") if isinstance(part, Mapping) else ""
        times = loops
        stops = below
        if relation == "Inner" and kind == "Nested Loop":
            times = loops * max(1.0, outer_rows)
            stops = below or body.get("Join Type") in ("Semi", "Anti")
        elif relation == "SubPlan":
            # A correlated subquery runs once a row of the node that it belongs to.
            times = loops * max(1.0, outer_rows, _number(body.get("Plan Rows")))
            stops = True  # EXISTS asks for one row
        elif kind == "Merge Join":
            stops = True  # one side ends where the other does
        child = _parse(part, depth + 1, times, cut_short=stops)
        if relation == "Outer":
            outer_rows = child.number("Plan Rows")
        children.append(child)
    return PlanNode(body, depth, loops, cut_short, tuple(children))


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
