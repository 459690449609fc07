"""``explain_query`` on an SQLite file: EXPLAIN QUERY PLAN, in lines and in words. The statement is never run.

SQLite's planner tells how it goes through the tables but no costs (https://www.sqlite.org/eqp.html), so ``total_cost``
is null and what a scan reads is the table's size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.tools.envelope import LeftOut
from bot.tools.slow_queries.explain import STATEMENT_TIMEOUT_S, Mode, QueryPlan
from bot.tools.slow_queries.plan import PlanLine
from bot.tools.slow_queries.redact_sql import fingerprint_sql, redact_sql, shorten
from bot.tools.slow_queries.statement_check import LONGEST_SQL
from bot.tools.sqlite.process import ask_worker, find_file
from bot.tools.sqlite.worker import Question
from bot.tools.targets import Target

_MANY_ROWS = 10_000
_MOST_LINES = 60
_EXPLAIN = re.compile(r"\s*explain(\s+query\s+plan)?\b", re.IGNORECASE)
_VERB = re.compile(r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/|\()*([A-Za-z]+)", re.DOTALL)
_PLANNED = frozenset({"select", "with", "values", "insert", "update", "delete", "replace"})
_READS = re.compile(r"(SCAN|SEARCH) (?:TABLE )?(\S+)(.*)", re.DOTALL)
_CONDITION = re.compile(
    r"(?:([A-Za-z_]\w*)\.)?([A-Za-z_]\w*)\s*(?:=|<>|!=|<=|>=|<|>|\bis\b|\bin\b|\bbetween\b|\blike\b|\bglob\b)",
    re.IGNORECASE,
)
_PARAMETER = re.compile(r"\?\d*|[:@$][A-Za-z_\d]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A table of the statement: about how many rows it has, and which columns an index begins with."""

    rows: int
    analyzed: bool
    columns: frozenset[str]
    indexed: frozenset[str]


