"""EXPLAIN's JSON without data: names and numbers as they are, every condition through the redactor."""

from __future__ import annotations

from collections.abc import Mapping

from bot.tools.slow_queries.redact_sql import redact_sql

_MOST_NODES = 200
_MOST_TEXTS = 30

# Values of these are words of the server, or names.
_PLAIN_KEYS = frozenset(
    {"Node Type", "Relation Name", "Schema", "Alias", "Index Name", "Join Type", "Parent Relationship", "Strategy"}
    | {"Scan Direction", "Subplan Name", "Operation", "Sort Method", "Sort Space Type", "Partial Mode", "CTE Name"}
    | {"Command", "Query Identifier"}
)


def redact_tree(body: object) -> dict[str, object]:
    """The first plan of what EXPLAIN sent, as nested mappings; nodes beyond the 200th are left out."""
    plan = body[0].get("Plan") if isinstance(body, list) and body and isinstance(body[0], Mapping) else None
    return _redact_node(plan, [_MOST_NODES]) if isinstance(plan, Mapping) else {}


def _redact_node(node: Mapping[str, object], room: list[int]) -> dict[str, object]:
    room[0] -= 1
    kept: dict[str, object] = {}
    for key, value in node.items():
        if key == "Plans" and isinstance(value, list):
            plans: list[object] = []
            for part in value:
                if isinstance(part, Mapping) and room[0] > 0:
                    plans.append(_redact_node(part, room))
            kept[key] = plans
        elif isinstance(value, str):
            kept[key] = value if key in _PLAIN_KEYS else redact_sql(value)
        elif isinstance(value, list):
            kept[key] = [redact_sql(part) for part in value[:_MOST_TEXTS] if isinstance(part, str)]
        elif value is None or isinstance(value, (bool, int, float)):
            kept[key] = value
    return kept
