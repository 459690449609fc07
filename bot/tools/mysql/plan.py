"""A plan of MySQL or MariaDB (EXPLAIN FORMAT=JSON) as lines to read, and what stands out in it. No database needed.

The two servers name the same things differently, and neither documents every key, so the tree is walked: what is known
becomes a line, what is not is passed through to what is inside. See
https://dev.mysql.com/doc/refman/8.4/en/explain-output.html and https://mariadb.com/kb/en/explain-format-json/. Plans
of MySQL 8 are known from its documentation only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from bot.tools.slow_logs.mysql_text import redact_mysql
from bot.tools.slow_queries.plan import PlanLine
from bot.tools.slow_queries.redact_sql import shorten

_MANY_ROWS = 10_000
_MOST_LINES = 60
_LONGEST_CONDITION = 160

_ACCESS: Mapping[str, str] = {
    "ALL": "full scan of",
    "index": "scan of a whole index of",
    "range": "index range of",
    "ref": "index look-up in",
    "eq_ref": "unique look-up in",
    "ref_or_null": "index look-up (or NULL) in",
    "const": "one row of",
    "system": "one row of",
    "fulltext": "full-text search in",
    "index_merge": "several indexes of",
    "unique_subquery": "unique look-up in",
    "index_subquery": "index look-up in",
}
# Containers that are an operation of their own, by the key under which both servers put what is inside.
_OPERATIONS: Mapping[str, str] = {
    "filesort": "sort",
    "temporary_table": "temporary table",
    "union_result": "union",
    "recursive_union": "recursive union",
    "materialized": "materialized",
    "materialized_from_subquery": "materialized",
    "expression_cache": "subquery with a cache",
    "block-nl-join": "join by a buffer",
    "duplicates_removal": "duplicates removed",
    "range-checked-for-each-record": "indexes chosen for each row",
    "windowing": "window functions",
    "window_functions_computation": "window functions",
}
# MySQL's wrappers say with a flag whether there is a sort or a temporary table in them.
_FLAGS: Mapping[str, str] = {"using_temporary_table": "temporary table", "using_filesort": "sort"}
_CONDITIONS: Mapping[str, str] = {
    "index_condition": "index",
    "attached_condition": "filter",
    "having_condition": "having",
    "sort_key": "key",
    "r_filter": "filter",
}
# Strings of the tree that hold no text of the statement; all others are redacted.
_PLAIN_NAMES = """access_type table_name key key_length used_key_parts possible_keys ref query_cost read_cost eval_cost
prefix_cost data_read_per_join filtered message operation join_type buffer_type buffer_size state using_join_buffer
used_columns"""
_PLAIN = frozenset(_PLAIN_NAMES.split())
_NAME = r"(?:`[^`]+`|\w+)"
_COLUMN = re.compile(rf"(?<![\w$.`])(?:{_NAME}\.){{0,2}}({_NAME})\s*(=|<=>|<=|>=|<|>|\blike\b|\bin\b|\bbetween\b)")
_WILD = re.compile(r"\blike\s+(?:_\w+\s*)?'[%_]", re.IGNORECASE)
_LINE = re.compile(r'\A(\s*"[\w-]+": )"(.*)"(,?)\Z', re.DOTALL)
_POINTS = ("=", "<=>", "in")


@dataclass(frozen=True, slots=True)
class _Step:
    """A line in the making. ``loops``: how often it runs; ``read``: the rows that one run reads, by the estimate."""

    kind: str
    depth: int
    body: Mapping[str, object] = field(default_factory=dict)
    loops: float = 1.0
    read: float = 0.0
    passed: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MySqlPlan:
    """What ``read_mysql_plan`` makes of the JSON; ``total_cost`` is 0 where the server tells none."""

    lines: tuple[PlanLine, ...]
    findings: tuple[str, ...]
    total_cost: float
    estimated_rows: int
    left_out: int


def read_mysql_plan(body: object) -> MySqlPlan:
    """Turn the JSON of EXPLAIN into lines and findings, without any literal of the statement.

    Raises:
        ValueError: it is no such tree.
    """
    block = body.get("query_block") if isinstance(body, Mapping) else None
    if not isinstance(block, Mapping):
        raise ValueError("the server sent no plan of a form that is known here")
    steps = list(_walk_block(block, 0, 1.0))
    cost = _cost(block)
    rows = round(steps[0].passed) if steps else 0
    findings = [words for step in steps for words in _judge(step)]
    told = f"a total cost of {cost:,.0f} units and " if cost else ""
    findings.append(f"the optimizer estimates {told}{rows:,} rows before any limit")
    return MySqlPlan(
        lines=tuple(_line(step) for step in steps[:_MOST_LINES]),
        findings=tuple(dict.fromkeys(findings)),
        total_cost=cost,
        estimated_rows=rows,
        left_out=max(0, len(steps) - _MOST_LINES),
    )


def redact_tree(value: object, key: str = "") -> object:
    """The tree without any literal of the statement."""
    if isinstance(value, Mapping):
        return {str(name): redact_tree(part, str(name)) for name, part in value.items()}
    if isinstance(value, list):
        return [redact_tree(part, key) for part in value]
    return redact_mysql(value) if isinstance(value, str) and key not in _PLAIN else value


def parse_plan_text(text: str, *, escaped: bool) -> object:
    """Read the text of EXPLAIN FORMAT=JSON; None when it is no JSON.

    Args:
        text: as the server sent it.
        escaped: false for MariaDB (seen in 10.11): a quote or backslash of the statement stands in its strings as it
            is, so that the text is no JSON, or even JSON of another meaning. Each string is on a line of its own
            there, so it is what is between the line's first and last quotes.
    """
    if not escaped:
        text = "\n".join(_LINE.sub(lambda m: f"{m[1]}{json.dumps(m[2])}{m[3]}", line) for line in text.split("\n"))
    try:
        body: object = json.loads(text, strict=False)
    except ValueError:
        return None
    return body


# -- walking ---------------------------------------------------------------------------------------


def _walk_block(block: Mapping[str, object], depth: int, loops: float) -> Iterator[_Step]:
    """A SELECT: a line for it, and what it does below."""
    below = list(_walk(block, depth + 1, loops))
    passed = next((step.passed for step in below if step.depth == depth + 1), 0.0)
    message = _message(block)
    yield _Step("select", depth, block, loops, passed=passed, note=message)
    yield from below


def _walk(body: Mapping[str, object], depth: int, loops: float) -> Iterator[_Step]:
    """What stands in a container, in the order of the JSON; subqueries come behind the rows that they run for."""
    outer = 1.0
    for key, part in body.items():
        if key == "query_block" and isinstance(part, Mapping):
            yield from _walk_block(part, depth, loops)
        elif key == "table" and isinstance(part, Mapping):
            yield from _walk_table(part, depth, loops)
        elif key == "nested_loop" and isinstance(part, list):
            steps = list(_walk_loop(part, depth, loops))
            outer = steps[0].passed if steps else 1.0
            yield from steps
        elif key in _OPERATIONS and isinstance(part, Mapping):
            yield from _walk_operation(_OPERATIONS[key], part, depth, loops)
        elif isinstance(part, Mapping):
            flags = [words for flag, words in _FLAGS.items() if part.get(flag) is True]
            yield from _walk_flagged(flags, part, depth, loops)
        elif isinstance(part, list):
            for item in part:
                if isinstance(item, Mapping):
                    yield from _walk(item, depth, loops * (max(1.0, outer) if _depends(item) else 1.0))


def _depends(item: Mapping[str, object]) -> bool:
    """True for a subquery that is run again for other rows."""
    return item.get("dependent") is True or "expression_cache" in item


def _walk_flagged(flags: list[str], body: Mapping[str, object], depth: int, loops: float) -> Iterator[_Step]:
    if not flags:
        yield from _walk(body, depth, loops)
        return
    below = list(_walk_flagged(flags[1:], body, depth + 1, loops))
    passed = next((step.passed for step in below if step.depth == depth + 1), 0.0)
    yield _Step(flags[0], depth, {}, loops, read=passed, passed=passed)
    yield from below


def _walk_operation(kind: str, body: Mapping[str, object], depth: int, loops: float) -> Iterator[_Step]:
    below = list(_walk(body, depth + 1, loops))
    inner = [step.passed for step in below if step.depth == depth + 1]
    passed = sum(inner) if "union" in kind else next(iter(inner), 0.0)
    yield _Step(kind, depth, body, loops, read=passed, passed=passed, note=str(body.get("join_type") or ""))
    yield from below


def _walk_loop(parts: list[object], depth: int, loops: float) -> Iterator[_Step]:
    """A join: each table is read once a row of those before it. The first step stands for the whole join."""
    rows, found = 1.0, list[_Step]()
    for part in parts:
        if isinstance(part, Mapping):
            steps = list(_walk(part, depth, loops * max(1.0, rows)))
            rows *= next((step.passed for step in steps if step.depth == depth), 1.0)
            found += steps
    for number, step in enumerate(found):
        yield replace(step, passed=rows) if not number else step


def _walk_table(body: Mapping[str, object], depth: int, loops: float) -> Iterator[_Step]:
    read = _number(body.get("rows_examined_per_scan", body.get("rows")))
    passed = read * _number(body.get("filtered", 100)) / 100
    yield _Step("table", depth, body, loops, read=read, passed=passed, note=_text(body, "message"))
    yield from _walk({key: part for key, part in body.items() if key != "table"}, depth + 1, loops)


# -- saying it -------------------------------------------------------------------------------------


def _line(step: _Step) -> PlanLine:
    name = _text(step.body, "table_name") if step.kind == "table" else ""
    access = _text(step.body, "access_type")
    if step.kind == "table":
        words = [f"{_ACCESS.get(access, access or 'write to')} {name}" if name else "no table"]
        if key := _text(step.body, "key"):
            words.append(f"using {key}")
    else:
        words = [step.kind]
    if step.note and step.note != "No tables used":
        words.append(f"({redact_mysql(step.note)})")
    if step.kind == "table" and name:
        words.append(f"(rows {round(step.read):,})")
    conditions = [
        f"{label}: {shorten(redact_mysql(_text(step.body, key)), _LONGEST_CONDITION)}"
        for key, label in _CONDITIONS.items()
        if _text(step.body, key)
    ]
    return PlanLine(
        depth=step.depth,
        text="  " * step.depth + "-> " * bool(step.depth) + " ".join(words) + "".join(f" [{c}]" for c in conditions),
        node=_ACCESS.get(access, step.kind).removesuffix(" of").removesuffix(" in") if access else step.kind,
        relation=name or None,
        estimated_rows=round(step.passed),
        total_cost=round(_cost(step.body), 2),
    )


def _judge(step: _Step) -> Iterator[str]:
    if step.kind == "table":
        yield from _judge_table(step)
    elif step.kind == "sort" and step.read >= _MANY_ROWS:
        key = shorten(redact_mysql(_text(step.body, "sort_key")), _LONGEST_CONDITION)
        yield f"about {round(step.read):,} rows are sorted (filesort){f' by {key}' if key else ''}"
    elif step.kind == "temporary table" and step.read >= _MANY_ROWS:
        yield f"a temporary table takes about {round(step.read):,} rows"
    if "Impossible WHERE" in step.note:
        yield "the condition cannot be true for these values, so nothing is read: try other values"


def _judge_table(step: _Step) -> Iterator[str]:
    name, access = _text(step.body, "table_name"), _text(step.body, "access_type")
    if access not in ("ALL", "index") or step.read * step.loops < _MANY_ROWS or name.startswith("<"):
        return
    words = "a full scan reads all of" if access == "ALL" else f"all of index {_text(step.body, 'key')} is read, of"
    words += f" {name} (about {round(step.read):,} rows"
    words += f", about {round(step.loops):,} times)" if step.loops > 1 else ")"
    condition = _text(step.body, "attached_condition")
    columns = _index_columns(condition)
    possible = step.body.get("possible_keys")
    if isinstance(possible, list) and possible:
        words += f", although {', '.join(str(key) for key in possible)} could serve it"
    elif columns:
        words += (
            f": no index serves the condition on {', '.join(columns)}; one on {name}({', '.join(columns)}) may help"
        )
    yield words


def _index_columns(condition: str) -> list[str]:
    """The columns of an index that could serve all of a condition: those compared with one value, then one range.

    None for alternatives, which need more than one index. A pattern that begins with a wildcard is served by none.
    """
    bare = redact_mysql(_WILD.sub("matches '", condition))
    if re.search(r"\b(?:or|xor)\b|\|\|", bare, re.IGNORECASE):
        return []
    found = [(match[1].strip("`"), match[2].lower()) for match in _COLUMN.finditer(bare)]
    points = dict.fromkeys(name for name, operator in found if operator in _POINTS)
    ranges = dict.fromkeys(name for name, operator in found if operator not in _POINTS and name not in points)
    return [*points, *list(ranges)[:1]]


def _message(block: Mapping[str, object]) -> str:
    """Why a SELECT reads nothing; MySQL says it in the block, MariaDB in its table."""
    table = block.get("table")
    return _text(block, "message") or (_text(table, "message") if isinstance(table, Mapping) else "")


def _cost(body: Mapping[str, object]) -> float:
    info = body.get("cost_info")
    if isinstance(info, Mapping):
        return _number(info.get("query_cost", info.get("prefix_cost")))
    return _number(body.get("cost"))


def _text(body: Mapping[str, object], key: str) -> str:
    value = body.get(key)
    return value if isinstance(value, str) else ""


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, (int, float, str)) else 0.0
    except ValueError:
        return 0.0
