"""The parts of advice that are words: what an index costs, what is not worth its place, why there is no advice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bot.tools.index_advice.answer import QuestionableIndex
from bot.tools.index_advice.candidates import find_redundant
from bot.tools.index_advice.catalog import Table
from bot.tools.index_advice.choose import LEAST_GAIN, Limits
from bot.tools.index_advice.shape import IndexShape, is_prefix
from bot.tools.index_advice.uses import TableUse

_UNUSED_LEAST_BYTES = 1024 * 1024


def describe_write_cost(shape: IndexShape, table: Table) -> str:
    """What the index costs whoever writes to its table."""
    writes = [
        f"{count:,} {word}"
        for count, word in ((table.inserted, "inserts"), (table.updated, "updates"), (table.deleted, "deletes"))
        if count
    ]
    words = (
        f"index number {len(table.indexes) + 1} of {table.name}, which took {', '.join(writes) or 'no writes'} so far"
    )
    if table.hot and shape.keys:
        words += f"; {table.hot:,} updates touched no index: one of {', '.join(key.text for key in shape.keys)} would"
    return words


def find_questionable(tables: Iterable[Table]) -> tuple[QuestionableIndex, ...]:
    """Existing indexes that do nothing, or nothing that another one does not do; none that a constraint rests on."""
    found: list[QuestionableIndex] = []
    for table in tables:
        for index in table.indexes:
            problem = ""
            if not index.valid:
                problem = "it is invalid (a CREATE INDEX CONCURRENTLY that failed): it costs writes and serves nothing"
            elif index.unique or index.constraint:
                continue
            elif other := _covering(table, index.name):
                problem = f"{other} does what it does"
            elif not index.scans and index.size_bytes >= _UNUSED_LEAST_BYTES:
                problem = "it was never used here since the counters began (replicas count for themselves)"
            if problem:
                relation = f"{table.schema}.{table.name}"
                found.append(
                    QuestionableIndex(index=index.name, table=relation, problem=problem, size_bytes=index.size_bytes)
                )
    return tuple(found)


def _covering(table: Table, name: str) -> str:
    """Another index of the table that makes this one redundant; of two that are alike the later named goes."""
    mine = next(index for index in table.indexes if index.name == name)
    for other in table.indexes:
        if other.name == name or not other.valid or mine.method != "btree":
            continue
        shape = IndexShape(
            schema=table.schema, table=table.name, keys=other.keys, include=other.include, where=other.where
        )
        alike = len(other.keys) == len(mine.keys) and other.include == mine.include
        if alike and is_prefix(mine.keys, other.keys) and not (other.unique or other.constraint) and name < other.name:
            continue
        if other.method == "btree" and name in find_redundant(shape, table.indexes):
            return other.name
    return ""


def explain_silence(
    uses: Sequence[TableUse], cost: float | None, limits: Limits, *, tried: int, guessed: bool = False
) -> str:
    """Why nothing is advised for a statement; ``guessed`` where nothing could be tried."""
    if not uses:
        return "it reads no table"
    if partitions := [use.table.name for use in uses if not use.table.ordinary]:
        return (
            f"{', '.join(dict.fromkeys(partitions))}: only ordinary tables are judged, no partitions or foreign tables"
        )
    if cost is not None and cost < LEAST_GAIN:
        return f"its plan costs {cost:,.1f} units only: there is nothing to gain"
    patterns = [c.key for use in uses for c in use.comparisons if c.kind == "pattern"]
    if patterns:
        return (
            f"{', '.join(dict.fromkeys(patterns))} is searched for a pattern that no ordinary index serves "
            "(it begins with a wildcard, or is not known); an index of the extension pg_trgm may"
        )
    if not tried:
        return "what it asks of its tables is served by existing indexes, or by none that could be made"
    words = "1 index was" if tried == 1 else f"{tried} indexes were"
    if guessed:
        words = "its plan has no large scan that keeps few rows, and nothing else can be judged by the look of it"
    else:
        words += f" tried, and none takes {limits.min_gain:.0%} of its cost away"
    return words
