"""Tools of the first release and of later ones, as the evaluation questions need them: same shape, canned results."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Literal

from agent_core.llm.types import ToolExample, ToolSpec
from bot.storage.snapshots import Snapshot

TARGETS = ["shop", "billing"]


def optional_target() -> dict[str, Any]:
    return {
        "anyOf": [{"type": "string", "enum": TARGETS}, {"type": "null"}],
        "default": None,
        "description": "Configured database; may be left out while there is only one.",
    }


def spec(
    name: str,
    description: str,
    properties: Mapping[str, Any],
    *,
    required: tuple[str, ...] = (),
    examples: tuple[tuple[str, dict[str, Any]], ...] = (),
) -> ToolSpec:
    schema: dict[str, object] = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    return ToolSpec(
        name=name,
        description=description,
        parameters=schema,
        examples=tuple(ToolExample(question=q, arguments=a) for q, a in examples),
    )


CORE = (
    spec(
        "get_slow_queries",
        "List the slow queries of a database in a time range, with how often they ran and how long they took. "
        "Times are seconds. The answer names its source and the window that it really covers.",
        {
            "time_range": {
                "type": "string",
                "format": "time-range",
                "default": "last_30min",
                "description": "last_30min, last_2h, last_1d, today, yesterday, or an ISO interval A/B.",
            },
            "threshold": {
                "type": "number",
                "format": "duration-s",
                "minimum": 0,
                "default": 1.0,
                "description": "Only queries that took at least this many seconds.",
            },
            "target": optional_target(),
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20, "description": "Rows at most."},
            "order_by": {"type": "string", "enum": ["total", "mean", "max", "calls"], "default": "total"},
        },
        examples=(
            ("which queries were slow in the last 30 minutes?", {"time_range": "last_30min"}),
            ("queries slower than 500 ms on shop today", {"time_range": "today", "threshold": 0.5, "target": "shop"}),
        ),
    ),
    spec(
        "explain_query",
        "Show the execution plan of one SQL statement without running it.",
        {
            "sql": {"type": "string", "format": "sql", "description": "The statement to explain."},
            "target": optional_target(),
        },
        required=("sql",),
        examples=(("explain select * from orders where id = 1", {"sql": "select * from orders where id = 1"}),),
    ),
    spec(
        "calculator",
        "Evaluate an arithmetic expression exactly.",
        {
            "expression": {
                "type": "string",
                "format": "math-expression",
                "description": "Python arithmetic, for example 2**10 + math.sqrt(144).",
            }
        },
        required=("expression",),
        examples=(("what is 17 * 23 + 4?", {"expression": "17 * 23 + 4"}),),
    ),
    spec(
        "current_time",
        "Tell the current date and time in a time zone.",
        {"zone": {"type": "string", "format": "timezone", "default": "UTC", "description": "IANA zone name."}},
        examples=(("what time is it in Berlin?", {"zone": "Europe/Berlin"}),),
    ),
)

WIDE = (
    *CORE,
    spec(
        "running_queries",
        "List the queries that are running right now, longest first.",
        {
            "min_seconds": {
                "type": "number",
                "minimum": 0,
                "default": 0,
                "description": "Only those running this long.",
            },
            "include_idle_in_tx": {"type": "boolean", "default": True, "description": "Also idle transactions."},
            "target": optional_target(),
        },
        examples=(("what is running on shop right now?", {"target": "shop"}), ("show active sessions", {})),
    ),
    spec(
        "blocking_tree",
        "Show which sessions block which others, root blocker first.",
        {
            "target": optional_target(),
            "min_wait_s": {"type": "number", "default": 0, "description": "Waits this long."},
        },
        examples=(("who is blocking whom?", {}), ("are there lock waits on shop?", {"target": "shop"})),
    ),
    spec(
        "index_health",
        "Find unused, duplicate and invalid indexes.",
        {"target": optional_target(), "min_size_mb": {"type": "number", "default": 1, "description": "Smallest size."}},
        examples=(("which indexes are unused?", {}),),
    ),
    spec(
        "table_health",
        "Show table sizes, dead tuples, bloat and the last vacuum.",
        {"target": optional_target(), "top": {"type": "integer", "default": 20, "description": "Tables at most."}},
        examples=(("which tables need a vacuum?", {}), ("biggest tables", {})),
    ),
    spec(
        "db_health",
        "Check the health of a database: connections, cache hit ratio, checkpoints, replication lag, "
        "long transactions.",
        {"target": optional_target()},
        examples=(("is the shop database healthy?", {"target": "shop"}),),
    ),
    spec(
        "web_search",
        "Search the web and return titles and links.",
        {"query": {"type": "string", "description": "What to search for."}},
        required=("query",),
        examples=(("search the web for postgres autovacuum tuning", {"query": "postgres autovacuum tuning"}),),
    ),
    spec(
        "run_python",
        "Run a piece of Python code in a sandbox and return its output.",
        {"code": {"type": "string", "description": "The program."}},
        required=("code",),
        examples=(("run this python: `print(1 + 1)`", {"code": "print(1 + 1)"}),),
    ),
    spec(
        "get_weather",
        "Tell the weather of a city.",
        {"city": {"type": "string", "description": "Name of the city."}},
        required=("city",),
        examples=(("what is the weather in Lisbon?", {"city": "Lisbon"}),),
    ),
    spec(
        "roll_dice",
        "Roll a die and tell the result.",
        {"sides": {"type": "integer", "minimum": 2, "default": 6, "description": "Number of sides."}},
        examples=(("roll a die", {}),),
    ),
)

SLOW_ROWS = [
    {"sql": "SELECT count(*) FROM order_items WHERE product_id = $1", "duration": 1.4, "calls": 310, "total_s": 434.0},
    {"sql": "SELECT * FROM customers WHERE lower(email) = $1", "duration": 2.1, "calls": 41, "total_s": 86.1},
    {"sql": "SELECT * FROM orders WHERE note LIKE $1", "duration": 3.9, "calls": 9, "total_s": 35.1},
]


def canned_result(name: str) -> str:
    """The result of a call in an evaluation: rows for slow queries, a plain success for all others."""
    if name == "get_slow_queries":
        return json.dumps({"ok": True, "target": "shop", "engine": "postgres", "rows": SLOW_ROWS, "warnings": []})
    return json.dumps({"ok": True, "result": 42})


class NoStore:
    """Stands where the shipped tools want a store; the questions only read their specs."""

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        raise AssertionError("no tool is run here")

    async def find_snapshot(
        self, target: str, *, at: datetime, side: Literal["before", "after"], keys: Collection[str] | None = None
    ) -> Snapshot | None:
        raise AssertionError("no tool is run here")