async def explain_sqlite(target: Target, clock: Clock, *, sql: str | None, mode: Mode | None = None) -> QueryPlan:
    """Plan ``sql`` on an SQLite target.

    Args:
        target: the file.
        clock: for the time that it took.
        sql: one SELECT, WITH, VALUES, INSERT, UPDATE, DELETE or REPLACE; placeholders need no values.
        mode: as for ``explain_statement``; the plan is the same for unknown and given values.

    Raises:
        ToolFailed: see ``ask_worker``; ``not_read_only`` for what has no plan; ``unsupported`` without ``sql`` and for
            the mode analyze, which SQLite does not have.
    """
    began = clock.monotonic()
    if sql is None or mode == "analyze":
        raise ToolFailed(
            f"target {target.name!r}: an SQLite file keeps no statistics of statements, and measures none",
            code="unsupported",
            fix="pass the statement as sql, without mode analyze",
        )
    statement = _take_statement(sql)
    question = Question(path=find_file(target), sql=statement, timeout_s=STATEMENT_TIMEOUT_S, plan=True)
    found = await ask_worker(target, question)
    nodes = _read_nodes(found.get("nodes"))
    tables = _read_tables(found.get("tables"))
    shown = redact_sql(statement)
    lines = [_line(depth, text, shown, tables) for depth, text in nodes]
    unknown = _PARAMETER.search(re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", "", statement)) is not None
    return QueryPlan(
        target=target.name,
        engine="sqlite",
        engine_version=str(found.get("version", "")),
        source="EXPLAIN QUERY PLAN (the statement was planned, not run)",
        truncated=LeftOut(rows=max(0, len(lines) - _MOST_LINES)),
        warnings=tuple(_warn(tables)),
        sql=shown,
        fingerprint=fingerprint_sql(statement),
        plan_kind="generic" if unknown else "literal",
        findings=tuple(dict.fromkeys(words for line in lines for words in _judge(line, shown, tables))),
        total_cost=None,
        estimated_rows=None,
        rows=tuple(lines[:_MOST_LINES]),
        took_ms=round((clock.monotonic() - began) * 1000, 1),
    )


def _take_statement(sql: str) -> str:
    if len(sql) > LONGEST_SQL:
        raise ToolFailed(f"the statement has {len(sql)} characters; {LONGEST_SQL} are taken", code="parse_failed")
    statement = _EXPLAIN.sub("", sql, count=1) if _EXPLAIN.match(sql) else sql
    verb = _VERB.match(statement)
    if "\0" in statement or not statement.strip() or verb is None:
        raise ToolFailed("there is no statement in the text", code="parse_failed", fix="pass one SQL statement")
    if verb[1].lower() not in _PLANNED:
        raise ToolFailed(
            f"{verb[1][:30].upper()} is nothing that this tool plans",
            code="not_read_only",
            fix="pass a SELECT, INSERT, UPDATE, DELETE, VALUES or WITH statement",
        )
    return statement.strip()


def _read_nodes(found: object) -> list[tuple[int, str]]:
    """Depths and texts; the worker sends each node with its own number and its parent's."""
    depths: dict[int, int] = {}
    nodes: list[tuple[int, str]] = []
    for row in found if isinstance(found, list) else ():
        number, parent, text = int(row[0]), int(row[1]), str(row[2])
        depths[number] = depths.get(parent, -1) + 1
        nodes.append((depths[number], text))
    return nodes


def _read_tables(found: object) -> dict[str, _Table]:
    tables: dict[str, _Table] = {}
    for name, facts in found.items() if isinstance(found, dict) else ():
        rows = facts["rows"]
        tables[str(name).lower()] = _Table(
            rows=rows if isinstance(rows, int) else 0,
            analyzed=bool(facts["analyzed"]),
            columns=frozenset(str(column).lower() for column in facts["columns"]),
            indexed=frozenset(str(column).lower() for column in facts["indexed"]),
        )
    return tables


def _line(depth: int, text: str, sql: str, tables: Mapping[str, _Table]) -> PlanLine:
    match = _READS.match(text)
    relation = _find_table(match[2], sql, tables) if match else None
    rows = tables[relation].rows if relation and match and match[1] == "SCAN" else 0
    words = f"{text} (about {rows:,} rows)" if rows else text
    return PlanLine(
        depth=depth,
        text="  " * depth + "-> " * bool(depth) + shorten(words, 200),
        node=text.partition(" ")[0] if match else shorten(text, 60),
        relation=relation,
        estimated_rows=rows,
        total_cost=0.0,
    )


def _find_table(name: str, sql: str, tables: Mapping[str, _Table]) -> str | None:
    """The plan names aliases; the statement tells whose they are."""
    known = name.strip('"`[]').lower()
    if known in tables:
        return known
    aliased = re.compile(rf"([A-Za-z_]\w*)[\"`\]]?\s+(?:as\s+)?[\"`\[]?{re.escape(known)}\b", re.IGNORECASE)
    return next((match[1].lower() for match in aliased.finditer(sql) if match[1].lower() in tables), None)


def _judge(line: PlanLine, sql: str, tables: Mapping[str, _Table]) -> Iterator[str]:
    text = line.text.strip().removeprefix("-> ")
    if line.relation and text.startswith("SCAN ") and line.estimated_rows >= _MANY_ROWS:
        index = " through a covering index" if "USING COVERING INDEX" in text else ""
        words = f"a scan reads all of {line.relation} (about {line.estimated_rows:,} rows){index}"
        columns = _filtered(line.relation, text.split(" ")[1], sql, tables)
        if columns:
            words += f", filtering on {', '.join(columns)}"
            open_ones = [column for column in columns if column not in tables[line.relation].indexed]
            if open_ones:
                words += f": an index on {line.relation}({', '.join(open_ones)}) may help"
        yield words
    if "AUTOMATIC" in text:
        yield f"an index is built for this one statement ({text.partition('(')[0].strip()}): a lasting one may help"
    if text.startswith("USE TEMP B-TREE FOR "):
        yield f"a temporary b-tree is built for {text.removeprefix('USE TEMP B-TREE FOR ')}: no index gives that order"
    if text.startswith("CORRELATED"):
        yield "a correlated subquery runs once for each row of the query around it"


def _filtered(relation: str, alias: str, sql: str, tables: Mapping[str, _Table]) -> list[str]:
    """Columns of the table that the statement compares with something, and that are certainly its own."""
    found: dict[str, None] = {}
    for match in _CONDITION.finditer(sql):
        owner, column = (match[1] or "").lower(), match[2].lower()
        if column not in tables[relation].columns:
            continue
        shared = any(column in table.columns for name, table in tables.items() if name != relation)
        if owner in (relation, alias.lower()) or (not owner and not shared):
            found[column] = None
    return list(found)


def _warn(tables: Mapping[str, _Table]) -> Iterator[str]:
    yield "SQLite tells no costs; rows are those of the whole table"
    guessed: Sequence[str] = sorted(name for name, table in tables.items() if table.rows and not table.analyzed)
    if guessed:
        yield (
            f"sizes of {', '.join(guessed)[:200]} are the largest rowid, which is too many where rows were deleted; "
            "ANALYZE would tell them, and let the planner choose better"
        )
