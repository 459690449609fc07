"""Which index does the work of another one: a comparison of definitions, without any database.

Two indexes are only called equal when every statement that can use the one can use the other in the same way: same
table, access method, columns or expressions in the same order with operator class, collation, sort order and
parameters, same INCLUDE columns, same predicate. Whatever enforces something (unique, exclusion) is only replaced by
what enforces the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["duplicate", "prefix_redundant"]

_ORDERED_METHODS = frozenset({"btree", "BTREE"})
"""Methods in which an index also serves searches for its first columns alone."""

_KINDS: tuple[Kind, ...] = ("duplicate", "prefix_redundant")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPart:
    """One column or expression of an index, with everything that makes it differ from another one of the same name.

    Args:
        text: the column, or the expression as the server writes it.
        traits: operator class, collation, order, parameters; for MySQL the prefix length.
    """

    text: str
    traits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexShape:
    """What an index is, as far as comparing it goes.

    Args:
        key: identifies it, for example its oid.
        table: identifies the table.
        method: ``btree``, ``gin``...
        parts: its key columns in order.
        included: columns that are only stored.
        predicate: of a partial index, as the server writes it; empty for a whole one.
        parameters: storage parameters that change what a non-btree index can answer.
        unique: it refuses duplicates; ``nulls_not_distinct`` and ``deferrable`` say how.
        constraint: a constraint stands on it, so that it cannot be dropped by itself.
        pinned: something else needs exactly this one (primary key, foreign key, replica identity, an exclusion).
        droppable: false for what cannot be dropped by itself, like the part of a partitioned index.
        rank: decides which of equal indexes stays; the greatest does.
        size_bytes: decides which of several covering indexes is named; the smallest is.
    """

    key: str
    table: str
    method: str
    parts: tuple[KeyPart, ...]
    included: frozenset[str] = frozenset()
    predicate: str = ""
    parameters: tuple[str, ...] = ()
    unique: bool = False
    nulls_not_distinct: bool = False
    deferrable: bool = False
    constraint: bool = False
    pinned: bool = False
    droppable: bool = True
    rank: tuple[int, ...] = ()
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Redundancy:
    """``index`` can go because ``covered_by`` stays."""

    index: IndexShape
    covered_by: IndexShape
    kind: Kind


def find_redundant(shapes: Iterable[IndexShape]) -> tuple[Redundancy, ...]:
    """Find indexes whose work another index of the same table does.

    Each is named once. Whatever remains without them still serves every statement: what covers one stays, or is
    covered itself by one that stays.
    """
    by_table: defaultdict[str, list[IndexShape]] = defaultdict(list)
    for shape in shapes:
        by_table[shape.table].append(shape)
    return tuple(found for table in by_table.values() for found in _find_in_table(table))


def _find_in_table(shapes: Sequence[IndexShape]) -> list[Redundancy]:
    found: list[Redundancy] = []
    kept = list(shapes)
    # One after the other, so that of two equal ones the second still has the first to stand on.
    for kind in _KINDS:
        for shape in sorted(shapes, key=lambda s: (s.rank, s.key)):
            if shape not in kept or not shape.droppable or shape.pinned:
                continue
            others = [other for other in kept if other is not shape]
            covers = [other for other in others if _covers(other, shape, kind)]
            if covers:
                kept.remove(shape)
                if kind == "duplicate":
                    cover = max(covers, key=lambda other: (other.rank, other.key))
                else:
                    cover = min(covers, key=lambda other: (other.size_bytes, other.key))
                found.append(Redundancy(index=shape, covered_by=cover, kind=kind))
    return [_stand_on_what_stays(item, kept) for item in found]


def _stand_on_what_stays(item: Redundancy, kept: Sequence[IndexShape]) -> Redundancy:
    """Name an index that stays: what begins with the same columns may have turned out redundant itself.

    A duplicate is named with its twin all the same; whatever covers the twin covers both.
    """
    if item.kind == "duplicate" or item.covered_by in kept:
        return item
    covers = [other for other in kept if _covers(other, item.index, item.kind)]
    cover = min(covers, key=lambda other: (other.size_bytes, other.key), default=item.covered_by)
    return Redundancy(index=item.index, covered_by=cover, kind=item.kind)


def _covers(cover: IndexShape, index: IndexShape, kind: Kind) -> bool:
    if (cover.method, cover.predicate) != (index.method, index.predicate):
        return False
    if kind == "duplicate":
        return (
            cover.parts == index.parts
            and cover.included == index.included
            and cover.parameters == index.parameters
            and _enforces_the_same(cover, index)
        )
    if index.method not in _ORDERED_METHODS or index.unique or index.constraint:
        return False
    length = len(index.parts)
    if length >= len(cover.parts) or cover.parts[:length] != index.parts:
        return False
    return index.included <= cover.included | {part.text for part in cover.parts}


def _enforces_the_same(cover: IndexShape, index: IndexShape) -> bool:
    if not index.unique:
        return not index.constraint
    # A deferrable constraint checks later than an immediate one and serves no foreign key: neither replaces the other.
    return cover.unique and (cover.nulls_not_distinct, cover.deferrable) == (index.nulls_not_distinct, index.deferrable)
