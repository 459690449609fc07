"""From the uses of a table to indexes worth trying. No database needed.

Equality columns come first (the order among them: the one with more values first), then one range, or the order
that is asked for; a partial index where a constant picks few rows; an index that carries further columns only where
nothing else is read. Whether one helps is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bot.tools.index_advice.catalog import Column, ExistingIndex, Table, write_expression
from bot.tools.index_advice.conditions import Comparison
from bot.tools.index_advice.shape import IndexShape, KeyPart, is_prefix
from bot.tools.index_advice.uses import TableUse

Move = tuple[IndexShape, ...]
"""Indexes that are tried together: nearly always one, for an OR one for each arm."""

_MOST_MOVES = 24
_MOST_KEYS = 3
_RARE_SHARE = 0.3
_MOST_CATEGORIES = 50
_MOST_CARRIED = 3
_WIDEST_CARRIED_BYTES = 64
_WIDEST_KEY_BYTES = 800  # an entry of a B-tree holds at most a third of a page (2,704 bytes)

_PATTERN_OPCLASS = {"text": "text_pattern_ops", "varchar": "varchar_pattern_ops", "bpchar": "bpchar_pattern_ops"}
# No ordering, so no B-tree; the other access methods are not what is advised here.
_UNORDERED = frozenset({"json", "xml", "point", "box", "line", "lseg", "path", "polygon", "circle", "jsonpath"})


def build_moves(use: TableUse) -> tuple[Move, ...]:
    """What to try for one use of a table, without what exists already; the likelier first."""
    if not use.table.ordinary:
        return ()
    equal, ranges, nulls = _sort_comparisons(use)
    combined, order = _combine(use, equal, ranges), _forwards(use.order[:_MOST_KEYS])
    moves: dict[Move, None] = {}
    filtered = any(not c.other for c in equal)
    for keys in combined:
        _add(moves, use.table, keys, order_only=filtered and keys == order)
    for partial in _partials(use, nulls):
        for keys in _partial_keys(use, equal, ranges, partial):
            _add(moves, use.table, keys, where=partial.predicate)
    if bundle := _arms(use):
        moves[bundle] = None
    for keys in combined[:3]:
        if carried := _carried(use, keys):
            _add(moves, use.table, keys, include=carried)
    return tuple(moves)[:_MOST_MOVES]


def is_covered(shape: IndexShape, indexes: Iterable[ExistingIndex]) -> bool:
    """True when an existing index does what ``shape`` would do."""
    return any(
        index.valid
        and index.method == "btree"
        and index.where in ("", shape.where)
        and is_prefix(shape.keys, index.keys)
        and set(shape.include) <= {*index.include, *(key.text for key in index.keys)}
        for index in indexes
    )


def find_redundant(shape: IndexShape, indexes: Iterable[ExistingIndex]) -> tuple[str, ...]:
    """Existing indexes that nobody needs beside ``shape``; never one that a constraint rests on."""
    return tuple(
        index.name
        for index in indexes
        if index.valid
        and index.method == "btree"
        and not index.unique
        and not index.constraint
        and index.where == shape.where
        and is_prefix(index.keys, shape.keys)
        and set(index.include) <= {*shape.include, *(key.text for key in shape.keys)}
    )


def _sort_comparisons(use: TableUse) -> tuple[list[Comparison], list[Comparison], list[Comparison]]:
    """Equalities (more values first), ranges, and those for a partial index, without those inside an OR."""
    equal: dict[str, Comparison] = {}
    ranges: dict[str, Comparison] = {}
    nulls: list[Comparison] = []
    for comparison in use.comparisons:
        if comparison.arm or not _can_be_key(use.table, comparison):
            continue
        match comparison.kind:
            case "equal" | "among":
                equal.setdefault(comparison.key, comparison)
            case "range" | "prefix":
                ranges.setdefault(comparison.key, comparison)
            case "is_null" | "not_null" | "is_true" | "is_false":
                nulls.append(comparison)
            case "pattern":
                pass
    distinct = {key: _count_distinct(use.table, c) for key, c in equal.items()}
    return sorted(equal.values(), key=lambda c: -distinct[c.key]), list(ranges.values()), nulls


def _combine(use: TableUse, equal: Sequence[Comparison], ranges: Sequence[Comparison]) -> list[tuple[KeyPart, ...]]:
    keys = [_key(use.table, c) for c in equal]
    combined: list[tuple[KeyPart, ...]] = []
    bounds = [_key(use.table, c) for c in ranges]
    filters = [_key(use.table, c) for c in equal if not c.other]
    for head in _heads(keys, filters):
        combined += [(*head, *_forwards(use.order[: _MOST_KEYS - len(head)]))] if use.order else []
        combined += [(*head, bound) for bound in bounds]
        combined.append(head)
    combined += [(key,) for key in keys] + [(bound,) for bound in bounds]
    if use.order:
        combined.append(_forwards(use.order[:_MOST_KEYS]))
    return [_unique(keys) for keys in dict.fromkeys(combined) if keys]


def _forwards(order: tuple[KeyPart, ...]) -> tuple[KeyPart, ...]:
    """The order that begins upwards: an index is read backwards as well, so the two are one index.

    Behind equalities, too: of these there is one value, so their own direction does not matter
    (https://www.postgresql.org/docs/current/indexes-ordering.html).
    """
    return tuple(key.reversed() for key in order) if order and order[0].descending else order


def _heads(keys: Sequence[KeyPart], filters: Sequence[KeyPart]) -> Iterator[tuple[KeyPart, ...]]:
    """Groups of equalities: all, those that are no joins, and each alone."""
    yield tuple(keys[:_MOST_KEYS])
    if filters and len(filters) < len(keys):
        yield tuple(filters[:_MOST_KEYS])
    for key in keys:
        yield (key,)


def _unique(keys: Sequence[KeyPart]) -> tuple[KeyPart, ...]:
    kept: dict[str, KeyPart] = {}
    for key in keys:
        kept.setdefault(key.text, key)
    return tuple(kept.values())


def _partials(use: TableUse, nulls: Sequence[Comparison]) -> Iterator[Comparison]:
    """Conditions that are the same in every execution and pick few rows."""
    for comparison in nulls:
        column = use.table.columns.get(comparison.columns[0]) if len(comparison.columns) == 1 else None
        if column is not None and _null_share(column, comparison) <= _RARE_SHARE:
            yield comparison
    for comparison in use.comparisons:
        if comparison.kind != "equal" or comparison.constant is None or comparison.arm or comparison.other:
            continue
        column = use.table.columns.get(comparison.columns[0])
        if column is None or len(comparison.columns) > 1 or comparison.key.strip('"') != column.name:
            continue
        # Only a category: a value that many rows share may stand in the DDL, one of a single row is data.
        share = column.common.get(comparison.constant, 0.0)
        if 0 < share <= _RARE_SHARE and 0 < column.count_distinct(use.table.rows) <= _MOST_CATEGORIES:
            yield comparison


def _null_share(column: Column, comparison: Comparison) -> float:
    match comparison.kind:
        case "is_null":
            return column.null_frac
        case "not_null":
            return 1 - column.null_frac
        case "is_true":
            return column.common.get("t", 0.0)
        case _:
            return column.common.get("f", 0.0)


def _partial_keys(
    use: TableUse, equal: Sequence[Comparison], ranges: Sequence[Comparison], partial: Comparison
) -> Iterator[tuple[KeyPart, ...]]:
    others = [c for c in equal if c.key != partial.key]
    rest = _combine(use, others, [c for c in ranges if c.key != partial.key])
    yield from rest[:3]
    if not rest and _can_be_key(use.table, partial):
        yield (KeyPart(partial.key),)


def _arms(use: TableUse) -> Move:
    """One index for each arm of an OR; with one missing the whole table is read anyway."""
    arms = [c for c in use.comparisons if c.arm and not c.other]
    if not arms or not all(_can_be_key(use.table, c) and c.kind in ("equal", "among", "range", "prefix") for c in arms):
        return ()
    shapes = dict.fromkeys(
        IndexShape(schema=use.table.schema, table=use.table.name, keys=(_key(use.table, c),)) for c in arms
    )
    return tuple(shape for shape in shapes if not is_covered(shape, use.table.indexes))


def _carried(use: TableUse, keys: Sequence[KeyPart]) -> tuple[str, ...]:
    """The further columns that would spare reading the table; empty when they are too many or too wide."""
    if use.columns is None or any(not key.is_column for key in keys):
        return ()
    present = {key.text.strip('"') for key in keys}
    rest = [use.table.columns[name] for name in sorted(use.columns) if name not in present]
    if not 0 < len(rest) <= _MOST_CARRIED or sum(column.width for column in rest) > _WIDEST_CARRIED_BYTES:
        return ()
    return tuple(write_expression({"column_ref": {"fields": [{"string": {"sval": c.name}}]}}) for c in rest)


def _can_be_key(table: Table, comparison: Comparison) -> bool:
    columns = [table.columns[name] for name in comparison.columns]
    plain = len(columns) == 1 and comparison.key.strip('"') == columns[0].name
    if plain and columns[0].type_name in _UNORDERED:
        return False
    return sum(column.width for column in columns) <= _WIDEST_KEY_BYTES


def _count_distinct(table: Table, comparison: Comparison) -> float:
    return max(table.columns[name].count_distinct(table.rows) for name in comparison.columns)


def _key(table: Table, comparison: Comparison) -> KeyPart:
    column = table.columns[comparison.columns[0]]
    opclass = ""
    if comparison.kind == "prefix" and not column.plain_order:
        plain = comparison.key.strip('"') == column.name
        opclass = _PATTERN_OPCLASS.get(column.type_name if plain else "text", "")
    return KeyPart(comparison.key, opclass=opclass)


def _add(
    moves: dict[Move, None],
    table: Table,
    keys: tuple[KeyPart, ...],
    include: tuple[str, ...] = (),
    where: str = "",
    *,
    order_only: bool = False,
) -> None:
    shape = IndexShape(
        schema=table.schema, table=table.name, keys=keys, include=include, where=where, order_only=order_only
    )
    if not is_covered(shape, table.indexes):
        moves[(shape,)] = None
