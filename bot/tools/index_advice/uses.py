"""What a plan does with each of its tables, as far as an index could do it faster. No database needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bot.tools.index_advice.catalog import Table
from bot.tools.index_advice.conditions import Comparison, read_condition, read_key
from bot.tools.index_advice.shape import KeyPart
from bot.tools.slow_queries.explain_nodes import PlanNode
from bot.tools.slow_queries.explain_parse import ParseError, child, items, parse_tree, walk

_CONDITIONS = ("Index Cond", "Recheck Cond", "Filter", "Hash Cond", "Merge Cond", "Join Filter")
_LEAST_ROWS = 10_000
_LARGEST_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUse:
    """One appearance of a table in a statement.

    Args:
        alias: its name in the plan.
        table: what it is.
        comparisons: all that is asked of its columns.
        order: the keys that its rows are sorted by, where all of them are its own.
        columns: those that the statement names; None when it takes all (``*``).
        scanned_rows: read by sequential scans, as estimated, all loops together.
        kept_share: of the rows read, how many a sequential scan keeps, 0..1.
    """

    alias: str
    table: Table
    comparisons: tuple[Comparison, ...]
    order: tuple[KeyPart, ...]
    columns: frozenset[str] | None
    scanned_rows: float
    kept_share: float

    @property
    def begs(self) -> bool:
        """True when a large scan throws nearly all of its rows away: what a heuristic may advise for."""
        return self.scanned_rows >= _LEAST_ROWS and self.kept_share <= _LARGEST_SHARE


def find_aliases(top: PlanNode, tables: Mapping[tuple[str, str], Table]) -> dict[str, Table]:
    """The tables of a plan by alias."""
    found: dict[str, Table] = {}
    for node in top.walk():
        table = tables.get((node.text("Schema"), node.text("Relation Name")))
        if table is not None:
            found[node.text("Alias") or table.name] = table
    return found


def read_uses(top: PlanNode, tables: Mapping[tuple[str, str], Table], statement: str) -> tuple[TableUse, ...]:
    """Return one use for each appearance of a table in the plan."""
    aliases = find_aliases(top, tables)
    comparisons: dict[Comparison, None] = {}
    orders: dict[str, list[KeyPart]] = {}
    for node in top.walk():
        for key in _CONDITIONS:
            if text := node.text(key):
                comparisons |= dict.fromkeys(read_condition(text, aliases))
        _add_order(orders, node.texts("Sort Key"), aliases)
        if node.kind == "Aggregate":
            _add_extremes(orders, node.texts("Output"), aliases)
    columns = _named_columns(statement)
    return tuple(
        TableUse(
            alias=alias,
            table=table,
            comparisons=tuple(c for c in comparisons if c.alias == alias),
            order=tuple(orders.get(alias, ())),
            columns=None if columns is None else frozenset(table.columns) & columns,
            scanned_rows=_scanned(top, alias, table),
            kept_share=_kept(top, alias, table),
        )
        for alias, table in aliases.items()
    )


def _add_order(orders: dict[str, list[KeyPart]], texts: Sequence[str], aliases: Mapping[str, Table]) -> None:
    """Take a sort's keys as far as they are of the first key's table."""
    first, keys = "", list[KeyPart]()
    for text in texts:
        read = read_key(text, aliases)
        if read is None or (first and read[0] != first):
            break
        first = read[0]
        keys.append(KeyPart(read[1], read[2], read[3]))
    if keys and len(keys) > len(orders.get(first, ())):
        orders[first] = keys


def _add_extremes(orders: dict[str, list[KeyPart]], outputs: Iterable[str], aliases: Mapping[str, Table]) -> None:
    """min(x) and max(x) are the first and last row by x."""
    for text in outputs:
        inner = text.removeprefix("PARTIAL ")
        if inner[:4] in ("min(", "max(") and inner.endswith(")") and (read := read_key(inner[4:-1], aliases)):
            # One index serves both ends.
            orders.setdefault(read[0], [KeyPart(read[1])])


def _named_columns(statement: str) -> frozenset[str] | None:
    """The columns that a statement names; None when it has a star."""
    try:
        names: set[str] = set()
        for tree in parse_tree(statement):
            for kind, value in walk(tree):
                if kind != "column_ref":
                    continue
                fields = items(value, "fields")
                if any("a_star" in field for field in fields):
                    return None
                names.add(str(child(fields[-1], "string").get("sval", "")) if fields else "")
    except ParseError:
        return None
    return frozenset(names)


def _scans(top: PlanNode, alias: str, table: Table) -> list[PlanNode]:
    return [
        node
        for node in top.walk()
        if node.kind == "Seq Scan"
        and (node.text("Alias") or table.name) == alias
        and node.text("Relation Name") == table.name
    ]


def _scanned(top: PlanNode, alias: str, table: Table) -> float:
    return sum(max(table.rows, node.number("Plan Rows")) * node.loops for node in _scans(top, alias, table))


def _kept(top: PlanNode, alias: str, table: Table) -> float:
    shares = [node.number("Plan Rows") / max(1.0, table.rows) for node in _scans(top, alias, table)]
    return min(shares, default=1.0)
